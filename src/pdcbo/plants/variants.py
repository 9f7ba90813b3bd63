"""Plants made harder: other units, other noise, contexts that do not matter, drift, limits moved.

Each wraps a simulated plant and keeps its truth and oracle known. Noise of the wrapper is drawn from its own generator.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pdcbo.plants.base import SimulatedPlant
from pdcbo.plants.contexts import ContextPath
from pdcbo.problem import Array, Constraint, Problem, Real


class Variant(SimulatedPlant):
    """A plant that answers as another does, unless a subclass says otherwise."""

    def __init__(self, base: SimulatedPlant, problem: Problem | None = None, noise: Sequence[float] | None = None):
        super().__init__(
            base.problem if problem is None else problem,
            base.noise.tolist() if noise is None else noise,
            seed=base.seed,
            contexts=base.path.name,
        )
        self.base, self.path = base, base.path

    def response(self, p: dict[str, Array], c: dict[str, Array]) -> tuple[Array, ...]:
        """Return the wrapped plant's response."""
        return self.base.response(p, c)

    def values(self, theta: Array, z: Array) -> Array:
        """Return the wrapped plant's values."""
        return self.base.values(theta, z)

    def candidates(self) -> Array:
        """Return the wrapped plant's candidates."""
        return self.base.candidates()


class Rescaled(Variant):
    """The same plant with its objective in other units and about another zero, and its constraints in other units."""

    def __init__(
        self, base: SimulatedPlant, *, objective: float = 1.0, offset: float = 0.0, constraints: float = 1.0
    ) -> None:
        def scaled(value: float | None) -> float | None:
            return None if value is None else constraints * value

        old = base.problem
        limits = {
            name: Constraint(scaled(c.upper), scaled(c.lower), scaled(c.noise), scaled(c.worst))
            for name, c in old.constraints.items()
        }
        self._scale = np.array([objective, *[constraints] * len(limits)])
        self._offset = np.array([offset, *[0.0] * len(limits)])
        super().__init__(base, Problem(old.parameters, old.context, limits), (self._scale * base.noise).tolist())

    def values(self, theta: Array, z: Array) -> Array:
        """Return the wrapped plant's values in the other units."""
        y: Array = self._scale * self.base.values(theta, z) + self._offset
        return y


class HeavyTailed(Variant):
    """The same plant with noise of Student's t with 3 degrees of freedom, of the same standard deviation."""

    def measure(self, y: Array, theta: Array, z: Array, rng: np.random.Generator) -> Array:
        """Add the noise."""
        noise: Array = self.noise * rng.standard_t(3.0, len(y)) / np.sqrt(3.0)
        return y + noise


class Heteroscedastic(Variant):
    """The same plant with noise that grows from a third of its size to three times it along the first parameter."""

    def measure(self, y: Array, theta: Array, z: Array, rng: np.random.Generator) -> Array:
        """Add the noise."""
        noise: Array = self.noise * 9.0 ** (theta[0] - 0.5) * rng.standard_normal(len(y))
        return y + noise


class UselessContexts(Variant):
    """The same plant with more context variables, which move and do not matter."""

    def __init__(self, base: SimulatedPlant, n: int = 3) -> None:
        old = base.problem
        extra = {f"useless_{j}": Real(0.0, 1.0) for j in range(1, n + 1)}
        super().__init__(base, Problem(old.parameters, {**old.context, **extra}, old.constraints))
        self._n_z = old.n_z
        self.path = _JoinedPath(base.path, ContextPath("uniform", n, base.seed + 1))

    def values(self, theta: Array, z: Array) -> Array:
        """Return the wrapped plant's values."""
        return self.base.values(theta, z[..., : self._n_z])


class _JoinedPath(ContextPath):
    """Two context sequences side by side."""

    def __init__(self, first: ContextPath, second: ContextPath) -> None:
        self.name, self._first, self._second = first.name, first, second

    def __call__(self, t: int) -> Array:
        return np.concatenate([self._first(t), self._second(t)])


class Drifting(Variant):
    """The same plant with its first parameter slowly losing its calibration, there and back in `period` steps.

    The plant acts as if the parameter were off by up to `amplitude` of its range, reflected at the ends. A plant is
    asked with a context, not a time, so it finds the time by the context, that of the first step where several have the
    same; one that it did not issue within its first 4,096 steps counts as of the first step.
    """

    def __init__(self, base: SimulatedPlant, amplitude: float = 0.15, period: float = 400.0) -> None:
        super().__init__(base)
        self._amplitude, self._period = amplitude, period
        self._times: dict[bytes, int] = {}

    def _time(self, z: Array) -> int:
        if not self._times:
            for t in range(1, 4097):
                self._times.setdefault(self.problem.encode_context(self.context(t)).tobytes(), t)
        return self._times.get(z.tobytes(), 1)

    def values(self, theta: Array, z: Array) -> Array:
        """Return the wrapped plant's values at the parameters as they act."""
        flat = z.reshape(-1, z.shape[-1])
        t = np.array([self._time(row) for row in flat]).reshape(z.shape[:-1])
        off = self._amplitude * 0.5 * (1.0 - np.cos(2.0 * np.pi * t / self._period))
        acting = np.array(np.broadcast_to(theta, np.broadcast_shapes(theta.shape, (*z.shape[:-1], theta.shape[-1]))))
        first = acting[..., 0] + off
        acting[..., 0] = np.where(first > 1.0, 2.0 - first, first)
        return self.base.values(acting, z)


class MovedLimits(Variant):
    """The same plant with other limits on its averages, by name."""

    def __init__(self, base: SimulatedPlant, **limits: float) -> None:
        super().__init__(base, base.problem.with_limits(limits))
