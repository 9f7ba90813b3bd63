"""Metrics by hand, and the interval's coverage by enumeration."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from scipy.stats import binom, binomtest

from pdcbo import metrics, oracles
from pdcbo.plants.base import Outcome
from pdcbo.problem import Constraint, Problem


def test_regret_and_violation_by_hand() -> None:
    regret = metrics.contextual_regret(np.array([3.0, 1.0, 2.0]), np.array([1.0, 1.0, 3.0]))
    assert regret.tolist() == [2.0, 2.0, 1.0]
    g = np.array([[1.0, -1.0], [2.0, 5.0], [-4.0, 0.0]])
    assert metrics.cumulative(g).tolist() == [[1.0, -1.0], [3.0, 4.0], [-1.0, 4.0]]
    assert metrics.running_average(g)[1].tolist() == [1.5, 2.0]
    assert metrics.violation(g).tolist() == [1.0, 5.0, 4.0]


def test_regret_against_the_three_oracles() -> None:
    f, g = np.array([[0.0, 1.0, 2.0], [0.0, 4.0, 8.0]]), np.array([[1.0, 0.0, -1.0]] * 2)[..., None]
    got = metrics.regret(np.array([2.0, 3.0]), oracles.solve(f, g))
    assert got == pytest.approx((0.0, 0.0, 3.0), abs=1e-8)


@pytest.mark.parametrize(("count", "total"), [(0, 50), (1, 50), (25, 50), (50, 50), (3, 7)])
def test_interval_is_scipys_exact_one(count: int, total: int) -> None:
    expected = binomtest(count, total).proportion_ci(0.95, method="exact")
    got = metrics.proportion(count, total)
    assert got.lower == pytest.approx(expected.low, abs=1e-12)
    assert got.upper == pytest.approx(expected.high, abs=1e-12)


def test_interval_covers_by_enumeration() -> None:
    intervals = [metrics.proportion(k, 20, 0.9) for k in range(21)]
    for p in (0.01, 0.1, 0.5, 0.83):
        cover = sum(binom.pmf(k, 20, p) for k, i in enumerate(intervals) if i.lower <= p <= i.upper)
        assert cover >= 0.9


def test_violation_probability_counts_runs_with_any_positive_limit() -> None:
    final = np.array([[-1.0, -2.0], [0.5, -3.0], [0.0, -1.0], [-1.0, 0.1]])
    assert metrics.violation_probability(final).estimate == 0.5
    assert metrics.violation_probability(final[:, 0]).estimate == 0.25
    with pytest.raises(ValueError, match="finite"):
        metrics.violation_probability(np.array([np.nan]))


def test_arrays_of_records() -> None:
    problem = Problem({"x": (0, 1)}, {}, {"heat": Constraint(upper=3.0, lower=1.0), "wear": 2.0})
    seen, true = Outcome(1.0, {"heat": 4.0, "wear": 2.5}), Outcome(1.5, {"heat": 3.5, "wear": 2.0})
    records = [
        SimpleNamespace(step=1, observed=seen, truth=true),
        SimpleNamespace(step=2, observed=None, truth=None),
    ]
    f, g = metrics.run_arrays(records[:1], problem)
    assert f.tolist() == [1.5]
    assert g.tolist() == [[0.5, -2.5, 0.0]]
    f, g = metrics.run_arrays(records, problem, truth=False)
    assert g[0].tolist() == [1.0, -3.0, 0.5]
    assert np.isnan(f[1])
    assert np.isnan(g[1]).all()
    with pytest.raises(ValueError, match="step 2 has no truth"):
        metrics.run_arrays(records, problem)


def test_misshapen_arrays_are_refused() -> None:
    with pytest.raises(ValueError, match="one shape"):
        metrics.contextual_regret(np.zeros(3), np.zeros(4))
    with pytest.raises(ValueError, match=r"g must be of shape \(T, N\)"):
        metrics.violation(np.zeros(3))
    with pytest.raises(ValueError, match="count must lie"):
        metrics.proportion(3, 2)
