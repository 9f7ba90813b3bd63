"""The two optimizers that learn nothing: `random`, and `fixed` parameters."""

from __future__ import annotations

from typing import Any

import numpy as np

from pdcbo.optimizers.base import Bounds, Optimizer
from pdcbo.problem import Array, Problem, Values
from pdcbo.search import Draw


class Random(Optimizer):
    """Propose parameters uniformly at random."""

    name = "random"

    def _choose(self, z: Array, rng: Draw) -> tuple[Array, Bounds]:
        return self.problem.snap(rng().random(self.problem.n_theta)), {}


class Fixed(Optimizer):
    """Propose the same parameters always; by default the centre of each range.

    Args:
        problem: see `Optimizer`.
        horizon: see `Optimizer`.
        seed: see `Optimizer`.
        delta: see `Optimizer`.
        parameters: the parameters to propose, in plant units.
    """

    name = "fixed"

    def __init__(
        self,
        problem: Problem,
        *,
        horizon: int | None = None,
        seed: int = 0,
        delta: float = 0.05,
        parameters: Values | None = None,
    ) -> None:
        super().__init__(problem, horizon=horizon, seed=seed, delta=delta)
        self.theta = (
            problem.snap(np.full(problem.n_theta, 0.5)) if parameters is None else problem.encode_parameters(parameters)
        )
        self._given = None if parameters is None else problem.plain_parameters(parameters)

    def _choose(self, z: Array, rng: Draw) -> tuple[Array, Bounds]:
        return self.theta.copy(), {}

    def _settings(self) -> dict[str, Any]:
        return {"parameters": None if self._given is None else dict(self._given)}
