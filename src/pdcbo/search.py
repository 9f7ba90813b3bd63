"""Minimise a score over theta at one context: on a grid in low dimension, by multi-start gradients above it.

A score maps the posterior to something to be minimised, elementwise over points:

    score(mean (q, m), std (q, m)) -> (m,)

so that one acquisition serves both searches. The gradient search gets d score / d(mean, std) by central differences,
which costs no posterior evaluation, and d(mean, std) / d theta from the Gaussian process in closed form.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from math import prod

import numpy as np
from numpy.random import Generator

from pdcbo.models import Models
from pdcbo.problem import Array, Choice, Problem

Score = Callable[[Array, Array], Array]
Draw = Callable[[], Generator]  # makes the generator of this moment, where one is needed

GRID_POINTS = {0: 1, 1: 256, 2: 50}
MAX_GRID = 4096
STARTS = 24
SAMPLES_PER_DIMENSION = 256
TIE = 1e-10


def grid(problem: Problem, points: int | None = None) -> Array | None:
    """Return the candidates of a grid search, shape (M, n_theta), or None where a grid would be too coarse.

    Args:
        problem: its choices contribute all their levels, its integers at most 101.
        points: for each real parameter; by default 256 for one, 50 each for two, no grid for more. One point is the
            lower end of the range.
    """
    variables = list(problem.parameters.values())
    reals = sum(v.levels is None for v in variables)
    if points is None:
        points = GRID_POINTS.get(reals)
        if points is None:
            return None
    counts = [points if v.levels is None else _levels(v.levels, isinstance(v, Choice)) for v in variables]
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
    from scipy.optimize import minimize  # imported here: it doubles the time to import the package
    from scipy.stats import qmc

    problem, d = models.problem, models.problem.n_theta
    count = 2 ** int(np.ceil(np.log2(SAMPLES_PER_DIMENSION * max(d, 2))))
    spread = qmc.Sobol(d, seed=rng).random(count)
    near = incumbents[rng.integers(len(incumbents), size=count // 4)] if len(incumbents) else spread[:0]
    near = near + rng.normal(scale=0.05, size=near.shape)
    pool = problem.snap(np.vstack([spread, incumbents, near]))
    values = _score_at(models, z, score, pool)
    chosen = _diverse(pool, values, STARTS)
    free = np.array([not isinstance(v, Choice) for v in problem.parameters.values()])
    starts = pool[chosen]

    def total(flat: Array) -> tuple[float, Array]:
        theta = flat.reshape(len(starts), d)
        value, gradient = _score_gradient(models, z, score, theta)
        return float(value.sum()), np.where(free, gradient, 0.0).ravel()

    # The starts share one L-BFGS run: a sum of functions of separate variables has their minima as its minimum.
    spread_of_scores = max(float(np.ptp(values)), 1e-12)
    result = minimize(
        lambda flat: tuple(part / spread_of_scores for part in total(flat)),
        starts.ravel(),
        jac=True,
        method="L-BFGS-B",
        bounds=[(0.0, 1.0)] * starts.size,
        options={"maxiter": 60, "ftol": 1e-9},
    )
    finals = problem.snap(np.vstack([result.x.reshape(len(starts), d), starts]))
    best = finals[lowest(_score_at(models, z, score, finals), finals, lambda: rng)]
    return _neighbours(models, z, score, best)


def _points(theta: Array, z: Array) -> Array:
    return np.hstack([theta, np.broadcast_to(z, (len(theta), len(z)))])


def _score_at(models: Models, z: Array, score: Score, theta: Array) -> Array:
    return score(*models.predict(_points(theta, z)))


def _score_gradient(models: Models, z: Array, score: Score, theta: Array) -> tuple[Array, Array]:
    mean, std, d_mean, d_std = models.predict_gradient(_points(theta, z))
    n_theta = theta.shape[1]
    gradient = np.zeros_like(theta)
    for i in range(len(mean)):
        for values, slopes in ((mean, d_mean), (std, d_std)):
            step = 1e-6 * float(np.abs(std[i]).max()) + 1e-300
            centre = values[i].copy()
            values[i] = centre + step
            above = np.array(score(mean, std))  # a copy: a score may be a view of the mean
            values[i] = centre - step
            below = score(mean, std)
            values[i] = centre
            gradient += ((above - below) / (2.0 * step))[:, None] * slopes[i][:, :n_theta]
    return score(mean, std), gradient


def _diverse(pool: Array, values: Array, count: int) -> list[int]:
    """Return the best points that are not next to a better one, then the best of the rest."""
    order = np.argsort(values, kind="stable")
    radius = 0.1 * np.sqrt(pool.shape[1])
    chosen: list[int] = []
    for i in order[: 20 * count]:
        if all(np.linalg.norm(pool[i] - pool[j]) > radius for j in chosen):
            chosen.append(int(i))
        if len(chosen) == count:
            return chosen
    return chosen + [int(i) for i in order if int(i) not in set(chosen)][: count - len(chosen)]


def _neighbours(models: Models, z: Array, score: Score, theta: Array) -> Array:
    """Improve integers and choices one at a time until no single change helps."""
    levels = [v.levels for v in models.problem.parameters.values()]
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
        values = _score_at(models, z, score, pool)
        best = int(np.argmin(values))
        if values[best] >= values[0]:
            return theta
        theta = pool[best]
    return theta
