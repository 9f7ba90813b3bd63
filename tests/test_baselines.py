"""The baselines do what their names say, on either side of a limit and wherever it lies."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pdcbo
from pdcbo.optimizers import CEI, OPTIMIZERS, SafeOpt

MODEL = pdcbo.Model(length_scales=0.2, variance=1.0, noise_var=1e-4)


def test_cgp_ucb_minimises_the_lower_bound_of_the_cost_and_minds_no_limit() -> None:
    problem = pdcbo.Problem({"x": (0.0, 1.0)}, {"z": (0.0, 1.0)}, {"g": 0.0})
    tuner = OPTIMIZERS["cgp-ucb"](problem, models=MODEL, candidates=41, beta_sqrt=1.5)
    rng = np.random.default_rng(2)
    for x, z in rng.random((25, 2)).tolist():
        tuner.observe({"x": x}, {"z": z}, objective=np.sin(6 * x + 3 * z), constraints={"g": 9.0})
    for z in (0.1, 0.5, 0.9):
        mean, std = tuner.models.at(np.array([z]))
        assert tuner.ask({"z": z}).parameters["x"] == tuner.candidates[np.argmin(mean[0] - 1.5 * std[0]), 0]


def mirrored(make: Any, sign: float, steps: int = 30) -> tuple[list[float], Any]:
    """Play 0.3 + |x - 0.5| - 0.1 z <= 0.55 on every step, or its mirror image with a lower limit."""
    limit = pdcbo.Constraint(upper=0.55) if sign > 0.0 else pdcbo.Constraint(lower=-0.55)
    model = pdcbo.Model(length_scales=0.2, variance=1.0, noise_var=1e-4)
    tuner = make(pdcbo.Problem({"x": (0.0, 1.0)}, {"z": (0.0, 1.0)}, {"y": limit}), models=model, candidates=51)
    rng, chosen = np.random.default_rng(3), []
    for _ in range(steps):
        z = float(rng.random())
        s = tuner.ask({"z": z})
        x = float(s.parameters["x"])
        chosen.append(x)
        tuner.tell(s, (x - 0.1) ** 2, {"y": sign * (0.3 + abs(x - 0.5) - 0.1 * z)})
    return chosen, tuner


@pytest.mark.parametrize(
    "make",
    [
        CEI,
        lambda *a, **k: CEI(*a, published=True, **k),
        SafeOpt,
        lambda *a, **k: SafeOpt(*a, safe=[{"parameters": {"x": 0.5}}], beta_sqrt=3.0, **k),
    ],
    ids=["cei", "cei published", "safeopt without a seed", "safeopt"],
)
def test_a_lower_limit_is_the_mirror_of_an_upper_one(make: Any) -> None:
    (upper, up), (lower, low) = mirrored(make, 1.0), mirrored(make, -1.0)
    np.testing.assert_allclose(lower, upper, atol=1e-9)
    assert np.ptp(upper) > 0.2
    if isinstance(up, SafeOpt):
        assert low.unsafe_steps() == up.unsafe_steps() < 10


@pytest.mark.parametrize(
    "make",
    [
        CEI,
        lambda *a, **k: CEI(*a, published=True, **k),
        lambda *a, **k: SafeOpt(*a, safe=[{"parameters": {"x": 0.5}}], beta_sqrt=3.0, **k),
    ],
    ids=["cei", "cei published", "safeopt"],
)
@pytest.mark.parametrize("limit", [40.0, -40.0])
def test_a_limit_may_lie_anywhere(make: Any, limit: float) -> None:
    """The same plant with its quantity shifted, and the limit with it, is asked for the same parameters."""

    def choices(bound: float) -> list[float]:
        problem = pdcbo.Problem({"x": (0.0, 1.0)}, {"z": (0.0, 1.0)}, {"g": bound})
        tuner, rng, chosen = make(problem, models=MODEL, candidates=51), np.random.default_rng(3), []
        for _ in range(25):
            z = float(rng.random())
            s = tuner.ask({"z": z})
            x = float(s.parameters["x"])
            chosen.append(x)
            tuner.tell(s, (x - 0.1) ** 2, {"g": bound + 2.0 * abs(x - 0.5) - 0.6 - 0.2 * z})
        return chosen

    np.testing.assert_allclose(choices(limit), choices(0.0), atol=0.021)


@pytest.mark.parametrize(("mean_g", "expected"), [(None, {"minimiser", "expander"}), (-100.0, {"not the widest"})])
def test_the_most_uncertain_minimiser_or_expander_is_taken(mean_g: float | None, expected: set[str]) -> None:
    """S, M and the width by their definitions, G by `_expanders`, which is held against brute force elsewhere.

    Where everything is safe nothing expands, and what is more uncertain than every minimiser is left alone.
    """
    problem = pdcbo.Problem({"x": (0.0, 1.0)}, {"z": (0.0, 1.0)}, {"g": 1.0})
    models = {
        "objective": pdcbo.Model(length_scales=0.3, variance=1e-4, noise_var=1e-7, mean=0.0),
        "g": pdcbo.Model(length_scales=0.25, variance=4.0, noise_var=1e-4, mean=mean_g),
    }
    tuner = SafeOpt(problem, models=models, candidates=51, safe=[{"parameters": {"x": 0.5}}])
    rng, kinds = np.random.default_rng(3), set()
    for _ in range(40):
        z = float(rng.random())
        mean, std = tuner.models.at(np.array([z]))
        lower, upper = mean - 2.0 * std, mean + 2.0 * std
        safe = upper[1] <= 1.0
        safe[-1] = True  # the seed
        minimisers = safe & (lower[0] <= upper[0, safe].min())
        width = np.maximum((upper - lower)[0] / 1e-2, (upper - lower)[1] / 2.0)
        g_lower, g_upper = lower[1:] - 1.0, upper[1:] - 1.0
        expanders = tuner._expanders(np.array([z]), mean, std, g_lower, g_upper, safe, minimisers, width)
        chosen = minimisers | expanders
        s = tuner.ask({"z": z})
        [j, *_] = np.flatnonzero(chosen & (tuner.candidates[:, 0] == s.parameters["x"]))
        assert width[j] == pytest.approx(width[chosen].max(), rel=1e-6)
        kinds.add("minimiser" if minimisers[j] else "expander")
        kinds.add("not the widest" if width[j] < 0.9 * width[safe].max() else "the widest")
        x = float(s.parameters["x"])
        g = 2.0 * abs(x - 0.5) - 0.6 - 0.2 * z
        tuner.tell(s, 0.01 * (x - 0.2) ** 2, {"g": (1.0 if mean_g is None else mean_g) + g})
    assert expected <= kinds


def test_random_search_draws_anew_after_each_step_and_for_each_seed() -> None:
    """Uniform over the box; of 400 draws each quarter of a range gets 100 +- 35, 4 standard deviations."""
    problem = pdcbo.Problem({"a": (0.0, 1.0), "b": (0.0, 4.0)})

    def draws(seed: int) -> np.ndarray:
        tuner = pdcbo.Random(problem, seed=seed)
        rows = []
        for _ in range(400):
            s = tuner.ask()
            rows.append([s.parameters["a"], s.parameters["b"] / 4.0])
            tuner.tell(s, 0.0)
        return np.array(rows)

    first, second = draws(0), draws(1)
    for rows in (first, second):
        assert len(np.unique(rows)) == 800
        counts = np.array([np.histogram(rows[:, j], 4, (0.0, 1.0))[0] for j in (0, 1)])
        assert (abs(counts - 100) <= 35).all()
    assert not np.isin(first, second).any()
