"""Guards: nothing outside bounds or too far from what was applied last; a fallback in time; orders of an operator."""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from store_tools import PROBLEM, answer, context

import pdcbo
from pdcbo.guards import Guards
from pdcbo.optimizers import OPTIMIZERS
from pdcbo.optimizers.base import Bounds
from pdcbo.problem import Array
from pdcbo.store import Conflict, ModelError, Study
from pdcbo.store.status import status

MIXED = pdcbo.Problem(
    {
        "r": (0.0, 10.0),
        "l": pdcbo.Real(0.1, 10.0, log=True),
        "i": pdcbo.Integer(0, 20),
        "k": pdcbo.Choice(["x", "y", 3]),
    }
)


class Slow(pdcbo.Random):
    """A model that chooses when it is let."""

    name = "slow"
    ready = threading.Event()

    def _choose(self, z: Array, rng: Any) -> tuple[Array, Bounds]:
        assert self.ready.wait(60)
        return super()._choose(z, rng)


class Broken(pdcbo.Random):
    """A model that cannot be formed while it is broken."""

    name = "broken"
    broken = True

    def _choose(self, z: Array, rng: Any) -> tuple[Array, Bounds]:
        if self.broken:
            raise np.linalg.LinAlgError("the matrix is not positive definite")
        return super()._choose(z, rng)


@pytest.fixture(autouse=True)
def optimizers(monkeypatch: pytest.MonkeyPatch) -> None:
    for made in (Slow, Broken):
        monkeypatch.setitem(OPTIMIZERS, made.name, made)
    monkeypatch.setattr(Broken, "broken", True)
    monkeypatch.setattr(Slow, "ready", threading.Event())


values = st.fixed_dictionaries(
    {"r": st.floats(0, 10), "l": st.floats(0.1, 10), "i": st.integers(0, 20), "k": st.sampled_from(["x", "y", 3])}
)


@given(values, values, st.floats(1e-9, 20), st.floats(1e-9, 20), st.floats(1, 30))
@settings(max_examples=300)
def test_no_step_exceeds_the_rate_limit(last, wanted, r, l, i) -> None:  # noqa: E741
    guards = Guards(max_change={"r": r, "l": l, "i": i}).check(MIXED)
    result, words = guards.apply(MIXED, wanted, [last])
    for name, change in guards.max_change.items():
        assert abs(result[name] - last[name]) <= change
        assert (result[name] == wanted[name]) == (abs(wanted[name] - last[name]) <= change)
    assert result["k"] == wanted["k"]
    assert bool(words) == (result != wanted)
    MIXED.encode_parameters(result)


@given(values, st.none() | values)
@settings(max_examples=200)
def test_bounds_hold_for_every_kind_of_parameter(wanted, last) -> None:
    guards = Guards(bounds={"r": (2, 3), "l": (1.0, 5.0), "i": (4.5, 8), "k": ["y", 3]}).check(MIXED)
    result, _ = guards.apply(MIXED, wanted, [] if last is None else [last])
    assert 2 <= result["r"] <= 3
    assert 1 <= result["l"] <= 5
    assert 5 <= result["i"] <= 8
    assert isinstance(result["i"], int)
    assert result["k"] in ("y", 3)
    MIXED.encode_parameters(result)


@pytest.mark.parametrize(
    ("guards", "words"),
    [
        ({"max_change": {"z": 1}}, "'z'"),
        ({"max_change": {"r": 0}}, "above 0"),
        ({"max_change": {"k": 1}}, "no distance"),
        ({"max_change": {"i": 0.5}}, "at least 1"),
        ({"bounds": {"r": (5, 20)}}, "within"),
        ({"bounds": {"r": (5, 4)}}, "within"),
        ({"bounds": {"k": ["q"]}}, "one of"),
        ({"bounds": {"k": []}}, "options"),
        ({"fallback": {"r": 1}}, "'l'"),
        ({"fallback": {"r": 1, "l": 1, "i": 1, "k": "x"}, "bounds": {"r": (2, 3)}}, "its bounds"),
        ({"deadline": 1.0}, "needs guards.fallback"),
        ({"deadline": -1.0}, "above 0"),
        ({"speed": 1.0}, "unknown"),
    ],
)
def test_malformed_guards_are_refused_by_name(guards: dict[str, object], words: str) -> None:
    with pytest.raises((TypeError, ValueError), match=words):
        Guards.from_json(guards).check(MIXED)


def test_rate_limit_follows_what_was_applied(tmp_path: Path) -> None:
    guards = Guards(max_change={"a": 0.1}, start={"a": 0.0, "b": 0.0})
    study = Study.open(tmp_path / "plant.db", "plant", PROBLEM, horizon=40, guards=guards)
    last = 0.0
    for t in range(20):
        s = study.ask(context(t))
        assert abs(s.parameters["a"] - last) <= 0.1
        assert set(s.bounds) == {"objective", "g"}
        applied = {"a": 0.5} if t == 7 else None
        study.tell(s, *answer(s.parameters, s.context, t), applied=applied)
        last = 0.5 if t == 7 else s.parameters["a"]
    words = [w for e in study.events() if e.kind == "ask" for w in e.payload["guarded"]]
    assert any("more than 0.1 away from what is running" in w for w in words)
    reopened = Study.open(tmp_path / "plant.db", "plant")
    assert reopened.state() == study.state()
    assert reopened.ask(context(99)).parameters == study.ask(context(99)).parameters


@given(st.lists(st.floats(0, 10), min_size=1, max_size=4), st.floats(0, 10), st.floats(0.01, 10))
@settings(max_examples=300)
def test_a_step_is_within_reach_of_all_that_may_be_running(running, wanted, change) -> None:
    base = {"l": 1.0, "i": 1, "k": "x"}
    guards = Guards(max_change={"r": change}).check(MIXED)
    value = guards.apply(MIXED, {"r": wanted, **base}, [{"r": r, **base} for r in running])[0]["r"]
    assert abs(value - running[-1]) <= change
    if max(running) - min(running) <= change:
        assert all(abs(value - r) <= change for r in running)


def test_a_new_start_says_where_the_plant_stands_now(tmp_path: Path) -> None:
    problem = pdcbo.Problem({"temp": (70.0, 100.0)}, {}, {"e": 1.0})
    guards = Guards(max_change={"temp": 5.0}, start={"temp": 85.0})
    with Study.open(tmp_path / "s.db", "plant", problem, guards=guards) as study:
        first = study.ask()
        assert abs(first.parameters["temp"] - 85.0) <= 5.0
        study.tell(first, 0.0, {"e": 0.5}, applied={"temp": 99.0})
        study.ask()  # pending when the plant is restarted by hand
        study.set_guards(guards)  # names the same start as before: it says nothing new
        assert study.ask().parameters["temp"] >= 94.0
        study.set_guards(Guards(max_change={"temp": 5.0}, start={"temp": 72.0}))
        assert study.ask().parameters["temp"] <= 77.0
    with Study.open(tmp_path / "s.db", "plant") as study:
        assert study.ask().parameters["temp"] <= 82.0


def test_the_rate_limit_counts_pending_suggestions(tmp_path: Path) -> None:
    study = Study.open(tmp_path / "plant.db", "plant", PROBLEM, optimizer="random", guards={"max_change": {"a": 0.1}})
    study.tell(study.ask(context(0)), 1.0, {"g": 0.1}, applied={"a": 0.5})
    asked = [study.ask(context(t)).parameters["a"] for t in range(1, 8)]
    assert max([*asked, 0.5]) - min([*asked, 0.5]) <= 0.1 + 1e-12
    study.pause()
    assert study.ask(context(9)).parameters["a"] == asked[-1]


def test_the_fallback_comes_at_the_deadline_and_tells_do_not_wait(tmp_path: Path) -> None:
    fallback = {"a": 0.25, "b": 1.0}
    study = Study.open(tmp_path / "plant.db", "plant", PROBLEM, optimizer="slow",
                       guards=Guards(fallback=fallback, deadline=0.1))  # fmt: skip
    s = study.ask({"c": 0.5})
    study.tell(s, None, {"g": None})
    assert s.parameters == fallback
    Slow.ready.set()  # only now: neither the ask nor the tell has waited for the model
    event = study.events()[1]
    assert event.payload["origin"] == "fallback"
    assert "within 0.1 s" in event.payload["why"]
    late = study.ask({"c": 0.5}, deadline=60.0)
    assert study.events()[-1].payload["origin"] == "model"
    assert late.parameters != fallback
    study.ask({"c": 0.5}, deadline=1e12)  # more seconds than a lock can wait for
    assert study.events()[-1].payload["origin"] == "model"
    study.close()


def test_a_model_that_cannot_be_formed_falls_back_and_recovers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    study = Study.open(tmp_path / "plant.db", "plant", PROBLEM, optimizer="broken")
    with pytest.raises(ModelError, match=r"LinAlgError.*no fallback"):
        study.ask({"c": 0.5})
    assert study.seq == 1
    study.set_guards(Guards(fallback={"a": 0.5, "b": 0.5}))
    s = study.ask({"c": 0.5})
    assert s.parameters == {"a": 0.5, "b": 0.5}
    assert "positive definite" in study.events()[-1].payload["why"]
    assert "positive definite" in str(study.trouble)
    study.tell(s, 1.0, {"g": 0.1})
    monkeypatch.setattr(Broken, "broken", False)
    assert study.ask({"c": 0.5}).parameters != s.parameters
    assert study.trouble is None
    assert study.step == 1


def test_an_unmeasured_fallback_step_still_moves_the_dual(tmp_path: Path) -> None:
    study = Study.open(tmp_path / "plant.db", "plant", PROBLEM, horizon=20)
    for t in range(5):
        s = study.ask(context(t))
        study.tell(s, *answer(s.parameters, s.context, t))
    study.set_known_good({"a": 0.5, "b": 0.0})
    study.return_to_known_good("smoke")
    s = study.ask(context(5))
    assert s.parameters == {"a": 0.5, "b": 0.0}
    assert s.bounds == {}
    study.fail(s, "analyser offline")
    with study.optimizer() as optimizer:
        assert isinstance(optimizer, pdcbo.PDCBO)
        step = optimizer.ledger.steps[s.id]
        mean, _ = optimizer.models.predict(np.array(step.x)[None])
        assert step.expected == [mean[1, 0] - step.limits[0]]
        assert step.signal == [optimizer.bounds_at(np.array(step.x))["g"][0] - step.limits[0]]
        moves = [(each.expected or each.signal)[0] for each in optimizer.ledger.history()]
        assert optimizer.balance[0] == pytest.approx(sum(moves))
    assert study.step == 6


def test_pause_holds_and_resume_goes_on(tmp_path: Path) -> None:
    study = Study.open(tmp_path / "plant.db", "plant", PROBLEM, optimizer="random", guards={"max_change": {"b": 0.5}})
    study.pause("maintenance")
    with pytest.raises(Conflict, match="nothing was applied yet"):
        study.ask({"c": 0.5})
    study.resume()
    s = study.ask({"c": 0.5})
    study.tell(s, 1.0, {"g": 0.1}, applied={"a": 0.75, "b": 2.0})
    study.pause("maintenance")
    assert "paused (maintenance)" in repr(Study.open(tmp_path / "plant.db", "plant"))
    held = study.ask({"c": 0.1})
    assert held.parameters == {"a": 0.75, "b": 2.0}
    study.set_known_good(s)
    study.set_known_good({"a": 0.1, "b": 0.0})
    study.return_to_known_good("operator")
    way = []
    for _ in range(5):
        s = study.ask({"c": 0.1})
        study.tell(s, 1.0, {"g": 0.1})
        way.append(s.parameters["b"])
    assert way == [1.5, 1.0, 0.5, 0.0, 0.0]
    study.resume()
    study.ask({"c": 0.9})
    origins = [e.payload["origin"] for e in study.events() if e.kind == "ask"]
    assert origins == ["model", "pause", *["known-good"] * 5, "model"]


def test_known_good_parameters_are_of_their_variables_types(tmp_path: Path) -> None:
    study = Study.open(tmp_path / "plant.db", "plant", MIXED, optimizer="random")
    study.set_known_good({"k": 3.0, "i": 4.0, "r": 5, "l": 1})
    study.return_to_known_good()
    assert repr(study.ask().parameters) == repr({"r": 5.0, "l": 1.0, "i": 4, "k": 3})


def test_preparing_changes_nothing_but_the_time_of_learning(tmp_path: Path) -> None:
    study = Study.open(tmp_path / "plant.db", "plant", PROBLEM, horizon=30)
    bare = pdcbo.PDCBO(PROBLEM, horizon=30)
    for t in range(12):
        s = study.ask(context(t))
        assert s == bare.ask(context(t))
        study.tell(s, *answer(s.parameters, s.context, t))
        study.prepare()
        study.prepare()
        bare.tell(s.id, *answer(s.parameters, s.context, t))
    study.close()
    assert study.state() == bare.state()


def test_known_good_parameters_and_bounds_must_agree(tmp_path: Path) -> None:
    study = Study.open(tmp_path / "plant.db", "plant", PROBLEM, optimizer="random")
    study.set_guards(Guards(bounds={"a": (0.3, 0.6)}))
    with pytest.raises(ValueError, match=r"parameters\['a'\] must lie in its bounds \(0.3, 0.6\), got 0.2"):
        study.set_known_good({"a": 0.2, "b": 1.0})
    study.set_known_good({"a": 0.4, "b": 1.0})
    study.set_guards({"bounds": {"a": [0.5, 0.6]}})
    assert "known_good['a'] must lie in its bounds (0.5, 0.6), got 0.4" in status(study)["alarms"][0]["text"]
    with pytest.raises(ValueError, match=r"must be \(lo, hi\) within \[0.0, 1.0\], got \[0.6, 0.5\]"):
        study.set_guards({"bounds": {"a": [0.6, 0.5]}})


def test_known_good_is_what_ran(tmp_path: Path) -> None:
    study = Study.open(tmp_path / "plant.db", "plant", PROBLEM, optimizer="random")
    s, never = study.ask(context(0)), study.ask(context(1))
    study.tell(s, 1.0, {"g": 0.1}, applied={"a": 0.25})
    study.fail(never, "refused", applied=False)
    study.set_known_good(s)
    assert study.events()[-1].payload["parameters"] == {**s.parameters, "a": 0.25}
    with pytest.raises(Conflict, match=f"suggestion {never.id} never ran"):
        study.set_known_good(never)
    with pytest.raises(Conflict, match=r"settled before.*it never ran"):
        study.tell(never, 1.0, {"g": 0.1})
    with pytest.raises(TypeError, match="parameters must be a mapping of names, a Suggestion or its id, got 'x'"):
        study.set_known_good("x")
    with pytest.raises(TypeError, match=r"Guards\(\) removes all of them"):
        study.set_guards(None)
    with pytest.raises(TypeError, match="reason must be in words"):
        study.pause(None)
    for limits, words in (({"g": {"uper": 3}}, "unknown 'uper'"), ({"g": {"upper": "3"}}, "upper must be a number")):
        with pytest.raises((TypeError, ValueError), match=rf"limits\['g'\]: {words}"):
            study.set_limits(limits)
    with pytest.raises(TypeError, match="rows must be an iterable of mappings, got None"):
        study.observe_table(None)


def test_the_same_tell_in_other_words_is_the_same(tmp_path: Path) -> None:
    study = Study.open(tmp_path / "plant.db", "plant", PROBLEM, optimizer="random")
    s = study.ask({"c": 0.5})
    study.tell(s, 1.0, {"g": 0.1})
    for more in ({"applied": s.parameters}, {"applied": {}}, {"context": {"c": 0.5}}):
        study.tell(s, 1.0, {"g": 0.1}, **more)
    assert study.seq == 3
    with pytest.raises(Conflict):
        study.tell(s, 1.0, {"g": 0.1}, applied={"a": 1.0 - s.parameters["a"]})


def test_an_integer_that_was_reported_as_a_float_stays_one(tmp_path: Path) -> None:
    study = Study.open(tmp_path / "plant.db", "plant", MIXED, optimizer="random")
    s = study.ask()
    study.tell(s, 1.0, applied={"i": 3.0})
    study.pause()
    held = study.ask().parameters["i"]
    assert (held, type(held)) == (3, int)


def test_readers_and_writers_at_once_do_not_trip_over_each_other(tmp_path: Path) -> None:
    study = Study.open(tmp_path / "plant.db", "plant", PROBLEM, optimizer="random",
                       guards=Guards(fallback={"a": 0.5, "b": 0.5}))  # fmt: skip
    pending = [study.ask(context(t)) for t in range(200)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        teller = threading.Thread(target=lambda: [study.tell(s, 1.0, {"g": 0.1}) for s in pending])
        teller.start()
        while teller.is_alive():
            assert len(study.pending) <= 400
            study.ask({"c": 0.5})
        teller.join()
    finally:
        sys.setswitchinterval(interval)
    assert {event.payload["origin"] for event in study.events() if event.kind == "ask"} == {"model"}


BOUNDS = {"r": (2.0, 3.0), "l": (1.0, 5.0), "i": (5, 8)}


@given(values, values, st.floats(1e-3, 20), st.floats(1e-3, 20), st.floats(1, 30))
@settings(max_examples=300)
def test_a_rate_limit_does_not_lead_out_of_the_bounds(last, wanted, r, l, i) -> None:  # noqa: E741
    """From within the bounds nothing leaves them; from outside, the way back is as fast as the rate limit allows."""
    guards = Guards(max_change={"r": r, "l": l, "i": i}, bounds=BOUNDS).check(MIXED)
    result, _ = guards.apply(MIXED, wanted, [last])
    for name, (low, high) in BOUNDS.items():
        change = guards.max_change[name]
        assert abs(result[name] - last[name]) <= change
        if low <= last[name] <= high:
            assert low <= result[name] <= high
        elif last[name] < low:
            assert last[name] < result[name] <= high
        else:
            assert low <= result[name] < last[name]


def test_an_option_that_is_not_allowed_gives_way_to_the_one_that_runs() -> None:
    guards = Guards(bounds={"k": ["y", 3]}).check(MIXED)
    base = {"r": 1.0, "l": 1.0, "i": 1}
    assert guards.apply(MIXED, {**base, "k": "x"}, [{**base, "k": 3}])[0]["k"] == 3
    assert guards.apply(MIXED, {**base, "k": "x"}, [{**base, "k": "x"}])[0]["k"] == "y"
    assert guards.apply(MIXED, {**base, "k": "x"}, [])[0]["k"] == "y"


def test_the_fallback_is_the_guards_then_the_known_good_then_what_runs(tmp_path: Path) -> None:
    study = Study.open(tmp_path / "plant.db", "plant", PROBLEM, optimizer="broken")
    study.set_guards({"start": {"a": 0.9, "b": 0.9}})
    first = study.ask(context(0))
    assert first.parameters == {"a": 0.9, "b": 0.9}
    study.tell(first, 1.0, {"g": 0.1}, applied={"a": 0.3, "b": 0.3})
    assert study.ask(context(1)).parameters == {"a": 0.3, "b": 0.3}
    study.set_known_good({"a": 0.4, "b": 0.4})
    assert study.ask(context(2)).parameters == {"a": 0.4, "b": 0.4}
    study.set_guards({"fallback": {"a": 0.5, "b": 0.5}})
    assert study.ask(context(3)).parameters == {"a": 0.5, "b": 0.5}
    assert {e.payload["origin"] for e in study.events() if e.kind == "ask"} == {"fallback"}


class Watched(Slow):
    """A slow model that says when it has begun to choose."""

    name = "slow"
    begun = threading.Event()

    def _choose(self, z: Array, rng: Any) -> tuple[Array, Bounds]:
        self.begun.set()
        return super()._choose(z, rng)


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(OPTIMIZERS, "slow", Watched)
    monkeypatch.setattr(Watched, "begun", threading.Event())
    monkeypatch.setattr(Watched, "ready", threading.Event())


@pytest.mark.usefixtures("watched")
@pytest.mark.parametrize("order", ["return", "pause"])
def test_an_order_given_while_the_model_thinks_is_obeyed(tmp_path: Path, order: str) -> None:
    good = {"a": 0.25, "b": 1.0}
    with Study.open(tmp_path / "plant.db", "plant", PROBLEM, optimizer="slow", guards={"start": good}) as study:
        made: list[Any] = []
        asking = threading.Thread(target=lambda: made.append(study.ask({"c": 0.5})))
        asking.start()
        assert Watched.begun.wait(60)
        if order == "return":
            study.set_known_good(good)
            study.return_to_known_good("smoke in the hall")
        else:
            study.pause("analyser in calibration")
        Watched.ready.set()
        asking.join(60)
        assert made[0].parameters == good
        assert study.events()[-1].payload["origin"] == {"return": "known-good", "pause": "pause"}[order]


@pytest.mark.usefixtures("watched")
def test_one_key_asked_twice_at_once_gets_one_suggestion(tmp_path: Path) -> None:
    with Study.open(tmp_path / "plant.db", "plant", PROBLEM, optimizer="slow") as study:
        made: list[Any] = []
        asking = [threading.Thread(target=lambda: made.append(study.ask({"c": 0.5}, key="monday"))) for _ in range(3)]
        for thread in asking:
            thread.start()
        assert Watched.begun.wait(60)
        Watched.ready.set()
        for thread in asking:
            thread.join(60)
        assert len(made) == 3
        assert made[0] == made[1] == made[2]
        assert [e.kind for e in study.events()] == ["created", "ask"]


def test_a_start_outside_the_bounds_is_refused() -> None:
    with pytest.raises(ValueError, match=r"guards.start\['r'\] must lie in its bounds \(2.0, 3.0\), got 1.0"):
        Guards(start={"r": 1, "l": 1, "i": 1, "k": "x"}, bounds={"r": (2, 3)}).check(MIXED)
