"""Primal-Dual Contextual Bayesian Optimization: Algorithm 1 of Xu, Jiang, Svetozarevic and Jones (CDC 2023).

for t = 1, 2, ...
    observe the context z_t                                                        ask
    theta_t = argmin  f_lower(theta, z_t) + eta lambda_t' g_lower(theta, z_t)      (9), `_score`
    run the plant and measure f, g                                                 tell
    lambda_{t+1} = [lambda_t + g_signal + epsilon]+                                (10), `_count`

queue    lambda, (N,)  in plant units of each limit's g, so that it bounds the cumulative constraint
price    eta lambda    what one unit of g is worth, in units of the objective
slack    epsilon, (N,) in plant units
balance  (N,)          the signed sum of g that the default's price is made of
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from pdcbo.model import Model
from pdcbo.optimizers.adaptive import AdaptiveSetting
from pdcbo.optimizers.base import Bounds
from pdcbo.optimizers.ledger import Step, same_outcome
from pdcbo.optimizers.modelled import ModelBased
from pdcbo.optimizers.settings import PaperSetting, Setting, TheoremSetting
from pdcbo.optimizers.uninterrupted import uninterrupted
from pdcbo.problem import Array, Problem, Values, as_number, as_positive, as_whole
from pdcbo.search import Draw, Score

SETTINGS: dict[str, type[Setting]] = {
    "default": AdaptiveSetting,
    "standard": Setting,
    "paper": PaperSetting,
    "theorem": TheoremSetting,
}
SIGNALS = ("lower", "mean", "observed")


class PDCBO(ModelBased):
    """Primal-dual contextual Bayesian optimisation with time-average constraints.

    Args:
        problem: see `Optimizer`.
        horizon: the number of steps planned, None for endless operation.
        seed: see `Optimizer`.
        delta: see `Optimizer`.
        setting: "default" (nothing to choose), "standard" (Algorithm 1 in standardised units), "paper" (the constants
            of its experiments) or "theorem" (Theorem 1; needs `models`, `norm_bounds`, `slater_margin` and a horizon).
        eta: the step of the dual; "default" and "standard" read it in standardised units, the others in plant units.
        slack: epsilon, likewise.
        initial_queue: lambda_1, in plant units; the default starts from the models and has no use for it.
        signal: what the queue moves by: "lower" (the paper), "mean" or "observed".
        doubling: with horizon None, restart with doubled horizons from this one on (the paper's remark): the queue and
            the constants start anew, the data are kept; the default's price goes on, which does without the queue.
        slater_margin: xi of Assumption 5, in plant units.
        models: see `ModelBased`.
        candidates: see `ModelBased`.
        beta_sqrt: see `ModelBased`; in the default it widens the bounds that are reported, not the search.
        norm_bounds: see `ModelBased`.
        compress: see `ModelBased`.

    Late and missing feedback and the dual: the queue moves once for every step that counts, when it is told, however
    late. Where the signal is "observed" and a value is missing, and for a failed step that ran, the queue moves by the
    lower bound the suggestion was chosen with, or at other applied values by the lower bound there; a step that never
    ran does not move it. A correction of an observed value moves it by the difference. So the queue is never below the
    sum of what it was moved by since it was last started. The balance, which forgets nothing, moves by the posterior
    mean where nothing was observed: a lower bound would be credit that nobody has earned.
    """

    name = "pdcbo"

    def __init__(
        self,
        problem: Problem,
        *,
        horizon: int | None = None,
        seed: int = 0,
        delta: float = 0.05,
        setting: str = "default",
        eta: float | None = None,
        slack: float | None = None,
        initial_queue: float | None = None,
        signal: str | None = None,
        doubling: int | None = None,
        slater_margin: float | None = None,
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
        if not isinstance(setting, str) or setting not in SETTINGS:
            raise ValueError(f"setting must be one of {list(SETTINGS)!r}, got {setting!r}")
        if signal is not None and signal not in SIGNALS:
            raise ValueError(f"signal must be one of {list(SIGNALS)!r}, got {signal!r}")
        if signal == "mean" and norm_bounds is not None:
            raise ValueError("signal='mean' goes without norm_bounds: they cut the bounds that it is the middle of")
        if doubling is not None and (as_whole(doubling, "doubling") < 1 or horizon is not None):
            raise ValueError(f"doubling must be at least 1 and goes with horizon=None, got {doubling!r}")
        given: dict[str, float | None] = {"eta": eta, "slack": slack, "initial_queue": initial_queue,
                                          "slater_margin": slater_margin}  # fmt: skip
        for name in ("eta", "slater_margin"):
            if given[name] is not None:
                given[name] = as_positive(given[name], name)
        for name in ("slack", "initial_queue"):
            if given[name] is not None:
                given[name] = number = as_number(given[name], name)
                if number < 0.0:
                    raise ValueError(f"{name} must be at least 0, got {number!r}")
        self.doubling = None if doubling is None else int(doubling)
        self._own = {"setting": setting, "signal": signal, "doubling": self.doubling, **given}
        self.setting: Setting = SETTINGS[setting](self, **given)
        self.models.compress = self.setting.compresses if compress is None else bool(compress)
        self.signal = signal or self.setting.signal
        self.queue = self.setting.initial_queue()
        self.balance = np.zeros(len(problem.limits))

    @uninterrupted
    def set_limits(self, limits: Values) -> None:
        """Change limits for suggestions asked from now on; `name: number`, or a `Constraint` for both sides."""
        super().set_limits(limits)
        self.setting.replan()

    def _score(self, z: Array) -> Score:
        return self.setting.score(z)  # (9)

    def _choose(self, z: Array, rng: Draw) -> tuple[Array, Bounds]:
        theta, bounds = super()._choose(z, rng)
        near = self.setting.within_reach(theta)
        return (theta, bounds) if near is theta else (near, self.bounds_at(np.concatenate([near, z])))

    def _count(self, step: Step) -> None:
        step.signal = self._signal(step, step.y)
        step.expected = self._expected(step, step.y)
        g = np.array(step.signal)
        self.queue = np.maximum(self.queue + g + self.setting.slack(), 0.0)  # (10)
        self.balance = self.balance + (step.expected or g)

    def _advance(self) -> None:
        if self.setting.restarts():
            self.queue = self.setting.initial_queue()
        self.setting.advance()

    def _look_back(self) -> None:
        self.setting.look_back()

    def _reconsider(self) -> None:
        self.setting.replan()

    def _recount(self, step: Step, y: Array) -> None:
        if self.signal != "observed":
            return
        outcome = y.tolist()
        signal, expected = self._signal(step, outcome), self._expected(step, outcome)
        before, after = step.expected or step.signal, expected or list(signal)
        for i, limit in enumerate(self.problem.limits):
            if same_outcome([step.y[limit.output]], [outcome[limit.output]]):
                signal[i], after[i] = step.signal[i], before[i]  # what was not corrected counts as it did
        since = 0 if self.doubling is None else self.setting.epoch()[0]
        if step.suggestion.id in self.ledger.counted[since:]:
            self.queue = np.maximum(self.queue + np.subtract(signal, step.signal), 0.0)
        history, corrected = self.ledger.history(), np.not_equal(after, before)
        booked = [each.expected or each.signal for each in history]
        step.signal, step.expected = signal, expected and after
        after_it = self.ledger.counted.index(step.suggestion.id) + 1
        for each in history[after_it:]:  # what was expected after a wrong value, was because of it
            if each.expected:
                each.expected = self._expected(each, each.y)
        # summed anew: of what a wrong 1e20 was added to, nothing is left when it is taken away
        moves = [each.expected or each.signal for each in history]
        self.balance = np.where(np.not_equal(moves, booked).any(axis=0), self._sum(moves), self.balance)
        least = np.where(corrected, self._sum([each.signal for each in history[since:]]), 0.0)
        self.queue = np.maximum(self.queue, least)

    def _sum(self, moves: list[list[float]]) -> Array:
        """Return the sums over steps, (N,), of moves (N,) each, exact but for the last rounding."""
        return np.array([math.fsum(move[i] for move in moves) for i in range(len(self.problem.limits))])

    def price(self) -> Array:
        """Return what one unit of each limit's g is worth, in units of the objective, (N,)."""
        return self.setting.price()

    def debt(self) -> Array:
        """Return by how much each limit is exceeded in all, as far as the price answers for it, (N,) in plant units."""
        return self.setting.debt()

    def beta_sqrt(self) -> Array:
        """Return beta^(1/2) of each output, shape (q,)."""
        return super().beta_sqrt() if self._given_beta is not None else self.setting.beta_sqrt()

    def notes(self) -> list[str]:
        """Return what the setting has to say."""
        return self.setting.notes()

    def _signal(self, step: Step, y: list[float]) -> list[float]:
        """Return what the queue moves by, (N,): g observed, or its bound or mean at the point that was applied."""
        observed = self.signal == "observed"
        if observed and not any(map(math.isnan, y)):
            both = [(value, value) for value in y]
        else:
            bounds = self.bounds_at(np.array(step.x)) if step.moved else step.suggestion.bounds
            both = [bounds[name] for name in self.problem.outputs]
            if self.signal == "mean":
                both = [((lower + upper) / 2.0,) * 2 for lower, upper in both]
            elif observed:
                both = [b if math.isnan(value) else (value, value) for b, value in zip(both, y, strict=True)]
        return self._below(step, both)

    def _expected(self, step: Step, y: list[float]) -> list[float]:
        """Return what the balance moves by where that is not the signal, (N,): the mean of g for what is missing."""
        if self.signal != "observed" or not any(map(math.isnan, y)):
            return []
        mean = self.models.predict(np.array(step.x)[None])[0][:, 0].tolist()
        known = [m if math.isnan(value) else value for m, value in zip(mean, y, strict=True)]
        return self._below(step, [(value, value) for value in known])

    def _below(self, step: Step, both: list[tuple[float, float]]) -> list[float]:
        """Return the lowest g, (N,), that an interval of each output allows, against the limits of a step."""
        return [
            limit.sign * (both[limit.output][0 if limit.sign > 0 else 1] - bound)
            for limit, bound in zip(self.problem.limits, step.limits, strict=True)
        ]

    def _settings(self) -> dict[str, Any]:
        return {**super()._settings(), **self._own}

    def _extra_state(self) -> dict[str, Any]:
        return {**super()._extra_state(), "queue": self.queue.tolist(), "balance": self.balance.tolist(),
                "setting": self.setting.state()}  # fmt: skip

    def _restore_extra(self, state: Mapping[str, Any]) -> None:
        super()._restore_extra(state)
        self.queue, self.balance = (self._restored(state[name], name) for name in ("queue", "balance"))
        self.setting.restore(state["setting"])

    def _restored(self, values: list[float], name: str) -> Array:
        """Return what a state says of each limit, (N,)."""
        restored = np.array(values, dtype=float)
        if restored.shape != (len(self.problem.limits),) or not np.isfinite(restored).all():
            raise ValueError(
                f"state is damaged: {name!r} must be {len(self.problem.limits)} finite numbers, got {values!r}"
            )
        return restored
