"""What all optimizers share: ask and tell, feedback as it is in life, state, certificate, summary.

What feedback does, in every optimizer:

- `ask` proposes; it depends only on the context and on what was told, and changes nothing but the list of pending
  suggestions. Asked twice it proposes the same twice, under two ids.
- `tell` settles a suggestion: what was measured enters the models, the averages and, where there is one, the dual,
  once. The same tell again is ignored, also after a correction; a different one is refused.
- A late or out-of-order tell counts when it arrives, as the next step of the average, against the limits in force when
  it was asked. Until then neither the dual nor a certificate knows of the step: both speak of the steps settled so far.
  The dual moves by what was measured or, where it moves by a confidence bound, by the one the suggestion was chosen
  with, however old that is.
- A value of None was not measured: the model of that quantity does not learn and its average passes over the step. The
  dual moves by the bound the suggestion was chosen with, and the default's balance by the posterior mean. The
  certificate charges the step with the worst value stated for the quantity, or else with the posterior's bound; where
  there is neither, the observation certificate is None.
- `fail(applied=True)`: the plant ran, nothing was measured. The step counts as unmeasured in every constraint, with all
  that was said of None.
- `fail(applied=False)`: it never ran. Nothing changes but that the suggestion is no longer pending: not the dual, not
  the averages, not the certificate.
- `correct` replaces measured values, or supplies late ones; models, averages and certificates are as if they had been
  told from the start, and a dual that moved by another value is moved by the difference.
- `observe` takes data nobody asked for: they enter the models, not the averages and not the dual. A price that is
  planned from the models is planned again.
- `set_limits` changes limits for suggestions asked from now on.

A call that is refused leaves everything as it was.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Self

import numpy as np
from numpy.random import Generator

from pdcbo.optimizers.assurance import Assurance
from pdcbo.optimizers.ledger import (
    DROPPED,
    PENDING,
    TOLD,
    UNMEASURED,
    Ledger,
    Step,
    Suggestion,
    same_outcome,
)
from pdcbo.optimizers.past import past_point, past_points
from pdcbo.optimizers.summary import Summary, brief, describe
from pdcbo.optimizers.uninterrupted import uninterrupted
from pdcbo.problem import Array, Problem, Values, as_number, as_whole
from pdcbo.search import Draw

STATE_VERSION = 3
STATE_KEYS = ("optimizer", "problem", "horizon", "seed", "delta", "settings", "ledger", "extra")

UNCHANGED: Any = type("Unchanged", (), {"__repr__": lambda self: "unchanged"})()

Bounds = dict[str, tuple[float, float]]


class Optimizer(Assurance, ABC):
    """The interface of all optimizers and the bookkeeping behind it.

    Args:
        problem: what is tuned.
        horizon: the number of steps planned, or None for endless operation.
        seed: of all randomness; equal seeds and feedback give equal suggestions.
        delta: the probability, joint over the constraints and all times, that a certificate may be wrong.
    """

    name: ClassVar[str]

    def __init__(self, problem: Problem, *, horizon: int | None = None, seed: int = 0, delta: float = 0.05) -> None:
        if not isinstance(problem, Problem):
            raise TypeError(f"problem must be a Problem, got {problem!r}")
        if horizon is not None and as_whole(horizon, "horizon") < 1:
            raise ValueError(f"horizon must be at least 1, or None for endless operation, got {horizon!r}")
        if as_whole(seed, "seed") < 0:
            raise ValueError(f"seed must be at least 0, got {seed!r}")
        if not 0.0 < as_number(delta, "delta") < 1.0:
            raise ValueError(f"delta must lie between 0 and 1, got {delta!r}")
        self.problem = problem
        self.horizon = None if horizon is None else int(horizon)
        self.seed = int(seed)
        self.delta = float(delta)
        self.ledger = Ledger()

    # What an optimizer has to say for itself

    @abstractmethod
    def _choose(self, z: Array, rng: Draw) -> tuple[Array, Bounds]:
        """Return theta for context z, with each output's confidence bounds there, without changing anything."""

    def _learn(self, x: Array, y: Array) -> int | None:
        """Learn from a measurement and return its row in the models, or None without one."""
        return None

    def _relearn(self, row: int | None, x: Array, y: Array) -> int | None:
        """Replace a measurement and return its row in the models."""
        return row

    def _count(self, step: Step) -> None:
        """Take account of a step that counts, before the models learn from it."""

    def _advance(self) -> None:
        """Take account of the step being over, after the models learned from it."""

    def _look_back(self) -> None:
        """Take account of past operation, after the models learned from it."""

    def _reconsider(self) -> None:
        """Take account of a correction, after the models learned from it."""

    def _recount(self, step: Step, y: Array) -> None:
        """Take account of a correction after the models learned from it, before it is entered in the step."""

    def _settings(self) -> dict[str, Any]:
        """Return the keyword arguments that `__init__` needs beside the common ones, as JSON data."""
        return {}

    def _extra_state(self) -> dict[str, Any]:
        return {}

    def _restore_extra(self, state: Mapping[str, Any]) -> None:
        pass

    # The interface

    def ask(self, context: Values | None = None) -> Suggestion:
        """Propose parameters for a context.

        Raises:
            TypeError, ValueError: the context is missing, unknown, not finite or of a wrong type.
        """
        return self.adopt(self.propose(context))

    def propose(self, context: Values | None = None) -> Step:
        """Return what `ask` would propose, without entering it: nothing changes."""
        z = self.problem.encode_context(context)
        outside = self.problem.outside(context)
        theta, bounds = self._choose(z, self._rng)
        parameters, held = self.problem.decode_parameters(theta), self.problem.plain_context(context)
        suggestion = Suggestion(self.ledger.next_id, parameters, held, outside, bounds)
        limits = [limit.bound for limit in self.problem.limits]
        known = self.ledger.events
        return Step(suggestion, theta.tolist() + z.tolist(), limits, outside=list(outside), known=known)

    def adopt(self, step: Step) -> Suggestion:
        """Enter a pending step that was proposed here before, or chosen elsewhere, and return its suggestion.

        A step with `moved` set was not chosen by this optimizer's model: its bounds are computed when they are needed.
        """
        self.ledger.open(step)
        return step.suggestion.copy()

    def price(self) -> Array | None:
        """Return what one unit of each limit's g is worth, in units of the objective, (N,); None without prices."""
        return None

    def debt(self) -> Array | None:
        """Return by how much each limit is exceeded in all, (N,) in plant units; None without prices."""
        return None

    def notes(self) -> list[str]:
        """Return what a user should know, a sentence each."""
        return []

    def past_rows(self) -> int:
        """Return how many rows of past operation were learned from."""
        return 0

    def bounds_at(self, x: Array) -> Bounds:
        """Return each output's confidence bounds in plant units at a point of the unit cube; none without a model.

        `Problem.encode_parameters` and `encode_context` make theta and z.
        """
        return {}

    @uninterrupted
    def tell(
        self,
        suggestion: Suggestion | int,
        objective: float | None,
        constraints: Values | None = None,
        *,
        applied: Values | None = None,
        context: Values | None = None,
    ) -> None:
        """Report what the plant answered to a suggestion.

        Args:
            suggestion: the suggestion or its id.
            objective: the measured cost, or None if it was not measured.
            constraints: name -> measured value or None; every constraint is named.
            applied: the parameters that the plant really used, where they differ from the proposed ones.
            context: the context that really held, where it differs from the one asked for. What either does not name
                is as proposed.

        Raises:
            TypeError, ValueError: a value is malformed, or this suggestion was settled otherwise before.
        """
        step = self.ledger.find(suggestion)
        y = self.problem.encode_outcome(objective, constraints)
        x, outside = self._applied(step, applied, context)
        point, outcome = x.tolist(), y.tolist()
        if step.told_before(point, outcome):
            return
        if step.status != PENDING:
            raise ValueError(
                f"suggestion {step.suggestion.id} was settled before ({step.status}) with another result; "
                f"{step.remedy(elsewhere=step.x != point)}"
            )
        if step.x != point:
            step.proposed, step.x, step.moved = step.x, point, True
        step.y, step.outside = outcome, list(outside)
        self._count(step)
        step.row = self._learn(x, y)
        self.ledger.settle(step, TOLD)
        self._advance()

    @uninterrupted
    def fail(self, suggestion: Suggestion | int, reason: str = "", *, applied: bool = True) -> None:
        """Report that a suggestion brought no measurement.

        Args:
            suggestion: the suggestion or its id.
            reason: in words, for the record.
            applied: True if the plant ran with it, so that the step counts; False if it never ran.
        """
        step = self.ledger.find(suggestion)
        if not isinstance(reason, str):
            raise TypeError(f"reason must be a string, got {reason!r}")
        if not isinstance(applied, bool | np.bool_):
            raise TypeError(f"applied must be True or False, got {applied!r}")
        status = UNMEASURED if applied else DROPPED
        if step.settled == status and step.reason == reason:
            return
        if step.status != PENDING:
            raise ValueError(
                f"suggestion {step.suggestion.id} was settled before as {step.settled}, got a failure with reason "
                f"{reason!r} and applied={bool(applied)}"
            )
        step.reason, step.y = reason, [math.nan] * len(self.problem.outputs)
        if applied:
            self._count(step)
        self.ledger.settle(step, status)
        if applied:
            self._advance()

    @uninterrupted
    def correct(
        self, suggestion: Suggestion | int, *, objective: float | None = UNCHANGED, constraints: Values | None = None
    ) -> None:
        """Replace measured values of a step that counts, or supply late ones; what is not named stays.

        Args:
            suggestion: the suggestion or its id.
            objective: the corrected cost, or None if the old value turned out to be worthless.
            constraints: name -> corrected value, or None likewise.
        """
        step = self.ledger.find(suggestion)
        if step.status not in (TOLD, UNMEASURED):
            raise ValueError(f"suggestion {step.suggestion.id} is {step.status}; only a step that counts is corrected")
        if constraints is not None and not isinstance(constraints, Mapping):
            raise TypeError(f"constraints must be a mapping of names, got {constraints!r}")
        now = {name: None if math.isnan(v) else v for name, v in zip(self.problem.outputs, step.y, strict=True)}
        cost = now.pop("objective")
        y = self.problem.encode_outcome(
            cost if objective is UNCHANGED else objective, {**now, **({} if constraints is None else constraints)}
        )
        if same_outcome(step.y, y.tolist()):
            return
        step.row = self._relearn(step.row, np.array(step.x), y)
        self._recount(step, y)
        if step.first_y is None:
            step.first_y = step.y
        step.y, step.status = y.tolist(), TOLD
        self.ledger.events += 1
        self._reconsider()

    def observe(
        self,
        parameters: Values,
        context: Values | None = None,
        *,
        objective: float | None = None,
        constraints: Values | None = None,
    ) -> None:
        """Learn from past operation that nobody asked for; constraints that are not named were not measured."""
        x, y = past_point(
            self.problem,
            {"parameters": parameters, "context": context, "objective": objective, "constraints": constraints},
        )
        self._observe([(x, y)])

    def observe_table(self, rows: Iterable[Mapping[str, Any]]) -> int:
        """Learn from a table of past operation; either all rows enter or none. Return how many there were.

        Args:
            rows: each with `parameters`, `context`, `objective` and `constraints`, or flat with the names themselves as
                columns (`objective` for the cost; other columns are an error).
        """
        points = past_points(self.problem, rows)
        self._observe(points)
        return len(points)

    @uninterrupted
    def _observe(self, points: list[tuple[Array, Array]]) -> None:
        for x, y in points:
            self._learn(x, y)
            self.ledger.events += 1
        self._look_back()

    @uninterrupted
    def set_limits(self, limits: Values) -> None:
        """Change limits for suggestions asked from now on.

        Args:
            limits: `name: number`, or a `Constraint` for both sides or another noise or worst value, which takes the
                place of all that was stated before. Certificates hold all steps to the largest noise and the worst
                value that was stated for any of them.
        """
        before, self.problem = self.problem, self.problem.with_limits(limits)
        self.ledger.restate(before, self.problem)
        self.ledger.events += 1

    # What an operator wants to know

    @property
    def step(self) -> int:
        """The number of steps that count."""
        return len(self.ledger.counted)

    @property
    def pending(self) -> list[Suggestion]:
        """The suggestions nobody has settled, oldest first."""
        return self.ledger.pending

    def summary(self) -> Summary:
        """Return what an operator wants to know, in words; `.data` holds the same as JSON data."""
        return describe(self)

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {brief(self)}>"

    # State

    def state(self) -> dict[str, Any]:
        """Return everything as JSON data; `restore` continues from it as if nothing had happened."""
        return {
            "version": STATE_VERSION,
            "optimizer": self.name,
            "problem": self.problem.to_json(),
            # the order of columns, which a store of JSON need not keep in objects
            "names": [list(self.problem.parameters), list(self.problem.context), list(self.problem.constraints)],
            "horizon": self.horizon,
            "seed": self.seed,
            "delta": self.delta,
            "settings": self._settings(),
            "ledger": self.ledger.state(),
            "extra": self._extra_state(),
        }

    @classmethod
    def restore(cls, state: Mapping[str, Any]) -> Self:
        """Return the optimizer that `state` described."""
        if not isinstance(state, Mapping) or "version" not in state:
            raise ValueError("state must be what state() returned, a mapping with a version")
        if state["version"] != STATE_VERSION:
            raise ValueError(f"state has version {state['version']!r}; this release reads {STATE_VERSION}")
        missing = [key for key in STATE_KEYS if key not in state]
        if missing:
            raise ValueError(f"state must be what state() returned; it lacks {missing!r}")
        if state["optimizer"] != cls.name:
            raise ValueError(f"state is of optimizer {state['optimizer']!r}; {cls.__name__} is {cls.name!r}")
        optimizer = cls(
            Problem.from_json(_in_order(state["problem"], state.get("names"))),
            horizon=state["horizon"],
            seed=state["seed"],
            delta=state["delta"],
            **state["settings"],
        )
        try:
            optimizer.ledger = Ledger.restore(state["ledger"])
            optimizer._restore_extra(state["extra"])
        except (AttributeError, KeyError, IndexError, TypeError) as error:
            raise ValueError(f"state is damaged below 'ledger' or 'extra': {error!r}") from error
        return optimizer

    # Inside

    def _rng(self) -> Generator:
        """Return the generator of this moment: keyed by the seed and the number of events told, not by asks."""
        return np.random.default_rng([self.seed, self.ledger.events])

    def _applied(self, step: Step, applied: Values | None, context: Values | None) -> tuple[Array, tuple[str, ...]]:
        """Return the point that the plant really ran at, and which of its context was outside its range.

        What is not named is as proposed; what is named with the proposed value is where it was proposed, to the bit.
        """
        x = np.array(step.x if step.proposed is None else step.proposed)
        n_theta = self.problem.n_theta
        parameters, held, outside = step.suggestion.parameters, step.suggestion.context, step.suggestion.outside
        if applied is not None:
            if not isinstance(applied, Mapping):
                raise TypeError(f"applied must be a mapping of names, got {applied!r}")
            given = {**parameters, **applied}
            remedy = "; tell the nearest value within if it was only rounded, and what ran beyond with fail()"
            theta = self.problem.encode_parameters(given, "applied", remedy, read_back=True)
            real = {name for name, variable in self.problem.parameters.items() if variable.levels is None}
            x[:n_theta] = [
                a if name in real and given[name] == parameters[name] else b
                for name, a, b in zip(self.problem.parameters, x[:n_theta], theta, strict=True)
            ]
        if context is not None:
            if not isinstance(context, Mapping):
                raise TypeError(f"context must be a mapping of names, got {context!r}")
            held = {**held, **context}
            x[n_theta:] = self.problem.encode_context(held)
            outside = self.problem.outside(held)
        return x, outside


def _in_order(problem: Mapping[str, Any], names: list[list[str]] | None) -> Mapping[str, Any]:
    """Return a problem's description with its names in the order of the columns; older states have none."""
    if names is None:
        return problem
    try:
        groups = zip(("parameters", "context", "constraints"), names, strict=True)
        return {group: {name: problem[group][name] for name in ordered} for group, ordered in groups}
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"state is damaged: 'names' are not those of 'problem': {error!r}") from error
