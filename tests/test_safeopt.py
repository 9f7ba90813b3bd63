"""SafeOpt: its sets against brute force, safety, and behaviour that is known from its papers."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import pdcbo
from pdcbo.gp import Posterior
from pdcbo.optimizers import SafeOpt

PROBLEM = pdcbo.Problem({"x": (0.0, 1.0)}, {"z": (0.0, 1.0)}, {"g": 0.0})
MODEL = pdcbo.Model(length_scales=0.2, variance=1.0, noise_var=1e-4)
START = {"parameters": {"x": 0.5}}


def limit(x: float, z: float) -> float:
    return 2.0 * abs(x - 0.5) - 0.6 - 0.2 * z


def tuned(steps: int, **options: object) -> tuple[SafeOpt, list[tuple[float, float]]]:
    tuner = SafeOpt(PROBLEM, models=MODEL, candidates=51, safe=[START], beta_sqrt=3.0, **options)
    rng = np.random.default_rng(3)
    visited = []
    for _ in range(steps):
        z = float(rng.random())
        suggestion = tuner.ask({"z": z})
        x = float(suggestion.parameters["x"])
        tuner.tell(suggestion, (x - 0.1) ** 2, {"g": limit(x, z)})
        visited.append((x, z))
    return tuner, visited


def test_every_step_from_a_safe_start_is_safe() -> None:
    tuner, visited = tuned(60)
    assert max(limit(x, z) for x, z in visited) <= 0.0
    assert tuner.unsafe_steps() == 0
    assert tuner.notes() == []


def test_safe_set_grows_up_to_the_limit_and_its_optimum_is_found() -> None:
    tuner, visited = tuned(80, ucb=True)
    for z in (0.2, 0.8):  # the limit |x - 0.5| <= 0.3 + 0.1 z binds on the side of 0.1
        assert tuner.ask({"z": z}).parameters["x"] == pytest.approx(max(0.1, 0.2 - 0.1 * z), abs=0.06)
    assert np.ptp([x for x, _ in visited]) > 0.3


def test_first_step_is_the_seed() -> None:
    tuner = SafeOpt(PROBLEM, models=MODEL, safe=[{"parameters": {"x": 0.437}}])
    assert tuner.ask({"z": 0.9}).parameters["x"] == 0.437


def test_a_seed_with_a_context_counts_in_that_context_only() -> None:
    tuner = SafeOpt(PROBLEM, models=MODEL, safe=[{"parameters": {"x": 0.437}, "context": {"z": 0.25}}])
    assert tuner.ask({"z": 0.25}).parameters["x"] == 0.437
    assert tuner.ask({"z": 0.75}).parameters["x"] != 0.437


def test_without_a_safe_candidate_the_most_probably_feasible_is_taken_and_counted() -> None:
    tuner = SafeOpt(PROBLEM, models=MODEL, candidates=51)
    tuner.observe({"x": 0.9}, {"z": 0.5}, objective=0.0, constraints={"g": 2.0})
    tuner.observe({"x": 0.3}, {"z": 0.5}, objective=0.0, constraints={"g": 0.05})
    suggestion = tuner.ask({"z": 0.5})
    mean, std = tuner.models.at(np.array([0.5]))
    assert suggestion.parameters["x"] == tuner.candidates[np.argmin(mean[1] / std[1]), 0]
    tuner.tell(suggestion, 0.0, {"g": 0.1})
    assert tuner.unsafe_steps() == 1
    assert "in 1 steps the proposal was not known to be safe" in str(tuner.summary())


def test_a_step_is_safe_or_not_by_the_limit_it_was_chosen_under() -> None:
    tuner, visited = tuned(5)
    assert any(x != 0.5 for x, _ in visited)  # not the seed alone, which is safe by definition
    tuner.set_limits({"g": -10.0})
    assert tuner.unsafe_steps() == 0


def test_a_region_behind_an_unsafe_gap_is_not_entered() -> None:
    """Local safety cannot cross a gap that is wide against the length scale, whatever lies behind it."""
    tuner = SafeOpt(PROBLEM, models=MODEL, candidates=51, safe=[{"parameters": {"x": 0.1}}], beta_sqrt=3.0)
    for _ in range(40):
        suggestion = tuner.ask({"z": 0.5})
        x = float(suggestion.parameters["x"])
        tuner.tell(suggestion, -x, {"g": 0.4 - 2.0 * abs(x - 0.5)})
    assert max(s.suggestion.parameters["x"] for s in tuner.ledger.history()) < 0.4


@pytest.mark.parametrize("seed", range(4))
def test_expanders_by_rank_one_updates_are_those_of_rebuilt_posteriors(seed: int) -> None:
    """For every trial point, rebuild both constraints' posteriors with the optimistic measurement and look again."""
    problem = pdcbo.Problem({"x": (0.0, 1.0)}, {"z": (0.0, 1.0)}, {"g": 0.0, "h": pdcbo.Constraint(lower=0.0)})
    models = {"g": MODEL, "h": pdcbo.Model(length_scales=0.3, variance=2.0, noise_var=1e-3)}
    tuner = SafeOpt(problem, models=models, candidates=61)
    rng = np.random.default_rng(seed)
    for x in rng.uniform(0.3, 0.6, 4):
        constraints = {"g": float(abs(x - 0.45) - 0.8), "h": float(1.2 - x)}
        tuner.observe({"x": x}, {"z": 0.5}, objective=float(x), constraints=constraints)
    z = np.array([0.55])
    mean, std = tuner.models.at(z)
    lower, upper = tuner.lower_upper(mean, std)
    g_lower, g_upper = tuner.limit_bounds(lower, upper)
    safe = tuner.safe_set(z, g_upper)
    assert 0 < safe.sum() < len(safe)
    minimisers = np.zeros_like(safe)
    minimisers[np.flatnonzero(safe)[0]] = True
    width = np.where(minimisers, 0.0, (upper - lower).max(axis=0))
    found = tuner._expanders(z, mean, std, g_lower, g_upper, safe, minimisers, width)
    trial = np.flatnonzero(safe & ~minimisers)
    trial = trial[np.argsort(-width[trial], kind="stable")[:8]]
    unsafe = np.hstack([tuner.candidates[~safe], np.full(((~safe).sum(), 1), z[0])])
    for j in trial:
        ok = np.ones(len(unsafe), dtype=bool)
        for i, bound in enumerate(problem.limits):
            plain, column = tuner.models.posterior(bound.output)
            x = np.append(tuner.candidates[j], z)
            optimistic = bound.sign * g_lower[i, j]
            Y = np.append(plain.Y[:, column], optimistic)[:, None]
            again = Posterior.build(plain.kernel, plain.noise_var, np.vstack([plain.X, x]), Y)
            m, s = again.predict(unsafe)
            ok &= bound.sign * m[:, 0] + 2.0 * s <= 0.0
        assert found[j] == ok.any()
    assert not found[np.setdiff1d(np.arange(len(safe)), trial)].any()


def test_works_without_a_grid_on_a_spread_out_set() -> None:
    problem = pdcbo.Problem({f"x{j}": (0.0, 1.0) for j in range(4)}, {}, {"g": 0.0})
    tuner = SafeOpt(problem, models=pdcbo.Model(length_scales=1.0, variance=1.0, noise_var=1e-2))
    assert tuner.candidates.shape == (2048, 4)
    suggestion = tuner.ask()
    tuner.tell(suggestion, 0.0, {"g": -1.0})
    tuner.ask()


def test_what_the_plant_made_of_a_safe_choice_is_no_unsafe_step() -> None:
    tuner = SafeOpt(PROBLEM, safe=[{"parameters": {"x": 0.5}}], horizon=9)
    tuner.tell(tuner.ask({"z": 0.5}), 1.0, {"g": -0.5}, applied={"x": 0.51})
    assert tuner.unsafe_steps() == 0


def test_seeds_are_named_in_errors() -> None:
    with pytest.raises(TypeError, match="safe must be a list of mappings with parameters, got 5"):
        SafeOpt(PROBLEM, safe=5)
    with pytest.raises(ValueError, match=r"safe\[0\]\.context\['z'\] is missing"):
        SafeOpt(PROBLEM, safe=[{"parameters": {"x": 0.5}, "context": {"y": 1.0}}])


@pytest.mark.parametrize("safe", [[{"x": 0.5}], [{"parameters": {"x": 0.5}, "when": 1}], [3]])
def test_refuses_a_malformed_seed(safe: list[object]) -> None:
    with pytest.raises(ValueError, match=r"safe\[0\]"):
        SafeOpt(PROBLEM, safe=safe)


def test_orders_of_an_operator_are_no_unsafe_steps(tmp_path: Path) -> None:
    study = pdcbo.Study.open(tmp_path / "plant.db", "plant", PROBLEM, optimizer="safeopt", horizon=9)
    study.tell(study.ask({"z": 0.5}), 1.0, {"g": -0.5})
    study.pause("lunch")
    study.tell(study.ask({"z": 0.5}), 1.0, {"g": -0.5})
    assert "step 2 of 9" in study.summary()
    assert "in 1 steps the proposal was not known to be safe" in study.summary(), "in the first, which was its own"


def test_safe_points_may_be_numpy_numbers_and_the_state_is_json() -> None:
    tuner = SafeOpt(PROBLEM, safe=[{"parameters": {"x": np.float64(0.5)}, "context": {"z": np.int64(1)}}])
    assert SafeOpt.restore(json.loads(json.dumps(tuner.state()))).seeds[0][0] == tuner.seeds[0][0]
    with pytest.raises(TypeError, match=r"safe\[0\].parameters must be a mapping"):
        SafeOpt(PROBLEM, safe=[{"parameters": 3}])


def test_without_a_grid_safe_ucb_goes_to_the_edge_of_the_safe_set() -> None:
    """Its 2,048 points lie a tenth of the box apart; the cost falls towards a limit between them."""
    problem = pdcbo.Problem({name: (0.0, 1.0) for name in "abc"}, {}, {"g": 0.6180339})
    model = pdcbo.Model(length_scales=2.0, variance=4.0, noise_var=1e-6)
    tuner = SafeOpt(problem, models=model, ucb=True, safe=[{"parameters": {"a": 0.1, "b": 0.5, "c": 0.5}}])
    for _ in range(25):
        s = tuner.ask()
        a, b, c = (float(s.parameters[name]) for name in "abc")
        tuner.tell(s, -a + (b - 0.3717) ** 2 + (c - 0.6131) ** 2, {"g": a})
    s = tuner.ask()
    assert s.parameters["a"] <= 0.6180339
    assert s.parameters == pytest.approx({"a": 0.618, "b": 0.3717, "c": 0.6131}, abs=0.02)
    assert tuner.unsafe_steps() == 0
    assert tuner.ask().parameters == s.parameters
