"""Forward substitution for many right-hand sides, as products of small blocks of the factor.

LAPACK's triangular solve copies the factor, piece by piece, into the order that its kernels read, each time anew. With
some fifty right-hand sides that takes about as long as the arithmetic. Square blocks of the factor that each lie
together in memory are small enough to be multiplied where they are:

    V_i = L_ii^-1 (B_i - sum_{j < i} L_ij V_j)      i, j: blocks of BLOCK rows

    B, V (k, m, BLOCK)   the n rows of m right-hand sides, in k blocks that end with zeros; B_i' in the formula

Full blocks of rows of the factor never change and are copied once. Those of the last block, until it is full, are
copied at each solve: V depends on the factor alone, and not on when it was solved for before. The inverse of a diagonal
block loses some of what substitution keeps, the more the less noise there is; `pdcbo.structured` minds that.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pdcbo import lapack
from pdcbo.features import whole
from pdcbo.gp import BLOCK, CholeskyFactor

# the most right-hand sides that go through together: products beyond a million are copied by BLAS
WIDEST = 240

Matrix = NDArray[Any]


class Blocks:
    """The factor in blocks, in double or single precision."""

    def __init__(self, factor: CholeskyFactor, dtype: np.dtype[Any]) -> None:
        self._factor = factor
        self._dtype = dtype
        self._rows: list[list[Matrix]] = []
        self._inverses: list[Matrix] = []

    def solve(self, B: Matrix) -> Matrix:
        """Return V for all n rows of the factor, (m, n), in the place of B, (k, m, BLOCK)."""
        n, m = self._factor.n, B.shape[1]
        while len(self._rows) < n // BLOCK:
            b = len(self._rows) * BLOCK
            self._rows.append(self._row(b, b + BLOCK))
            inverse, _ = lapack.dtrtri(self._factor.L[b : b + BLOCK, b : b + BLOCK], lower=1)
            self._inverses.append(np.asfortranarray(np.tril(inverse), dtype=self._dtype))
        begun = self._row(n - n % BLOCK, n) if n % BLOCK else []
        width = whole(-(-m // max(-(-m // WIDEST), 1))) or 1
        for first in range(0, m, width):
            self._substitute([block.T for block in B[:, first : first + width]], begun)
        return joined(B, n)

    def _row(self, b: int, e: int) -> list[Matrix]:
        """Return the blocks L_ij, (e - b, BLOCK) each in Fortran order, of rows b to e, without the diagonal one."""
        row = np.empty((b // BLOCK, BLOCK, e - b), self._dtype)
        row[...] = self._factor.L[b:e, :b].reshape(e - b, b // BLOCK, BLOCK).transpose(1, 2, 0)
        return [block.T for block in row]

    def _substitute(self, V: list[Matrix], begun: list[Matrix]) -> None:
        """Put the solution in the place of B_i', (BLOCK, m) each in Fortran order."""
        double = self._dtype == np.float64
        multiply = lapack.dgemm if double else lapack.sgemm
        solve = lapack.dtrtrs if double else lapack.strtrs
        for row, inverse, here in zip(self._rows, self._inverses, V, strict=False):
            for block, above in zip(row, V, strict=False):
                multiply(-1.0, block, above, 1.0, here, 0, 0, 1)  # here -= block @ above, in its place
            here[...] = multiply(1.0, inverse, here)
        rest = self._factor.n % BLOCK
        if rest:
            here = np.asfortranarray(V[-1][:rest])
            for block, above in zip(begun, V, strict=False):
                multiply(-1.0, block, above, 1.0, here, 0, 0, 1)
            diagonal = np.asfortranarray(self._factor.L[-rest:, -rest:], dtype=self._dtype)
            V[-1][:rest] = solve(diagonal, here, lower=1)[0]


def joined(B: Matrix, n: int) -> Matrix:
    """Return n rows of right-hand sides in blocks (k, m, BLOCK) as one matrix (m, n)."""
    return B.transpose(1, 0, 2).reshape(B.shape[1], len(B) * BLOCK)[:, :n]
