"""The posterior at one context as a function of theta: against the plain posterior and finite differences."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from pdcbo import Choice, Integer, Model, Problem, Real
from pdcbo.compression import Compression
from pdcbo.kernels import FAMILIES
from pdcbo.models import Models
from pdcbo.problem import Array

PROBLEM = Problem(
    {"a": (0.0, 1.0), "n": Integer(0, 6), "m": Choice(["x", "y", "z"]), "k": Real(1e-3, 1.0, log=True)},
    {"z": (0.0, 1.0), "mode": Choice([True, False])},
    {"g": 0.0},
)
Z = np.array([0.3, 1.0])


def learned(family: str, observations: int = 40) -> tuple[Models, Array]:
    """Models of two outputs with hyper-parameters of their own and slopes, one compressed, and points to ask at."""
    rng = np.random.default_rng(len(family))
    scales = {"a": 0.4, "n": 3.0, "m": 0.8, "k": 4.0, "z": 0.5, "mode": 1.2}
    specs = {"objective": Model(family, scales, 2.0, 1e-3), "g": Model(family, 1.5, 1.0, 1e-2)}
    models = Models(PROBLEM, specs)
    models.hyper = [replace(h, scale=3.0, mean=5.0, slope=(0.0, 0.0, 0.0, 0.2, 1.5, 0.0)) for h in models.hyper]
    models.hyper[1] = replace(models.hyper[1], compression=Compression(0.3, 0.5, -1.0, -8.0))
    for x in rng.random((observations, 6)):
        x[:4], x[5] = PROBLEM.snap(x[:4]), round(x[5])
        models.add(x, rng.normal(size=2))
    return models, PROBLEM.snap(rng.random((15, 4)))


def plain(models: Models, theta: Array) -> tuple[Array, Array]:
    return models.predict(np.hstack([theta, np.broadcast_to(Z, (len(theta), 2))]))


@pytest.mark.parametrize("family", FAMILIES)
def test_it_is_the_plain_posterior(family: str) -> None:
    models, theta = learned(family)
    section = models.section(Z)
    for got, expected in zip(section.predict(theta), plain(models, theta), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-9, atol=1e-9)
    mean, std, _, _ = section.predict_gradient(theta)
    for got, expected in zip((mean, std), plain(models, theta), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("family", FAMILIES)
def test_gradients_equal_finite_differences(family: str) -> None:
    models, theta = learned(family)
    theta[:, [0, 1, 3]] = np.random.default_rng(1).uniform(0.05, 0.95, (len(theta), 3))
    _, _, d_mean, d_std = models.section(Z).predict_gradient(theta)
    for j in (0, 1, 3):
        step = np.zeros(4)
        step[j] = 1e-6
        above, below = plain(models, theta + step), plain(models, theta - step)
        np.testing.assert_allclose(d_mean[..., j], (above[0] - below[0]) / 2e-6, rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(d_std[..., j], (above[1] - below[1]) / 2e-6, rtol=1e-4, atol=1e-4)
    assert (d_mean[..., 2] == 0.0).all()
    assert (d_std[..., 2] == 0.0).all()


def test_outputs_that_share_a_posterior_and_no_context() -> None:
    problem = Problem({"a": (0.0, 1.0), "b": (0.0, 1.0)}, {}, {"g": 0.0})
    models = Models(problem, Model(length_scales=0.3, variance=1.0, noise_var=1e-2))
    rng = np.random.default_rng(3)
    theta = rng.random((10, 2))
    for got, expected in zip(models.section(np.empty(0)).predict(theta), models.predict(theta), strict=True):
        np.testing.assert_allclose(got, expected)  # before the first observation
    assert not np.any(models.section(np.empty(0)).predict_gradient(theta)[2:])
    for x in rng.random((20, 2)):
        models.add(x, rng.normal(size=2))
    for got, expected in zip(models.section(np.empty(0)).predict(theta), models.predict(theta), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("family", FAMILIES)
def test_gradients_are_finite_where_it_is_hard(family: str) -> None:
    """Noise 1e-6, every point many times, points a hair apart, and asked for at the points themselves."""
    problem = Problem({"a": (0.0, 1.0), "b": (0.0, 1.0)}, {"c": (0.0, 1.0)}, {"g": 0.0})
    models = Models(problem, Model(family, length_scales={"a": 1e-2, "b": 1e2, "c": 0.3}, variance=1.0, noise_var=1e-6))
    base = np.random.default_rng(7).random((8, 3))
    for x in np.vstack([np.repeat(base, 10, axis=0), base + 1e-9, base + 1e-13]):
        models.add(x, np.sin(5.0 * x[:2]))
    for part in models.section(base[0, 2:]).predict_gradient(base[:, :2]):
        assert np.isfinite(part).all()
