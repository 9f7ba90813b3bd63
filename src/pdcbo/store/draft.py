"""From a proposal to the step that goes on record: orders, fallback and guards.

A suggestion comes from one of:

    model        the optimizer
    pause        the study is paused: the newest parameters are held
    known-good   an operator ordered the return to known-good parameters
    fallback     the deadline passed or the model could not be formed

Whatever it comes from, guards apply. Confidence bounds belong to the point that is proposed: where the guards moved it,
the optimizer computes them there; where the model had no say, the step is marked `moved` and they are computed when
they are needed.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from pdcbo.guards import Guards
from pdcbo.optimizers import Optimizer, Suggestion
from pdcbo.optimizers.base import Bounds
from pdcbo.optimizers.ledger import Step
from pdcbo.problem import Array, Problem, Scalar
from pdcbo.store.core import Conflict
from pdcbo.store.replay import Record


class ModelError(RuntimeError):
    """Say that no model could be formed, or not in time, and that there is nothing to fall back to."""


@dataclass(frozen=True)
class Draft:
    """A proposal before the guards.

    Attributes:
        parameters: what is wanted.
        context: it was asked for.
        origin: see the module.
        why: in words, empty for the model.
        seen: the seq of the latest event it rests on.
        step: as the model proposed it, None for other origins.
        moved_to: the parameters that the guards made of it when it was proposed.
        moved_bounds: their bounds.
        prices: the price of each limit that the proposal rests on, None without a dual.
    """

    parameters: dict[str, Scalar]
    context: dict[str, Any]
    origin: str
    why: str
    seen: int
    step: Step | None = None
    moved_to: dict[str, Scalar] | None = None
    moved_bounds: Bounds = field(default_factory=dict)
    prices: list[float] | None = None

    @classmethod
    def from_model(
        cls, optimizer: Optimizer, guards: Guards, running: list[dict[str, Scalar]], step: Step, seen: int
    ) -> Draft:
        """Return what the model proposes, with the bounds at the point where the guards would put it."""
        s = step.suggestion
        price = optimizer.price()
        prices = None if price is None else price.tolist()
        draft = cls(s.parameters, s.context, "model", "", seen, step, prices=prices)
        parameters, words = guards.apply(optimizer.problem, s.parameters, running)
        if not words:
            return draft
        x = point(optimizer.problem, parameters, s.context)
        return replace(draft, moved_to=parameters, moved_bounds=optimizer.bounds_at(x))


def ordered(record: Record, context: dict[str, Any]) -> Draft | None:
    """Return what an operator's order makes of an ask, or None where the model decides.

    Raises:
        Conflict: the study is paused and nothing was ever applied that could be held.
    """
    if record.returning:
        assert record.known_good is not None
        return Draft(record.known_good, context, "known-good", "returning to known-good parameters", record.seq)
    if record.paused is not None:
        running = record.running()
        held = running[-1] if running else record.known_good or record.guards.fallback or record.guards.start
        if held is None:
            raise Conflict("the study is paused and nothing was applied yet that could be held; resume it")
        return Draft(dict(held), context, "pause", f"paused: {record.paused}", record.seq)
    return None


def choose_fallback(record: Record, context: dict[str, Any], why: str) -> Draft:
    """Return the fallback: the guards', else known-good parameters, else what was applied last.

    Raises:
        ModelError: there is none of these.
    """
    running = record.running()
    safe = record.guards.fallback or record.known_good or (running[-1] if running else record.guards.start)
    if safe is None:
        raise ModelError(f"{why}, and there is no fallback; set guards.fallback")
    return Draft(dict(safe), context, "fallback", why, record.seq)


def guarded(record: Record, draft: Draft) -> tuple[Step, dict[str, Any]]:
    """Return the step to put on record, after the guards, and the payload of its event."""
    problem = record.book.problem
    parameters, words = record.guards.apply(problem, draft.parameters, record.running())
    if draft.step is not None and not words:
        x, bounds, moved = draft.step.x, draft.step.suggestion.bounds, draft.step.moved
    else:
        x = point(problem, parameters, draft.context).tolist()
        known = draft.moved_to == parameters
        bounds, moved = (draft.moved_bounds if known else {}), not known
    step = Step(
        Suggestion(record.book.ledger.next_id, parameters, draft.context, problem.outside(draft.context), bounds),
        x,
        [limit.bound for limit in problem.limits],
        moved=moved,
        outside=list(problem.outside(draft.context)),
        known=-1 if draft.step is None or words else draft.step.known,
    )
    payload = {
        "step": step.to_json(),
        "origin": draft.origin,
        "why": draft.why,
        "guarded": words,
        "seen": draft.seen,
        "prices": draft.prices,
    }
    return step, payload


def point(problem: Problem, parameters: dict[str, Scalar], context: dict[str, Any]) -> Array:
    """Return x = (theta, z) of named values."""
    return np.concatenate([problem.encode_parameters(parameters), problem.encode_context(context)])
