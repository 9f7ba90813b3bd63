"""The models of all outputs: plant units, missing values, sharing, corrections, state."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel

from pdcbo import PDCBO, Constraint, Integer, Model, Problem, Real
from pdcbo.gp import BLOCK, Posterior
from pdcbo.models import Models
from pdcbo.problem import Array
from pdcbo.structured import CandidatePosterior

PROBLEM = Problem(
    {"a": (10.0, 30.0), "b": Real(1.0, 100.0, log=True)}, {"z": (-5.0, 5.0)}, {"g": 4.0, "h": Constraint(lower=1.0)}
)
GIVEN = Model(length_scales={"a": 6.0, "b": 1.5, "z": 3.0}, variance=9.0, noise_var=0.04)


def data(n: int, seed: int = 0, missing: float = 0.0) -> tuple[Array, Array]:
    rng = np.random.default_rng(seed)
    X = rng.random((n, 3))
    Y = np.column_stack([50 + 5 * np.sin(3 * X[:, 0]), 4 + X[:, 1], 1e-4 * X[:, 2]]) + 1e-5 * rng.normal(size=(n, 3))
    Y[rng.random((n, 3)) < missing] = math.nan
    Y[np.isnan(Y).all(axis=1), 0] = 50.0
    return X, Y


def learned(X: Array, Y: Array, **kwargs: object) -> Models:
    models = Models(PROBLEM, **kwargs)
    for x, y in zip(X, Y, strict=True):
        models.add(x, y)
    return models


def test_given_hyper_parameters_are_in_plant_units() -> None:
    """Against scikit-learn on inputs in plant units (the log one in logarithms) and targets less the prior mean."""
    X, Y = data(40)
    models = learned(X, Y, models=GIVEN)
    A = np.random.default_rng(1).random((15, 3))
    mean, std = models.predict(A)

    def plant(P: Array) -> Array:
        return np.column_stack([10 + 20 * P[:, 0], np.log(100.0) * P[:, 1], -5 + 10 * P[:, 2]])

    kernel = ConstantKernel(9.0) * RBF([6.0, 1.5, 3.0])
    for i, prior in enumerate([0.0, 4.0, 1.0]):  # 0 for the objective, the limit for a constraint
        regressor = GaussianProcessRegressor(kernel, alpha=0.04, optimizer=None).fit(plant(X), Y[:, i] - prior)
        expected_mean, expected_std = regressor.predict(plant(A), return_std=True)
        np.testing.assert_allclose(mean[i], prior + expected_mean, atol=1e-8)
        np.testing.assert_allclose(std[i], expected_std, atol=1e-8)


@pytest.mark.parametrize("spec", [None, GIVEN])
@pytest.mark.parametrize("missing", [0.0, 0.4])
@pytest.mark.parametrize("asked", [False, True])
def test_state_gives_the_same_model_to_the_last_bit(spec: Model | None, missing: float, asked: bool) -> None:
    candidates = np.random.default_rng(2).random((60, 2))
    X, Y = data(90, missing=missing)
    if asked:
        X[:, :2] = candidates[np.arange(90) % 60]
    models = Models(PROBLEM, spec, candidates=candidates)
    z = np.array([0.3])
    for i, (x, y) in enumerate(zip(X, Y, strict=True)):
        if asked and i % 3:
            models.at(x[2:])
        models.add(x, y, asked=asked and i % 4 != 0)
        if i % 7 == 0:
            models.at(z)
    again = Models(PROBLEM, spec, candidates=candidates)
    again.restore(json.loads(json.dumps(models.state(), allow_nan=False)))
    for left, right in ((models.at(z), again.at(z)), (models.predict(X[:9]), again.predict(X[:9]))):
        assert (left[0] == right[0]).all()
        assert (left[1] == right[1]).all()
    models.add(X[0], Y[1])
    again.add(X[0], Y[1])
    assert (models.at(z)[0] == again.at(z)[0]).all()
    assert models.state() == again.state()


def test_what_was_asked_for_is_forgotten_where_all_is_built_from_data(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of factors are read off answers as points come in, and not for a whole history after it was learned from."""
    candidates = np.random.default_rng(2).random((60, 2))
    X, Y = data(60)
    X[:, :2] = candidates
    models = Models(PROBLEM, candidates=candidates)
    for x, y in zip(X, Y, strict=True):
        models.at(x[2:])
        due = list(models.next_fit)
        models.add(x, y, asked=True)
        if models.next_fit != due:  # it was learned
            assert models.asked == []
            with monkeypatch.context() as patched:
                patched.setattr(CandidatePosterior, "at", lambda *_: pytest.fail("asked again"))
                models.predict(X[:1])
        else:
            assert models.asked[-1] == models.n - 1
    assert models.asked
    models.replace(5, Y[6])
    assert models.asked == []


def test_an_output_learns_only_where_it_was_measured() -> None:
    X, Y = data(50, missing=0.3)
    joint = learned(X, Y, models=GIVEN)
    A = np.random.default_rng(3).random((10, 3))
    for i in range(3):
        rows = ~np.isnan(Y[:, i])
        alone = np.full_like(Y[rows], math.nan)
        alone[:, i] = Y[rows, i]
        single = learned(X[rows], alone, models=GIVEN)
        np.testing.assert_allclose(joint.predict(A)[0][i], single.predict(A)[0][i], rtol=1e-10)
        np.testing.assert_allclose(joint.predict(A)[1][i], single.predict(A)[1][i], rtol=1e-8)


def test_corrections_and_late_values_are_as_if_told_at_once() -> None:
    X, Y = data(30)
    wrong = Y.copy()
    wrong[4] += 3.0
    wrong[7, 1] = math.nan
    models = learned(X, wrong, models=GIVEN)
    models.predict(X[:1])
    models.replace(4, Y[4])
    models.replace(7, Y[7])
    expected = learned(X, Y, models=GIVEN)
    A = np.random.default_rng(4).random((10, 3))
    np.testing.assert_allclose(models.predict(A)[0], expected.predict(A)[0], rtol=1e-9)
    np.testing.assert_allclose(models.predict(A)[1], expected.predict(A)[1], rtol=1e-7)
    models.replace(7, np.array([Y[7, 0], math.nan, math.nan]))
    assert len(models.rows[1]) == len(models.rows[2]) == 29


def test_candidates_get_the_plain_posterior() -> None:
    X, Y = data(100)
    candidates = np.random.default_rng(5).random((40, 2))
    models = learned(X, Y, candidates=candidates)
    z = np.array([0.7])
    plain = models.predict(np.hstack([candidates, np.full((40, 1), 0.7)]))
    for got, expected in zip(models.at(z), plain, strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-6, atol=1e-9)


def test_scales_do_not_matter_to_what_is_learned() -> None:
    """A cost in millions and a constraint in 1e-4: predictions scale with them."""
    X, Y = data(60)
    factor = np.array([1e6, 1e-4, 1e3])
    plain, scaled = learned(X, Y), Models(PROBLEM.with_limits({"g": 4e-4, "h": 1e3}))
    for x, y in zip(X, Y * factor, strict=True):
        scaled.add(x, y)
    A = np.random.default_rng(6).random((20, 3))
    np.testing.assert_allclose(scaled.predict(A)[0] / factor[:, None], plain.predict(A)[0], rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"kernel": "rbf"}, ValueError, "kernel must be one of .*got 'rbf'"),
        ({"length_scales": 1.0}, ValueError, "given together"),
        ({"length_scales": -1.0, "variance": 1, "noise_var": 1}, ValueError, "length_scales must be above 0, got -1.0"),
        (
            {"length_scales": {"a": "x"}, "variance": 1, "noise_var": 1},
            TypeError,
            r"length_scales\['a'\] must be a number",
        ),
        ({"length_scales": 1, "variance": 0, "noise_var": 1}, ValueError, "variance must be above 0"),
        ({"length_scales": 1, "variance": 1, "noise_var": math.inf}, ValueError, "noise_var must be a finite number"),
        ({"mean": 1.0}, ValueError, "mean is given together"),
    ],
)
def test_malformed_models_are_refused(arguments: dict, error: type, words: str) -> None:
    with pytest.raises(error, match=words):
        Model(**arguments)


def test_models_must_fit_the_problem() -> None:
    with pytest.raises(ValueError, match="length_scales must name"):
        Models(PROBLEM, Model(length_scales={"a": 1.0}, variance=1, noise_var=1))
    with pytest.raises(ValueError, match=r"models\['k'\] is unknown; the outputs are"):
        Models(PROBLEM, {"k": Model()})
    with pytest.raises(TypeError, match=r"models\['g'\] must be a Model"):
        Models(PROBLEM, {"g": "linear"})


def test_a_surprise_makes_a_model_learn_again_at_once() -> None:
    problem = Problem({"theta": (0.0, 1.0)}, {}, {"g": 0.0})
    models = Models(problem, {"objective": Model(), "g": Model("squared-exponential", 0.3, 1.0, 1e-2)})
    rng = np.random.default_rng(0)
    for x in rng.random((40, 1)):
        models.add(x, np.array([np.sin(6.0 * x[0]) + 0.01 * rng.normal(), 0.0]))
    learned, due = models.hyper[0], models.next_fit[0]
    assert due > 41
    models.add(np.array([0.5]), np.array([np.sin(3.0), 0.0]))
    assert models.hyper[0] is learned
    models.add(np.array([0.5]), np.array([5.0, 50.0]))
    assert models.hyper[0] != learned
    assert models.next_fit[1] == -1, "given hyper-parameters stay"


def test_compressed_models_are_to_the_bit_what_their_state_makes() -> None:
    problem = Problem({"x": (0.0, 1.0)}, {}, {"g": 1.0})
    models = Models(problem)
    models.compress = True
    rng = np.random.default_rng(0)
    A, compressed = np.linspace(0.0, 1.0, 11)[:, None], 0
    for x in rng.random((60, 1)):
        models.add(x, np.array([x[0], math.exp(4.5 * x[0] - 1.0 + 0.3 * rng.normal())]))
        again = Models(problem)
        again.restore(json.loads(json.dumps(models.state())))
        np.testing.assert_array_equal(models.predict(A), again.predict(A))
        compressed += models.hyper[1].compression is not None
    assert compressed > 10


def test_a_corrected_value_leaves_no_trace() -> None:
    X, Y = data(24)
    models, wrong = learned(X, Y), Y.copy()
    wrong[21, 0] = 1e6
    corrected = learned(X, wrong)
    assert abs(corrected.predict(X)[0][0] - models.predict(X)[0][0]).max() > 10.0
    corrected.replace(21, Y[21])
    np.testing.assert_allclose(corrected.predict(X)[0][0], Y[:, 0], rtol=1e-3)
    due = list(corrected.next_fit)
    corrected.replace(3, Y[3])
    assert corrected.next_fit == due, "what stays as it was is not learned again"


def test_of_very_many_measurements_the_latest_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pdcbo.models.MOST_ROWS", 40)
    monkeypatch.setattr("pdcbo.models.KEPT_ROWS", 30)
    X, Y = data(130, missing=0.2)
    models = Models(PROBLEM)
    fits = []
    for i, (x, y) in enumerate(zip(X, Y, strict=True)):
        models.add(x, y)
        if i % 20 == 19:  # what was forgotten stays so
            again = Models(PROBLEM)
            again.restore(json.loads(json.dumps(models.state())))
            assert all(np.array_equal(a, b) for a, b in zip(models.predict(X[:9]), again.predict(X[:9]), strict=True))
        fits.append(models.hyper[0])
    assert models.n == 130
    assert max(map(len, models.rows)) <= 40
    for output, rows in enumerate(models.rows):
        measured = [i for i in range(130) if not math.isnan(Y[i, output])]
        assert rows == measured[-len(rows) :]
        assert models.posterior(output)[0].n == len(rows) >= 30
    assert fits[-1] != fits[60]  # and it goes on learning
    models.replace(0, np.full(models.q, math.nan))  # a correction of what was forgotten
    models.replace(1, Y[1] + 1.0)
    assert min(map(min, models.rows)) > 1
    assert np.isfinite(models.predict(X[:9])).all()


def test_a_table_of_means_is_what_is_predicted_point_by_point() -> None:
    """With learned trends; of compressed values it holds the means turned back."""
    problem = Problem({"x": (0.0, 1.0)}, {"z": (0.0, 1.0)}, {"g": 1.0, "h": 0.0})
    models = Models(problem)
    models.compress = True
    rng = np.random.default_rng(0)
    for x, z in rng.random((60, 2)).tolist():
        y = [math.sin(4 * x) + 3.0 * z, math.exp(4.5 * x - 1.0 + 0.3 * rng.normal()), 5.0 * x - 2.0 * z]
        models.add(np.array([x, z]), np.array(y) + np.array([0.01, 0.0, 0.01]) * rng.normal())
    compression = models.hyper[1].compression
    assert compression is not None
    assert any(models.hyper[2].slope)
    theta, Z = np.linspace(0.0, 1.0, 11)[:, None], np.array([[0.2], [0.7]])
    table = models.mean_table(theta, Z)
    posterior, column = models.posterior(1)
    for k, z in enumerate(Z):
        A = np.hstack([theta, np.full((11, 1), z[0])])
        np.testing.assert_allclose(table[[0, 2], k], models.predict(A)[0][[0, 2]], rtol=1e-9, atol=1e-9)
        v = models.hyper[1].prior_mean(A) + models.hyper[1].scale * posterior.predict(A)[0][:, column]
        np.testing.assert_allclose(table[1, k], compression.inverse(v), rtol=1e-9)
    assert table[1].max() > 1.5 * v.max()  # which lies beyond the knee


def test_a_stated_noise_guides_what_is_learned() -> None:
    """Eight values that differ by noise alone: stated, it is believed; else they may be a function."""

    def learned(noise: float | None) -> float:
        rng = np.random.default_rng(1)
        models = Models(Problem({"x": (0.0, 1.0)}, {}, {"g": Constraint(upper=1.0, noise=noise)}))
        for x in rng.random((8, 1)):
            models.add(x, np.array([x[0], 0.3 * rng.normal()]))
        return models.hyper[1].noise_std

    assert learned(0.3) > 0.1 > 10.0 * learned(None)
    assert learned(0.03) == pytest.approx(0.03, rel=0.5)


def test_length_scales_of_whole_numbers_are_in_plant_units() -> None:
    """Two pumps apart at length 2: the correlation is exp(-1/2)."""
    problem = Problem({"n": Integer(1, 9)})
    models = Models(problem, Model(length_scales=2.0, variance=1.0, noise_var=0.01))
    a, b = (problem.encode_parameters({"n": n})[None] for n in (3, 5))
    assert models.hyper[0].kernel.matrix(a, b)[0, 0] == pytest.approx(math.exp(-0.5))


def test_a_trend_is_followed_for_one_range_beyond_its_own_everywhere_alike() -> None:
    """A context in the wrong units, not measured, would else be thought to be hundreds of ranges better than any."""
    problem = Problem({"a": (0.0, 1.0)}, {"z": (50.0, 200.0)}, {"q": 1.0})
    models = Models(problem, candidates=np.array([[0.2], [0.7]]))
    rng = np.random.default_rng(0)
    for a, z in rng.random((30, 2)):
        models.add(np.array([a, z]), np.array([a, a - 0.6 * z]))
    h = models.hyper[1]
    assert h.slope[1] < -0.1
    for z, at in ((1.5, 1.5), (-0.7, -0.7), (2.0, 2.0), (800.0, 2.0), (-800.0, -1.0)):
        assert h.prior_mean(np.array([[0.2, z]]))[0] == pytest.approx(h.mean + h.slope[1] * (at - 0.5))
        assert h.standardise(np.array([0.2, z]), 0.3) == pytest.approx(
            (0.3 - h.mean - h.slope[1] * (at - 0.5)) / h.scale
        )
        context, points = np.array([z]), np.array([[0.2, z], [0.7, z]])
        expected = models.predict(points)[0]
        np.testing.assert_allclose(models.at(context)[0], expected, atol=1e-9)
        np.testing.assert_allclose(models.section(context).predict(points[:, :1])[0], expected, atol=1e-9)
        np.testing.assert_allclose(models.mean_table(points[:, :1], context[None])[:, 0], expected, atol=1e-9)


def test_an_output_that_was_never_measured_lies_at_the_limit_of_today_unless_its_model_was_given() -> None:
    problem = Problem({"a": (0.0, 1.0)}, {}, {"q": 10.0, "r": 10.0})
    given = Model(length_scales=0.3, variance=1.0, noise_var=0.01)  # whose norm bound is about the limit of then
    for spec, mean in ((None, 5.0), (given, 10.0)):
        models = Models(problem, spec)
        models.add(np.array([0.5]), np.array([1.0, math.nan, 7.0]))
        before = models.hyper[2]
        models.take_limits(problem.with_limits({"q": 5.0, "r": 5.0}))
        assert models.predict(np.array([[0.5]]))[0][1, 0] == pytest.approx(mean)
        assert models.hyper[2] == before


@pytest.mark.parametrize(("variance", "noise_var"), [(1e6, 1e-10), (1.0, 1e-20)])
@pytest.mark.parametrize("candidates", [None, 0])
def test_a_given_model_without_noise_stays_finite(variance: float, noise_var: float, candidates: int | None) -> None:
    """Less noise than rounding leaves would make rows of the factor grow by its inverse root, one after the other."""
    given = Model(length_scales=1.0, variance=variance, noise_var=noise_var)
    tuner = PDCBO(Problem({"x": (0.0, 1.0)}, {}, {"g": 0.5}), horizon=60, candidates=candidates, models=given)
    for _ in range(40):
        s = tuner.ask()
        x = float(s.parameters["x"])
        assert all(math.isfinite(bound) for both in s.bounds.values() for bound in both)
        tuner.tell(s, 1000.0 * (x - 0.3) ** 2, {"g": math.sin(x)})


def test_a_length_scale_has_a_square() -> None:
    with pytest.raises(ValueError, match="length_scales must lie between 1e-50 and 1e\\+50, got 1e-160"):
        Model(length_scales=1e-160, variance=1.0, noise_var=0.1)


@pytest.mark.parametrize("offset", [1e9, 1e10])
def test_small_changes_of_large_values_are_seen(offset: float) -> None:
    """Meter readings: x of 0 to 1 on top of 1e10, measured to 0.01."""
    rng, tuner = np.random.default_rng(0), PDCBO(Problem({"x": (0.0, 1.0)}, {}, {"g": offset + 0.4}), horizon=40)
    values = []
    for _ in range(40):
        s = tuner.ask()
        values.append(float(s.parameters["x"]))
        tuner.tell(s, 1.0 - values[-1], {"g": offset + values[-1] + 0.01 * rng.normal()})
    assert 0.3 < np.mean(values) <= 0.405


def test_an_interrupt_while_it_learns_leaves_no_wrong_posterior(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupting(*args: object) -> None:
        raise KeyboardInterrupt

    X, Y = data(BLOCK)
    models, whole = Models(PROBLEM, GIVEN), Models(PROBLEM, GIVEN)
    for x, y in zip(X[:-1], Y[:-1], strict=True):
        models.add(x, y)
        models.predict(X[:1])
    with monkeypatch.context() as patched:
        patched.setattr(Posterior, "_solve_targets", interrupting)  # with the last row of a block
        with pytest.raises(KeyboardInterrupt):
            models.add(X[-1], Y[-1])
    for x, y in zip(X, Y, strict=True):
        whole.add(x, y)
    for one, other in zip(models.predict(X[:5]), whole.predict(X[:5]), strict=True):
        assert np.array_equal(one, other)


def test_an_interrupt_while_posteriors_are_built_leaves_none_half_done(monkeypatch: pytest.MonkeyPatch) -> None:
    given = {name: Model(length_scales=i + 1.0, variance=2.0, noise_var=0.1) for i, name in enumerate(PROBLEM.outputs)}
    X, Y = data(20)
    models, whole = Models(PROBLEM, given), Models(PROBLEM, given)
    for each in (models, whole):
        for x, y in zip(X, Y, strict=True):
            each.add(x, y)
    built, original = [], CandidatePosterior.build

    def second_fails(*args: object) -> CandidatePosterior:
        built.append(1)
        if len(built) == 2:
            raise KeyboardInterrupt
        return original(*args)

    with monkeypatch.context() as patched:
        patched.setattr(CandidatePosterior, "build", second_fails)
        with pytest.raises(KeyboardInterrupt):
            models.predict(X[:1])
    for one, other in zip(models.predict(X[:5]), whole.predict(X[:5]), strict=True):
        assert np.array_equal(one, other)
