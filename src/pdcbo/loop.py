"""The closed loop: context -> posterior -> primal step -> plant -> observation -> dual step -> record."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pdcbo.optimizers import OPTIMIZERS, Optimizer, Suggestion
from pdcbo.plants import Outcome, Plant
from pdcbo.problem import Scalar, as_whole


@dataclass(frozen=True)
class Record:
    """One step of the loop: what was seen, chosen and measured, and, where it is known, the truth."""

    step: int
    context: dict[str, Scalar]
    parameters: dict[str, Scalar]
    observed: Outcome
    truth: Outcome | None
    suggestion: Suggestion


def run(plant: Plant, optimizer: Optimizer | str, horizon: int) -> Iterator[Record]:
    """Yield one `Record` a step; `optimizer` is one, or a name in `OPTIMIZERS` for its default."""
    horizon = as_whole(horizon, "horizon")
    if horizon < 1:
        raise ValueError(f"horizon must be at least 1, got {horizon!r}")
    if isinstance(optimizer, str):
        if optimizer not in OPTIMIZERS:
            raise ValueError(f"optimizer must be one of {list(OPTIMIZERS)!r}, got {optimizer!r}")
        optimizer = OPTIMIZERS[optimizer](plant.problem, horizon=horizon)
    tuner = optimizer
    truth = getattr(plant, "truth", None)
    for step in range(tuner.step + 1, tuner.step + horizon + 1):
        context = plant.context(step)
        suggestion = tuner.ask(context)
        observed = _outcome(plant.evaluate(suggestion.parameters, context))
        tuner.tell(suggestion, observed.objective, observed.constraints)
        true = truth(suggestion.parameters, context) if truth is not None else None
        yield Record(step, context, suggestion.parameters, observed, true, suggestion)


def _outcome(answer: Any) -> Outcome:
    """Return what a plant answered as an `Outcome`, which a plain pair of cost and constraints may stand for."""
    if isinstance(answer, Outcome):
        return answer
    if isinstance(answer, tuple) and len(answer) == 2:
        return Outcome(*answer)
    raise TypeError(f"evaluate must return Outcome(objective, constraints), got {answer!r}")
