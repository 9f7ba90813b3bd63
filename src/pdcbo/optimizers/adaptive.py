"""The default: PDCBO with nothing to choose. What it changes in Algorithm 1, and why; proofs in docs/decisions.md.

Primal step. (9) takes lower confidence bounds with a width somebody has to choose. Here the posterior of the Lagrangian
L = f + price' g, with mean m and standard deviation s, is weighed against what an observation is worth later on:

    theta_t = argmin  m(theta) - R_t EI(theta),      EI = E[(min m - L(theta))+]

where R_t is the number of coming steps that can profit from it: three times as many as have been seen so far, at most
those left of the horizon, times the mean correlation of this context with those seen. It explores while there is time
to earn it back and stops by itself before the end. No g is hoped for that is further below the best one measured than
the best tenth of all lies above it: nobody emits less than nothing.

Dual step. (10) moves a queue by the lower bound, which hides real violations, and forgets credit at zero. Here the
signed balance B_t of the observed constraint values is kept, and two things make the price:

    price = phi_t + eta [B_t]+

phi_t is the multiplier that the models themselves call for: that of the time-average problem in the contexts seen so
far, with what is left of the budget, b_t = -(B_t + margin) / (steps left), as the limit. It needs no step size and is
right as soon as the models are. The second term is the virtual queue: whatever the models say, a debt raises the
price until it is paid back.

Reach. A step goes no further than a quarter of a parameter's range beyond what was tried (`pdcbo.optimizers.reach`).

Reserve. Where some parameters are sure to leave the limits within reach of the steps left, others cost the largest
price (`pdcbo.optimizers.reserve`): near the end nothing is tried that could not be paid back.

Models. Values far on the bad side may be compressed before they are modelled (`pdcbo.compression`); what is counted
against a limit is always the value itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import gcd, pi, sqrt
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

import numpy as np

from pdcbo.normal import cdf
from pdcbo.optimizers.planning import best_price, spread_out, spread_within, worst_end
from pdcbo.optimizers.reach import Reach
from pdcbo.optimizers.reserve import SHARE, Reserve
from pdcbo.optimizers.settings import Setting
from pdcbo.optimizers.unknown import running, unmeasured
from pdcbo.problem import Array
from pdcbo.search import Score

if TYPE_CHECKING:
    from pdcbo.optimizers.pdcbo import PDCBO

THETAS = 400
# In how many steps, up to the latest, cycles are looked for: in hours, more than a week.
STRETCH = 200
SWEEPS = 3
# An endless operation plans for as many steps as it has seen, and for this many at the least.
LEAST_PLAN = 30
# The part of the steps seen within which it pays a debt back: to plan that for all of them would be to put it off.
SOON = 0.1
# How far ahead an observation is thought to pay, in multiples of the steps seen: models of few steps are not to be
# trusted with plans for many.
FORESIGHT = 3
# The chance that noise alone puts a kept average above any of the limits, which the margin is made for.
NOISE_RISK = 0.01
# The largest price, in spreads of the objective over spreads of the constraint: none is useful beyond it.
LARGEST_PRICE = 20.0


class AdaptiveSetting(Setting):
    """Choose scaling, price, exploration and margins from the problem, the horizon and the data."""

    compresses = True

    def __init__(
        self,
        optimizer: PDCBO,
        eta: float | None,
        slack: float | None,
        initial_queue: float | None,
        slater_margin: float | None,
    ) -> None:
        super().__init__(optimizer, eta, slack, initial_queue, slater_margin)
        self.phi = np.zeros(self.limits)
        self.solved_spread: Array | None = None
        self.margin, self.payback = np.zeros(self.limits), np.zeros(self.limits)
        self.revision = np.zeros(self.limits)
        self.waiting, self.charge = 0, np.zeros(self.limits)
        self.unreachable: list[int] = []
        self.next_solve = 3
        self.next_rows = 3
        self.reach = Reach(optimizer.problem, optimizer.candidates)

    @property
    def spread(self) -> Array:
        """The spreads of f and of each g over the parameters, (1 + N,); the models' scales until they are known."""
        if self.solved_spread is not None:
            return self.solved_spread
        objective_scale, scales = self.scales()
        return np.array([objective_scale, *scales])

    def price(self) -> Array:
        """Return phi + eta [B]+ in plant units, (N,)."""
        return self.phi + self.eta() * self.debt()

    def debt(self) -> Array:
        """Return [B]+: what the observed values exceed the limits by, in all."""
        return np.maximum(self.balance(), 0.0)

    def balance(self) -> Array:
        """Return B, (N,): the balance, with steps not measured, or not yet, at what the models think of them."""
        return np.asarray(self.optimizer.balance + self.revision + self.charge)

    def eta(self) -> Array:
        """Return eta = 1 / sqrt(T) in units of the spreads of f and g, in plant units."""
        eta = self.given_eta or 1.0 / sqrt(self.planned_steps())
        return np.asarray(eta * self.spread[0] / self.spread[1:] ** 2)

    def slack(self) -> Array:
        """Return epsilon of each limit in plant units, (N,): zero unless given; the margin does its work otherwise."""
        return (self.given_slack or 0.0) * self.spread[1:]

    def score(self, z: Array) -> Score:
        """Return m - R EI and what it may take beyond the reserves, to be minimised over theta."""
        optimizer = self.optimizer
        weights = np.zeros(optimizer.models.q)
        weights[0] = 1.0
        for limit, price in zip(optimizer.problem.limits, self.price(), strict=True):
            weights[limit.output] += price * limit.sign
        worth = self._profiting_steps(z)
        least = optimizer.least_spread(0)
        floors = self._floors()
        reserves = self._reserves()
        best: list[float] = []
        terms: list[tuple[float, float]] = []

        def expected_total(mean: Array, std: Array) -> Array:
            excess = [reserve.excess(mean, std) for reserve in reserves]
            mean, std = mean.copy(), std.copy()
            for i, sign, floor in floors:
                above = np.maximum(sign * mean[i] - floor, 0.0)
                mean[i] = sign * (floor + above)
                std[i] = np.minimum(std[i], above)
            m = weights @ mean
            s = np.maximum(np.sqrt((weights**2) @ std**2), least)
            if not best:  # the first call is for all candidates, or for all starting points
                best.append(float(m.min()))
                terms.extend(reserve.terms(beyond) for reserve, beyond in zip(reserves, excess, strict=True))
            u = (best[0] - m) / s
            improvement = s * (u * cdf(u) + np.exp(-0.5 * u * u) / sqrt(2.0 * pi))
            total = m - worth * improvement
            for (price, free), beyond in zip(terms, excess, strict=True):
                total += price * np.maximum(beyond - free, 0.0)
            return np.asarray(total)

        return expected_total

    def within_reach(self, theta: Array) -> Array:
        """Return theta, or the point next to it that is not too far beyond what was tried, (n_theta,)."""
        return self.reach.nearest(theta, self.optimizer.models.X[:, : len(theta)])

    def advance(self) -> None:
        """Solve for phi again where it is due: often at first and near the end, less often in between."""
        self.waiting, self.charge = running(self.optimizer)
        if self.optimizer.step >= self.next_solve:
            self._plan()

    def replan(self) -> None:
        """Solve for phi again at once."""
        self._plan()

    def look_back(self) -> None:
        """Solve for phi again if the data have grown by a third since it was solved last."""
        if self.optimizer.models.n >= self.next_rows:
            self._plan()

    def notes(self) -> list[str]:
        """Say which limits look out of reach."""
        labels = [limit.label for limit in self.optimizer.problem.limits]
        return [
            f"{labels[i]}: no parameters seem to keep its average within the limit; its excess is being minimised"
            for i in self.unreachable
        ]

    def state(self) -> dict[str, Any]:
        """Return what was learned beside the models, as JSON data."""
        return {
            "phi": self.phi.tolist(),
            "spread": None if self.solved_spread is None else self.solved_spread.tolist(),
            "margin": self.margin.tolist(),
            "payback": self.payback.tolist(),
            "revision": self.revision.tolist(),
            "waiting": self.waiting,
            "charge": self.charge.tolist(),
            "unreachable": list(self.unreachable),
            "next_solve": self.next_solve,
            "next_rows": self.next_rows,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take over what `state` returned."""
        self.phi = np.array(state["phi"], dtype=float)
        self.solved_spread = None if state["spread"] is None else np.array(state["spread"], dtype=float)
        self.margin, self.payback = (np.array(state[name], dtype=float) for name in ("margin", "payback"))
        none = [0.0] * self.limits  # older states have none of the following
        self.revision, self.charge = (np.array(state.get(name, none), dtype=float) for name in ("revision", "charge"))
        self.waiting = int(state.get("waiting", 0))
        self.unreachable = [int(i) for i in state["unreachable"]]
        self.next_solve, self.next_rows = int(state["next_solve"]), int(state["next_rows"])

    def _steps_left(self) -> int:
        step = self.optimizer.step
        if self._endless():
            return max(step, LEAST_PLAN)
        return max((self.optimizer.horizon or 0) - step - self.waiting, 1)

    def _endless(self) -> bool:
        """Tell whether no end is planned, or the end that was planned is over."""
        horizon = self.optimizer.horizon
        return horizon is None or self.optimizer.step >= horizon

    def _profiting_steps(self, z: Array) -> float:
        """Return R: how many coming steps, in contexts like z, can profit from what is learned now."""
        optimizer = self.optimizer
        coming = min(self._steps_left() - 1, FORESIGHT * (optimizer.step + 1))
        kernel = optimizer.models.hyper[0].kernel
        if not len(z) or not optimizer.models.n:
            return float(coming)
        seen, factor = optimizer.models.X[-500:], kernel.factors[-1]  # the factor that looks at the context alone
        here = np.concatenate([np.zeros(optimizer.problem.n_theta), z])[None]
        likeness = factor.matrix(seen, here)[:, 0]
        if factor.family == "linear":  # the others are correlations by themselves
            likeness = np.abs(likeness) / np.sqrt(factor.diagonal(seen) * factor.diagonal(here))
        return float(coming * likeness.mean())

    def _plan(self) -> None:
        """Solve for phi, if there is enough to solve it with, and say when it is due again."""
        step, rows = self.optimizer.step, self.optimizer.models.n
        if self.limits and rows >= 3:
            self._solve()
            self.next_solve = step + max(1, min(step, self._steps_left()) // 20)
            self.next_rows = rows + max(1, rows // 3)

    def _solve(self) -> None:
        """Maximise the dual function of the time-average problem that the models see, over phi >= 0."""
        optimizer, problem = self.optimizer, self.optimizer.problem
        n_theta = problem.n_theta
        thetas = self._thetas()
        table = optimizer.models.mean_table(thetas, spread_out(optimizer.models.X[:, n_theta:]))
        f, g = table[0], self._excesses(table)
        sizes = np.abs(table).max(axis=(1, 2))
        spreads = [spread_within(g[..., i], sizes[limit.output]) for i, limit in enumerate(problem.limits)]
        self.solved_spread = np.array([spread_within(f, sizes[0]), *spreads])
        least = g.min(axis=1)
        self.payback = -least.mean(axis=0)
        ends_hard = not self._endless() and bool((least > 0.0).any())
        hard = self._hard_end(thetas) if ends_hard else np.zeros(self.limits)
        self.revision, doubt = unmeasured(optimizer)
        g = g - self._budget(g, f, doubt, hard)
        largest = self._largest_price()
        phi = np.minimum(self.phi, largest)
        for _ in range(SWEEPS if self.limits > 1 else 1):
            for i in range(self.limits):
                phi[i] = best_price(f + g @ np.where(np.arange(self.limits) == i, 0.0, phi), g[..., i], largest[i])
        self.phi = phi
        short = self.balance() > self.margin - hard  # by more than noise may explain
        seen = [bool(optimizer.models.rows[limit.output]) for limit in problem.limits]
        self.unreachable = [i for i in range(self.limits) if phi[i] >= 0.99 * largest[i] and short[i] and seen[i]]

    def _floors(self) -> list[tuple[int, float, float]]:
        """Return output, sign and floor of each quantity with one limit: it is not believed to go further below that.

        Emissions, wear and discomfort have a floor that no Gaussian process knows of, and what is measured crowds just
        above it. The floor is put as far below the best measurement as the best tenth of all lies above. There is none
        while no measurement keeps the limit: what is looked for then lies below all that was seen.
        """
        floors = []
        limits = self.optimizer.problem.limits
        for limit in limits:
            values = limit.sign * self.optimizer.models.Y[:, limit.output]
            values = values[~np.isnan(values)]
            tenth = len(values) // 10
            if tenth and sum(other.output == limit.output for other in limits) == 1:
                ordered = np.partition(values, (0, tenth))
                if ordered[0] <= limit.sign * limit.bound:
                    floors.append((limit.output, limit.sign, float(2.0 * ordered[0] - ordered[tenth])))
        return floors

    def _budget(self, g: Array, f: Array, doubt: Array, hard: Array) -> Array:
        """Return b, (N,): the average g that the steps left may have, with a margin for what cannot be foreseen."""
        optimizer = self.optimizer
        left = self._steps_left()
        chosen = np.argmin(f + g @ self.phi, axis=1)
        wander = np.std(g[np.arange(len(g)), chosen], axis=0)  # one step's g moves about its average by this much
        noise = np.array([optimizer.models.hyper[limit.output].noise_std for limit in optimizer.problem.limits])
        deviations = NormalDist().inv_cdf(1.0 - NOISE_RISK / self.limits)
        self.margin = deviations * (noise * sqrt(optimizer.step + left) + wander + doubt) + hard
        owed = self.balance() + self.margin
        soon = max(round(SOON * optimizer.step), LEAST_PLAN) if self._endless() else left
        rest = -owed / np.where(owed > 0.0, soon, left) - self.slack()
        return np.asarray(np.maximum(rest, -np.maximum(self.spread[1:], self.payback)))

    def _excesses(self, table: Array) -> Array:
        """Return g of each limit, (k, m, N), from a table of the outputs, (q, k, m), none below its floor."""
        limits = self.optimizer.problem.limits
        g = np.stack([limit.sign * (table[limit.output] - limit.bound) for limit in limits], axis=-1)
        for output, sign, floor in self._floors():
            for i, limit in enumerate(limits):
                if limit.output == output:
                    np.maximum(g[..., i], floor - sign * limit.bound, out=g[..., i])
        return g

    def _hard_end(self, thetas: Array) -> Array:
        """Return what the last steps may take of each limit in spite of the best parameters, (N,).

        The contexts of the steps left are taken for a mixture of those seen. Where contexts come in cycles, the last of
        them may all be of a kind in which no parameters keep the limit. Where the mixture has none that keep it either,
        there is nothing to save.
        """
        optimizer = self.optimizer
        steps = sorted(optimizer.ledger.history()[-STRETCH:], key=lambda step: step.suggestion.id)
        if not steps:
            return np.zeros(self.limits)
        contexts = np.array([step.x[optimizer.problem.n_theta :] for step in steps])
        least = self._excesses(optimizer.models.mean_table(thetas, contexts)).min(axis=1)
        left = self._steps_left()
        return np.array([worst_end(least[:, i], left) if self.payback[i] > 0.0 else 0.0 for i in range(self.limits)])

    def _reserves(self) -> list[Reserve]:
        """Return the reserve of each limit that can be paid back at all."""
        optimizer = self.optimizer
        spare = SHARE * (self._steps_left() - 1) * self.payback - self.balance() - self.margin
        room = np.maximum(spare, 0.0)
        limits = zip(optimizer.problem.limits, room, self.price(), self._largest_price(), strict=True)
        return [
            Reserve.of(limit, float(room), float(price), float(largest), optimizer.models)
            for (limit, room, price, largest), payback in zip(limits, self.payback, strict=True)
            if payback > 0.0
        ]

    def _largest_price(self) -> Array:
        return np.asarray(LARGEST_PRICE * self.spread[0] / self.spread[1:])

    def _thetas(self) -> Array:
        """Return parameters to choose among in the models' own problem: some candidates, and those tried lately."""
        optimizer = self.optimizer
        n_theta = optimizer.problem.n_theta
        tried = np.unique(optimizer.models.X[-100:, :n_theta], axis=0)
        if optimizer.candidates is None:
            spread = np.random.default_rng(0).random((THETAS, n_theta))
            return np.vstack([optimizer.problem.snap(spread), tried])
        stride = max(1, len(optimizer.candidates) // THETAS)
        while gcd(stride, len(optimizer.candidates)) > 1:  # so that every level of every parameter is visited
            stride += 1
        return np.vstack([optimizer.candidates[::stride], tried])
