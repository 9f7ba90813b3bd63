"""What an event does: to an optimizer, and to the records around it.

The journal's events are applied to two replicas:

    the optimizer   models, dual, ledger: as heavy as its models are; it lags behind and catches up when it is asked
    the record      the same ledger without models (`Book`), guards, times, orders: always up to date, so that a tell
                    is checked and acknowledged without waiting for any model

An ask is not searched again: the event carries the step as it was proposed, and replay enters that. A rebuilt optimizer
has the state, to the last bit, of one that was never interrupted; for that its posteriors are asked again where a tell
took a row off their answer (`pdcbo.structured`), so a replay takes about as long as the asks did. Checkpoints spare it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pdcbo.guards import Guards
from pdcbo.history import as_run
from pdcbo.optimizers import OPTIMIZERS, Optimizer, Suggestion
from pdcbo.optimizers.base import Bounds
from pdcbo.optimizers.ledger import Ledger, Step
from pdcbo.problem import Array, Constraint, Problem, Scalar
from pdcbo.store.journal import Event

SETTLED = ("tell", "fail")
NO_REASON = "no reason given"


class Book(Optimizer):
    """An optimizer that keeps the ledger and proposes nothing: what all optimizers accept or refuse, it does."""

    name = "book"

    def _choose(self, z: Array, rng: Any) -> tuple[Array, Bounds]:
        raise RuntimeError("the book proposes nothing")


def new_optimizer(created: Mapping[str, Any]) -> Optimizer:
    """Return the optimizer that the first event of a study describes."""
    return OPTIMIZERS[created["optimizer"]](
        Problem.from_json(created["problem"]),
        horizon=created["horizon"],
        seed=created["seed"],
        delta=created["delta"],
        **created["settings"],
    )


def constraint_changes(limits: Mapping[str, Any]) -> dict[str, Any]:
    """Read limits from JSON: a number, or both sides of a constraint."""
    changes = {}
    known = list(Constraint.__dataclass_fields__)
    for name, spec in limits.items():
        unknown = [key for key in spec if key not in known] if isinstance(spec, Mapping) else []
        if unknown:
            raise ValueError(f"limits[{name!r}]: unknown {unknown[0]!r}; there are {known!r}")
        try:
            changes[name] = Constraint(**spec) if isinstance(spec, Mapping) else spec
        except (TypeError, ValueError) as error:
            raise type(error)(f"limits[{name!r}]: {error}") from None
    return changes


def apply_to_optimizer(optimizer: Optimizer, event: Event) -> None:
    """Do to an optimizer what an event says; events of the guards mean nothing to it."""
    p = event.payload
    match event.kind:
        case "ask":
            optimizer.adopt(Step.from_json(p["step"]))
        case "tell":
            optimizer.tell(p["id"], p["objective"], p["constraints"], applied=p["applied"], context=p["context"])
        case "fail":
            optimizer.fail(p["id"], p["reason"], applied=p["applied"])
        case "correct":
            optimizer.correct(p["id"], **{k: p[k] for k in ("objective", "constraints") if k in p})
        case "observe":
            optimizer.observe_table(p["rows"])
        case "limits":
            optimizer.set_limits(constraint_changes(p["limits"]))


class Record:
    """Everything about a study but its models; see the module.

    Attributes:
        seq: the latest event it has seen.
        created: the payload of the first event.
        book: the ledger's keeper.
        guards: in force now.
        paused: the reason of a pause, or None.
        known_good: parameters to return to, or None.
        returning: why the next suggestions are the known-good parameters, or None.
        notes: suggestion id -> what the ledger does not hold: times, origin, words of the guards, the settling event.
        last: the parameters of the newest suggestion reported as applied, or where guards said since that it stands.
        last_id: the id of the newest suggestion that is no newer than that, 0 before any.
        open: id -> time of ask of every pending suggestion, oldest first.
        warm: the number of rows of past operation learned from.
    """

    def __init__(self, created: Mapping[str, Any]) -> None:
        self.seq = 0
        self.created = dict(created)
        problem = Problem.from_json(created["problem"])
        self.book = Book(problem, horizon=created["horizon"], seed=created["seed"], delta=created["delta"])
        self.guards = Guards.from_json(created["guards"]).check(problem)
        self.paused: str | None = None
        self.known_good: dict[str, Scalar] | None = None
        self.returning: str | None = None
        self.notes: dict[int, dict[str, Any]] = {}
        self.last: dict[str, Scalar] | None = None
        self.last_id = 0
        self.open: dict[int, float] = {}
        self.warm = 0

    def apply(self, event: Event) -> None:
        """Take account of the next event."""
        assert event.seq == self.seq + 1, f"the journal has event {event.seq} after {self.seq}"
        p = event.payload
        apply_to_optimizer(self.book, event)
        match event.kind:
            case "ask":
                self.open[p["step"]["suggestion"]["id"]] = event.time
                self.notes[p["step"]["suggestion"]["id"]] = {
                    "asked": event.time, "origin": p["origin"], "why": p["why"], "guarded": p["guarded"],
                    "seen": p["seen"],
                    "prices": p["prices"],
                }  # fmt: skip
            case "tell" | "fail":
                note = self.notes[p["id"]]
                note["settled"] = event.time
                del self.open[p["id"]]
                note[event.kind] = p
                if (event.kind == "tell" or p["applied"]) and p["id"] > self.last_id:
                    self.last_id = p["id"]
                    self.last = self.applied(p["id"])
            case "observe":
                self.warm += len(p["rows"])
            case "guards":
                before, self.guards = self.guards.start, Guards.from_json(p).check(self.book.problem)
                if self.guards.start is not None and self.guards.start != before:  # where the plant stands now
                    self.last, self.last_id = dict(self.guards.start), self.book.ledger.next_id - 1
            case "pause":
                self.paused = p["reason"] or NO_REASON
            case "resume":
                self.paused = self.returning = None
            case "known-good":
                self.known_good = p["parameters"]
            case "return":
                self.returning = p["reason"] or NO_REASON
        self.seq = event.seq

    def applied(self, suggestion: int) -> dict[str, Scalar]:
        """Return the parameters that a suggestion ran with: as reported, and else as proposed."""
        problem = self.book.problem
        return problem.plain_parameters(as_run(problem, self.book.ledger.steps[suggestion], self.notes[suggestion]))

    @property
    def latest(self) -> Suggestion | None:
        """The suggestion that was asked for last."""
        last = next(reversed(self.notes), None)
        return None if last is None else self.book.ledger.steps[last].suggestion

    def in_full(self, settling: Mapping[str, Any]) -> dict[str, Any]:
        """Return the payload of a tell or a fail with all that was applied and held, said or not."""
        proposed = self.book.ledger.steps[settling["id"]].suggestion
        full = dict(settling)
        if "objective" in full:
            full["applied"] = {**proposed.parameters, **(full["applied"] or {})}
            full["context"] = {**proposed.context, **(full["context"] or {})}
        return full

    def settled_as(self, suggestion: int) -> tuple[str, dict[str, Any]] | None:
        """Return the kind and payload of the event that settled a suggestion, or None while it is pending."""
        note = self.notes.get(suggestion, {})
        return next(((kind, note[kind]) for kind in SETTLED if kind in note), None)

    def state(self) -> dict[str, Any]:
        """Return what a checkpoint must hold beside the optimizer's state."""
        return {
            "guards": self.guards.to_json(),
            "paused": self.paused,
            "known_good": self.known_good,
            "returning": self.returning,
            "notes": [[k, dict(v)] for k, v in self.notes.items()],
            "last": self.last,
            "last_id": self.last_id,
            "warm": self.warm,
        }

    @classmethod
    def restore(
        cls, created: Mapping[str, Any], seq: int, state: Mapping[str, Any], tuner: Mapping[str, Any]
    ) -> Record:
        """Return the record of a checkpoint; the ledger is in the optimizer's state."""
        record = cls(created)
        record.seq = seq
        record.book.problem = Problem.from_json(tuner["problem"])
        record.book.ledger = Ledger.restore(tuner["ledger"])
        record.guards = Guards.from_json(state["guards"]).check(record.book.problem)
        record.paused, record.returning = state["paused"], state["returning"] or None
        if state["returning"] is True:  # a checkpoint from before the reason was kept
            record.returning = NO_REASON
        record.known_good, record.last, record.warm = state["known_good"], state["last"], state["warm"]
        record.last_id = state["last_id"]
        record.notes = {int(k): v for k, v in state["notes"]}
        record.open = {i: note["asked"] for i, note in record.notes.items() if "settled" not in note}
        return record

    def running(self) -> list[dict[str, Scalar]]:
        """Return the parameters that the plant may be running now: the newest reported, then later ones pending."""
        steps = self.book.ledger.steps
        later = [steps[i].suggestion.parameters for i in self.open if i > self.last_id]
        return later if self.last is None else [self.last, *later]
