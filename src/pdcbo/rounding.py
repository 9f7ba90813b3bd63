"""What rounding allows: which shortcuts of `pdcbo.structured` would show in an answer, and which do not.

An answer is that of the plain posterior, to within 1e-7 of the standard deviation and 1e-8 roots of the prior variance
in the mean. Each shortcut is a small error in the kernel or in V. In the variance it shows where little of that is
left, about noise_var / m after m measurements of one point. In the mean it is multiplied by alpha, of which W tells how
large it is: W is (y - mean) / sqrt(std^2 + noise_var) before y was known, and large where data contradict each other.

    noise over prior variance   data agree                            data contradict each other
    at least 1e-3               everything                            features in double precision, groups
    at least 5e-5               no alpha, and no rows read off V      features in double precision
    at least 9e-7               features in double precision; the plain posterior for variances below 1e-7
    below                       columns of the kernel; the plain posterior for variances below 2e-8

Whatever the noise, the plain posterior answers where W is so large that rounding alone would show, and columns of the
kernel do where what features leave would. The numbers were measured: by the tests, `benchmarks/accuracy.py` and
`benchmarks/worst_case.py`.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from pdcbo.gp import Posterior
from pdcbo.kernels import Kernel

# What features may leave of the kernel, relative to the noise variance or, where that is less, to the prior variance;
# and, relative to the prior variance, what a Cholesky factor can tell from rounding.
TOLERANCE, LEAST_TOLERANCE = 3e-10, 3e-13
# The square of a feature, relative to the same, below which single precision does for it.
SMALL = 5e-5
# Noise variances, relative to the prior variance: below the first, alpha and rows of L that are read off V would show
# in the mean; below the second, single precision and sums in another order than the plain posterior's; below the third,
# features.
LEAST_NOISE_OF_ALPHA, LEAST_NOISE, LEAST_NOISE_OF_FEATURES = 1e-3, 5e-5, 9e-7
# The smallest variances, relative to the prior variance, that features, and columns of the kernel, get right below the
# second of these.
LEAST_VARIANCE_OF_FEATURES, LEAST_VARIANCE_OF_COLUMNS = 1e-7, 2e-8
# Standard deviations from its forecast from which on a measurement contradicts those before: where one does, single
# precision, alpha and rows that are read off would show in the mean.
CONTRADICTION = 6.0
# In the mean, relative to the root of the prior variance: units in the last place of its misfit that rounding takes;
# the part of their tolerance that features leave of what contradicts; and what either may come to.
ROUNDING, LEFT, MOST = 10.0, 0.015, 5e-9
# The context's part of the variance up to which tolerances hold; it is 1 but for linear kernels.
ORDINARY = 16.0
# The latest observations, whose variance just before tells how small variances may be now.
RECENT = 32
UNIT = float(np.finfo(float).eps)


class Allowed(NamedTuple):
    """What rounding allows at one context."""

    structure: bool  # anything but the plain posterior
    features: bool  # in the place of columns of the kernel
    other_order: bool  # of sums than the plain posterior's
    alpha: bool  # coarser levels of the features, and rows of L that are read off V
    least_of_features: float  # variances below which the plain posterior answers in the place of features
    least_of_columns: float  # the same in the place of columns of the kernel


class Rounding:
    """What rounding allows the answers of one posterior.

    Args:
        posterior: the plain one, with a product kernel.
        of_context: the context's part of the kernel.
        n_theta: the number of the columns before the context's.
        largest: the largest prior variance of a candidate, without the context's part.
    """

    def __init__(self, posterior: Posterior, of_context: Kernel, n_theta: int, largest: float) -> None:
        self._posterior, self._of_context, self._n_theta = posterior, of_context, n_theta
        self._largest = largest
        # the prior variance of these has no upper end
        self._linear = any(factor.family == "linear" for factor in posterior.kernel.factors)
        self._quiet = posterior.noise_var < LEAST_NOISE * largest

    @property
    def agree(self) -> bool:
        """Whether no measurement contradicts those before it."""
        return self._posterior.furthest_off <= CONTRADICTION

    @property
    def recent_variance(self) -> float:
        """The smallest variance that one of the latest observations had before it was made."""
        smallest = float(np.diagonal(self._posterior.factor.L)[-RECENT:].min(initial=math.inf))
        return smallest * smallest - self._posterior.noise_var

    def tolerances(self) -> tuple[float, float]:
        """Return what features may leave of the kernel, and the square below which single precision does for one."""
        size = min(self._posterior.noise_var, self._largest)
        tolerance = max(TOLERANCE * size, LEAST_TOLERANCE * self._largest)
        small = SMALL * size if self.agree and not self._quiet else 0.0
        return (tolerance / ORDINARY, small / ORDINARY) if self._linear else (tolerance, small)

    def at(self, prior: float) -> Allowed:
        """Return what is allowed at a context with this part of the prior variance."""
        noise_var, largest = self._posterior.noise_var, self._largest_prior_variance(prior)
        noisy, room = noise_var >= LEAST_NOISE * largest, noise_var >= LEAST_NOISE_OF_ALPHA * largest
        quiet_features = not self._linear and noise_var >= LEAST_NOISE_OF_FEATURES * largest
        misfit, contradiction = self._misfits(largest)
        left = LEFT * self.tolerances()[0] * contradiction
        return Allowed(
            structure=ROUNDING * UNIT * misfit <= MOST,
            features=(self._ordinary(prior) if noisy else quiet_features) and left <= MOST * largest,
            other_order=noisy if self.agree else room,
            alpha=room and self.agree,
            least_of_features=0.0 if noisy else LEAST_VARIANCE_OF_FEATURES * largest,
            least_of_columns=0.0 if noisy else LEAST_VARIANCE_OF_COLUMNS * largest,
        )

    def _misfits(self, largest: float) -> tuple[float, float]:
        """Return the sum of |W| times the root of prior over noise variance, and what contradictions add to it.

        Where all data agree and are few for their noise an upper bound does for the first.
        """
        root, n = math.sqrt(largest / self._posterior.noise_var), self._posterior.n
        most = n * self._posterior.furthest_off * root
        if self.agree and ROUNDING * UNIT * most <= MOST:
            return most, 0.0
        W = np.abs(self._posterior.W)
        contradicting = np.where(W > CONTRADICTION, W, 0.0)
        return float(W.sum(axis=0).max()) * root, float(contradicting.sum(axis=0).max()) * root

    def _largest_prior_variance(self, prior: float) -> float:
        """Return the largest prior variance, of the candidates at a context of this variance and of the data."""
        size = self._largest * prior
        if self._linear:
            size = max(size, float(self._posterior.kernel.diagonal(self._posterior.X).max(initial=0.0)))
        return size

    def _ordinary(self, prior: float) -> bool:
        """Tell whether the context's part of the variance, here and in the data, is what tolerances were set for."""
        if not self._linear:
            return True
        contexts = self._posterior.X[:, self._n_theta :]
        return max(prior, float(self._of_context.diagonal(contexts).max(initial=0.0))) <= ORDINARY
