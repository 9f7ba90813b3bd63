"""The suite's plants: textbook optima, physical sense, and what each variant changes."""

from __future__ import annotations

import numpy as np
import pytest

from pdcbo.plants import SUITE
from pdcbo.plants import synthetic as syn
from pdcbo.plants.datacentre import DatacentreCooling
from pdcbo.plants.gp_sample import GPSample
from pdcbo.plants.machine import MachineFatigue
from pdcbo.plants.pump_station import PumpStation
from pdcbo.plants.room_heating import RoomHeating
from pdcbo.plants.variants import Drifting, HeavyTailed, Heteroscedastic, MovedLimits, Rescaled, UselessContexts
from pdcbo.plants.williams_otto import WilliamsOtto


def test_the_suite_is_varied_and_split() -> None:
    assert len(SUITE) >= 14
    assert len({entry.description for entry in SUITE.values()}) == len(SUITE)
    assert 0.3 <= np.mean([entry.develop for entry in SUITE.values()]) <= 0.6
    assert all(30 <= entry.steps <= 2000 for entry in SUITE.values())


def test_suite_options_reach_the_plant() -> None:
    assert SUITE["gp-1d"](seed=4, contexts="seasonal").path.name == "seasonal"
    assert SUITE["reactor-drift"](contexts="jumping").path.name == "jumping"


def test_textbook_values() -> None:
    branin = syn.branin().truth({"x": np.pi}, {"y": 2.275})
    assert branin.objective == pytest.approx(0.397887, abs=1e-6)
    x = [0.20169, 0.150011, 0.476874, 0.275332, 0.311652, 0.6573]
    point = {f"x{j}": x[j - 1] for j in range(3, 7)}
    hartmann = syn.hartmann().truth(point, {"x1": x[0], "x2": x[1]})
    assert hartmann.objective == pytest.approx(-3.32237, abs=1e-5)
    assert hartmann.constraints["norm"] == pytest.approx(np.linalg.norm(x))
    assert syn.ackley().truth({"x1": -1.0, "x2": -1.0}, {"centre": -1.0}).objective == pytest.approx(0.0, abs=1e-12)
    vessel = syn.pressure_vessel().truth(
        {"shell": 13, "head": 7, "radius": 42.0984, "length": 176.6366}, {"volume": 1_296_000.0, "steel_price": 1.0}
    )
    assert vessel.objective == pytest.approx(6059.7, abs=0.5)
    assert max(vessel.constraints["shell_excess"], vessel.constraints["head_excess"]) < 1e-4
    assert abs(vessel.constraints["volume_missing"]) < 50


def test_gramacy_oracle_finds_the_published_optimum() -> None:
    oracle = syn.gramacy().oracle([{"weight": 1.0}])
    assert oracle.per_step[0] == pytest.approx(0.5998, abs=1e-4)
    np.testing.assert_allclose(oracle.theta[0], [0.1954, 0.4044], atol=2e-3)


def test_gardner_is_infeasible_without_its_constraint() -> None:
    plant = syn.gardner()
    oracle = plant.oracle([plant.context(t) for t in range(1, 41)])
    assert oracle.prices[0] > 0.1


def test_room_is_dearer_when_colder_and_warmer_when_preheated() -> None:
    room = RoomHeating()
    mild, cold = ({"outdoor": t, "sunshine": 0.3, "tariff_ratio": 1.0} for t in (8.0, -8.0))
    base = {"setpoint": 21.0, "preheat": 1.0, "gain": 2.0}
    here, there = room.truth(base, mild), room.truth(base, cold)
    assert here.objective < there.objective
    assert here.constraints["discomfort"] <= there.constraints["discomfort"]
    early = room.truth({**base, "preheat": 4.0}, cold)
    assert early.constraints["discomfort"] < there.constraints["discomfort"]
    assert early.objective > there.objective
    assert room.truth({**base, "setpoint": 22.5}, cold).constraints["discomfort"] < there.constraints["discomfort"]


def test_room_heats_what_it_loses() -> None:
    # At one tariff, cost is price times energy: it lies within the loss of a room held at setback or setpoint all day.
    room = RoomHeating()
    loss = 0.08 + 0.12 * 0.6 / 0.72
    cost = room.truth(
        {"setpoint": 21.0, "preheat": 2.0, "gain": 2.0}, dict(outdoor=-5.0, sunshine=0.0, tariff_ratio=1.0)
    )
    energy = cost.objective / 0.15
    assert 24 * loss * (17.0 + 5.0) < energy < 24 * loss * (21.0 + 5.0) + 1.5 * 4 + 12.0 * 4


def test_room_steps_are_fine_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    room, rng = RoomHeating(), np.random.default_rng(0)
    theta, z = rng.random((50, 3)), rng.random(3)
    coarse = room.values(theta, z)
    monkeypatch.setattr("pdcbo.plants.room_heating.STEP", 0.125)
    fine = room.values(theta, z)
    assert np.abs(coarse - fine)[:, 0].max() < 0.05 * fine[:, 0].mean()


def test_datacentre_trades_power_for_delay() -> None:
    plant = DatacentreCooling()
    hot = {"outdoor": 30.0, "load": 0.95}
    y = plant.values(np.array([[0.1, 0.9], [0.9, 0.9], [0.9, 0.2]]), plant.problem.encode_context(hot))
    assert y[0, 0] > y[1, 0]
    assert y[0, 1] < y[1, 1] < y[2, 1]
    cool = plant.truth({"supply_temperature": 25.0, "fan_speed": 0.7}, {"outdoor": 5.0, "load": 0.6})
    warm = plant.truth({"supply_temperature": 25.0, "fan_speed": 0.7}, {"outdoor": 35.0, "load": 0.6})
    assert cool.objective < 0.5 * warm.objective
    assert cool.constraints == warm.constraints


def test_machine_damage_is_basquins() -> None:
    plant = MachineFatigue()
    p = {"speed": 0.8, "feed": 0.5}
    soft, hard = (plant.truth(p, {"hardness": h, "order_value": 1.0}).constraints["damage"] for h in (0.6, 1.2))
    assert hard / soft == pytest.approx(32.0)


def test_pump_station_takes_choices_and_whole_numbers() -> None:
    plant = PumpStation()
    context = {"demand": 60.0, "tariff": 1.0}
    clear = plant.truth({"line": "filter", "pumps": 3, "speed": 1.0}, context)
    muddy = plant.truth({"line": "bypass", "pumps": 3, "speed": 1.0}, context)
    assert clear.constraints["turbidity"] < muddy.constraints["turbidity"]
    assert clear.objective > muddy.objective
    oracle = plant.oracle([context])
    assert set(plant.problem.decode_parameters(oracle.theta[0])) == {"line", "pumps", "speed"}


def test_rescaled_plant_is_the_same_problem() -> None:
    base = WilliamsOtto(seed=1)
    scaled = Rescaled(WilliamsOtto(seed=1), objective=1e6, offset=5.0, constraints=1e-3)
    contexts = [base.context(t) for t in range(1, 6)]
    assert [scaled.context(t) for t in range(1, 6)] == contexts
    a, b = base.oracle(contexts), scaled.oracle(contexts)
    np.testing.assert_allclose(b.per_step, 1e6 * a.per_step + 5.0, rtol=1e-6)
    assert b.time_average == pytest.approx(1e6 * a.time_average + 25.0, rel=1e-5)
    assert scaled.problem.constraints["x_a"].noise == pytest.approx(5e-7)


def test_noise_variants_keep_their_size_and_change_their_shape() -> None:
    heavy = HeavyTailed(GPSample(noise=0.3))
    p, c = {"theta": 1.0}, {"z": 1.0}
    noise = np.array([heavy.evaluate(p, c).objective for _ in range(4000)]) - heavy.truth(p, c).objective
    assert np.median(np.abs(noise)) / 0.3 == pytest.approx(0.765 / 3**0.5, rel=0.08)
    assert np.abs(noise).max() > 5 * 0.3
    uneven = Heteroscedastic(GPSample(noise=0.3))
    spread = [
        np.std([uneven.evaluate({"theta": x}, c).objective for _ in range(2000)]) / 0.3 for x in (-10.0, 0.0, 10.0)
    ]
    np.testing.assert_allclose(spread, [1 / 3, 1.0, 3.0], rtol=0.08)  # five standard errors


def test_useless_contexts_do_not_matter() -> None:
    plant, base = UselessContexts(GPSample(seed=2)), GPSample(seed=2)
    context = plant.context(5)
    assert list(context) == ["z", "useless_1", "useless_2", "useless_3"]
    assert {"z": context["z"]} == base.context(5)
    assert plant.truth({"theta": 3.0}, context) == base.truth({"theta": 3.0}, base.context(5))


def test_a_drifting_plant_changes_with_time_and_its_oracle_follows() -> None:
    base, plant = GPSample(seed=1), Drifting(GPSample(seed=1), amplitude=0.2, period=400.0)
    first, late = plant.context(400), plant.context(200)
    p = {"theta": -2.0}
    assert plant.truth(p, first).objective == pytest.approx(base.truth(p, first).objective, abs=1e-9)
    assert plant.truth(p, late).objective == pytest.approx(base.truth({"theta": 2.0}, late).objective, abs=1e-9)
    oracle = plant.oracle([first, late])
    for t, context in enumerate((first, late)):
        theta = plant.problem.decode_parameters(oracle.theta[t])
        assert plant.truth(theta, context).objective == pytest.approx(oracle.per_step[t], abs=1e-9)


def test_moved_limits() -> None:
    contexts = [GPSample(seed=1).context(t) for t in range(1, 21)]
    free = MovedLimits(GPSample(seed=1), g=8.0).oracle(contexts)
    assert free.per_step.sum() == pytest.approx(free.time_average, abs=1e-6)
    assert free.prices.tolist() == [0.0]
    never = MovedLimits(GPSample(seed=1), g=-8.0).oracle(contexts)
    assert len(never.infeasible_steps) == 20
    assert never.relaxation[0] > 1.0
    assert np.isfinite(never.time_average)
