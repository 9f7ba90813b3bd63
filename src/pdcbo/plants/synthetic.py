"""Textbook functions with constraints, some of their inputs or weights turned into contexts.

Each is a `Formula`: a problem, noise and a function of named columns. Sources are named in the docstrings.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from pdcbo.plants.base import SimulatedPlant
from pdcbo.problem import Array, Constraint, Integer, Problem

Columns = dict[str, Array]


class Formula(SimulatedPlant):
    """A plant given by a function of parameters and context in plant units."""

    def __init__(
        self,
        problem: Problem,
        noise: Sequence[float],
        function: Callable[[Columns, Columns], tuple[Array, ...]],
        *,
        seed: int = 0,
        contexts: str = "uniform",
    ) -> None:
        super().__init__(problem, noise, seed=seed, contexts=contexts)
        self._function = function

    def response(self, p: Columns, c: Columns) -> tuple[Array, ...]:
        """Return the function's values."""
        return self._function(p, c)


def gardner(seed: int = 0, contexts: str = "uniform") -> Formula:
    """Return the first simulation of Gardner et al. (2014), cos 2x cos y + sin x s.t. cos(x + y) <= -1/2, y given.

    The limit is tighter than theirs, 1/2, so that it binds.
    """
    problem = Problem({"x": (0.0, 6.0)}, {"y": (0.0, 6.0)}, {"c": Constraint(upper=-0.5, noise=0.05)})

    def function(p: Columns, c: Columns) -> tuple[Array, ...]:
        x, y = p["x"], c["y"]
        return np.cos(2.0 * x) * np.cos(y) + np.sin(x), np.cos(x + y)

    return Formula(problem, (0.05, 0.05), function, seed=seed, contexts=contexts)


def gramacy(seed: int = 0, contexts: str = "uniform") -> Formula:
    """Return Gramacy et al. (2016): a linear cost, whose weight is the context, with a wavy and a round limit."""
    problem = Problem(
        {"x1": (0.0, 1.0), "x2": (0.0, 1.0)},
        {"weight": (0.2, 2.5)},
        {"wave": Constraint(upper=0.0, noise=0.02), "disk": Constraint(upper=0.0, noise=0.02)},
    )

    def function(p: Columns, c: Columns) -> tuple[Array, ...]:
        a, b = p["x1"], p["x2"]
        wave = 1.5 - a - 2.0 * b - 0.5 * np.sin(2.0 * np.pi * (a * a - 2.0 * b))
        return c["weight"] * a + b, wave, a * a + b * b - 1.5

    return Formula(problem, (0.02, 0.02, 0.02), function, seed=seed, contexts=contexts)


def branin(seed: int = 0, contexts: str = "uniform") -> Formula:
    """Return Branin's function of x and a given y, with (x - 2.5)^2 + (y - 7.5)^2 at most 38 on average."""
    problem = Problem({"x": (-5.0, 10.0)}, {"y": (1.5, 13.5)}, {"disk": Constraint(upper=38.0, noise=1.0)})

    def function(p: Columns, c: Columns) -> tuple[Array, ...]:
        x, y = p["x"], c["y"]
        valley = y - 5.1 / (4.0 * np.pi**2) * x * x + 5.0 / np.pi * x - 6.0
        branin = valley**2 + 10.0 * (1.0 - 1.0 / (8.0 * np.pi)) * np.cos(x) + 10.0
        return branin, (x - 2.5) ** 2 + (y - 7.5) ** 2

    return Formula(problem, (1.0, 1.0), function, seed=seed, contexts=contexts)


def ackley(seed: int = 0, contexts: str = "uniform") -> Formula:
    """Return Ackley's function in the plane about a given centre, with x1 + x2 <= 0 and x1^2 + x2^2 <= 16."""
    problem = Problem(
        {"x1": (-5.0, 5.0), "x2": (-5.0, 5.0)},
        {"centre": (-2.0, 4.0)},
        {"sum": Constraint(upper=0.0, noise=0.1), "ball": Constraint(upper=16.0, noise=0.5)},
    )

    def function(p: Columns, c: Columns) -> tuple[Array, ...]:
        a, b = p["x1"] - c["centre"], p["x2"] - c["centre"]
        hole = -20.0 * np.exp(-0.2 * np.sqrt(0.5 * (a * a + b * b)))
        waves = -np.exp(0.5 * (np.cos(2.0 * np.pi * a) + np.cos(2.0 * np.pi * b)))
        return hole + waves + 20.0 + np.e, p["x1"] + p["x2"] + 0.0 * a, p["x1"] ** 2 + p["x2"] ** 2 + 0.0 * a

    return Formula(problem, (0.1, 0.1, 0.5), function, seed=seed, contexts=contexts)


HARTMANN_A = np.array(
    [[10, 3, 17, 3.5, 1.7, 8], [0.05, 10, 17, 0.1, 8, 14], [3, 3.5, 1.7, 10, 17, 8], [17, 8, 0.05, 10, 0.1, 14]]
)
HARTMANN_P = 1e-4 * np.array(
    [
        [1312, 1696, 5569, 124, 8283, 5886],
        [2329, 4135, 8307, 3736, 1004, 9991],
        [2348, 1451, 3522, 2883, 3047, 6650],
        [4047, 8828, 8732, 5743, 1091, 381],
    ]
)
HARTMANN_WEIGHTS = np.array([1.0, 1.2, 3.0, 3.2])


def hartmann(seed: int = 0, contexts: str = "uniform") -> Formula:
    """Return Hartmann's function of six inputs, the first two given, with the norm of all six at most 0.9."""
    problem = Problem(
        {f"x{j}": (0.0, 1.0) for j in range(3, 7)},
        {"x1": (0.0, 0.6), "x2": (0.0, 0.6)},
        {"norm": Constraint(upper=0.9, noise=0.02)},
    )

    def function(p: Columns, c: Columns) -> tuple[Array, ...]:
        x = np.stack(np.broadcast_arrays(c["x1"], c["x2"], p["x3"], p["x4"], p["x5"], p["x6"]), axis=-1)
        exponent = sum(HARTMANN_A[:, j] * (x[..., j, None] - HARTMANN_P[:, j]) ** 2 for j in range(6))
        return -np.exp(-exponent) @ HARTMANN_WEIGHTS, np.linalg.norm(x, axis=-1)

    return Formula(problem, (0.02, 0.02), function, seed=seed, contexts=contexts)


def pressure_vessel(seed: int = 0, contexts: str = "uniform") -> Formula:
    """Return the pressure vessel of Sandgren (1990): thicknesses in sixteenths of an inch, volume and price given."""
    problem = Problem(
        {"shell": Integer(5, 30), "head": Integer(2, 16), "radius": (20.0, 60.0), "length": (40.0, 200.0)},
        {"volume": (2e5, 8e5), "steel_price": (0.7, 1.4)},
        {
            "shell_excess": Constraint(upper=0.0, noise=0.02),
            "head_excess": Constraint(upper=0.0, noise=0.02),
            "volume_missing": Constraint(upper=0.0, noise=5e3),
        },
    )

    def function(p: Columns, c: Columns) -> tuple[Array, ...]:
        s, h, r, length = p["shell"] / 16.0, p["head"] / 16.0, p["radius"], p["length"]
        steel = 0.6224 * s * r * length + 1.7781 * h * r * r
        welding = 3.1661 * s * s * length + 19.84 * s * s * r
        volume = np.pi * r * r * length + 4.0 / 3.0 * np.pi * r**3
        return c["steel_price"] * steel + welding, 0.0193 * r - s, 0.00954 * r - h, c["volume"] - volume

    return Formula(problem, (50.0, 0.02, 0.02, 5e3), function, seed=seed, contexts=contexts)
