"""The three oracles against SciPy's linear programmes, by hand, and by their order."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from pdcbo import oracles


def tables(seed: int, T: int, M: int, N: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    g = rng.standard_normal((T, M, N))
    g[:, 0] = -np.abs(g[:, 0]) - 0.1
    return rng.standard_normal((T, M)), g


def mixture_by_linprog(f: np.ndarray, g: np.ndarray) -> float:
    found = linprog(f, A_ub=g.T, b_ub=np.zeros(g.shape[1]), A_eq=np.ones((1, len(f))), b_eq=[1.0])
    assert found.success
    return found.fun


def time_average_by_linprog(f: np.ndarray, g: np.ndarray) -> float:
    T, M, N = g.shape
    A_eq = np.kron(np.eye(T), np.ones((1, M)))
    found = linprog(f.ravel(), A_ub=g.reshape(-1, N).T, b_ub=np.zeros(N), A_eq=A_eq, b_eq=np.ones(T))
    assert found.success
    return found.fun


def test_by_hand_two_contexts_one_limit() -> None:
    # Context 1: the limit costs 1 a unit; context 2: it costs 4 a unit. Slack is bought where it is cheap.
    f = np.array([[0.0, 1.0, 2.0], [0.0, 4.0, 8.0]])
    g = np.array([[1.0, 0.0, -1.0], [1.0, 0.0, -1.0]])[..., None]
    oracle = oracles.solve(f, g)
    assert oracle.per_step.tolist() == [1.0, 4.0]
    np.testing.assert_allclose(oracle.in_expectation, [1.0, 4.0], atol=1e-9)
    assert oracle.time_average == pytest.approx(2.0, abs=1e-9)
    assert 1.0 - 1e-9 <= oracle.prices[0] <= 4.0 + 1e-9
    assert len(oracle.infeasible_steps) == 0
    assert oracle.relaxation.tolist() == [0.0]


def test_a_mixture_beats_every_single_candidate() -> None:
    f, g = np.array([[0.0, 3.0, 2.0]]), np.array([[1.0, 0.0, -1.0]])[..., None]
    oracle = oracles.solve(f, g)
    assert oracle.per_step[0] == 2.0
    assert oracle.in_expectation[0] == pytest.approx(1.0, abs=1e-9)


@pytest.mark.parametrize("N", [1, 2, 3])
def test_mixture_and_time_average_against_linprog(N: int) -> None:
    for seed in range(5):
        f, g = tables(seed, 8, 30, N)
        oracle = oracles.solve(f, g)
        expected = [mixture_by_linprog(f[t], g[t]) for t in range(len(f))]
        np.testing.assert_allclose(oracle.in_expectation, expected, atol=1e-8)
        assert oracle.time_average == pytest.approx(time_average_by_linprog(f, g), abs=1e-6)
        assert 0.0 <= oracle.gap <= 1e-6


@settings(deadline=None, derandomize=True, max_examples=100)
@given(seed=st.integers(0, 10**6), T=st.integers(1, 4), M=st.integers(1, 12), N=st.integers(1, 3))
def test_degenerate_and_infeasible_tables_against_linprog(seed: int, T: int, M: int, N: int) -> None:
    # Small whole numbers: ties, repeated candidates, limits met exactly, limits that cannot be met.
    rng = np.random.default_rng(seed)
    f, g = rng.integers(-3, 4, (T, M)).astype(float), rng.integers(-2, 4, (T, M, N)).astype(float)
    mixture, (value, _, _, relaxation) = oracles.best_mixture(f, g), oracles.time_average(f, g)
    for t in range(T):
        found = linprog(f[t], A_ub=g[t].T, b_ub=np.zeros(N), A_eq=np.ones((1, M)), b_eq=[1.0])
        assert (found.status == 2) == mixture.relaxation[t].any()
        assert found.status == 2 or mixture.value[t] == pytest.approx(found.fun, abs=1e-7)
    A_eq = np.kron(np.eye(T), np.ones((1, M)))
    found = linprog(f.ravel(), A_ub=g.reshape(-1, N).T, b_ub=np.zeros(N), A_eq=A_eq, b_eq=np.ones(T))
    assert (found.status == 2) == relaxation.any()
    assert found.status == 2 or value == pytest.approx(found.fun, abs=1e-6)


def test_a_constant_objective_leaves_only_the_limits() -> None:
    oracle = oracles.solve(np.full((3, 4), 7.0), np.random.default_rng(0).standard_normal((3, 4, 1)))
    assert oracle.time_average == pytest.approx(21.0)


def test_weights_stand_for_repeated_steps() -> None:
    f, g = tables(3, 4, 20, 2)
    counts = np.array([1.0, 3.0, 2.0, 5.0])
    repeat = counts.astype(int)
    weighted = oracles.time_average(f, g, counts)
    plain = oracles.time_average(np.repeat(f, repeat, axis=0), np.repeat(g, repeat, axis=0))
    assert weighted[0] == pytest.approx(plain[0], abs=1e-7)


@settings(deadline=None, derandomize=True, max_examples=60)
@given(seed=st.integers(0, 10**6), T=st.integers(1, 6), M=st.integers(1, 12), N=st.integers(0, 3))
def test_each_oracle_allows_more_than_the_one_before(seed: int, T: int, M: int, N: int) -> None:
    f, g = tables(seed, T, M, N)
    oracle = oracles.solve(f, g)
    assert (oracle.per_step >= oracle.in_expectation - 1e-8).all()
    assert oracle.in_expectation.sum() >= oracle.time_average - 1e-7
    assert (oracle.prices >= 0).all()
    # The Lagrangian at the reported prices is a lower bound by itself: recompute it.
    assert (f + g @ oracle.prices).min(axis=1).sum() == pytest.approx(oracle.time_average, abs=1e-7)


@settings(deadline=None, derandomize=True, max_examples=30)
@given(seed=st.integers(0, 10**6), scale=st.sampled_from([1e-6, 1.0, 1e6]), limit=st.sampled_from([1e-4, 1.0, 1e4]))
def test_units_do_not_matter(seed: int, scale: float, limit: float) -> None:
    f, g = tables(seed, 4, 15, 2)
    here, there = oracles.solve(f, g), oracles.solve(scale * f, limit * g)
    np.testing.assert_allclose(there.in_expectation, scale * here.in_expectation, rtol=1e-6, atol=1e-7 * scale)
    assert there.time_average == pytest.approx(scale * here.time_average, rel=1e-6, abs=1e-6 * scale)


def test_a_step_without_a_feasible_candidate() -> None:
    f = np.array([[0.0, 5.0, 4.0], [0.0, 1.0, 2.0]])
    g = np.array([[3.0, 1.0, 1.0], [1.0, 0.0, -4.0]])[..., None]
    oracle = oracles.solve(f, g)
    assert oracle.infeasible_steps.tolist() == [0]
    assert oracle.per_step.tolist() == [4.0, 1.0]  # the least infeasible, and the cheaper of two such
    assert oracle.in_expectation[0] == pytest.approx(4.0)
    # On average the second context earns what the first one needs.
    assert oracle.relaxation.tolist() == [0.0]
    assert oracle.time_average == pytest.approx(time_average_by_linprog(f, g))


def test_limits_that_cannot_be_met_on_average_are_relaxed_by_the_least() -> None:
    f = np.array([[0.0, 1.0], [0.0, 3.0]])
    g = np.array([[5.0, 1.0], [5.0, 2.0]])[..., None]
    oracle = oracles.solve(f, g)
    assert oracle.infeasible_steps.tolist() == [0, 1]
    assert oracle.relaxation == pytest.approx([1.5])
    assert oracle.time_average == pytest.approx(4.0, abs=1e-6)


def test_without_limits_all_three_agree() -> None:
    f = np.random.default_rng(0).random((5, 7))
    oracle = oracles.solve(f, np.zeros((5, 7, 0)))
    assert oracle.time_average == pytest.approx(f.min(axis=1).sum())
    np.testing.assert_allclose(oracle.in_expectation, f.min(axis=1))


def test_misshapen_tables_are_refused() -> None:
    with pytest.raises(ValueError, match=r"tables must be f \(T, M\)"):
        oracles.solve(np.zeros((2, 3)), np.zeros((2, 4, 1)))


def test_weights_matter_where_a_limit_binds() -> None:
    """The first context, three times as frequent, can pay for the second: by hand.

    Limits bind in both. Slack costs 1 a unit in the first context and 4 in the second, so that it is bought in the
    first: three steps of g = -1/3 at 4/3 each pay for one step of g = 1 at 0.
    """
    f = np.array([[0.0, 1.0, 2.0], [0.0, 4.0, 8.0]])
    g = np.array([[1.0, 0.0, -1.0], [1.0, 0.0, -1.0]])[..., None]
    counts = np.array([3.0, 1.0])
    value, gap, prices, _ = oracles.time_average(f, g, counts)
    plain = oracles.time_average(np.repeat(f, [3, 1], axis=0), np.repeat(g, [3, 1], axis=0))
    assert value == pytest.approx(4.0)
    assert value == pytest.approx(plain[0])
    assert prices[0] == pytest.approx(1.0)
    assert gap <= 1e-6
    rng = np.random.default_rng(5)
    for seed in range(10):
        f, g = rng.standard_normal((4, 20)), rng.standard_normal((4, 20, 2)) + 0.8
        g[:, 0] = -0.1
        counts = rng.integers(1, 6, 4)
        weighted = oracles.time_average(f, g, counts)
        plain = oracles.time_average(np.repeat(f, counts, axis=0), np.repeat(g, counts, axis=0))
        assert plain[2].max() > 0.01, seed
        assert weighted[0] == pytest.approx(plain[0], abs=1e-6)
        assert weighted[2] == pytest.approx(plain[2], abs=1e-6)


def test_units_do_not_decide_which_limit_is_exceeded_least() -> None:
    """Nothing is feasible: exceeding g by half of its size beats exceeding h, which is counted in millions, by all."""
    f = np.array([[1.0, 0.0]])
    g = np.array([[[0.5, 1e5], [1.0, 1e4]], [[-1.0, -1e6], [1.0, 1e6]]])
    best, feasible = oracles.best_feasible(np.vstack([f, f]), g)
    assert not feasible[0]
    assert best[0] == 0
