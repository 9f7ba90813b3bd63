"""The arithmetic of the default's plan: which contexts it is made for, how a run may end, and the best price.

g (k, m)   the models' g of one limit in k contexts for m parameters        least (k,)   its minimum over parameters
"""

from __future__ import annotations

import numpy as np

from pdcbo.fit import ROUNDING
from pdcbo.problem import Array

CONTEXTS = 32
# By how many steps a moment is known: a day of hours.
LIKE = 24
HALVINGS = 14


def worst_end(least: Array, left: int) -> float:
    """Return the largest sum of the least g, (k,) so far, that `left` coming steps may end with.

    They are thought to go as they went on after the moments most like the present one. As long as there are few moments
    so many steps back to choose from, they may end with any stretch that was seen.
    """
    k = len(least)
    moments = np.arange(LIKE - 1, max(k - left, 0))
    if len(moments) < LIKE // 2:
        total = np.concatenate([[0.0], least.cumsum()])
        longest = min(left, k)
        from_here = np.lib.stride_tricks.sliding_window_view(np.pad(total, (longest, 0), mode="edge"), longest + 1)
        return float((total - from_here.min(axis=1)).max())
    before = np.lib.stride_tricks.sliding_window_view(least, LIKE)[moments - LIKE + 1]
    unlike = ((before - least[-LIKE:]) ** 2).sum(axis=1)
    likest = moments[np.argsort(unlike, kind="stable")[:3]]
    return max(float(least[m + 1 : m + 1 + left][::-1].cumsum().max(initial=0.0)) for m in likest)


def spread_out(rows: Array) -> Array:
    """Return at most `CONTEXTS` rows from all over, one from each part, not at equal distances as cycles have them."""
    k = min(CONTEXTS, len(rows))
    places = (np.arange(k) + np.random.default_rng(0).random(k)) * len(rows) / k
    return np.asarray(rows[places.astype(int)])


def spread_within(values: Array, size: float) -> float:
    """Return the standard deviation within a context, averaged over contexts; the quantity's size where it is none."""
    spread = float(np.mean(np.std(values, axis=1)))
    return spread if spread > ROUNDING * size else float(size) or 1.0


def best_price(f: Array, g: Array, largest: float) -> float:
    """Return the phi in [0, largest] that maximises sum_k min_m (f + phi g), a concave function, by bisection.

    Its slope is the sum of g at the minimisers, which falls with phi.
    """
    rows = np.arange(len(f))

    def slope(phi: float) -> float:
        return float(g[rows, np.argmin(f + phi * g, axis=1)].sum())

    if slope(0.0) <= 0.0:
        return 0.0
    if slope(largest) > 0.0:
        return largest
    low, high = 0.0, largest
    for _ in range(HALVINGS):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if slope(middle) > 0.0 else (low, middle)
    return 0.5 * (low + high)
