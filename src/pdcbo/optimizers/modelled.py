"""What optimizers with Gaussian-process models share: the data, the search over theta, the model-based certificate."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping
from math import sqrt
from typing import Any

import numpy as np

from pdcbo.certificates import mean_norm, neighbour_noise, summed_posterior
from pdcbo.confidence import beta_sqrt, largest_variance, lower_bound, upper_bound
from pdcbo.gp import Posterior
from pdcbo.kernels import Kernel
from pdcbo.model import Model
from pdcbo.models import Models
from pdcbo.optimizers.assurance import GBound
from pdcbo.optimizers.base import Bounds, Optimizer
from pdcbo.optimizers.ledger import Step
from pdcbo.optimizers.uninterrupted import uninterrupted
from pdcbo.problem import Array, Problem, Values, as_positive, as_whole
from pdcbo.search import Draw, Score, grid, lowest, multi_start

# From how many measurements on the noise is estimated at all, and from how many the learned one is believed.
LEAST_ROWS, TRUSTED_ROWS = 10, 100
# posterior standard deviations below this part of the prior's are rounding
SMALLEST = 1e-9


class ModelBased(Optimizer):
    """An optimizer that minimises a score of the posterior.

    Args:
        problem: see `Optimizer`.
        horizon: see `Optimizer`.
        seed: see `Optimizer`.
        delta: see `Optimizer`.
        models: one `Model` for all outputs, or output -> `Model`; by default hyper-parameters are learned.
        candidates: points a real parameter in the grid search, 0 for the gradient search, None to choose by dimension.
        beta_sqrt: beta^(1/2), the width of the confidence bounds in standard deviations.
        norm_bounds: C, the RKHS norm bound in plant units of every output, or output -> bound; where the model is
            given, it truncates the bounds and makes the posterior's certificate a guarantee.
        compress: whether learned models take values far on the bad side by their logarithm where the data are then
            clearly more likely (`pdcbo.compression`); by default PDCBO's default setting alone does.
    """

    default_beta_sqrt = 2.0

    def __init__(
        self,
        problem: Problem,
        *,
        horizon: int | None = None,
        seed: int = 0,
        delta: float = 0.05,
        models: Model | Mapping[str, Model] | None = None,
        candidates: int | None = None,
        beta_sqrt: float | None = None,
        norm_bounds: float | Mapping[str, float] | None = None,
        compress: bool | None = None,
    ) -> None:
        super().__init__(problem, horizon=horizon, seed=seed, delta=delta)
        if compress is not None and not isinstance(compress, bool | np.bool_):
            raise TypeError(f"compress must be True, False or None, got {compress!r}")
        self._given_compress = None if compress is None else bool(compress)
        if candidates is not None and (as_whole(candidates, "candidates") < 0 or candidates == 1):
            raise ValueError(f"candidates must be at least 2, or 0 for a search by gradients, got {candidates!r}")
        self._points = None if candidates is None else int(candidates)
        self._given_models = _models_from_json(models)
        self._given_beta = None if beta_sqrt is None else as_positive(beta_sqrt, "beta_sqrt")
        self._given_norms = (
            {name: as_positive(value, f"norm_bounds[{name!r}]") for name, value in norm_bounds.items()}
            if isinstance(norm_bounds, Mapping)
            else None
            if norm_bounds is None
            else as_positive(norm_bounds, "norm_bounds")
        )
        self.candidates = None if self._points == 0 else grid(problem, self._points)
        if self._points and self.candidates is None:
            raise ValueError(f"candidates = {candidates!r} makes a grid that is too large; use 0 for gradient search")
        self.models = Models(problem, self._given_models, candidates=self.candidates, compress=bool(compress))
        self.norm_bounds = self._norms(self._given_norms)
        self._cautious: dict[int, tuple[Posterior, Posterior]] = {}

    @uninterrupted
    def set_limits(self, limits: Values) -> None:
        """Change limits for suggestions asked from now on; `name: number`, or a `Constraint` for both sides."""
        super().set_limits(limits)
        self.models.take_limits(self.problem)

    @abstractmethod
    def _score(self, z: Array) -> Score:
        """Return the score that is minimised at context z."""

    # Algorithm

    def beta_sqrt(self) -> Array:
        """Return beta^(1/2) of each output, shape (q,)."""
        return np.full(self.models.q, self._given_beta or self.default_beta_sqrt)

    def lower_upper(self, mean: Array, std: Array) -> tuple[Array, Array]:
        """Return Lemma 1's bounds of every output in plant units, (q, m) each."""
        beta = self.beta_sqrt()[:, None]
        if self.norm_bounds is None:
            width = beta * std
            return mean - width, mean + width
        centre = np.array([h.mean for h in self.models.hyper])[:, None]
        known = zip(self.norm_bounds, self.models.hyper, self.models.specs, strict=True)
        ceiling = np.array(
            [math.inf if s.length_scales is None else c * self._largest_root(h.kernel) for c, h, s in known]
        )[:, None]
        lower = centre + lower_bound(mean - centre, std, beta, ceiling)
        upper = centre + upper_bound(mean - centre, std, beta, ceiling)
        return lower, np.maximum(lower, upper)  # which data that contradict C would put the other way round

    def _largest_root(self, kernel: Kernel) -> float:
        """Return the root of the largest k(x, x): there is none where it grows with a context beyond its range."""
        n_theta = self.problem.n_theta
        grows = any(f.family == "linear" and any(c >= n_theta for c in f.columns) for f in kernel.factors)
        return math.inf if grows else sqrt(largest_variance(kernel))

    def limit_bounds(self, lower: Array, upper: Array) -> tuple[Array, Array]:
        """Return the bounds of every limit's g, (N, m) each, from those of the outputs."""
        return self.limit_lower(lower, upper), self.limit_lower(upper, lower)

    def limit_lower(self, lower: Array, upper: Array) -> Array:
        """Return the lower bounds of every limit's g, (N, m): from the upper bound of what a lower limit limits."""
        if self.problem.upper_limits is not None:  # the usual case, in one piece
            return np.asarray(lower[1:] - self.problem.upper_limits)
        g = np.empty((len(self.problem.limits), lower.shape[1]))
        for i, limit in enumerate(self.problem.limits):
            if limit.sign > 0:
                np.subtract(lower[limit.output], limit.bound, out=g[i])
            else:
                np.subtract(limit.bound, upper[limit.output], out=g[i])
        return g

    def log_feasibility(self, mean: Array, std: Array) -> Array:
        """Return log prod_i Pr(g_i <= 0), shape (m,), from mean and std (q, m) of the outputs."""
        from scipy.special import log_ndtr  # imported here: it adds a third to the time to import the package

        total = np.zeros(mean.shape[1])
        for limit in self.problem.limits:
            i = limit.output
            total += log_ndtr(limit.sign * (limit.bound - mean[i]) / self.spread(std, i))
        return total

    def spread(self, std: Array, output: int) -> Array:
        """Return the standard deviation of an output, (m,), at least `SMALLEST` of its prior's."""
        return np.asarray(np.maximum(std[output], self.least_spread(output)))

    def least_spread(self, output: int) -> float:
        """Return the standard deviation below which rounding has the word: `SMALLEST` of the prior's."""
        hyper = self.models.hyper[output]
        return float(SMALLEST * hyper.scale * sqrt(hyper.kernel.variance))

    def _choose(self, z: Array, rng: Draw) -> tuple[Array, Bounds]:
        score = self._score(z)
        if self.candidates is None:
            theta = multi_start(self.models, z, score, rng(), self._incumbents())
            return theta, self.bounds_at(np.concatenate([theta, z]))
        mean, std = self.models.at(z)
        j = lowest(score(mean, std), self.candidates, rng)
        return self.candidates[j], self._bounds(mean[:, j], std[:, j])

    def sum_over(self, output: int, points: Array) -> tuple[float, float]:
        """Return mean and standard deviation of the sum of an output over points (m, d), in plant units."""
        h = self.models.hyper[output]
        if h.compression is not None:  # which has no posterior of a sum: as if the points were independent
            mean, std = self.models.predict(points)
            return float(mean[output].sum()), float(np.linalg.norm(std[output]))
        total, deviation = summed_posterior(*self.models.posterior(output), points)
        return float(h.prior_mean(points).sum()) + h.scale * total, h.scale * deviation

    def past_rows(self) -> int:
        """Return how many rows of past operation were learned from."""
        return self.models.n - sum(step.row is not None for step in self.ledger.steps.values())

    def bounds_at(self, x: Array) -> Bounds:
        """Return each output's confidence bounds in plant units at one point x = (theta, z) of the unit cube."""
        mean, std = self.models.predict(x[None])
        return self._bounds(mean[:, 0], std[:, 0])

    def _bounds(self, mean: Array, std: Array) -> Bounds:
        """Return Lemma 1's bounds of every output at one point, from its mean and std (q,)."""
        if self.norm_bounds is not None:
            return self._named(*self.lower_upper(mean[:, None], std[:, None]))
        # `lower_upper` in plain numbers, which for one point is several times faster
        known = zip(self.problem.outputs, mean.tolist(), self.beta_sqrt().tolist(), std.tolist(), strict=True)
        return {name: (m - beta * s, m + beta * s) for name, m, beta, s in known}

    def _named(self, lower: Array, upper: Array) -> Bounds:
        return dict(
            zip(self.problem.outputs, zip(lower[:, 0].tolist(), upper[:, 0].tolist(), strict=True), strict=True)
        )

    def _incumbents(self) -> Array:
        """Return the parameters of the latest steps, where the gradient search also starts."""
        rows = self.models.X[-32:, : self.problem.n_theta]
        return np.unique(rows, axis=0)

    # Data

    def _learn(self, x: Array, y: Array) -> int | None:
        return self.models.add(x, y, asked=self.ledger.proposed_last(x))

    def _relearn(self, row: int | None, x: Array, y: Array) -> int | None:
        if row is None:
            return self._learn(x, y)
        self.models.replace(row, y)
        return row

    # Certificate

    def noise_std(self, output: int) -> tuple[float | None, bool]:
        """Return the noise of a constraint quantity, stated or else learned, and whether the user stated it.

        Few measurements are often explained as a wild function without noise. So there is no estimate from fewer than
        `LEAST_ROWS` of them, and up to `TRUSTED_ROWS` the noise is taken to be all that makes them differ. Where values
        are compressed, rare spikes may pass for a wild function: then it is at least what makes neighbours differ.
        """
        stated, is_stated = super().noise_std(output)
        if is_stated:
            return stated, True
        rows, h = self.models.rows[output], self.models.hyper[output]
        learned, y = h.noise_std, self.models.Y[rows, output]
        if h.compression is not None:  # the noise of compressed values, whose variance falls with the slope squared
            slopes = np.exp(h.compression.log_slope(y))
            learned = max(learned / sqrt(float(np.mean(slopes**2))), neighbour_noise(self.models.X[rows], y))
        if self.models.specs[output].length_scales is not None or len(rows) >= TRUSTED_ROWS:
            return learned, False
        if len(rows) < LEAST_ROWS:
            return None, False
        return max(learned, float(np.std(y, ddof=1))), False

    def _cautious_posterior(self, output: int, noise_std: float) -> tuple[Posterior, int]:
        """Return the posterior and the output's column there, with the noise that the certificate assumes.

        Lemma 1 holds for any lambda; one far below the noise makes beta large, and with it the bound.
        """
        posterior, column = self.models.posterior(output)
        noise_var = (noise_std / self.models.hyper[output].scale) ** 2
        if noise_var <= (1.0 + 1e-9) * posterior.noise_var:  # but for rounding
            return posterior, column
        known = self._cautious.get(output)
        if known is None or known[0] is not posterior or (known[1].n, known[1].noise_var) != (posterior.n, noise_var):
            built = Posterior.build(posterior.kernel, noise_var, posterior.X, posterior.Y[:, [column]])
            known = self._cautious[output] = (posterior, built)
        return known[1], 0

    def _lemma_beta(self, output: int, delta: float, noise_std: float, cautious: Posterior) -> tuple[float, str, bool]:
        """Return Lemma 1's beta^(1/2) in standardised units with its assumption."""
        posterior, column = self.models.posterior(output)
        h, stated = self.models.hyper[output], self.noise_std(output)[1]
        if self.norm_bounds is not None and math.isfinite(self.norm_bounds[output]):
            norm, guaranteed = self.norm_bounds[output] / h.scale, stated
            words = f"RKHS norm at most {self.norm_bounds[output]:.3g} (stated)"
        else:
            norm, guaranteed = 2.0 * max(mean_norm(posterior, column), 1.0), False
            words = f"RKHS norm at most {norm * h.scale:.3g} (twice that of the posterior mean)"
        words += f", noise {noise_std:.3g} ({'stated' if stated else 'estimated'}), kernel as learned or given"
        functions = max(self.models.q - 1, 1)
        beta = beta_sqrt(norm, noise_std / h.scale, cautious.noise_var, cautious.information_gain, functions, delta)
        guaranteed = guaranteed and self.models.specs[output].length_scales is not None
        if self.models.forgot(output):  # each time it forgets, Lemma 1 starts anew
            words, guaranteed = f"{words}, the latest measurements only", False
        return beta, words, guaranteed

    def _sum_bound(self, index: int, points: Array, bounds: list[float], delta: float) -> GBound:
        """Return Lemma 1's bound on the sum of g over points, against the given limits."""
        limit = self.problem.limits[index]
        noise_std, _ = self.noise_std(limit.output)
        assert noise_std is not None  # or there is no posterior bound
        posterior, column = self._cautious_posterior(limit.output, noise_std)
        beta, words, guaranteed = self._lemma_beta(limit.output, delta, noise_std, posterior)
        h = self.models.hyper[limit.output]
        mean, std = summed_posterior(posterior, column, points)
        total = float(h.prior_mean(points).sum()) + h.scale * mean
        return limit.sign * (total - sum(bounds)) + beta * h.scale * std, words, guaranteed

    def _has_posterior(self, index: int) -> bool:
        """Tell whether the sum of g over points has a bound: data, a known noise, and a model of y itself."""
        output = self.problem.limits[index].output
        known = bool(self.models.rows[output]) and self.noise_std(output)[0] is not None
        return known and self.models.hyper[output].compression is None

    def _posterior_bound(self, index: int, history: list[Step], delta: float) -> GBound | None:
        if not history or not self._has_posterior(index):
            return None
        points = np.array([step.x for step in history])
        value, words, guaranteed = self._sum_bound(index, points, [s.limits[index] for s in history], delta)
        return value / len(history), words, guaranteed

    def _unmeasured_bound(self, index: int, steps: list[Step], alpha: float) -> GBound | None:
        if not self._has_posterior(index):
            return None
        points, bounds = np.array([step.x for step in steps]), [step.limits[index] for step in steps]
        # Lemma 1 is joint over the constraints by itself, so that their shares are added up again.
        return self._sum_bound(index, points, bounds, alpha * len(self.problem.limits))

    # State

    def _settings(self) -> dict[str, Any]:
        return {
            "models": models_to_json(self._given_models),
            "candidates": self._points,
            "beta_sqrt": self._given_beta,
            "norm_bounds": dict(self._given_norms) if isinstance(self._given_norms, Mapping) else self._given_norms,
            "compress": self._given_compress,
        }

    def _extra_state(self) -> dict[str, Any]:
        return {"models": self.models.state()}

    def _restore_extra(self, state: Mapping[str, Any]) -> None:
        self.models.restore(state["models"])

    def _norms(self, given: float | Mapping[str, float] | None) -> list[float] | None:
        if given is None:
            return None
        if isinstance(given, Mapping):
            unknown = [name for name in given if name not in self.problem.outputs]
            if unknown:
                raise ValueError(
                    f"norm_bounds[{unknown[0]!r}] is unknown; the outputs are {list(self.problem.outputs)!r}"
                )
            return [given.get(name, math.inf) for name in self.problem.outputs]
        return [given] * len(self.problem.outputs)


def models_to_json(models: Any) -> Any:
    """Describe a model, or one for each output, in JSON; what is in JSON already goes through as it is."""
    if isinstance(models, Model):
        return models.to_json()
    return {name: models_to_json(m) for name, m in models.items()} if isinstance(models, Mapping) else models


def _models_from_json(models: Any) -> Model | Mapping[str, Model] | None:
    """Read what `models_to_json` wrote; what users pass goes through as it is."""
    if not isinstance(models, Mapping):
        as_given: Model | None = models
        return as_given
    if "kernel" in models and isinstance(models["kernel"], str):
        return Model(**models)
    return {name: Model(**m) if isinstance(m, Mapping) else m for name, m in models.items()}
