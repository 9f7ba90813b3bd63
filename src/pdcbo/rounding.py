"""What rounding allows: which shortcuts of `pdcbo.structured` would show in an answer, and which do not.

An answer is that of the plain posterior, to within 1e-7 of the standard deviation and 1e-8 roots of the prior variance
in the mean. Each shortcut is a small error in the kernel or in V. In the variance it shows where little of that is
left, about noise_var / m after m measurements of one point. In the mean it is multiplied by alpha, which is the larger
the more data contradict each other; W tells, which is (y - mean) / sqrt(std^2 + noise_var) before y was known.

    noise over prior variance   data agree                                  data contradict each other
    at least 1e-3               everything                                  features in double precision, groups
    at least 5e-5               features and groups; no alpha, no rows      features in double precision
    at least 2e-6               features in double precision where no variance is below 1e-7
    below                       columns of the kernel where no variance is below 2e-8
    any                         the plain posterior where the sum of |W| is beyond MOST_MISFIT

The numbers were measured: by the tests, `benchmarks/accuracy.py` and `benchmarks/worst_case.py`.
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
LEAST_NOISE_OF_ALPHA, LEAST_NOISE, LEAST_NOISE_OF_FEATURES = 1e-3, 5e-5, 2e-6
# The smallest variance, relative to the prior variance, that features, and columns of the kernel, get right: of these
# many units in the last place of the prior variance it is a difference.
LEAST_VARIANCE_OF_FEATURES, LEAST_VARIANCE_OF_COLUMNS = 1e-7, 2e-8
# Standard deviations from its forecast from which on a measurement contradicts those before: where one does, single
# precision, alpha and rows that are read off would show in the mean.
CONTRADICTION = 6.0
# The sum of |W| times the root of prior over noise variance above which rounding, ten units in the last place of that,
# would show in the mean.
MOST_MISFIT = 2e6
# The context's part of the variance up to which tolerances hold; it is 1 but for linear kernels.
ORDINARY = 16.0
# The latest observations, whose variance just before tells how small variances may be now.
RECENT = 32


class Allowed(NamedTuple):
    """What rounding allows at one context."""

    structure: bool  # anything but the plain posterior
    features: bool  # in the place of columns of the kernel
    groups: bool  # sums in another order than the plain posterior's, and single precision
    alpha: bool  # coarser levels of the features, and rows of L that are read off V
    least_variance: tuple[float, float]  # with columns of the kernel and with features


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
        self.noisy = posterior.noise_var >= LEAST_NOISE * largest

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
        small = SMALL * size if self.agree and self.noisy else 0.0
        return (tolerance / ORDINARY, small / ORDINARY) if self._linear else (tolerance, small)

    def at(self, prior: float) -> Allowed:
        """Return what is allowed at a context with this part of the prior variance."""
        noise_var, largest = self._posterior.noise_var, self._largest_prior_variance(prior)
        noisy, room = noise_var >= LEAST_NOISE * largest, noise_var >= LEAST_NOISE_OF_ALPHA * largest
        least = 0.0 if noisy else largest
        return Allowed(
            structure=self._misfit(largest) <= MOST_MISFIT,
            features=self._ordinary(prior) if noisy else self._allows_quiet_features(largest),
            groups=noisy if self.agree else room,
            alpha=room and self.agree,
            least_variance=(LEAST_VARIANCE_OF_COLUMNS * least, LEAST_VARIANCE_OF_FEATURES * least),
        )

    def _allows_quiet_features(self, largest: float) -> bool:
        """Tell whether features may do with next to no noise: if so, whether they did is for the answer to tell."""
        if self._linear or self._posterior.noise_var < LEAST_NOISE_OF_FEATURES * largest:
            return False
        return self.recent_variance >= LEAST_VARIANCE_OF_FEATURES * largest

    def _misfit(self, largest: float) -> float:
        """Return what rounding is multiplied by in the mean, or more where that is little."""
        W, root = self._posterior.W, math.sqrt(largest / self._posterior.noise_var)
        most = len(W) * self._posterior.furthest_off * root
        return most if most <= MOST_MISFIT else float(np.abs(W).sum(axis=0).max()) * root

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
