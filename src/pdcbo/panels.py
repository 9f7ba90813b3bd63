"""Forward substitution for many right-hand sides, in panels of rows of the factor.

    V_p = L_pp^-1 (B_p - L_p V_<p)      L_p: the panel's rows of the factor, left of their triangle L_pp

    B, V (n, m)   m right-hand sides, a row for each observation
    p             PANEL rows, the full blocks after the last PANEL, or the rows after the last full block

Most of it, for many observations, is one product of matrices a panel, L_p V_<p, which BLAS does at full speed and where
L lies. BLAS multiplies by a triangle faster than it substitutes in it, and so each L_pp is inverted: one of full blocks
whenever a block of it was filled, and that of the rows after them at each solve. V depends on the factor alone, and not
on when it was solved for before. It is as accurate as LAPACK's, but for rounding that differs, which shows where there
is next to no noise; `pdcbo.structured` minds that.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pdcbo import lapack
from pdcbo.gp import BLOCK, CholeskyFactor

PANEL = 8 * BLOCK

Matrix = NDArray[Any]


class Panels:
    """The factor in double precision, which it looks at, or in single precision, which it keeps a copy of."""

    def __init__(self, factor: CholeskyFactor, dtype: np.dtype[Any]) -> None:
        self._factor = factor
        self.dtype = dtype
        self._inverses: dict[int, Matrix] = {}  # of full blocks from a row on, that of L_pp' in Fortran order
        self._copy = np.empty((0, 0), dtype)
        self._copied = 0  # rows of it

    def solve(self, B: Matrix) -> Matrix:
        """Return V for all n rows of the factor in the place of B, (n, m) in C order."""
        if B.size == 0:
            return B
        L, n = self._rows(), self._factor.n
        multiply = lapack.dtrmm if self.dtype == np.float64 else lapack.strmm
        for b, e in _bounds(n):
            here = B[b:e]
            if b:
                here -= L[b:e, :b] @ B[:b]
            multiply(1.0, self._inverse(b, e), here.T, 1, 0, 0, 0, 1)  # here.T is overwritten
        return B

    def _rows(self) -> Matrix:
        """Return L, (n, n), in the precision asked for."""
        L, n = self._factor.L, self._factor.n
        if self.dtype == L.dtype:
            return L
        if n > len(self._copy):
            self._copy, self._copied = np.zeros(2 * (n + n // 2,), self.dtype), 0
        if n // BLOCK > self._copied // BLOCK:  # rows of a block are computed again when it is full
            self._copied -= self._copied % BLOCK
        self._copy[self._copied : n, :n] = L[self._copied :]
        self._copied = n
        return self._copy[:n, :n]

    def _inverse(self, b: int, e: int) -> Matrix:
        """Return the inverse of L_pp' of the panel from row b to e, in Fortran order."""
        inverse = self._inverses.get(b)
        if inverse is None or len(inverse) < e - b:
            inverse = lapack.dtrtri(self._factor.L[b:e, b:e].T, lower=0)[0].astype(self.dtype, order="F", copy=False)
            if e % BLOCK == 0:
                self._inverses[b] = inverse
        return inverse


def _bounds(n: int) -> list[tuple[int, int]]:
    """Return the first row of each panel, and the first after its last."""
    full = n // BLOCK * BLOCK
    bounds = [(b, min(b + PANEL, full)) for b in range(0, full, PANEL)]
    return bounds if full == n else [*bounds, (full, n)]
