"""Certificates: arithmetic by hand, and coverage at all times at once with late and missing readings.

Each coverage test counts the runs in which a bound was wrong at any step, the adversary's stopping time being the
first such step. It fails if the count exceeds the 0.999 quantile of what the stated delta allows: a false alarm in at
most one of a thousand sets of seeds, and the seeds are fixed.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy.stats import binom, norm

from pdcbo import PDCBO, Constraint, Fixed, Model, Problem
from pdcbo.certificates import Bound, Certificate, mean_norm, neighbour_noise, noise_boundary, summed_posterior
from pdcbo.confidence import beta_sqrt
from pdcbo.gp import Posterior
from pdcbo.kernels import Factor, Kernel
from pdcbo.model import kernel_for


def allowed(runs: int, delta: float) -> int:
    return int(binom.ppf(1 - 1e-3, runs, delta))


@pytest.mark.parametrize("alpha", [0.3, 0.05, 0.001])
@pytest.mark.parametrize("planned", [1, 100, 10_000])
def test_boundary_solves_its_equation(alpha: float, planned: int) -> None:
    """2 sqrt(rho / (V + rho)) exp(s^2 / 2) Phi(s) = 1 / alpha with V = m sigma^2 and s = bound / sqrt(V + rho)."""
    sigma = 0.7
    rho = sigma**2 * planned / max(2 * math.log(1 / alpha), 1.0)
    for m in (1, 10, 1000, 10**6):
        V = m * sigma**2
        s = float(noise_boundary(m, sigma, alpha, planned)) / math.sqrt(V + rho)
        left = math.log(2) + 0.5 * math.log(rho / (V + rho)) + s * s / 2 + norm.logcdf(s)
        assert left == pytest.approx(math.log(1 / alpha), abs=1e-8)


@pytest.mark.parametrize("kind", ["gauss", "sign"])
def test_boundary_holds_at_all_times_at_once(kind: str) -> None:
    rng = np.random.default_rng(0)
    runs, steps, alpha = 4000, 1000, 0.1
    noise = rng.normal(size=(runs, steps)) if kind == "gauss" else rng.choice([-1.0, 1.0], size=(runs, steps))
    bound = noise_boundary(np.arange(1.0, steps + 1), 1.0, alpha, 300.0)
    crossed = int((np.cumsum(noise, axis=1) > bound).any(axis=1).sum())
    assert crossed <= allowed(runs, alpha)
    assert crossed >= 0.4 * alpha * runs  # it is not loose either
    # A bound for one fixed time would be crossed far more often than alpha by who may choose when to look.
    fixed = np.sqrt(np.arange(1.0, steps + 1)) * norm.ppf(1 - alpha)
    assert (np.cumsum(noise, axis=1) > fixed).any(axis=1).mean() > 3 * alpha


def test_boundary_is_near_the_fixed_time_bound() -> None:
    """At the planned count, within a factor of 1.7 of the best bound for that time alone; and its average vanishes."""
    best = norm.ppf(0.95) * math.sqrt(300)
    assert best < noise_boundary(300, 1.0, 0.05, 300.0) < 1.7 * best
    assert noise_boundary(10**8, 1.0, 0.05, 300.0) / 10**8 < 1e-3


WORST = Problem(
    {"a": (0.0, 1.0)},
    {},
    {"u": Constraint(upper=1.0, noise=0.1, worst=3.0), "l": Constraint(lower=5.0, noise=0.2, worst=-1.0)},
)


def test_stated_worst_values_by_hand() -> None:
    tuner = Fixed(WORST, horizon=50, delta=0.1)
    u, low = [0.5, None, 0.75, 0.25], [6.0, 7.0, None, None]
    for a, b in zip(u, low, strict=True):
        tuner.tell(tuner.ask(), None, {"u": a, "l": b})
    tuner.fail(tuner.ask(), "sensor dead")
    tuner.fail(tuner.ask(), "never ran", applied=False)
    tuner.ask()  # pending: nobody knows whether it ran
    certificate = tuner.certificate()
    # delta = 0.1 is shared by two limits. u: three readings of five steps, two at the worst value 3.
    noise = float(noise_boundary(3, 0.1, 0.05, 50.0))
    bound = certificate["u"].observation
    assert bound is not None
    assert bound.value == pytest.approx((0.5 + 0.75 + 0.25 + 2 * 3.0 + noise) / 5, rel=1e-12)
    assert bound.guaranteed
    assert "2 steps without measurement at the stated worst value 3" in bound.assumption
    assert certificate["u"].average == pytest.approx(0.5)
    assert (certificate["u"].steps, certificate["u"].measured, certificate["u"].limit) == (5, 3, 1.0)
    assert not certificate["u"].holds
    # l: two readings of five steps, three at the worst value -1; a lower bound on the average.
    noise = float(noise_boundary(2, 0.2, 0.05, 50.0))
    bound = certificate["l"].observation
    assert bound is not None
    assert bound.value == pytest.approx((6.0 + 7.0 - 3 * 1.0 - noise) / 5, rel=1e-12)


def test_limits_changed_in_mid_course_by_hand() -> None:
    """Two steps under 1, then two under 0.5, asked before the change or after; unmeasured ones likewise."""
    tuner = Fixed(WORST, horizon=50, delta=0.1)
    first, second = tuner.ask(), tuner.ask()
    tuner.set_limits({"u": 0.5})
    third, fourth = tuner.ask(), tuner.ask()
    tuner.tell(fourth, None, {"u": 0.4, "l": 6.0})
    tuner.tell(first, None, {"u": 0.9, "l": 6.0})
    tuner.fail(second, "no reading")
    tuner.fail(third, "no reading")
    certificate = tuner.certificate()["u"]
    assert certificate.limit == pytest.approx((1.0 + 1.0 + 0.5 + 0.5) / 4)
    noise = float(noise_boundary(2, 0.1, 0.05, 50.0))
    assert certificate.observation is not None
    assert certificate.observation.value == pytest.approx((0.4 + 0.9 + 2 * 3.0 + noise) / 4, rel=1e-12)
    with pytest.raises(ValueError, match=r"limits\['u'\]: worst must lie on the far side of the limit 4.0"):
        tuner.set_limits({"u": 4.0})


def test_without_a_stated_noise_the_certificate_says_so() -> None:
    tuner = PDCBO(Problem({"a": (0.0, 1.0)}, {}, {"g": 0.5}), candidates=5)
    rng = np.random.default_rng(0)
    for _ in range(12):
        s = tuner.ask()
        tuner.tell(s, s.parameters["a"], {"g": 0.2 + 0.1 * rng.normal()})
    certificate = tuner.certificate()["g"]
    assert certificate.observation is not None
    assert not certificate.observation.guaranteed
    assert "estimated" in certificate.observation.assumption
    assert certificate.posterior is not None
    assert not certificate.posterior.guaranteed
    assert Fixed(Problem({"a": (0.0, 1.0)}, {}, {"g": 0.5})).certificate()["g"].observation is None


def test_coverage_where_the_noise_is_not_stated_and_most_of_what_is_seen() -> None:
    """A quantity that hardly moves under noise as large: models first take it for a wild function without noise."""
    runs, delta, wrong = 24, 0.1, {"observation": 0, "posterior": 0}
    for run in range(runs):
        rng = np.random.default_rng([7, run])
        tuner = PDCBO(Problem({"a": (0.0, 1.0)}, {"z": (0.0, 1.0)}, {"g": 0.12}), horizon=40, delta=delta, seed=run)
        truth, failed = [], set()
        for t in range(40):
            s = tuner.ask({"z": rng.random()})
            a, z = float(s.parameters["a"]), float(s.context["z"])
            truth.append(0.13 + 0.01 * (a - 0.5) + 0.01 * math.sin(3.0 * z))
            tuner.tell(s, (a - z) ** 2 + 0.1 * rng.normal(), {"g": truth[-1] + 0.01 * rng.normal()})
            if t in (0, 8, 9, 11, 14, 19, 29, 39):
                c = tuner.certificate()["g"]
                assert (c.observation is None) == (t < 9)  # no estimate of the noise from so few
                bounds = {"observation": c.observation, "posterior": c.posterior}
                failed |= {kind for kind, b in bounds.items() if b is not None and np.mean(truth) > b.value}
        for kind in failed:
            wrong[kind] += 1
    assert max(wrong.values()) <= allowed(runs, delta), wrong


def test_certificates_of_nothing() -> None:
    assert Fixed(Problem({"a": (0, 1)})).certificate() == {}
    empty = Fixed(WORST).certificate()["u"]
    assert (empty.average, empty.observation, empty.posterior, empty.steps) == (None, None, None, 0)
    assert not empty.holds
    with pytest.raises(ValueError, match=r"delta must lie between 0 and 1, got 1\.5"):
        Fixed(WORST).certificate(delta=1.5)


def test_observation_coverage_late_missing_joint() -> None:
    """Three limits, delta = 0.2 joint; readings come late and out of order, a third never; truth wanders.

    Noise is Gaussian with the stated deviation and what is late or missing does not depend on it. The truth follows the
    last readings, which an adversary may do: it rises after a run of luck.
    """
    problem = Problem(
        {"a": (0.0, 1.0)},
        {},
        {"u": Constraint(upper=1.0, noise=0.5, worst=2.0), "b": Constraint(lower=-1.0, upper=1.0, noise=0.3)},
    )
    runs, delta, wrong = 250, 0.2, 0
    for run in range(runs):
        rng = np.random.default_rng([1, run])
        tuner = Fixed(problem, horizon=40, delta=delta)
        waiting: list[tuple[int, float, float]] = []
        truths: list[tuple[float, float]] = []
        luck, bad = 0.0, False
        for _ in range(40):
            u, b = float(np.clip(1.0 - luck, -2.0, 2.0)), float(rng.uniform(-1, 1))
            waiting.append((tuner.ask().id, u, b))
            while waiting and rng.random() < 0.5:
                i, u, b = waiting.pop(int(rng.integers(len(waiting))))
                seen = u + 0.5 * rng.normal()
                luck = 0.5 * luck + (seen - u)
                missing = rng.random() < 1 / 3
                tuner.tell(i, None, {"u": None if missing else seen, "b": b + 0.3 * rng.normal()})
                truths.append((u, b))
                certificate = tuner.certificate()
                mean_u, mean_b = np.mean(truths, axis=0)
                values = {k: c.observation.value for k, c in certificate.items() if c.observation is not None}
                assert len(values) == 3
                bad |= values["u"] < mean_u or values["b.upper"] < mean_b or values["b.lower"] > mean_b
        wrong += bad
    assert wrong <= allowed(runs, delta)
    assert wrong > 0  # three bounds that share delta are not all idle


def _rkhs_run(seed: int, steps: int, delta: float) -> tuple[int, int]:
    """Count the steps at which each kind of bound was wrong, for a g of known norm with missing readings."""
    rng = np.random.default_rng([2, seed])
    spec = Model(length_scales=0.3, variance=1.0, noise_var=0.04)
    problem = Problem({"a": (0.0, 1.0)}, {"z": (0.0, 1.0)}, {"g": Constraint(upper=0.0, noise=0.2)})
    tuner = PDCBO(problem, setting="paper", models=spec, candidates=15, norm_bounds=2.0, delta=delta, horizon=steps)
    kernel = kernel_for(problem, "squared-exponential", np.array([0.3, 0.3]))
    centres, weights = rng.random((6, 2)), rng.normal(size=6)
    weights *= 2.0 / np.sqrt(weights @ kernel.matrix(centres, centres) @ weights)
    truths: list[float] = []
    wrong = [0, 0]
    for t in range(steps):
        s = tuner.ask({"z": rng.random()})
        x = np.array([[s.parameters["a"], s.context["z"]]])
        g = float(kernel.matrix(x, centres)[0] @ weights)
        truths.append(g)
        seen = None if t > 2 and rng.random() < 0.3 else g + 0.2 * rng.choice([-1.0, 1.0])
        tuner.tell(s, x[0, 0], {"g": seen})
        certificate = tuner.certificate()["g"]
        for k, bound in enumerate((certificate.observation, certificate.posterior)):
            if bound is not None:
                assert bound.guaranteed
                wrong[k] += bound.value < np.mean(truths)
    return wrong[0], wrong[1]


def test_posterior_coverage_with_missing_readings() -> None:
    """Both kinds for a function of the stated norm; where readings miss, the first leans on the posterior."""
    runs, delta = 40, 0.2
    results = [_rkhs_run(seed, 25, delta) for seed in range(runs)]
    assert sum(o > 0 for o, _ in results) <= allowed(runs, delta)
    assert sum(p > 0 for _, p in results) <= allowed(runs, delta)


def test_summed_posterior_equals_the_dense_formula() -> None:
    rng = np.random.default_rng(3)
    X, y, P = rng.random((40, 2)), rng.normal(size=(40, 1)), rng.random((700, 2))
    kernel = Kernel((Factor("matern-5/2", (0, 1), (0.4, 0.4)),), 1.3)
    posterior = Posterior.build(kernel, 0.1, X, y)
    mean, std = summed_posterior(posterior, 0, P)
    inverse = np.linalg.inv(kernel.matrix(X, X) + 0.1 * np.eye(40))
    k = kernel.matrix(P, X)
    h = np.ones(700)
    assert mean == pytest.approx(float(h @ k @ inverse @ y[:, 0]), rel=1e-9)
    assert std == pytest.approx(np.sqrt(h @ (kernel.matrix(P, P) - k @ inverse @ k.T) @ h), rel=1e-8)
    alpha = inverse @ y[:, 0]
    assert mean_norm(posterior, 0) == pytest.approx(np.sqrt(alpha @ kernel.matrix(X, X) @ alpha), rel=1e-9)
    # far below adding up the widths of single points
    assert std < 0.5 * posterior.predict(P)[1].sum()


def test_the_normal_distribution_function_is_scipys():
    from scipy.special import ndtr

    from pdcbo.normal import cdf

    x = np.linspace(-30.0, 10.0, 400).reshape(20, 20)
    np.testing.assert_allclose(cdf(x), ndtr(x), rtol=1e-12)
    assert float(cdf(np.float64(0.0))) == 0.5


def test_a_step_without_measurement_does_not_drown_the_others() -> None:
    """Few rows are learned almost without noise, while the certificate takes for noise all that makes them differ."""
    tuner = PDCBO(Problem({"x": (0.0, 1.0)}, {"z": (0.0, 1.0)}, {"g": 40.0}), horizon=50)
    rng = np.random.default_rng(0)
    for t in range(24):
        x, z = rng.random(2).tolist()
        g = 10.0 + 4.0 * math.sin(9.0 * x) + 3.0 * math.sin(40.0 * z)
        tuner.tell(tuner.ask({"z": z}), 1.0, {"g": None if t == 12 else g}, applied={"x": x})
    certificate = tuner.certificate()["g"]
    assert certificate.average is not None
    for bound in (certificate.observation, certificate.posterior):
        assert bound is not None
        assert certificate.average < bound.value < 22.0


def test_a_restated_noise_does_not_make_old_steps_surer() -> None:
    problem = Problem({"a": (0.0, 1.0)}, {}, {"g": Constraint(upper=1.0, noise=5.0, worst=9.0)})
    tuner = Fixed(problem, parameters={"a": 0.5})
    for _ in range(20):
        tuner.tell(tuner.ask(), 1.0, {"g": 1.0})
    tuner.fail(tuner.ask())
    before = tuner.certificate()["g"].observation
    tuner.set_limits({"g": Constraint(upper=1.0, noise=0.01, worst=2.0)})
    copy = Fixed.restore(tuner.state())
    assert before == tuner.certificate()["g"].observation == copy.certificate()["g"].observation
    fresh = Fixed(tuner.problem, parameters={"a": 0.5})
    fresh.set_limits({"g": Constraint(upper=1.0, noise=5.0)})  # nothing was asked for under the other one
    assert fresh.ledger.superseded == []


def test_noise_of_compressed_values_is_in_plant_units() -> None:
    """Values of up to 800 beside a limit of 3: learned from compressed ones, the noise of 1 would look smaller."""
    tuner = PDCBO(Problem({"a": (0.0, 1.0), "b": (0.0, 1.0)}, {}, {"g": 3.0}))
    rng = np.random.default_rng(1)
    for a, b in rng.random((160, 2)).tolist():
        g = 1.0 + 2.0 * math.exp(6.0 * (a * b) ** 2) + rng.normal()
        tuner.observe({"a": a, "b": b}, objective=a + 0.01 * rng.normal(), constraints={"g": g})
    assert tuner.models.hyper[1].compression is not None
    noise, stated = tuner.noise_std(1)
    assert not stated
    assert noise is not None
    assert noise >= 0.95


def test_neighbour_noise() -> None:
    rng = np.random.default_rng(1)
    X = rng.random((300, 1))
    assert neighbour_noise(X, np.sin(X[:, 0]) + 0.5 * rng.normal(size=300)) == pytest.approx(0.5, rel=0.15)
    assert neighbour_noise(X[:1], X[:1, 0]) == 0.0


def test_the_deviation_of_a_long_sum_is_bounded_by_its_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    kernel = Kernel((Factor("squared-exponential", (0,), (0.2,)),), 1.5)
    posterior = Posterior.build(kernel, 0.1, rng.random((20, 1)), rng.normal(size=(20, 1)))
    points = rng.random((70, 1))
    mean, std = summed_posterior(posterior, 0, points)
    monkeypatch.setattr("pdcbo.certificates.MOST_POINTS", 30)
    longer = summed_posterior(posterior, 0, points)
    assert longer[0] == pytest.approx(mean)
    assert std <= longer[1] <= 3.0 * std


@pytest.mark.parametrize(("side", "sign"), [("upper", 1.0), ("lower", -1.0)])
def test_a_bound_on_the_right_side_shows_that_a_limit_holds(side: str, sign: float) -> None:
    def holds(observation: float | None, posterior: float | None) -> bool:
        bounds = [None if v is None else Bound(2.0 + sign * v, True, "") for v in (observation, posterior)]
        return Certificate("g", side, 2.0, 2.0, 9, 9, 0.05, *bounds).holds

    assert holds(-0.1, None)
    assert holds(None, -0.1)
    assert holds(0.5, -0.1)
    assert holds(0.0, None)
    assert not holds(0.1, None)
    assert not holds(0.1, 0.2)
    assert not holds(None, None)


def test_a_lower_limit_that_is_kept_is_proven() -> None:
    problem = Problem({"a": (0.0, 1.0)}, {}, {"h": Constraint(lower=2.0, noise=0.1)})
    for value, proven in ((3.0, True), (2.01, False), (1.0, False)):
        tuner = Fixed(problem, horizon=20)
        for _ in range(20):
            tuner.tell(tuner.ask(), 0.0, {"h": value})
        assert tuner.certificate()["h"].holds is proven
        assert tuner.summary().data["constraints"]["h"]["proven"] is proven


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_a_restated_worst_value_does_not_make_old_steps_surer(sign: float) -> None:
    side = "upper" if sign > 0.0 else "lower"
    tuner = Fixed(Problem({"a": (0.0, 1.0)}, {}, {"g": Constraint(**{side: sign * 1.0}, noise=0.1, worst=sign * 9.0)}))
    tuner.tell(tuner.ask(), 1.0, {"g": sign * 0.5})
    tuner.fail(tuner.ask())
    before = tuner.certificate()["g"].observation
    tuner.set_limits({"g": Constraint(**{side: sign * 1.0}, noise=0.1, worst=sign * 2.0)})
    assert tuner.certificate()["g"].observation == before


def test_the_posteriors_certificate_by_hand() -> None:
    """Two constraints, one with a lower limit; every third value is missing.

    Lemma 1 is joint over the two with delta = 0.2; the observation's bound gives each limit 0.9 / 2 of delta for the
    noise and the posterior a tenth of delta for what was not measured.
    """
    spec = Model(length_scales=0.3, variance=1.0, noise_var=0.04)
    limits = {"g": Constraint(upper=1.0, noise=0.3), "h": Constraint(lower=-1.0, noise=0.2)}
    tuner = PDCBO(Problem({"a": (0.0, 1.0)}, {}, limits), setting="paper", models=spec, candidates=9,
                  norm_bounds={"g": 2.0, "h": 3.0}, delta=0.2, horizon=12)  # fmt: skip
    rng, y = np.random.default_rng(0), []
    for t in range(12):
        if t == 6:
            tuner.set_limits({"g": 0.5, "h": -0.5})
        s = tuner.ask()
        a = float(rng.random())
        values = {"g": None if t % 3 == 0 else math.sin(5 * a), "h": None if t % 3 == 1 else math.cos(5 * a)}
        y.append(list(values.values()))
        tuner.tell(s, a, values, applied={"a": a})
    points = tuner.models.X
    told = np.array(y, dtype=float)

    def check(output: int, label: str, sign: float, rkhs_norm: float, noise: float, limit: float) -> None:
        certificate = tuner.certificate()[label]
        posterior, column = tuner._cautious_posterior(output, noise)
        assert posterior.noise_var == pytest.approx(max(noise**2, 0.04))
        prior = 1.0 if label == "g" else -1.0  # the first limit is the prior mean

        def sum_bound(rows: Any, delta: float) -> float:
            beta = beta_sqrt(rkhs_norm, noise, posterior.noise_var, posterior.information_gain, 2, delta)
            mean, std = summed_posterior(posterior, column, points[rows])
            return prior * len(points[rows]) + mean + sign * beta * std

        assert certificate.limit == pytest.approx(limit)
        assert certificate.posterior is not None
        assert certificate.posterior.guaranteed
        assert certificate.posterior.value == pytest.approx(sum_bound(slice(None), 0.2) / 12)
        unknown = np.isnan(told[:, output - 1])
        boundary = float(noise_boundary(8, noise, 0.9 * 0.1, 12.0))
        expected = (told[~unknown, output - 1].sum() + sign * boundary + sum_bound(unknown, 0.1 * 0.2)) / 12
        assert certificate.observation is not None
        assert certificate.observation.value == pytest.approx(expected)
        assert certificate.observation.guaranteed

    check(1, "g", 1.0, 2.0, 0.3, 0.75)
    check(2, "h", -1.0, 3.0, 0.2, -0.75)


def test_what_was_learned_or_estimated_is_no_guarantee(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = Model(length_scales=0.3, variance=1.0, noise_var=0.04)

    def guaranteed(noise: float | None, **arguments: Any) -> bool:
        tuner = PDCBO(
            Problem({"a": (0.0, 1.0)}, {}, {"g": Constraint(upper=1.0, noise=noise)}), candidates=5, **arguments
        )
        for t in range(12):
            tuner.tell(tuner.ask(), 1.0, {"g": 0.1 * math.sin(t)}, applied={"a": t / 11})
        bound = tuner.certificate()["g"].posterior
        assert bound is not None
        return bound.guaranteed

    assert guaranteed(0.2, models=spec, norm_bounds=2.0)
    assert not guaranteed(None, models=spec, norm_bounds=2.0)
    assert not guaranteed(0.2, norm_bounds=2.0)
    assert not guaranteed(0.2, models=spec)
    monkeypatch.setattr("pdcbo.models.MOST_ROWS", 10)
    monkeypatch.setattr("pdcbo.models.KEPT_ROWS", 8)
    assert not guaranteed(0.2, models=spec, norm_bounds=2.0)  # Lemma 1 starts anew with what is kept


def test_bounds_are_not_cut_where_a_context_beyond_its_range_makes_a_linear_kernel_larger() -> None:
    problem = Problem({"a": (0.0, 1.0)}, {"z": (0.0, 1.0)}, {"g": 1.0})
    mean, std = np.zeros((2, 1)), np.full((2, 1), 50.0)
    for family, cut in (("squared-exponential", True), ("linear", False)):
        spec = Model(family, length_scales=1.0, variance=1.0, noise_var=0.04)
        tuner = PDCBO(problem, setting="paper", models=spec, norm_bounds=2.0)
        lower, upper = tuner.lower_upper(mean, std)
        assert ((upper - lower) < 10.0).all() == cut


def test_a_correction_reaches_the_bound_by_the_model() -> None:
    """The certificate's own posterior, with a larger noise than the model's, is built anew after a correction."""
    model = Model(length_scales=0.5, variance=1.0, noise_var=0.01)
    tuner = PDCBO(Problem({"a": (0.0, 1.0)}, {}, {"g": Constraint(upper=1.0, noise=0.5)}), models=model, candidates=5)
    for t in range(6):
        tuner.tell(tuner.ask(), 1.0, {"g": 0.1 * t})
    before = tuner.certificate()["g"].posterior
    tuner.correct(2, constraints={"g": 5.0})
    after = tuner.certificate()["g"].posterior
    assert before is not None
    assert after is not None
    assert after.value > before.value + 0.3
    assert after == PDCBO.restore(tuner.state()).certificate()["g"].posterior


def test_without_a_stated_norm_it_is_twice_that_of_the_mean_and_one_spread_at_the_least() -> None:
    model = Model(length_scales=0.3, variance=1.0, noise_var=0.04)
    for size in (0.1, 5.0):  # a mean of small norm, and of a large one
        tuner = PDCBO(
            Problem({"a": (0.0, 1.0)}, {}, {"g": Constraint(upper=0.0, noise=0.2)}), models=model, candidates=5
        )
        for t in range(12):
            tuner.tell(tuner.ask(), 1.0, {"g": size * math.sin(5 * t / 11)}, applied={"a": t / 11})
        posterior, column = tuner.models.posterior(1)
        norm = 2.0 * max(mean_norm(posterior, column), 1.0)
        assert (norm > 2.0) == (size == 5.0)
        beta = beta_sqrt(norm, 0.2, 0.04, posterior.information_gain, 1, 0.05)
        mean, std = summed_posterior(posterior, column, tuner.models.X)
        bound = tuner.certificate()["g"].posterior
        assert bound is not None
        assert bound.value == pytest.approx((mean + beta * std) / 12)
        assert not bound.guaranteed


def test_without_an_end_a_certificate_is_about_tightest_at_a_thousand_steps() -> None:
    tuner = Fixed(Problem({"a": (0.0, 1.0)}, {}, {"g": Constraint(upper=1.0, noise=0.1, worst=3.0)}))
    for _ in range(4):
        tuner.tell(tuner.ask(), None, {"g": 0.5})
    bound = tuner.certificate()["g"].observation
    assert bound is not None
    assert bound.value == pytest.approx(0.5 + float(noise_boundary(4, 0.1, 0.05, 1000.0)) / 4)
