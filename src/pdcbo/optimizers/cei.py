"""Constrained expected improvement: Gardner et al. (ICML 2014) and Gelbart, Snoek and Adams (UAI 2014), with context.

    theta_t = argmax  EI(theta, z_t) prod_i Pr(g_i(theta, z_t) <= 0)           Gardner's and Gelbart's acquisition
    EI = std h(u),  h(u) = phi(u) + u Phi(u),  u = (best - mean) / std         expected improvement on `best`
    Pr(g_i <= 0) = Phi(-mean_i / std_i)                                        probability of feasibility

`best` is the incumbent. Measurements are noisy and each context has its own optimum, so it is Gelbart's choice at the
*present* context: the lowest posterior mean among the candidates that meet all limits with probability `confidence`.
Where no candidate does, improvement has no meaning yet and, as Gelbart has it, the probability of feasibility alone is
maximised.

Products of small probabilities underflow a few standard deviations away from feasibility, where the argmax would then
be arbitrary, so everything is in logarithms, log h in the manner of LogEI (Ament et al., NeurIPS 2023).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from pdcbo.model import Model
from pdcbo.optimizers.modelled import ModelBased
from pdcbo.problem import Array, Problem, as_number
from pdcbo.search import Score

HALF_LOG_2PI = 0.5 * math.log(2.0 * math.pi)
HALF_LOG_PI_2 = 0.5 * math.log(0.5 * math.pi)


def log_h(u: Array) -> Array:
    """Return log(phi(u) + u Phi(u)) without loss of digits for any u."""
    from scipy.special import erfcx, ndtr  # imported here: it adds a third to the time to import the package

    middle, far = np.clip(u, -1e4, -1.0), np.minimum(u, -1e4)
    top = np.maximum(u, -1.0)
    near = np.log(np.exp(-0.5 * top * top - HALF_LOG_2PI) + top * ndtr(top))
    # phi + u Phi = phi (1 - sqrt(pi/2) |u| erfcx(|u| / sqrt(2))), whose bracket tends to 1 / u^2
    bracket = np.log(-middle) + HALF_LOG_PI_2 + np.log(erfcx(-middle / math.sqrt(2.0)))
    deep = -0.5 * middle * middle - HALF_LOG_2PI + np.log(-np.expm1(np.minimum(bracket, -1e-17)))
    return np.where(u > -1.0, near, np.where(u > -1e4, deep, -0.5 * far * far - HALF_LOG_2PI - 2.0 * np.log(-far)))


class CEI(ModelBased):
    """Constrained expected improvement, in its best honest form.

    Args:
        problem: see `Optimizer`.
        horizon: see `Optimizer`.
        seed: see `Optimizer`.
        delta: see `Optimizer`.
        confidence: the probability with which the incumbent must meet all limits.
        published: act as the code published with the PDCBO paper does: the variance stands where the normal
            distribution takes a standard deviation, and one incumbent, the best feasible measurement so far, serves all
            contexts. For comparison only.
        models: see `ModelBased`.
        candidates: see `ModelBased`.
        beta_sqrt: the width of the bounds that a suggestion carries; it decides nothing here.
        norm_bounds: see `ModelBased`.
        compress: see `ModelBased`.
    """

    name = "cei"

    def __init__(
        self,
        problem: Problem,
        *,
        horizon: int | None = None,
        seed: int = 0,
        delta: float = 0.05,
        confidence: float = 0.95,
        published: bool = False,
        models: Model | Mapping[str, Model] | None = None,
        candidates: int | None = None,
        beta_sqrt: float | None = None,
        norm_bounds: float | Mapping[str, float] | None = None,
        compress: bool | None = None,
    ) -> None:
        super().__init__(
            problem, horizon=horizon, seed=seed, delta=delta, models=models, candidates=candidates,
            beta_sqrt=beta_sqrt, norm_bounds=norm_bounds, compress=compress,
        )  # fmt: skip
        if not 0.0 < as_number(confidence, "confidence") < 1.0:
            raise ValueError(f"confidence must lie between 0 and 1, got {confidence!r}")
        if not isinstance(published, bool | np.bool_):
            raise TypeError(f"published must be True or False, got {published!r}")
        self.confidence, self.published = float(confidence), bool(published)

    def incumbent(self, mean: Array, std: Array) -> float | None:
        """Return the cost to improve on, from all candidates' mean and std (q, m) at the present context."""
        if self.published:
            return self._best_measured()
        feasible = self.log_feasibility(mean, std) >= math.log(self.confidence)
        return float(mean[0, feasible].min()) if feasible.any() else None

    def _score(self, z: Array) -> Score:
        if self.candidates is not None:  # on the grid the score sees every candidate of this context
            return lambda mean, std: self._cei(mean, std, self.incumbent(mean, std))
        visited = self._incumbents()
        spread = np.random.default_rng([self.seed, self.models.n]).random((256, self.problem.n_theta))
        pool = self.problem.snap(np.vstack([visited, spread]))
        best = self.incumbent(*self.models.predict(np.hstack([pool, np.broadcast_to(z, (len(pool), len(z)))])))
        return lambda mean, std: self._cei(mean, std, best)

    def _cei(self, mean: Array, std: Array, best: float | None) -> Array:
        """Return the negated logarithm of what is maximised."""
        score = -self.log_feasibility(mean, std)
        if best is not None:
            spread = self.spread(std, 0)
            score -= np.log(spread) + log_h((best - mean[0]) / spread)
        return score

    def spread(self, std: Array, output: int) -> Array:
        """Return the standard deviation of an output; of a constraint as published, its variance."""
        spread = super().spread(std, output)
        if self.published and output:  # norm.cdf(0, mean, variance), in the standardised units of the model
            return np.asarray(spread**2 / self.models.hyper[output].scale)
        return spread

    def _best_measured(self) -> float | None:
        """Return the lowest measured cost among points whose measured values met all limits, in any context."""
        Y = self.models.Y
        feasible = ~np.isnan(Y[:, 0])
        for limit in self.problem.limits:
            feasible &= limit.sign * (Y[:, limit.output] - limit.bound) <= 0.0  # a missing value compares false
        return float(Y[feasible, 0].min()) if feasible.any() else None

    def _settings(self) -> dict[str, Any]:
        return {**super()._settings(), "confidence": self.confidence, "published": self.published}
