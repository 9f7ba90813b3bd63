"""Every optimizer on plants of every kind: the contract of ask and tell, as a table."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import pdcbo
from pdcbo.optimizers import OPTIMIZERS
from pdcbo.plants import PLANTS
from pdcbo.plants.base import SimulatedPlant
from pdcbo.plants.suite import SUITE

STEPS = 7
PLANTS_TRIED = {
    "gp-sample": lambda: PLANTS["gp-sample"](seed=1),
    "williams-otto": lambda: PLANTS["williams-otto"](seed=1),
    "mixed variables": lambda: SUITE["pump-station"](seed=1),
    "four parameters": lambda: SUITE["gp-4d"](seed=1),
    "no context": lambda: PLANTS["gp-sample"](seed=1, n_z=0),
    "no constraint": lambda: PLANTS["gp-sample"](seed=1, constraints=0),
}
BUILT: dict[str, SimulatedPlant] = {}


@pytest.fixture(params=PLANTS_TRIED)
def plant(request: pytest.FixtureRequest) -> SimulatedPlant:
    """Return a plant, built once: drawing one in four dimensions takes a while."""
    return BUILT.setdefault(request.param, PLANTS_TRIED[request.param]())


@pytest.fixture(params=OPTIMIZERS)
def optimizer(request: pytest.FixtureRequest) -> type[pdcbo.Optimizer]:
    return OPTIMIZERS[request.param]


def step(tuner: pdcbo.Optimizer, plant: SimulatedPlant, t: int) -> dict[str, Any]:
    context = plant.context(t)
    suggestion = tuner.ask(context)
    truth = plant.truth(suggestion.parameters, context)
    tuner.tell(suggestion, truth.objective, truth.constraints)
    return suggestion.parameters


def live(tuner: pdcbo.Optimizer, plant: SimulatedPlant) -> None:
    """Go through everything that feedback can be."""
    past = plant.truth(tuner.ask(plant.context(1)).parameters, plant.context(1))
    tuner.observe(tuner.pending[0].parameters, plant.context(1), objective=past.objective, constraints=past.constraints)
    for t in range(1, STEPS):
        step(tuner, plant, t)
    late = tuner.ask(plant.context(STEPS))
    tuner.fail(tuner.ask(plant.context(STEPS + 1)), "analyser offline")
    tuner.fail(tuner.ask(plant.context(STEPS + 2)), "not applied", applied=False)
    partly = tuner.ask(plant.context(STEPS + 3))
    tuner.tell(partly, None if plant.problem.constraints else 1.0, past.constraints)
    truth = plant.truth(late.parameters, plant.context(STEPS))
    tuner.tell(late, truth.objective, truth.constraints)
    tuner.tell(late.id, truth.objective, truth.constraints)


def test_contract(optimizer: type[pdcbo.Optimizer], plant: SimulatedPlant) -> None:
    tuner = optimizer(plant.problem, horizon=20, seed=3)
    live(tuner, plant)
    assert tuner.step == STEPS + 2
    assert len(tuner.pending) == 1
    for s in tuner.ledger.history():
        theta = plant.problem.encode_parameters(s.suggestion.parameters)
        assert ((theta >= 0.0) & (theta <= 1.0)).all()
        np.testing.assert_allclose(plant.problem.snap(theta), theta, atol=1e-12)
    context = plant.context(STEPS + 4)
    assert tuner.ask(context).parameters == tuner.ask(context).parameters
    assert tuner.name in str(tuner.summary())


def test_state_goes_through_json_and_back_bit_for_bit(optimizer: type[pdcbo.Optimizer], plant: SimulatedPlant) -> None:
    tuner = optimizer(plant.problem, horizon=20, seed=3)
    live(tuner, plant)
    again = optimizer.restore(json.loads(json.dumps(tuner.state())))
    assert again.state() == tuner.state()
    for t in range(STEPS + 4, STEPS + 7):
        assert step(again, plant, t) == step(tuner, plant, t)
    assert again.state() == tuner.state()
