"""Few functions in the place of many candidates: k(c, c') = phi(c) . phi(c') with r features, r far below M.

A smooth kernel has low rank on the candidates, and pivoted Cholesky finds it: on the points u of an `Axis`,
k = R' R with rho rows R, where each row is a combination of the kernel's columns at rho pivots, and so is known at
every other point too. The rows are rotated until they are orthogonal, which makes as many of them as possible small.
Candidates on a grid are the product of two axes, and their features products of rows,

    phi_(s,t)(u, v) = R1_s(u) R2_t(v),

of which only those r are kept that matter: what the dropped ones could add anywhere is below the tolerance. Sums over
all candidates then go axis by axis, and cost next to nothing. Candidates that are no grid lie on one axis.

    R (rho, m)   features on the m points of an axis     pairs (s, t) (r,)   the products that are kept, by size
    mu (r, q)    weights of q functions                  H (r, r)            a quadratic form, its lower triangle
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pdcbo import lapack
from pdcbo.axis import Axis
from pdcbo.basis import Basis, Indices, Level, Parts
from pdcbo.kernels import Factor, Kernel
from pdcbo.problem import Array

# The shares of the tolerance that the pivots of an axis may leave, and that the dropped features may have.
PIVOTS, DROPPED = 0.02, 0.02
# The width of BLAS kernels: a solve with 56 right-hand sides takes less time than one with 54.
WIDTH = 8
# What the features may leave of the kernel between an observation off the candidates and these, in tolerances; what
# hundreds of these leave adds up in the mean (tests).
OFF = 0.2
# The tolerances of the levels, relative to that of the finest.
LEVELS = (1.0, 33.0, 3300.0, 83000.0, 470000.0)
# What a coarser level may change a standard deviation by, relative to it (tests), and what single precision leaves of
# a variance, relative to the squares of its features: a rounding or two.
ACCURACY, ROUNDING = 2e-8, 1e-7
# Fewer small features than this are solved for faster together with the others.
ENOUGH = 24


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


class Features(Basis):
    """The features of a kernel on candidates that lie on one axis, the largest first."""

    def __init__(self, kernel: Kernel, candidates: Array, tolerance: float, axis: Axis, small: float) -> None:
        super().__init__(kernel, candidates)
        self.axis = axis
        self._kept = self._keep(tolerance, axis.R, small)

    def _keep(self, tolerance: float, phi: Array, small: float) -> Indices:
        """Keep the largest rows of phi, so that the others add little anywhere; return which, the largest first."""
        sizes = _sizes(phi)
        order = np.argsort(sizes, kind="stable")
        sums = np.square(phi[order])
        left = np.cumsum(sums, axis=0, out=sums).max(axis=1)
        order = order[::-1]
        self.levels = []
        for factor in LEVELS:
            dropped = int(np.searchsorted(left, DROPPED * tolerance * factor))
            m = min(whole(len(order) - dropped), len(order))
            # single precision does for as many in the finest level, which is finer for the mean, as in the next one
            count = np.count_nonzero(sizes > small * max(factor / LEVELS[1], 1.0))
            large = min(whole(max(int(count), 1)), m)
            level = Level(factor, m, large if m - large >= ENOUGH else m)
            if not self.levels or level.work < self.levels[-1].work:
                self.levels.append(level)
        kept = order[: self.m]
        self.tolerance = tolerance
        self.phi = np.ascontiguousarray(phi[kept].T)
        # for each level, what its features leave of k(c, c), and k(c, c) without twice that
        self._left = {level: np.abs(self.diagonal - self._squares(0, level.m)) for level in self.levels}
        self._upper = {level: 2.0 * self._squares(0, level.m) - self.diagonal for level in self.levels}
        self._least = {
            level: (self._left[level] + ROUNDING * self._squares(level.large, level.m)) / ACCURACY
            for level in self.levels
        }
        # the same at the candidate that needs most, where a guess has one variance for all
        self._most = {level: float(least.max(initial=0.0)) for level, least in self._least.items()}
        return kept

    def _squares(self, begin: int, end: int) -> Array:
        """Return the sum of the squares of some features of each candidate, (M,)."""
        some = self.phi[:, begin:end]
        squares: Array = np.einsum("jr,jr->j", some, some)
        return squares

    def serves(self, level: Level, variance: Array | float, prior: float) -> bool:
        """Tell whether a level is accurate where the variances are these, (M,), at a context with this prior part."""
        if level is self.finest:
            return True
        if isinstance(variance, float):
            return variance >= prior * self._most[level]
        return bool(np.all(variance >= prior * self._least[level]))

    @property
    def pays_from(self) -> int:
        """The number of observations from which M r^2 for the quadratic forms is less than n^2 M for a full solve."""
        return self.m

    def rows(self, theta: Array) -> Array:
        """Return the features of points, shape (c, r): those of candidates are looked up and never computed."""
        places = [self.places.get(point.tobytes()) for point in theta]
        return np.array([self.at(x) if j is None else self.phi[j] for x, j in zip(theta, places, strict=True)])

    def at(self, point: Array) -> Array:
        """Compute the features of any point, shape (r,)."""
        return self.axis.at(point)[self._kept]

    def serving(self, point: Array) -> int:
        """Return how many of the levels, the finest first, give the kernel between a point and all candidates."""
        if point.tobytes() in self.places:
            return len(self.levels)
        row, features = self.kernel.matrix(point[None], self.candidates)[0], self.at(point)
        for i, level in enumerate(self.levels):
            error = np.abs(row - self.phi[:, : level.m] @ features[: level.m])
            # as small as between two candidates, where it is at most the root of what is left of both
            left = self._left[level]
            if np.any(error > np.maximum(OFF * self.tolerance, np.sqrt(left * left.max()))):
                return i
        return len(self.levels)

    def column(self, j: int, parts: Parts) -> Array:
        """Return candidate j's column of L^-1 k(X, candidates), (n,), given V' of all features."""
        V, phi = parts[0], self.phi[j]
        column: Array = phi[: len(V)] @ V
        for v in parts[1:]:
            column += phi[len(V) :].astype(v.dtype) @ v
        return column

    def variance(self, level: Level, parts: Parts, prior: float) -> Array:
        """Return the variance (M,) at a context whose part of the prior variance is `prior`."""
        variance: Array = self._upper[level] * prior - self.quadratic_forms(self._gram(parts, level.m), level.m)
        return variance

    def _gram(self, parts: Parts, m: int) -> Array:
        """Return H (r, r), whose first m rows and columns hold the lower triangle of V' V, and the others nothing.

        What belongs to small features alone is computed in single precision.
        """
        V = parts[0][:m]
        large = len(V)
        H = np.empty((self.m, self.m))
        H[:large, :large] = V @ V.T
        if large < m:
            v = parts[1][: m - large]
            H[large:m, :large] = v.astype(np.float64) @ V.T
            H[large:m, large:m] = v @ v.T
        return H

    def sums(self, mu: Array) -> Array:
        """Return phi_j . mu for each candidate, shape (M, q)."""
        return self.phi @ mu

    def quadratic_forms(self, H: Array, m: int) -> Array:
        """Return phi_j' H phi_j with the first m features, those of a level, (M,); H's lower triangle is read."""
        H, phi = H[:m, :m].copy(), self.phi[:, :m]
        np.fill_diagonal(H, 0.5 * np.diagonal(H))
        half = lapack.dtrmm(2.0, H.T, phi.T).T
        forms: Array = np.einsum("jr,jr->j", half, phi)
        return forms


class GridFeatures(Features):
    """The features of a kernel on candidates that are the product of two axes."""

    def __init__(
        self,
        kernel: Kernel,
        candidates: Array,
        tolerance: float,
        axes: tuple[Axis, Axis],
        n: int,
        index: Indices,
        small: float,
    ) -> None:
        Basis.__init__(self, kernel, candidates)
        self.axes = axes
        self.columns_of_u = n
        R1, R2 = axes[0].R, axes[1].R
        sizes = product_sizes(*axes).T
        products = np.flatnonzero(sizes > DROPPED * tolerance / sizes.size)
        t, s = np.divmod(products, len(R1))
        phi = (R1[s][:, :, None] * R2[t][:, None, :]).reshape(len(products), -1)[:, index]
        kept = self._keep(tolerance, phi, small)
        self.s, self.t = s[kept], t[kept]
        # where each candidate stands in the product of the axes; a slice spares a copy
        self._places = slice(None) if np.array_equal(index, np.arange(len(index))) else index
        self._forms = {level.m: _Forms.of(R1, R2, self.s, self.t, level.m) for level in self.levels}

    @property
    def pays_from(self) -> int:
        """The number of observations from which features pay: always, since quadratic forms go axis by axis."""
        return 0

    @property
    def runs(self) -> list[tuple[int, Indices, Indices]]:
        """The products sorted by t: each t, the s of its products, and which these are."""
        return [(int(t), self.s[self.t == t], np.flatnonzero(self.t == t)) for t in np.unique(self.t)]

    def outer(self, u: Array) -> Array:
        """Return the features of the first axis at a point, shape (rho1,)."""
        return self.axes[0].look_up(u)

    def inner(self, v: Array) -> Array:
        """Return the features of the second axis at a point, shape (rho2,)."""
        return self.axes[1].look_up(v)

    def at(self, point: Array) -> Array:
        """Compute the features of any point, shape (r,)."""
        first, second = self.axes
        n = self.columns_of_u
        return first.at(point[:n])[self.s] * second.at(point[n:])[self.t]

    def sums(self, mu: Array) -> Array:
        """Return phi_j . mu for each candidate, shape (M, q): one axis, then the other."""
        R1, R2 = self.axes[0].R, self.axes[1].R
        padded = np.zeros((mu.shape[1], len(R1), len(R2)))
        padded[:, self.s, self.t] = mu.T
        return (R1.T @ padded @ R2).reshape(len(padded), -1)[:, self._places].T

    def quadratic_forms(self, H: Array, m: int) -> Array:
        """Return phi_j' H phi_j with the first m features, those of a level, (M,); H's lower triangle is read.

        With j = (u, v): the sum over s <= s' and t <= t' of R1_s(u) R1_s'(u) G R2_t(v) R2_t'(v), where G collects all
        entries of H that belong to s, s', t and t'.
        """
        forms = self._forms[m]
        n1, n2 = len(forms.products1), len(forms.products2)
        G = np.bincount(forms.cells, H.take(forms.entries) * forms.weights, n1 * n2).reshape(n1, n2)
        return (forms.products1.T @ (G @ forms.products2)).ravel()[self._places]


class _Forms(NamedTuple):
    """Where the entries of H below the diagonal go: each belongs to one product of R1 with itself and one of R2."""

    entries: Indices
    weights: Array
    cells: Indices
    products1: Array
    products2: Array

    @classmethod
    def of(cls, R1: Array, R2: Array, s: Indices, t: Indices, m: int) -> _Forms:
        """Return it for the first m of the products (s, t)."""
        a, b = np.tril_indices(m)
        products1, first = _products(R1, s[a], s[b])
        products2, second = _products(R2, t[a], t[b])
        weights = np.where(a == b, 1.0, 2.0)
        return cls(a * len(s) + b, weights, first * len(products2) + second, products1, products2)


def find(kernel: Kernel, candidates: Array, tolerance: float, limit: int, small: float = 0.0) -> Features | None:
    """Return at most `limit` features whose products give k between all candidates to `tolerance`, or None.

    Single precision does for those whose square is below `small`, and for more at coarser levels.
    """
    for n in range(1, candidates.shape[1]):
        parts = split(kernel, n)
        if parts is None:
            continue
        (points1, index1), (points2, index2) = _distinct(candidates[:, :n]), _distinct(candidates[:, n:])
        index = index1 * len(points2) + index2
        if len(points1) * len(points2) != len(candidates) or len(np.unique(index)) != len(candidates):
            continue
        share = PIVOTS * tolerance
        first = Axis.find(parts[0], points1, share, len(points1))
        second = Axis.find(parts[1], points2, share / float(parts[0].diagonal(points1).max()), len(points2))
        if first is None or second is None:
            return None
        if np.count_nonzero(product_sizes(first, second) > DROPPED * tolerance) > limit:
            return None
        grid = GridFeatures(kernel, candidates, tolerance, (first, second), n, index, small)
        return grid if grid.m <= limit else None
    axis = Axis.find(kernel, candidates, PIVOTS * tolerance, limit)
    return None if axis is None else Features(kernel, candidates, tolerance, axis, small)


def _distinct(points: Array) -> tuple[Array, Indices]:
    distinct, index = np.unique(points, axis=0, return_inverse=True)
    return distinct, index.ravel().astype(np.intp)


def product_sizes(first: Axis, second: Axis) -> Array:
    """Return the largest square of each product of a feature of one axis with one of the other, (rho1, rho2)."""
    return np.multiply.outer(_sizes(first.R), _sizes(second.R))


def _sizes(R: Array) -> Array:
    """Return the largest square in each row."""
    sizes: Array = np.maximum(R.max(axis=1), -R.min(axis=1)) ** 2
    return sizes


def whole(count: int) -> int:
    """Return the next multiple of `WIDTH`."""
    return -(-count // WIDTH) * WIDTH


def _products(R: Array, s: Indices, t: Indices) -> tuple[Array, Indices]:
    """Return the distinct products R_s R_t, one a row, and for each pair (s, t) the row that holds its product."""
    pairs, row = np.unique(np.minimum(s, t) * len(R) + np.maximum(s, t), return_inverse=True)
    low, high = np.divmod(pairs, len(R))
    return R[low] * R[high], row.ravel()
