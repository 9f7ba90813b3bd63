"""SafeOpt with contexts: Sui et al. (ICML 2015), Berkenkamp, Krause and Schoellig (Machine Learning, 2021).

Every step must meet every limit with high probability. The sets have the papers' names; the bounds l and u come from
the posterior alone, without a Lipschitz constant, as in Berkenkamp's version. At the context z_t at hand:

    S  safe set      u_i(theta, z_t) <= 0 for every limit, and the safe seed S_0
    M  minimisers    theta in S with l_f(theta, z_t) <= min over S of u_f (maximisers in the papers)
    G  expanders     theta in S where an optimistic measurement, g_i = l_i, would make an unsafe candidate safe
    theta_t = argmax over M and G of the width max_i (u_i - l_i) / prior std_i

As in the authors' implementation, a point is looked at as an expander only if it is more uncertain than every
minimiser, since it would not be chosen otherwise. Of these the `CHECKED` most uncertain are tried, all at once: with
posterior covariance c between a trial point j and an unsafe candidate, a measurement y at j gives

    mean' = mean + c (y - mean_j) / (var_j + noise_var),    var' = var - c^2 / (var_j + noise_var)

and only the `NEAREST` unsafe candidates that can become safe at all (l_i <= 0) and lack least are looked at. Unlike in
the authors' implementation, one and the same candidate must become safe in all limits.

Where a grid would be too coarse the candidates are a low-discrepancy set, and what Safe-UCB chooses there is refined:
rounds of random points about it, ever nearer, of which the best that is safe takes its place.

Where S is empty there is no safe choice: the most probably feasible candidate is taken; `notes()` counts such steps.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from copy import deepcopy
from typing import Any

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from pdcbo.model import Model
from pdcbo.models import Models
from pdcbo.optimizers.base import Bounds
from pdcbo.optimizers.ledger import Step
from pdcbo.optimizers.modelled import ModelBased
from pdcbo.problem import Array, Problem
from pdcbo.search import Draw, Score, lowest

CHECKED = 8
NEAREST = 200
SPREAD = 2048
ROUNDS, PER_ROUND = 6, 128  # of the refinement; its radius is halved with each, from an eighth of the box

Mask = NDArray[np.bool_]
Index = NDArray[np.intp]
Seed = tuple[int, Array | None]  # the candidate's index, and the context it is safe in, None for every one


class SafeOpt(ModelBased):
    """Safe Bayesian optimisation on candidates; where a grid would be too coarse, these are a low-discrepancy set.

    Args:
        problem: see `Optimizer`.
        horizon: see `Optimizer`.
        seed: see `Optimizer`.
        delta: see `Optimizer`.
        safe: the safe seed: mappings with `parameters` that are known to meet all limits, in the `context` that is
            given with them or, without one, in every context. They join the candidates.
        ucb: minimise the cost's lower bound over S instead (Safe-UCB, also in the authors' implementation). The
            papers' rule learns the optimum; this one lives well meanwhile, which is what a sum of costs rewards.
        models: see `ModelBased`.
        candidates: see `ModelBased`.
        beta_sqrt: see `ModelBased`.
        norm_bounds: see `ModelBased`.
        compress: see `ModelBased`.
    """

    name = "safeopt"

    def __init__(
        self,
        problem: Problem,
        *,
        horizon: int | None = None,
        seed: int = 0,
        delta: float = 0.05,
        safe: Iterable[Mapping[str, Any]] = (),
        ucb: bool = False,
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
        if not isinstance(ucb, bool | np.bool_):
            raise TypeError(f"ucb must be True or False, got {ucb!r}")
        self.ucb = bool(ucb)
        if isinstance(safe, str | Mapping) or not isinstance(safe, Iterable):
            raise TypeError(f"safe must be a list of mappings with parameters, got {safe!r}")
        self._given_safe = [_seed(entry, i) for i, entry in enumerate(safe)]
        self._refines = self.ucb and self.candidates is None
        points = _spread_out(problem) if self.candidates is None else self.candidates
        self.seeds: list[Seed] = []
        for i, entry in enumerate(self._given_safe):
            theta = problem.encode_parameters(entry["parameters"], f"safe[{i}].parameters")
            try:
                context = None if entry["context"] is None else problem.encode_context(entry["context"])
            except (TypeError, ValueError) as error:
                raise type(error)(f"safe[{i}].{error}") from None
            entry["parameters"] = problem.plain_parameters(entry["parameters"])  # so that the state is JSON data
            entry["context"] = None if context is None else problem.plain_context(entry["context"])
            self.seeds.append((len(points), context))
            points = np.vstack([points, theta])
        self.candidates: Array = points
        self.models = Models(problem, self._given_models, candidates=points, compress=bool(compress))

    def safe_set(self, z: Array, g_upper: Array) -> Mask:
        """Return S as a mask over the candidates."""
        safe = np.asarray((g_upper <= 0.0).all(axis=0), dtype=bool)
        for j, context in self.seeds:
            safe[j] |= context is None or np.array_equal(context, z)
        return safe

    def _choose(self, z: Array, rng: Draw) -> tuple[Array, Bounds]:
        mean, std = self.models.at(z)
        lower, upper = self.lower_upper(mean, std)
        g_lower, g_upper = self.limit_bounds(lower, upper)
        safe = self.safe_set(z, g_upper)
        if not safe.any():
            j = lowest(self._score(z)(mean, std), self.candidates, rng)
        else:
            if self.ucb:
                chosen, score = safe, lower[0]
            else:
                minimisers = safe & (lower[0] <= upper[0, safe].min())
                prior = np.array([h.scale * math.sqrt(h.kernel.variance) for h in self.models.hyper])
                width = ((upper - lower) / prior[:, None]).max(axis=0)
                chosen = minimisers | self._expanders(z, mean, std, g_lower, g_upper, safe, minimisers, width)
                score = -width
            index = np.flatnonzero(chosen)
            j = int(index[lowest(score[index], self.candidates[index], rng)])
            if self._refines:
                return self._refined(z, self.candidates[j], lower[:, j], upper[:, j], rng())
        return self.candidates[j], self._named(lower[:, j : j + 1], upper[:, j : j + 1])

    def _refined(self, z: Array, theta: Array, low: Array, high: Array, rng: Generator) -> tuple[Array, Bounds]:
        """Return a point near theta, or theta itself, with the least lower bound of the cost among those known safe."""
        section, radius = self.models.section(z), 0.125
        for _ in range(ROUNDS):
            near = self.problem.snap(theta + radius * rng.normal(size=(PER_ROUND, len(theta))))
            lower, upper = self.lower_upper(*section.predict(near))
            safe = (self.limit_bounds(lower, upper)[1] <= 0.0).all(axis=0)
            cost = np.where(safe, lower[0], np.inf)
            best = int(np.argmin(cost))
            if cost[best] < low[0]:
                theta, low, high = near[best], lower[:, best], upper[:, best]
            radius *= 0.5
        return theta, self._named(low[:, None], high[:, None])

    def _expanders(
        self,
        z: Array,
        mean: Array,
        std: Array,
        g_lower: Array,
        g_upper: Array,
        safe: Mask,
        minimisers: Mask,
        width: Array,
    ) -> Mask:
        """Return G, as far as it is more uncertain than M and among the most uncertain, as a mask."""
        expanders = np.zeros_like(safe)
        trial = np.flatnonzero(safe & ~minimisers & (width > width[minimisers].max()))
        reachable = np.flatnonzero(~safe & (g_lower <= 0.0).all(axis=0))
        if not len(trial) or not len(reachable):
            return expanders
        trial = trial[np.argsort(-width[trial], kind="stable")[:CHECKED]]
        if len(reachable) > NEAREST:
            outputs = [limit.output for limit in self.problem.limits]
            distance = (g_upper[:, reachable] / std[outputs][:, reachable]).max(axis=0)
            reachable = reachable[np.argpartition(distance, NEAREST)[:NEAREST]]
        expands = np.ones((len(reachable), len(trial)), dtype=bool)
        beta, covariances = self.beta_sqrt(), self._covariances(z, reachable, trial)
        for limit in self.problem.limits:
            h = self.models.hyper[limit.output]
            noisy_var = std[limit.output, trial] ** 2 + h.noise_var * h.scale**2
            half = beta[limit.output] * std[limit.output, trial]
            c = covariances[limit.output]
            g = limit.sign * (mean[limit.output, reachable] - limit.bound)
            then = g[:, None] - c * (half / noisy_var)  # if g were its lower bound at the trial
            var = std[limit.output, reachable, None] ** 2 - c * c / noisy_var
            expands &= then + beta[limit.output] * np.sqrt(np.maximum(var, 0.0)) <= 0.0
        expanders[trial] = expands.any(axis=0)
        return expanders

    def _covariances(self, z: Array, rows: Index, columns: Index) -> dict[int, Array]:
        """Return each limited output's posterior covariance (rows, columns) between candidates at z, in plant units."""
        A, B = (np.hstack([self.candidates[i], np.broadcast_to(z, (len(i), len(z)))]) for i in (rows, columns))
        shared: dict[int, Array] = {}
        covariances = {}
        for output in {limit.output for limit in self.problem.limits}:
            posterior, _ = self.models.posterior(output)
            if id(posterior) not in shared:
                k = posterior.kernel
                weights = posterior.factor.solve_transposed(posterior.factor.solve(k.matrix(posterior.X, B)))
                shared[id(posterior)] = k.matrix(A, B) - k.matrix(A, posterior.X) @ weights
            covariances[output] = self.models.hyper[output].scale ** 2 * shared[id(posterior)]
        return covariances

    def _score(self, z: Array) -> Score:
        """Return the score of the fallback: minus the logarithm of the probability of meeting all limits."""
        return lambda mean, std: -self.log_feasibility(mean, std)

    def unsafe_steps(self) -> int:
        """Return how many steps were proposed without being known to be safe."""
        return sum(not self._was_safe(step) for step in self.ledger.history())

    def notes(self) -> list[str]:
        """Return how often what was proposed was not known to be safe."""
        count = self.unsafe_steps()
        words = "not known to be safe: the safe set was empty and the most probably feasible point was taken, or guards"
        return [f"in {count} steps the proposal was {words} moved it"] if count else []

    def _was_safe(self, step: Step) -> bool:
        if not step.suggestion.bounds:  # an operator's order, not a choice of the model
            return True
        theta, z = np.split(np.array(step.proposed or step.x), [self.problem.n_theta])
        for j, context in self.seeds:
            if np.array_equal(theta, self.candidates[j]) and (context is None or np.array_equal(context, z)):
                return True
        bounds, outputs = step.suggestion.bounds, self.problem.outputs
        return all(
            limit.sign * (bounds[outputs[limit.output]][1 if limit.sign > 0 else 0] - bound) <= 0.0
            for limit, bound in zip(self.problem.limits, step.limits, strict=True)
        )

    def _settings(self) -> dict[str, Any]:
        return {**super()._settings(), "safe": deepcopy(self._given_safe), "ucb": self.ucb}


def _seed(entry: Mapping[str, Any], i: int) -> dict[str, Any]:
    if not isinstance(entry, Mapping) or not {"parameters"} <= set(entry) <= {"parameters", "context"}:
        raise ValueError(f"safe[{i}] must be a mapping with parameters and, if it is safe in one only, a context, "
                         f"got {entry!r}")  # fmt: skip
    return {"parameters": entry["parameters"], "context": entry.get("context")}


def _spread_out(problem: Problem) -> Array:
    """Return a low-discrepancy set of candidates where a grid would be too coarse."""
    from scipy.stats import qmc

    return np.unique(problem.snap(qmc.Sobol(problem.n_theta, scramble=False).random(SPREAD)), axis=0)
