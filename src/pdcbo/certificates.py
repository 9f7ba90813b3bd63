"""Certificates: what can be said, with probability 1 - delta, of a constraint's true average so far.

Two kinds, both valid at all times at once, so that one may look whenever one likes.

From observations alone. If the noise is sub-Gaussian with standard deviation sigma and what is missing or late does
not depend on it, the summed noise S_m of m measured values is a sub-Gaussian martingale. Mixing the exponential
martingale over a half-normal prior of variance 1/rho, Ville's inequality gives, for all m at once, P <= alpha that

    S_m >= sqrt(V + rho) s,   2 sqrt(rho / (V + rho)) exp(s^2 / 2) Phi(s) = 1 / alpha,   V = m sigma^2.

No model enters. Steps that were not measured enter by the worst value stated for the quantity, or else by the
posterior's bound.

From the posterior. If the quantity has an RKHS norm of at most C, Lemma 1 holds for every linear functional of it and
not only for point values: with h the sum over the t points visited,

    |h(y) - h(mean)| <= beta^(1/2) sqrt(h' Cov h),

which shrinks like 1/sqrt(t) on the average where adding up the widths of single points would not. It covers unmeasured
steps as well as measured ones.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from math import log, sqrt
from typing import Any

import numpy as np

from pdcbo.gp import Posterior
from pdcbo.normal import cdf
from pdcbo.problem import Array

MOST_POINTS = 2000


@dataclass(frozen=True)
class Bound:
    """One certificate: the true average lies on the right side of `value`, with what that rests on.

    Attributes:
        value: in plant units; an upper bound on the average for an upper limit, a lower bound for a lower one.
        guaranteed: every number it rests on was stated by the user, none estimated.
        assumption: in words.
    """

    value: float
    guaranteed: bool
    assumption: str


@dataclass(frozen=True)
class Certificate:
    """What is known of one limit's average over the steps that count.

    `average` is of what was measured, `limit` the average limit in force; each Bound is None where it cannot be had.
    """

    label: str
    side: str
    limit: float
    average: float | None
    steps: int
    measured: int
    delta: float
    observation: Bound | None
    posterior: Bound | None

    @property
    def holds(self) -> bool:
        """Tell whether either bound shows that the limit holds on average; each may be wrong with probability delta."""
        sign = 1.0 if self.side == "upper" else -1.0
        return any(b is not None and sign * (b.value - self.limit) <= 0.0 for b in (self.observation, self.posterior))

    def to_json(self) -> dict[str, Any]:
        """Describe the certificate in JSON."""
        return {**asdict(self), "holds": self.holds}


def noise_boundary(count: Array | float, noise_std: float, alpha: float, planned: float) -> Array:
    """Return a bound on the summed noise of `count` values, for all counts at once with probability 1 - alpha.

    Args:
        count: m, any shape.
        noise_std: sigma.
        alpha: the probability that the sum ever exceeds the bound.
        planned: the number of values at which the bound is about tightest.
    """
    rho = max(planned, 1.0) / max(2.0 * log(1.0 / alpha), 1.0)
    ratio = np.log1p(np.asarray(count, dtype=float) / rho)
    s = np.sqrt(2.0 * log(1.0 / alpha) + ratio)
    for _ in range(20):  # a contraction: Phi moves between 1/2 and 1 only
        s = np.sqrt(np.maximum(2.0 * np.log(1.0 / (2.0 * alpha * cdf(s))) + ratio, 0.0))
    return np.asarray(noise_std * np.sqrt(np.asarray(count, dtype=float) + rho) * s)


def summed_posterior(posterior: Posterior, column: int, points: Array) -> tuple[float, float]:
    """Return mean and standard deviation of the sum of one output over `points` (m, d), in standardised units.

    The mean is h' k(P, X) K^-1 y and the variance h' k(P, P) h - |L^-1 k(X, P) h|^2 with h = (1, ..., 1). Of more than
    `MOST_POINTS`, whose pairs would be too many, the deviations of parts of that size are added up: a bound.
    """
    if len(points) > MOST_POINTS:
        starts = range(0, len(points), MOST_POINTS)
        parts = [summed_posterior(posterior, column, points[i : i + MOST_POINTS]) for i in starts]
        return sum(mean for mean, _ in parts), sum(std for _, std in parts)
    kernel = posterior.kernel
    prior = sum(float(kernel.matrix(points[i : i + 512], points).sum()) for i in range(0, len(points), 512))
    if posterior.n == 0:
        return 0.0, sqrt(prior)
    row = sum(kernel.matrix(posterior.X, points[i : i + 512]).sum(axis=1) for i in range(0, len(points), 512))
    v = posterior.factor.solve(np.asarray(row)[:, None])[:, 0]
    return float(v @ posterior.W[:, column]), sqrt(max(prior - float(v @ v), 0.0))


def neighbour_noise(X: Array, y: Array, most: int = 400) -> float:
    """Return the standard deviation of noise that would make y (n,) at X (n, d) differ from its nearest neighbours."""
    X, y = X[-most:], y[-most:]
    if len(y) < 2:
        return 0.0
    squared = ((X[:, None] - X[None]) ** 2).sum(axis=-1)
    np.fill_diagonal(squared, np.inf)
    return sqrt(float(np.mean((y - y[squared.argmin(axis=1)]) ** 2)) / 2.0)


def mean_norm(posterior: Posterior, column: int) -> float:
    """Return the RKHS norm of the posterior mean, a data-driven guess of the function's own norm."""
    alpha = posterior.alpha[:, column]
    # |mean|^2 = alpha' K alpha = alpha' (L L' - noise_var I) alpha
    w = posterior.W[:, column]
    return sqrt(max(float(w @ w) - posterior.noise_var * float(alpha @ alpha), 0.0))
