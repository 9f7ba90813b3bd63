"""Compressed bad values: the map and its inverse, moments against simulation, when it is used, and that it helps."""

from __future__ import annotations

import json

import numpy as np
import pytest

from pdcbo import OPTIMIZERS, PDCBO, Constraint, Problem, run
from pdcbo.compression import LEAST_VALUES, Compression
from pdcbo.fit import Hyperparameters, Priors, fit, initial
from pdcbo.kernels import Factor, Kernel
from pdcbo.plants.machine import MachineFatigue
from pdcbo.problem import Array

KERNEL = Kernel((Factor("squared-exponential", (0,), (0.3,)),))


@pytest.mark.parametrize("bad", [1.0, -1.0])
def test_the_inverse_undoes_it_and_its_slope_is_the_slope(bad: float) -> None:
    map_ = Compression(2.0 * bad, 1.5, bad, 20.0 * bad)
    y = bad * np.linspace(-3.0, 60.0, 400)
    v = map_(y)
    np.testing.assert_allclose(map_.inverse(v), y, rtol=1e-12, atol=1e-12)
    assert (np.diff(bad * v) > 0.0).all()
    assert (v[bad * y <= 2.0] == y[bad * y <= 2.0]).all()
    np.testing.assert_allclose(
        np.log((map_(y + 1e-6) - map_(y - 1e-6)) / 2e-6), map_.log_slope(y), rtol=1e-5, atol=1e-5
    )


@pytest.mark.parametrize("bad", [1.0, -1.0])
@pytest.mark.parametrize(("m", "s"), [(0.0, 1.0), (2.0, 1.0), (3.0, 0.5), (4.0, 1.5), (-5.0, 0.1)])
def test_moments_are_those_of_a_simulation_and_their_derivatives_right(bad: float, m: float, s: float) -> None:
    map_ = Compression(2.0 * bad, 1.5, bad, 30.0 * bad)
    v = bad * m + s * np.random.default_rng(0).normal(size=400_000)
    y = np.where(bad * (v - map_.knee) > 0.0, map_.knee + bad * 1.5 * np.expm1(bad * (v - map_.knee) / 1.5), v)
    mean, std = np.array([bad * m]), np.array([s])
    moments = map_.moments(mean, std)
    assert abs(moments.mean[0] - y.mean()) < 5.0 * y.std() / len(y) ** 0.5
    # one std on the good side of the mean, what is beyond the knee counts as steep as it is there
    steep = np.exp(max(m - s - 2.0, 0.0) / 1.5)
    assert moments.std[0] == pytest.approx(s * steep, rel=1e-12)
    more, wider = map_.moments(mean + 1e-6, std), map_.moments(mean, std + 1e-6)
    for changed, by_mean, by_std in (("mean", "mean_by_mean", "mean_by_std"), ("std", "std_by_mean", "std_by_std")):
        before = getattr(moments, changed)
        assert (getattr(more, changed) - before)[0] / 1e-6 == pytest.approx(getattr(moments, by_mean)[0], abs=1e-4)
        assert (getattr(wider, changed) - before)[0] / 1e-6 == pytest.approx(getattr(moments, by_std)[0], abs=1e-4)


@pytest.mark.parametrize("bad", [1.0, -1.0])
def test_the_bad_side_is_found_again_from_the_moments(bad: float) -> None:
    map_ = Compression(2.0 * bad, 1.5, bad, 30.0 * bad)
    v, s = bad * np.array([0.0, 1.0, 2.0, 4.0, 8.0]), np.full(5, 0.1)
    mean, std = map_.moments(v, s)[:2]
    np.testing.assert_allclose(map_.worse(mean, std, 3.0), map_.inverse(v + bad * 3.0 * s), rtol=0.01)
    np.testing.assert_allclose(map_.worse(mean, 0.0 * std, 3.0), mean, rtol=1e-12)


def test_what_was_never_seen_is_not_believed_in() -> None:
    map_ = Compression(0.0, 1.0, 1.0, 5.0)
    moments = map_.moments(np.array([50.0, 4.0]), np.array([1.0, 400.0]))
    assert np.isfinite(moments).all()
    assert map_.inverse(np.array([50.0]))[0] < 1e3


def test_it_is_looked_for_only_where_values_lie_far_out() -> None:
    usual = np.linspace(-1.0, 1.0, 50)
    assert Compression.of(usual, 0.0, 1.0) is None
    far = np.append(usual, 40.0)
    assert Compression.of(far, 0.0, 1.0) is not None
    assert Compression.of(-far, 0.0, 1.0) is None, "far out on the good side"
    assert Compression.of(-far, 0.0, -1.0) is not None
    assert Compression.of(far, None, 1.0) is not None, "the objective has no limit to measure from"
    assert Compression.of(far[-LEAST_VALUES + 1 :], 0.0, 1.0) is None, "too few values"
    assert Compression.of(np.append(np.zeros(50), 40.0), 0.0, 1.0) is None, "no usual distance"


def fitted(y: Array, X: Array, bad: float = 1.0) -> Hyperparameters:
    return fit(X, y, initial(KERNEL, Priors(), y, 0.0), Priors(), reference=0.0, bad=bad)


def test_it_is_used_where_the_data_are_then_more_likely_and_never_else() -> None:
    rng = np.random.default_rng(3)
    X = rng.random((60, 1))
    smooth = np.sin(5.0 * X[:, 0])
    cliff = np.expm1(8.0 * X[:, 0]) - 5.0
    noise = 0.05 * rng.normal(size=60)
    assert fitted(cliff + noise, X).compression is not None
    assert fitted(cliff + noise, X, bad=0.0).compression is None
    assert fitted(smooth + noise, X).compression is None


def test_draws_from_the_model_itself_are_hardly_ever_compressed() -> None:
    rng = np.random.default_rng(4)
    compressed = 0
    for _ in range(100):
        X = rng.random((40, 1))
        L = np.linalg.cholesky(KERNEL.matrix(X, X) + 1e-3 * np.eye(40))
        compressed += fitted(L @ rng.normal(size=40), X).compression is not None
    assert compressed <= 2


def test_it_survives_the_state_and_leaves_the_certificate_of_the_observations() -> None:
    plant = MachineFatigue(seed=1)
    tuner = PDCBO(plant.problem, horizon=80, seed=1)
    for _ in run(plant, tuner, 60):
        pass
    assert tuner.models.hyper[1].compression is not None
    certificate = tuner.certificate()["damage"]
    assert certificate.observation is not None
    assert certificate.posterior is None, "a compressed model has no bound on a sum"
    copy = PDCBO.restore(json.loads(json.dumps(tuner.state())))
    context = {"hardness": 1.0, "order_value": 1.0}
    assert copy.ask(context) == tuner.ask(context)


def test_a_constraint_with_two_limits_is_not_compressed() -> None:
    problem = Problem({"theta": (0.0, 1.0)}, {}, {"g": Constraint(upper=1.0, lower=-1.0), "h": 0.0})
    assert PDCBO(problem, horizon=5).models.bad == [1.0, 0.0, 1.0]


@pytest.mark.parametrize("bad", [1.0, -1.0])
def test_fill_values_of_loggers_stay_the_worst_of_all(bad: float) -> None:
    y = bad * np.array([0.2, 0.5, 0.9, 1.3, 1.7, 2.0, 50.0])
    compression = Compression.of(y, bad * 1.0, bad)
    assert compression is not None
    far = bad * np.array([1e3, 1e6, 1e10, 1e15, 1e17, 1e20, 9.97e36])
    v = bad * compression(far)
    assert (np.diff(v) > 0.0).all()
    exact = bad * compression.knee + compression.width * np.log1p(np.abs(far - compression.knee) / compression.width)
    np.testing.assert_allclose(v, exact, rtol=1e-9)


@pytest.mark.parametrize("name", ["cei", "safeopt", "cgp-ucb", "pdcbo"])
def test_every_optimizer_with_a_model_can_do_with_and_without(name: str) -> None:
    problem = MachineFatigue(seed=1).problem

    def compresses(**options: bool | None) -> bool:
        tuner, plant = OPTIMIZERS[name](problem, horizon=100, **options), MachineFatigue(seed=1)
        rng = np.random.default_rng(2)
        for t in range(1, 41):
            parameters, context = problem.decode_parameters(rng.random(problem.n_theta)), plant.context(t)
            cost, constraints = plant.evaluate(parameters, context)
            tuner.observe(parameters, context, objective=cost, constraints=constraints)
        again = type(tuner).restore(json.loads(json.dumps(tuner.state())))
        assert again.models.compress == tuner.models.compress
        return any(h.compression is not None for h in tuner.models.hyper)

    assert compresses(compress=True)
    assert not compresses(compress=False)
    assert compresses() == (name == "pdcbo")
    with pytest.raises(TypeError, match="compress must be True, False or None, got 1"):
        OPTIMIZERS[name](problem, compress=1)
