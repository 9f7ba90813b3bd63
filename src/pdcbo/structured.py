"""The exact posterior over fixed candidates at one context after another, faster than point by point.

The optimizers ask, step after step, for mean and standard deviation (equation 6) of the same M candidates at a new
context z. `docs/engine.md` explains with a figure what makes that cheap:

1. k((theta, z), (theta', z')) = k_theta(theta, theta') k_z(z, z'): the part of the candidates is a table that grows by
   a column with each observation, and a new context only scales the table's columns.
2. Where k_theta has low rank on the candidates, r features carry all M of them (`pdcbo.features`).
3. One triangular solve with r right-hand sides is all that grows with n^2 (`pdcbo.blocks`), and small features are
   solved for in single precision: an error in V there is multiplied by the feature.

    T (m, n)   k_theta(candidates, data), m = M; or the features of the data, m = r
    s (n,)     k_z(data, z)
    V (m, n)   (L^-1 (T diag(s))')',   mean = V W,   var = k - sum_n V^2   for m = M, or through the features phi
               mean = phi V W,   var_j = k - 2 d_j - phi_j' V V' phi_j

d_j is what the features leave of k_theta(c_j, c_j). Where the data determine candidate j they determine its missing
part too, and the quadratic form then lacks 2 d_j; where they don't, 2 d_j is far below the variance.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pdcbo.blocks import WIDEST, Blocks, joined
from pdcbo.features import Features, find, split, whole
from pdcbo.gp import BLOCK, Posterior
from pdcbo.kernels import Kernel
from pdcbo.problem import Array

# what features may leave of the kernel, relative to the noise variance: keeps 1e-7 in std and 1e-8 in the mean (tests)
TOLERANCE = 1e-8
# noise variance, relative to the prior variance, below which rounding in the features' quadratic forms, and in the
# products that take the place of substitution, would show
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
        self._blocks = Blocks(self.posterior.factor, np.dtype(np.float64))
        self._small_blocks = Blocks(self.posterior.factor, np.dtype(np.float32))

    @property
    def structured(self) -> bool:
        """Whether the kernel is a product of a function of theta and one of z."""
        return self._parts is not None

    @property
    def right_hand_sides(self) -> int:
        """The number of right-hand sides m of the last solve."""
        return len(self._table) + len(self._small)

    @property
    def in_single_precision(self) -> int:
        """How many of them are solved for in single precision."""
        return len(self._small)

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
        V = self._solve(self._table.times(s), noisy)
        mean = _times_few(V, self.posterior.W)
        if self._features is None or not self._uses_features:
            variance = self._diagonal * prior - np.einsum("mn,mn->m", V, V)
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

    def _solve(self, B: Array, noisy: bool) -> Array:
        """Return V (m, n) for right-hand sides in blocks (k, m, BLOCK), whose memory it may use."""
        if noisy and B.shape[1] <= WIDEST:
            return self._blocks.solve(B)
        columns = np.ascontiguousarray(joined(B, self.posterior.n)).T
        return self.posterior.factor.solve(columns, overwrite=True).T

    def _with_small_features(self, s: Array, V: Array, mean: Array) -> tuple[Array, Array]:
        """Return V W (r, q) and the lower triangle of V V' (r, r) of all features, given those of the large ones."""
        large, small = len(V), len(self._small)
        if not small:
            return mean, V @ V.T
        v = self._small_blocks.solve(self._small.times(s.astype(np.float32)))
        H = np.empty((large + small, large + small))
        H[:large, :large] = V @ V.T
        H[large:, :large] = v @ V.astype(np.float32).T
        H[large:, large:] = v @ v.T
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
                self._table.append(phi[: self._large, None])
                self._small.append(phi[self._large :, None])
        elif self._table.n < n:
            self._table.append(kernel.matrix(self.candidates, theta[self._table.n :]))

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
    """A matrix (m, n) that grows by columns, in blocks of BLOCK, and room for its product with a diagonal matrix."""

    def __init__(self, m: int, dtype: np.dtype[Any]) -> None:
        self.n = 0
        self._values = np.zeros((1, m, BLOCK), dtype)
        self._room = np.empty_like(self._values)

    def __len__(self) -> int:
        return int(self._values.shape[1])

    def append(self, columns: Array) -> None:
        """Add columns (m, c)."""
        n, size = self.n + columns.shape[1], len(self._values)
        if n > size * BLOCK:
            values = np.zeros((max(-(-n // BLOCK), size + size // 2), len(self), BLOCK), self._values.dtype)
            values[:size] = self._values
            self._values, self._room = values, np.empty_like(values)
        first = self.n
        while self.n < n:
            block, begin = divmod(self.n, BLOCK)
            end = min(begin + n - self.n, BLOCK)
            done = self.n - first
            self._values[block, :, begin:end] = columns[:, done : done + end - begin]
            self.n += end - begin

    def times(self, s: NDArray[Any]) -> NDArray[Any]:
        """Return the columns, each times its entry of s (n,), in blocks (k, m, BLOCK), which the next call reuses."""
        k = -(-self.n // BLOCK)
        padded = np.zeros((k, 1, BLOCK), s.dtype)
        padded.reshape(-1)[: self.n] = s
        return np.multiply(self._values[:k], padded, out=self._room[:k])


def _times_few(V: NDArray[Any], W: NDArray[Any]) -> NDArray[Any]:
    """Return V W for few columns W, one by one: BLAS would first copy V to multiply matrices."""
    return np.stack([V @ w for w in W.T], axis=1)
