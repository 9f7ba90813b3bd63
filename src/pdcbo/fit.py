"""Hyper-parameters by maximum a-posteriori likelihood, with analytic gradients.

The model of one output is y = mean + slope'(z - 1/2) + scale * (f + noise), f ~ GP(0, R) with unit variance,
noise ~ N(0, noise_var). Mean, slope and scale have closed forms given the rest, so that only the length scales and
the noise are searched, and so that a cost in millions and a fraction in 1e-4 give the same search:

    H = Z - 1/2,   C = R(l) + trend^2 H H' + noise_var I,   m = 1'C^-1 y / 1'C^-1 1,   e = y - m 1,
    s^2 = (2 b + e'C^-1 e) / (n + 2 a + 2),   slope = trend^2 H'C^-1 e
    log posterior = -1/2 log|C| - (n + 2 a + 2)/2 log s^2 + log p(l) + log p(noise_var)

with an inverse-gamma prior (a, b) on s^2 at the spread of the data and log-normal priors on l and noise_var. The
length-scale prior grows with the square root of the dimension, since distances in the unit cube do: it keeps thirty
points in six dimensions from explaining everything as noise-free wiggles, and gives way to data that truly wiggle.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from pdcbo import lapack
from pdcbo.kernels import STATIONARY, Kernel
from pdcbo.problem import Array

MAX_POINTS = 400
NOISE_RANGE = (1e-6, 4.0)
LENGTH_RANGE = (5e-3, 1e2)


@dataclass(frozen=True)
class Hyperparameters:
    """One output's model: y = mean + slope'(x - 1/2) + scale * (f + noise), f ~ GP(0, kernel).

    The noise has variance `noise_var`; no slope stands for a constant mean.
    """

    kernel: Kernel
    noise_var: float
    mean: float = 0.0
    scale: float = 1.0
    slope: tuple[float, ...] = ()

    def prior_mean(self, X: Array) -> Array:
        """Return mean + slope'(x - 1/2) in plant units at X (..., d)."""
        value = np.full(X.shape[:-1], self.mean)
        for j, slope in enumerate(self.slope):  # column by column: the same bits for one point as for many
            value += slope * (X[..., j] - 0.5)
        return value

    def standardise(self, x: Array, y: float) -> float:
        """Return (y - prior mean) / scale at one point, with the bits that `prior_mean` gives for many."""
        value = self.mean
        if self.slope:
            for u, slope in zip(x.tolist(), self.slope, strict=True):
                value += slope * (u - 0.5)
        return (y - value) / self.scale

    @property
    def noise_std(self) -> float:
        """The noise's standard deviation in plant units."""
        return float(self.scale * self.noise_var**0.5)

    def to_json(self) -> dict[str, Any]:
        """Describe the hyper-parameters in JSON."""
        return {
            "kernel": self.kernel.to_json(),
            "noise_var": self.noise_var,
            "mean": self.mean,
            "scale": self.scale,
            "slope": list(self.slope),
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Hyperparameters:
        """Read what `to_json` wrote."""
        return cls(
            Kernel.from_json(data["kernel"]), data["noise_var"], data["mean"], data["scale"], tuple(data["slope"])
        )


@dataclass(frozen=True)
class Priors:
    """Log-normal priors: a median and a standard deviation of the logarithm each.

    `length` is the median length scale in one dimension; in d dimensions it is multiplied by sqrt(d). `trend` is the
    standard deviation of a slope over the whole range of a context variable, in units of the scale: a plant whose cost
    follows a price or whose emissions follow a load is then known after a handful of steps.
    """

    length: float = 0.2
    length_spread: float = 1.2
    noise: float = 1e-3
    noise_spread: float = 2.0
    scale_shape: float = 1.0
    trend: float = 0.7


def initial(kernel: Kernel, priors: Priors, y: Array, reference: float | None) -> Hyperparameters:
    """Return the prior's own model, scaled by what little is known of the output."""
    mean = float(np.mean(y)) if len(y) else 0.0 if reference is None else reference
    scale = _spread(y, reference)
    medians = np.full(len(kernel.columns), priors.length * max(len(kernel.columns), 1) ** 0.5)
    return Hyperparameters(kernel.with_length_scales(medians.tolist()), priors.noise, mean, scale)


def _spread(y: Array, reference: float | None) -> float:
    """Return a positive scale of y: its spread, else its distance from a reference (a limit), else its size."""
    largest = float(np.abs(y).max(initial=0.0)) or 1.0  # so that no square of tiny numbers vanishes
    guesses = [largest * float(np.std(y / largest)) if len(y) > 1 else 0.0]
    if len(y) and reference is not None:
        guesses.append(abs(float(np.mean(y)) - reference))
    if len(y):
        guesses.append(abs(float(np.mean(y))))
    tiny = 1e-9 * (abs(float(np.mean(y))) if len(y) else 0.0)
    return next((g for g in guesses if g > tiny), 1.0)


def fit(
    X: Array,
    y: Array,
    start: Hyperparameters,
    priors: Priors,
    *,
    reference: float | None = None,
    noise_std: float | None = None,
) -> Hyperparameters:
    """Return the maximum a-posteriori hyper-parameters of y (n,) at X (n, d).

    Args:
        X: the points.
        y: the measurements in plant units, without NaN.
        start: gives the kernel's form and one of the starting points.
        priors: see `Priors`.
        reference: a value of y that means something (a limit), used to guess a scale from a single measurement.
        noise_std: the stated noise, which narrows the prior to it.
    """
    if len(y) > MAX_POINTS:
        # A spread over all of history, the newest always in: the likelihood is already sharp at this size.
        keep = np.unique(np.linspace(0, len(y) - 1, MAX_POINTS).round().astype(int))
        X, y = X[keep], y[keep]
    if len(y) < 3 or np.ptp(y) == 0.0:
        return initial(start.kernel, priors, y, reference)
    from scipy.optimize import minimize  # imported here: it doubles the time to import the package

    offset, unit = float(np.mean(y)), _spread(y, reference)
    objective = _Likelihood(X, (y - offset) / unit, start.kernel, priors, noise_std and noise_std / unit)
    lengths = np.log(start.kernel.length_scales)
    medians = objective.length_median
    # Long length scales with much noise and short ones with little are two optima; one look each tells which is near.
    scan = [np.append(medians - shorter, np.log(priors.noise)) for shorter in (0.0, 1.0, 2.0, 3.0)]
    starts = [np.append(lengths, np.log(start.noise_var)), min(scan, key=lambda p: objective(p)[0])]
    if len(y) <= 128:
        starts.append(scan[0])
    bounds = [tuple(np.log(LENGTH_RANGE))] * len(lengths) + [tuple(np.log(NOISE_RANGE))]
    low, high = np.array(bounds).T
    best = min(
        (
            minimize(objective, np.clip(p, low, high), jac=True, method="L-BFGS-B", bounds=bounds, options=_OPTIONS)
            for p in starts
        ),
        key=lambda result: float(result.fun),
    )
    mean, scale, slope = objective.closed_forms(best.x)
    kernel = start.kernel.with_length_scales(np.exp(best.x[:-1]))
    return Hyperparameters(
        kernel, float(np.exp(best.x[-1])), offset + unit * mean, unit * scale, tuple((unit * slope).tolist())
    )


_OPTIONS = {"maxiter": 50, "ftol": 1e-7}


class _Likelihood:
    """Minus the log posterior of p = (log l, log noise_var), and its gradient."""

    def __init__(self, X: Array, y: Array, kernel: Kernel, priors: Priors, noise_std: float | None) -> None:
        self.y, self.kernel, self.n = y, kernel, len(y)
        self.length_median = np.full(len(kernel.columns), np.log(priors.length * max(len(kernel.columns), 1) ** 0.5))
        self.length_spread = priors.length_spread
        self.noise_median, self.noise_spread = np.log(priors.noise), priors.noise_spread
        if noise_std is not None:
            self.noise_median, self.noise_spread = 2.0 * np.log(noise_std / max(float(np.std(y)), 1e-9)), 0.7
            self.noise_median = float(np.clip(self.noise_median, *np.log(NOISE_RANGE)))
        # None in theta, the first factor: a slope would send the search to the edges of the box where little is known.
        still = [*kernel.factors[0].columns, *(c for f in kernel.factors for c in f.choices)]
        self.H = X - 0.5
        self.H[:, still] = 0.0
        self.trend_var = priors.trend**2
        self.linear = self.trend_var * (self.H @ self.H.T)
        self.a, self.b = priors.scale_shape, priors.scale_shape * float(np.var(y))
        ones = kernel.with_length_scales([1.0] * len(kernel.columns))
        self.terms = [
            [-f.products(X, X, c) if f.family == "linear" else f.squared_distances(X, X, c) for c in f.columns]
            for f in ones.factors
        ]

    def __call__(self, p: Array) -> tuple[float, Array]:
        C, values, slopes = self._covariance(p)
        L, info = lapack.dpotrf(C, lower=1)
        if info != 0:
            return 1e10, np.zeros_like(p)
        _, _, alpha, quadratic = self._generalised_least_squares(L)
        shape = self.n + 2.0 * self.a + 2.0
        total = 2.0 * self.b + quadratic
        value = np.log(np.diagonal(L)).sum() + 0.5 * shape * np.log(total)
        inverse, _ = lapack.dpotri(L, lower=1)
        M = np.tril(inverse) + np.tril(inverse, -1).T
        M -= (shape / total) * np.outer(alpha, alpha)
        inverse_squares = np.exp(-2.0 * p[:-1])
        gradient = np.empty_like(p)
        i = 0
        for k, terms in enumerate(self.terms):
            others = M * slopes[k]
            for j, other in enumerate(values):
                if j != k:
                    others = others * other
            for term in terms:
                gradient[i] = 0.5 * np.vdot(others, term) * -2.0 * inverse_squares[i]
                i += 1
        gradient[-1] = 0.5 * np.trace(M) * np.exp(p[-1])
        z = (p[:-1] - self.length_median) / self.length_spread
        w = (p[-1] - self.noise_median) / self.noise_spread
        gradient[:-1] += z / self.length_spread
        gradient[-1] += w / self.noise_spread
        return float(value + 0.5 * (z @ z + w * w)), gradient

    def closed_forms(self, p: Array) -> tuple[float, float, Array]:
        """Return the mean, the scale and the slope that go with p."""
        C, _, _ = self._covariance(p)
        L, info = lapack.dpotrf(C, lower=1)
        if info != 0:
            return float(np.mean(self.y)), float(np.std(self.y)), np.zeros(self.H.shape[1])
        mean, _, alpha, quadratic = self._generalised_least_squares(L)
        scale = float(np.sqrt((2.0 * self.b + quadratic) / (self.n + 2.0 * self.a + 2.0)))
        return mean, scale, self.trend_var * (self.H.T @ alpha)

    def _covariance(self, p: Array) -> tuple[Array, list[Array], list[Array]]:
        """Return C, each factor's matrix, and its derivative by its (scaled) squared distance."""
        inverse_squares = np.exp(-2.0 * p[:-1])
        values, slopes = [], []
        i = 0
        for factor, terms in zip(self.kernel.factors, self.terms, strict=True):
            total = np.zeros((self.n, self.n))
            for term in terms:
                total += inverse_squares[i] * term
                i += 1
            if factor.family == "linear":
                values.append(1.0 - total)
                slopes.append(np.full_like(total, -1.0))
            else:
                phi, slope = STATIONARY[factor.family]
                values.append(phi(total))
                slopes.append(slope(total, values[-1]))
        C = values[0].copy()
        for value in values[1:]:
            C *= value
        C += self.linear
        C[np.diag_indices_from(C)] += np.exp(p[-1])
        return C, values, slopes

    def _generalised_least_squares(self, L: Array) -> tuple[float, Array, Array, float]:
        both, _ = lapack.dpotrs(L, np.column_stack([self.y, np.ones(self.n)]), lower=1)
        mean = float(both[:, 0].sum() / both[:, 1].sum())
        e = self.y - mean
        alpha = both[:, 0] - mean * both[:, 1]
        return mean, e, alpha, float(e @ alpha)
