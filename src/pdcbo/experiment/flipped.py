"""The reactor with its limits turned round, X_A >= 0.12 and X_G >= 0.08: what the published experiment ran on.

The published code's constraint functions return -(X_A - 0.12) and -(X_G - 0.08), so that its methods kept the mass
fractions above their limits. `pdcbo reproduce figure2` runs it to show where the published numbers come from.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from pdcbo.plants import SimulatedPlant
from pdcbo.plants.williams_otto import WilliamsOtto
from pdcbo.problem import Problem


class FlippedReactor(WilliamsOtto):
    """Williams-Otto with lower limits in the place of the upper ones."""

    def __init__(self, seed: int = 0, contexts: str = "uniform") -> None:
        super().__init__(seed, contexts)
        flipped = {n: replace(c, upper=None, lower=c.upper) for n, c in self.problem.constraints.items()}
        self.problem = Problem(self.problem.parameters, self.problem.context, flipped)


EXTRA_PLANTS: dict[str, Callable[..., SimulatedPlant]] = {"williams-otto-flipped": FlippedReactor}

__all__ = ["EXTRA_PLANTS", "FlippedReactor"]
