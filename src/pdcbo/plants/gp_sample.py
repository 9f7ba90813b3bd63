"""Functions drawn from a Gaussian process on the continuous box: the plant of the paper's section VI-A.

Objective and constraints are independent draws, sums of Fourier features whose covariance is that of the kernel to the
stated `tolerance` at every point of the box (`pdcbo.plants.fourier`): nothing is interpolated from a grid.

A draw is kept only if, as in the published code, it satisfies uniform Slater, min over theta of max_i g_i(theta, z)
<= -0.2 for each of 50 contexts (equally spaced for one context variable, a low-discrepancy set for more), and the
start is safe, g_i(0, 0) < -0.2. The paper prints the kernel exp(-r^2); its published code uses exp(-r^2 / 2).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from pdcbo.kernels import Factor, Kernel
from pdcbo.plants.base import SimulatedPlant
from pdcbo.plants.contexts import ContextPath
from pdcbo.plants.fourier import MOST_FEATURES, RandomDraw, TensorDraw
from pdcbo.plants.reference import candidate_grid, spread_out
from pdcbo.problem import Array, Constraint, Problem, as_positive, as_whole

FAMILIES = {
    "code": "squared-exponential",
    "paper": "squared-exponential",
    "matern52": "matern-5/2",
    "linear": "linear",
}
TRIES = 2000


def _names(letter: str, n: int) -> list[str]:
    return [letter] if n == 1 else [f"{letter}_{j}" for j in range(1, n + 1)]


class GPSample(SimulatedPlant):
    """A draw from a Gaussian process with theta and z in [-half, half], one more for each constraint.

    Args:
        seed: of the draw, of noise and of contexts.
        contexts: the context sequence.
        n_theta: number of parameters.
        n_z: number of context variables.
        constraints: number of constraints, each with the limit 0.
        kernel: "code" exp(-r^2 / 2), "paper" exp(-r^2), "matern52" (a product of one-dimensional Matern 5/2 kernels),
            or "linear" (the product over dimensions of 1 + x x' / l^2).
        variance: of the kernel.
        length_scale: one, or one a dimension of (theta, z), in plant units; by default 1, and `half` for "linear".
        half: half the width of the box.
        noise: standard deviation of the noise on every output.
        margin: the Slater margin; None keeps every draw.
        context_levels: restrict contexts to so many equally spaced values a dimension (50 as published).
    """

    def __init__(
        self,
        seed: int = 0,
        contexts: str = "uniform",
        *,
        n_theta: int = 1,
        n_z: int = 1,
        constraints: int = 1,
        kernel: str = "code",
        variance: float = 2.0,
        length_scale: float | Sequence[float] | None = None,
        half: float = 10.0,
        noise: float = 0.05,
        margin: float | None = 0.2,
        context_levels: int | None = None,
    ) -> None:
        if kernel not in FAMILIES:
            raise ValueError(f"kernel must be one of {sorted(FAMILIES)!r}, got {kernel!r}")
        for name, value, least in (("n_theta", n_theta, 1), ("n_z", n_z, 0), ("constraints", constraints, 0)):
            if as_whole(value, name) < least:
                raise ValueError(f"{name} must be at least {least}, got {value!r}")
        half, variance = as_positive(half, "half"), as_positive(variance, "variance")
        box = (-half, half)
        super().__init__(
            Problem(
                parameters=dict.fromkeys(_names("theta", n_theta), box),
                context=dict.fromkeys(_names("z", n_z), box) if n_z else {},
                constraints=dict.fromkeys(_names("g", constraints), Constraint(upper=0.0, noise=noise))
                if constraints
                else {},
            ),
            [noise] * (1 + constraints),
            seed=seed,
            contexts=contexts,
        )
        if context_levels is not None:
            self.path = _LevelPath(self.path, as_whole(context_levels, "context_levels"))
        if length_scale is None:
            length_scale = half if kernel == "linear" else 1.0
        lengths = np.broadcast_to(np.asarray(length_scale, dtype=float), (n_theta + n_z,))
        if not (lengths > 0).all():
            raise ValueError(f"length_scale must be above 0, got {length_scale!r}")
        lengths = lengths / math.sqrt(2.0) if kernel == "paper" else lengths
        self.half, self._family, self._lengths, self._variance = half, FAMILIES[kernel], lengths, variance
        rng = np.random.default_rng([seed, 3])
        self._draw: TensorDraw | RandomDraw = TensorDraw(self._family, variance, lengths, half, n_theta)
        if self._draw.size * (1 + constraints) > MOST_FEATURES * 2:
            self._draw = RandomDraw(self._family, variance, lengths, n_theta, rng)
        self._memory: tuple[Array, Array] | None = None
        self._draw_until_accepted(rng, 1 + constraints, margin)

    @property
    def tolerance(self) -> float:
        """The most by which the covariance of the draw differs from the kernel."""
        return self._draw.tolerance

    @property
    def kernel(self) -> Kernel:
        """The kernel in the unit cube, one factor a column of (theta, z)."""
        lengths = self._lengths / (2.0 * self.half)
        factors = tuple(Factor(self._family, (j,), (length,)) for j, length in enumerate(lengths.tolist()))
        return Kernel(factors, self._variance)

    def values(self, theta: Array, z: Array) -> Array:
        """Return y (K, 1 + n) or (T, K, 1 + n) at theta (K, n_theta) or (T, K, n_theta), z (n_z,) or (T, 1, n_z)."""
        theta = self.half * (2.0 * theta - 1.0)
        if self._memory is None or not np.array_equal(self._memory[0], z):
            weights = self._draw.weights(self.half * (2.0 * z - 1.0))
            self._memory = (z.copy(), weights[..., 0, :, :] if z.ndim > 1 else weights)
        weights = self._memory[1]
        if theta.ndim == 3:
            return self._draw.pairs(theta, weights if weights.ndim == 3 else weights[None])
        # One large product instead of many thin ones, over as many candidates at once as fit 16 MB of features.
        flat = weights.reshape(-1, weights.shape[-1])
        size = max(1, 2_000_000 // flat.shape[1])
        parts = [flat @ self._draw.features(theta[i : i + size]).T for i in range(0, len(theta), size)]
        return np.concatenate(parts, axis=1).reshape(*weights.shape[:-1], len(theta)).swapaxes(-1, -2)

    def response(self, p: dict[str, Array], c: dict[str, Array]) -> tuple[Array, ...]:
        """Return the functions at columns in plant units."""
        theta, z = np.stack([*p.values()], axis=-1), np.stack([*c.values()], axis=-1)
        return tuple(np.moveaxis(self.values(0.5 + 0.5 * theta / self.half, 0.5 + 0.5 * z / self.half), -1, 0))

    def _draw_until_accepted(self, rng: np.random.Generator, n: int, margin: float | None) -> None:
        n_z = self.problem.n_z
        z = np.linspace(0.0, 1.0, 50)[:, None] if n_z == 1 else spread_out(50 if n_z else 1, n_z)
        theta = candidate_grid(self.problem)[:: 1 if self.problem.n_theta == 1 else 3]
        origin = np.full((1, self.problem.n_theta), 0.5), np.full(n_z, 0.5)
        for _ in range(TRIES):
            self._draw.draw(rng, n)
            self._memory = None
            if n == 1 or margin is None:
                return
            if (self.values(*origin)[0, 1:] < -margin).all():
                worst = self.values(theta, z[:, None])[..., 1:].max(axis=-1)
                if (worst.min(axis=1) <= -margin).all():
                    return
        raise ValueError(f"none of {TRIES} draws has a Slater margin of {margin!r}; give a smaller margin, or None")


class _LevelPath(ContextPath):
    """A context sequence rounded to equally spaced levels."""

    def __init__(self, path: ContextPath, levels: int) -> None:
        if levels < 2:
            raise ValueError(f"context_levels must be at least 2, got {levels!r}")
        self.name, self._path, self._levels = path.name, path, levels

    def __call__(self, t: int) -> Array:
        """Return the context of step t: each coordinate in one of so many equal cells, moved to the cell's level."""
        cell: Array = np.minimum(np.floor(self._path(t) * self._levels), self._levels - 1)
        return cell / (self._levels - 1)
