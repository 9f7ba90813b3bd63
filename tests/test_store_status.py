"""What an operator sees: alarms in words, figures that never hold NaN and never lose an extreme."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from store_tools import PROBLEM, answer, context

import pdcbo
from pdcbo import figures
from pdcbo.history import History
from pdcbo.service import html
from pdcbo.store import Study
from pdcbo.store import status as status_module
from pdcbo.store.status import age_in_words, history_of, status


def words(study: Study, level: str) -> str:
    return " ".join(a["text"] for a in status(study)["alarms"] if a["level"] == level)


def test_alarms_say_what_is_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    guards = {"fallback": {"a": 0.0, "b": 0.0}, "max_change": {"a": 0.05}, "start": {"a": 0.9, "b": 0.0}}
    study = Study.open(tmp_path / "plant.db", "plant", PROBLEM, optimizer="random", horizon=12, guards=guards)
    assert status(study)["alarms"] == []
    for _ in range(11):
        study.tell(study.ask({"c": 0.5}), 1.0, {"g": 0.51})
    assert "The average of g is 0.51, above its limit of 0.5, by no more than" in words(study, "warning")
    study.tell(study.ask({"c": 1.5}), 1.0, {"g": 9.0})
    assert words(study, "alarm") == "The average of g is 1.2175, above its limit of 0.5."
    assert "The context left its stated range in the last 20 steps: c." in words(study, "warning")
    assert "The planned 12 steps are done" in words(study, "note")
    assert "A guard changed suggestion 12: a: " in words(study, "note")
    for _ in range(6):
        study.fail(study.ask({"c": 0.5}), "offline")
    assert "6 of the last 18 steps ran without any measurement." in words(study, "warning")
    study.ask({"c": 0.5})
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 7200.0)
    assert "1 suggestion is waiting for a result, the oldest (suggestion 19) for 2 hours." in words(study, "warning")
    assert status(study)["pending"][0]["age"] == pytest.approx(7200, abs=5)
    study.pause("lunch")
    assert "The study is paused (lunch)" in words(study, "warning")


def test_ages_in_words() -> None:
    assert [age_in_words(s) for s in (3, 150, 7300, 400_000)] == ["3 seconds", "2 minutes", "2 hours", "5 days"]


@given(st.lists(st.floats(-1e6, 1e6) | st.just(float("nan")), min_size=1, max_size=400), st.integers(10, 50))
def test_thinning_keeps_ends_and_extremes(values: list[float], points: int) -> None:
    y = np.array(values)
    keep = figures.thin(np.arange(len(y)), y, points)
    assert keep == sorted(set(keep))
    assert {0, len(y) - 1} <= set(keep)
    assert len(keep) <= points + 2
    if not np.isnan(y).all():
        assert np.nanmin(y[keep]) == np.nanmin(y)
        assert np.nanmax(y[keep]) == np.nanmax(y)


def test_every_figure_of_every_kind_of_problem_is_json() -> None:
    problem = pdcbo.Problem(
        {
            "r": (0.0, 1.0),
            "l": pdcbo.Real(0.1, 10.0, log=True),
            "i": pdcbo.Integer(0, 5),
            "k": pdcbo.Choice(["x", "y"]),
        },
        {"c": (0.0, 1.0), "d": pdcbo.Choice(["day", "night"])},
        {"g": pdcbo.Constraint(lower=0.1, upper=0.5), "h": 3.0},
    )
    tuner = pdcbo.PDCBO(problem, horizon=20)
    for t in range(6):
        s = tuner.ask({"c": t / 6, "d": "day" if t % 2 else "night"})
        if t == 3:
            tuner.fail(s, "offline")
        else:
            tuner.tell(s, None if t == 2 else 1.0 * t, {"g": 0.3, "h": None})
        drawn = figures.history_figures(History.of_optimizer(tuner), [None, 0.1, None])
        drawn["posterior"] = figures.posterior_figure(tuner, s.context, s.parameters)
        json.dumps(drawn, allow_nan=False)
    assert set(drawn) == {"constraint-0", "constraint-1", "constraint-2", "cost", "operation", "posterior"}
    assert figures.show(drawn["posterior"]).data


def test_the_certified_band_is_the_certificate(tmp_path: Path) -> None:
    study = Study.open(tmp_path / "plant.db", "plant", PROBLEM, optimizer="random", horizon=30)
    for t in range(15):
        s = study.ask(context(t))
        study.tell(s, *answer(s.parameters, s.context, t), reference=0.0)
    facts = status(study)["constraints"]["g"]
    certificate = study.certificate()["g"]
    assert certificate.observation is not None
    assert facts["certified"] == pytest.approx(certificate.observation.value, rel=1e-12)
    assert facts["average"] == pytest.approx(certificate.average, rel=1e-12)
    with study.record() as record:
        costs = [record.book.ledger.steps[i].y[0] for i in record.book.ledger.counted]
        regret = History.of(PROBLEM, record.book.ledger, 30, 0.05, record.notes).regret()
    assert regret is not None
    np.testing.assert_allclose(regret, np.cumsum(costs))


@pytest.mark.parametrize("worst", [None, 2.0])
def test_nothing_is_certified_of_steps_that_nobody_measured(tmp_path: Path, worst: float | None) -> None:
    problem = pdcbo.Problem({"u": (0.0, 1.0)}, {}, {"g": pdcbo.Constraint(upper=0.5, noise=0.1, worst=worst)})
    study = Study.open(tmp_path / "plant.db", "plant", problem, optimizer="random", horizon=30)
    for t in range(15):
        study.tell(study.ask(), 1.0, {"g": None if t % 3 else 0.2})
    facts, certificate = status(study)["constraints"]["g"], study.certificate()["g"]
    assert (facts["measured"], facts["steps"]) == (5, 15)
    if worst is None:
        assert facts["certified"] is None
        assert certificate.observation is None
    else:
        assert certificate.observation is not None
        assert facts["certified"] == pytest.approx(certificate.observation.value, rel=1e-12)
    assert "g was not measured in 10 of the last 15 steps." in words(study, "note")


def test_the_reason_of_a_return_stays_in_sight(tmp_path: Path) -> None:
    study = Study.open(tmp_path / "plant.db", "plant", PROBLEM, optimizer="random")
    study.set_known_good({"a": 0.2, "b": 1.0})
    study.return_to_known_good("smoke in the hall")
    again = Study.open(tmp_path / "plant.db", "plant")
    assert (status(again)["mode"], status(again)["reason"]) == ("known-good", "smoke in the hall")
    assert "known-good parameters (smoke in the hall) until you resume" in words(again, "warning")


def test_the_page_shows_what_ran_and_compares_like_with_like(tmp_path: Path) -> None:
    problem = pdcbo.Problem({"a": (0.0, 10.0)}, {"c": (0.0, 1.0)}, {"g": 0.1})
    study = Study.open(tmp_path / "plant.db", "plant", problem, optimizer="random")
    for _ in range(10):
        study.tell(study.ask({"c": 0.5}), 1.0, {"g": 0.5}, applied={"a": 2.5}, context={"c": 3.0})
    study.set_limits({"g": 1.0})
    for _ in range(10):
        study.fail(study.ask({"c": 0.5}), "analyser offline")
    seen = status(study)
    assert any("left its stated range" in alarm["text"] for alarm in seen["alarms"])
    assert (seen["constraints"]["g"]["limit"], seen["constraints"]["g"]["holds"]) == (pytest.approx(0.1), False)
    assert "must be at most 0.1 (its limits so far on average; from now on 1): is exceeded" in str(study.summary())
    with study.record() as record:
        history = history_of(record)
    assert (history.parameters["a"][0], history.context["c"][0], history.context["c"][-1]) == (2.5, 3.0, 0.5)
    with study.optimizer() as optimizer:
        assert History.of_optimizer(optimizer).parameters["a"][0] == pytest.approx(2.5)


def test_what_the_record_shows_is_made_once_and_holds_up_no_tell(tmp_path: Path, monkeypatch: Any) -> None:
    study = Study.open(tmp_path / "plant.db", "plant", PROBLEM, optimizer="random")
    study.tell(study.ask({"c": 0.5}), 1.0, {"g": 0.25})
    pending = study.ask({"c": 0.5})
    made, ready, begun = status_module._constraint, threading.Event(), threading.Event()
    seen: list[dict[str, Any]] = []

    def slow(*arguments: Any) -> dict[str, Any]:
        begun.set()
        assert ready.wait(60)
        seen.append(arguments[0])
        return made(*arguments)

    monkeypatch.setattr(status_module, "_constraint", slow)
    found: list[dict[str, Any]] = []
    watchers = [threading.Thread(target=lambda: found.append(status(study))) for _ in range(4)]
    for watcher in watchers[:3]:
        watcher.start()
    assert begun.wait(60)
    study.tell(pending, 3.0, {"g": 0.75})  # nobody has let them make it yet
    ready.set()
    for watcher in watchers[:3]:
        watcher.join(60)
    assert 1 <= len(seen) <= 2
    watchers[3].start()
    watchers[3].join(60)
    assert len(seen) == 2
    by_seq = {each["seq"]: each for each in found}
    shown = {seq: (each["step"], each["average_cost"], len(each["pending"])) for seq, each in by_seq.items()}
    assert shown == {4: (1, 1.0, 1), 5: (2, 2.0, 0)}
    assert [by_seq[seq]["constraints"]["g"]["average"] for seq in (4, 5)] == [0.25, 0.5]


def test_noise_that_the_models_have_learned_since_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    problem = pdcbo.Problem({"u": (0.0, 1.0)}, {}, {"g": 0.5})
    study = Study.open(tmp_path / "plant.db", "plant", problem, optimizer="random", horizon=30)
    study.tell(study.ask(), 1.0, {"g": 0.3})
    doubts = []
    for noise in (None, 0.1, 0.2):
        monkeypatch.setattr(study, "noise_levels", lambda noise=noise: [None, noise])
        doubts.append(status(study)["constraints"]["g"]["doubt"])
    assert doubts == [None, pytest.approx(doubts[2] / 2), pytest.approx(doubts[1] * 2)]


def test_a_card_tells_an_estimate_from_a_certificate_and_names_a_remedy(tmp_path: Path) -> None:
    problem = pdcbo.Problem(
        {"u": (0.0, 1.0)},
        {},
        {"e": 1013250.0, "c": pdcbo.Constraint(upper=1.0, noise=0.1), "p": pdcbo.Constraint(3.0, 2.0, noise=0.1)},
    )
    with Study.open(tmp_path / "s.db", "plant", problem, horizon=40) as study:
        for i in range(14):
            study.tell(study.ask(), 1.0, {"e": 1013254.0 + i % 3, "c": 0.5, "p": None if i == 3 else 2.5})
        with study.optimizer():
            pass  # so that the noise of e is learned
        page = html.status(status(study))
    assert "at most 1013250: <b>is exceeded so far</b><br>estimated to be at most" in page
    assert "at most 1: <b>holds</b><br>certified at most" in page
    assert "<b>holds</b> in the 13 of 14 steps that were measured<br>no bound by its measurements alone: " in page
    assert "two constraints, each with a worst value" in page
