"""The suite: varied plants with known oracles, on which an optimizer must do well without being tuned to any.

`develop` marks the half that defaults may be developed on; on the rest it is only looked whether a change does harm. It
is not all new: some of it wraps the reactor or the draws of the first half. `steps` is the horizon of a run. Every
entry takes `seed` and `contexts` as any plant does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pdcbo.plants import synthetic
from pdcbo.plants.base import SimulatedPlant
from pdcbo.plants.datacentre import DatacentreCooling
from pdcbo.plants.gp_sample import GPSample
from pdcbo.plants.machine import MachineFatigue
from pdcbo.plants.pump_station import PumpStation
from pdcbo.plants.room_heating import RoomHeating
from pdcbo.plants.variants import Drifting, HeavyTailed, Heteroscedastic, MovedLimits, Rescaled, UselessContexts
from pdcbo.plants.williams_otto import WilliamsOtto


@dataclass(frozen=True)
class Entry:
    """A plant of the suite: call it as any factory of plants.

    Attributes:
        build: makes the plant.
        description: what it is and what it tries, in a line.
        develop: whether defaults may be developed on it.
        steps: the horizon of a run.
    """

    build: Callable[..., SimulatedPlant]
    description: str
    develop: bool = False
    steps: int = 200

    def __call__(self, seed: int = 0, contexts: str = "uniform", **options: Any) -> SimulatedPlant:
        """Return the plant."""
        return self.build(seed=seed, contexts=contexts, **options)


def _gp(wrap: Callable[[GPSample], SimulatedPlant] | None = None, **fixed: Any) -> Callable[..., SimulatedPlant]:
    """Return a factory of Gaussian-process draws with some options fixed, perhaps wrapped."""

    def build(**options: Any) -> SimulatedPlant:
        plant = GPSample(**{**fixed, **options})
        return plant if wrap is None else wrap(plant)

    return build


def _reactor(wrap: Callable[[WilliamsOtto], SimulatedPlant]) -> Callable[..., SimulatedPlant]:
    return lambda **options: wrap(WilliamsOtto(**options))


SUITE: dict[str, Entry] = {
    "gp-1d": Entry(_gp(), "draws of the paper's kernel over one parameter and one context", True, 300),
    "gp-2d": Entry(_gp(n_theta=2, length_scale=4.0), "smoother draws over two parameters and one context"),
    "gp-2d-two-limits": Entry(
        _gp(n_theta=2, n_z=2, length_scale=5.0, constraints=2), "draws over two and two, with two constraints", True
    ),
    "gp-3d": Entry(_gp(n_theta=3, length_scale=6.0), "draws over three parameters and one context"),
    "gp-4d": Entry(_gp(n_theta=4, length_scale=8.0), "draws over four parameters and one context", True),
    "gp-matern": Entry(_gp(kernel="matern52", length_scale=3.0), "rough draws, product of Matern 5/2"),
    "gp-linear": Entry(_gp(kernel="linear"), "bilinear functions: the optimum is always on the boundary"),
    "williams-otto": Entry(WilliamsOtto, "the reactor of the paper with four prices as contexts", True, 300),
    "reactor-millions": Entry(
        _reactor(lambda base: Rescaled(base, objective=1e4, offset=3e7, constraints=1e-3)),
        "the reactor with a cost in tens of millions and constraints of 1e-4",
    ),
    "reactor-drift": Entry(_reactor(Drifting), "the reactor with a feed valve that slowly loses its calibration"),
    "reactor-useless-contexts": Entry(
        _reactor(UselessContexts), "the reactor with three context variables that do not matter", True
    ),
    "room-heating": Entry(RoomHeating, "PI control of a room: weather and tariff, a discomfort budget", True),
    "datacentre-cooling": Entry(
        DatacentreCooling, "cooling: outdoor temperature and load, a budget of delayed queries", True
    ),
    "machine-fatigue": Entry(MachineFatigue, "speed and feed: hardness and order value, a fatigue budget", True),
    "pump-station": Entry(PumpStation, "a choice, a whole number and a speed: demand and tariff"),
    "gardner": Entry(synthetic.gardner, "Gardner's first simulation, one of its inputs given, a tighter limit", True),
    "gramacy": Entry(synthetic.gramacy, "Gramacy's toy problem with the cost's weight given"),
    "branin": Entry(synthetic.branin, "Branin's function on a disk, one of its inputs given"),
    "ackley": Entry(synthetic.ackley, "Ackley's function about a moving centre, two limits"),
    "hartmann": Entry(synthetic.hartmann, "Hartmann's six inputs, two of them given, the norm limited"),
    "pressure-vessel": Entry(synthetic.pressure_vessel, "whole-number thicknesses, three limits of very unlike size"),
    "heavy-tails": Entry(_gp(HeavyTailed, noise=0.3), "the paper's draws with Student's t noise, six times as strong"),
    "uneven-noise": Entry(
        _gp(Heteroscedastic, noise=0.2), "the paper's draws with noise that grows ninefold along theta", True
    ),
    "never-binding": Entry(_gp(lambda b: MovedLimits(b, g=8.0)), "the paper's draws with a limit out of reach", True),
    "always-binding": Entry(
        _gp(lambda b: MovedLimits(b, g=-1.2), margin=1.3), "the paper's draws with a limit that always costs", True
    ),
    "infeasible": Entry(_gp(lambda b: MovedLimits(b, g=-8.0)), "the paper's draws with a limit that cannot be met"),
}
