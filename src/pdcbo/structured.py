"""The exact posterior over fixed candidates at one context after another, faster than point by point.

The optimizers ask, step after step, for mean and standard deviation (equation 6) of the same M candidates at a new
context z. `docs/engine.md` explains with a figure what makes that cheap:

1. k((theta, z), (theta', z')) = k_theta(theta, theta') k_z(z, z'): the part of the candidates is a table that grows by
   a column with each observation, and a new context only scales the table's columns.
2. Where k_theta has low rank on the candidates, r pivots carry all M of them (`pdcbo.interpolation`).
3. One triangular solve with r right-hand sides is all that grows with n^2; the variances follow from an r x r matrix.

    T (m, n)   k_theta(columns, data), the table of the m = M candidates or m = r pivots
    s (n,)     k_z(data, z)
    V (n, m)   L^-1 (T diag(s))',   mean = V' W,   var = k - sum_n V^2,   or through the weights w (M, r) of the pivots
               mean = w V' W,   var_j = k - w_j' G w_j,   G = V' V
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import blas

from pdcbo.gp import Posterior
from pdcbo.interpolation import Interpolation
from pdcbo.kernels import Factor, Kernel
from pdcbo.problem import Array

# interpolation errors relative to the noise variance: keeps 1e-7 relative in std and 1e-8 in the mean (tests)
TOLERANCE = 1e-10
# fewer observations than this are solved for all candidates, without a look at the rank
FIRST = 64
MAX_RANK = 400
ANALYTIC = ("squared-exponential", "linear")


def split(kernel: Kernel, n_theta: int) -> tuple[Kernel, Kernel] | None:
    """Return k_theta and k_z with k = k_theta k_z, or None where the kernel has no such factors.

    The columns of k_z are counted from the first context. A squared exponential over both kinds of columns is a
    product itself, because it factorises over columns; other factors over both are not.
    """
    parts: list[list[Factor]] = [[], []]
    for factor in kernel.factors:
        kinds = {column < n_theta for column in factor.columns}
        if len(kinds) == 2 and factor.family != "squared-exponential":
            return None
        for part, first, end in ((parts[0], 0, n_theta), (parts[1], n_theta, np.inf)):
            own = [i for i, column in enumerate(factor.columns) if first <= column < end]
            if own:
                part.append(
                    Factor(
                        factor.family,
                        tuple(factor.columns[i] - first for i in own),
                        tuple(factor.length_scales[i] for i in own),
                        frozenset(column - first for column in factor.choices if first <= column < end),
                    )
                )
    return Kernel(tuple(parts[0]), kernel.variance), Kernel(tuple(parts[1]))


class CandidatePosterior:
    """The posterior of q functions over fixed candidates at one context after another.

    What it returns depends on the observations and their order only, to the last bit, and not on whether they were
    added one by one or the posterior was built from all of them at once.

    Args:
        posterior: the plain posterior, the reference; `add` extends it, and it may be extended or corrected directly.
        candidates: (M, n_theta); the first n_theta columns of a point are theta, the rest z.
    """

    def __init__(self, posterior: Posterior, candidates: Array) -> None:
        self.posterior = posterior
        self.candidates = np.ascontiguousarray(candidates, dtype=float)
        self.n_theta = self.candidates.shape[1]
        self._parts = split(posterior.kernel, self.n_theta)
        self._interpolation: Interpolation | None = None
        self._searched = False
        self._served = 0
        if self._parts is not None:
            self._diagonal = self._parts[0].diagonal(self.candidates)
            self._on_candidates = {row.tobytes() for row in self.candidates}
            self._set_columns(self.candidates)

    @property
    def structured(self) -> bool:
        """Whether the kernel is a product of a function of theta and one of z."""
        return self._parts is not None

    @property
    def rank(self) -> int:
        """The number of right-hand sides that a solve has at the present number of observations."""
        return len(self._columns) if self.structured else len(self.candidates)

    def add(self, x: Array, y: Array) -> None:
        """Extend by one observation."""
        self.posterior.add(x, y)

    def at(self, z: Array) -> tuple[Array, Array]:
        """Return mean (M, q) and standard deviation (M,) of every candidate at the context z (n_z,)."""
        if self._parts is None:
            contexts = np.broadcast_to(z, (len(self.candidates), len(z)))
            return self.posterior.predict(np.hstack([self.candidates, contexts]))
        self._extend()
        n, m = self.posterior.n, len(self._columns)
        here = np.asarray(z, dtype=float)[None]
        scale = self._parts[1].matrix(self.posterior.X[:, self.n_theta :], here)[:, 0]
        right = self._buffer[: m * n].reshape(m, n)
        np.multiply(self._table[:, :n], scale, out=right)
        V = self.posterior.factor.solve(right.T, overwrite=True).T
        mean = V @ self.posterior.W
        if self._interpolation is None or self._columns is self.candidates:
            known = np.einsum("mn,mn->m", V, V)
        else:
            mean = self._interpolation.weights @ mean
            known = _quadratic_forms(V @ V.T, self._interpolation.weights)
        variance = self._diagonal * self._parts[1].diagonal(here) - known
        return mean, np.sqrt(np.maximum(variance, 0.0, out=variance), out=variance)

    def _extend(self) -> None:
        """Bring the table up to the observations."""
        assert self._parts is not None
        n = self.posterior.n
        theta = self.posterior.X[:, : self.n_theta]
        if n >= FIRST:
            self._interpolate(theta)
        pivots = self._interpolation is not None and n >= self._interpolation.rank
        columns = self._interpolation.pivots if self._interpolation is not None and pivots else self.candidates
        if columns is not self._columns:
            self._set_columns(columns)
        if n > self._table.shape[1]:
            size = max(n, 2 * self._table.shape[1])
            table = np.empty((len(columns), size))
            table[:, : self._filled] = self._table[:, : self._filled]
            self._table, self._buffer = table, np.empty(len(columns) * size)
        self._table[:, self._filled : n] = self._parts[0].matrix(columns, theta[self._filled :])
        self._filled = n

    def _set_columns(self, columns: Array) -> None:
        """Start a table for other columns."""
        self._columns = columns
        self._table = np.empty((len(columns), FIRST))
        self._buffer = np.empty(len(columns) * FIRST)
        self._filled = 0

    def _interpolate(self, theta: Array) -> None:
        """Look for pivots, once, and see to it that they serve every observation so far."""
        assert self._parts is not None
        kernel, M = self._parts[0], len(self.candidates)
        if not self._searched:
            self._searched = True
            if all(factor.family in ANALYTIC for factor in kernel.factors):
                tolerance = TOLERANCE * self.posterior.noise_var
                self._interpolation = Interpolation.find(kernel, self.candidates, tolerance, min(M // 4, MAX_RANK))
        while self._interpolation is not None and self._served < len(theta):
            point = theta[self._served]
            if point.tobytes() not in self._on_candidates:
                self._interpolation.include(point)
                if self._interpolation.rank > M // 2:
                    self._interpolation = None
            self._served += 1


def _quadratic_forms(G: Array, weights: Array) -> Array:
    """Return w_j' G w_j for each row of `weights`; only half of the symmetric G is multiplied."""
    np.fill_diagonal(G, 0.5 * np.diagonal(G))
    half = blas.dtrmm(2.0, G.T, weights.T).T
    return np.einsum("jr,jr->j", half, weights)
