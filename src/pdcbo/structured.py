"""The posterior over fixed candidates theta_1, ..., theta_M at one context after another."""

from __future__ import annotations

import numpy as np

from pdcbo.gp import Posterior
from pdcbo.problem import Array


class CandidatePosterior:
    """The posterior of q functions over fixed candidates at one context after another."""

    def __init__(self, posterior: Posterior, candidates: Array) -> None:
        self.posterior = posterior
        self.candidates = candidates

    def at(self, z: Array) -> tuple[Array, Array]:
        """Return mean (M, q) and standard deviation (M,) of every candidate at the context z (n_z,)."""
        contexts = np.broadcast_to(z, (len(self.candidates), len(z)))
        return self.posterior.predict(np.hstack([self.candidates, contexts]))

    def add(self, x: Array, y: Array) -> None:
        """Extend by one observation."""
        self.posterior.add(x, y)
