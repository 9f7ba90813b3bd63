"""Forward substitution for many right-hand sides, in panels of rows of the factor.

    V_p = L_pp^-1 (B_p - L_p V_<p)      p: PANEL rows, L_p: the factor left of its diagonal block L_pp

    B, V (n, m)   m right-hand sides, a row for each observation

Nearly all of it is one product of matrices a panel, L_p V_<p, which BLAS does at full speed and where L lies. What is
left to LAPACK's way of solving, which is slower, grows with n only. Blocks on the diagonal are copied, since BLAS wants
each in one piece: once when they are full, and at each solve when they are not. V depends on the factor alone, and not
on when it was solved for before. It is as accurate as LAPACK's, but for rounding that differs, which shows where there
is next to no noise; `pdcbo.structured` minds that.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pdcbo import lapack
from pdcbo.gp import BLOCK, CholeskyFactor

PANEL = 3 * BLOCK

Matrix = NDArray[Any]


class Panels:
    """The factor in double precision, which it looks at, or in single precision, which it keeps a copy of."""

    def __init__(self, factor: CholeskyFactor, dtype: np.dtype[Any]) -> None:
        self._factor = factor
        self._dtype = dtype
        self._diagonal: list[Matrix] = []  # of full panels, L_pp' in Fortran order
        self._copy = np.empty((0, 0), dtype)
        self._copied = 0  # rows of it

    def solve(self, B: Matrix) -> Matrix:
        """Return V for all n rows of the factor in the place of B, (n, m) in C order."""
        if B.size == 0:
            return B
        L, n = self._rows(), self._factor.n
        substitute = lapack.dtrsm if self._dtype == np.float64 else lapack.strsm
        for b in range(0, n, PANEL):
            here = B[b : b + PANEL]
            if b:
                here -= L[b : b + PANEL, :b] @ B[:b]
            substitute(1.0, self._diagonal_block(L, b), here.T, 1, 0, 0, 0, 1)  # here.T is overwritten
        return B

    def _rows(self) -> Matrix:
        """Return L, (n, n), in the precision asked for."""
        L, n = self._factor.L, self._factor.n
        if self._dtype == L.dtype:
            return L
        if n > len(self._copy):
            self._copy, self._copied = np.zeros(2 * (n + n // 2,), self._dtype), 0
        if n // BLOCK > self._copied // BLOCK:  # rows of a block are computed again when it is full
            self._copied -= self._copied % BLOCK
        self._copy[self._copied : n, :n] = L[self._copied :]
        self._copied = n
        return self._copy[:n, :n]

    def _diagonal_block(self, L: Matrix, b: int) -> Matrix:
        """Return L_pp' of the panel that begins with row b, in Fortran order."""
        p, e = b // PANEL, b + PANEL
        if p < len(self._diagonal):
            return self._diagonal[p]
        block = L[b:e, b:e].copy().T
        if e <= len(L):
            self._diagonal.append(block)
        return block
