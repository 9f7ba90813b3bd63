"""The oracle of a simulated plant on the continuous box: candidates first, then refined where it matters.

A table over candidates finds the basins. The three optima of `pdcbo.oracles` are then refined in all contexts at
once: the support of each context's best mixture and the minimiser of the time-average Lagrangian by compass search, the
best feasible point by compass search and, where limits bind in two or more dimensions, by sequential quadratic
programming. The refined points join the candidates of their context, so refinement never makes an oracle worse.

    z (T, n_z)   contexts          x (T, K, n_theta)   points a context          grid (M, n_theta)   candidates
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from pdcbo import oracles
from pdcbo.oracles import Oracle
from pdcbo.problem import Array, Problem

Values = Callable[[Array, Array], Array]  # theta (..., K, n_theta), z (..., 1, n_z) -> y (..., K, 1 + n)
Rows = Callable[[Array], Array]  # y (..., 1 + n) -> g (..., N)

TABLE_ENTRIES = 200_000  # of a part of the table that is computed at once: it bounds what a plant needs in between


def candidate_grid(problem: Problem) -> Array:
    """Return candidates (M, n_theta): all levels and 401 or 51 values a dimension, or 2,500 spread-out points.

    The latter are the additive recurrence of the generalised golden ratio, a low-discrepancy sequence.
    """
    levels = [variable.levels for variable in problem.parameters.values()]
    steps = 401 if problem.n_theta == 1 else 51
    counts = [min(level or steps, 401) for level in levels]
    if math.prod(counts) <= 2_700:
        axes = np.meshgrid(*(np.linspace(0.0, 1.0, count) for count in counts), indexing="ij")
        return problem.snap(np.stack(axes, axis=-1).reshape(-1, problem.n_theta))
    return problem.snap(spread_out(2_500, problem.n_theta))


def spread_out(n: int, d: int) -> Array:
    """Return n points (n, d) of a low-discrepancy sequence in the unit cube."""
    ratio = 2.0
    for _ in range(50):
        ratio = (1.0 + ratio) ** (1.0 / (d + 1))
    return (0.5 + np.arange(1, n + 1)[:, None] * ratio ** -np.arange(1.0, d + 1)) % 1.0


def continuous_oracle(problem: Problem, values: Values, rows: Rows, z: Array, grid: Array, *, polish: bool) -> Oracle:
    """Return the oracle of the contexts z (T, n_z), each distinct one solved once."""
    if not len(z):
        raise ValueError("an oracle needs at least one context, got none")
    if z.shape[1]:
        z, inverse, counts = np.unique(z, axis=0, return_inverse=True, return_counts=True)
    else:
        z, inverse, counts = z[:1], np.zeros(len(z), dtype=int), np.array([len(z)])
    inverse = inverse.reshape(-1)
    x, y = np.broadcast_to(grid, (len(z), *grid.shape)), _table(values, grid, z)
    if polish and any(variable.levels is None for variable in problem.parameters.values()):
        points = _refined(problem, values, rows, z, x, y, counts)
        x = np.concatenate([x, points], axis=1)
        y = np.concatenate([y, values(points, z[:, None])], axis=1)
    f, g = y[..., 0], rows(y)
    oracle = oracles.solve(f, g, counts)
    infeasible = np.isin(inverse, oracle.infeasible_steps)
    best = x[np.arange(len(z)), oracles.best_feasible(f, g)[0]]
    return replace(
        oracle,
        per_step=oracle.per_step[inverse],
        in_expectation=oracle.in_expectation[inverse],
        infeasible_steps=np.flatnonzero(infeasible),
        theta=best[inverse],
    )


def _table(values: Values, grid: Array, z: Array) -> Array:
    """Return y (T, M, 1 + n) of every candidate in every context."""
    size = max(1, TABLE_ENTRIES // len(grid))
    return np.concatenate([values(grid, z[i : i + size, None]) for i in range(0, len(z), size)])


def _refined(
    problem: Problem, values: Values, rows: Rows, z: Array, x: Array, y: Array, counts: Array
) -> Array:
    """Return refined points (T, K, n_theta): the best feasible one, the mixture's support, the Lagrangian's minimiser."""
    f, g = y[..., 0], rows(y)
    best = oracles.best_feasible(f, g)[0]
    mixture = oracles.best_mixture(f, g)
    prices = oracles.time_average(f, g, counts)[2]
    support = np.where(mixture.support < 0, best[:, None], mixture.support)
    starts = np.column_stack([best, support, np.argmin(f + g @ prices, axis=1)])
    # One multiplier a start (T, K, N); infinite ones for the first, which must stay feasible.
    phi = np.repeat(mixture.prices[:, None], starts.shape[1], axis=1)
    phi[:, -1] = prices

    def merit(y: Array) -> Array:
        g = rows(y)
        value = y[..., 0] + (g * phi[:, :, None]).sum(axis=-1)
        value[:, 0] = np.where((g[:, 0] <= 0).all(axis=-1), y[:, 0, :, 0], np.inf)
        return value

    step = 1.5 * len(x[0]) ** (-1.0 / problem.n_theta)
    points = _compass(problem, values, merit, z, np.take_along_axis(x, starts[..., None], axis=1), step)
    if problem.n_theta > 1 and len(problem.limits) and all(v.levels is None for v in problem.parameters.values()):
        scale = np.append(np.ptp(f), np.abs(g).max(axis=(0, 1))) + np.finfo(float).tiny
        points[:, 0] = _sequential_quadratic(values, rows, z, points[:, 0], scale)
    return points


def _compass(
    problem: Problem, values: Values, merit: Callable[[Array], Array], z: Array, x: Array, step: float
) -> Array:
    """Move each of x (T, K, n) to the best of its neighbours a step away, halving the step where none is better."""
    T, K, n = x.shape
    eye = np.eye(n)
    moves = np.concatenate([np.zeros((1, n)), eye, -eye])
    if n == 2:
        moves = np.concatenate([moves, 0.7 * np.array([[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0]])])
    h = np.full((T, K, 1, 1), step)
    for _ in range(30):
        near = problem.snap(x[:, :, None] + h * moves)
        y = values(near.reshape(T, -1, n), z[:, None]).reshape(T, K, len(moves), -1)
        best = np.argmin(merit(y), axis=2)
        x = np.take_along_axis(near, best[..., None, None], axis=2)[:, :, 0]
        h = np.where(best[..., None, None] == 0, 0.5 * h, h)
    return x


def _sequential_quadratic(values: Values, rows: Rows, z: Array, x: Array, scale: Array) -> Array:
    """Refine feasible points x (T, n) along the limits that bind, each by SLSQP; keep what is feasible and better.

    `scale` (1 + N,) is the size of the objective and of each limit, whose functions SLSQP wants near one.
    """
    from scipy.optimize import minimize  # half a second to import, and only plants' oracles need it

    n = x.shape[1]
    g = rows(values(x[:, None], z[:, None])[:, 0])
    binding = (g <= 0).all(axis=1) & (g >= -0.1 * scale[1:]).any(axis=1)
    difference = np.concatenate([np.zeros((1, n)), 1e-6 * np.eye(n), -1e-6 * np.eye(n)])
    x = x.copy()
    for t in np.flatnonzero(binding):
        memory: dict[bytes, tuple[Array, Array]] = {}

        def local(u: Array, t: int = t, memory: dict[bytes, tuple[Array, Array]] = memory) -> tuple[Array, Array]:
            key = u.tobytes()
            if key not in memory:
                y = values(u + difference, z[t])
                scaled = np.column_stack([y[:, 0], rows(y)]) / scale
                memory[key] = scaled[0], (scaled[1 : n + 1] - scaled[n + 1 :]).T / 2e-6
            return memory[key]

        found = minimize(
            lambda u, local=local: local(u)[0][0],
            x[t],
            jac=lambda u, local=local: local(u)[1][0],
            bounds=[(0.0, 1.0)] * n,
            constraints={
                "type": "ineq",
                "fun": lambda u, local=local: -local(u)[0][1:],
                "jac": lambda u, local=local: -local(u)[1][1:],
            },
            method="SLSQP",
            options={"ftol": 1e-12, "maxiter": 50},
        )
        end = np.clip(found.x, 0.0, 1.0)
        level, slope = local(end)
        near = level[1:] > -1e-6
        inward = -np.linalg.pinv(slope[1:][near]) @ np.ones(int(near.sum()))
        # SLSQP ends within rounding of a limit, on either side: step inside by as little as it takes.
        for depth in (0.0, 1e-13, 1e-11, 1e-9, 1e-7, 1e-5):
            u = np.clip(end + depth * inward, 0.0, 1.0)
            now = local(u)[0]
            if (now[1:] <= 0).all():
                if now[0] < local(x[t])[0][0]:
                    x[t] = u
                break
    return x
