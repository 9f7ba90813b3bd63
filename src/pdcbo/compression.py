"""Values far on the bad side of an output, compressed before they are modelled.

A damage that grows with the fifth power of a stress, or a queue that overflows, is a hundred times its limit in a
corner of the box, and a Gaussian process that has to follow it there sees nothing else. Nobody wants to be there, and
by how much too bad a value is hardly matters. So values beyond a knee are modelled by their logarithm,

    v = y                                        up to the knee
    v = knee + width log(1 + (y - knee) / width)   beyond,

for an output of which high values are bad, and mirrored where low ones are. It is monotone with a continuous slope.
Back in plant units, with v ~ N(m, s^2), d = (m - knee) / s and A = (m - knee) / width + s^2 / (2 width^2):

    E y  = m + width (e^A Phi(d + s / width) - Phi(d)) - (m - knee) Phi(d) - s phi(d)
    dE y / dm = Phi(-d) + e^A Phi(d + s / width),   dE y / ds = e^A Phi(d + s / width) s / width

The std of y is stated for its good side, where improvement lies: s times the slope dy/dv one s on that side of m.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from math import pi, sqrt
from typing import NamedTuple

import numpy as np

from pdcbo.normal import cdf
from pdcbo.problem import Array

# fewer values say nothing about their tail
LEAST_VALUES = 6
# widths beyond the knee at which v is no longer the small difference of two large numbers
FAR = 1e6


class Moments(NamedTuple):
    """Mean and std of y, and the derivatives of each by the mean and the std of v."""

    mean: Array
    std: Array
    mean_by_mean: Array
    mean_by_std: Array
    std_by_mean: Array
    std_by_std: Array


@dataclass(frozen=True)
class Compression:
    """The map from y to v.

    Attributes:
        knee: where it begins, in plant units.
        width: how far beyond the knee values are halfway to being told apart by their logarithms only.
        bad: 1 where high values are bad, -1 where low ones are.
        most: the worst v that is believed in: somewhat beyond the worst that was seen.
    """

    knee: float
    width: float
    bad: float
    most: float

    @classmethod
    def of(cls, y: Array, reference: float | None, bad: float) -> Compression | None:
        """Return the compression that suits measurements y (n,), or None where none lies far out.

        The scale is what is usual: the typical distance from the limit, `reference`, or without one the distance of a
        typical value from the best.
        """
        if len(y) < LEAST_VALUES:
            return None
        u = bad * y
        centre = float(np.median(u)) if reference is None else bad * reference
        width = float(np.median(u) - u.min() if reference is None else np.median(np.abs(u - centre)))
        knee = centre + 2.0 * width
        if not width > 0.0 or u.max() <= knee + 2.0 * width:
            return None
        return cls(bad * knee, width, bad, bad * (knee + width * (np.log1p((u.max() - knee) / width) + 1.0)))

    def __call__(self, y: Array | float) -> Array:
        """Return v."""
        beyond = np.maximum(self.bad * (np.asarray(y) - self.knee), 0.0) / self.width
        near = np.asarray(y + self.bad * self.width * (np.log1p(beyond) - beyond))
        if not (beyond > FAR).any():
            return near
        return np.where(beyond > FAR, self.knee + self.bad * self.width * np.log1p(beyond), near)

    def log_slope(self, y: Array) -> Array:
        """Return log dv/dy."""
        return -np.log1p(np.maximum(self.bad * (y - self.knee), 0.0) / self.width)

    def inverse(self, v: Array) -> Array:
        """Return y, of values no worse than `most`."""
        beyond = np.maximum(self.bad * (self._believed(v) - self.knee), 0.0) / self.width
        return np.asarray(v + self.bad * self.width * (np.expm1(beyond) - beyond))

    def moments(self, mean: Array, std: Array) -> Moments:
        """Return the moments of y from mean and std of v."""
        s = std + 1e-300
        m = self.bad * (self._believed(mean) - self.knee)  # beyond the knee
        d, w = m / s, self.width
        below, density = cdf(-d), np.exp(-0.5 * d * d) / sqrt(2.0 * pi)
        largest = self.bad * (self.most - self.knee) / w
        growth = np.exp(np.minimum(m / w + 0.5 * (s / w) ** 2, largest)) * cdf(d + s / w)  # e^A Phi(d + s / w)
        expected = m + w * (growth - (1.0 - below)) - m * (1.0 - below) - s * density
        slope = np.exp(np.clip((m - s) / w, 0.0, largest))
        steeper = np.where((m > s) & (m - s < largest * w), std * slope / w, 0.0)
        return Moments(
            self.knee + self.bad * expected, std * slope, below + growth, self.bad * growth * s / w,
            self.bad * steeper, slope - steeper,
        )  # fmt: skip

    def worse(self, mean: Array, std: Array, deviations: float) -> Array:
        """Return the y that lies so many standard deviations of v on the bad side, from mean and std of y as above.

        The std is taken back to v by the slope it was stated with, which is that of y one std on the good side.
        """
        s = std * np.exp(self.log_slope(mean - self.bad * std))
        return self.inverse(self(mean) + self.bad * deviations * s)

    def to_json(self) -> dict[str, float]:
        """Describe the compression in JSON."""
        return asdict(self)

    def _believed(self, v: Array) -> Array:
        return np.minimum(v, self.most) if self.bad > 0.0 else np.maximum(v, self.most)
