"""L^-1 B where many rows of B are alike: sums within groups of observations first, which takes far fewer operations.

The right-hand sides of `pdcbo.structured` are rows of functions of theta, scaled by the context's part of the kernel,
and on a set of candidates the same values of theta come again and again. Let u be the columns of theta by which
observations are grouped, v the others, and function (a, t) the product outer_a(u) inner_t(v). With S = L^-1, and s the
context's part of the kernel,

    T_kt = sum over j in group k of S_j s_j inner_t(v_j)        S_j: column j of S
    V_at = sum over k of outer_a(u_k) T_kt

    n^2 tau + 2 n g m operations in the place of n^2 m, with tau functions inner_t, g groups and m functions (a, t)

S is kept for the full blocks of L, in strips of rows whose columns are sorted by group. Where v is empty T takes a
sparse product a strip; elsewhere groups are sorted by size, and those of one size take one call of products of
matrices. What observations after the last full block need is left to the solve. S depends on the observations and their
order alone, and not on when it was extended. Where the noise is small compared to the prior variance an explicit
inverse loses digits; `pdcbo.structured` minds that.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pdcbo import lapack
from pdcbo.basis import Basis, Parts
from pdcbo.features import whole
from pdcbo.gp import BLOCK, CholeskyFactor
from pdcbo.problem import Array

STRIP = 8 * BLOCK
# Measured costs, in operations of a solve: of an entry of S in a sparse product; what BLAS adds to the operations where
# it multiplies matrices, which it copies first; of an operation of the sums over groups; of a call.
SPARSE, COPY, COMBINE, CALL = 8, 16, 1.25, 6e4


class GroupedInverse:
    """S for the full blocks of a factor, and its product with the functions of a basis."""

    def __init__(self, factor: CholeskyFactor, basis: Basis) -> None:
        self._factor = factor
        self._basis = basis
        self._runs = basis.runs
        self._tau = 1 + max(t for t, _, _ in self._runs)
        if self._tau > 1:
            self._tau = whole(self._tau)
        # where each function comes in the runs
        self._ranks = np.argsort(np.concatenate([functions for _, _, functions in self._runs]))
        # one run of large functions is written where it belongs; others are sorted afterwards
        self._sorted = len(self._runs) == 1 and basis.finest.large == basis.m
        self._rows = np.empty((0 if self._sorted else basis.m, STRIP))
        self._numbers: dict[bytes, int] = {}
        self._group = np.empty(0, np.intp)
        self._inner = np.empty((0, self._tau))
        self._outer: list[Array] = []
        self._matrices: list[Array] = []  # for each run, outer_a(u_k), (functions, g)
        self._strips: list[Strip] = []
        self._room = np.empty(0)

    @property
    def n(self) -> int:
        """The number of observations that were sorted into groups."""
        return len(self._group)

    def sort(self, theta: Array) -> None:
        """Sort the observations of full blocks into groups, numbered as they appear; theta (n, n_theta) has all."""
        new = theta[self.n : len(theta) // BLOCK * BLOCK]
        if len(new):
            keys = [u.tobytes() for u in new[:, : self._basis.columns_of_u]]
            groups = [self._numbers.setdefault(key, len(self._numbers)) for key in keys]
            self._group = np.concatenate([self._group, groups])

    def pays(self, work: float) -> bool:
        """Tell whether groups take less time than a solve with `work` right-hand sides, counted in its operations."""
        n, g, basis = self.n, len(self._numbers), self._basis
        sums = n * n * (SPARSE if self._tau == 1 else 2 * self._tau + COPY)
        combinations = COMBINE * 2 * n * g * basis.m
        calls = CALL * ((1 if self._tau == 1 else g) + len(self._runs)) * -(-n // STRIP)
        rest = BLOCK * n * basis.m  # the solve for half a block
        return sums + combinations + calls + rest < n * n * work

    def times(self, s: Array, theta: Array, parts: Parts) -> None:
        """Write V' (m, n) of the sorted observations, of which there are some, to its parts; s (n,), theta (n, .)."""
        while self._end < self.n:
            self._extend(theta)
        scaled = self._inner * s[:, None]
        for strip in self._strips:
            T = self._sums(strip, scaled[strip.order])
            here = slice(strip.begin, strip.end)
            rows = parts[0][:, here] if self._sorted else self._rows[:, : strip.end - strip.begin]
            first = 0
            matrices = strip.matrices or [matrix[:, : len(T)] for matrix in self._matrices]
            for (t, _, _), matrix in zip(self._runs, matrices, strict=True):
                np.matmul(matrix, T[:, t], out=rows[first : first + len(matrix)])
                first += len(matrix)
            if not self._sorted:
                large = len(parts[0])
                parts[0][:, here] = rows[self._ranks[:large]]
                if len(parts) == 2:
                    parts[1][:, here] = rows[self._ranks[large:]]

    def _sums(self, strip: Strip, scaled: Array) -> Array:
        """Return T (g, tau, rows of the strip), given s_j inner_t(v_j) (n, tau) in the order of the strip's columns."""
        width = strip.end - strip.begin
        shape = (strip.g, self._tau, width)
        if self._tau == 1:
            strip.sparse.data[:] = scaled[:, 0]
            sums: Array = (strip.sparse @ strip.U).reshape(shape)
            return sums
        size = shape[0] * shape[1] * shape[2]
        if self._room.size < size:
            self._room = np.empty(2 * size)
        T = self._room[:size].reshape(shape)
        begin = k = 0
        for count, groups in strip.sizes:  # groups of one size in one call
            end = begin + count * groups
            inner = scaled[begin:end].reshape(groups, count, -1).transpose(0, 2, 1)
            np.matmul(inner, strip.U[begin:end].reshape(groups, count, width), out=T[k : k + groups])
            begin, k = end, k + groups
        return T

    @property
    def _end(self) -> int:
        return self._strips[-1].end if self._strips else 0

    def _extend(self, theta: Array) -> None:
        """Compute the functions of the next full block b, and its rows of S, L_bb^-1 (I - L_b S_<b)."""
        b = self._end
        e = b + BLOCK
        self._compute_functions(theta[b:e])
        L = self._factor.L[b:e]
        columns = np.zeros((e, BLOCK))
        for strip in self._strips:
            columns[strip.order] -= strip.U @ L[:, strip.begin : strip.end].T
        columns[b:] = np.eye(BLOCK)
        columns = lapack.dtrtrs(L[:, b:e], columns.T, lower=1)[0].T
        if b % STRIP == 0:
            self._strips.append(Strip(b))
        self._strips[-1].append(columns, self._group[:e], self._matrices if self._tau > 1 else [])

    def _compute_functions(self, theta: Array) -> None:
        """Compute the inner functions of more observations, and the outer ones of groups that begin with them."""
        basis, u = self._basis, self._basis.columns_of_u
        for point in theta:
            if self._numbers[point[:u].tobytes()] == len(self._outer):
                self._outer.append(basis.outer(point[:u]))
        outer = np.array(self._outer).T
        self._matrices = [outer[a] for _, a, _ in self._runs]
        inner = np.zeros((len(theta), self._tau))
        for row, point in zip(inner, theta, strict=True):
            values = basis.inner(point[u:])[: self._tau]
            row[: len(values)] = values
        self._inner = np.concatenate([self._inner, inner])


class Strip:
    """Rows of S from `begin` to `end`: U[p] is their column order[p], and columns are sorted by group."""

    def __init__(self, begin: int) -> None:
        self.begin = self.end = begin
        self.order = np.empty(0, np.intp)
        self.U = np.empty((0, 0))
        self.g = 0  # the number of groups
        self.sparse: Any = None  # (g, n), an entry for each column, in the row of its group
        self.matrices: list[Array] = []  # for each run, the outer functions of the groups in their order here
        self.sizes: list[tuple[int, int]] = []  # how many columns a group has, and how many groups have as many

    def append(self, columns: Array, group: NDArray[np.intp], matrices: list[Array]) -> None:
        """Add rows of S, given their columns (n, c) and the group of each; groups with matrices are sorted by size."""
        n, known, width = len(group), len(self.order), self.end - self.begin
        U = np.empty((n, width + columns.shape[1]))
        U[self.order, :width] = self.U
        U[known:, :width] = 0.0
        U[:, width:] = columns
        counts = np.bincount(group)
        if matrices:
            self.order = np.lexsort((group, counts[group]))
            by_size = np.argsort(counts, kind="stable")
            self.matrices = [matrix[:, by_size] for matrix in matrices]
            self.sizes = list(zip(*(a.tolist() for a in np.unique(counts, return_counts=True)), strict=True))
        else:
            from scipy.sparse import csr_array  # here, since importing SciPy takes long (`pdcbo.lapack`)

            self.order = np.argsort(group, kind="stable")
            begins = np.concatenate([[0], np.cumsum(counts)])
            self.sparse = csr_array((np.empty(n), np.arange(n), begins), shape=(len(counts), n))
        self.U, self.end, self.g = U[self.order], n, len(counts)
