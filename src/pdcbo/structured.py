"""The exact posterior over fixed candidates at one context after another, faster than point by point.

The optimizers ask, step after step, for mean and standard deviation (equation 6) of the same M candidates at a new
context z. `docs/engine.md` explains with a figure what makes that cheap:

1. k((theta, z), (theta', z')) = k_theta(theta, theta') k_z(z, z'): the part of the candidates is a table that grows by
   a row with each observation, and a new context only scales the table's rows.
2. Where k_theta has low rank on the candidates, r features carry all M of them (`pdcbo.features`).
3. One triangular solve with r right-hand sides is all that grows with n^2 (`pdcbo.panels`), and small features are
   solved for in single precision: an error in V there is multiplied by the feature.

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

from pdcbo.features import Features, find, split, whole
from pdcbo.gp import BLOCK, Posterior
from pdcbo.kernels import Kernel
from pdcbo.panels import Panels
from pdcbo.problem import Array

# what features may leave of the kernel, relative to the noise variance: keeps 1e-7 in std and 1e-8 in the mean (tests)
TOLERANCE = 1e-8
# noise variance, relative to the prior variance, below which rounding in the features' quadratic forms, and sums in
# another order than the plain posterior's, would show
LEAST_NOISE = 3e-5
# fewer observations than this are solved for all candidates, without a look at the rank
FIRST = 64
MAX_RANK = 400
# the square of a feature, relative to the noise variance, below which single precision does for it (tests)
SMALL = 5e-5
# fewer small features than this are solved for faster together with the others
ENOUGH = 24
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
            self._diagonal = self._parts[0].diagonal(self.candidates)
            self._largest = float(self._diagonal.max(initial=0.0))
        # the prior variance of these has no upper end
        self._linear = any(factor.family == "linear" for factor in posterior.kernel.factors)
        self._start()

    def _start(self) -> None:
        """Forget all that was made from the observations."""
        self._features: Features | None = None
        self._searched = False
        self._index: dict[bytes, int] = {}
        self._served = 0
        self._large = 0
        self._uses_features = False
        self._start_tables(len(self.candidates), 0)
        self._panels = Panels(self.posterior.factor, np.dtype(np.float64))
        self._small_panels = Panels(self.posterior.factor, np.dtype(np.float32))

    @property
    def structured(self) -> bool:
        """Whether the kernel is a product of a function of theta and one of z."""
        return self._parts is not None

    @property
    def right_hand_sides(self) -> int:
        """The number of right-hand sides m of the last solve."""
        return self._table.m + self._small.m

    @property
    def in_single_precision(self) -> int:
        """How many of them are solved for in single precision."""
        return self._small.m

    def add(self, x: Array, y: Array) -> None:
        """Extend by one observation."""
        self.posterior.add(x, y)

    def at(self, z: Array) -> tuple[Array, Array]:
        """Return mean (M, q) and standard deviation (M,) of every candidate at the context z (n_z,)."""
        if self._parts is None:
            contexts = np.broadcast_to(z, (len(self.candidates), len(z)))
            return self.posterior.predict(np.hstack([self.candidates, contexts]))
        try:
            return self._structured_at(np.asarray(z, dtype=float)[None], *self._parts)
        except BaseException:  # an interrupt may leave the tables half extended
            self._start()
            raise

    def _structured_at(self, here: Array, of_theta: Kernel, of_context: Kernel) -> tuple[Array, Array]:
        """Return what `at` does, for a product kernel and the context (1, n_z)."""
        prior = of_context.diagonal(here)
        noisy = self._noisy(float(prior[0]))
        self._extend(of_theta, noisy)
        s = of_context.matrix(here, self.posterior.X[:, self.n_theta :])[0]
        B = self._table.times(s)
        V = self._panels.solve(B) if noisy else self.posterior.factor.solve(B)
        mean = _times_few(V, self.posterior.W)
        if self._features is None or not self._uses_features:
            variance = self._diagonal * prior - np.einsum("nm,nm->m", V, V)
        else:
            mean, H = self._with_small_features(s, V, mean)
            mean = self._features.sums(mean)
            variance = (self._diagonal - 2.0 * self._features.left) * prior - self._features.quadratic_forms(H)
        return mean, np.sqrt(np.maximum(variance, 0.0, out=variance), out=variance)

    def _noisy(self, prior: float) -> bool:
        """Tell whether the noise hides rounding, for the candidates at a context of this variance and for the data."""
        size = self._largest * prior
        if self._linear:
            size = max(size, float(self.posterior.kernel.diagonal(self.posterior.X).max(initial=0.0)))
        return self.posterior.noise_var >= LEAST_NOISE * size

    def _with_small_features(self, s: Array, V: Array, mean: Array) -> tuple[Array, Array]:
        """Return V' W (r, q) and the lower triangle of V' V (r, r) of all features, given those of the large ones."""
        large, small = self._table.m, self._small.m
        if not small:
            return mean, V.T @ V
        v = self._small_panels.solve(self._small.times(s.astype(np.float32)))
        H = np.empty((large + small, large + small))
        H[:large, :large] = V.T @ V
        H[large:, :large] = v.T @ V.astype(np.float32)
        H[large:, large:] = v.T @ v
        return np.concatenate([mean, _times_few(v, self.posterior.W.astype(np.float32))]), H

    def _extend(self, kernel: Kernel, noisy: bool) -> None:
        """Bring the tables up to the observations; `kernel` is that of theta."""
        n = self.posterior.n
        theta = self.posterior.X[:, : self.n_theta]
        if n >= FIRST and noisy and not self._searched:
            self._search(kernel)
        if self._features is not None:
            self._serve(theta)
        if self._features is not None and noisy and n >= self._features.pays_from:
            if not self._uses_features:
                self._start_tables(self._large, self._features.rank - self._large)
                self._uses_features = True
        elif self._uses_features:
            self._start_tables(len(self.candidates), 0)
            self._uses_features = False
        if self._features is not None and self._uses_features:
            for i in range(self._table.n, n):
                j = self._index.get(theta[i].tobytes())
                phi = self._features.at(theta[i]) if j is None else self._features.phi[j]
                self._table.append(phi[None, : self._large])
                self._small.append(phi[None, self._large :])
        elif self._table.n < n:
            self._table.append(kernel.matrix(theta[self._table.n :], self.candidates))

    def _search(self, kernel: Kernel) -> None:
        """Look for features, once."""
        self._searched = True
        noise_var = self.posterior.noise_var
        limit = min(len(self.candidates) // 4, MAX_RANK)
        if limit > 0 and all(factor.family in SMOOTH for factor in kernel.factors):
            self._features = find(kernel, self.candidates, TOLERANCE * noise_var, limit)
        if self._features is not None:
            self._index = {c.tobytes(): j for j, c in enumerate(self.candidates)}
            rank = self._features.rank
            large = whole(int(np.count_nonzero(self._features.sizes > SMALL * noise_var)))
            self._large = large if rank - large >= ENOUGH else rank

    def _serve(self, theta: Array) -> None:
        """Give the features up if they do not serve an observation off the candidates."""
        while self._features is not None and self._served < len(theta):
            point = theta[self._served]
            if point.tobytes() not in self._index and not self._features.serve(point):
                self._features = None
            self._served += 1

    def _start_tables(self, large: int, small: int) -> None:
        self._table = Table(large, np.dtype(np.float64))
        self._small = Table(small, np.dtype(np.float32))


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

    def times(self, s: NDArray[Any]) -> NDArray[Any]:
        """Return the rows, each times its entry of s (n,), in memory that the next call reuses."""
        product: NDArray[Any] = np.multiply(self._values[: self.n], s[:, None], out=self._room[: self.n])
        return product


def _times_few(V: NDArray[Any], W: NDArray[Any]) -> NDArray[Any]:
    """Return V' W for few columns W, one by one: BLAS would first copy V to multiply matrices."""
    return np.array([w @ V for w in W.T]).T
