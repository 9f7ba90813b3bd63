"""Draws of Gaussian processes as finite sums that can be evaluated anywhere in a box.

A draw is f(x) = sum_k w_k phi_k(x) with w ~ N(0, I), exact up to a stated tolerance in the covariance.

*Tensor series.* In one dimension a stationary k on an interval of length L is continued to a period P = L + gap with
k(gap) <= tol. By Poisson's summation the periodic sum over j of k(r + j P) has Fourier coefficients S(2 pi k / P) / P
with S the spectral density, so that

    phi_0 = sqrt(S_0 / P),   phi_k = sqrt(2 S_k / P) (cos, sin)(2 pi k x / P)

reproduces it; the series ends where what is left of k(0) is below tol. Both errors are uniform over the interval. On
the interval itself, shorter than the period, these features are nearly dependent, so they are turned by an orthogonal
matrix and those that nearly vanish are dropped (the Karhunen-Loeve basis). A product kernel has the tensor product of
these features. For the linear kernel (1, x / l) is exact with two features.

*Random features.* The tensor grows with the power of the dimension. Where it would have more weights than two functions
of `MOST_FEATURES` each, frequencies are drawn from the spectral density instead: given them f is a Gaussian process,
but its kernel is only within about 1 / sqrt(2 * 2048) = 1.6 % of k(0), and `tolerance` says so.

    x (..., d)   points in plant units        left, right   theta's and z's columns of x        R   features of theta
"""

from __future__ import annotations

import math

import numpy as np

from pdcbo.problem import Array

TOLERANCES = {"squared-exponential": 1e-8, "matern-5/2": 1e-6, "linear": 1e-15}
MOST_FEATURES = 6_000_000
FREQUENCIES = 2048


def spectral_density(family: str, omega: Array, length: float) -> Array:
    """Return S(omega) = integral of k(r) exp(-i omega r) dr of the one-dimensional kernel with k(0) = 1."""
    if family == "squared-exponential":
        return math.sqrt(2.0 * math.pi) * length * np.exp(-0.5 * (omega * length) ** 2)
    a = math.sqrt(5.0) / length
    return 16.0 / 3.0 * a**5 / (a * a + omega * omega) ** 3


class _Axis:
    """The features of one dimension of half-width `half` about 0."""

    def __init__(self, family: str, length: float, half: float, tol: float) -> None:
        self.linear, self.length = family == "linear", length
        if self.linear:
            self.size = 2
            return
        if family == "squared-exponential":
            gap = length * math.sqrt(2.0 * math.log(1.0 / tol))
        else:
            s = math.log(1.0 / tol)
            for _ in range(50):
                s = math.log((1.0 + s + s * s / 3.0) / tol)
            gap = length * s / math.sqrt(5.0)
        self.base = 2.0 * math.pi / (2.0 * half + gap)
        count = 64
        while True:
            k = np.arange(float(count))
            power = np.where(k == 0, 1.0, 2.0) * spectral_density(family, k * self.base, length) * self.base / 2 / np.pi
            left = 1.0 - np.cumsum(power)
            if left[-1] <= tol:
                break
            count *= 2
        self.order = int(np.argmax(left <= tol))
        self.scale = np.sqrt(power[: self.order + 1])
        self._frequencies = self.base * np.arange(1, self.order + 1)
        self.size, self._turn = 2 * self.order + 1, None
        if family != "squared-exponential":  # others need so many features that turning costs more than it saves
            return
        nodes = self(np.linspace(-half, half, 4 * self.size)) / math.sqrt(4 * self.size)
        _, strength, turn = np.linalg.svd(nodes, full_matrices=False)
        kept = int(np.sum(np.cumsum(strength[::-1] ** 2)[::-1] > 0.01 * tol))
        if kept < 0.8 * self.size:
            turn = turn[:kept]
            largest = np.take_along_axis(turn, np.abs(turn).argmax(axis=1)[:, None], axis=1)
            self.size, self._turn = kept, (turn * np.sign(largest)).T  # the signs that LAPACK gives differ by machine

    _turn: Array | None

    def __call__(self, x: Array) -> Array:
        """Return the features (..., size) at x (...)."""
        if self.linear:
            return np.stack([np.ones_like(x), x / self.length], axis=-1)
        angle = self._frequencies * x[..., None]
        phi = np.empty((*x.shape, 2 * self.order + 1))
        phi[..., 0] = self.scale[0]
        np.multiply(self.scale[1:], np.cos(angle), out=phi[..., 1 : self.order + 1])
        np.multiply(self.scale[1:], np.sin(angle), out=phi[..., self.order + 1 :])
        return phi if self._turn is None else phi @ self._turn


def _outer(axes: list[_Axis], x: Array) -> Array:
    """Return the tensor product (..., R) of the axes' features."""
    if not axes:
        return np.ones((*x.shape[:-1], 1))
    product = axes[0](x[..., 0])
    for j, axis in enumerate(axes[1:], start=1):
        product = (product[..., :, None] * axis(x[..., j])[..., None, :]).reshape(*x.shape[:-1], -1)
    return product


class TensorDraw:
    """A draw by tensor series; `size` tells how many coefficients each function has."""

    def __init__(self, family: str, variance: float, lengths: Array, half: float, n_theta: int) -> None:
        tol = TOLERANCES[family]
        axes = [_Axis(family, length, half, tol) for length in lengths.tolist()]
        self._left, self._right = axes[:n_theta], axes[n_theta:]
        self._rows = math.prod(axis.size for axis in self._left)
        self._columns = math.prod(axis.size for axis in self._right)
        self.size = self._rows * self._columns
        self.tolerance = 3.0 * len(axes) * tol * variance
        self._sd = math.sqrt(variance)
        self._coefficients = np.empty((0, self._rows, self._columns))  # of functions with variance 1, times `_sd`

    def draw(self, rng: np.random.Generator, n: int) -> TensorDraw:
        """Draw n functions anew."""
        self._coefficients = self._sd * rng.standard_normal((n, self._rows, self._columns))
        return self

    def features(self, theta: Array) -> Array:
        """Return (..., R) at theta (..., n_theta)."""
        return _outer(self._left, theta)

    def weights(self, z: Array) -> Array:
        """Return (..., n_functions, R) at z (..., n_z)."""
        right = _outer(self._right, z).reshape(-1, self._columns)
        return (right @ self._coefficients.reshape(-1, self._columns).T).reshape(
            *z.shape[:-1], len(self._coefficients), self._rows
        )

    def pairs(self, theta: Array, weights: Array) -> Array:
        """Return (T, K, n_functions), contracting theta's dimensions one after the other."""
        T, n, R = weights.shape
        first, *rest = self._left
        W = first(theta[..., 0])[:, None] @ weights.reshape(T, n, first.size, R // first.size)
        for j, axis in enumerate(rest, start=1):
            W = np.einsum("tkr,tnkrs->tnks", axis(theta[..., j]), W.reshape(T, n, theta.shape[1], axis.size, -1))
        return W[..., 0].swapaxes(1, 2)


class RandomDraw:
    """A draw by random Fourier features, for dimensions that a tensor series cannot reach."""

    def __init__(self, family: str, variance: float, lengths: Array, n_theta: int, rng: np.random.Generator) -> None:
        omega = rng.standard_normal((FREQUENCIES, len(lengths))) / lengths
        if family == "matern-5/2":  # its spectral density is Student's t with 5 degrees of freedom, in each dimension
            omega *= np.sqrt(5.0 / rng.chisquare(5.0, omega.shape))
        self._left, self._right = omega[:, :n_theta].T, omega[:, n_theta:].T
        self.tolerance = variance / math.sqrt(2.0 * FREQUENCIES)
        self._sd = math.sqrt(variance / FREQUENCIES)
        self._a = self._b = np.empty((0, FREQUENCIES))

    def draw(self, rng: np.random.Generator, n: int) -> RandomDraw:
        """Draw n functions anew, with the same frequencies."""
        self._a, self._b = rng.standard_normal((2, n, FREQUENCIES))
        return self

    def features(self, theta: Array) -> Array:
        """Return (..., R) at theta (..., n_theta)."""
        angle = theta @ self._left
        return self._sd * np.concatenate([np.cos(angle), np.sin(angle)], axis=-1)

    def weights(self, z: Array) -> Array:
        """Return (..., n_functions, R) at z (..., n_z), by the addition theorem."""
        angle = (z @ self._right)[..., None, :]
        c, s = np.cos(angle), np.sin(angle)
        return np.concatenate([self._a * c + self._b * s, self._b * c - self._a * s], axis=-1)

    def pairs(self, theta: Array, weights: Array) -> Array:
        """Return (T, K, n_functions)."""
        return self.features(theta) @ weights.swapaxes(1, 2)
