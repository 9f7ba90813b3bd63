"""The exact posterior over fixed candidates at one context after another, faster than point by point.

The optimizers ask, step after step, for mean and standard deviation (equation 6) of the same M candidates at a new
context z. `docs/engine.md` explains with a figure what makes that cheap:

1. k((theta, z), (theta', z')) = k_theta(theta, theta') k_z(z, z'): the part of the candidates is a table that grows by
   a row with each observation, and a new context only scales the table's rows.
2. Where k_theta has low rank on the candidates, r features carry all M of them (`pdcbo.features`).
3. One triangular solve with r right-hand sides is all that grows with n^2 (`pdcbo.panels`), and small features are
   solved for in single precision: an error in V there is multiplied by the feature.
4. Parameters repeat: with the inverse of the factor, sums over the observations of one value of a parameter come first,
   and what is left to do with r right-hand sides is linear in n (`pdcbo.inverse`).

    T (n, m)   k_theta(data, candidates), m = M; or the features of the data, m = r
    s (n,)     k_z(data, z)
    V (n, m)   L^-1 diag(s) T,   mean = V' W,   var = k - sum_n V^2   for m = M, or through the features phi
               mean = phi V' W,   var_j = k - 2 d_j - phi_j' V' V phi_j

d_j is what the features leave of k_theta(c_j, c_j). Where the data determine candidate j they determine its missing
part too, and the quadratic form then lacks 2 d_j; where they don't, 2 d_j is far below the variance.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pdcbo import lapack
from pdcbo.features import Columns, Features, Parts, find, split
from pdcbo.gp import BLOCK, Posterior
from pdcbo.inverse import GroupedInverse
from pdcbo.kernels import Kernel
from pdcbo.panels import Panels
from pdcbo.problem import Array

# what features may leave of the kernel, relative to the noise variance or, where that is less, to the prior variance:
# keeps 1e-7 in std and 1e-8 in the mean (tests)
TOLERANCE = 1e-8
# noise variance, relative to the prior variance, below which rounding in the features' quadratic forms, and sums in
# another order than the plain posterior's, would show
LEAST_NOISE = 3e-5
# the context's part of the variance up to which features are used; it is 1 but for linear kernels
ORDINARY = 16.0
# fewer observations than this are solved for all candidates, without a look at the rank
FIRST = 64
MAX_RANK = 400
# families without a kink at zero distance; the others have no low rank at these tolerances
SMOOTH = ("squared-exponential", "linear")


class CandidatePosterior:
    """The posterior of q functions over fixed candidates at one context after another.

    What it returns depends on the observations and their order only, to the last bit, and not on whether they were
    added one by one or the posterior was built from all of them at once. One thread at a time may use it.

    Args:
        posterior: the plain posterior, the reference; `add` extends it, and it may be extended directly.
        candidates: (M, n_theta); the first n_theta columns of a point are theta, the rest z.
    """

    def __init__(self, posterior: Posterior, candidates: Array) -> None:
        self.posterior = posterior
        self.candidates = np.ascontiguousarray(candidates, dtype=float)
        self.n_theta = self.candidates.shape[1]
        self._parts = split(posterior.kernel, self.n_theta)
        if self._parts is not None:
            self._columns = Columns(self._parts[0], self.candidates)
            self._largest = float(self._columns.diagonal.max(initial=0.0))
        # the prior variance of these has no upper end
        self._linear = any(factor.family == "linear" for factor in posterior.kernel.factors)
        self._half_done = False
        self._start()

    def _start(self) -> None:
        """Forget all that was made from the observations."""
        self._features: Features | None = None
        self._searched = False
        self._served = 0
        self.in_groups = False  # whether the last solve summed within groups first
        if self._parts is not None:
            self._start_tables(self._columns)
        self._panels = Panels(self.posterior.factor, np.dtype(np.float64))
        self._small_panels = Panels(self.posterior.factor, np.dtype(np.float32))

    @property
    def structured(self) -> bool:
        """Whether the kernel is a product of a function of theta and one of z."""
        return self._parts is not None

    @property
    def right_hand_sides(self) -> int:
        """The number of right-hand sides m of the last solve."""
        return self._basis.m if self.structured else len(self.candidates)

    @property
    def in_single_precision(self) -> int:
        """How many of them single precision does for."""
        return self._basis.m - self._basis.large if self.structured else 0

    def add(self, x: Array, y: Array) -> None:
        """Extend by one observation."""
        self.posterior.add(x, y)

    def at(self, z: Array) -> tuple[Array, Array]:
        """Return mean (M, q) and standard deviation (M,) of every candidate at the context z (n_z,)."""
        if self._parts is None:
            contexts = np.broadcast_to(z, (len(self.candidates), len(z)))
            return self.posterior.predict(np.hstack([self.candidates, contexts]))
        if self._half_done:
            self._start()
        self._half_done = True  # where an interrupt ends it here
        answer = self._structured_at(np.asarray(z, dtype=float)[None], *self._parts)
        self._half_done = False
        return answer

    def _structured_at(self, here: Array, of_theta: Kernel, of_context: Kernel) -> tuple[Array, Array]:
        """Return what `at` does, for a product kernel and the context (1, n_z)."""
        prior = float(of_context.diagonal(here)[0])
        noisy = self._noisy(prior)
        self._choose_basis(of_theta, noisy and self._ordinary(prior, of_context))
        self._extend()
        s = of_context.matrix(here, self.posterior.X[:, self.n_theta :])[0]
        mean, variance = self._basis.moments(self._solve(s, noisy), self.posterior.W, prior)
        return mean, np.sqrt(np.maximum(variance, 0.0, out=variance), out=variance)

    def _noisy(self, prior: float) -> bool:
        """Tell whether the noise hides rounding, for the candidates at a context of this variance and for the data."""
        size = self._largest * prior
        if self._linear:
            size = max(size, float(self.posterior.kernel.diagonal(self.posterior.X).max(initial=0.0)))
        return self.posterior.noise_var >= LEAST_NOISE * size

    def _ordinary(self, prior: float, of_context: Kernel) -> bool:
        """Tell whether the context's part of the variance, here and in the data, is what tolerances were set for."""
        if not self._linear:
            return True
        return max(prior, float(of_context.diagonal(self.posterior.X[:, self.n_theta :]).max(initial=0.0))) <= ORDINARY

    def _solve(self, s: Array, noisy: bool) -> Parts:
        """Return V' of all functions, or that of large and of small features, in memory that the next call reuses."""
        self.in_groups = noisy and self._inverse.pays()
        if not noisy:
            return (self.posterior.factor.solve(self._table.times(s)).T,)
        if self.in_groups:
            return self._solve_in_groups(s)
        V = self._panels.solve(self._table.times(s)).T
        if not self._small.m:
            return (V,)
        return V, self._small_panels.solve(self._small.times(s.astype(np.float32))).T

    def _solve_in_groups(self, s: Array) -> Parts:
        """Return the same."""
        L, n, done = self.posterior.factor.L, self.posterior.n, self._inverse.n
        tables = (self._table, self._small) if self._small.m else (self._table,)
        parts = tuple(table.room() for table in tables)
        self._inverse.times(s[:done], self.posterior.X[:, : self.n_theta], tuple(V[:, :done] for V in parts))
        for V, table in zip(parts, tables, strict=True):
            if done < n:
                last = L[done:].astype(V.dtype, copy=False)
                rest = table.rows(done) * s[done:, None].astype(V.dtype) - last[:, :done] @ V[:, :done].T
                substitute = lapack.dtrtrs if V.dtype == np.float64 else lapack.strtrs
                V[:, done:] = substitute(last[:, done:], rest, lower=1)[0].T
        return parts

    def _choose_basis(self, kernel: Kernel, accurate: bool) -> None:
        """Take features where they are accurate, serve and pay, and the columns of the kernel of theta elsewhere."""
        n = self.posterior.n
        if n >= FIRST and accurate and not self._searched:
            self._search(kernel)
        if self._features is not None:
            self._serve(self.posterior.X[:, : self.n_theta])
        basis: Columns | Features = self._columns
        if self._features is not None and accurate and n >= self._features.pays_from:
            basis = self._features
        if basis is not self._basis:
            self._start_tables(basis)

    def _search(self, kernel: Kernel) -> None:
        """Look for features, once."""
        self._searched = True
        limit = min(len(self.candidates) // 4, MAX_RANK)
        if limit > 0 and all(factor.family in SMOOTH for factor in kernel.factors):
            size = min(self.posterior.noise_var, self._largest)
            if self._linear:
                size /= ORDINARY
            self._features = find(kernel, self.candidates, TOLERANCE * size, limit)

    def _serve(self, theta: Array) -> None:
        """Give the features up if they do not serve an observation off the candidates."""
        while self._features is not None and self._served < len(theta):
            if not self._features.serve(theta[self._served]):
                self._features = None
            self._served += 1

    def _extend(self) -> None:
        """Bring the tables up to the observations."""
        theta = self.posterior.X[:, : self.n_theta]
        if self._table.n < len(theta):
            rows = self._basis.rows(theta[self._table.n :])
            self._table.append(rows[:, : self._basis.large])
            self._small.append(rows[:, self._basis.large :])
            self._inverse.sort(theta)

    def _start_tables(self, basis: Columns | Features) -> None:
        self._basis = basis
        self._table = Table(basis.large, np.dtype(np.float64))
        self._small = Table(basis.m - basis.large, np.dtype(np.float32))
        self._inverse = GroupedInverse(self.posterior.factor, basis)


class Table:
    """A matrix (n, m) that grows by rows, and room for its product with a diagonal matrix."""

    def __init__(self, m: int, dtype: np.dtype[Any]) -> None:
        self.n, self.m = 0, m
        self._values = np.empty((BLOCK, m), dtype)
        self._room = np.empty_like(self._values)

    def append(self, rows: Array) -> None:
        """Add rows (c, m)."""
        n = self.n + len(rows)
        if n > len(self._values):
            values = np.empty((n + n // 2, self.m), self._values.dtype)
            values[: self.n] = self._values[: self.n]
            self._values, self._room = values, np.empty_like(values)
        self._values[self.n : n] = rows
        self.n = n

    def room(self) -> NDArray[Any]:
        """Return memory for the transpose, (m, n), which `times` and the next call reuse."""
        return self._room.reshape(-1)[: self.m * self.n].reshape(self.m, self.n)

    def rows(self, first: int) -> NDArray[Any]:
        """Return all rows from the first on."""
        return self._values[first : self.n]

    def times(self, s: NDArray[Any]) -> NDArray[Any]:
        """Return the rows, each times its entry of s (n,), in memory that the next call reuses."""
        product: NDArray[Any] = np.multiply(self._values[: self.n], s[:, None], out=self._room[: self.n])
        return product
