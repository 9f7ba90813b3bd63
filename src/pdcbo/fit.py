"""Hyper-parameters by maximum a-posteriori likelihood, with analytic gradients.

The model of one output is y = mean + slope'(z - 1/2) + scale * (f + noise), f ~ GP(0, R) with unit variance,
noise ~ N(0, noise_var); the slope is followed for one range beyond the stated one and no further. Mean, slope and scale
have closed forms given the rest, so that only the length scales and the noise are searched, and so that a cost in
millions and a fraction in 1e-4 give the same search:

    H = Z - 1/2,   C = R(l) + trend^2 H H' + noise_var I,   m = 1'C^-1 y / 1'C^-1 1,   e = y - m 1,
    s^2 = (2 b + e'C^-1 e) / (n + 2 a + 2),   slope = trend^2 H'C^-1 e
    log posterior = -1/2 log|C| - (n + 2 a + 2)/2 log s^2 + log p(l) + log p(noise_var)

with an inverse-gamma prior (a, b) on s^2 at the spread of the data and log-normal priors on l and noise_var. The
length-scale prior grows with the square root of the dimension, since distances in the unit cube do: it keeps thirty
points in six dimensions from explaining everything as noise-free wiggles, and gives way to data that truly wiggle.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pdcbo import lapack
from pdcbo.compression import Compression
from pdcbo.kernels import STATIONARY, Kernel
from pdcbo.problem import Array

MAX_POINTS = 400
FEW_POINTS = 128
NOISE_RANGE = (1e-6, 4.0)
LENGTH_RANGE = (5e-3, 1e2)
# how much more likely, in logarithms, compressed values must be to be preferred
CLEARLY = 3.0
# the spread, relative to the values, that is rounding: nothing is known to change
ROUNDING = 1e-12
# the value of what cannot be factorised
FAILED = 1e10
# how many ranges beyond its own a slope in a context is followed: one in the wrong units must not promise the moon
REACH = 1.0
# equal values closer to their limit than this part of their size say nothing of the scale by that
NEAR = 5e-3


def followed(x: Array) -> Array:
    """Return the places, in ranges, at which a slope is taken: x itself, but for what is further out than `REACH`."""
    return np.minimum(np.maximum(x, -REACH), 1.0 + REACH)


@dataclass(frozen=True)
class Hyperparameters:
    """One output's model: y = mean + slope'(x - 1/2) + scale * (f + noise), f ~ GP(0, kernel).

    The noise has variance `noise_var`; no slope stands for a constant mean. With a compression, it is the compressed y.
    """

    kernel: Kernel
    noise_var: float
    mean: float = 0.0
    scale: float = 1.0
    slope: tuple[float, ...] = ()
    compression: Compression | None = None

    def prior_mean(self, X: Array) -> Array:
        """Return mean + slope'(x - 1/2) in plant units at X (..., d)."""
        value = np.full(X.shape[:-1], self.mean)
        for j, slope in enumerate(self.slope):  # column by column: the same bits for one point as for many
            value += slope * (followed(X[..., j]) - 0.5)
        return value

    def standardise(self, x: Array, y: float) -> float:
        """Return (y - prior mean) / scale of a compressed y at one point, with the bits that many points get."""
        if self.compression is not None:
            y = float(self.compression(np.array([y]))[0])
        value = self.mean
        if self.slope:
            for u, slope in zip(x.tolist(), self.slope, strict=True):
                value += slope * (min(max(u, -REACH), 1.0 + REACH) - 0.5)
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
            "compression": None if self.compression is None else self.compression.to_json(),
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Hyperparameters:
        """Read what `to_json` wrote."""
        compression = data.get("compression")
        return cls(
            Kernel.from_json(data["kernel"]), data["noise_var"], data["mean"], data["scale"], tuple(data["slope"]),
            None if compression is None else Compression(**compression),
        )  # fmt: skip


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
    if not len(y):
        return 1.0
    largest = float(np.abs(y).max()) or 1.0  # so that no square of tiny numbers vanishes
    size = abs(float(np.mean(y)))
    spread = largest * float(np.std(y / largest))
    if spread > ROUNDING * size:
        return spread
    distance = 0.0 if reference is None else abs(float(np.mean(y)) - reference)
    return distance if distance > NEAR * size else size or 1.0


def fit(
    X: Array,
    y: Array,
    start: Hyperparameters,
    priors: Priors,
    *,
    reference: float | None = None,
    noise_std: float | None = None,
    bad: float = 0.0,
) -> Hyperparameters:
    """Return the maximum a-posteriori hyper-parameters of y (n,) at X (n, d).

    Args:
        X: the points.
        y: the measurements in plant units, without NaN.
        start: gives the kernel's form and one of the starting points.
        priors: see `Priors`.
        reference: a value of y that means something (a limit), used to guess a scale from a single measurement.
        noise_std: the stated noise, which narrows the prior to it.
        bad: 1 or -1 where high or low values are bad and may be compressed, if the data are then much more likely.
    """
    X, y = _without_repeats(X, y)
    if len(y) > MAX_POINTS:
        # A spread over all of history, the newest always in: the likelihood is already sharp at this size.
        keep = _even(len(y), MAX_POINTS)
        X, y = X[keep], y[keep]
    if len(y) < 3 or np.ptp(y) <= ROUNDING * np.abs(y).max():
        return initial(start.kernel, priors, y, reference)
    plain, likelihood = _most_likely(X, y, start, priors, reference, noise_std)
    compression = Compression.of(y, reference, bad) if bad else None
    if compression is None:
        return plain
    compressed, other = _most_likely(X, compression(y), start, priors, reference, noise_std)
    if other + float(compression.log_slope(y).sum()) < likelihood + CLEARLY:
        return plain
    return replace(compressed, compression=compression)


def _without_repeats(X: Array, y: Array) -> tuple[Array, Array]:
    """Leave out measurements that only repeat another one of the same point, to the last bit.

    Without noise they say nothing new, and a hundred of them would make the function look as flat as that one value.
    """
    places: dict[bytes, list[int]] = {}
    for i, x in enumerate(X):
        places.setdefault(x.tobytes(), []).append(i)
    if len(places) == len(y):
        return X, y
    keep = sorted(i for place in places.values() for i in (place[:1] if np.ptp(y[place]) == 0.0 else place))
    return X[keep], y[keep]


def _most_likely(
    X: Array, y: Array, start: Hyperparameters, priors: Priors, reference: float | None, noise_std: float | None
) -> tuple[Hyperparameters, float]:
    """Return the hyper-parameters and the logarithm of the posterior density, up to a constant."""
    offset, unit = float(np.mean(y)), _spread(y, reference)
    y, noise = (y - offset) / unit, noise_std and noise_std / unit
    objective = _Likelihood(X, y, start.kernel, priors, noise)
    last = np.append(np.log(start.kernel.length_scales), np.log(start.noise_var))
    if len(y) <= FEW_POINTS:
        best, value = _search(objective, [last, *_scan(objective, priors)])
    else:
        # Which of the two optima is the better one, few points tell; from there or from the last fit it is not far.
        few = _even(len(y), FEW_POINTS)
        rough = _Likelihood(X[few], y[few], start.kernel, priors, noise)
        near, _ = _search(rough, _scan(rough, priors), ftol=1e-5)
        best, value = _search(objective, [min(last, near, key=objective.value)])
    mean, scale, slope = objective.closed_forms(best)
    kernel = start.kernel.with_length_scales(np.exp(best[:-1]).tolist())
    found = Hyperparameters(
        kernel, float(np.exp(best[-1])), offset + unit * mean, unit * scale, tuple((unit * slope).tolist())
    )
    return found, -value - len(y) * float(np.log(unit))


def _even(n: int, count: int) -> NDArray[np.intp]:
    """Return `count` of the indices of n, evenly spread, the first and the last among them."""
    return np.linspace(0, n - 1, count).round().astype(np.intp)


def _scan(objective: _Likelihood, priors: Priors) -> list[Array]:
    """Return the prior's median and the best of it and of shorter length scales.

    Long length scales with much noise and short ones with little are two optima; one look each tells which is near.
    """
    scan = [np.append(objective.length_median - shorter, np.log(priors.noise)) for shorter in (0.0, 1.0, 2.0, 3.0)]
    best = min(scan, key=objective.value)
    return [best] if best is scan[0] else [best, scan[0]]


def _search(objective: _Likelihood, starts: list[Array], ftol: float = 1e-7) -> tuple[Array, float]:
    """Return the lowest p found by a local search from each start, and its value."""
    from scipy.optimize import minimize  # imported here: it doubles the time to import the package

    bounds = [tuple(np.log(LENGTH_RANGE))] * (len(starts[0]) - 1) + [tuple(np.log(NOISE_RANGE))]
    low, high = np.array(bounds).T
    options = {"maxiter": 50, "ftol": ftol}
    results = [
        minimize(objective, np.clip(p, low, high), jac=True, method="L-BFGS-B", bounds=bounds, options=options)
        for p in starts
    ]
    best = min(results, key=lambda result: float(result.fun))
    return np.asarray(best.x), float(best.fun)


class _Likelihood:
    """Minus the log posterior of p = (log l, log noise_var), and its gradient.

    Symmetric matrices are held as their lower triangles, column after column, as LAPACK packs them: half the
    exponentials and products. All squared-exponential factors are one, exp(-r^2/2) exp(-s^2/2) = exp(-(r^2 + s^2)/2).
    """

    def __init__(self, X: Array, y: Array, kernel: Kernel, priors: Priors, noise_std: float | None) -> None:
        self.y, self.n = y, len(y)
        self.length_median = np.full(len(kernel.columns), np.log(priors.length * max(len(kernel.columns), 1) ** 0.5))
        self.length_spread = priors.length_spread
        self.noise_median, self.noise_spread = np.log(priors.noise), priors.noise_spread
        if noise_std is not None:
            self.noise_median, self.noise_spread = 2.0 * np.log(noise_std / max(float(np.std(y)), 1e-9)), 0.7
            self.noise_median = float(np.clip(self.noise_median, *np.log(NOISE_RANGE)))
        # None in theta, the first factor: a slope would send the search to the edges of the box where little is known.
        still = [*kernel.factors[0].columns, *(c for f in kernel.factors for c in f.choices)]
        self.H = followed(X) - 0.5
        self.H[:, still] = 0.0
        self.trend_var = priors.trend**2
        self.a, self.b = priors.scale_shape, priors.scale_shape * float(np.var(y))
        rows, columns = np.triu_indices(self.n)
        self.diagonal = np.flatnonzero(rows == columns)
        self.linear = (self.trend_var * (self.H @ self.H.T))[rows, columns]
        self.targets = np.column_stack([y, np.ones(self.n)])
        places: dict[tuple[str, int], list[int]] = {}
        terms: list[Array] = []
        for k, f in enumerate(kernel.with_length_scales([1.0] * len(kernel.columns)).factors):
            for column in f.columns:
                places.setdefault((f.family, 0 if f.family == "squared-exponential" else k), []).append(len(terms))
                term = -f.products(X, X, column) if f.family == "linear" else f.squared_distances(X, X, column)
                terms.append(term[rows, columns])
        # of each factor its family, the places of its length scales in p and the squared distances along its columns
        self.factors = [(family, own, np.array([terms[i] for i in own])) for (family, _), own in places.items()]

    def value(self, p: Array) -> float:
        """Return the first of what a call returns, in a third of the time."""
        L, info = self._factorise(self._covariance(p)[0])
        return FAILED if info != 0 else self._value(p, L, self._generalised_least_squares(L)[2])

    def _value(self, p: Array, L: Array, quadratic: float) -> float:
        shape, total = self._scale_posterior(quadratic)
        z, w = self._from_medians(p)
        return float(np.log(np.diagonal(L)).sum() + 0.5 * shape * np.log(total) + 0.5 * (z @ z + w * w))

    def __call__(self, p: Array) -> tuple[float, Array]:
        C, values, slopes = self._covariance(p)
        L, info = self._factorise(C)
        if info != 0:
            return FAILED, np.zeros_like(p)
        _, alpha, quadratic = self._generalised_least_squares(L)
        value = self._value(p, L, quadratic)
        shape, total = self._scale_posterior(quadratic)
        # d value = 1/2 tr(M dC),  M = C^-1 - (shape / total) alpha alpha'
        inverse, _ = lapack.dpotri(L, lower=1, overwrite_c=1)
        M, _ = lapack.dtrttp(lapack.dsyr(-shape / total, alpha, a=inverse, lower=1, overwrite_a=1), uplo="L")
        M[self.diagonal] *= 0.5  # so that the sum over one triangle is half of that over the matrix
        gradient = np.empty_like(p)
        gradient[-1] = M[self.diagonal].sum() * np.exp(p[-1])
        for k, (_, own, terms) in enumerate(self.factors):
            weights = M * slopes[k]
            for j, other in enumerate(values):
                if j != k:
                    weights *= other
            gradient[own] = -2.0 * np.exp(-2.0 * p[own]) * (terms @ weights)
        z, w = self._from_medians(p)
        gradient[:-1] += z / self.length_spread
        gradient[-1] += w / self.noise_spread
        return value, gradient

    def _scale_posterior(self, quadratic: float) -> tuple[float, float]:
        """Return n + 2 a + 2 and 2 b + e'C^-1 e."""
        return self.n + 2.0 * self.a + 2.0, 2.0 * self.b + quadratic

    def _from_medians(self, p: Array) -> tuple[Array, float]:
        """Return how far log l and log noise_var are from their medians, in spreads."""
        return (p[:-1] - self.length_median) / self.length_spread, (p[-1] - self.noise_median) / self.noise_spread

    def closed_forms(self, p: Array) -> tuple[float, float, Array]:
        """Return the mean, the scale and the slope that go with p."""
        L, info = self._factorise(self._covariance(p)[0])
        if info != 0:
            return float(np.mean(self.y)), float(np.std(self.y)), np.zeros(self.H.shape[1])
        mean, alpha, quadratic = self._generalised_least_squares(L)
        shape, total = self._scale_posterior(quadratic)
        scale = float(np.sqrt(total / shape))
        return mean, scale, self.trend_var * (self.H.T @ alpha)

    def _covariance(self, p: Array) -> tuple[Array, list[Array], list[Array]]:
        """Return C, each factor's values, and their derivatives by the (scaled) squared distance."""
        values, slopes = [], []
        for family, own, terms in self.factors:
            total = np.exp(-2.0 * p[own]) @ terms
            if family == "linear":
                values.append(1.0 - total)
                slopes.append(np.full_like(total, -1.0))
            else:
                phi, slope = STATIONARY[family]
                values.append(phi(total))
                slopes.append(slope(total, values[-1]))
        C = values[0] + self.linear if len(values) == 1 else np.prod(values, axis=0) + self.linear
        C[self.diagonal] += np.exp(p[-1])
        return C, values, slopes

    def _factorise(self, C: Array) -> tuple[Array, int]:
        full, _ = lapack.dtpttr(self.n, C, uplo="L")
        factor: tuple[Array, int] = lapack.dpotrf(full, lower=1, clean=0, overwrite_a=1)
        return factor

    def _generalised_least_squares(self, L: Array) -> tuple[float, Array, float]:
        both, _ = lapack.dpotrs(L, self.targets, lower=1)
        mean = float(both[:, 0].sum() / both[:, 1].sum())
        alpha = both[:, 0] - mean * both[:, 1]
        return mean, alpha, float((self.y - mean) @ alpha)
