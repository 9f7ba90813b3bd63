"""The best that could have been done, by three measures, from tables over candidate parameters.

    f (T, M)      objective of candidate m in the context of step t
    g (T, M, N)   its limits, feasible where <= 0

(1) *per step*: the best single candidate that meets every limit at that step; the comparator of the contextual regret
    (3a).
(2) *in expectation*, problem (16) without its slack: the best distribution over candidates in each context whose
    expected limits hold in that context. A linear programme a context.
(3) *time average*: distributions may trade between contexts, min sum_t E f s.t. sum_t E g_i <= 0, whose value is
    max over phi >= 0 of sum_t min_theta (f + phi' g). This is what the method competes with. Since each allows more
    than the one before, (1) >= (2) >= (3).

Where limits cannot be met, they are relaxed by the least factor of their size (the largest |g_i| of the table) that
makes them attainable, and the value is the best under the relaxed limits: always a number, never infinity. Such
steps are listed in `infeasible_steps`, and `relaxation` says by how much the time-average limits had to give.

Linear programmes are solved by a revised simplex method that advances all contexts at once: with N limits a basis has
only N + 1 columns, so a pivot is a small solve and one pass over the table.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pdcbo.problem import Array

Index = NDArray[np.intp]

# The price of relaxing limits, in ranges of the objective per size of a limit: above any price that a problem with a
# Slater margin of 1e-6 of that size can have, and small enough to leave ten digits.
RELAXATION_PRICE = 1e6
TOLERANCE = 1e-9


@dataclass(frozen=True)
class Oracle:
    """The best that could have been done in T steps.

    Attributes:
        per_step: (T,) the best feasible objective of each step; at a step without a feasible candidate, that of the
            candidate whose worst limit, in units of its size, is least exceeded.
        in_expectation: (T,) the best expected objective with each context's limits met in expectation.
        time_average: the total over the T steps of the best with limits met on average over time: the Lagrangian
            lower bound at `prices`, at most `gap` below what a distribution over the candidates attains.
        prices: (N,) the multipliers phi, in objective units per unit of each limit.
        infeasible_steps: the steps, counted from 0, without a feasible candidate.
        gap: total cost between the time-average optimum's upper and lower bound.
        relaxation: (N,) how far the time averages of the limits must exceed 0 at least; zero where they can be met.
        theta: (T, n_theta) the parameters behind `per_step` in the unit cube, where the plant knows them.
    """

    per_step: Array
    in_expectation: Array
    time_average: float
    prices: Array
    infeasible_steps: Index
    gap: float
    relaxation: Array
    theta: Array | None = None


class Mixture(NamedTuple):
    """Best distributions over candidates, one a row of the table, with their multipliers.

    Attributes:
        value: (T,) expected objective.
        prices: (T, N) multipliers of the limits.
        relaxation: (T, N) how far limits are exceeded, zero where they can be met.
        support: (T, N + 1) candidates in the distribution, -1 where the basis holds a slack.
    """

    value: Array
    prices: Array
    relaxation: Array
    support: Index


def solve(f: Array, g: Array, weights: Array | None = None) -> Oracle:
    """Return all three oracles of tables f (T, M) and g (T, M, N).

    Args:
        f: objective of each candidate at each step.
        g: limits of each candidate at each step, feasible where <= 0.
        weights: (T,) how many steps each row stands for; one each by default.
    """
    f, g = _tables(f, g)
    best, feasible = best_feasible(f, g)
    mixture = best_mixture(f, g)
    value, gap, prices, relaxation = time_average(f, g, weights)
    return Oracle(
        per_step=f[np.arange(len(f)), best],
        in_expectation=mixture.value,
        time_average=value,
        prices=prices,
        infeasible_steps=np.flatnonzero(~feasible),
        gap=gap,
        relaxation=relaxation,
    )


def best_feasible(f: Array, g: Array) -> tuple[Index, NDArray[np.bool_]]:
    """Return the index of the best feasible candidate of each step, and whether there is one.

    Without one, it is the candidate with the least max_i g_i / size_i, and the cheapest of equals.
    """
    f, g = _tables(f, g)
    if g.shape[2] == 0:
        return np.argmin(f, axis=1), np.ones(len(f), dtype=bool)
    worst = (g / _sizes(g)).max(axis=2)
    least = np.maximum(worst.min(axis=1), 0.0)
    best = np.argmin(np.where(worst <= least[:, None], f, np.inf), axis=1)
    return best, least <= 0.0


def best_mixture(f: Array, g: Array, size: Array | None = None, spread: float = 0.0) -> Mixture:
    """Solve min_w f'w s.t. g'w <= 0, w a distribution over candidates, for every row of the tables.

    In standard form, with a slack s and one shared relaxation v,
        min f'w + price * v   s.t.   g'w - size v + s = 0,   1'w = 1,   w, s, v >= 0.

    Args:
        f: (T, M) objective.
        g: (T, M, N) limits.
        size: (N,) what a limit is relaxed in units of; by default the largest |g_i|.
        spread: the range of the objective that relaxing is priced by, if it is larger than that of f.
    """
    f, g = _tables(f, g)
    (T, M), N = f.shape, g.shape[2]
    size, low = _sizes(g) if size is None else size, f.min(axis=1, keepdims=True)
    spread = max(float((f - low).max()), spread) or 1.0
    cost, rows = (f - low) / spread, g / size
    basis, columns, costs = _first_basis(cost, rows)
    # A rounding-sized right-hand side keeps vertices apart, so that degenerate pivots cannot cycle.
    rhs = np.append(1e-12 * (1.0 + np.arange(N) / (N + 1.0)), 1.0)
    level, dual = np.empty((T, N + 1)), np.empty((T, N + 1))
    active = np.arange(T)
    for _ in range(100 * (N + 2)):
        B, c = columns[active], costs[active]
        level[active] = np.linalg.solve(B, np.broadcast_to(rhs[:, None], (len(active), N + 1, 1)))[..., 0]
        dual[active] = y = np.linalg.solve(B.swapaxes(1, 2), c[..., None])[..., 0]
        reduced = np.empty((len(active), M + N + 1))
        reduced[:, :M] = cost[active] - y[:, N:]
        for i in range(N):
            reduced[:, :M] -= y[:, i : i + 1] * rows[active, :, i]
        reduced[:, M : M + N] = -y[:, :N]
        reduced[:, M + N] = RELAXATION_PRICE + y[:, :N].sum(axis=1)
        np.put_along_axis(reduced, basis[active], 0.0, axis=1)
        entering = np.argmin(reduced, axis=1)
        going = reduced[np.arange(len(active)), entering] < -TOLERANCE
        active, entering, B = active[going], entering[going], B[going]
        if not len(active):
            break
        column, price = _column(cost, rows, active, entering)
        direction = np.linalg.solve(B, column[..., None])[..., 0]
        positive = direction > 1e-11
        ratio = np.where(positive, np.maximum(level[active], 0.0) / np.where(positive, direction, 1.0), np.inf)
        leaving = np.argmin(ratio, axis=1)
        basis[active, leaving] = entering
        columns[active, :, leaving] = column
        costs[active, leaving] = price
    else:
        raise ArithmeticError(f"the simplex method did not end on {len(active)} of {T} contexts")
    point = basis < M
    value = np.where(point, np.take_along_axis(f, np.where(point, basis, 0), axis=1) * level, 0.0).sum(axis=1)
    relaxed = np.where(basis == M + N, level, 0.0).sum(axis=1, keepdims=True)
    relaxed = np.where(relaxed > 1e-9, relaxed, 0.0)
    return Mixture(value, np.maximum(-dual[:, :N], 0.0) * spread / size, relaxed * size, np.where(point, basis, -1))


def time_average(f: Array, g: Array, weights: Array | None = None) -> tuple[float, float, Array, Array]:
    """Maximise sum_t min_theta (f + phi' g) over phi >= 0 by column generation.

    Each phi gives the total (F, G) of the candidates that minimise f + phi' g; the best mixture of all totals so far
    is attainable, hence an upper bound, and its multipliers are the next phi, whose Lagrangian is a lower bound.

    Returns:
        The best lower bound (a total over steps), the gap to the upper one, phi (N,) and the relaxation (N,) of the
        time averages, zero where all limits can be met.
    """
    f, g = _tables(f, g)
    T, N = len(f), g.shape[2]
    weights = np.ones(T) if weights is None else np.asarray(weights, dtype=float)
    steps = float(weights.sum())
    if N == 0:
        return float(weights @ f.min(axis=1)), 0.0, np.zeros(0), np.zeros(0)
    rows, index, size = np.arange(T), best_feasible(f, g)[0], _sizes(g)
    spread = float(np.max(f.max(axis=1) - f.min(axis=1))) or 1.0
    totals: list[Array] = []
    lower, best = -np.inf, np.zeros(N)
    for _ in range(500):
        totals.append(np.append(weights @ f[rows, index], weights @ g[rows, index]) / steps)
        table = np.array(totals)
        mixture = best_mixture(table[None, :, 0], table[None, :, 1:], size, spread)
        phi, relaxation = mixture.prices[0], mixture.relaxation[0]
        upper = steps * float(mixture.value[0] + phi @ relaxation)
        lagrangian = f.copy()
        for i in range(N):
            lagrangian += phi[i] * g[:, :, i]
        index = np.argmin(lagrangian, axis=1)
        bound = float(weights @ lagrangian[rows, index])
        if bound > lower:
            lower, best = bound, phi
        # With relaxed limits both bounds carry the price of relaxing them, and so less precision.
        if upper - lower <= steps * spread * (1e-6 if relaxation.any() else 1e-9):
            break
    value = steps * float(mixture.value[0]) if relaxation.any() else lower
    return value, max(upper - lower, 0.0), best, relaxation


def _tables(f: Array, g: Array) -> tuple[Array, Array]:
    f, g = np.asarray(f, dtype=float), np.asarray(g, dtype=float)
    if f.ndim != 2 or g.ndim != 3 or g.shape[:2] != f.shape or 0 in f.shape:
        raise ValueError(f"tables must be f (T, M) and g (T, M, N) with T, M >= 1, got {f.shape} and {g.shape}")
    return f, g


def _sizes(g: Array) -> Array:
    """Return the largest |g_i| of the table, (N,), 1 where a limit is zero everywhere."""
    size = np.abs(g).max(axis=(0, 1))
    return np.where(size > 0, size, 1.0)


def _first_basis(cost: Array, rows: Array) -> tuple[Index, Array, Array]:
    """Start from the best feasible candidate and all slacks, or the least infeasible one and the relaxation."""
    (T, M), N = cost.shape, rows.shape[2]
    start, feasible = best_feasible(cost, rows)
    basis = np.concatenate([np.broadcast_to(np.arange(M, M + N), (T, N)), start[:, None]], axis=1)
    if N:
        worst = np.argmax(rows[np.arange(T), start], axis=1)
        basis[~feasible, worst[~feasible]] = M + N
    columns, costs = np.empty((T, N + 1, N + 1)), np.empty((T, N + 1))
    for k in range(N + 1):
        columns[:, :, k], costs[:, k] = _column(cost, rows, np.arange(T), basis[:, k])
    return basis, columns, costs


def _column(cost: Array, rows: Array, which: Index, index: Any) -> tuple[Array, Array]:
    """Return the columns (A, N + 1) and costs (A,) of variables `index` of the programmes `which`."""
    M, N = rows.shape[1:]
    point, at = index < M, np.where(index < M, index, 0)
    column = np.zeros((len(index), N + 1))
    column[:, :N] = np.where(point[:, None], rows[which, at], 0.0)
    column[:, N] = point
    for i in range(N):
        column[index == M + i, i] = 1.0
    column[index == M + N, :N] = -1.0
    price = np.where(point, cost[which, at], np.where(index == M + N, RELAXATION_PRICE, 0.0))
    return column, price
