"""Covariance functions on the unit cube, and the information gain of a set of points, equation (7).

A `Kernel` is a variance times a product of `Factor`s, each a function of some columns of x = (theta, z):

    k(x, x') = variance * prod_f phi_f(r_f^2),     r_f^2 = sum_j (x_j - x'_j)^2 / l_j^2   over the factor's columns

The columns of a choice count 1 for two different options and 0 for equal ones, which with the squared exponential is
the kernel of a one-hot encoding. The linear factor is 1 + sum_j (x_j - 1/2)(x'_j - 1/2) / l_j^2, about the centre of
each range, so that it has an intercept. Differences are taken column by column, never through inner products: the
entry for two points does not depend on which other points are in the batch, to the last bit.

    A (n, d), B (m, d)   points in the unit cube          K (n, m)   covariances          l (d_f,)   length scales
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from pdcbo.problem import Array

SQRT3, SQRT5 = 3.0**0.5, 5.0**0.5


def _squared_exponential(r2: Array) -> Array:
    k = -0.5 * r2
    return np.exp(k, out=k)


def _squared_exponential_slope(r2: Array, k: Array) -> Array:
    return -0.5 * k


def _matern12(r2: Array) -> Array:
    s: Array = np.sqrt(r2)
    return np.exp(-s)


def _matern12_slope(r2: Array, k: Array) -> Array:
    return -0.5 * k / np.sqrt(np.maximum(r2, 1e-24))


def _matern32(r2: Array) -> Array:
    s: Array = SQRT3 * np.sqrt(r2)
    return (1.0 + s) * np.exp(-s)


def _matern32_slope(r2: Array, k: Array) -> Array:
    s: Array = SQRT3 * np.sqrt(r2)
    return -1.5 * np.exp(-s)


def _matern52(r2: Array) -> Array:
    s: Array = SQRT5 * np.sqrt(r2)
    return (1.0 + s + s * s / 3.0) * np.exp(-s)


def _matern52_slope(r2: Array, k: Array) -> Array:
    s: Array = SQRT5 * np.sqrt(r2)
    return -5.0 / 6.0 * (1.0 + s) * np.exp(-s)


# family -> (phi(r^2), d phi / d r^2 given r^2 and phi)
STATIONARY = {
    "squared-exponential": (_squared_exponential, _squared_exponential_slope),
    "matern-1/2": (_matern12, _matern12_slope),
    "matern-3/2": (_matern32, _matern32_slope),
    "matern-5/2": (_matern52, _matern52_slope),
}
FAMILIES = (*STATIONARY, "linear")


@dataclass(frozen=True)
class Factor:
    """One factor of a product kernel.

    Attributes:
        family: a name in `FAMILIES`.
        columns: the columns of x it looks at.
        length_scales: one a column, in the unit cube.
        choices: those of its columns that hold a choice, compared for equality only.
    """

    family: str
    columns: tuple[int, ...]
    length_scales: tuple[float, ...]
    choices: frozenset[int] = frozenset()

    def __post_init__(self) -> None:
        if self.family not in FAMILIES:
            raise ValueError(f"kernel must be one of {list(FAMILIES)!r}, got {self.family!r}")

    def squared_distances(self, A: Array, B: Array, column: int) -> Array:
        """Return (x_j - x'_j)^2 / l_j^2 for one column j, shape (n, m)."""
        scale = self.length_scales[self.columns.index(column)]
        a, b = A[:, column, None], B[None, :, column]
        if column in self.choices:
            return np.where(a == b, 0.0, scale**-2.0)
        scaled = a - b
        scaled /= scale
        scaled *= scaled
        return scaled

    def products(self, A: Array, B: Array, column: int) -> Array:
        """Return (x_j - 1/2)(x'_j - 1/2) / l_j^2 for one column j, (n, m); of a choice, 1 / l_j^2 where it is equal."""
        scale = self.length_scales[self.columns.index(column)]
        a, b = A[:, column, None], B[None, :, column]
        if column in self.choices:
            return np.where(a == b, scale**-2.0, 0.0)
        return ((a - 0.5) / scale) * ((b - 0.5) / scale)

    @cached_property
    def _together(self) -> tuple[slice, Array] | None:
        """The columns as a slice and their scales, (d_f, 1), where the distances in all of them are taken alike."""
        first, end = self.columns[0], self.columns[-1] + 1
        if self.family == "linear" or self.choices or self.columns != tuple(range(first, end)):
            return None
        return slice(first, end), np.array(self.length_scales)[:, None]

    def _total(self, A: Array, B: Array) -> Array:
        if not self.columns:
            return np.zeros((len(A), len(B)))
        if len(A) == 1 and len(self.columns) > 1 and self._together is not None:
            return self._total_of_one(A, B, *self._together)
        term = self.products if self.family == "linear" else self.squared_distances
        total = term(A, B, self.columns[0])
        for column in self.columns[1:]:
            total += term(A, B, column)
        return total

    def _total_of_one(self, A: Array, B: Array, columns: slice, scales: Array) -> Array:
        """Return the squared distances of one point, (1, m), by the same operations in fewer calls."""
        squares = np.subtract(A.T[columns], B.T[columns], order="C")
        squares /= scales
        squares *= squares
        total = squares[:1]
        for square in squares[1:]:
            total += square
        return total

    def matrix(self, A: Array, B: Array) -> Array:
        """Return phi(A, B), shape (n, m)."""
        total = self._total(A, B)
        return 1.0 + total if self.family == "linear" else STATIONARY[self.family][0](total)

    def diagonal(self, A: Array) -> Array:
        """Return phi(a, a) for each row a of A, shape (n,)."""
        value = np.ones(len(A))
        if self.family == "linear":
            for scale, column in zip(self.length_scales, self.columns, strict=True):
                value += scale**-2.0 if column in self.choices else ((A[:, column] - 0.5) / scale) ** 2
        return value


@dataclass(frozen=True)
class Kernel:
    """A variance times a product of factors."""

    factors: tuple[Factor, ...]
    variance: float = 1.0

    @cached_property
    def columns(self) -> tuple[int, ...]:
        """The columns of all factors, in the order of `length_scales`."""
        return tuple(column for factor in self.factors for column in factor.columns)

    @property
    def length_scales(self) -> Array:
        """All length scales, factor by factor."""
        return np.array([scale for factor in self.factors for scale in factor.length_scales])

    def with_length_scales(self, scales: Sequence[float]) -> Kernel:
        """Return the same kernel with other length scales, in the order of `columns`."""
        rest = [float(scale) for scale in scales]
        factors = []
        for factor in self.factors:
            own, rest = rest[: len(factor.columns)], rest[len(factor.columns) :]
            factors.append(Factor(factor.family, factor.columns, tuple(own), factor.choices))
        return Kernel(tuple(factors), self.variance)

    def matrix(self, A: Array, B: Array) -> Array:
        """Return k(A, B), shape (n, m)."""
        if not self.factors:
            return np.full((len(A), len(B)), self.variance)
        K = self.factors[0].matrix(A, B)
        for factor in self.factors[1:]:
            K *= factor.matrix(A, B)
        if self.variance != 1.0:
            K *= self.variance
        return K

    def diagonal(self, A: Array) -> Array:
        """Return k(a, a) for each row a of A, shape (n,)."""
        value = np.full(len(A), self.variance)
        for factor in self.factors:
            if factor.family == "linear":  # the others are 1
                value *= factor.diagonal(A)
        return value

    def to_json(self) -> dict[str, Any]:
        """Describe the kernel in JSON."""
        return {
            "variance": self.variance,
            "factors": [
                {
                    "family": f.family,
                    "columns": list(f.columns),
                    "length_scales": list(f.length_scales),
                    "choices": sorted(f.choices),
                }
                for f in self.factors
            ],
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Kernel:
        """Read what `to_json` wrote."""
        return cls(
            tuple(
                Factor(f["family"], tuple(f["columns"]), tuple(f["length_scales"]), frozenset(f["choices"]))
                for f in data["factors"]
            ),
            data["variance"],
        )


def information_gain(kernel: Kernel, points: Array, noise_var: float) -> float:
    """Return 1/2 log |I + K_A / noise_var| of the points A, the argument of equation (7)."""
    K = kernel.matrix(points, points) / noise_var
    K[np.diag_indices_from(K)] += 1.0
    return float(0.5 * np.linalg.slogdet(K)[1])


def greedy_information_gain(kernel: Kernel, candidates: Array, noise_var: float, steps: int) -> Array:
    """Return the information gain after 1, ..., `steps` greedy choices among `candidates`, shape (steps,).

    The greedy choice is the point of largest posterior variance; it may repeat. The maximum information gain (7) over
    the candidates lies between the result and the result / (1 - 1/e), because the gain is submodular.
    """
    variance = kernel.diagonal(candidates)
    rows = np.empty((steps, len(candidates)))
    gain = np.empty(steps)
    for t in range(steps):
        j = int(np.argmax(variance))
        total = variance[j] + noise_var
        gain[t] = 0.5 * np.log(total / noise_var)
        row = kernel.matrix(candidates[j : j + 1], candidates)[0] - rows[:t, j] @ rows[:t]
        rows[t] = row / np.sqrt(total)
        variance = np.maximum(variance - rows[t] ** 2, 0.0)
    return np.cumsum(gain)
