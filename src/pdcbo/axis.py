"""The features of a kernel on the points of one axis, found by pivoted Cholesky; `pdcbo.features` says what for."""

from __future__ import annotations

import numpy as np

from pdcbo import lapack
from pdcbo.kernels import Kernel
from pdcbo.problem import Array


class Axis:
    """The features of a kernel on m points, orthogonal to each other, the largest first."""

    def __init__(self, kernel: Kernel, points: Array, R: Array, pivots: list[int]) -> None:
        self.kernel = kernel
        self.pivots = points[pivots]
        self._C = R[:, pivots]
        self._rotation = np.linalg.eigh(R @ R.T)[1][:, ::-1].T
        self.R = self._rotation @ R
        self._index = {point.tobytes(): j for j, point in enumerate(points)}

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

    def look_up(self, point: Array) -> Array:
        """Return the features of a point of the axis, or of any other, shape (rho,)."""
        j = self._index.get(point.tobytes())
        return self.at(point) if j is None else self.R[:, j]

    def at(self, point: Array) -> Array:
        """Compute the features of any point, shape (rho,)."""
        row = self.kernel.matrix(self.pivots, point[None])
        features: Array = self._rotation @ lapack.dtrtrs(self._C, row, lower=0, trans=1)[0][:, 0]
        return features
