"""Constrained expected improvement: closed forms, far tails, incumbents, and a problem with a known optimum."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.special import ndtr

import pdcbo
from pdcbo.optimizers import CEI
from pdcbo.optimizers.cei import log_h

PROBLEM = pdcbo.Problem({"x": (0.0, 1.0)}, {"z": (0.0, 1.0)}, {"g": 0.0})
MODEL = pdcbo.Model(length_scales=0.2, variance=1.0, noise_var=1e-4)


def trained(seed: int = 0, n: int = 12, **options: object) -> CEI:
    tuner = CEI(PROBLEM, models=MODEL, candidates=41, **options)
    rng = np.random.default_rng(seed)
    for _ in range(n):
        x, z = rng.random(2)
        tuner.observe({"x": x}, {"z": z}, objective=math.sin(6 * x + 3 * z), constraints={"g": x - 0.7 * z})
    return tuner


def direct(tuner: CEI, mean: np.ndarray, std: np.ndarray, best: float) -> np.ndarray:
    u = (best - mean[0]) / std[0]
    improvement = std[0] * (np.exp(-0.5 * u * u) / math.sqrt(2 * math.pi) + u * ndtr(u))
    return improvement * ndtr(-mean[1] / std[1])


def test_log_h_is_the_logarithm_of_phi_plus_u_times_Phi() -> None:
    u = np.linspace(-4.0, 8.0, 97)
    plain = np.log(np.exp(-0.5 * u * u) / math.sqrt(2 * math.pi) + u * ndtr(u))
    np.testing.assert_allclose(log_h(u), plain, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("u", [-30.0, -1e3, -9.9e3, -1.01e4, -1e7, -1e9])
def test_log_h_in_the_far_tail_follows_its_asymptotic_series(u: float) -> None:
    series = -0.5 * u * u - 0.5 * math.log(2 * math.pi) - 2 * math.log(-u) + math.log1p(-3 / u**2 + 15 / u**4)
    assert log_h(np.array([u]))[0] == pytest.approx(series, rel=1e-7)


def test_log_h_rises_everywhere_also_across_its_branches() -> None:
    u = np.sort(np.concatenate([-np.logspace(6, -3, 400), np.linspace(-1.01, 5, 200), [-1e4, -1e4 * (1 + 1e-9), -1.0]]))
    assert (np.diff(log_h(u)) >= 0.0).all()


def test_score_is_minus_log_of_improvement_times_feasibility() -> None:
    tuner = trained(n=30)
    mean, std = tuner.models.at(np.array([0.6]))
    best = tuner.incumbent(mean, std)
    assert best is not None
    expected = direct(tuner, mean, std, best)
    usable = expected > 1e-12
    assert usable.sum() > 10
    np.testing.assert_allclose(np.exp(-tuner._score(np.array([0.6]))(mean, std))[usable], expected[usable], rtol=1e-8)


def test_incumbent_belongs_to_the_present_context() -> None:
    tuner = trained(n=40)
    found = []
    for z in (0.5, 0.95):
        mean, std = tuner.models.at(np.array([z]))
        likely = ndtr(-mean[1] / std[1]) >= 0.95
        best = tuner.incumbent(mean, std)
        assert best == pytest.approx(mean[0, likely].min())
        found.append(best)
    assert found[0] != pytest.approx(found[1], abs=0.05)


def test_without_a_likely_feasible_candidate_feasibility_alone_is_maximised() -> None:
    tuner = CEI(PROBLEM, models=MODEL, candidates=41)
    for x in np.linspace(0.0, 1.0, 9):
        tuner.observe({"x": x}, {"z": 0.5}, objective=-10.0 * x, constraints={"g": 0.2 + (x - 0.3) ** 2})
    mean, std = tuner.models.at(np.array([0.5]))
    assert tuner.incumbent(mean, std) is None
    assert tuner.ask({"z": 0.5}).parameters["x"] == tuner.candidates[np.argmin(mean[1] / std[1]), 0]


def test_far_from_feasibility_candidates_are_still_told_apart() -> None:
    tuner = CEI(PROBLEM, models=MODEL, candidates=41)
    for x in np.linspace(0.0, 1.0, 15):
        tuner.observe({"x": x}, {"z": 0.5}, objective=x, constraints={"g": 40.0 + 10.0 * (x - 0.6) ** 2})
    mean, std = tuner.models.at(np.array([0.5]))
    score = tuner._score(np.array([0.5]))(mean, std)
    assert np.isfinite(score).all()
    assert np.ptp(score) > 1.0
    assert tuner.ask({"z": 0.5}).parameters["x"] == tuner.candidates[np.argmin(mean[1] / std[1]), 0]


def test_published_variant_has_one_incumbent_and_a_variance_for_a_deviation() -> None:
    tuner = trained(n=30, published=True)
    Y = tuner.models.Y
    for z in (0.1, 0.9):
        mean, std = tuner.models.at(np.array([z]))
        assert tuner.incumbent(mean, std) == Y[Y[:, 1] <= 0.0, 0].min()
        np.testing.assert_allclose(np.exp(tuner.log_feasibility(mean, std)), ndtr(-mean[1] / std[1] ** 2), atol=1e-12)


@pytest.mark.parametrize("candidates", [101, 0], ids=["grid", "gradients"])
def test_finds_the_constrained_optimum(candidates: int) -> None:
    """minimise (x - 0.8)^2 subject to x <= 0.5 z + 0.2: the limit binds everywhere."""
    tuner = CEI(PROBLEM, models=pdcbo.Model(length_scales=0.5, variance=1.0, noise_var=1e-6), candidates=candidates)
    rng = np.random.default_rng(1)
    for _ in range(40):
        z = float(rng.random())
        suggestion = tuner.ask({"z": z})
        x = float(suggestion.parameters["x"])
        tuner.tell(suggestion, (x - 0.8) ** 2, {"g": x - 0.5 * z - 0.2})
    for z in (0.1, 0.5, 0.9):
        assert tuner.ask({"z": z}).parameters["x"] == pytest.approx(0.5 * z + 0.2, abs=0.03)


@pytest.mark.parametrize(("option", "value"), [("confidence", 1.0), ("confidence", "high"), ("published", 1)])
def test_refuses_bad_options(option: str, value: object) -> None:
    with pytest.raises((TypeError, ValueError), match=option):
        CEI(PROBLEM, **{option: value})
