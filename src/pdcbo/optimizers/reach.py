"""How far a step may go beyond what was tried.

Nothing is known of what lies far out, and the corners of the box are where plants break. So a step goes no further than
a quarter of a parameter's range beyond all that was tried, past operation included, or one level where levels are
further apart than that. Options of a choice have no order: any of them may be next.
"""

from __future__ import annotations

from math import inf

import numpy as np

from pdcbo.problem import Array, Choice, Problem, Variable

SHARE = 0.25


class Reach:
    """The steps that are within reach.

    Args:
        problem: whose parameters are tried.
        candidates: (M, n_theta), those of a grid search, or None.
    """

    def __init__(self, problem: Problem, candidates: Array | None) -> None:
        self.problem = problem
        self.candidates = candidates
        self.distance = np.array([self._distance(j, v) for j, v in enumerate(problem.parameters.values())])

    def _distance(self, j: int, variable: Variable) -> float:
        """Return how far beyond what was tried the parameter j may go, in parts of its range."""
        if isinstance(variable, Choice):
            return inf
        if self.candidates is not None:
            widest = float(np.diff(np.unique(self.candidates[:, j])).max(initial=0.0))
        else:
            widest = 1.0 / (variable.levels - 1) if variable.levels and variable.levels > 1 else 0.0
        return max(SHARE, widest)

    def nearest(self, theta: Array, tried: Array) -> Array:
        """Return theta, or the point next to it that is within reach of what was tried (n, n_theta), if anything."""
        if not len(tried):
            return theta
        near = np.clip(theta, tried.min(axis=0) - self.distance, tried.max(axis=0) + self.distance)
        if np.array_equal(near, theta):
            return theta
        if self.candidates is None:
            return np.asarray(self.problem.snap(near[None])[0])
        return np.asarray(self.candidates[((self.candidates - near) ** 2).sum(axis=1).argmin()])
