"""Forward substitution for many right-hand sides, in panels of rows of the factor.

    V_p = L_pp^-1 (B_p - L_p V_<p)      L_p: the panel's rows of the factor, left of their triangle L_pp

    B, V (n, m)   m right-hand sides, a row for each observation
    p             PANEL rows, the full blocks after the last PANEL, or the rows after the last full block

Most of it, for many observations, is one product of matrices a panel, L_p V_<p, which BLAS does at full speed and where
L lies. It multiplies by the inverse of a triangle faster than it substitutes in it, and fastest by a few rows of the
inverse at a time, each from its first column to the diagonal. So each L_pp is inverted: one of full blocks grows with
these, and that of the rows after them is computed once for each number of observations. V depends on the factor alone,
and not on when it was solved for before. It is as accurate as LAPACK's, but for rounding that differs, which shows
where there is next to no noise; `pdcbo.structured` minds that.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pdcbo import lapack
from pdcbo.gp import BLOCK, CholeskyFactor
from pdcbo.problem import Array

PANEL = 8 * BLOCK
# rows of an inverse that are multiplied at a time: BLAS has a kernel for small matrices, which copies nothing
ROWS = 32

Matrix = NDArray[Any]


class Inverses:
    """The inverse of each panel's triangle in double precision, lower and in C order."""

    def __init__(self, factor: CholeskyFactor) -> None:
        self.factor = factor
        self._full: dict[int, tuple[int, Array]] = {}  # first row of a panel -> how many rows are known, and these
        self._last = (0, 0, np.empty((0, 0)))  # the rows after the last full block, from where to where

    def of(self, b: int, e: int) -> Array:
        """Return L_pp^-1 of the panel from row b to e."""
        if e % BLOCK:
            if self._last[:2] != (b, e):
                self._last = (b, e, self._of_triangle(b, e))
            return self._last[2]
        known, inverse = self._full.get(b, (0, np.zeros((0, 0))))
        if known < e - b:
            if known == 0:
                inverse = np.zeros((PANEL, PANEL))
            for row in range(known, e - b, BLOCK):
                self._add_block(inverse, b, row)
            self._full[b] = (e - b, inverse)
        return inverse[: e - b, : e - b]

    def _add_block(self, inverse: Array, b: int, row: int) -> None:
        """Compute a block of rows of the panel's inverse, -L_kk^-1 L_k L_<k^-1 left of L_kk^-1, from those above."""
        k, end = b + row, row + BLOCK
        inverse[row:end, row:end] = self._of_triangle(k, k + BLOCK)
        left = self.factor.L[k : k + BLOCK, b:k] @ inverse[:row, :row]
        inverse[row:end, :row] = -(inverse[row:end, row:end] @ left)

    def _of_triangle(self, b: int, e: int) -> Array:
        inverse: Array = lapack.dtrtri(self.factor.L[b:e, b:e].T, lower=0)[0].T
        return inverse


class Panels:
    """The factor in double precision, which it looks at, or in single precision, which it keeps a copy of."""

    def __init__(self, inverses: Inverses, dtype: np.dtype[Any]) -> None:
        self._inverses = inverses
        self._factor = inverses.factor
        self.dtype = dtype
        self._copies: dict[int, Matrix] = {}  # of inverses of full blocks, from a row on
        self._copy = np.empty((0, 0), dtype)
        self._copied = 0  # rows of it

    def solve(self, B: Matrix) -> Matrix:
        """Return V for all n rows of the factor in the place of B, (n, m) in C order."""
        if B.size == 0:
            return B
        L, n = self._rows(), self._factor.n
        for b, e in _bounds(n):
            here = B[b:e]
            if b:
                here -= L[b:e, :b] @ B[:b]
            inverse = self._inverse(b, e)
            for row in reversed(range(0, e - b, ROWS)):  # the last first, since they need those above as they were
                end = row + ROWS
                here[row:end] = inverse[row:end, :end] @ here[:end]
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
        """Return the inverse of the panel from row b to e in the precision asked for."""
        inverse = self._inverses.of(b, e)
        if self.dtype == inverse.dtype:
            return inverse
        if e % BLOCK:
            return inverse.astype(self.dtype)
        if len(self._copies.get(b, ())) < e - b:
            self._copies[b] = inverse.astype(self.dtype)
        return self._copies[b]


def _bounds(n: int) -> list[tuple[int, int]]:
    """Return the first row of each panel, and the first after its last."""
    full = n // BLOCK * BLOCK
    bounds = [(b, min(b + PANEL, full)) for b in range(0, full, PANEL)]
    return bounds if full == n else [*bounds, (full, n)]
