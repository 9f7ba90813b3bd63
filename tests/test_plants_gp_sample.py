"""Gaussian-process draws against their kernels: exactly through the features, and by statistics of many draws."""

from __future__ import annotations

import numpy as np
import pytest

from pdcbo.plants.fourier import RandomDraw, TensorDraw
from pdcbo.plants.gp_sample import GPSample


def covariance(draw: TensorDraw, x: np.ndarray, n_theta: int) -> np.ndarray:
    """Return the covariance of the series itself: features . features, by drawing unit coefficient vectors."""
    left = draw.features(x[:, :n_theta])
    draw._coefficients = draw._sd * np.eye(draw._rows * draw._columns).reshape(-1, draw._rows, draw._columns)
    return np.einsum("ar,anr->an", left, draw.weights(x[:, n_theta:]))


@pytest.mark.parametrize("kernel", ["code", "paper", "matern52", "linear"])
def test_series_covariance_is_the_kernel_to_the_stated_tolerance(kernel: str) -> None:
    plant = GPSample(kernel=kernel, n_theta=1, n_z=0, margin=None)
    x = np.concatenate([np.linspace(-10, 10, 200), [-10.0, 10.0, 9.99]])[:, None]
    phi = covariance(plant._draw, x, 1)
    K = plant.kernel.matrix(0.5 + x / 20, 0.5 + x / 20)
    assert np.abs(phi @ phi.T - K).max() <= plant.tolerance
    assert plant.tolerance <= 1e-5


@pytest.mark.parametrize("length", [1.0, 4.0, 10.0])
def test_tensor_covariance_in_several_dimensions(length: float) -> None:
    n = 2 if length < 2 else 3
    plant = GPSample(n_theta=n - 1, n_z=1, length_scale=length, margin=None)
    u = np.concatenate([np.random.default_rng(0).random((40, n)), [[0.0] * n, [1.0] * n]])
    x = 20 * u - 10
    draw = plant._draw
    left, right = draw.features(x[:, :-1]), np.stack([a(x[:, n - 1]) for a in draw._right], axis=-1)[..., 0]
    phi = 2.0**0.5 * np.einsum("ar,as->ars", left, right).reshape(len(x), -1)
    assert np.abs(phi @ phi.T - plant.kernel.matrix(u, u)).max() <= plant.tolerance


def test_paper_and_code_kernels_are_as_printed() -> None:
    a, b = np.array([[0.5, 0.5]]), np.array([[0.55, 0.5]])  # one length scale apart
    assert GPSample(kernel="code").kernel.matrix(a, b)[0, 0] == pytest.approx(2 * np.exp(-0.5))
    assert GPSample(kernel="paper").kernel.matrix(a, b)[0, 0] == pytest.approx(2 * np.exp(-1.0))


@pytest.mark.parametrize("kernel", ["code", "matern52"])
def test_statistics_of_many_draws(kernel: str) -> None:
    u = np.array([[0.5, 0.5], [0.52, 0.5], [0.5, 0.55], [0.6, 0.4], [0.0, 1.0]])
    draws = []
    for seed in range(400):
        plant = GPSample(seed=seed, kernel=kernel, margin=None, constraints=3)
        draws.append(np.array([plant.values(p[None, :1], p[1:])[0] for p in u]))
    flat = np.array(draws).transpose(0, 2, 1).reshape(-1, len(u))  # 1,600 independent functions
    K = plant.kernel.matrix(u, u)
    seen = flat.T @ flat / len(flat)
    error = np.sqrt((K * K + np.outer(np.diag(K), np.diag(K))) / len(flat))
    assert (np.abs(seen - K) < 5 * error).all()  # 15 entries at five standard errors: a false alarm in 1e-5
    kurtosis = (flat**4).mean(axis=0) / (flat**2).mean(axis=0) ** 2
    assert (np.abs(kurtosis - 3) < 5 * np.sqrt(24 / len(flat)) + 0.1).all()


def test_random_features_take_over_in_high_dimension() -> None:
    plant = GPSample(n_theta=4, n_z=3, margin=None, constraints=0)
    assert isinstance(plant._draw, RandomDraw)
    assert plant.tolerance == pytest.approx(2 / 64)
    u = 0.5 + 0.05 * np.random.default_rng(1).random((12, 7))
    left, right = plant._draw._left, plant._draw._right
    angle = (20 * u - 10) @ np.concatenate([left, right])
    phi = (2 / 2048) ** 0.5 * np.concatenate([np.cos(angle), np.sin(angle)], axis=1)
    assert np.abs(phi @ phi.T - plant.kernel.matrix(u, u)).max() < 5 * plant.tolerance
    theta, z = np.random.default_rng(2).random((6, 4)), np.full(3, 0.4)
    joint = plant._draw._a[0] @ np.cos((20 * np.c_[theta, np.tile(z, (6, 1))] - 10) @ np.concatenate([left, right])).T
    joint = joint + plant._draw._b[0] @ np.sin((20 * np.c_[theta, np.tile(z, (6, 1))] - 10) @ np.r_[left, right]).T
    np.testing.assert_allclose(plant.values(theta, z)[:, 0], (2 / 2048) ** 0.5 * joint, atol=1e-9)


@pytest.mark.parametrize("options", [{}, {"n_theta": 2, "n_z": 2, "length_scale": 5.0, "constraints": 2}])
def test_tables_pairs_and_single_points_agree(options: dict) -> None:
    plant = GPSample(seed=1, **options)
    rng = np.random.default_rng(0)
    theta, z = rng.random((7, plant.problem.n_theta)), rng.random((3, plant.problem.n_z))
    table = plant.values(theta, z[:, None])
    pairs = plant.values(np.broadcast_to(theta, (3, *theta.shape)), z[:, None])
    np.testing.assert_allclose(pairs, table, atol=1e-10)
    for t in range(3):
        np.testing.assert_allclose(plant.values(theta, z[t]), table[t], atol=1e-10)


@pytest.mark.parametrize("kernel", ["code", "paper", "matern52", "linear"])
def test_uniform_slater_holds(kernel: str) -> None:
    for seed in range(4):
        plant = GPSample(seed=seed, kernel=kernel)
        g = plant.values(plant.candidates(), np.linspace(0, 1, 50)[:, None, None])[..., 1]
        assert (g.min(axis=1) <= -0.2).all()
        assert plant.truth({"theta": 0.0}, {"z": 0.0}).constraints["g"] < -0.2


def test_context_levels_are_those_of_the_published_code() -> None:
    plant = GPSample(context_levels=50)
    seen = {plant.context(t)["z"] for t in range(1, 1001)}
    np.testing.assert_allclose(sorted(seen), np.linspace(-10, 10, 50), atol=1e-12)


def test_a_fine_grid_cannot_do_better_than_the_polished_oracle() -> None:
    plant = GPSample(seed=5)
    contexts = [plant.context(t) for t in range(1, 41)]
    oracle = plant.oracle(contexts)
    fine = plant.oracle(contexts, candidates=np.linspace(0, 1, 20001)[:, None], polish=False)
    np.testing.assert_allclose(oracle.per_step, fine.per_step, atol=2e-3)
    assert oracle.time_average == pytest.approx(fine.time_average, abs=1e-3)


@pytest.mark.parametrize(
    ("options", "message"),
    [({"kernel": "cubic"}, "kernel must be one of"), ({"n_theta": 0}, "n_theta must be at least 1"),
     ({"length_scale": -1.0}, "length_scale must be above 0"), ({"context_levels": 1}, "context_levels must be"),
     ({"variance": 1e-4}, "none of 2000 draws")],
)  # fmt: skip
def test_bad_options_are_refused(options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        GPSample(**options)


def test_draws_do_not_depend_on_the_signs_that_singular_vectors_come_with(monkeypatch: pytest.MonkeyPatch) -> None:
    points, z = np.random.default_rng(0).random((5, 2)), np.array([0.3])
    values = GPSample(seed=3, n_theta=2, length_scale=4.0).values(points, z)
    svd = np.linalg.svd

    def flipped(a: np.ndarray, full_matrices: bool = True) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        u, s, vt = svd(a, full_matrices=full_matrices)
        signs = np.where(np.arange(len(s)) % 3 == 0, -1.0, 1.0)
        return u * signs, s, vt * signs[:, None]

    monkeypatch.setattr(np.linalg, "svd", flipped)
    np.testing.assert_array_equal(GPSample(seed=3, n_theta=2, length_scale=4.0).values(points, z), values)
