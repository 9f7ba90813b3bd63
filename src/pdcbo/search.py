"""Minimise a score over theta at one context: on a grid in low dimension, by multi-start gradients above it.

A score maps the posterior to something to be minimised, elementwise over points:

    score(mean (q, m), std (q, m)) -> (m,)

so that one acquisition serves both searches. The gradient search gets d score / d(mean, std) by central differences,
which costs no posterior evaluation, and d(mean, std) / d theta from the Gaussian process in closed form
(`pdcbo.section`).
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from math import prod

import numpy as np
from numpy.random import Generator

from pdcbo.descent import descend
from pdcbo.models import Models
from pdcbo.problem import Array, Choice, Problem
from pdcbo.section import Section

Score = Callable[[Array, Array], Array]
Draw = Callable[[], Generator]  # makes the generator of this moment, where one is needed

GRID_POINTS = {0: 1, 1: 256, 2: 50}
LEAST_POINTS = 50
MAX_GRID = 4096
STARTS = 24
SAMPLES_PER_DIMENSION = 256
# where a step of the gradient search promises less than this part of the range of scores, it has arrived
TOLERANCE = 1e-6
ROUNDS = 30
TIE = 1e-10


def grid(problem: Problem, points: int | None = None) -> Array | None:
    """Return the candidates of a grid search, shape (M, n_theta), or None where a grid would be too coarse.

    Args:
        problem: its choices contribute all their levels, its integers at most 101.
        points: for each real parameter; by default 256 for one, 50 each for two, no grid for more. Beside integers and
            choices one real parameter gets what room they leave, but no less than 50. One point is the lower end of
            the range.
    """
    variables = list(problem.parameters.values())
    reals = sum(v.levels is None for v in variables)
    levels = [None if v.levels is None else _levels(v.levels, isinstance(v, Choice)) for v in variables]
    if points is None:
        if reals not in GRID_POINTS:
            return None
        room = MAX_GRID // prod(n for n in levels if n is not None)
        points = min(GRID_POINTS[reals], max(room, LEAST_POINTS)) if reals == 1 else GRID_POINTS[reals]
    counts = [points if n is None else n for n in levels]
    if prod(counts) > MAX_GRID:
        return None
    return problem.snap(np.array(list(product(*(np.linspace(0.0, 1.0, count) for count in counts)))))


def _levels(levels: int, is_choice: bool) -> int:
    """Return how many levels enter a grid: all of a choice, at most 101 of an integer."""
    return levels if is_choice else min(levels, 101)


def lowest(values: Array, candidates: Array, rng: Draw) -> int:
    """Return the index of the smallest value; ties, which flat posteriors make, break at random by the generator.

    Where everything ties, nothing is known, and the candidate nearest to the centre of the box is taken.
    """
    low, high = values.item(values.argmin()), values.item(values.argmax())
    tied = (values <= low + TIE * (high - low)).nonzero()[0]
    if len(tied) == 1:
        return int(tied[0])
    if len(tied) == len(values):
        return int(np.argmin(((candidates - 0.5) ** 2).sum(axis=1)))
    return int(rng().choice(tied))


def multi_start(models: Models, z: Array, score: Score, rng: Generator, incumbents: Array) -> Array:
    """Return the theta of lowest score found from many starting points at once, shape (n_theta,).

    Args:
        models: give mean and std and their gradients.
        z: the context.
        score: see the module.
        rng: draws the starting points.
        incumbents: (k, n_theta), points worth starting from besides random ones.
    """
    from scipy.stats import qmc  # imported here: it doubles the time to import the package

    problem, d, section = models.problem, models.problem.n_theta, models.section(z)
    count = 2 ** int(np.ceil(np.log2(SAMPLES_PER_DIMENSION * max(d, 2))))
    spread = qmc.Sobol(d, seed=rng).random(count)
    near = incumbents[rng.integers(len(incumbents), size=count // 4)] if len(incumbents) else spread[:0]
    near = near + rng.normal(scale=0.05, size=near.shape)
    pool = problem.snap(np.vstack([spread, incumbents, near]))
    values = score(*section.predict(pool))
    starts = pool[_diverse(pool, values, STARTS)]
    free = np.array([not isinstance(v, Choice) for v in problem.parameters.values()])
    tolerance = TOLERANCE * max(float(np.ptp(values)), 1e-300)
    arrived = descend(lambda theta: score_gradient(section, score, theta), starts, free, tolerance, ROUNDS)
    finals = problem.snap(np.vstack([arrived, starts]))
    best = finals[lowest(score(*section.predict(finals)), finals, lambda: rng)]
    return _neighbours(section, problem, score, best)


def score_gradient(section: Section, score: Score, theta: Array) -> tuple[Array, Array]:
    """Return the score at theta (m, n_theta), shape (m,), and its gradient, shape (m, n_theta)."""
    mean, std, d_mean, d_std = section.predict_gradient(theta)
    q, m = mean.shape
    step = 1e-6 * np.abs(std).max(axis=1) + 1e-300
    # as they are, and then each mean and each std of one output a little higher and lower, all in one call
    both = np.tile(np.stack([mean, std])[:, :, None], (1, 1, 1 + 4 * q, 1))
    for i in range(q):
        for kind in (0, 1):
            place = 1 + 4 * i + 2 * kind
            both[kind, i, place] += step[i]
            both[kind, i, place + 1] -= step[i]
    values = score(*both.reshape(2, q, -1)).reshape(1 + 4 * q, m)
    slopes = (values[1::2] - values[2::2]).reshape(q, 2, m) / (2.0 * step[:, None, None])
    return values[0], np.einsum("qkm,qkmd->md", slopes, np.stack([d_mean, d_std], axis=1))


def _diverse(pool: Array, values: Array, count: int) -> list[int]:
    """Return the best points that are not next to a better one, then the best of the rest."""
    order = np.argsort(values, kind="stable")
    radius = 0.1 * np.sqrt(pool.shape[1])
    best = order[: 20 * count]
    points, far = pool[best], np.ones(len(best), dtype=bool)
    chosen: list[int] = []
    while len(chosen) < count and far.any():
        i = int(np.argmax(far))
        chosen.append(int(best[i]))
        far &= np.linalg.norm(points - points[i], axis=1) > radius
    rest = order[~np.isin(order, chosen)]
    return [*chosen, *rest[: count - len(chosen)].tolist()]


def _neighbours(section: Section, problem: Problem, score: Score, theta: Array) -> Array:
    """Improve integers and choices one at a time until no single change helps."""
    levels = [v.levels for v in problem.parameters.values()]
    if all(n is None for n in levels):
        return theta
    for _ in range(10):
        moves = [theta]
        for j, n in enumerate(levels):
            if n is not None:
                here = round(theta[j] * (n - 1))
                places = range(n) if n <= 20 else (max(here - 1, 0), min(here + 1, n - 1))
                for place in places:
                    move = theta.copy()
                    move[j] = place / (n - 1)
                    moves.append(move)
        pool = np.array(moves)
        values = score(*section.predict(pool))
        best = int(np.argmin(values))
        if values[best] >= values[0]:
            return theta
        theta = pool[best]
    return theta
