"""The exact Gaussian-process posterior, equation (6), extended one observation at a time.

    X (n, d)   points            Y (n, q)   targets of q functions that share the kernel, the noise and the points
    L (n, n)   Cholesky factor, L L' = K + noise_var I
    W (n, q)   L^-1 Y            U (n,)     L^-1 1
    alpha (n, q)   L^-T W        so that mean = k(A, X) alpha, too
    V (n, m)   L^-1 k(X, A)      so that mean = V' W and var = k(A, A) - sum_n V^2

Rows are appended one at a time; each time `BLOCK` of them are full they are computed again in one piece. A posterior
built from its data is therefore the same, to the last bit, as one that grew with them; `pdcbo.structured` minds the
rows that it computes itself. L has room to grow, and LAPACK is given whole rows of it with their true length (the
leading dimension), so that a solve never copies the factor.
"""

from __future__ import annotations

import numpy as np

from pdcbo import lapack
from pdcbo.kernels import Kernel
from pdcbo.problem import Array

BLOCK = 64


def cholesky(S: Array, floor: float) -> Array:
    """Return the lower Cholesky factor of S, whose Schur complements are known to be at least `floor`.

    K + noise_var I has no pivot below noise_var. Where rounding says otherwise the pivot is put at the floor, so that
    the factorisation cannot fail.
    """
    L, info = lapack.dpotrf(S, lower=1, clean=1)
    if info == 0:
        return np.ascontiguousarray(L)
    L = np.zeros_like(S)
    for i in range(len(S)):
        for j in range(i):
            L[i, j] = (S[i, j] - L[i, :j] @ L[j, :j]) / L[j, j]
        L[i, i] = np.sqrt(max(S[i, i] - L[i, :i] @ L[i, :i], floor))
    return L


class CholeskyFactor:
    """L with L L' = K + noise_var I, grown row by row."""

    def __init__(self, noise_var: float) -> None:
        self.noise_var = noise_var
        self.n = 0
        self._L = np.zeros((BLOCK, BLOCK))

    @property
    def L(self) -> Array:
        """The factor, shape (n, n)."""
        return self._L[: self.n, : self.n]

    @property
    def log_determinant(self) -> float:
        """Return log |K + noise_var I|."""
        return float(2.0 * np.log(np.diagonal(self.L)).sum())

    def reserve(self, n: int) -> None:
        """Make room for n rows."""
        if n > len(self._L):
            size = max(n, len(self._L) * 3 // 2)
            L = np.zeros((size, size))
            L[: self.n, : self.n] = self.L
            self._L = L

    def solve(self, B: Array, *, overwrite: bool = False) -> Array:
        """Return L^-1 B for the first len(B) rows of L, in Fortran order; `overwrite` allows it to reuse B's memory."""
        return self._triangular(B, 1, overwrite)

    def solve_transposed(self, B: Array, *, overwrite: bool = False) -> Array:
        """Return L^-T B for the first len(B) rows of L, in Fortran order."""
        return self._triangular(B, 0, overwrite)

    def _triangular(self, B: Array, trans: int, overwrite: bool) -> Array:
        n = len(B)
        if B.size == 0:
            return np.zeros_like(B)
        # rows of L in C order are columns of L' in the Fortran order that LAPACK wants
        solution: Array
        solution, _ = lapack.dtrtrs(self._L[:n].T, B, lower=0, trans=trans, overwrite_b=overwrite)
        return solution

    def append(self, row: Array, diagonal: float) -> None:
        """Add the row L^-1 k(X, x) of a new point with k(x, x) = `diagonal`."""
        n = self.n
        self.reserve(n + 1)
        self._L[n, :n] = row
        self._L[n, n] = max(diagonal + self.noise_var - float(row @ row), self.noise_var) ** 0.5
        self.n = n + 1

    def set_block(self, b: int, K: Array) -> None:
        """Compute the full block of rows b, ..., b + BLOCK - 1 from K = k(X[: b + BLOCK], X[b : b + BLOCK])."""
        e = b + BLOCK
        self.reserve(e)
        S = K[b:].copy()
        S[np.diag_indices_from(S)] += self.noise_var
        if b:
            R = self.solve(K[:b])
            S -= R.T @ R
            self._L[b:e, :b] = R.T
        self._L[b:e, b:e] = cholesky(S, self.noise_var)
        self.n = e


class Posterior:
    """The posterior of q functions with one kernel and noise, measured at the same points."""

    def __init__(self, kernel: Kernel, noise_var: float, dimension: int, targets: int = 1) -> None:
        self.kernel = kernel
        self.noise_var = noise_var
        self.factor = CholeskyFactor(noise_var)
        self._X = np.empty((BLOCK, dimension))
        self._Y = np.empty((BLOCK, targets))
        self._W = np.empty((BLOCK, targets + 1))
        self._alpha = np.empty((0, targets))
        self._off_in_blocks = self._off_below = 0.0  # the largest |W| in full blocks, and below them

    @classmethod
    def build(cls, kernel: Kernel, noise_var: float, X: Array, Y: Array) -> Posterior:
        """Return the posterior of many observations: full blocks at once, the rest one by one."""
        posterior = cls(kernel, noise_var, X.shape[1], Y.shape[1])
        posterior.factor.reserve(len(X))
        posterior._grow(len(X))
        posterior._X[: len(X)], posterior._Y[: len(X)] = X, Y
        full = len(X) // BLOCK * BLOCK
        for b in range(0, full, BLOCK):
            posterior._finish_block(b)
        for i in range(full, len(X)):
            posterior.add(X[i], Y[i])
        return posterior

    @property
    def n(self) -> int:
        """The number of observations."""
        return self.factor.n

    @property
    def X(self) -> Array:
        """The points, shape (n, d)."""
        return self._X[: self.n]

    @property
    def Y(self) -> Array:
        """The targets, shape (n, q)."""
        return self._Y[: self.n]

    @property
    def W(self) -> Array:
        """L^-1 Y, shape (n, q)."""
        return self._W[: self.n, :-1]

    @property
    def U(self) -> Array:
        """L^-1 1, shape (n,)."""
        return self._W[: self.n, -1]

    @property
    def furthest_off(self) -> float:
        """The largest |W|, since W is (y - mean) / sqrt(std^2 + noise_var) before y was known."""
        return max(self._off_in_blocks, self._off_below)

    @property
    def alpha(self) -> Array:
        """L^-T W, shape (n, q), computed once for each n."""
        if len(self._alpha) != self.n:
            alpha = self.factor.solve_transposed(self.W)
            alpha.flags.writeable = False
            self._alpha = alpha
        return self._alpha

    @property
    def information_gain(self) -> float:
        """Return 1/2 log |I + K / noise_var| of the points visited, equation (7)."""
        return 0.5 * (self.factor.log_determinant - self.n * float(np.log(self.noise_var)))

    def add(self, x: Array, y: Array, row: Array | None = None) -> None:
        """Extend by one observation: in O(n^2), or in O(n) where its row L^-1 k(X, x) is known; it may fill a block."""
        n = self.n
        self._grow(n + 1)
        self._X[n], self._Y[n] = x, y
        if n % BLOCK == BLOCK - 1:
            self._finish_block(n + 1 - BLOCK)
            return
        here = x[None]
        if row is None:
            row = self.factor.solve(self.kernel.matrix(here, self.X).T, overwrite=True)[:, 0]
        self.factor.append(row, float(self.kernel.diagonal(here)[0]))
        self._append_targets(n)

    def predict(self, A: Array) -> tuple[Array, Array]:
        """Return the posterior mean, shape (m, q), and standard deviation, shape (m,), at A (equation 6)."""
        V = self.factor.solve(self.kernel.matrix(A, self.X).T, overwrite=True)
        variance = self.kernel.diagonal(A) - np.einsum("nm,nm->m", V, V)
        return V.T @ self.W, np.sqrt(np.maximum(variance, 0.0))

    def _finish_block(self, b: int) -> None:
        """Compute the rows of a full block, and their part of W, in one piece."""
        X = self._X[: b + BLOCK]
        self.factor.set_block(b, self.kernel.matrix(X[b:], X).T)
        self._solve_targets(b)

    def _solve_targets(self, b: int) -> None:
        """Compute the rows of W that belong to the full block b."""
        e = b + BLOCK
        L = self.factor.L[b:e]
        targets = np.column_stack([self._Y[b:e], np.ones(BLOCK)]) - L[:, :b] @ self._W[:b]
        self._W[b:e] = lapack.dtrtrs(L[:, b:e], targets, lower=1)[0]
        off = float(np.abs(self._W[b:e, :-1]).max(initial=0.0))
        self._off_in_blocks, self._off_below = max(self._off_in_blocks, off), 0.0

    def _append_targets(self, i: int) -> None:
        """Compute one row of W below the full blocks."""
        row = self.factor.L[i]
        w = row[:i] @ self._W[:i]
        self._W[i, :-1] = (self._Y[i] - w[:-1]) / row[i]
        self._W[i, -1] = (1.0 - w[-1]) / row[i]
        self._off_below = max([self._off_below, *map(abs, self._W[i, :-1].tolist())])

    def _grow(self, n: int) -> None:
        if n > len(self._X):
            size = max(n, 2 * len(self._X))
            for name in ("_X", "_Y", "_W"):
                old = getattr(self, name)
                new = np.empty((size, old.shape[1]))
                new[: len(old)] = old
                setattr(self, name, new)
