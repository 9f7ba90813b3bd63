"""The oracle of a simulated plant on the continuous box: candidates first, then refined where it matters.

A table over candidates finds the basins. The three optima of `pdcbo.oracles` are then refined in all contexts at
once: the support of each context's best mixture and the minimiser of the time-average Lagrangian by compass search, the
best feasible point by a compass search that slides along the limits that bind. Above two parameters, and where some
are whole numbers or choices, a search starts from several of the best candidates that lie apart; it is a search all
the same, and a better point may have been missed. The refined points join the candidates of their context, so
refinement never makes an oracle worse.

    z (T, n_z)   contexts          x (T, K, n_theta)   points a context          grid (M, n_theta)   candidates
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from itertools import product

import numpy as np

from pdcbo import oracles
from pdcbo.oracles import Index, Oracle
from pdcbo.problem import Array, Problem

Values = Callable[[Array, Array], Array]  # theta (..., K, n_theta), z (..., 1, n_z) -> y (..., K, 1 + n)
Rows = Callable[[Array], Array]  # y (..., 1 + n) -> g (..., N)

TABLE_ENTRIES = 200_000  # of a part of the table that is computed at once: it bounds what a plant needs in between
CHUNK = 64  # contexts refined together
STRETCH = 1.5  # of candidates about the centre of the box, beyond which they are put on its faces
MOST_CORNERS = 8  # dimensions with 256 of them
STARTS = 4  # of a search where one start may miss the basin
APART = 0.1  # the least distance between them, in units of the diagonal of the box
SMALLEST_STEP = 1e-4  # of the range: the optimum is quadratic in it
ENOUGH = 0.02  # a step h that gains less than this times h^2 times the objective's range is halved


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


def _with_faces(problem: Problem, grid: Array) -> Array:
    """Return spread-out candidates with every second of them moved outwards, most of these onto a face, and corners.

    Many an optimum lies there, and points that are spread out evenly do not.
    """
    corners = np.array(list(product((0.0, 1.0), repeat=problem.n_theta)))
    return np.vstack([grid, problem.snap(0.5 + STRETCH * (grid[::2] - 0.5)), corners])


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
        z, inverse, repeats = np.unique(z, axis=0, return_inverse=True, return_counts=True)
        counts = repeats.astype(float)
    else:
        z, inverse, counts = z[:1], np.zeros(len(z), dtype=int), np.array([float(len(z))])
    inverse = inverse.reshape(-1)
    if polish and 2 < problem.n_theta <= MOST_CORNERS:
        grid = _with_faces(problem, grid)
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


def _refined(problem: Problem, values: Values, rows: Rows, z: Array, x: Array, y: Array, counts: Array) -> Array:
    """Return points (T, K, n_theta): the best feasible ones, the mixture's support, the Lagrangian's minimisers."""
    f, g = y[..., 0], rows(y)
    several = STARTS if problem.n_theta > 2 or any(v.levels is not None for v in problem.parameters.values()) else 1
    best = oracles.best_feasible(f, g)[0]
    mixture = oracles.best_mixture(f, g)
    prices = oracles.time_average(f, g, counts)[2]
    support = np.where(mixture.support < 0, best[:, None], mixture.support)
    kept = np.where((g <= 0).all(axis=2), f, np.inf)
    starts = np.column_stack([_apart(kept, x[0], best, several), support, _apart(f + g @ prices, x[0], None, several)])
    phi = np.repeat(mixture.prices[:, None], starts.shape[1], axis=1)
    phi[:, -several:] = prices
    step = 1.5 * len(x[0]) ** (-1.0 / problem.n_theta)
    points = np.take_along_axis(x, starts[..., None], axis=1)
    feasible = np.all(g[np.arange(len(z)), best] <= 0, axis=1)
    scale = np.append(np.ptp(f), np.abs(g).max(axis=(0, 1))) + np.finfo(float).tiny
    for i in range(0, len(z), CHUNK):
        part = slice(i, i + CHUNK)
        others = points[part, several:], phi[part, several:]
        points[part, several:] = _compass(problem, values, rows, z[part], *others, scale[0], step)
        ok = i + np.flatnonzero(feasible[part])
        if problem.limits and len(ok):
            for j in range(several):
                points[ok, j] = _slide(problem, values, rows, z[ok], points[ok, j], scale, step)
    return points


def _apart(merit: Array, grid: Array, first: Index | None, count: int) -> Index:
    """Return the candidates (T, count) of least merit (T, M) that lie apart; the first again where no more are left."""
    merit, rows = merit.copy(), np.arange(len(merit))
    chosen = [np.argmin(merit, axis=1) if first is None else first]
    while len(chosen) < count:
        near = np.linalg.norm(grid - grid[chosen[-1]][:, None], axis=2) <= APART * math.sqrt(grid.shape[1])
        merit[near] = np.inf
        index = np.argmin(merit, axis=1)
        chosen.append(np.where(np.isfinite(merit[rows, index]), index, chosen[0]))
    return np.column_stack(chosen)


def _compass(
    problem: Problem, values: Values, rows: Rows, z: Array, x: Array, phi: Array, range_f: float, step: float
) -> Array:
    """Minimise f + phi' g from each of x (T, K, n): move to the best neighbour a step away, or halve the step."""
    T, K, n = x.shape
    moves = _moves(n)
    h = np.full((T, K, 1, 1), step)
    for _ in range(30):
        if (h < SMALLEST_STEP).all():
            break
        near = problem.snap(x[:, :, None] + h * moves)
        y = values(near.reshape(T, -1, n), z[:, None]).reshape(T, K, len(moves), -1)
        merit = y[..., 0] + (rows(y) * phi[:, :, None]).sum(axis=-1)
        best = np.argmin(merit, axis=2)
        x = np.take_along_axis(near, best[..., None, None], axis=2)[:, :, 0]
        gain = merit[:, :, 0] - merit.min(axis=2)
        h = np.where(gain[..., None, None] <= ENOUGH * h * h * range_f, 0.5 * h, h)
    return x


def _slide(problem: Problem, values: Values, rows: Rows, z: Array, x: Array, scale: Array, step: float) -> Array:
    """Move feasible points x (T, n) as in compass search, with neighbours that break limits brought back to them.

    A neighbour is brought back by Gauss-Newton steps on the limits that it breaks, the last a little too long so
    that it ends inside. So the search follows a binding limit, or ends in the corner of several, where plain
    neighbours are all infeasible or worse. `scale` (1 + N,) is the size of the objective and of each limit.
    """
    n, N = x.shape[1], len(scale) - 1
    moves, range_f, scale = _moves(n), scale[0], scale[1:]
    nudge = 1e-5 * np.concatenate([np.eye(n), -np.eye(n)])
    h = np.full((len(x), 1, 1), step)
    for _ in range(60):
        if (h < SMALLEST_STEP).all():
            break
        near = rows(values(x[:, None] + nudge, z[:, None])) / scale
        slope = ((near[:, :n] - near[:, n:]) / 2e-5).swapaxes(1, 2)[:, None]  # (T, 1, N, n)
        points = problem.snap(x[:, None] + h * moves)
        for length in (1.0, 1.0, 1.2):
            excess = length * rows(values(points, z[:, None])) / scale + 1e-10
            broken = excess > 0
            J = np.where(broken[..., None], slope, 0.0)
            normal = J @ J.swapaxes(-1, -2) + np.eye(N) * np.where(broken, 1e-12, 1.0)[..., None, :]
            back = J.swapaxes(-1, -2) @ np.linalg.solve(normal, np.where(broken, excess, 0.0)[..., None])
            # The stay-put neighbour is never moved: the search may not lose what it has.
            points[:, 1:] = problem.snap(points - back[..., 0])[:, 1:]
        y = values(points, z[:, None])
        merit = np.where((rows(y) <= 0).all(axis=-1), y[..., 0], np.inf)
        best = np.argmin(merit, axis=1)
        x = points[np.arange(len(x)), best]
        gain = merit[:, 0] - merit.min(axis=1)
        h = np.where(gain[:, None, None] <= ENOUGH * h * h * range_f, 0.5 * h, h)
    return x


def _moves(n: int) -> Array:
    """Return the stay-put move and the axis directions, with the diagonals in the plane."""
    moves = np.concatenate([np.zeros((1, n)), np.eye(n), -np.eye(n)])
    if n == 2:
        moves = np.concatenate([moves, 0.7 * np.array([[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0]])])
    return moves
