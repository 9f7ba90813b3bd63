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
from pdcbo.gp import BLOCK, CholeskyFactor

# the most right-hand sides that this pays for: BLAS copies both sides of larger products, and LAPACK is as fast then
WIDEST = 240

Matrix = NDArray[Any]


class Blocks:
    """The factor in blocks, in double or single precision."""

    def __init__(self, factor: CholeskyFactor, dtype: np.dtype[Any]) -> None:
        self._factor = factor
        self._dtype = dtype
        self._rows: list[tuple[list[Matrix], Matrix]] = []  # of a full block: L_ij for all j < i, and L_ii^-1

    def solve(self, B: Matrix) -> Matrix:
        """Return V for all n rows of the factor as (m, n); B, (k, m, BLOCK), is overwritten."""
        n = self._factor.n
        if B.size == 0:
            return joined(B, n)
        full = n // BLOCK
        for b in range(len(self._rows) * BLOCK, full * BLOCK, BLOCK):
            inverse, _ = lapack.dtrtri(self._factor.L[b : b + BLOCK, b : b + BLOCK], lower=1)
            self._rows.append((self._row(b, b + BLOCK), np.asfortranarray(np.tril(inverse), dtype=self._dtype)))
        double = self._dtype == np.float64
        multiply = lapack.dgemm if double else lapack.sgemm
        V = [block.T for block in B]  # (BLOCK, m) each, in Fortran order
        for (row, inverse), here in zip(self._rows, V[:full], strict=True):
            for block, above in zip(row, V[: len(row)], strict=True):
                multiply(-1.0, block, above, 1.0, here, 0, 0, 1)  # here -= block @ above, in its place
            here[...] = multiply(1.0, inverse, here)
        rest = n - full * BLOCK
        if rest:
            here = np.asfortranarray(V[full][:rest])
            for block, above in zip(self._row(n - rest, n), V[:full], strict=True):
                multiply(-1.0, block, above, 1.0, here, 0, 0, 1)
            diagonal = np.asfortranarray(self._factor.L[-rest:, -rest:], dtype=self._dtype)
            solve = lapack.dtrtrs if double else lapack.strtrs
            V[full][:rest] = solve(diagonal, here, lower=1)[0]
        return joined(B, n)

    def _row(self, b: int, e: int) -> list[Matrix]:
        """Return the blocks L_ij, (e - b, BLOCK) each in Fortran order, of rows b to e, without the diagonal one."""
        row = np.empty((b // BLOCK, BLOCK, e - b), self._dtype)
        row[...] = self._factor.L[b:e, :b].reshape(e - b, b // BLOCK, BLOCK).transpose(1, 2, 0)
        return [block.T for block in row]


def joined(B: Matrix, n: int) -> Matrix:
    """Return n rows of right-hand sides in blocks (k, m, BLOCK) as one matrix (m, n)."""
    return B.transpose(1, 0, 2).reshape(B.shape[1], len(B) * BLOCK)[:, :n]
