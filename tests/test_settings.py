"""What the settings make of their constants: means for the dual, units, epochs of the doubling trick, stated noise."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from pdcbo import PDCBO, Choice, Constraint, Model, Problem

TWO = Problem({"mode": Choice(["A", "B"])}, {}, {"g": 0.0})
UNIT = Model(length_scales=0.1, variance=1.0, noise_var=1.0)
READINGS = [(-2.0, 3.0), (-1.0, 2.0), (0.5, -4.0)]


def test_dual_moves_by_means_where_told_to() -> None:
    """lambda: [0 + 0]+, then A's mean 1.5, then B (price 1.5: A costs 0.057, B -2.5), whose mean is 0."""
    tuner = PDCBO(TWO, horizon=3, setting="paper", models=UNIT, signal="mean")
    chosen, queue = [], []
    for f, g in READINGS:
        s = tuner.ask()
        chosen.append(s.parameters["mode"])
        tuner.tell(s, f, {"g": g})
        queue.append(float(tuner.queue[0]))
    assert chosen == ["A", "A", "B"]
    assert queue == pytest.approx([0.0, 1.5, 1.5])


def play(scale: float, steps: int, **options: Any) -> tuple[list[float], PDCBO]:
    """Return what is chosen on one plant with its constraint in other units, and the tuner."""
    tuner = PDCBO(Problem({"x": (0.0, 1.0)}, {"c": (0.0, 1.0)}, {"g": 0.3 * scale}), **options)
    rng = np.random.default_rng(4)
    chosen = []
    for _ in range(steps):
        s = tuner.ask({"c": float(rng.random())})
        x = float(s.parameters["x"])
        chosen.append(x)
        tuner.tell(s, (x - 0.9) ** 2 + 0.01 * rng.normal(), {"g": scale * (x + 0.01 * rng.normal())})
    return chosen, tuner


@pytest.mark.parametrize("factor", [1e4, 1e-4])
def test_the_default_does_not_depend_on_units(factor: float) -> None:
    """The same plant with its constraint in other units is asked for the same parameters, from the first step on."""
    np.testing.assert_allclose(play(factor, 12, horizon=30)[0], play(1.0, 12, horizon=30)[0], atol=0.02)


@pytest.mark.parametrize("factor", [1e4, 1e-4])
def test_the_standard_setting_does_not_depend_on_units(factor: float) -> None:
    options: dict[str, Any] = {"horizon": 25, "setting": "standard", "candidates": 51}
    (there, scaled), (here, plain) = play(factor, 20, **options), play(1.0, 20, **options)
    np.testing.assert_allclose(there, here, atol=0.02)
    assert scaled.queue == pytest.approx(factor * plain.queue, rel=0.05)
    assert plain.queue[0] > 0.0
    assert plain.beta_sqrt().tolist() == [2.0, 2.0]
    f, g = plain.models.hyper
    assert plain.setting.eta() == pytest.approx([f.scale / g.scale**2 / 5.0])
    plain.setting.given_slack = 0.1
    assert plain.setting.slack() == pytest.approx([0.1 * g.scale])


def test_a_correction_of_a_former_epoch_leaves_the_queue_of_this_one() -> None:
    tuner = PDCBO(TWO, setting="paper", models=UNIT, signal="observed", doubling=2)
    steps = [tuner.ask() for _ in range(3)]
    for s in steps:
        tuner.tell(s, 0.0, {"g": 1.0})
    assert tuner.setting.epoch() == (2, 4)
    assert tuner.queue == pytest.approx([1.0])
    tuner.correct(steps[0], constraints={"g": 5.0})
    assert tuner.queue == pytest.approx([1.0])
    tuner.correct(steps[2], constraints={"g": 2.0})
    assert tuner.queue == pytest.approx([2.0])


def test_the_theorem_takes_the_stated_noise() -> None:
    """sigma = 0.2 as stated, lambda = 0.01: sigma / sqrt(lambda) = 2 for g, and 1 for the objective."""
    problem = Problem({"a": (0.0, 10.0)}, {"z": (0.0, 1.0)}, {"g": Constraint(upper=2.0, noise=0.2)})
    models = Model(length_scales=5.0, variance=1.0, noise_var=0.01)
    tuner = PDCBO(problem, setting="theorem", models=models, norm_bounds=1.0, slater_margin=0.5, horizon=400)
    root = math.sqrt(2.0 * (1.0 + math.log(2 / 0.05)))
    assert tuner.beta_sqrt() == pytest.approx([1.0 + root, 1.0 + 2.0 * root])


@pytest.mark.parametrize("factor", [1e4, 1e-4])
def test_a_slack_in_standardised_units_does_not_depend_on_units(factor: float) -> None:
    """The first step's scale is known only once it is told: no slack of 0.1 in plant units may enter the queue."""

    def queue(scale: float) -> float:
        tuner = PDCBO(Problem({"x": (0.0, 1.0)}, {}, {"g": 0.3 * scale}), horizon=25, setting="standard", slack=0.1)
        for x in (0.5, 0.7, 0.4):
            tuner.tell(tuner.ask(), x, {"g": scale * x}, applied={"x": x})
        return float(tuner.queue[0] / scale)

    assert queue(factor) == pytest.approx(queue(1.0), rel=1e-6)


def test_the_theorem_is_refused_where_lemma_2_fails() -> None:
    problem = Problem({"u": (0.0, 1.0)}, {}, {"g": 0.0})
    given = {"setting": "theorem", "norm_bounds": 1.0, "slater_margin": 0.5, "horizon": 1200}
    for variance, noise_var, fails in ((1.0, 1.5, False), (4.0, 6.0, False), (1.0, 1.6, True), (1.0, 1e8, True)):
        model = Model("squared-exponential", length_scales=0.1, variance=variance, noise_var=noise_var)
        if fails:
            with pytest.raises(ValueError, match=r"model of objective of at most 1\.54, 1\.54 times its largest"):
                PDCBO(problem, models=model, **given)
        else:
            assert PDCBO(problem, models=model, **given).setting.notes()


def test_the_theorem_counts_a_choice_as_often_as_it_has_options() -> None:
    """Two options, each with a gain of log(1 + T/2 / lambda) / 2 if nothing else is tuned."""
    models = Model(length_scales=0.1, variance=1.0, noise_var=0.01)
    tuner = PDCBO(Problem({"m": Choice(["a", "b"])}, {}, {"g": 0.0}), setting="theorem", models=models, norm_bounds=1.0,
                  slater_margin=0.5, horizon=400)  # fmt: skip
    assert tuner.setting._gains[0](400) <= math.log(1.0 + 200 / 0.01) + 1e-6
