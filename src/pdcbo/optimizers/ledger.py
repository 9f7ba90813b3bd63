"""The book of what was proposed, what ran and what was measured.

A step is `pending` from its ask on. It is settled once:

    told        the plant ran and something may have been measured; it counts
    unmeasured  the plant ran and nothing was measured; it counts
    dropped     the plant never ran with it; it does not count

Averages and certificates are over the steps that count, in the order in which they were settled. A step is held
against the limits in force when it was asked. How a step was first settled is kept, so that the same message is known
again even after a correction.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pdcbo.problem import Array, Limit, Problem, Scalar

PENDING, TOLD, UNMEASURED, DROPPED = "pending", "told", "unmeasured", "dropped"


@dataclass(frozen=True)
class Suggestion:
    """What to apply next.

    Attributes:
        id: names the suggestion in `tell` and `fail`.
        parameters: in plant units.
        context: the context it was asked for.
        outside: the context variables that lie outside their stated range.
        bounds: output -> (lower, upper) confidence bounds it was chosen with, in plant units; empty without a model.
    """

    id: int
    parameters: dict[str, Scalar]
    context: dict[str, Scalar] = field(default_factory=dict)
    outside: tuple[str, ...] = ()
    bounds: dict[str, tuple[float, float]] = field(default_factory=dict)

    def copy(self) -> Suggestion:
        """Return an equal suggestion that shares nothing, so that users may change what they were given."""
        return Suggestion(self.id, dict(self.parameters), dict(self.context), self.outside, dict(self.bounds))

    def to_json(self) -> dict[str, Any]:
        """Describe the suggestion in JSON."""
        return {
            "id": self.id,
            "parameters": dict(self.parameters),
            "context": dict(self.context),
            "outside": list(self.outside),
            "bounds": {name: list(both) for name, both in self.bounds.items()},
        }


@dataclass(slots=True)
class Step:
    """One suggestion's way through the book.

    Attributes:
        suggestion: as it was proposed.
        x: the point (theta, z) that was proposed, and once it is settled the one that was applied.
        proposed: the point that was proposed, where another one was applied.
        limits: the bound of each `Limit` in force when it was asked.
        status: see the module.
        y: what was measured, (q,), NaN = not measured.
        row: its place in the models' data, None if nothing was measured.
        reason: of a failure.
        signal: what each queue was moved by, (N,), before the slack; empty without queues.
        expected: what each balance was moved by, (N,), where that is not the signal: something was not measured.
        known: the number of events that it was proposed after; -1 where no model proposed it.
        moved: its point was not chosen by the model with the suggestion's bounds.
        outside: the context variables that were outside their stated range.
        settled: the status with which it was first settled.
        first_y: what was first told, where it was corrected since.
    """

    suggestion: Suggestion
    x: list[float]
    limits: list[float]
    status: str = PENDING
    y: list[float] = field(default_factory=list)
    row: int | None = None
    reason: str = ""
    signal: list[float] = field(default_factory=list)
    moved: bool = False
    proposed: list[float] | None = None
    outside: list[str] = field(default_factory=list)
    settled: str = ""
    first_y: list[float] | None = None
    expected: list[float] = field(default_factory=list)
    known: int = -1

    def told_before(self, x: list[float], y: list[float]) -> bool:
        """Tell whether this very result was told before."""
        return (
            self.settled == TOLD and x == self.x and same_outcome(self.y if self.first_y is None else self.first_y, y)
        )

    def remedy(self, *, elsewhere: bool) -> str:
        """Say what can be done about a result other than the one it was settled with; `elsewhere`: at another point."""
        if self.status == DROPPED:
            return "it never ran"
        if self.settled == TOLD and elsewhere:
            return "the parameters and the context that it ran with stay as first told"
        return "use correct() to replace or supply measured values"

    def to_json(self) -> dict[str, Any]:
        """Describe the step in JSON."""
        return {
            "suggestion": self.suggestion.to_json(),
            "x": list(self.x),
            "limits": list(self.limits),
            "status": self.status,
            "y": _to_json(self.y),
            "row": self.row,
            "reason": self.reason,
            "signal": list(self.signal),
            "moved": self.moved,
            "proposed": None if self.proposed is None else list(self.proposed),
            "outside": list(self.outside),
            "settled": self.settled,
            "first_y": None if self.first_y is None else _to_json(self.first_y),
            "expected": list(self.expected),
            "known": self.known,
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Step:
        """Read what `to_json` wrote."""
        s = data["suggestion"]
        suggestion = Suggestion(
            s["id"],
            dict(s["parameters"]),
            dict(s["context"]),
            tuple(s["outside"]),
            {k: (v[0], v[1]) for k, v in s["bounds"].items()},
        )
        plain = {k: list(v) if isinstance(v, list) else v for k, v in data.items()}
        outcomes = {k: None if data.get(k) is None else _from_json(data[k]) for k in ("y", "first_y")}
        fields: dict[str, Any] = {**plain, **outcomes, "suggestion": suggestion}
        return cls(**fields)


def _to_json(y: list[float]) -> list[float | None]:
    return [None if math.isnan(v) else v for v in y]


def _from_json(y: list[float | None]) -> list[float]:
    return [math.nan if v is None else float(v) for v in y]


class Ledger:
    """All steps by id, and the order in which those that count were settled."""

    def __init__(self) -> None:
        self.steps: dict[int, Step] = {}
        self.counted: list[int] = []
        self.events = 0
        self.next_id = 1
        # what was stated of each constraint, (noise, worst), while other steps were asked for
        self.superseded: list[dict[str, tuple[float | None, float | None]]] = []

    def restate(self, before: Problem, now: Problem) -> None:
        """Take account of another noise or worst value of a constraint: steps asked for before keep the old one."""
        said, says = ({n: (c.noise, c.worst) for n, c in p.constraints.items()} for p in (before, now))
        if self.steps and said != says:
            self.superseded.append(said)

    def stated_noise(self, constraint: str, now: float | None) -> float | None:
        """Return the largest noise stated of a constraint for any step, None if none is stated now."""
        before = [said[constraint][0] for said in self.superseded]
        return None if now is None else max([now, *(noise for noise in before if noise is not None)])

    def stated_worst(self, limit: Limit, now: float | None) -> float | None:
        """Return the worst value stated of a limit's quantity for any step, None if none is stated now."""
        before = [said[limit.constraint][1] for said in self.superseded]
        known = [worst for worst in before if worst is not None]
        return None if now is None else max([now, *known], key=lambda worst: limit.sign * worst)

    def open(self, step: Step) -> None:
        """Enter a new pending step.

        Raises:
            ValueError: its suggestion has the id of another one.
        """
        if step.suggestion.id in self.steps:
            raise ValueError(f"suggestion {step.suggestion.id} is in the book already; propose again")
        self.steps[step.suggestion.id] = step
        self.next_id = max(self.next_id, step.suggestion.id + 1)

    def proposed_last(self, x: Array) -> bool:
        """Tell whether the last suggestion is pending, was made after all events, and proposed this point."""
        step = self.steps.get(self.next_id - 1)
        if step is None or step.status != PENDING or step.known != self.events or step.moved:
            return False
        return bool(step.x == x.tolist())

    def find(self, suggestion: Suggestion | int) -> Step:
        """Return the step of a suggestion or its id.

        Raises:
            TypeError: neither was given.
            ValueError: no such suggestion was made here.
        """
        given = suggestion.id if isinstance(suggestion, Suggestion) else suggestion
        if isinstance(given, bool) or not isinstance(given, int | np.integer):
            raise TypeError(f"suggestion must be a Suggestion or its id, got {suggestion!r}")
        step = self.steps.get(int(given))
        if step is None:
            raise ValueError(f"suggestion {int(given)} is unknown; {len(self.steps)} were made so far")
        mine = step.suggestion
        if isinstance(suggestion, Suggestion) and (
            suggestion.parameters != mine.parameters or suggestion.context != mine.context
        ):
            raise ValueError(
                f"suggestion {given} proposed {mine.parameters!r} for {mine.context!r} here, got one with "
                f"{suggestion.parameters!r} for {suggestion.context!r}; it was made by another tuner or changed "
                "since; what really ran is told with applied={...}"
            )
        return step

    def settle(self, step: Step, status: str) -> None:
        """Close a pending step."""
        step.status = step.settled = status
        if status != DROPPED:
            self.counted.append(step.suggestion.id)
            self.events += 1  # a step that never ran told nothing: the next proposal is the same

    @property
    def pending(self) -> list[Suggestion]:
        """The suggestions nobody has settled, oldest first."""
        return [step.suggestion.copy() for step in self.steps.values() if step.status == PENDING]

    def history(self) -> list[Step]:
        """The steps that count, in order."""
        return [self.steps[i] for i in self.counted]

    def state(self) -> dict[str, Any]:
        """Return the book as JSON data."""
        return {
            "steps": [step.to_json() for step in self.steps.values()],
            "counted": list(self.counted),
            "events": self.events,
            "next_id": self.next_id,
            "superseded": [{name: list(both) for name, both in said.items()} for said in self.superseded],
        }

    @classmethod
    def restore(cls, state: dict[str, Any]) -> Ledger:
        """Read what `state` returned."""
        ledger = cls()
        for data in state["steps"]:
            ledger.open(Step.from_json(data))
        ledger.counted = [int(i) for i in state["counted"]]
        counting = {i for i, step in ledger.steps.items() if step.status in (TOLD, UNMEASURED)}
        if len(ledger.counted) != len(counting) or set(ledger.counted) != counting:
            apart = sorted(counting ^ set(ledger.counted)) or "the same step twice"
            raise ValueError(
                f"state is damaged: 'counted' must name each step that counts once; it does not for {apart}"
            )
        ledger.events = int(state["events"])
        ledger.next_id = int(state["next_id"])
        said = state.get("superseded", [])  # which no state had before
        ledger.superseded = [{name: (noise, worst) for name, (noise, worst) in each.items()} for each in said]
        return ledger


def measured(y: list[float]) -> bool:
    """Tell whether anything was measured."""
    return any(not math.isnan(v) for v in y)


def same_outcome(a: list[float], b: list[float]) -> bool:
    """Tell whether two outcomes are equal, not measured being equal to not measured."""
    return len(a) == len(b) and all(u == v or (math.isnan(u) and math.isnan(v)) for u, v in zip(a, b, strict=True))


def limit_mean(limit: Limit, steps: list[Step], index: int) -> float:
    """Return the average of the limit in force over steps: to the last bit the limit itself where it never changed."""
    limits = [step.limits[index] for step in steps] or [limit.bound]
    return limits[0] if len(set(limits)) == 1 else math.fsum(limits) / len(limits)


def measured_limit_mean(limit: Limit, steps: list[Step], index: int) -> float:
    """Return the average of the limit in force over the steps that its average is of: those where it was measured."""
    return limit_mean(limit, [step for step in steps if not math.isnan(step.y[limit.output])] or steps, index)
