"""What an experimenter knows before a run: hyper-parameters fitted to random points, or the best constant parameters.

`prepare` is what the paper does for its second experiment: measure a few random points, fit the hyper-parameters of the
kernels to them once, and work with outputs in standardised units (the objective by its mean and spread, a constraint
by its limit and spread, so that g = 0 stays where it is). The points themselves are not told to the optimizer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from pdcbo.fit import Hyperparameters, Priors, fit, initial
from pdcbo.model import Model, kernel_for
from pdcbo.plants import SimulatedPlant
from pdcbo.problem import Array, Constraint, Problem

ENTRIES = 400_000  # of a table of responses that is computed at once


@dataclass(frozen=True)
class Preparation:
    """A problem in standardised units with fitted models; y' = (y - shift) / scale."""

    problem: Problem
    models: dict[str, Any]
    shift: Array
    scale: Array

    def standardise(self, y: Array) -> Array:
        """Map outputs (..., q) from plant units to standardised ones."""
        return (y - self.shift) / self.scale


def prepare(plant: SimulatedPlant, points: int, seed: int, kernel: str = "squared-exponential") -> Preparation:
    """Measure random points and fit every output's hyper-parameters to them by maximum a-posteriori likelihood."""
    problem = plant.problem
    rng = np.random.default_rng([seed, 7])
    theta, z = problem.snap(rng.random((points, problem.n_theta))), rng.random((points, problem.n_z))
    true = plant.values(theta[:, None], z[:, None])[:, 0]
    Y = np.array([plant.measure(true[i], theta[i], z[i], rng) for i in range(points)])
    bounds = [c.upper if c.upper is not None else c.lower for c in problem.constraints.values()]
    shift = np.array([Y[:, 0].mean(), *bounds])
    scale = Y.std(axis=0, ddof=1)
    scaled = (Y - shift) / scale
    X, models = np.hstack([theta, z]), {}
    priors = Priors(trend=0.0)  # as `as_model` needs it
    for i, name in enumerate(problem.outputs):
        start = initial(kernel_for(problem, kernel, np.ones(X.shape[1])), priors, scaled[:, i], 0.0 if i else None)
        fitted = fit(X, scaled[:, i], start, priors, reference=0.0 if i else None)
        models[name] = as_model(problem, fitted, kernel).to_json()
    constraints = {
        name: Constraint(
            upper=None if c.upper is None else (c.upper - shift[i]) / scale[i],
            lower=None if c.lower is None else (c.lower - shift[i]) / scale[i],
            noise=None if c.noise is None else c.noise / scale[i],
        )
        for i, (name, c) in enumerate(problem.constraints.items(), start=1)
    }
    return Preparation(Problem(problem.parameters, problem.context, constraints), models, shift, scale)


def as_model(problem: Problem, fitted: Hyperparameters, kernel: str) -> Model:
    """Express fitted hyper-parameters in the problem's units, to be given to an optimizer."""
    if any(fitted.slope):
        raise ValueError(f"a Model has a constant mean, got a fit with slope {fitted.slope!r}")
    lengths = {}
    names = (*problem.parameters, *problem.context)
    for factor in fitted.kernel.factors:
        for column, length in zip(factor.columns, factor.length_scales, strict=True):
            lengths[names[column]] = length / problem.variables[column].length(1.0)
    variance = fitted.scale**2
    return Model(kernel, lengths, fitted.kernel.variance * variance, fitted.noise_var * variance, fitted.mean)


def best_constant(plant: SimulatedPlant, contexts: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the parameters that, held fixed, cost least in these contexts with every limit met on average.

    Without any such parameters, those whose worst average limit is least exceeded.
    """
    problem = plant.problem
    z = np.array([problem.encode_context(c) for c in contexts]).reshape(len(contexts), problem.n_z)
    points = plant.candidates()
    best = points[_best(plant, points, z)]
    radius = 1.5 * len(points) ** (-1.0 / problem.n_theta)
    rng = np.random.default_rng(0)
    for _ in range(4):
        near = best + radius * rng.uniform(-1.0, 1.0, (200, problem.n_theta))
        points = problem.snap(np.vstack([best, near]))
        best = points[_best(plant, points, z)]
        radius *= 0.25
    return problem.decode_parameters(best)


def _best(plant: SimulatedPlant, points: Array, z: Array) -> int:
    size = max(1, ENTRIES // len(points))
    total = sum(plant.values(points, z[i : i + size, None]).sum(axis=0) for i in range(0, len(z), size))
    average = np.asarray(total) / len(z)
    g = plant.rows(average)
    excess = np.maximum(g / (np.abs(g).max(axis=0) + 1e-300), 0.0).max(axis=1) if g.shape[1] else np.zeros(len(g))
    return int(np.argmin(np.where(excess <= excess.min(), average[:, 0], np.inf)))
