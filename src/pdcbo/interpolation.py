"""Few points in the place of many: the columns of a kernel matrix as combinations of r pivot columns.

A smooth kernel on M candidates has, to working accuracy, a rank r far below M. Pivoted Cholesky picks r of the
candidates, the pivots P, such that k(., c_j) = sum_p w_jp k(., c_p) for every candidate c_j. With e_j the difference of
the two sides and d(y) the prior variance left at y when the pivots are known without noise,

    |e_j(y)| <= sqrt(d(c_j) d(y)),     d(c_j) <= tolerance for every candidate,

so that the combination is as good as `tolerance` where the data lie on candidates. A point y off the candidates is
tried on its own, and becomes a pivot itself if the combination is worse there.

    candidates (M, d)    pivots (r, d)    weights w (M, r)
    R (r, M)   the rows of the pivoted Cholesky factor, k(c, c') = R' R;   C (r, r)   its columns at the pivots
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import lapack

from pdcbo.kernels import Kernel
from pdcbo.problem import Array

ROUNDING = 1e-14


class Interpolation:
    """Weights that give the kernel's column at each candidate from its columns at the pivots."""

    def __init__(self, kernel: Kernel, candidates: Array, tolerance: float, R: Array, pivots: list[int]) -> None:
        self.kernel = kernel
        self.candidates = candidates
        self.tolerance = tolerance
        self.pivots = candidates[pivots]
        self._R = R
        self._C = R[:, pivots]
        self._set_weights()

    @classmethod
    def find(cls, kernel: Kernel, candidates: Array, tolerance: float, limit: int) -> Interpolation | None:
        """Return the interpolation of at most `limit` pivots, or None where that is not enough."""
        left = kernel.diagonal(candidates)
        if tolerance < ROUNDING * left.max(initial=0.0):
            return None
        R = np.empty((limit, len(candidates)))
        pivots: list[int] = []
        while left.max(initial=0.0) > tolerance:
            r, j = len(pivots), int(np.argmax(left))
            if r == limit:
                return None
            row = kernel.matrix(candidates[j : j + 1], candidates)[0]
            R[r] = (row - R[:r, j] @ R[:r]) / np.sqrt(left[j])
            left -= R[r] * R[r]
            left[j] = 0.0
            pivots.append(j)
        return cls(kernel, candidates, tolerance, R[: len(pivots)], pivots)

    @property
    def rank(self) -> int:
        """The number of pivots r."""
        return len(self.pivots)

    def include(self, point: Array) -> bool:
        """Make a point off the candidates a pivot where the combination is not good enough; tell whether it was."""
        here = point[None]
        row = self.kernel.matrix(here, self.candidates)[0]
        known = self.kernel.matrix(here, self.pivots)[0]
        if np.abs(row - self.weights @ known).max(initial=0.0) <= self.tolerance:
            return False
        c = lapack.dtrtrs(self._C, known[:, None], lower=0, trans=1)[0][:, 0]
        left = float(self.kernel.diagonal(here)[0] - c @ c)
        if left <= self.tolerance:  # a pivot as good as known already would only add rounding errors
            return False
        new = (row - c @ self._R) / np.sqrt(left)
        r = self.rank
        C = np.zeros((r + 1, r + 1))
        C[:r, :r], C[:r, r], C[r, r] = self._C, c, np.sqrt(left)
        self._C, self._R = C, np.vstack([self._R, new])
        self.pivots = np.vstack([self.pivots, here])
        self._set_weights()
        return True

    def _set_weights(self) -> None:
        """Solve k(P, P) w_j = k(P, c_j), that is C w' = R."""
        if self.rank:
            self.weights = np.ascontiguousarray(lapack.dtrtrs(self._C, self._R, lower=0)[0].T)
        else:
            self.weights = np.zeros((len(self.candidates), 0))
