"""The normal distribution function, without scipy.special, whose import would double that of the package."""

from __future__ import annotations

from math import erfc, sqrt

import numpy as np

from pdcbo.problem import Array

ROOT_HALF = sqrt(0.5)


def cdf(x: Array) -> Array:
    """Return Phi(x), elementwise, accurate in the far tails too."""
    return np.array([0.5 * erfc(v) for v in (-ROOT_HALF * x).ravel().tolist()]).reshape(x.shape)
