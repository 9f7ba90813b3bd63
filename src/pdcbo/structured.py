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
5. Large variances need fewer features. How large they are is known only afterwards: a coarser level of the features is
   tried where recent observations promise enough, and its answer is taken if the smallest variance confirms it. The
   mean shows what such a level leaves out, and is computed with all features from alpha. In groups V has all of them,
   and the level is that of V' V alone.
6. The row of L of a point that was asked for is a column of V, or the features' sum of its columns: O(n r).

`pdcbo.rounding` says which of these the noise and the data allow; where they allow none, the plain posterior answers.

    T (n, m)   k_theta(data, candidates), m = M; or the features of the data, m = r
    s (n,)     k_z(data, z)
    V (n, m)   L^-1 diag(s) T,   mean = V' W,   var = k - sum_n V^2   for m = M, or through the features phi
               mean = phi V' W,   var_j = k - 2 d_j - phi_j' V' V phi_j
               mean = phi T' diag(s) alpha   at a coarser level, where V is of the first features only

d_j is what the features leave of k_theta(c_j, c_j). Where the data determine candidate j they determine its missing
part too, and the quadratic form then lacks 2 d_j; where they don't, 2 d_j is far below the variance.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pdcbo import lapack
from pdcbo.basis import Basis, Columns, Indices, Level, Parts
from pdcbo.features import LEVELS, Features, find, split
from pdcbo.gp import BLOCK, Posterior
from pdcbo.inverse import GroupedInverse
from pdcbo.kernels import Kernel
from pdcbo.panels import Inverses, Panels
from pdcbo.problem import Array
from pdcbo.rounding import Rounding
from pdcbo.table import Table

# a coarser level of the features is tried where it would serve if all candidates had this many times the smallest
# variance of recent observations
PROMISED = 3.0
# what alpha takes for each function, in right-hand sides in double precision (measured)
WORK_OF_ALPHA = 6.0
# fewer observations than this are solved for all candidates, without a look at the rank
FIRST = 64
MAX_RANK = 400
# families without a kink at zero distance; the others have no low rank at these tolerances
SMOOTH = ("squared-exponential", "linear")


class CandidatePosterior:
    """The posterior of q functions over fixed candidates at one context after another.

    What it returns depends on the observations, their order and which were `asked` for, to the last bit, and not on
    whether they were added one by one or the posterior was built from all of them at once. One thread at a time may
    use it.

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
            largest = float(self._columns.diagonal.max(initial=0.0))
            self._rounding = Rounding(posterior, self._parts[1], self.n_theta, largest)
        self._half_done = False
        self._start()

    @classmethod
    def build(
        cls, kernel: Kernel, noise_var: float, X: Array, Y: Array, candidates: Array, asked: NDArray[np.bool_]
    ) -> CandidatePosterior:
        """Return what `add` would make of many observations, of which some were asked for, (n,)."""
        full = len(X) // BLOCK * BLOCK
        model = cls(Posterior.build(kernel, noise_var, X[:full], Y[:full]), candidates)
        for x, y, read in zip(X[full:], Y[full:], asked[full:].tolist(), strict=True):
            model.add(x, y, asked=read)
        return model

    def _start(self) -> None:
        """Forget all that was made from the observations."""
        self._features: Features | None = None
        self._found_for: tuple[float, float] | None = None  # the tolerances for which features were looked for
        self._served = 0  # observations of which it is known whether the features serve them
        self._serving = len(LEVELS)  # the number of levels that serve all of these
        self._wants_alpha = False
        self._answered: tuple[int, bytes] | None = None  # the number of observations and the context of the last V
        self._has_rows = False  # whether that V holds the row of L of a candidate
        self._parts_of_V: Parts = ()
        self.in_groups = False  # whether the last solve summed within groups first
        inverses = Inverses(self.posterior.factor)
        self._panels = Panels(inverses, np.dtype(np.float64))
        self._small_panels = Panels(inverses, np.dtype(np.float32))
        self._kept: dict[Basis, tuple[Table, Table, GroupedInverse]] = {}  # contexts may take turns with two bases
        if self._parts is not None:
            self._take(self._columns)

    @property
    def structured(self) -> bool:
        """Whether the kernel is a product of a function of theta and one of z."""
        return self._parts is not None

    @property
    def right_hand_sides(self) -> int:
        """The number of functions, which is that of right-hand sides of a solve for all of them."""
        return self._basis.m if self.structured else len(self.candidates)

    @property
    def in_single_precision(self) -> int:
        """How many of them single precision does for."""
        return self._basis.m - self._basis.finest.large if self.structured else 0

    @property
    def solved_for(self) -> int:
        """How many of them the last solve took."""
        return self._solved.m if self.structured else len(self.candidates)

    @property
    def in_variance(self) -> int:
        """How many of them the last variance took."""
        return self._level.m if self.structured else len(self.candidates)

    def add(self, x: Array, y: Array, *, asked: bool = False) -> None:
        """Extend by one observation.

        Args:
            x: the point.
            y: what was measured, (q,).
            asked: whether `at` was called for x's context after the observation before. Its answer holds the row of L
                that x adds, which then takes O(n r) in the place of O(n^2). Where that is not at hand, `at` is called.
        """
        self.posterior.add(x, y, self._row(x) if asked else None)
        if self._wants_alpha:
            self._wants_alpha = False
            _ = self.posterior.alpha  # which the next step will want again, and the factor is in the caches now

    def at(self, z: Array) -> tuple[Array, Array]:
        """Return mean (M, q) and standard deviation (M,) of every candidate at the context z (n_z,)."""
        here = np.asarray(z, dtype=float)[None]
        if self._parts is None:
            return self._plain_at(here)
        if self._half_done:
            self._start()
        self._half_done = True  # where an interrupt ends it here
        self._answered, self._has_rows, self._parts_of_V = None, False, ()  # before there is memory taken for the next
        answer = self._structured_at(here, *self._parts)
        self._half_done = False
        return answer

    def _row(self, x: Array) -> Array | None:
        """Return the row L^-1 k(X, x) as V has it, or None where it does not, or x is no candidate."""
        n, theta, z = self.posterior.n, x[: self.n_theta], x[self.n_theta :]
        if self._parts is None or n % BLOCK == BLOCK - 1:  # a full block is computed in one piece
            return None
        place = self._basis.places.get(theta.tobytes())
        if place is None:
            return None
        if self._half_done or self._answered != (n, z.tobytes()):
            if not self._rounding.at(float(self._parts[1].diagonal(z[None])[0])).alpha:
                return None
            self.at(z)
        return self._basis.column(place, self._parts_of_V) if self._has_rows else None

    def _structured_at(self, here: Array, of_theta: Kernel, of_context: Kernel) -> tuple[Array, Array]:
        """Return what `at` does, for a product kernel and the context (1, n_z)."""
        prior = float(of_context.diagonal(here)[0])
        allowed = self._rounding.at(prior)
        self.in_groups = False
        if not allowed.structure:
            return self._plain_at(here)
        self._choose_basis(of_theta, allowed.features)
        self._extend()
        s = of_context.matrix(here, self.posterior.X[:, self.n_theta :])[0]
        levels = self._basis.levels[: self._serving]
        variance: Array | float = PROMISED * self._rounding.recent_variance if allowed.alpha and levels[1:] else 0.0
        while True:
            level = self._cheapest(levels, variance, prior)
            if not self.in_groups:
                self.in_groups = allowed.other_order and self._inverse.pays(self._work(level))
                if self.in_groups:  # V has all functions there, and the variance takes as many of them as it needs
                    level = self._cheapest(levels, variance, prior)
                parts = self._solve(level, s, allowed.other_order)
            variance = self._basis.variance(level, parts, prior)
            if self._basis.serves(level, variance, prior):
                break
            levels = levels[: levels.index(level)]
        self._level, self._solved = level, self._basis.finest if self.in_groups else level
        self._wants_alpha = self._solved is not self._basis.finest
        self._has_rows = allowed.alpha and not self._wants_alpha
        self._answered, self._parts_of_V = (self.posterior.n, here.tobytes()), parts if self._has_rows else ()
        mean = self._basis.sums(self._weights(self._solved, parts, s))
        least = allowed.least_of_features if self._basis is self._features else allowed.least_of_columns
        small = np.flatnonzero(variance < least)
        std = np.sqrt(np.maximum(variance, 0.0, out=variance), out=variance)
        if small.size:
            if small.size == 1 < len(self.candidates):  # BLAS substitutes for one in another order than for several
                small = np.repeat(small, 2)
            mean[small], std[small] = self._plain_at(here, small)
        return mean, std

    def _plain_at(self, here: Array, which: Indices | slice = slice(None)) -> tuple[Array, Array]:
        """Return the plain posterior's answer for all candidates, or some."""
        theta = self.candidates[which]
        return self.posterior.predict(np.hstack([theta, np.broadcast_to(here, (len(theta), here.shape[1]))]))

    def _cheapest(self, levels: list[Level], variance: Array | float, prior: float) -> Level:
        """Return the one of these levels that serves such variances with the least work."""
        return min((level for level in levels if self._basis.serves(level, variance, prior)), key=self._work)

    def _work(self, level: Level) -> float:
        """Return what a solve for a level takes, and alpha where the mean wants it, in right-hand sides."""
        if level is self._basis.finest or self.in_groups:
            return level.work
        of_alpha: float = WORK_OF_ALPHA * self.posterior.Y.shape[1]
        return level.work + of_alpha

    def _solve(self, level: Level, s: Array, other_order: bool) -> Parts:
        """Return V' of a level's functions, or of the large and the small ones, in memory that the next call reuses."""
        if not other_order:
            return (self.posterior.factor.solve(self._table.times(s, 0, level.m)).T,)
        if self.in_groups:
            return self._solve_in_groups(s)
        return tuple(table.panels.solve(table.times(s, *which)).T for table, which in self._tables(level))

    def _solve_in_groups(self, s: Array) -> Parts:
        """Return V' of all functions in the same way: of full blocks by sums within groups, then by the solve."""
        L, n, done = self.posterior.factor.L, self.posterior.n, self._inverse.n
        tables = self._tables(self._basis.finest)
        parts = tuple(table.room(*which).reshape(-1, n) for table, which in tables)  # the room for V, taken for V'
        self._inverse.times(s[:done], self.posterior.X[:, : self.n_theta], tuple(V[:, :done] for V in parts))
        for V, (table, which) in zip(parts, tables, strict=True):
            if done < n:
                last = L[done:].astype(V.dtype, copy=False)
                rest = table.columns(*which)[done:] * s[done:, None].astype(V.dtype) - last[:, :done] @ V[:, :done].T
                substitute = lapack.dtrtrs if V.dtype == np.float64 else lapack.strtrs
                V[:, done:] = substitute(last[:, done:], rest, lower=1)[0].T
        return parts

    def _weights(self, level: Level, parts: Parts, s: Array) -> Array:
        """Return the weights of all functions in the mean, (m, q): V' W, or T' diag(s) alpha at a coarser level."""
        finest = self._basis.finest
        if level is finest:
            rows, functions = self.posterior.W.T, [V.T for V in parts]
        else:
            rows, functions = (
                self.posterior.alpha.T * s,
                [table.columns(*which) for table, which in self._tables(finest)],
            )
        # few rows on the left: BLAS copies less than with few columns on the right
        return np.concatenate([rows.astype(B.dtype, copy=False) @ B for B in functions], axis=1).T

    def _tables(self, level: Level) -> list[tuple[Table, tuple[int, int]]]:
        """Return the tables of a level's functions, and which of them it takes from each."""
        large, small = (self._table, (0, level.large)), (self._small, (level.large, level.m))
        return [large, small] if level.large < level.m else [large]

    def _choose_basis(self, kernel: Kernel, accurate: bool) -> None:
        """Take features where they are accurate, serve and pay, and the columns of the kernel of theta elsewhere."""
        n = self.posterior.n
        if n >= FIRST and accurate and self._found_for != self._rounding.tolerances():
            self._search(kernel, *self._rounding.tolerances())
        if self._features is not None:
            self._serve(self.posterior.X[:, : self.n_theta])
        basis: Columns | Features = self._columns
        if self._features is not None and accurate and n >= self._features.pays_from:
            basis = self._features
        if basis is not self._basis:
            self._take(basis)

    def _search(self, kernel: Kernel, tolerance: float, small: float) -> None:
        """Look for features: once, and again without single precision once data contradict each other."""
        self._found_for = tolerance, small
        if self._features is not None:
            self._kept.pop(self._features, None)
        self._features, self._served, self._serving = None, 0, len(LEVELS)
        limit = min(len(self.candidates) // 3, MAX_RANK)
        if limit > 0 and all(factor.family in SMOOTH for factor in kernel.factors):
            self._features = find(kernel, self.candidates, tolerance, limit, small)

    def _serve(self, theta: Array) -> None:
        """Give levels up that do not serve an observation off the candidates, and the features if none does."""
        while self._features is not None and self._served < len(theta):
            serving = self._features.serving(theta[self._served])
            if serving == 0:
                self._features = None
            else:
                self._serving = min(self._serving, serving)
            self._served += 1

    def _extend(self) -> None:
        """Bring the tables up to the observations."""
        theta = self.posterior.X[:, : self.n_theta]
        if self._table.n < len(theta):
            rows = self._basis.rows(theta[self._table.n :])
            self._table.append(rows)
            self._small.append(rows)
            self._inverse.sort(theta)

    def _take(self, basis: Columns | Features) -> None:
        """Go on with a basis, and with the tables that it has from before, which `_extend` brings up to date."""
        self._basis = basis
        self._level = self._solved = basis.finest
        if basis not in self._kept:
            small = [level.large for level in basis.levels if level.large < level.m]
            self._kept[basis] = (
                Table(0, max(level.large for level in basis.levels), self._panels),
                Table(min(small, default=basis.m), basis.m, self._small_panels),
                GroupedInverse(self.posterior.factor, basis),
            )
        self._table, self._small = self._kept[basis][:2]
        self._inverse: GroupedInverse = self._kept[basis][2]
