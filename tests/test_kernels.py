"""Kernels against scikit-learn and finite differences; the information gain against brute force."""

from __future__ import annotations

from itertools import combinations_with_replacement

import numpy as np
import pytest
from sklearn.gaussian_process.kernels import RBF, DotProduct, Matern

from pdcbo.confidence import planned_gain
from pdcbo.kernels import FAMILIES, STATIONARY, Factor, Kernel, greedy_information_gain, information_gain

RNG = np.random.default_rng(0)
A, B = RNG.random((13, 4)), RNG.random((9, 4))
SCALES = (0.3, 1.7, 0.05, 4.0)
REFERENCE = {
    "squared-exponential": lambda scales: RBF(scales),
    "matern-1/2": lambda scales: Matern(scales, nu=0.5),
    "matern-3/2": lambda scales: Matern(scales, nu=1.5),
    "matern-5/2": lambda scales: Matern(scales, nu=2.5),
}


@pytest.mark.parametrize("family", sorted(STATIONARY))
def test_stationary_kernels_equal_scikit_learn(family: str) -> None:
    kernel = Kernel((Factor(family, (0, 1, 2, 3), SCALES),), 2.5)
    np.testing.assert_allclose(kernel.matrix(A, B), 2.5 * REFERENCE[family](SCALES)(A, B), rtol=0, atol=1e-12)
    assert kernel.diagonal(A) == pytest.approx(2.5)


def test_linear_kernel_equals_dot_product_of_centred_scaled_inputs() -> None:
    kernel = Kernel((Factor("linear", (0, 1, 2, 3), SCALES),), 2.5)
    expected = 2.5 * DotProduct(sigma_0=1.0)((A - 0.5) / SCALES, (B - 0.5) / SCALES)
    np.testing.assert_allclose(kernel.matrix(A, B), expected, rtol=1e-13)
    np.testing.assert_allclose(kernel.diagonal(A), np.diag(kernel.matrix(A, A)), rtol=1e-13)


def test_products_multiply_and_ignore_other_columns() -> None:
    kernel = Kernel((Factor("matern-3/2", (2,), (0.2,)), Factor("linear", (0, 3), (0.4, 0.9))), 0.7)
    a, b = (A - 0.5) / 1.0, (B - 0.5) / 1.0
    linear = DotProduct(sigma_0=1.0)(a[:, [0, 3]] / (0.4, 0.9), b[:, [0, 3]] / (0.4, 0.9))
    expected = 0.7 * Matern(0.2, nu=1.5)(A[:, [2]], B[:, [2]]) * linear
    np.testing.assert_allclose(kernel.matrix(A, B), expected, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(kernel.diagonal(A), np.diag(kernel.matrix(A, A)), rtol=1e-13)


@pytest.mark.parametrize("family", ["squared-exponential", "matern-5/2", "linear"])
def test_a_choice_is_a_one_hot_encoding(family: str) -> None:
    """Two different options are at distance 1: the one-hot vectors, scaled by 1/sqrt(2), have that distance."""
    options = RNG.integers(3, size=20)
    x = np.column_stack([options / 2.0, RNG.random(20)])
    kernel = Kernel((Factor(family, (0, 1), (0.6, 0.3), frozenset({0})),))
    hot = np.column_stack([np.eye(3)[options] / (0.6 * np.sqrt(2.0)), x[:, 1] / 0.3])
    if family == "linear":
        hot = np.column_stack([np.eye(3)[options] / 0.6, (x[:, 1] - 0.5) / 0.3])
        expected = DotProduct(sigma_0=1.0)(hot)
    else:
        expected = REFERENCE[family](np.ones(4))(hot)
    np.testing.assert_allclose(kernel.matrix(x, x), expected, atol=1e-12)


@pytest.mark.parametrize("family", FAMILIES)
def test_an_entry_does_not_depend_on_its_batch(family: str) -> None:
    kernel = Kernel((Factor(family, (0, 1), (0.3, 0.4)), Factor(family, (2, 3), (0.2, 2.0))), 3.0)
    whole = kernel.matrix(A, B)
    one_by_one = np.array([[kernel.matrix(a[None], b[None])[0, 0] for b in B] for a in A])
    assert (whole == one_by_one).all()


def test_json_round_trip_is_exact() -> None:
    kernel = Kernel((Factor("matern-1/2", (0, 2), (1 / 3, 0.1), frozenset({2})), Factor("linear", (1,), (7.0,))), 0.1)
    assert Kernel.from_json(kernel.to_json()) == kernel


def test_unknown_family_is_refused() -> None:
    with pytest.raises(ValueError, match=r"kernel must be one of .*got 'cubic'"):
        Factor("cubic", (0,), (1.0,))


def test_information_gain_is_the_log_determinant() -> None:
    kernel = Kernel((Factor("squared-exponential", (0, 1, 2, 3), SCALES),), 2.0)
    K = 2.0 * RBF(SCALES)(A)
    expected = 0.5 * np.log(np.linalg.det(np.eye(len(A)) + K / 0.3))
    assert information_gain(kernel, A, 0.3) == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize("family", ["squared-exponential", "matern-5/2", "linear"])
def test_greedy_gain_against_brute_force(family: str) -> None:
    """Over all multisets of three of eight points; the guarantee for submodular functions is 1 - 1/e of the best."""
    points = np.random.default_rng(1).random((8, 2))
    kernel = Kernel((Factor(family, (0, 1), (0.4, 0.6)),), 1.5)
    greedy = greedy_information_gain(kernel, points, 0.1, 3)
    for t in (1, 2, 3):
        best = max(information_gain(kernel, points[list(s)], 0.1) for s in combinations_with_replacement(range(8), t))
        assert (1 - 1 / np.e) * best <= greedy[t - 1] <= best * (1 + 1e-12)
        assert greedy[t - 1] >= 0.95 * best  # what it does here, far better than its guarantee


def test_greedy_gain_is_the_gain_of_its_own_points() -> None:
    points = np.random.default_rng(2).random((30, 2))
    kernel = Kernel((Factor("squared-exponential", (0, 1), (0.3, 0.3)),))
    gain = greedy_information_gain(kernel, points, 0.05, 12)
    assert (np.diff(gain) > 0).all()
    assert (np.diff(gain, 2) <= 1e-12).all()  # submodular: each step brings less
    assert gain[0] == pytest.approx(0.5 * np.log(1 + 1 / 0.05))


def test_planned_gain_agrees_with_greedy_selection() -> None:
    """What Theorem 1's constants are planned with, against greedy selection on the same points."""
    points = np.random.default_rng(3).random((128, 2))
    kernel = Kernel((Factor("squared-exponential", (0, 1), (0.3, 0.3)),))
    greedy = greedy_information_gain(kernel, points, 0.01, 600)
    plan = planned_gain(kernel, points, 0.01)
    for T in (100, 300, 600):
        assert plan(T) == pytest.approx(greedy[T - 1], rel=0.15)
