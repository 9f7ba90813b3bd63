"""What one step may take of a limit's budget: how bad it counts, what that costs, and what the default makes of it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from pdcbo import PDCBO, Choice, Constraint, Model, Problem
from pdcbo.compression import Compression
from pdcbo.models import Models
from pdcbo.optimizers.reserve import LEAST_DEVIATIONS, Reserve

# Two options at distance 1 with length scale 0.1 have nothing to do with each other.
PROBLEM = Problem({"mode": Choice(["known", "tempting"])}, {"z": (0.0, 1.0)}, {"g": Constraint(upper=0.0)})
MODEL = Model(length_scales={"mode": 0.1, "z": 0.3}, variance=1.0, noise_var=1e-4)


def tuner_with_a_temptation(horizon: int) -> PDCBO:
    """Return a tuner that knows one option everywhere, and of the other that it saves much and is fine at z = 0."""
    tuner = PDCBO(PROBLEM, horizon=horizon, models=MODEL)
    for mode, z, f, g in [("tempting", 0.0, -5.0, -1.0), *(("known", z, 0.0, -0.05) for z in (0.0, 0.3, 0.6, 1.0))]:
        tuner.tell(tuner.ask({"z": z}), f, {"g": g}, applied={"mode": mode})
    return tuner


def test_the_last_step_takes_nothing_that_cannot_be_paid_back() -> None:
    last = tuner_with_a_temptation(horizon=6)
    mean, std = last.models.predict(np.array([[1.0, 0.4]]))
    assert mean[0, 0] < -1.0  # better than the other's 0,
    assert mean[1, 0] < -0.1  # and within the limit as far as anybody knows,
    assert mean[1, 0] + 2.0 * std[1, 0] > 1.0  # but nobody knows well
    assert last.ask({"z": 0.4}).parameters == {"mode": "known"}
    assert last.ask({"z": 0.0}).parameters == {"mode": "tempting"}  # where it is known to be fine
    early = tuner_with_a_temptation(horizon=200)
    assert early.ask({"z": 0.4}).parameters == {"mode": "tempting"}


def test_where_nothing_is_sure_the_surest_is_free_and_the_rest_has_the_present_price() -> None:
    reserve = Reserve(PROBLEM.limits[0], 1.0, 0.5, 20.0, Models(PROBLEM, MODEL), 2.0)
    assert reserve.terms(np.array([-0.1, 3.0])) == (20.0, 0.0)
    assert reserve.terms(np.array([0.2, 3.0])) == (0.5, 0.2)


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_a_step_counts_with_its_deviations_on_the_bad_side(sign: float) -> None:
    constraint = Constraint(upper=3.0) if sign > 0.0 else Constraint(lower=-3.0)
    problem = Problem({"x": (0.0, 1.0)}, {}, {"y": constraint})
    models = Models(problem, Model(length_scales=0.3, variance=1.0, noise_var=0.01))
    reserve = Reserve(problem.limits[0], 0.5, 1.0, 20.0, models, 2.0)
    mean, std = np.array([[0.0, 0.0], [sign * 1.0, sign * 4.0]]), np.array([[9.0, 9.0], [0.5, 0.0]])
    # g = 1 - 3 + 2 * 0.5 and 4 - 3, of which 0.5 may be taken
    np.testing.assert_allclose(reserve.excess(mean, std), [-1.5, 0.5])
    capped = replace(reserve, limit=replace(reserve.limit, worst=0.75))
    np.testing.assert_allclose(capped.excess(mean, std), [-1.5, 0.25])
    models.hyper[1] = replace(models.hyper[1], compression=Compression(sign * 3.5, 1.0, sign, sign * 9.0))
    assert reserve.excess(mean, std)[0] == pytest.approx(-1.5)  # below the knee nothing is compressed
    std[1, 1] = 0.5
    assert reserve.excess(mean, std)[1] > 0.5 + 2.0 * 0.5  # beyond it, bad luck is worse than good luck is good


def test_the_worst_surprise_on_record_says_how_far_off_forecasts_can_be() -> None:
    models = Models(PROBLEM, MODEL)
    limit = PROBLEM.limits[0]
    assert Reserve.of(limit, 0.0, 1.0, 20.0, models).deviations == LEAST_DEVIATIONS
    for g in (0.0, 0.0, -0.8):  # a surprise on the good side worries nobody
        models.add(np.array([0.0, 0.5]), np.array([0.0, g]))
    assert Reserve.of(limit, 0.0, 1.0, 20.0, models).deviations == LEAST_DEVIATIONS
    mean, std = models.predict(np.array([[0.0, 0.5]]))
    models.add(np.array([0.0, 0.5]), np.array([0.0, 0.1]))
    expected = (0.1 - mean[1, 0]) / np.hypot(std[1, 0], 0.01)
    assert expected > LEAST_DEVIATIONS
    assert Reserve.of(limit, 0.0, 1.0, 20.0, models).deviations == pytest.approx(expected)
