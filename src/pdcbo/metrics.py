"""Regret, violation and averages of a run: pure functions of arrays, and of records through `run_arrays`.

Section III measures a run by the contextual regret (3a) and the violation (3b),

    R_t = sum_{s<=t} f(theta_s, z_s) - f(theta*(z_s), z_s),       V_t = || [ sum_{s<=t} g(theta_s, z_s) ]^+ ||.

    objective (T,)   true or observed cost          best (T,)   the oracle's cost at each step
    g (T, N)         value of every limit, <= 0 on average
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from pdcbo.oracles import Oracle
from pdcbo.problem import Array, Problem


def contextual_regret(objective: Array, best: Array) -> Array:
    """Return the cumulative regret (3a), (T,), against the best of every step."""
    objective, best = np.asarray(objective, dtype=float), np.asarray(best, dtype=float)
    if objective.shape != best.shape or objective.ndim != 1:
        raise ValueError(f"objective and best must be of one shape (T,), got {objective.shape} and {best.shape}")
    return np.cumsum(objective - best)


def cumulative(g: Array) -> Array:
    """Return the running totals (T, N) of the limits: what must not be positive at the end."""
    return np.cumsum(_limits(g), axis=0)


def running_average(g: Array) -> Array:
    """Return the running averages (T, N) of the limits."""
    total = cumulative(g)
    average: Array = total / np.arange(1.0, len(total) + 1.0)[:, None]
    return average


def violation(g: Array) -> Array:
    """Return the violation (3b) after each step, (T,): the norm of the positive part of the running totals."""
    norm: Array = np.sqrt((np.maximum(cumulative(g), 0.0) ** 2).sum(axis=1))
    return norm


class Regret(NamedTuple):
    """What a run of T steps cost more than each oracle; less where negative."""

    per_step: float
    in_expectation: float
    time_average: float


def regret(objective: Array, oracle: Oracle) -> Regret:
    """Return the total regret against the per-step, the in-expectation and the time-average optimum."""
    per_step = contextual_regret(objective, oracle.per_step)[-1]
    in_expectation = contextual_regret(objective, oracle.in_expectation)[-1]
    total = float(np.sum(objective))
    return Regret(float(per_step), float(in_expectation), total - oracle.time_average)


class Proportion(NamedTuple):
    """A proportion with its two-sided confidence interval."""

    estimate: float
    lower: float
    upper: float


def proportion(count: int, total: int, confidence: float = 0.95) -> Proportion:
    """Return count / total with its Clopper-Pearson interval, which covers at least as often as it says.

    Its ends are quantiles of beta distributions: the proportion at which so many or more (fewer) would be seen with
    probability (1 - confidence) / 2.
    """
    from scipy.special import betaincinv

    if not 0 <= count <= total or total < 1:
        raise ValueError(f"count must lie between 0 and total, and total be at least 1, got {count!r} of {total!r}")
    if not 0.0 < confidence < 1.0:
        raise ValueError(f"confidence must lie between 0 and 1, got {confidence!r}")
    tail = 0.5 * (1.0 - confidence)
    lower = 0.0 if count == 0 else float(betaincinv(count, total - count + 1, tail))
    upper = 1.0 if count == total else float(betaincinv(count + 1, total - count, 1.0 - tail))
    return Proportion(count / total, lower, upper)


def violation_probability(final: Array, confidence: float = 0.95, tolerance: float = 0.0) -> Proportion:
    """Return how often runs end with a positive cumulative constraint, with its interval.

    Args:
        final: (runs, N) or (runs,) the limits' totals or averages at the end of each run.
        confidence: of the interval.
        tolerance: a run violates if any of its limits exceeds this.
    """
    final = np.asarray(final, dtype=float)
    if not np.isfinite(final).all():
        raise ValueError("final must hold finite numbers; leave out runs that did not end")
    if not len(final):
        raise ValueError("final must hold at least one run, got none")
    worst = final.reshape(len(final), -1).max(axis=1, initial=-math.inf)
    return proportion(int((worst > tolerance).sum()), len(final), confidence)


def run_arrays(records: Iterable[Any], problem: Problem, *, truth: bool = True) -> tuple[Array, Array]:
    """Return objective (T,) and limits g (T, N) of records, in the order given.

    Args:
        records: with `observed` and `truth`, each an `Outcome` in plant units, `truth` or None.
        problem: whose limits are meant.
        truth: take the noise-free values, not the observed ones. Values that were not measured are NaN.

    Raises:
        ValueError: the truth is asked for and a record has none.
    """
    rows = []
    for record in records:
        outcome = record.truth if truth else record.observed
        if outcome is None and truth:
            raise ValueError(f"the record of step {record.step!r} has no truth; ask for truth=False")
        rows.append(_missing(problem) if outcome is None else problem.encode_outcome(*outcome))
    y = np.array(rows).reshape(len(rows), len(problem.outputs))
    g = [limit.sign * (y[:, limit.output] - limit.bound) for limit in problem.limits]
    return y[:, 0], np.array(g).reshape(len(g), len(rows)).T


def _missing(problem: Problem) -> Array:
    return np.full(len(problem.outputs), np.nan)


def _limits(g: Array) -> Array:
    g = np.asarray(g, dtype=float)
    if g.ndim != 2:
        raise ValueError(f"g must be of shape (T, N), one column a limit, got {g.shape}")
    return g
