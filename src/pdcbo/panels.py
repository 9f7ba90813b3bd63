"""Forward substitution for many right-hand sides, in panels of rows of the factor.

    V_p = L_pp^-1 (B_p - L_p V_<p)      L_p: the panel's rows of the factor, left of their triangle L_pp

    B, V (n, m)   m right-hand sides, a row for each observation
    p             PANEL rows, or the rows that are left

A panel takes two calls, which BLAS does at full speed: a product of matrices, L_p V_<p, and in place one by the inverse
of the triangle, by which it multiplies in as little time as it substitutes in L_pp, or in far less where it has kernels
for wide registers. The inverse grows like L, a row for each observation, and the rows of a block are computed again in
one piece when it is full. V depends on the factor alone, and not on when it was solved for before. It is as accurate as
LAPACK's, but for rounding that differs, which shows where there is next to no noise; `pdcbo.structured` minds that.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pdcbo import lapack
from pdcbo.gp import BLOCK, CholeskyFactor
from pdcbo.problem import Array

PANEL = 8 * BLOCK

Matrix = NDArray[Any]


class Inverse:
    """The inverse of one panel's triangle, lower and in C order."""

    def __init__(self, factor: CholeskyFactor, begin: int) -> None:
        self._factor, self._begin = factor, begin
        self._known = 0
        self._rows = np.zeros((PANEL, PANEL))

    def of(self, size: int) -> Array:
        """Return the first rows of the inverse in full width; `size` never shrinks."""
        full = size // BLOCK * BLOCK
        if full > self._known:
            for row in range(self._known // BLOCK * BLOCK, full, BLOCK):
                self._set_block(row)
            self._known = full
        for row in range(self._known, size):
            self._append(row)
        self._known = size
        return self._rows[:size]

    def _set_block(self, row: int) -> None:
        """Compute a block of rows, -L_kk^-1 L_k L_<k^-1 left of L_kk^-1, from those above."""
        end, rows = row + BLOCK, self._rows
        L = self._factor.L[self._begin + row : self._begin + end, self._begin : self._begin + end]
        rows[row:end, row:end] = lapack.dtrtri(L[:, row:].T, lower=0)[0].T
        rows[row:end, :row] = -(rows[row:end, row:end] @ (L[:, :row] @ rows[:row, :row]))

    def _append(self, row: int) -> None:
        """Compute a row in the same way, from those above."""
        L = self._factor.L[self._begin + row, self._begin : self._begin + row + 1]
        self._rows[row, :row] = (L[:-1] @ self._rows[:row, :row]) / -L[-1]
        self._rows[row, row] = 1.0 / L[-1]


class Inverses:
    """The inverse of each panel's triangle in double precision."""

    def __init__(self, factor: CholeskyFactor) -> None:
        self.factor = factor
        self._inverses: list[Inverse] = []

    def of(self, b: int, e: int) -> Array:
        """Return the rows of L_pp^-1 of the panel from row b to e, in full width."""
        if b // PANEL == len(self._inverses):
            self._inverses.append(Inverse(self.factor, b))
        return self._inverses[b // PANEL].of(e - b)


class Copy:
    """A lower triangle that grows like L, in single precision."""

    def __init__(self) -> None:
        self._values = np.zeros((0, 0), np.float32)
        self._known = 0  # rows of it

    def of(self, rows: Matrix) -> Matrix:
        """Return all rows, (n, at least n), whose number never shrinks; right of their diagonal may be anything."""
        n = len(rows)
        if n > len(self._values):
            self._values, self._known = np.zeros(2 * (PANEL if n <= PANEL else n + n // 2,), np.float32), 0
        if n // BLOCK > self._known // BLOCK:  # rows of a block are computed again when it is full
            self._known -= self._known % BLOCK
        self._values[self._known : n, :n] = rows[self._known :, :n]
        self._known = n
        return self._values[:n]


class Panels:
    """The solve in double precision with the factor itself, or in single precision with copies."""

    def __init__(self, inverses: Inverses, dtype: np.dtype[Any]) -> None:
        self._inverses = inverses
        self._factor = inverses.factor
        self.dtype = dtype
        self._of_factor = Copy()
        self._of_inverses: list[Copy] = []

    def solve(self, B: Matrix) -> Matrix:
        """Return V for all n rows of the factor in the place of B, (n, m) in C order."""
        assert B.flags.carray, "BLAS would overwrite a copy"
        assert B.dtype == self.dtype, "BLAS would overwrite a copy"
        n = self._factor.n
        if B.size == 0:
            return B
        L = self._factor.L if self._double else self._of_factor.of(self._factor.L)
        multiply = lapack.dtrmm if self._double else lapack.strmm
        for b in range(0, n, PANEL):
            e = min(b + PANEL, n)
            here = B[b:e]
            if b:
                here -= L[b:e, :b] @ B[:b]
            multiply(1.0, self._inverse(b, e).T, here.T, 1, 0, 0, 0, 1)  # here' L_pp^-T, and here.T is overwritten
        return B

    @property
    def _double(self) -> bool:
        return self.dtype == np.float64

    def _inverse(self, b: int, e: int) -> Matrix:
        """Return the rows of the inverse of the panel from row b to e, in full width and the precision asked for."""
        inverse = self._inverses.of(b, e)
        if self._double:
            return inverse
        if b // PANEL == len(self._of_inverses):
            self._of_inverses.append(Copy())
        return self._of_inverses[b // PANEL].of(inverse)
