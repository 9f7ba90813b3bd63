"""A machine tool: spindle speed and feed for orders of changing hardness and value, within a fatigue budget.

Output is speed times feed. Tool wear follows Taylor's law, a power of the cutting speed. Fatigue follows Basquin's law:
damage grows with the fifth power of the stress, which rises with hardness and feed, and more near a resonance.
"""

from __future__ import annotations

import numpy as np

from pdcbo.plants.base import SimulatedPlant
from pdcbo.problem import Array, Constraint, Problem


class MachineFatigue(SimulatedPlant):
    """Cost of a shift (negated margin), with at most 0.2 thousandths of the life used up a shift on average."""

    def __init__(self, seed: int = 0, contexts: str = "uniform", *, budget: float = 0.2) -> None:
        problem = Problem(
            parameters={"speed": (0.5, 2.0), "feed": (0.2, 1.0)},
            context={"hardness": (0.6, 1.3), "order_value": (0.6, 1.6)},
            constraints={"damage": Constraint(upper=budget, noise=0.03)},
        )
        super().__init__(problem, (1.0, 0.03), seed=seed, contexts=contexts)

    def response(self, p: dict[str, Array], c: dict[str, Array]) -> tuple[Array, ...]:
        """Return the cost and the damage of a shift."""
        speed, feed, hardness = p["speed"], p["feed"], c["hardness"]
        income = 100.0 * c["order_value"] * speed * feed
        tool = 12.0 * (speed * np.sqrt(hardness)) ** 3.3 * feed**0.7
        resonance = 0.35 * np.exp(-(((speed - 1.25) / 0.12) ** 2))
        stress = hardness * feed**0.8 * (1.0 + resonance)
        return 20.0 + tool - income, speed * stress**5
