"""Plants by name: simulated systems with a known truth and a known best, to try optimizers on."""

from __future__ import annotations

from collections.abc import Callable

from pdcbo.plants.base import Outcome, Plant, SimulatedPlant
from pdcbo.plants.gp_sample import GPSample
from pdcbo.plants.suite import SUITE
from pdcbo.plants.williams_otto import WilliamsOtto

PLANTS: dict[str, Callable[..., Plant]] = {**SUITE, "gp-sample": GPSample, "williams-otto": WilliamsOtto}

__all__ = ["PLANTS", "SUITE", "Outcome", "Plant", "SimulatedPlant"]
