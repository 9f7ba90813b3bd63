"""How PDCBO's constants are chosen: standardised, by the paper's experiments, or by its theorem.

A setting gives eta (N,), slack (N,), lambda_1 (N,) in plant units and beta^(1/2) (q,). "theorem" and "paper" take
numbers in the plant's units, as the paper does. "standard" works in standardised units, f / s_f and g / s_i with the
scales s that the models learned, so that a cost in millions and a fraction in 1e-4 are tuned alike: there
eta_i = eta s_f / s_i^2, because price times g must come out in units of f while the queue counts units of g.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from math import sqrt
from typing import TYPE_CHECKING, Any

import numpy as np

from pdcbo.confidence import (
    LARGEST_NOISE,
    TheoremConstants,
    beta_sqrt,
    horizon_needed,
    largest_variance,
    planned_gain,
    theorem_constants,
)
from pdcbo.problem import Array, Problem
from pdcbo.search import Score

if TYPE_CHECKING:
    from pdcbo.optimizers.pdcbo import PDCBO


class Setting:
    """Algorithm 1 in standardised units with eta = 1 / sqrt(T), or 1 / sqrt(t) in endless operation: "standard"."""

    signal = "observed"
    beta = 2.0
    compresses = False  # values far on the bad side, before they are modelled

    def __init__(
        self,
        optimizer: PDCBO,
        eta: float | None,
        slack: float | None,
        initial_queue: float | None,
        slater_margin: float | None,
    ) -> None:
        self.optimizer = optimizer
        self.given_eta, self.given_slack, self.given_queue = eta, slack, initial_queue
        self.slater_margin = slater_margin
        self._beta_sqrt = np.full(optimizer.models.q, self.beta)

    @property
    def limits(self) -> int:
        """The number of limits N."""
        return len(self.optimizer.problem.limits)

    def epoch(self) -> tuple[int, int]:
        """Return the start and the length of the doubling epoch that the next step belongs to."""
        start, length = 0, self.optimizer.doubling or 1
        while start + length <= self.optimizer.step:
            start, length = start + length, 2 * length
        return start, length

    def restarts(self) -> bool:
        """Tell whether the next step to be asked for is the first of a new epoch of the doubling trick."""
        step = self.optimizer.step
        return bool(self.optimizer.doubling) and step > 0 and self.epoch()[0] == step

    def planned_steps(self) -> int:
        """Return the T of 1 / sqrt(T): the horizon, or the steps so far once they are past it."""
        if self.optimizer.doubling:
            return self.epoch()[1]
        return max(self.optimizer.horizon or 1, self.optimizer.step + 1)

    def scales(self) -> tuple[float, Array]:
        """Return s_f and s_i (N,): the models' scales."""
        hyper = self.optimizer.models.hyper
        return hyper[0].scale, np.array([hyper[limit.output].scale for limit in self.optimizer.problem.limits])

    def price(self) -> Array:
        """Return eta lambda, (N,): what one unit of each limit's g is worth, in units of the objective."""
        return np.asarray(self.eta() * self.optimizer.queue)

    def debt(self) -> Array:
        """Return the part of the price that was run up by feedback, in plant units of g: the queue."""
        return self.optimizer.queue

    def score(self, z: Array) -> Score:
        """Return the Lagrangian of the lower bounds, to be minimised over theta."""
        optimizer, price = self.optimizer, self.price()

        def lagrangian(mean: Array, std: Array) -> Array:
            lower, upper = optimizer.lower_upper(mean, std)
            return np.asarray(lower[0] + price @ optimizer.limit_lower(lower, upper))  # (9)

        return lagrangian

    def within_reach(self, theta: Array) -> Array:
        """Return what may be tried now in the place of theta, (n_theta,): theta itself."""
        return theta

    def advance(self) -> None:
        """Take account of a step that was settled."""

    def replan(self) -> None:
        """Take account of limits or measurements that were changed."""

    def look_back(self) -> None:
        """Take account of past operation that the models learned from."""

    def state(self) -> dict[str, Any]:
        """Return what was learned beside the models, as JSON data."""
        return {}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take over what `state` returned."""

    def eta(self) -> Array:
        """Return eta of each limit in plant units, (N,)."""
        objective_scale, scales = self.scales()
        eta = self.given_eta or 1.0 / sqrt(self.planned_steps())
        return eta * objective_scale / scales**2

    def slack(self) -> Array:
        """Return epsilon of each limit in plant units, (N,)."""
        models, limits = self.optimizer.models, self.optimizer.problem.limits
        known = np.array(
            [bool(models.rows[limit.output]) for limit in limits], dtype=bool
        )  # a scale, not the prior's 1
        return np.where(known, (self.given_slack or 0.0) * self.scales()[1], 0.0)

    def initial_queue(self) -> Array:
        """Return lambda_1 in plant units, (N,): 0, or as given."""
        return np.full(self.limits, self.given_queue or 0.0)

    def beta_sqrt(self) -> Array:
        """Return beta^(1/2) of each output, (q,)."""
        return self._beta_sqrt

    def notes(self) -> list[str]:
        """Return what a user should know of this setting."""
        return []


class PaperSetting(Setting):
    """The constants of the paper's experiments: eta = 1, epsilon = 0, lambda_1 = 0, beta^(1/2) = 1, in plant units."""

    signal = "lower"
    beta = 1.0

    @cached_property
    def _constants(self) -> tuple[Array, Array]:
        return np.full(self.limits, self.given_eta or 1.0), np.full(self.limits, self.given_slack or 0.0)

    def eta(self) -> Array:
        """Return eta = 1, or as given."""
        return self._constants[0]

    def slack(self) -> Array:
        """Return epsilon = 0, or as given."""
        return self._constants[1]


class TheoremSetting(PaperSetting):
    """Theorem 1's eta, lambda_1, epsilon and beta, with the errata, in plant units."""

    def __init__(
        self,
        optimizer: PDCBO,
        eta: float | None,
        slack: float | None,
        initial_queue: float | None,
        slater_margin: float | None,
    ) -> None:
        super().__init__(optimizer, eta, slack, initial_queue, slater_margin)
        problem, models = optimizer.problem, optimizer.models
        missing = [
            name
            for name, absent in {
                "horizon (or doubling)": optimizer.horizon is None and not optimizer.doubling,
                "slater_margin": slater_margin is None,
                "norm_bounds for every output": optimizer.norm_bounds is None
                or not np.isfinite(optimizer.norm_bounds).all(),
                "models with given hyper-parameters": any(spec.length_scales is None for spec in models.specs),
                "constraints": not problem.limits,
            }.items()
            if absent
        ]
        if missing:
            raise ValueError(f"setting='theorem' needs {', '.join(missing)}")
        for name, h in zip(problem.outputs, models.hyper, strict=True):
            most = LARGEST_NOISE * largest_variance(h.kernel) * h.scale**2
            if h.noise_var * h.scale**2 > most:
                raise ValueError(
                    f"setting='theorem' needs a noise variance in the model of {name} of at most {most:.4g}, 1.54 "
                    f"times its largest variance, beyond which Lemma 2 fails, got {h.noise_var * h.scale**2:.4g}"
                )
        self._norms = optimizer.norm_bounds or []  # which are there, or they were missing
        # Gains are planned on an even spread over the box of parameters and context.
        from scipy.stats import qmc  # imported here: it doubles the time to import the package

        box = Problem({**problem.parameters, **problem.context})
        points = box.snap(qmc.Sobol(len(problem.variables), scramble=False).random(512))
        self._gains = [planned_gain(h.kernel, points, h.noise_var) for h in models.hyper]

    def constants(self, horizon: int) -> TheoremConstants:
        """Return Theorem 1's constants for one horizon."""
        optimizer = self.optimizer
        outputs = [limit.output for limit in optimizer.problem.limits]
        hyper, limits = optimizer.models.hyper, optimizer.problem.limits
        # Assumption 4 wants k <= 1: with k / v for k, v = max k(x, x), norms and beta^(1/2) are sqrt(v) times as large
        root = [sqrt(largest_variance(h.kernel)) for h in hyper]
        gains = [gain(horizon) for gain in self._gains]
        betas = self._betas(gains)
        offsets = [abs(hyper[limit.output].mean - limit.bound) for limit in limits]  # of g from what C bounds
        return theorem_constants(
            horizon,
            np.array([root[i] * self._norms[i] + offset for i, offset in zip(outputs, offsets, strict=True)]),
            float(self.slater_margin or 0.0),
            np.array([root[i] * betas[i] for i in outputs]),
            np.array([gains[i] for i in outputs]),
            root[0] * self._norms[0],
        )

    def eta(self) -> Array:
        """Return eta = 1 / sqrt(T)."""
        return np.full(self.limits, self.given_eta or self.constants(self.planned_steps()).eta)

    def slack(self) -> Array:
        """Return Theorem 1's epsilon."""
        given = self.given_slack
        return np.full(self.limits, self.constants(self.planned_steps()).slack if given is None else given)

    def initial_queue(self) -> Array:
        """Return Theorem 1's lambda_1."""
        given = self.given_queue
        return np.full(self.limits, self.constants(self.planned_steps()).initial_queue if given is None else given)

    def beta_sqrt(self) -> Array:
        """Return beta^(1/2) of equation (8) with the information gain of the points visited."""
        models = self.optimizer.models
        return np.array(self._betas([models.information_gain(i) for i in range(models.q)]))

    def notes(self) -> list[str]:
        """Say where Theorem 1 applies, and from which horizon on it would."""
        constants = self.constants(self.planned_steps())
        said = [
            f"Theorem 1: eta = {constants.eta:.4g}, lambda_1 = {constants.initial_queue:.4g}, "
            f"epsilon = {constants.slack:.4g} (as printed, with beta for beta^(1/2): {constants.slack_printed:.4g})"
        ]
        if not constants.applies:
            needed = horizon_needed(self.constants)
            steps = "more than 1e15" if needed is None else f"at least {needed:.3g}"
            said.append(
                f"epsilon exceeds xi / 2 = {constants.slater_margin / 2:.4g}: Theorem 1 promises nothing for a horizon "
                f"of {constants.horizon}; it needs {steps} steps"
            )
        else:
            said.append("epsilon is at most xi / 2 with gains planned on 512 points; the true ones may be larger")
        return said

    def _betas(self, gains: list[float]) -> list[float]:
        """Return beta^(1/2) of every output for given information gains."""
        optimizer = self.optimizer
        return [
            beta_sqrt(
                self._norms[i],
                optimizer.noise_std(i)[0] or h.noise_std if i else h.noise_std,
                h.noise_var,
                gains[i],
                optimizer.models.q,
                optimizer.delta,
            )
            for i, h in enumerate(optimizer.models.hyper)
        ]
