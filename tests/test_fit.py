"""Learning hyper-parameters: gradients, two data sets that no single naive prior serves, scale-freeness, cost."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from pdcbo import PDCBO, PLANTS, Problem
from pdcbo import models as models_module
from pdcbo.fit import Priors, _Likelihood, fit, initial
from pdcbo.kernels import FAMILIES, Factor, Kernel
from pdcbo.model import kernel_for
from pdcbo.problem import Array


def plant_data(name: str, n: int, seed: int) -> tuple[Array, Array, Kernel]:
    """Points spread at random in parameters and context, and what a plant answers."""
    plant = PLANTS[name](seed=seed)
    problem, rng = plant.problem, np.random.default_rng([seed, 9])
    X, Y = rng.random((n, len(problem.variables))), []
    for x in X:
        context = {k: v.decode(u) for (k, v), u in zip(problem.context.items(), x[problem.n_theta :], strict=True)}
        outcome = plant.evaluate(problem.decode_parameters(x[: problem.n_theta]), context)
        Y.append([outcome.objective, *outcome.constraints.values()])
    return X, np.array(Y), kernel_for(problem, "squared-exponential", np.ones(X.shape[1]))


def learn(X: Array, y: Array, kernel: Kernel):
    priors = Priors()
    return fit(X, y, initial(kernel, priors, y, None), priors)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("noise_std", [None, 0.1])
def test_gradient_equals_finite_differences(family: str, noise_std: float | None) -> None:
    rng = np.random.default_rng(5)
    X, y = rng.random((25, 4)), rng.normal(size=25)
    X[:, 3] = np.round(X[:, 3] * 2) / 2
    kernel = Kernel((Factor(family, (0, 1), (1.0, 1.0)), Factor("matern-5/2", (2, 3), (1.0, 1.0), frozenset({3}))))
    objective = _Likelihood(X, y, kernel, Priors(), noise_std)
    p = np.log([0.4, 0.9, 0.6, 1.2, 0.05])
    _, gradient = objective(p)
    for j in range(len(p)):
        step = np.zeros(len(p))
        step[j] = 1e-5
        difference = (objective(p + step)[0] - objective(p - step)[0]) / 2e-5
        assert gradient[j] == pytest.approx(difference, rel=1e-5, abs=1e-6)


def test_value_is_the_log_posterior_of_the_docstring() -> None:
    """-log p = 1/2 log|C| + (n + 2a + 2)/2 log(2b + e'C^-1 e) + priors, up to a constant, by plain linear algebra."""
    rng = np.random.default_rng(6)
    X, y = rng.random((12, 2)), rng.normal(size=12)
    families = ("squared-exponential", "matern-5/2")
    kernel = Kernel(tuple(Factor(family, (j,), (1.0,)) for j, family in enumerate(families)))
    priors = Priors()
    objective = _Likelihood(X, y, kernel, priors, None)

    def plain(p: Array) -> float:
        scaled = kernel.with_length_scales(np.exp(p[:2]))
        H = X[:, 1:] - 0.5  # the context's column only
        C = scaled.matrix(X, X) + priors.trend**2 * H @ H.T + np.exp(p[2]) * np.eye(12)
        inverse = np.linalg.inv(C)
        mean = inverse.sum(axis=0) @ y / inverse.sum()
        e = y - mean
        shape, b = 12 + 2 * priors.scale_shape + 2, priors.scale_shape * np.var(y)
        z = (p[:2] - np.log(priors.length * np.sqrt(2))) / priors.length_spread
        w = (p[2] - np.log(priors.noise)) / priors.noise_spread
        value = 0.5 * np.linalg.slogdet(C)[1] + 0.5 * shape * np.log(2 * b + e @ inverse @ e)
        return float(value + 0.5 * (z @ z + w * w))

    p, q = np.log([0.3, 0.8, 0.1]), np.log([1.1, 0.2, 0.01])
    assert objective(p)[0] - objective(q)[0] == pytest.approx(plain(p) - plain(q), rel=1e-10)
    assert objective.value(p) == objective(p)[0]


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_thirty_points_of_the_reactor_in_six_dimensions_give_useful_length_scales(seed: int) -> None:
    """Maximum likelihood gave 0.05 here, which predicts nothing; the reactor varies over the whole range."""
    X, Y, kernel = plant_data("williams-otto", 30, seed)
    for i in range(Y.shape[1]):
        learned = learn(X, Y[:, i], kernel)
        lengths = learned.kernel.length_scales
        assert lengths[:2].min() > 0.2, (i, lengths)
        assert learned.noise_var < 0.3
    test, answers, _ = plant_data("williams-otto", 200, seed + 100)
    from pdcbo.gp import Posterior

    for i in range(Y.shape[1]):
        h = learn(X, Y[:, i], kernel)
        posterior = Posterior.build(h.kernel, h.noise_var, X, ((Y[:, i] - h.mean) / h.scale)[:, None])
        predicted = h.mean + h.scale * posterior.predict(test)[0][:, 0]
        explained = 1 - np.mean((predicted - answers[:, i]) ** 2) / np.var(answers[:, i])
        assert explained > 0.8, (i, explained)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_short_length_scales_are_recovered_where_they_are_true(seed: int) -> None:
    """The GP instances have length scale 1 on a range of 20, 0.05 of it, in both columns."""
    X, Y, kernel = plant_data("gp-sample", 200, seed)
    for i in range(Y.shape[1]):
        learned = learn(X, Y[:, i], kernel)
        np.testing.assert_allclose(learned.kernel.length_scales, 0.05, rtol=0.35)
        assert learned.scale == pytest.approx(np.sqrt(2.0), rel=0.5)


@pytest.mark.parametrize(("offset", "scale"), [(0.0, 1e6), (5e6, 1e6), (0.2, 1e-4), (0.0, 1e-200), (0.0, 1e90)])
def test_the_fit_does_not_depend_on_units(offset: float, scale: float) -> None:
    rng = np.random.default_rng(8)
    X = rng.random((40, 2))
    y = np.sin(4 * X[:, 0]) + X[:, 1] + 0.05 * rng.normal(size=40)
    kernel = Kernel((Factor("squared-exponential", (0, 1), (1.0, 1.0)),))
    plain, scaled = learn(X, y, kernel), learn(X, offset + scale * y, kernel)
    np.testing.assert_allclose(scaled.kernel.length_scales, plain.kernel.length_scales, rtol=1e-2)
    assert scaled.scale == pytest.approx(scale * plain.scale, rel=1e-2)
    assert scaled.noise_std == pytest.approx(scale * plain.noise_std, rel=5e-2)
    assert scaled.mean == pytest.approx(offset + scale * plain.mean, rel=1e-2, abs=1e-2 * scale)


@pytest.mark.parametrize("y", [[], [3.0], [3.0, 3.0], [0.0, 0.0, 0.0, 0.0], [1.0, 2.0], [5.0] * 20, [1e99, -1e99, 0.0]])
def test_poor_data_give_a_sane_model(y: list[float]) -> None:
    X = np.random.default_rng(0).random((len(y), 2))
    learned = learn(X, np.array(y), Kernel((Factor("squared-exponential", (0, 1), (1.0, 1.0)),)))
    assert np.isfinite(learned.mean)
    assert np.isfinite(learned.scale)
    assert learned.scale > 0
    assert np.isfinite(learned.kernel.length_scales).all()


def test_stated_noise_guides_the_fit() -> None:
    rng = np.random.default_rng(1)
    X = rng.random((15, 3))
    y = X[:, 0] + 0.3 * rng.normal(size=15)
    kernel = Kernel((Factor("squared-exponential", (0, 1, 2), (1.0, 1.0, 1.0)),))
    priors = Priors()
    stated = fit(X, y, initial(kernel, priors, y, None), priors, noise_std=0.3)
    assert stated.noise_std == pytest.approx(0.3, rel=0.6)


def test_refits_are_amortised(monkeypatch: pytest.MonkeyPatch) -> None:
    """An output is fitted again when its data have grown by a third: 3 + log(500 / 3) / log(4/3) = 21 times to 500."""
    sizes: list[int] = []
    real = models_module.fit

    def counting(X: Array, y: Array, *args: object, **kwargs: object):
        sizes.append(len(y))
        return real(X, y, *args, **kwargs)

    monkeypatch.setattr(models_module, "fit", counting)
    tuner = PDCBO(Problem({"a": (0.0, 1.0)}, {"z": (0.0, 1.0)}), horizon=500)
    rng = np.random.default_rng(0)
    for _ in range(500):
        a, z = rng.random(2)
        tuner.observe({"a": a}, {"z": z}, objective=float(np.sin(6 * a) * z + 0.1 * rng.normal()))
    assert sizes[0] == 1
    assert len(sizes) <= 24
    assert all(b >= a + max(1, a // 3) for a, b in itertools.pairwise(sizes))
    assert max(sizes) > 250


@pytest.mark.parametrize("value", [4.0, 4.98, 4.999, 5.0])
def test_one_value_next_to_its_limit_is_no_scale(value: float) -> None:
    kernel = Kernel((Factor("squared-exponential", (0,), (1.0,)),))
    assert initial(kernel, Priors(), np.array([value]), 5.0).scale > 0.5


def test_exact_repeats_do_not_flatten_the_function() -> None:
    X = np.array([[0.0], [0.3], [0.6], [1.0]])
    y = np.array([1.0, -1.0, 0.5, 2.0])
    kernel = Kernel((Factor("squared-exponential", (0,), (0.3,)),))
    repeated = np.append(np.arange(4), np.full(95, 2))
    few = learn(X, y, kernel)
    assert learn(X[repeated], y[repeated], kernel) == few
    noisy = y[repeated] + np.where(np.arange(99) % 2 == 0, 0.0, 0.1)
    assert learn(X[repeated], noisy, kernel) != few  # noise is not left out


def test_rounding_is_no_function() -> None:
    X = np.random.default_rng(0).random((20, 1))
    kernel = Kernel((Factor("squared-exponential", (0,), (0.3,)),))
    jitter = 1.0 + 1e-14 * np.random.default_rng(1).normal(size=20)
    assert learn(X, jitter, kernel).scale == pytest.approx(1.0)
