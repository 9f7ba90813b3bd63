"""Minimise a smooth function in the unit cube from many starts at once, each with a step of its own.

A projected quasi-Newton method (BFGS). In a round every start that has not arrived is tried at x + t p, with p = -H g
in the coordinates that are free to move; one that does not come down enough tries less far in the next round. All are
evaluated in one batch, which is what makes a round cheap.

    x, g, p (m, d)    H (m, d, d) approximations of the inverse Hessians    f, t (m,)
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from pdcbo.problem import Array

Indices = NDArray[np.intp]
Mask = NDArray[np.bool_]
Objective = Callable[[Array], tuple[Array, Array]]

FIRST_STEP = 0.1
SUFFICIENT = 1e-4  # of the decrease that the slope promises (Armijo)
# After PATIENCE rounds a start is given up where HOPE times what it promises would not make it the lowest, and where a
# lower one is so NEAR in every coordinate that both would arrive at the same place.
PATIENCE, HOPE, NEAR = 5, 10.0, 0.01


def descend(objective: Objective, starts: Array, free: Mask, tolerance: float, rounds: int) -> Array:
    """Return where each start arrives, (m, d).

    Args:
        objective: (k, d) -> values (k,) and gradients (k, d), for any k.
        starts: (m, d), in the unit cube.
        free: (d,), the coordinates that may move.
        tolerance: a start has arrived where the next step promises no more than this.
        rounds: the most evaluations of the batch.
    """
    x = starts.copy()
    f, g = objective(x)
    d = x.shape[1]
    H = np.eye(d) * (FIRST_STEP / np.maximum(np.linalg.norm(g, axis=1), 1e-300))[:, None, None]
    fresh = np.ones(len(x), dtype=bool)
    t = np.ones(len(x))
    going = np.arange(len(x))
    for past in range(rounds - 1):
        p = _direction(x[going], g[going], H[going], free)
        promised = -t[going] * np.einsum("md,md->m", g[going], p)
        left = promised > tolerance
        if past >= PATIENCE:
            left &= f[going] - HOPE * promised < f.min()
            left &= ~_beside_a_lower_one(x, f, going)
        going, p = going[left], p[left]
        if not len(going):
            break
        trial = np.clip(x[going] + t[going, None] * p, 0.0, 1.0)
        value, slope = objective(trial)
        step = trial - x[going]
        enough = value <= f[going] + SUFFICIENT * np.einsum("md,md->m", g[going], step)
        t[going[~enough]] *= 0.3
        done = going[enough]
        H[done] = _update(H[done], step[enough], slope[enough] - g[done], fresh[done])
        x[done], f[done], g[done], t[done], fresh[done] = trial[enough], value[enough], slope[enough], 1.0, False
    return x


def _beside_a_lower_one(x: Array, f: Array, going: Indices) -> Mask:
    beside = (np.abs(x[going, None] - x) < NEAR).all(axis=2)
    return np.asarray((beside & (f < f[going, None])).any(axis=1))


def _direction(x: Array, g: Array, H: Array, free: Mask) -> Array:
    """Return -H g in the coordinates that may move and are not held by a bound, (m, d)."""
    held = ((x <= 0.0) & (g > 0.0)) | ((x >= 1.0) & (g < 0.0)) | ~free
    g = np.where(held, 0.0, g)
    p = np.where(held, 0.0, -np.einsum("mij,mj->mi", H, g))
    downhill = np.einsum("md,md->m", g, p) < 0.0
    return np.where(downhill[:, None], p, -FIRST_STEP * g / np.maximum(np.linalg.norm(g, axis=1), 1e-300)[:, None])


def _update(H: Array, s: Array, y: Array, fresh: Array) -> Array:
    """Return the BFGS update of H by steps s and changes of gradient y; where the curvature is not positive, H."""
    sy = np.einsum("md,md->m", s, y)
    yy = np.einsum("md,md->m", y, y)
    curved = (sy > 1e-10 * np.sqrt(np.einsum("md,md->m", s, s) * yy)) & (yy > 0.0)  # which may underflow
    rho = np.where(curved, 1.0 / np.where(curved, sy, 1.0), 0.0)
    size = np.where(fresh & curved, sy / np.where(curved, yy, 1.0), 1.0)  # the first step says how large H is
    H = np.where((fresh & curved)[:, None, None], size[:, None, None] * np.eye(s.shape[1]), H)
    Hy = np.einsum("mij,mj->mi", H, y)
    factor = rho * (1.0 + rho * np.einsum("md,md->m", y, Hy))
    cross = rho[:, None, None] * Hy[:, :, None] * s[:, None, :]
    return np.asarray(H + factor[:, None, None] * s[:, :, None] * s[:, None, :] - cross - cross.transpose(0, 2, 1))
