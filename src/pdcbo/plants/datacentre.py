"""A data centre's cooling: air supply temperature and fan speed against a budget of delayed queries.

Warm supply air saves chiller work, and below the outdoor temperature's reach it comes free; slow fans save the cube of
their speed. Both heat the servers, which slow down when hot, and a slow server delays queries when the load is high.
"""

from __future__ import annotations

import numpy as np

from pdcbo.plants.base import SimulatedPlant
from pdcbo.problem import Array, Constraint, Problem

IT_POWER, FAN_POWER = 500.0, 80.0  # kW at full load and speed


def _rise(x: Array) -> Array:
    """Return the logistic function."""
    return 0.5 * (1.0 + np.tanh(0.5 * x))


def _soft(x: Array) -> Array:
    """Return softplus, a smooth max(x, 0)."""
    return np.logaddexp(0.0, x)


class DatacentreCooling(SimulatedPlant):
    """Electric power beyond the servers' own, in kW, with at most 25 in 1,000 queries delayed on average."""

    def __init__(self, seed: int = 0, contexts: str = "uniform", *, budget: float = 25.0) -> None:
        problem = Problem(
            parameters={"supply_temperature": (14.0, 30.0), "fan_speed": (0.3, 1.0)},
            context={"outdoor": (0.0, 38.0), "load": (0.2, 1.0)},
            constraints={"delayed_per_mille": Constraint(upper=budget, noise=2.0)},
        )
        super().__init__(problem, (2.0, 2.0), seed=seed, contexts=contexts)

    def response(self, p: dict[str, Array], c: dict[str, Array]) -> tuple[Array, ...]:
        """Return cooling power in kW and delayed queries in a thousand."""
        supply, fan, load = p["supply_temperature"], p["fan_speed"], c["load"]
        rise = 12.0 * load / fan  # air warms up by this much in the servers
        inlet = supply + rise * 0.4 * np.exp(-1.5 * fan / load)  # part of it comes back
        hot = inlet + 0.6 * rise
        fans = FAN_POWER * fan**3
        leakage = IT_POWER * load * 0.01 * _soft((hot - 30.0) / 3.0)
        heat = IT_POWER * load + fans + leakage
        lift = 4.0 + 4.0 * _soft((c["outdoor"] + 10.0 - supply) / 4.0)
        chiller = heat * lift / (0.4 * (supply + 273.15))
        free = _rise((supply - c["outdoor"] - 5.0) / 1.5)
        capacity = 1.42 - 0.6 * _rise((hot - 38.0) / 2.5)
        delayed = 1000.0 * _rise(14.0 * (load / capacity - 0.98))
        return fans + leakage + chiller * (1.0 - free) + 0.03 * heat * free, delayed
