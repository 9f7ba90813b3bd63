"""A pumping station with a choice of line, a whole number of pumps and a speed: mixed kinds of parameters."""

from __future__ import annotations

import numpy as np

from pdcbo.plants.base import SimulatedPlant
from pdcbo.problem import Array, Choice, Constraint, Integer, Problem

LINES = ("bypass", "filter", "both")
HEAD = np.array([1.0, 1.9, 1.3])  # relative head that each line needs
TURBIDITY = np.array([2.6, 0.5, 1.5])


class PumpStation(SimulatedPlant):
    """Energy cost an hour, with the averages of the unmet demand and of the turbidity limited."""

    def __init__(self, seed: int = 0, contexts: str = "uniform") -> None:
        problem = Problem(
            parameters={"line": Choice(LINES), "pumps": Integer(1, 5), "speed": (0.6, 1.1)},
            context={"demand": (20.0, 100.0), "tariff": (0.5, 2.0)},
            constraints={
                "shortfall": Constraint(upper=4.0, noise=0.5),
                "turbidity": Constraint(upper=1.2, noise=0.05),
            },
        )
        super().__init__(problem, (1.0, 0.5, 0.05), seed=seed, contexts=contexts)

    def response(self, p: dict[str, Array], c: dict[str, Array]) -> tuple[Array, ...]:
        """Return the energy cost, the unmet demand and the turbidity; the affinity laws scale flow and power."""
        line = p["line"].astype(int)
        head = HEAD[line]
        flow = 28.0 * p["pumps"] * p["speed"] * (1.1 - 0.12 * head / p["speed"] ** 2) * (1.0 - 0.02 * p["pumps"])
        energy = c["tariff"] * 6.0 * p["pumps"] * p["speed"] ** 3 * (0.6 + 0.4 * head)
        shortfall = 3.0 * np.logaddexp(0.0, (c["demand"] - flow) / 3.0)
        turbidity = TURBIDITY[line] * (0.8 + 0.2 * p["speed"] ** 2) + 0.0 * c["demand"]
        return energy, shortfall, turbidity
