"""What happened, as columns: the steps that count, in order, for figures and alarms.

    t          (n,)     1, 2, ..., the number of the step that counts
    y          (n, q)   objective and constraint quantities in plant units, NaN = not measured
    limits     (n, N)   the bound of each limit in force when the step was asked
    parameters name -> (n,) values as applied, which are those proposed unless others were reported
    context    name -> (n,) values as they held, likewise

The running average of a quantity passes over steps where it was not measured. What is certified is, at every step, the
bound of `pdcbo.certificates` from observations on the true average of all steps: those that were not measured enter by
the worst value stated, and where none is stated nothing is certified.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from pdcbo.certificates import noise_boundary
from pdcbo.optimizers import Optimizer
from pdcbo.optimizers.assurance import MEASURED_SHARE
from pdcbo.optimizers.ledger import Ledger, Step
from pdcbo.problem import Array, Problem


@dataclass(frozen=True)
class History:
    """The columns; see the module.

    `worst` is the worst value stated of each limit's quantity; `notes` holds what a study adds to a step: origin,
    prices, reference cost.
    """

    problem: Problem
    horizon: int | None
    delta: float
    worst: list[float | None]
    ids: list[int]
    y: Array
    limits: Array
    parameters: dict[str, list[Any]]
    context: dict[str, list[Any]]
    notes: list[Mapping[str, Any]]

    @property
    def t(self) -> Array:
        """The numbers of the steps."""
        return np.arange(1.0, len(self.ids) + 1.0)

    @classmethod
    def of(
        cls,
        problem: Problem,
        ledger: Ledger,
        horizon: int | None,
        delta: float,
        notes: Mapping[int, Mapping[str, Any]] | None = None,
    ) -> History:
        """Return the columns of a ledger."""
        steps = ledger.history()
        own = [(notes or {}).get(s.suggestion.id, {}) for s in steps]
        ran = [as_run(problem, s, note) for s, note in zip(steps, own, strict=True)]
        return cls(
            problem,
            horizon,
            delta,
            [ledger.stated_worst(li, problem.constraints[li.constraint].worst) for li in problem.limits],
            [s.suggestion.id for s in steps],
            np.array([s.y for s in steps], dtype=float).reshape(len(steps), len(problem.outputs)),
            np.array([s.limits for s in steps], dtype=float).reshape(len(steps), len(problem.limits)),
            {name: [values[name] for values in ran] for name in problem.parameters},
            {name: [values[name] for values in ran] for name in problem.context},
            own,
        )

    @classmethod
    def of_optimizer(cls, optimizer: Optimizer) -> History:
        """Return the columns of an optimizer."""
        return cls.of(optimizer.problem, optimizer.ledger, optimizer.horizon, optimizer.delta)

    def running_average(self, output: int) -> Array:
        """Return the average of what was measured of an output so far, NaN before the first measurement, (n,)."""
        known = ~np.isnan(self.y[:, output])
        count = np.cumsum(known)
        total = np.cumsum(np.where(known, self.y[:, output], 0.0))
        return np.where(count > 0, total / np.maximum(count, 1), np.nan)

    def running_limit(self, index: int) -> Array:
        """Return the average of the limit in force so far, (n,)."""
        return np.asarray(np.cumsum(self.limits[:, index]) / self.t)

    def noise_boundary(self, index: int, noise_std: float) -> Array:
        """Return what the noise may add to the sum of a limit's measured values, at every step, (n,).

        It holds at all steps and for all limits at once with probability 1 - delta.
        """
        limit = self.problem.limits[index]
        count = np.cumsum(~np.isnan(self.y[:, limit.output]))
        alpha = self.delta / len(self.problem.limits)
        if self.worst[index] is None:
            alpha *= MEASURED_SHARE  # as the certificate, which keeps the rest for steps that were not measured
        return np.where(count > 0, noise_boundary(count, noise_std, alpha, float(self.horizon or 1000)), 0.0)

    def certified(self, index: int, noise_std: float | None) -> Array | None:
        """Return the bound on the true average so far, at every step, (n,), NaN where there is none.

        None without a noise level. It holds like `noise_boundary`.
        """
        if noise_std is None:
            return None
        limit = self.problem.limits[index]
        worst = self.worst[index]
        y = self.y[:, limit.output]
        filled = np.where(np.isnan(y), np.nan if worst is None else worst, y)
        return np.asarray((np.cumsum(filled) + limit.sign * self.noise_boundary(index, noise_std)) / self.t)

    def regret(self) -> Array | None:
        """Return the summed cost above the reference, where references are known; None where none is."""
        known = [((note.get("tell") or {}).get("reference")) for note in self.notes]
        if all(r is None for r in known):
            return None
        excess = self.y[:, 0] - np.array([np.nan if r is None else r for r in known], dtype=float)
        return np.asarray(np.cumsum(np.nan_to_num(excess)))


def as_run(problem: Problem, step: Step, note: Mapping[str, Any]) -> dict[str, Any]:
    """Return parameters and context as the plant ran with them: as reported, from the point, or as proposed."""
    proposed = {**step.suggestion.parameters, **step.suggestion.context}
    told = note.get("tell") or {}
    if told or step.proposed is None:
        return {**proposed, **(told.get("applied") or {}), **(told.get("context") or {})}
    variables = {**problem.parameters, **problem.context}
    return {
        name: proposed[name] if u == before else variable.decode_beyond(u)
        for (name, variable), u, before in zip(variables.items(), step.x, step.proposed, strict=True)
    }
