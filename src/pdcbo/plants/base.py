"""What a plant is, and a base that makes a simulated one out of one vectorised method.

A plant answers a choice of parameters in a context with a cost and constraint quantities, in its own units. A
simulated plant knows its own noise-free answer, so it also knows the best that could have been done.

    theta (..., K, n_theta)   parameters in the unit cube, K points a context
    z     (n_z,), (..., 1, n_z)   their context in the unit cube; leading axes broadcast
    y     (..., 1 + n)                   objective, then each constraint quantity, in plant units
    g     (..., N)                       one row a limit of the problem, g = sign * (y - bound) <= 0
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from pdcbo.oracles import Oracle
from pdcbo.plants.contexts import ContextPath
from pdcbo.plants.reference import candidate_grid, continuous_oracle
from pdcbo.problem import Array, Choice, Problem, Real, Values, Variable


class Outcome(NamedTuple):
    """What a plant answers, in its own units: the cost and each constraint's measured quantity."""

    objective: float
    constraints: dict[str, float]


class Plant(Protocol):
    """A system to be tuned. Where they are known it may also have `truth` and `oracle`, as `SimulatedPlant` has."""

    problem: Problem

    def context(self, t: int) -> dict[str, Any]:
        """Return the context of step t = 1, 2, ..., whatever was asked before."""
        ...

    def evaluate(self, parameters: Values, context: Values) -> Outcome:
        """Apply the parameters in the context and return what was measured."""
        ...


def in_plant_units(variables: Mapping[str, Variable], u: Array) -> dict[str, Array]:
    """Map columns of the unit cube, shape (..., d), to plant units; a choice becomes the index of its option."""
    columns: dict[str, Array] = {}
    for j, (name, variable) in enumerate(variables.items()):
        column = u[..., j]
        if isinstance(variable, Real) and variable.log:
            columns[name] = variable.lo * (variable.hi / variable.lo) ** column
        elif isinstance(variable, Real):
            columns[name] = variable.lo + column * (variable.hi - variable.lo)
        elif isinstance(variable, Choice):
            columns[name] = np.rint(column * (variable.levels - 1))
        else:
            columns[name] = np.rint(variable.lo + column * (variable.hi - variable.lo))
    return columns


class SimulatedPlant(ABC):
    """A plant that is a formula plus noise: a subclass gives `response`, or `values` where that is quicker.

    Args:
        problem: its parameters, context and constraints.
        noise: standard deviation of the Gaussian noise on the objective and on each constraint quantity.
        seed: of the noise and of the context sequence. Noise is drawn in the order of the calls of `evaluate`.
        contexts: the name of a context sequence, see `pdcbo.plants.contexts`.
    """

    def __init__(self, problem: Problem, noise: Sequence[float], *, seed: int = 0, contexts: str = "uniform") -> None:
        self.problem = problem
        self.noise = np.asarray(noise, dtype=float)
        if self.noise.shape != (len(problem.outputs),) or not (self.noise >= 0).all():
            raise ValueError(f"noise must be {len(problem.outputs)} numbers, none below 0, got {noise!r}")
        self.seed = seed
        self.path = ContextPath(contexts, problem.n_z, seed)
        self._noise_rng = np.random.default_rng([seed, 1])

    @abstractmethod
    def response(self, p: dict[str, Array], c: dict[str, Array]) -> tuple[Array, ...]:
        """Return the objective and each constraint quantity for named columns in plant units, which broadcast."""

    def values(self, theta: Array, z: Array) -> Array:
        """Return y (..., 1 + n) without noise at theta (..., K, n_theta) and z (n_z,) or (..., 1, n_z)."""
        p = in_plant_units(self.problem.parameters, theta)
        c = in_plant_units(self.problem.context, z)
        return np.stack(np.broadcast_arrays(*self.response(p, c)), axis=-1)

    def rows(self, y: Array) -> Array:
        """Return g (..., N), the value of every limit at y."""
        limits = self.problem.limits
        output = [limit.output for limit in limits]
        sign, bound = np.array([limit.sign for limit in limits]), np.array([limit.bound for limit in limits])
        g: Array = sign * (y[..., output] - bound)
        return g

    def context(self, t: int) -> dict[str, Any]:
        """Return the context of step t = 1, 2, ...: a function of the seed and t alone."""
        return {
            name: variable.decode(u)
            for (name, variable), u in zip(self.problem.context.items(), self.path(t).tolist(), strict=True)
        }

    def measure(self, y: Array, theta: Array, z: Array, rng: np.random.Generator) -> Array:
        """Add noise to the true y at (theta, z); other noises override this."""
        return y + self.noise * rng.standard_normal(len(y))

    def evaluate(self, parameters: Values, context: Values) -> Outcome:
        """Apply the parameters in the context and return a noisy measurement."""
        theta, z = self._encode(parameters, context)
        return self._outcome(self.measure(self.values(theta[None], z)[0], theta, z, self._noise_rng))

    def truth(self, parameters: Values, context: Values) -> Outcome:
        """Return what a measurement without noise would be."""
        theta, z = self._encode(parameters, context)
        return self._outcome(self.values(theta[None], z)[0])

    def candidates(self) -> Array:
        """Return the parameters (M, n_theta) among which the oracle first looks."""
        return candidate_grid(self.problem)

    def oracle(self, contexts: Iterable[Values], *, candidates: Array | None = None, polish: bool = True) -> Oracle:
        """Return the best that could have been done in these contexts, by all three measures of `pdcbo.oracles`.

        Args:
            contexts: one a step, in plant units.
            candidates: parameters (M, n_theta) in the unit cube to choose from; by default `candidates()`.
            polish: refine the best candidates in the continuous box.
        """
        z = np.array([self.problem.encode_context(context) for context in contexts])
        grid = self.candidates() if candidates is None else np.asarray(candidates, dtype=float)
        return continuous_oracle(self.problem, self.values, self.rows, z, grid, polish=polish)

    def _encode(self, parameters: Values, context: Values) -> tuple[Array, Array]:
        return self.problem.encode_parameters(parameters), self.problem.encode_context(context)

    def _outcome(self, y: Array) -> Outcome:
        objective, *rest = y.tolist()
        if not np.isfinite(y).all():
            raise ArithmeticError(
                f"the plant's formula gave {dict(zip(self.problem.outputs, y.tolist(), strict=True))}"
            )
        return Outcome(objective, dict(zip(self.problem.constraints, rest, strict=True)))
