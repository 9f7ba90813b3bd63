"""A heated room under PI control for a day: tune the controller to weather and tariff within a discomfort budget.

Two heat stores, air and walls, half-hour steps of explicit Euler:

    C_air  dT/dt = h_w (T_w - T) + h_v (T_out - T) + q + s        C_wall dT_w/dt = h_w (T - T_w) + h_o (T_out - T_w)

with heating power q in [0, 8] kW from a PI controller with clamped integral, and solar gain s. The setpoint drops by
4 K outside the hours of use, 7 to 22, and returns `preheat` hours early. Electricity costs more by day than by night.
Discomfort is counted in kelvin-hours below 20.5 degrees during use.
"""

from __future__ import annotations

import numpy as np

from pdcbo.plants.base import SimulatedPlant
from pdcbo.plants.reference import spread_out
from pdcbo.problem import Array, Constraint, Problem, Real

STEP = 0.5  # h
C_AIR, C_WALL = 1.5, 12.0  # kWh/K
H_WALL, H_VENT, H_OUT = 0.6, 0.08, 0.12  # kW/K
POWER, INTEGRAL_TIME, SETBACK = 8.0, 3.0, 4.0  # kW, h, K
NIGHT_PRICE = 0.15  # a kWh


class RoomHeating(SimulatedPlant):
    """Daily heating cost, with at most 2 kelvin-hours of discomfort a day on average."""

    def __init__(self, seed: int = 0, contexts: str = "uniform", *, budget: float = 2.0) -> None:
        problem = Problem(
            parameters={"setpoint": (19.0, 23.0), "preheat": (0.0, 5.0), "gain": Real(0.3, 6.0, log=True)},
            context={"outdoor": (-10.0, 12.0), "sunshine": (0.0, 1.0), "tariff_ratio": (1.0, 4.0)},
            constraints={"discomfort": Constraint(upper=budget, noise=0.2)},
        )
        super().__init__(problem, (0.2, 0.2), seed=seed, contexts=contexts)

    def candidates(self) -> Array:
        """Return fewer candidates than by default, since each is a simulation."""
        return spread_out(1_000, 3)

    def response(self, p: dict[str, Array], c: dict[str, Array]) -> tuple[Array, ...]:
        """Simulate a day from midnight and return its cost and discomfort."""
        setpoint, start, gain, mean = p["setpoint"], 7.0 - p["preheat"], p["gain"], c["outdoor"]
        air = setpoint - SETBACK + 0.0 * mean
        wall = mean + (air - mean) * H_WALL / (H_WALL + H_OUT)
        integral = (H_VENT + H_OUT * H_WALL / (H_WALL + H_OUT)) * (air - mean)
        cost, discomfort = np.zeros_like(air), np.zeros_like(air)
        for hour in np.arange(0.0, 24.0, STEP):
            outdoor = mean + 4.0 * np.cos(2.0 * np.pi * (hour - 15.0) / 24.0)
            sun = 1.5 * c["sunshine"] * max(0.0, np.sin(np.pi * (hour - 8.0) / 9.0)) if 8.0 < hour < 17.0 else 0.0
            # A preheat of a fraction of a step raises the setpoint by that fraction of the setback.
            use = np.clip((hour + STEP - start) / STEP, 0.0, 1.0) if hour < 22.0 else 0.0
            error = setpoint - SETBACK * (1.0 - use) - air
            integral = np.clip(integral + gain * error * STEP / INTEGRAL_TIME, 0.0, POWER)
            heat = np.clip(gain * error + integral, 0.0, POWER)
            wall_flow = H_WALL * (wall - air)
            wall = wall + STEP / C_WALL * (H_OUT * (outdoor - wall) - wall_flow)
            air = air + STEP / C_AIR * (wall_flow + H_VENT * (outdoor - air) + heat + sun)
            by_day = 6.0 <= hour < 22.0
            cost = cost + STEP * heat * NIGHT_PRICE * (c["tariff_ratio"] if by_day else 1.0)
            if 7.0 <= hour < 22.0:
                discomfort = discomfort + STEP * np.maximum(20.5 - air, 0.0)
        return cost, discomfort
