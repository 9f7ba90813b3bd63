"""The posterior at one context as a function of theta, with its gradient: what the search over theta climbs about on.

At a fixed z the kernel k((theta, z), (theta', z')) = k_theta(theta, theta') k_z(z, z') is its first factor times one
number for each observation, and gradients are a few products of matrices: with u = (theta - 1/2) / l, b_i the same of
observation i, and any weights w,

    d/du_j sum_i w_i phi(|u - b_i|^2) = 2 (u_j sum_i w_i phi' - sum_i w_i phi' b_ij)

    theta (m, n_theta)    mean, std (q, m) in plant units    gradients (q, m, n_theta), zero for choices

Distances come from inner products here, unlike in `pdcbo.kernels`: good to about 1e-12, which is all a search needs.
"""

from __future__ import annotations

import numpy as np

from pdcbo.fit import Hyperparameters
from pdcbo.gp import Posterior
from pdcbo.kernels import STATIONARY
from pdcbo.problem import Array

Group = tuple[list[int], Posterior]


class Section:
    """All outputs at the context z.

    Args:
        groups: the outputs that share a posterior, and that posterior, in standardised units.
        hyper: each output's hyper-parameters.
        z: the context.
    """

    def __init__(self, groups: list[Group], hyper: list[Hyperparameters], z: Array) -> None:
        self.hyper = hyper
        self._parts = [(group, _Part(posterior, z)) for group, posterior in groups]
        self._slopes = [np.array(h.slope[: -len(z) or None]) if h.slope else None for h in hyper]
        here = np.concatenate([np.full(groups[0][1].X.shape[1] - len(z), 0.5), z])
        self._centre = [float(h.prior_mean(here)) for h in hyper]

    def predict(self, theta: Array) -> tuple[Array, Array]:
        """Return mean and std, (q, m) each."""
        mean, std = np.empty((2, len(self.hyper), len(theta)))
        for group, part in self._parts:
            part_mean, part_std = part.predict(theta)
            for j, i in enumerate(group):
                h = self.hyper[i]
                mean[i] = self._prior_mean(i, theta) + h.scale * part_mean[:, j]
                std[i] = h.scale * part_std
                if h.compression is not None:
                    mean[i], std[i] = h.compression.moments(mean[i], std[i])[:2]
        return mean, std

    def predict_gradient(self, theta: Array) -> tuple[Array, Array, Array, Array]:
        """Return mean and std, (q, m) each, and their gradients, (q, m, n_theta) each."""
        mean, std = np.empty((2, len(self.hyper), len(theta)))
        d_mean, d_std = np.empty((2, len(self.hyper), *theta.shape))
        for group, part in self._parts:
            part_mean, part_std, part_d_mean, part_d_std = part.predict_gradient(theta)
            for j, i in enumerate(group):
                scale, slope = self.hyper[i].scale, self._slopes[i]
                mean[i] = self._prior_mean(i, theta) + scale * part_mean[:, j]
                std[i] = scale * part_std
                d_mean[i] = scale * part_d_mean[j] + (0.0 if slope is None else slope)
                d_std[i] = scale * part_d_std
                compression = self.hyper[i].compression
                if compression is not None:
                    y = compression.moments(mean[i], std[i])
                    mean[i], std[i] = y.mean, y.std
                    d_mean[i], d_std[i] = (
                        y.mean_by_mean[:, None] * d_mean[i] + y.mean_by_std[:, None] * d_std[i],
                        y.std_by_mean[:, None] * d_mean[i] + y.std_by_std[:, None] * d_std[i],
                    )
        return mean, std, d_mean, d_std

    def _prior_mean(self, output: int, theta: Array) -> Array | float:
        slope = self._slopes[output]
        return self._centre[output] + (0.0 if slope is None else (theta - 0.5) @ slope)


class _Part:
    """The outputs that share one posterior."""

    def __init__(self, posterior: Posterior, z: Array) -> None:
        kernel, X = posterior.kernel, posterior.X
        self.factor = posterior.factor
        self.alpha = posterior.alpha
        theta_factor, *context_factors = kernel.factors
        here = np.concatenate([np.zeros(X.shape[1] - len(z)), z])[None]
        self.of_context = np.full(len(X), kernel.variance)
        self.prior = kernel.variance
        for factor in context_factors:
            self.of_context *= factor.matrix(here, X)[0]
            self.prior *= float(factor.diagonal(here)[0])
        self.family = theta_factor.family
        scales = dict(zip(theta_factor.columns, theta_factor.length_scales, strict=True))
        self.choices = [(c, X[:, c], scales[c] ** -2.0) for c in sorted(theta_factor.choices)]
        self.columns = [c for c in theta_factor.columns if c not in theta_factor.choices]
        self.lengths = np.array([scales[c] for c in self.columns])
        self.B = (X[:, self.columns] - 0.5) / self.lengths
        self.squares = np.einsum("nj,nj->n", self.B, self.B)

    def predict(self, theta: Array) -> tuple[Array, Array]:
        """Return mean (m, g) and std (m,)."""
        u, k, _ = self._kernel(theta, slopes=False)
        V = self.factor.solve(k.T, overwrite=False)
        return k @ self.alpha, np.sqrt(np.maximum(self._variance(theta, u, V), 0.0))

    def predict_gradient(self, theta: Array) -> tuple[Array, Array, Array, Array]:
        """Return mean (m, g), std (m,) and the gradients of the means, (g, m, n_theta), and of std, (m, n_theta)."""
        u, k, slope = self._kernel(theta, slopes=True)
        V = self.factor.solve(k.T)
        std = np.sqrt(np.maximum(self._variance(theta, u, V), 1e-300))
        weights = np.empty((self.alpha.shape[1] + 1, *k.shape))
        np.multiply(slope, self.alpha.T[:, None], out=weights[:-1])
        np.multiply(slope, self.factor.solve_transposed(V, overwrite=True).T, out=weights[-1])
        gradient = np.zeros((len(weights), *theta.shape))
        gradient[..., self.columns] = self._sums(u, weights)
        d_std = gradient[-1] / -std[:, None]  # the variance falls by twice the sum, and d std = d variance / (2 std)
        if self.family == "linear":
            d_std[:, self.columns] += self.prior * u / self.lengths / std[:, None]
        return k @ self.alpha, std, gradient[:-1], d_std

    def _kernel(self, theta: Array, *, slopes: bool) -> tuple[Array, Array, Array]:
        """Return u (m, d), k (m, n), and dk / d r^2, or dk / d(u'b) for the linear family."""
        u = (theta[:, self.columns] - 0.5) / self.lengths
        total = u @ self.B.T
        if self.family == "linear":
            total += 1.0
        else:
            total *= -2.0
            total += np.einsum("mj,mj->m", u, u)[:, None]
            total += self.squares
            np.maximum(total, 0.0, out=total)
        for column, values, square in self.choices:
            equal = theta[:, column, None] == values
            total += square * (equal if self.family == "linear" else ~equal)
        if self.family == "linear":
            return u, total * self.of_context, np.broadcast_to(self.of_context, total.shape)
        phi, slope = STATIONARY[self.family]
        k = phi(total)
        s = slope(total, k) * self.of_context if slopes else k
        return u, k * self.of_context, s

    def _variance(self, theta: Array, u: Array, V: Array) -> Array:
        prior = np.full(len(theta), self.prior)
        if self.family == "linear":
            prior *= 1.0 + np.einsum("mj,mj->m", u, u) + sum(square for _, _, square in self.choices)
        return np.asarray(prior - np.einsum("nm,nm->m", V, V))

    def _sums(self, u: Array, weights: Array) -> Array:
        """Return the sums over the observations, (g, m, d), with weights that hold dk / d r^2 already, (g, m, n)."""
        g, m, n = weights.shape
        sums = (weights.reshape(g * m, n) @ self.B).reshape(g, m, u.shape[1])
        if self.family != "linear":
            sums = 2.0 * (u * weights.sum(axis=2)[..., None] - sums)
        return np.asarray(sums / self.lengths)
