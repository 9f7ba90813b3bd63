"""What every plant must do, and the context sequences."""

from __future__ import annotations

import numpy as np
import pytest

from pdcbo import Problem
from pdcbo.plants import PLANTS
from pdcbo.plants.contexts import SEQUENCES, ContextPath
from pdcbo.plants.synthetic import Formula
from pdcbo.problem import Array


@pytest.mark.parametrize("name", sorted(PLANTS))
def test_every_plant_keeps_the_contract(name: str) -> None:
    plant, twin = PLANTS[name](seed=3), PLANTS[name](seed=3)
    problem = plant.problem
    rng = np.random.default_rng(0)
    contexts = [plant.context(t) for t in range(1, 13)]
    assert [twin.context(t) for t in range(12, 0, -1)][::-1] == contexts
    for context in contexts:
        problem.encode_context(context)
        assert problem.outside(context) == ()
        parameters = problem.decode_parameters(problem.snap(rng.random(problem.n_theta)))
        observed, truth = plant.evaluate(parameters, context), plant.truth(parameters, context)
        assert twin.evaluate(parameters, context) == observed
        assert twin.truth(parameters, context) == truth
        assert list(truth.constraints) == list(problem.constraints)
        assert np.isfinite(problem.encode_outcome(*observed)).all()
        assert np.isfinite(problem.encode_outcome(*truth)).all()
    oracle = plant.oracle(contexts)
    assert oracle.per_step.shape == oracle.in_expectation.shape == (12,)
    assert oracle.prices.shape == (len(problem.limits),)
    size = 1e-6 * (1.0 + np.abs(oracle.per_step).sum())
    feasible = np.setdiff1d(np.arange(12), oracle.infeasible_steps)
    assert (oracle.per_step >= oracle.in_expectation - size)[feasible].all()
    if len(feasible) == 12:
        assert oracle.in_expectation.sum() >= oracle.time_average - size
    # The parameters behind the per-step oracle give what it claims, and meet the limits where it says so.
    for t in (0, 7):
        truth = plant.truth(problem.decode_parameters(oracle.theta[t]), contexts[t])
        assert truth.objective == pytest.approx(oracle.per_step[t], rel=1e-6, abs=1e-9)
        if t in feasible:
            y = problem.encode_outcome(*truth)
            assert all(limit.value(y[limit.output]) <= 1e-9 * (1 + abs(limit.bound)) for limit in problem.limits)


@pytest.mark.parametrize("name", sorted(PLANTS))
def test_another_seed_is_another_run(name: str) -> None:
    a, b = PLANTS[name](seed=0), PLANTS[name](seed=1)
    assert [a.context(t) for t in (1, 2)] != [b.context(t) for t in (1, 2)] or not a.problem.context


@pytest.mark.parametrize("name", sorted(SEQUENCES))
def test_sequences_are_functions_of_seed_and_step(name: str) -> None:
    forward, backward = ContextPath(name, 3, 5), ContextPath(name, 3, 5)
    steps = [1, 2, 255, 256, 257, 700]
    there = {t: forward(t) for t in steps}
    for t in reversed(steps):
        np.testing.assert_array_equal(backward(t), there[t])
        assert ((there[t] >= 0) & (there[t] <= 1)).all()
    assert not np.array_equal(ContextPath(name, 3, 6)(1), there[1])


def test_uniform_contexts_are_uniform() -> None:
    path = ContextPath("uniform", 2, 0)
    z = np.array([path(t) for t in range(1, 2001)])
    # Standard error of the mean 0.0065, of the variance 0.0017: five of them, a false alarm in about 1e-6.
    assert np.abs(z.mean(axis=0) - 0.5).max() < 0.033
    assert np.abs(z.var(axis=0) - 1 / 12).max() < 0.009


def test_random_walk_moves_little_and_jumping_seldom() -> None:
    walk = np.array([ContextPath("random-walk", 1, 0)(t) for t in range(1, 601)])
    assert np.abs(np.diff(walk[:, 0])).max() < 0.05 * 5
    path = ContextPath("jumping", 1, 0)
    jumps = np.diff([path(t)[0] for t in range(1, 601)]) != 0
    assert 10 <= jumps.sum() <= 55  # 30 expected, standard deviation 5.3


def test_the_adversary_alternates_between_opposite_corners_in_doubling_blocks() -> None:
    path = ContextPath("adversarial", 2, 4)
    corners = np.round([path(t) for t in range(1, 505)])
    changes = 1 + np.flatnonzero((np.diff(corners, axis=0) != 0).any(axis=1))
    assert changes.tolist() == [8, 24, 56, 120, 248]
    assert (corners[changes] + corners[changes - 1] == 1).all()


def test_unknown_sequences_and_steps_are_refused() -> None:
    with pytest.raises(ValueError, match="contexts must be one of"):
        ContextPath("sideways", 1, 0)
    with pytest.raises(ValueError, match="t must be at least 0"):
        ContextPath("uniform", 1, 0)(-1)
    assert ContextPath("uniform", 2, 0)(0).shape == (2,)  # the context before the first step


def test_the_oracle_finds_a_narrow_optimum_in_a_corner() -> None:
    """Which points that are spread out evenly over three parameters miss, and a search from the best of them too."""
    problem = Problem({name: (0.0, 1.0) for name in "abc"}, {"z": (0.0, 1.0)}, {"g": 0.5})

    def function(p: dict[str, Array], c: dict[str, Array]) -> tuple[Array, ...]:
        corner = p["a"] ** 2 + p["b"] ** 2 + p["c"] ** 2
        middle = sum((p[name] - 0.5) ** 2 for name in "abc")
        return -np.exp(-corner / 0.005) - 0.5 * np.exp(-middle / 0.1) + 0.0 * c["z"], p["a"] + 0.0 * c["z"]

    plant = Formula(problem, (0.1, 0.1), function)
    oracle = plant.oracle([{"z": 0.2}, {"z": 0.9}])
    np.testing.assert_allclose(oracle.per_step, -1.0, atol=1e-3)
    assert oracle.time_average / 2.0 <= -1.0 + 1e-3
