"""Few functions in the place of many candidates: k(c, c') = phi(c) . phi(c') with r features, r far below M.

A smooth kernel has low rank on the candidates, and pivoted Cholesky finds it: on the points u of an `Axis`,
k = R' R with rho rows R, where each row is a combination of the kernel's columns at rho pivots, and so is known at
every other point too. Candidates on a grid are the product of two axes, and their features products of rows,

    phi_(s,t)(u, v) = R1_s(u) R2_t(v),

of which only those r are kept that matter: what the dropped ones could add anywhere is below the tolerance. Sums over
all candidates then go axis by axis, and cost next to nothing. Candidates that are no grid lie on one axis.

    R (rho, m)   features on the m points of an axis     pairs (s, t) (r,)   the products that are kept
    mu (r, q)    weights of q functions                  H (r, r)            a quadratic form
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pdcbo import lapack
from pdcbo.kernels import Factor, Kernel
from pdcbo.problem import Array

Indices = NDArray[np.intp]


def split(kernel: Kernel, n: int) -> tuple[Kernel, Kernel] | None:
    """Return the part of k in the first n columns, with the variance, and the part in the others, or None.

    None: the kernel is no such product. The second part counts its columns from n. A squared exponential over both
    kinds of columns is a product itself, because it factorises over columns; other factors over both are not.
    """
    first: list[Factor] = []
    second: list[Factor] = []
    for factor in kernel.factors:
        kinds = {column < n for column in factor.columns}
        if len(kinds) == 2 and factor.family != "squared-exponential":
            return None
        for kind in kinds:
            shift = 0 if kind else n
            own = [i for i, column in enumerate(factor.columns) if (column < n) == kind]
            columns = tuple(factor.columns[i] - shift for i in own)
            choices = frozenset(column - shift for column in factor.choices) & frozenset(columns)
            part = Factor(factor.family, columns, tuple(factor.length_scales[i] for i in own), choices)
            (first if kind else second).append(part)
    return Kernel(tuple(first), kernel.variance), Kernel(tuple(second))


class Axis:
    """The features of a kernel on m points."""

    def __init__(self, kernel: Kernel, points: Array, R: Array, pivots: list[int]) -> None:
        self.kernel = kernel
        self.R = R
        self.pivots = points[pivots]
        self._C = R[:, pivots]

    @classmethod
    def find(cls, kernel: Kernel, points: Array, tolerance: float, limit: int) -> Axis | None:
        """Return at most `limit` features that leave no more than `tolerance` of any k(u, u), or None."""
        left = kernel.diagonal(points)
        R = np.empty((limit, len(points)))
        pivots: list[int] = []
        while left.max() > tolerance:
            r, j = len(pivots), int(np.argmax(left))
            if r == limit:
                return None
            row = kernel.matrix(points[j : j + 1], points)[0]
            R[r] = (row - R[:r, j] @ R[:r]) / np.sqrt(left[j])
            left -= R[r] * R[r]
            left[j] = 0.0
            pivots.append(j)
        return cls(kernel, points, R[: len(pivots)].copy(), pivots)

    def at(self, point: Array) -> Array:
        """Return the features of any point, shape (rho,)."""
        row = self.kernel.matrix(self.pivots, point[None])
        return lapack.dtrtrs(self._C, row, lower=0, trans=1)[0][:, 0]  # type: ignore[no-any-return]


class Features:
    """The features of a kernel on candidates that lie on one axis."""

    def __init__(self, kernel: Kernel, candidates: Array, tolerance: float, axis: Axis) -> None:
        self.kernel = kernel
        self.candidates = candidates
        self.tolerance = tolerance
        self.axis = axis
        self._finish(axis.R)

    def _finish(self, phi: Array) -> None:
        self.phi = np.ascontiguousarray(phi.T)
        # what the features leave of k(c, c)
        self.left = self.kernel.diagonal(self.candidates) - np.einsum("jr,jr->j", self.phi, self.phi)

    @property
    def rank(self) -> int:
        """The number of features r."""
        return int(self.phi.shape[1])

    @property
    def pays_from(self) -> int:
        """The number of observations from which M r^2 for the quadratic forms is less than n^2 M for a full solve."""
        return self.rank

    def at(self, point: Array) -> Array:
        """Return the features of any point, shape (r,)."""
        return self.axis.at(point)

    def serve(self, point: Array) -> bool:
        """Tell whether the features give the kernel between a point off the candidates and all candidates."""
        error = self.kernel.matrix(point[None], self.candidates)[0] - self.phi @ self.at(point)
        return bool(np.abs(error).max() <= 4.0 * self.tolerance)

    def sums(self, mu: Array) -> Array:
        """Return phi_j . mu for each candidate, shape (M, q)."""
        return self.phi @ mu

    def quadratic_forms(self, H: Array) -> Array:
        """Return phi_j' H phi_j for each candidate, shape (M,); only half of the symmetric H is multiplied."""
        H = H.copy()
        np.fill_diagonal(H, 0.5 * np.diagonal(H))
        half = lapack.dtrmm(2.0, H.T, self.phi.T).T
        return np.einsum("jr,jr->j", half, self.phi)  # type: ignore[no-any-return]


class GridFeatures(Features):
    """The features of a kernel on candidates that are the product of two axes."""

    def __init__(
        self, kernel: Kernel, candidates: Array, tolerance: float, axes: tuple[Axis, Axis], n: int, index: Indices
    ) -> None:
        self.kernel = kernel
        self.candidates = candidates
        self.tolerance = tolerance
        self.axes = axes
        self._n = n  # columns of the first axis
        self._index = index  # of each candidate in the product of the axes
        R1, R2 = axes[0].R, axes[1].R
        size = np.multiply.outer((R1 * R1).max(axis=1), (R2 * R2).max(axis=1)).ravel()
        order = np.argsort(size, kind="stable")
        dropped = order[: np.searchsorted(np.cumsum(size[order]), 0.5 * tolerance)]
        kept = np.ones(len(size), dtype=bool)
        kept[dropped] = False
        self.s, self.t = np.divmod(np.flatnonzero(kept), len(R2))
        self._first = np.ascontiguousarray(R1[self.s].T)
        self._second_of = np.eye(len(R2))[self.t]
        phi = R1[self.s][:, :, None] * R2[self.t][:, None, :]
        self._finish(phi.reshape(len(self.s), -1)[:, self._index])

    @property
    def pays_from(self) -> int:
        """The number of observations from which features pay: always, since quadratic forms go axis by axis."""
        return 0

    def at(self, point: Array) -> Array:
        """Return the features of any point, shape (r,)."""
        first, second = self.axes
        return first.at(point[: self._n])[self.s] * second.at(point[self._n :])[self.t]

    def sums(self, mu: Array) -> Array:
        """Return phi_j . mu for each candidate, shape (M, q): one axis, then the other."""
        R1, R2 = self.axes[0].R, self.axes[1].R
        padded = np.zeros((len(R1), len(R2), mu.shape[1]))
        padded[self.s, self.t] = mu
        half = (R1.T @ padded.reshape(len(R1), -1)).reshape(-1, *padded.shape[1:])
        return (R2.T @ half).reshape(-1, mu.shape[1])[self._index]

    def quadratic_forms(self, H: Array) -> Array:
        """Return phi_j' H phi_j for each candidate, shape (M,).

        With j = (u, v): sum over t, t' of R2_t(v) R2_t'(v) N_tt'(u), where N(u) sums R1_s(u) R1_s'(u) H over s, s'.
        """
        R1, R2 = self.axes[0].R, self.axes[1].R
        padded = np.zeros((len(R1), len(R2), len(H)))
        padded[self.s, self.t] = H
        N = (R1.T @ padded.reshape(len(R1), -1)).reshape(-1, len(R2), len(H))
        N *= self._first[:, None, :]
        half = ((N.reshape(-1, len(H)) @ self._second_of) @ R2).reshape(len(N), *R2.shape)
        return np.einsum("utv,tv->uv", half, R2).ravel()[self._index]  # type: ignore[no-any-return]


def find(kernel: Kernel, candidates: Array, tolerance: float, limit: int) -> Features | None:
    """Return at most `limit` features whose products give k between all candidates to `tolerance`, or None."""
    for n in range(1, candidates.shape[1]):
        parts = split(kernel, n)
        if parts is None:
            continue
        (points1, index1), (points2, index2) = _distinct(candidates[:, :n]), _distinct(candidates[:, n:])
        index = index1 * len(points2) + index2
        if len(points1) * len(points2) != len(candidates) or len(np.unique(index)) != len(candidates):
            continue
        share = 0.2 * tolerance
        first = Axis.find(parts[0], points1, share, len(points1))
        second = Axis.find(parts[1], points2, share / float(parts[0].diagonal(points1).max()), len(points2))
        if first is None or second is None:
            return None
        grid = GridFeatures(kernel, candidates, tolerance, (first, second), n, index)
        return grid if grid.rank <= limit else None
    axis = Axis.find(kernel, candidates, 0.1 * tolerance, limit)
    return None if axis is None else Features(kernel, candidates, tolerance, axis)


def _distinct(points: Array) -> tuple[Array, Indices]:
    distinct, index = np.unique(points, axis=0, return_inverse=True)
    return distinct, index.ravel().astype(np.intp)
