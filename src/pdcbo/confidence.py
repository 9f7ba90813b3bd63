"""Confidence bounds: Lemma 1, with its erratum, and the constants of Theorem 1, with theirs.

    beta_sqrt    beta^(1/2), multiplies the posterior standard deviation
    norm_bound   C_i, the RKHS norm of an output; |f(x)| <= C sqrt(k(x, x)) truncates the bounds
    gain         gamma, the information gain (7): of the points visited, or the maximum for planning

Errata. (8) prints beta^(1/2) = C + sigma sqrt(2 (gamma + 1 + ln((N + 1)/delta))), which holds for a GP noise variance
of 1 + 2/T only; for another noise_var the noise term carries sigma / sqrt(noise_var). Theorem 1's epsilon prints beta
where its proof, through Lemma 2, needs beta^(1/2). Both printed forms are here too, for comparison. Lemma 2, sum of
sigma_{t-1}(x_t) <= sqrt(4 (T + 2) gamma_T), holds for noise_var <= 1.54 max k only, where ln(1 + max k / noise_var) is
at least 1/2: a larger one would make gamma, and with it epsilon, as small as one likes. docs/errata.md lists all.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import log, sqrt

import numpy as np

from pdcbo.kernels import Kernel
from pdcbo.problem import Array

# the largest noise variance of a model, over its largest variance, that Lemma 2 holds for: 1 / (sqrt(e) - 1)
LARGEST_NOISE = 1.54


def beta_sqrt(
    norm_bound: float, noise_std: float, noise_var: float, gain: float, functions: int, delta: float
) -> float:
    """Return beta^(1/2) of equation (8) with the erratum.

    beta^(1/2) = C + (sigma / sqrt(noise_var)) sqrt(2 (gamma + 1 + ln((N + 1) / delta)))

    Args:
        norm_bound: C.
        noise_std: sigma, the sub-Gaussian constant of the noise.
        noise_var: lambda, the noise variance in the GP.
        gain: gamma_{t-1}.
        functions: N + 1, over which delta is shared.
        delta: the probability that any bound fails at any time.
    """
    return norm_bound + noise_std / sqrt(noise_var) * sqrt(2.0 * (gain + 1.0 + log(functions / delta)))


def beta_sqrt_printed(norm_bound: float, noise_std: float, gain: float, functions: int, delta: float) -> float:
    """Return beta^(1/2) as printed in equation (8)."""
    return norm_bound + noise_std * sqrt(2.0 * (gain + 1.0 + log(functions / delta)))


def lower_bound(mean: Array, std: Array, beta: Array | float, ceiling: Array | float = np.inf) -> Array:
    """Return max(mean - beta^(1/2) std, -C sqrt(k)), equations (8a) and (8c); `ceiling` is C sqrt(k)."""
    return np.asarray(np.maximum(mean - beta * std, -np.asarray(ceiling)))


def upper_bound(mean: Array, std: Array, beta: Array | float, ceiling: Array | float = np.inf) -> Array:
    """Return min(mean + beta^(1/2) std, C sqrt(k)), equations (8b) and (8d); `ceiling` is C sqrt(k)."""
    return np.asarray(np.minimum(mean + beta * std, np.asarray(ceiling)))


def largest_variance(kernel: Kernel) -> float:
    """Return the largest k(x, x) in the unit cube: the variance, but for linear factors, which grow to its corners."""
    value = kernel.variance
    for factor in kernel.factors:
        if factor.family == "linear":
            value *= 1.0 + sum(
                (1.0 if column in factor.choices else 0.25) / scale**2
                for scale, column in zip(factor.length_scales, factor.columns, strict=True)
            )
    return value


@dataclass(frozen=True)
class TheoremConstants:
    """The settings of Theorem 1 for one horizon."""

    horizon: int
    eta: float
    initial_queue: float
    slack: float
    slack_printed: float
    beta_sqrt: tuple[float, ...]
    slater_margin: float

    @property
    def applies(self) -> bool:
        """Tell whether epsilon <= xi / 2, without which Theorem 1 says nothing."""
        return self.slack <= self.slater_margin / 2.0


def theorem_constants(
    horizon: int,
    norm_bounds: Array,
    slater_margin: float,
    beta_sqrt_constraints: Array,
    gains_constraints: Array,
    objective_norm_bound: float,
) -> TheoremConstants:
    """Return eta, lambda_1 and epsilon of Theorem 1.

    eta = 1 / sqrt(T),  lambda_1 = 4 C_0 / (eta xi) + 4 ||C||^2 / xi,
    T epsilon = sqrt(N lambda_1^2 + 4 C_0 / eta + 4 ||C||^2) + 8 ||beta_T^(1/2)|| sqrt(T ||gamma_T||)

    Args:
        horizon: T.
        norm_bounds: C_1, ..., C_N, shape (N,).
        slater_margin: xi.
        beta_sqrt_constraints: beta_{i,T}^(1/2), shape (N,).
        gains_constraints: gamma_{i,T}, shape (N,).
        objective_norm_bound: C_0.
    """
    C = np.asarray(norm_bounds, dtype=float)
    betas = np.asarray(beta_sqrt_constraints, dtype=float)
    eta = 1.0 / sqrt(horizon)
    C2 = float(C @ C)
    queue = 4.0 * objective_norm_bound / (eta * slater_margin) + 4.0 * C2 / slater_margin
    drift = sqrt(len(C) * queue**2 + 4.0 * objective_norm_bound / eta + 4.0 * C2)
    learning = 8.0 * sqrt(horizon * float(np.linalg.norm(gains_constraints)))
    return TheoremConstants(
        horizon=horizon,
        eta=eta,
        initial_queue=queue,
        slack=(drift + learning * float(np.linalg.norm(betas))) / horizon,
        slack_printed=(drift + learning * float(np.linalg.norm(betas**2))) / horizon,
        beta_sqrt=tuple(map(float, betas)),
        slater_margin=slater_margin,
    )


def horizon_needed(constants: Callable[[int], TheoremConstants], largest: int = 10**15) -> int | None:
    """Return the smallest horizon for which epsilon <= xi / 2, to 0.1 %, or None if none up to `largest` does.

    Epsilon falls with the horizon, since gains grow slower than its square root; the result itself always applies.
    """
    high = 1
    while not constants(high).applies:
        high *= 2
        if high > largest:
            return None
    low = high // 2
    while high - low > max(1, low // 1000):
        middle = (low + high) // 2
        low, high = (low, middle) if constants(middle).applies else (middle, high)
    return high


def planned_gain(kernel: Kernel, points: Array, noise_var: float) -> Callable[[int], float]:
    """Return T -> the information gain of visiting each of m points T / m times, for planning over any T.

    It is 1/2 sum_i log(1 + (T / m) lambda_i(K) / noise_var), which needs one eigendecomposition for all T: a lower
    bound on (7), and a low one where the points are few for the kernel's length scales.
    """
    eigenvalues = np.maximum(np.linalg.eigvalsh(kernel.matrix(points, points)), 0.0)
    return lambda T: float(0.5 * np.log1p(T / len(points) * eigenvalues / noise_var).sum())
