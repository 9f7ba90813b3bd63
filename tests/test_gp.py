"""The exact posterior: against scikit-learn to 1e-8, incremental against rebuilt to the bit, and where it is hard."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, DotProduct, Matern

from pdcbo.gp import BLOCK, Posterior
from pdcbo.kernels import FAMILIES, Factor, Kernel
from pdcbo.problem import Array

SKLEARN = {
    "squared-exponential": lambda scales: RBF(scales),
    "matern-1/2": lambda scales: Matern(scales, nu=0.5),
    "matern-3/2": lambda scales: Matern(scales, nu=1.5),
    "matern-5/2": lambda scales: Matern(scales, nu=2.5),
    "linear": lambda scales: DotProduct(sigma_0=1.0),
}


def reference(family: str, scales: Array, noise: float, X: Array, Y: Array, A: Array) -> tuple[Array, Array]:
    """Mean and standard deviation by scikit-learn; its linear kernel is given centred and scaled inputs."""
    if family == "linear":
        X, A = (X - 0.5) / scales, (A - 0.5) / scales
    regressor = GaussianProcessRegressor(SKLEARN[family](scales), alpha=noise, optimizer=None).fit(X, Y)
    mean, std = regressor.predict(A, return_std=True)
    return mean.reshape(len(A), -1), (std if std.ndim == 1 else std[:, 0])


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("n", [1, 5, BLOCK - 1, BLOCK, 150])
def test_posterior_equals_scikit_learn(family: str, n: int) -> None:
    rng = np.random.default_rng([n, FAMILIES.index(family)])
    d = 3
    X, Y, A = rng.random((n, d)), rng.normal(size=(n, 2)), rng.random((40, d))
    scales = np.exp(rng.uniform(np.log(0.2), np.log(2.0), d))
    posterior = Posterior.build(Kernel((Factor(family, tuple(range(d)), tuple(scales)),)), 0.01, X, Y)
    mean, std = posterior.predict(A)
    expected_mean, expected_std = reference(family, scales, 0.01, X, Y, A)
    np.testing.assert_allclose(mean, expected_mean, rtol=0, atol=1e-8)
    np.testing.assert_allclose(std, expected_std, rtol=0, atol=1e-8)


@pytest.mark.parametrize(("theta", "context"), [("squared-exponential", "matern-3/2"), ("matern-5/2", "linear")])
def test_product_kernel_equals_equation_6(theta: str, context: str) -> None:
    """scikit-learn has no products over columns; this is equation (6) written out, on its kernels."""
    rng = np.random.default_rng(4)
    X, y, A = rng.random((60, 3)), rng.normal(size=60), rng.random((20, 3))
    kernel = Kernel((Factor(theta, (0, 1), (0.4, 0.7)), Factor(context, (2,), (0.5,))), 1.7)

    def k(P: Array, Q: Array) -> Array:
        centre = 0.5 if context == "linear" else 0.0
        left = SKLEARN[theta]((0.4, 0.7))(P[:, :2], Q[:, :2])
        scale = 0.5 if context == "linear" else 1.0
        right = SKLEARN[context]((0.5,))((P[:, 2:] - centre) / scale, (Q[:, 2:] - centre) / scale)
        return np.asarray(1.7 * left * right)

    mean, std = Posterior.build(kernel, 0.02, X, y[:, None]).predict(A)
    solved = np.linalg.solve(k(X, X) + 0.02 * np.eye(60), np.column_stack([y, k(X, A)]))
    np.testing.assert_allclose(mean[:, 0], k(A, X) @ solved[:, 0], atol=1e-8)
    np.testing.assert_allclose(std, np.sqrt(np.diag(k(A, A) - k(A, X) @ solved[:, 1:])), atol=1e-8)


@pytest.mark.parametrize("n", [3, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK, 150])
@pytest.mark.parametrize("noise", [1e-6, 0.1])
def test_grown_is_rebuilt_to_the_last_bit(n: int, noise: float) -> None:
    rng = np.random.default_rng(n)
    X, Y, A = rng.random((n, 3)), rng.normal(size=(n, 2)), rng.random((33, 3))
    X[n // 2] = X[0]
    kernel = Kernel((Factor("squared-exponential", (0, 1), (0.4, 0.4)), Factor("matern-5/2", (2,), (0.3,))), 1.4)
    built, grown = Posterior.build(kernel, noise, X, Y), Posterior(kernel, noise, 3, 2)
    for x, y in zip(X, Y, strict=True):
        grown.add(x, y)
        grown.predict(A[:2])  # looking changes nothing
    for a, b in zip(built.predict(A), grown.predict(A), strict=True):
        assert (a == b).all()
    assert built.information_gain == grown.information_gain


def test_information_gain_of_the_points_visited() -> None:
    X = np.random.default_rng(0).random((90, 2))
    kernel = Kernel((Factor("squared-exponential", (0, 1), (0.2, 0.2)),))
    posterior = Posterior.build(kernel, 0.05, X, np.zeros((90, 1)))
    expected = 0.5 * np.linalg.slogdet(np.eye(90) + RBF(0.2)(X) / 0.05)[1]
    assert posterior.information_gain == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize("family", FAMILIES)
def test_nothing_fails_where_it_is_hard(family: str) -> None:
    """Noise 1e-6, every point many times, points a hair apart, length scales 1e4-fold apart."""
    rng = np.random.default_rng(7)
    base = rng.random((20, 4))
    X = np.vstack([np.repeat(base, 10, axis=0), base + 1e-9, base + 1e-13])
    Y = np.sin(5 * X[:, :1]) + 1e-3 * rng.normal(size=(len(X), 1))
    kernel = Kernel((Factor(family, (0, 1, 2, 3), (1e-2, 1e2, 0.3, 3.0)),), 1.0)
    posterior = Posterior(kernel, 1e-6, 4, 1)
    for x, y in zip(X, Y, strict=True):
        posterior.add(x, y)
    A = np.vstack([base, rng.random((50, 4)), X[-3:]])
    mean, std = posterior.predict(A)
    prior = np.sqrt(kernel.diagonal(A))
    assert np.isfinite(mean).all()
    assert np.isfinite(std).all()
    assert ((std >= 0) & (std <= prior * (1 + 1e-9))).all()
    if family != "linear":  # ten readings of each point are averaged
        averages = Y[:200, 0].reshape(20, 10).mean(axis=1)
        np.testing.assert_allclose(mean[:20, 0], averages, atol=1e-3)


def test_a_point_read_once_is_remembered_at_noise_1e_6() -> None:
    kernel = Kernel((Factor("squared-exponential", (0,), (0.1,)),))
    posterior = Posterior.build(kernel, 1e-6, np.array([[0.5]]), np.array([[2.0]]))
    mean, std = posterior.predict(np.array([[0.5], [0.5 + 1e-9], [0.0]]))
    # (6) for one point: mean = 2 / (1 + 1e-6), variance = 1 - 1 / (1 + 1e-6)
    assert mean[0, 0] == pytest.approx(2.0 / (1.0 + 1e-6), rel=1e-14)
    assert std[0] == pytest.approx(np.sqrt(1e-6 / (1.0 + 1e-6)), rel=1e-7)
    assert std[2] == pytest.approx(1.0, abs=1e-10)


points = st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1), st.floats(-3, 3)), min_size=1, max_size=25)


@given(points, st.sampled_from(FAMILIES), st.floats(1e-6, 1.0), st.floats(0.01, 3.0), st.randoms(use_true_random=False))
def test_variance_between_zero_and_prior_whatever_the_order(data, family, noise, scale, random) -> None:
    kernel = Kernel((Factor(family, (0, 1), (scale, 1.0)),), 1.5)
    A = np.array([[0.1, 0.9], [0.5, 0.5], [data[0][0], data[0][1]]])
    results = []
    for _ in range(2):
        D = np.array(data)
        posterior = Posterior.build(kernel, noise, D[:, :2], D[:, 2:])
        mean, std = posterior.predict(A)
        assert ((std >= 0) & (std <= np.sqrt(kernel.diagonal(A)) * (1 + 1e-9))).all()
        results.append((mean, std))
        random.shuffle(data)
    # The error of a solve grows with the condition number, which is at most (n k + noise) / noise.
    condition = (len(data) * 1.5 * (1 + 0.25 / scale**2 + 0.25) + noise) / noise
    np.testing.assert_allclose(results[0][0], results[1][0], atol=1e-13 * condition + 1e-12)
    np.testing.assert_allclose(results[0][1] ** 2, results[1][1] ** 2, atol=1e-13 * condition + 1e-12)


@given(points, st.floats(1e-6, 1.0))
def test_more_data_never_widen(data, noise) -> None:
    D = np.array(data)
    kernel = Kernel((Factor("matern-3/2", (0, 1), (0.3, 0.6)),))
    A = np.array([[0.2, 0.2], [0.8, 0.4]])
    posterior = Posterior(kernel, noise, 2, 1)
    last = posterior.predict(A)[1]
    for row in D:
        posterior.add(row[:2], row[2:])
        std = posterior.predict(A)[1]
        assert (std**2 <= last**2 + 1e-9).all()
        last = std
