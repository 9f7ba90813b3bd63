"""Feedback as it is in life: late, out of order, twice, missing, failed, applied otherwise, corrected, past.

What each does to the dual and to the certificate is written in the docstrings of `pdcbo.optimizers.base` and
`pdcbo.PDCBO`; these tests hold them to it.
"""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from pdcbo import PDCBO, Choice, Constraint, Fixed, Integer, Model, Problem, Real
from pdcbo.gp import CholeskyFactor
from pdcbo.history import History
from pdcbo.optimizers.adaptive import AdaptiveSetting
from pdcbo.structured import CandidatePosterior

PROBLEM = Problem(
    {"a": (0.0, 10.0), "n": Integer(0, 4)},
    {"z": (0.0, 1.0)},
    {"g": Constraint(upper=1.0, noise=0.1, worst=5.0), "h": Constraint(lower=2.0, noise=0.1)},
)
GIVEN = Model(length_scales=2.0, variance=4.0, noise_var=0.01)


def tuner(**arguments: Any) -> PDCBO:
    return PDCBO(PROBLEM, **{"horizon": 20, "models": GIVEN, "candidates": 6, "signal": "observed", **arguments})


def everything(t: PDCBO) -> str:
    return json.dumps(t.state(), sort_keys=True, allow_nan=False)


def signals(t: PDCBO, *ids: int) -> list[list[float]]:
    return [t.ledger.steps[i].signal for i in ids]


def test_the_model_learns_which_points_were_asked_for_right_before() -> None:
    t = tuner(candidates=5)
    y = 1.0, {"g": 0.5, "h": 2.5}

    def last_was_asked_for() -> bool:
        return t.models.asked[-1:] == [t.models.n - 1]

    t.tell(t.ask({"z": 0.1}), *y)
    assert last_was_asked_for()
    t.tell(t.ask({"z": 0.1}), *y, applied={"a": 2.5})
    assert not last_was_asked_for()
    older, newer = t.ask({"z": 0.2}), t.ask({"z": 0.3})
    t.tell(newer, *y)
    assert last_was_asked_for()
    t.tell(older, *y)
    assert not last_was_asked_for()
    older, newer = t.ask({"z": 0.2}), t.ask({"z": 0.3})
    t.tell(older, *y)
    assert not last_was_asked_for()
    t.tell(newer, *y)
    assert not last_was_asked_for()
    t.observe({"a": 1.0, "n": 2}, {"z": 0.1}, objective=1.0)
    assert not last_was_asked_for()
    s = t.ask({"z": 0.4})
    t.observe({"a": 1.0, "n": 2}, {"z": 0.4}, objective=1.0)
    t.tell(s, *y)
    assert not last_was_asked_for()
    s = t.ask({"z": 0.4})
    t.fail(t.ask({"z": 0.4}), applied=False)
    t.tell(s, *y)
    assert not last_was_asked_for()
    s = t.ask({"z": 0.4})
    t.tell(s, *y)
    assert last_was_asked_for()


def test_the_row_of_a_step_that_was_asked_for_takes_no_solve(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ask and tell in turn: each posterior is asked once a step, and none solves for a row."""
    t = tuner(candidates=6)
    for i in range(40):
        with monkeypatch.context() as patched:
            answers: list[int] = []
            original = CandidatePosterior.at
            patched.setattr(CandidatePosterior, "at", lambda self, z, a=answers, f=original: a.append(1) or f(self, z))
            s = t.ask({"z": i / 40})
            assert len(answers) == len({id(t.models.posterior(output)[0]) for output in range(t.models.q)})
            patched.setattr(CandidatePosterior, "at", lambda *_: pytest.fail("asked again"))
            patched.setattr(CholeskyFactor, "solve", lambda *_, **__: pytest.fail("a solve"))
            t.tell(s, np.sin(i / 10), {"g": 0.5, "h": 2.5})


def test_each_observation_enters_once_whatever_the_order() -> None:
    t = tuner()
    a, b, c = (t.ask({"z": z}) for z in (0.1, 0.5, 0.9))
    assert [s.id for s in t.pending] == [a.id, b.id, c.id]
    t.tell(c, 3.0, {"g": 1.5, "h": 2.5})
    t.tell(a.id, 1.0, {"g": 0.5, "h": 1.0})
    assert [s.id for s in t.pending] == [b.id]
    before = everything(t)
    t.tell(c, 3.0, {"g": 1.5, "h": 2.5})
    t.tell(a, 1.0, {"g": 0.5, "h": 1.0})
    assert everything(t) == before
    for different in ((3.1, 1.5, 2.5), (3.0, None, 2.5), (None, 1.5, 2.5)):
        with pytest.raises(ValueError, match=rf"suggestion {c.id} was settled before \(told\).*use correct\(\)"):
            t.tell(c, different[0], {"g": different[1], "h": different[2]})
    with pytest.raises(ValueError, match=rf"suggestion {c.id} was settled before"):
        t.fail(c, "oops")
    assert everything(t) == before
    assert t.models.n == t.step == 2
    # g: 1.5 - 1 = 0.5 and 0.5 - 1 = -0.5; h >= 2: 2 - 2.5 = -0.5 and 2 - 1 = 1. Queues in order of arrival:
    # g: [0 + 0.5]+ = 0.5, [0.5 - 0.5]+ = 0; h: [0 - 0.5]+ = 0, [0 + 1]+ = 1.
    assert signals(t, c.id, a.id) == [[0.5, -0.5], [-0.5, 1.0]]
    assert t.queue == pytest.approx([0.0, 1.0])


def test_a_late_tell_counts_when_it_arrives_against_its_own_limits() -> None:
    t = tuner()
    old = t.ask({"z": 0.5})
    t.set_limits({"g": 0.2})
    new = t.ask({"z": 0.5})
    t.tell(new, 0.0, {"g": 0.9, "h": 3.0})
    t.tell(old, 0.0, {"g": 0.9, "h": 3.0})
    assert signals(t, new.id, old.id) == [[pytest.approx(0.7), -1.0], [pytest.approx(-0.1), -1.0]]
    assert t.certificate()["g"].limit == pytest.approx(0.6)
    assert t.ledger.counted == [new.id, old.id]


@pytest.mark.parametrize("signal", ["lower", "observed"])
def test_a_late_lower_bound_is_the_one_it_was_chosen_with(signal: str) -> None:
    t = tuner(signal=signal)
    old = t.ask({"z": 0.5})
    for _ in range(5):
        t.tell(t.ask({"z": 0.5}), 1.0, {"g": 3.0, "h": 0.0})
    queue = t.queue.copy()
    if signal == "lower":
        t.tell(old, 1.0, {"g": 3.0, "h": 0.0})
    else:
        t.tell(old, 1.0, {"g": None, "h": None})
    (g_low, _), (_, h_high) = old.bounds["g"], old.bounds["h"]
    assert signals(t, old.id) == [[pytest.approx(g_low - 1.0), pytest.approx(2.0 - h_high)]]
    assert t.queue == pytest.approx(np.maximum(np.add(queue, [g_low - 1.0, 2.0 - h_high]), 0.0))


def test_missing_values_the_other_way_round() -> None:
    t = tuner()
    s = t.ask({"z": 0.5})
    t.tell(s, None, {"g": 1.7, "h": None})
    assert t.models.rows == [[], [0], []]
    assert signals(t, s.id)[0][0] == pytest.approx(0.7)
    assert signals(t, s.id)[0][1] == pytest.approx(2.0 - s.bounds["h"][1])
    u = t.ask({"z": 0.5})
    t.tell(u, 5.0, {"g": None, "h": None})
    assert t.models.rows == [[1], [0], []]
    certificate = t.certificate()
    assert (certificate["g"].measured, certificate["g"].steps) == (1, 2)
    # the average passes over the step, the certificate charges it with the worst value
    assert certificate["g"].average == pytest.approx(1.7)
    assert certificate["g"].observation is not None
    assert certificate["g"].observation.value > (1.7 + 5.0) / 2
    # h was never measured and has no worst value: nothing can be said
    assert certificate["h"].observation is None
    assert certificate["h"].average is None


def test_a_failure_that_ran_counts_and_one_that_did_not_changes_nothing() -> None:
    t = tuner()
    t.tell(t.ask({"z": 0.3}), 1.0, {"g": 2.0, "h": 1.0})
    ran, never = t.ask({"z": 0.5}), t.ask({"z": 0.5})
    queue, data, certificate = t.queue.copy(), t.models.state(), t.certificate()
    t.fail(never, "operator refused", applied=False)
    assert (t.queue == queue).all()
    assert t.certificate() == certificate
    assert t.models.state() == data
    assert t.step == 1
    t.fail(ran, "analyser offline")
    assert t.models.state() == data
    assert t.step == 2
    move = [ran.bounds["g"][0] - 1.0, 2.0 - ran.bounds["h"][1]]
    assert t.queue == pytest.approx(np.maximum(queue + move, 0.0))
    assert t.certificate()["g"].measured == 1
    assert t.certificate()["g"].steps == 2
    assert t.pending == []
    before = everything(t)
    t.fail(ran, "analyser offline")
    t.fail(never.id, "operator refused", applied=False)
    assert everything(t) == before
    for call in (
        lambda: t.fail(ran, "another reason"),
        lambda: t.fail(ran, "analyser offline", applied=False),
        lambda: t.fail(never, "operator refused"),
        lambda: t.tell(ran, 1.0, {"g": 1.0, "h": 1.0}),
        lambda: t.tell(never, 1.0, {"g": 1.0, "h": 1.0}),
    ):
        with pytest.raises(ValueError, match="was settled before"):
            call()
    assert everything(t) == before
    assert "1 step ran without any measurement" in t.summary()


def test_values_that_come_after_a_failure_are_supplied_by_correct() -> None:
    t = tuner()
    s = t.ask({"z": 0.5})
    t.fail(s, "late")
    t.correct(s, objective=2.0, constraints={"g": 1.25, "h": 2.5})
    assert t.models.rows == [[0], [0], [0]]
    assert t.step == 1
    assert t.certificate()["g"].average == 1.25
    # the dual: from [0 + bound]+ by the difference; here the bound is far below zero, so the queue is what is above
    move = np.array([s.bounds["g"][0] - 1.0, 2.0 - s.bounds["h"][1]])
    assert t.queue == pytest.approx(np.maximum(np.maximum(move, 0.0) + ([0.25, -0.5] - move), 0.0))
    before = everything(t)
    t.fail(s, "late")  # the old message once more
    t.correct(s, objective=2.0, constraints={"g": 1.25, "h": 2.5})
    assert everything(t) == before


def test_corrections_move_the_dual_by_the_difference() -> None:
    t = tuner()
    s = t.ask({"z": 0.5})
    t.tell(s, 1.0, {"g": 3.0, "h": 3.0})
    assert t.queue == pytest.approx([2.0, 0.0])
    t.correct(s, constraints={"g": 2.5})
    assert t.queue == pytest.approx([1.5, 0.0])
    assert t.models.Y.tolist() == [[1.0, 2.5, 3.0]]
    t.correct(s, objective=None)
    assert t.models.rows == [[], [0], [0]]
    before = everything(t)
    t.tell(s, 1.0, {"g": 3.0, "h": 3.0})  # the original message once more: known, though corrected since
    assert everything(t) == before
    with pytest.raises(ValueError, match="settled before"):
        t.tell(s, 1.0, {"g": 2.5, "h": 3.0})
    never = t.ask({"z": 0.5})
    with pytest.raises(ValueError, match=f"suggestion {never.id} is pending; only a step that counts is corrected"):
        t.correct(never, objective=1.0)
    t.fail(never, applied=False)
    with pytest.raises(ValueError, match=f"suggestion {never.id} is dropped; only a step that counts is corrected"):
        t.correct(never, objective=1.0)


def test_a_bound_dual_is_not_moved_by_corrections() -> None:
    t = tuner(signal="lower")
    s = t.ask({"z": 0.5})
    t.tell(s, 1.0, {"g": 3.0, "h": 3.0})
    queue = t.queue.copy()
    t.correct(s, constraints={"g": 0.0})
    assert (t.queue == queue).all()


def test_corrected_models_and_certificates_are_as_if_told_from_the_start() -> None:
    def play(first: float, then: float | None) -> PDCBO:
        t = tuner()
        steps = [t.ask({"z": z}) for z in (0.2, 0.8)]
        t.tell(steps[0], 1.0, {"g": first, "h": 2.0})
        t.tell(steps[1], 2.0, {"g": 0.4, "h": 2.0})
        if then is not None:
            t.correct(steps[0], constraints={"g": then})
        return t

    corrected, straight = play(9.0, 0.6), play(0.6, None)
    assert corrected.certificate() == straight.certificate()
    assert corrected.ask({"z": 0.5}).bounds == straight.ask({"z": 0.5}).bounds


def test_applied_values_are_what_is_learned() -> None:
    t = tuner()
    s = t.ask({"z": 0.5})
    t.tell(s, 1.0, {"g": 0.5, "h": 3.0}, applied={"a": 2.5}, context={"z": 0.75})
    n = s.parameters["n"]
    assert t.models.X.tolist() == [[0.25, n / 4, 0.75]]
    before = everything(t)
    t.tell(s, 1.0, {"g": 0.5, "h": 3.0}, applied={"a": 2.5, "n": n}, context={"z": 0.75})
    assert everything(t) == before
    for other in ({"applied": {"a": 2.6}, "context": {"z": 0.75}}, {"applied": {"a": 2.5}}, {}):
        with pytest.raises(ValueError, match="settled before"):
            t.tell(s, 1.0, {"g": 0.5, "h": 3.0}, **other)
    assert everything(t) == before


def test_a_value_read_back_in_single_precision_is_within_its_range() -> None:
    problem = Problem({"u": (0.0, 0.6), "n": Integer(1, 3)}, {}, {"g": 1.0})
    for value in (float(np.float32(0.6)), np.float32(0.6), -0.0):
        tuner = PDCBO(problem, horizon=5)
        s = tuner.ask()
        tuner.tell(s, 1.0, {"g": 0.5}, applied={"u": value})
        assert 0.0 <= tuner.ledger.steps[s.id].x[0] <= 1.0
    tuner = PDCBO(problem, horizon=5)
    s = tuner.ask()
    for given in ({"u": 0.61}, {"n": 4}):
        with pytest.raises(ValueError, match="nearest value within if it was only rounded"):
            tuner.tell(s, 1.0, {"g": 0.5}, applied=given)
    with pytest.raises(ValueError, match="leave out rows of operation beyond the ranges"):
        tuner.observe_table([{"u": 0.61, "n": 1, "objective": 1.0}])
    s.parameters["u"] = 0.3
    with pytest.raises(ValueError, match=r"what really ran is told with applied=\{\.\.\.\}"):
        tuner.tell(s, 1.0, {"g": 0.5})


def test_applied_as_proposed_is_the_proposed_point_to_the_bit() -> None:
    plain, said = tuner(), tuner()
    for z in (0.1, 0.33, 0.77):
        s, u = plain.ask({"z": z}), said.ask({"z": z})
        plain.tell(s, z, {"g": z, "h": z})
        said.tell(u, z, {"g": z, "h": z}, applied=dict(u.parameters), context={"z": z})
    assert everything(plain) == everything(said)


def test_a_bound_dual_moves_by_the_bound_where_the_plant_really_was() -> None:
    t = tuner(signal="lower")
    for z in (0.1, 0.9):
        t.tell(t.ask({"z": z}), 1.0, {"g": 1.5, "h": 2.0})
    s = t.ask({"z": 0.5})
    there = t.bounds_at(np.array([0.9, 1.0, 0.5]))
    t.tell(s, 1.0, {"g": 1.5, "h": 2.0}, applied={"a": 9.0, "n": 4})
    assert signals(t, s.id) == [[pytest.approx(there["g"][0] - 1.0), pytest.approx(2.0 - there["h"][1])]]


def test_past_data_enter_the_models_only() -> None:
    t = tuner()
    t.observe({"a": 1.0, "n": 2}, {"z": 0.5}, objective=3.0)
    count = t.observe_table(
        [
            {"a": 2.0, "n": 1, "z": 0.1, "objective": 4.0, "g": 0.5},
            {"parameters": {"a": 3.0, "n": 0}, "context": {"z": 0.2}, "objective": None, "constraints": {"h": 9.0}},
        ]
    )
    assert count == 2
    assert t.models.rows == [[0, 1], [1], [2]]
    assert "learned from 3 rows of past operation, which do not count" in t.summary()
    assert t.step == 0
    assert (t.queue == 0).all()
    assert t.certificate()["g"].steps == 0
    before = everything(t)
    with pytest.raises(ValueError, match=r"rows\[1\]: parameters\['a'\] must lie in \[0.0, 10.0\], got 11.0"):
        t.observe_table(
            [{"a": 2.0, "n": 1, "z": 0.1, "objective": 4.0}, {"a": 11.0, "n": 1, "z": 0.1, "objective": 4.0}]
        )
    assert everything(t) == before  # all rows or none


def test_a_table_with_columns_is_told_how_to_become_rows() -> None:
    class Frame:
        def to_dict(self, kind: str) -> list[dict[str, float]]:
            return []

    with pytest.raises(TypeError, match=r"got a Frame; its to_dict\('records'\) is one"):
        tuner().observe_table(Frame())


def test_where_a_step_ran_stays_as_first_told() -> None:
    t = tuner()
    s = t.ask({"z": 0.5})
    t.tell(s, 1.0, {"g": 0.5, "h": 3.0}, applied={"a": 9.0})
    with pytest.raises(ValueError, match="the parameters and the context that it ran with stay as first told"):
        t.tell(s, 1.0, {"g": 0.5, "h": 3.0}, applied={"a": 8.0})
    with pytest.raises(ValueError, match=r"use correct\(\)"):
        t.tell(s, 2.0, {"g": 0.5, "h": 3.0}, applied={"a": 9.0})


def test_history_shows_a_context_beyond_its_range_where_it_was() -> None:
    t = tuner()
    t.tell(t.ask({"z": 1.5}), 1.0, {"g": 0.5, "h": 3.0}, applied={"a": 9.0})
    t.tell(t.ask({"z": 0.5}), 1.0, {"g": 0.5, "h": 3.0}, context={"z": -0.25})
    history = History.of_optimizer(t)
    assert history.context["z"] == [1.5, -0.25]
    assert history.parameters["a"][0] == 9.0


def test_a_parameter_may_be_called_parameters() -> None:
    t = Fixed(Problem({"parameters": (0.0, 1.0)}))
    assert t.observe_table([{"parameters": 0.5, "objective": 1.0}]) == 1


def test_what_is_handed_out_is_the_users_own() -> None:
    """Nobody changes the tuner by changing a dictionary it handed out, nor by changing one it was given."""
    t = tuner()
    context = {"z": 0.5}
    s = t.ask(context)
    before = everything(t)
    proposed = dict(s.parameters)
    s.parameters["a"] = -99.0
    context["z"] = 77.0
    t.pending[0].parameters["a"] = -98.0
    state = t.state()
    state["ledger"]["steps"][0]["x"][0] = 5.0
    state["problem"]["parameters"].clear()
    assert everything(t) == before
    assert t.pending[0].parameters == proposed
    with pytest.raises(ValueError, match="made by another tuner or changed since"):
        t.tell(s, 1.0, {"g": 1.0, "h": 1.0})
    t.tell(s.id, 1.0, {"g": 1.0, "h": 1.0})


def test_a_suggestion_of_another_tuner_is_refused() -> None:
    t, other = tuner(), Fixed(PROBLEM, parameters={"a": 1.0, "n": 0})
    t.ask({"z": 0.1})
    foreign = other.ask({"z": 0.1})
    with pytest.raises(ValueError, match="made by another tuner"):
        t.tell(foreign, 1.0, {"g": 1.0, "h": 1.0})
    with pytest.raises(ValueError, match="suggestion 99 is unknown; 1 were made so far"):
        t.tell(99, 1.0, {"g": 1.0, "h": 1.0})


def test_limits_changed_in_mid_course_move_later_suggestions_only() -> None:
    t = tuner()
    s = t.ask({"z": 0.5})
    t.set_limits({"g": 0.0, "h": 2.5})
    u = t.ask({"z": 0.5})
    t.tell(s, 0.0, {"g": 0.5, "h": 2.2})
    t.tell(u, 0.0, {"g": 0.5, "h": 2.2})
    assert signals(t, s.id, u.id) == [[-0.5, pytest.approx(-0.2)], [0.5, pytest.approx(0.3)]]
    assert t.problem.limits[0].bound == 0.0


def test_the_queue_bounds_the_cumulative_constraint() -> None:
    """lambda >= sum of what it was moved by, in plant units, with missing values, failures and corrections."""
    rng = np.random.default_rng(5)
    t = tuner()
    told = []
    for i in range(40):
        s = t.ask({"z": rng.random()})
        if i % 7 == 3:
            t.fail(s, "x")
            continue
        told.append(s)
        t.tell(s, rng.normal(), {"g": None if i % 5 == 2 else 1 + rng.normal(), "h": 2 + rng.normal()})
        if i % 4 == 0:
            t.correct(told[int(rng.integers(len(told)))], constraints={"g": 1 + rng.normal()})
        total = np.sum(signals(t, *t.ledger.counted), axis=0)
        assert (t.queue >= total - 1e-9).all()
        assert (t.queue >= 0).all()


def test_choices_take_part_in_everything() -> None:
    problem = Problem({"m": Choice(["x", 2, True])}, {"s": Choice(["day", "night"])}, {"g": 0.5})
    t = PDCBO(problem, horizon=9)
    for i in range(9):
        s = t.ask({"s": "day" if i % 2 else "night"})
        t.tell(s, 1.0 if s.parameters["m"] == "x" else 0.0, {"g": 0.1}, applied={"m": True} if i == 4 else None)
    assert t.models.X[4].tolist() == [1.0, 0.0 if 4 % 2 else 1.0]
    assert PDCBO.restore(json.loads(json.dumps(t.state()))).state() == t.state()


def test_what_was_not_measured_earns_no_credit() -> None:
    t = tuner()
    t.fail(t.ask({"z": 0.5}), "analyser offline")
    assert t.balance.tolist() == [0.0, 0.0]  # the prior mean is the limit
    t.tell(t.ask({"z": 0.2}), 1.0, {"g": 3.0, "h": 1.0})
    s = t.ask({"z": 0.5})
    mean, _ = t.models.predict(np.array(t.ledger.steps[s.id].x)[None])
    t.tell(s, 1.0, {"g": None, "h": 2.5})
    assert t.balance == pytest.approx([2.0 + mean[1, 0] - 1.0, 1.0 - 0.5])
    t.correct(s, constraints={"g": 1.5})
    assert t.balance == pytest.approx([2.0 + 0.5, 1.0 - 0.5])
    t.correct(s, constraints={"h": None})
    assert t.balance[0] == pytest.approx(2.5)
    copy = PDCBO.restore(json.loads(everything(t)))
    assert everything(copy) == everything(t)


@pytest.mark.parametrize("failed", [1, 3])
def test_failures_at_the_start_do_not_break_the_limits(failed: int) -> None:
    from pdcbo.plants import PLANTS

    plant = PLANTS["williams-otto"](seed=0)
    t = PDCBO(plant.problem, horizon=60, candidates=12)
    for step in range(60):
        s = t.ask(plant.context(step + 1))
        if step < failed:
            t.fail(s, "not measured")
        else:
            t.tell(s, *plant.evaluate(s.parameters, s.context))
    truth = [plant.truth(step.suggestion.parameters, step.suggestion.context) for step in t.ledger.history()]
    for name, limit in (("x_a", 0.12), ("x_g", 0.08)):
        assert np.mean([answer.constraints[name] for answer in truth]) <= limit


def test_what_was_not_measured_is_thought_over_again() -> None:
    """A step was not measured where g turns out to be 3 above its limit: the balance comes to know."""
    t = PDCBO(PROBLEM, horizon=40, models=GIVEN, candidates=6)
    s = t.ask({"z": 0.5})
    t.fail(s, "analyser offline")
    for _ in range(6):
        t.tell(t.ask({"z": 0.5}), 1.0, {"g": 4.0, "h": 3.0}, applied=s.parameters)
    assert isinstance(t.setting, AdaptiveSetting)
    assert t.balance[0] == pytest.approx(18.0)
    assert t.setting.balance()[0] == pytest.approx(21.0, abs=0.5)
    copy = PDCBO.restore(json.loads(everything(t)))
    assert everything(copy) == everything(t)
    t.correct(s, objective=1.0, constraints={"g": 4.0, "h": 3.0})
    assert t.setting.revision.tolist() == [0.0, 0.0]
    assert t.setting.balance()[0] == pytest.approx(21.0)


def test_no_floor_is_put_above_what_is_looked_for() -> None:
    t = PDCBO(Problem({"a": (0.0, 1.0)}, {}, {"g": 0.0}), candidates=11)
    assert isinstance(t.setting, AdaptiveSetting)
    for a in np.linspace(0.0, 1.0, 11):
        t.observe({"a": float(a)}, objective=float(a), constraints={"g": 1.0 + 0.01 * float(a)})
    assert t.setting._floors() == []
    t.observe({"a": 0.5}, objective=0.5, constraints={"g": -0.5})
    [(_, _, floor)] = t.setting._floors()
    assert floor < -0.5


@pytest.mark.parametrize(("horizon", "steps"), [(None, 40), (600, 200)])
def test_without_an_end_a_debt_is_paid_soon_and_credit_lasts(horizon: int | None, steps: int) -> None:
    t = PDCBO(Problem({"a": (0.0, 1.0)}, {}, {"g": 0.0}), horizon=horizon, models=GIVEN, candidates=5)
    for _ in range(400):
        t.tell(t.ask(), 1.0, {"g": 0.0})
    assert isinstance(t.setting, AdaptiveSetting)
    f, g = np.zeros((1, 3)), np.array([[[1.0], [0.0], [-1.0]]])
    for balance, left in ((20.0, steps), (-150.0, 200 if horizon else 400)):
        t.balance = np.array([balance])
        t.setting.solved_spread = np.array([1.0, 1e9])  # which is as far as a budget goes down
        rest = t.setting._budget(g, f, np.zeros(1), np.zeros(1))
        assert rest == pytest.approx(-(balance + t.setting.margin) / left)


def test_the_plan_hopes_for_nothing_below_the_floor_and_may_ask_for_all_that_can_be_paid_back() -> None:
    t = PDCBO(Problem({"a": (0.0, 1.0)}, {}, {"g": 0.0}), horizon=100, candidates=5)
    for i in range(20):
        t.observe({"a": i / 19}, objective=1.0, constraints={"g": -1.0 + 0.1 * i})
    assert isinstance(t.setting, AdaptiveSetting)
    [(_, _, floor)] = t.setting._floors()
    table = np.array([[[1.0, 1.0]], [[-50.0, 0.5]]])
    assert t.setting._excesses(table)[0, :, 0] == pytest.approx([floor, 0.5])
    t.setting.solved_spread, t.setting.payback = np.array([1.0, 0.1]), np.array([0.7])
    t.balance = np.array([1e6])
    rest = t.setting._budget(np.array([[[1.0], [0.0]]]), np.zeros((1, 2)), np.zeros(1), np.zeros(1))
    assert rest == pytest.approx([-0.7])


@pytest.mark.parametrize("glitch", [1e17, 1e20, 9.97e36])
def test_a_huge_value_that_is_corrected_leaves_the_balance_of_the_others(glitch: float) -> None:
    tuner = PDCBO(Problem({"a": (0.0, 1.0)}, {}, {"g": 1.0}), horizon=20)
    for value in (3.0, glitch, 4.5):
        tuner.tell(tuner.ask(), 0.0, {"g": value})
    tuner.correct(2, constraints={"g": 0.25})
    assert tuner.balance.tolist() == [2.0 - 0.75 + 3.5]


def test_true_where_one_was_proposed_ran_elsewhere() -> None:
    problem = Problem({"m": Choice([1, True, "x"])})
    tuner = Fixed(problem, parameters={"m": 1})
    tuner.tell(tuner.ask(), 0.0, applied={"m": True})
    assert tuner.ledger.history()[0].x == problem.encode_parameters({"m": True}).tolist()


def test_a_limit_moved_before_anything_was_measured_is_what_is_expected() -> None:
    tuner = PDCBO(Problem({"a": (0.0, 1.0)}, {}, {"q": 10.0}), horizon=20)
    tuner.set_limits({"q": 5.0})
    for _ in range(5):
        tuner.tell(tuner.ask(), 0.0, {"q": None})
    lower, upper = tuner.ask().bounds["q"]
    assert (lower + upper) / 2.0 == pytest.approx(5.0)
    assert tuner.debt() == pytest.approx([0.0])
    assert tuner.notes() == []


def test_a_context_in_the_wrong_units_without_a_measurement_is_no_credit() -> None:
    """Of a step in 120000 instead of 120 the average was thought to be hundreds below its limit, and proven so."""
    problem = Problem({"a": (0.0, 1.0)}, {"z": (50.0, 200.0)}, {"q": Constraint(upper=1.0, noise=0.02)})
    tuner, rng = PDCBO(problem, horizon=60, candidates=30), np.random.default_rng(1)
    true = []
    for t in range(60):
        z = 50.0 + 150.0 * float(rng.random())
        s = tuner.ask({"z": 120e3 if t == 15 else z})
        a = float(s.parameters["a"])
        true.append(0.4 + a - 0.6 * ((z - 50.0) / 150.0 - 0.5))
        if t == 15:
            tuner.fail(s, "analyser offline")
        else:
            tuner.tell(s, 1.0 - a + 0.02 * rng.normal(), {"q": true[-1] + 0.02 * rng.normal()})
    assert np.mean(true) <= 1.0
    certificate = tuner.certificate()["q"]
    for bound in (certificate.observation, certificate.posterior):
        assert bound is not None
        assert bound.value >= np.mean(true)


def test_a_wrong_value_taken_back_leaves_the_debt_of_the_others() -> None:
    t = PDCBO(Problem({"x": (0.0, 1.0)}, {}, {"g": Constraint(lower=-5.0, upper=1.0)}), horizon=40, seed=1)
    asked = []
    for i in range(12):
        asked.append(t.ask())
        value = 1e18 if i == 6 else None if i == 9 else 1.5
        t.tell(asked[-1], float(asked[-1].parameters["x"]), {"g": value})
    t.correct(asked[6], constraints={"g": None})
    assert t.debt() == pytest.approx([6.0, 0.0], rel=0.01)  # 0.5 for each of the twelve, two of them expected
    t = PDCBO(Problem({"x": (0.0, 1.0)}, {}, {"g": 1.0}), horizon=20, seed=1)
    first = t.ask()
    t.tell(first, 1.0, {"g": 1e6})
    t.tell(t.ask(), 1.1, {"g": None})
    t.correct(first, constraints={"g": None})
    assert (t.debt().tolist(), t.price().tolist()) == ([0.0], [0.0])  # nothing is known: it lies at its limit


def test_a_logarithmic_range_is_rounded_by_ratios() -> None:
    tuner = PDCBO(Problem({"k": Real(1e-9, 1.0, log=True)}, {}, {"g": 1.0}), horizon=5)
    tuner.tell(tuner.ask(), 1.0, {"g": 0.5}, applied={"k": float(np.float32(1e-9))})
    with pytest.raises(ValueError, match=r"applied\['k'\] must lie in"):
        tuner.tell(tuner.ask(), 1.0, {"g": 0.5}, applied={"k": 1e-30})
    with pytest.raises(ValueError, match=r"parameters\['k'\] must lie in"):
        tuner.observe({"k": 1e-300}, objective=2.0)
    assert tuner.models.n == 1


@contextmanager
def interrupts() -> Iterator[None]:
    """Take interrupts as a program in the foreground does, also where the tests run in the background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize(
    "report",
    [
        lambda t, s: t.tell(s, 1.0, {"g": 0.5, "h": 2.5}),
        lambda t, s: t.fail(s, "no power"),
        lambda t, s: t.correct(s.id - 1, objective=3.0),
        lambda t, s: t.observe({"a": 1.0, "n": 2}, {"z": 0.3}, objective=2.0),
        lambda t, s: t.set_limits({"g": 0.8}),
    ],
)
@pytest.mark.parametrize("place", ["_learn", "_relearn", "_count", "_advance"])
def test_an_interrupt_waits_until_what_is_reported_is_entered(
    monkeypatch: pytest.MonkeyPatch, report: Callable[[PDCBO, Any], None], place: str
) -> None:
    def prepared() -> tuple[PDCBO, Any]:
        t = tuner()
        t.tell(t.ask({"z": 0.1}), 1.5, {"g": 0.7, "h": 2.2})
        return t, t.ask({"z": 0.4})

    undisturbed, other = prepared()
    report(undisturbed, other)
    t, suggestion = prepared()
    reached = []
    original = getattr(PDCBO, place)

    def interrupting(self: PDCBO, *rest: Any) -> Any:
        reached.append(1)
        signal.raise_signal(signal.SIGINT)
        return original(self, *rest)

    monkeypatch.setattr(PDCBO, place, interrupting)
    with interrupts():
        try:
            report(t, suggestion)
        except KeyboardInterrupt:
            assert reached
        else:
            assert not reached
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert everything(t) == everything(undisturbed)
