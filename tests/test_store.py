"""One conformance suite over both databases: a study is its optimizer, only durable."""

from __future__ import annotations

import gc
import sqlite3
import threading
import time
from contextlib import closing
from enum import StrEnum
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from store_tools import PROBLEM, answer, context

import pdcbo
from pdcbo.optimizers import OPTIMIZERS
from pdcbo.problem import Array
from pdcbo.store import Conflict, Journal, StoreError, Study
from pdcbo.store.backends import SqliteBackend, connect_sqlite
from pdcbo.store.follower import Worker, snapshot
from pdcbo.store.journal import PARTS, _encode_in_parts, encode


def drive(tuner: pdcbo.Optimizer | Study, first: int, last: int) -> list[pdcbo.Suggestion]:
    made = []
    for t in range(first, last):
        s = tuner.ask(context(t))
        objective, constraints = answer(s.parameters, s.context, t)
        match t % 7:
            case 3:
                tuner.fail(s, "analyser offline", applied=t % 2 == 0)
            case 5:
                tuner.tell(s, objective, {"g": None})
            case 6:
                tuner.tell(s, None, constraints, applied={"a": 0.5}, context={"c": 0.25})
            case _:
                tuner.tell(s, objective, constraints)
        made.append(s)
    return made


@pytest.mark.parametrize("name", ["pdcbo", "random"])
def test_study_is_its_optimizer_to_the_last_bit_across_reopening(store: str, name: str) -> None:
    bare = OPTIMIZERS[name](PROBLEM, horizon=50, seed=3)
    study = Study.open(store, "plant", PROBLEM, optimizer=name, horizon=50, seed=3)
    for first in range(0, 24, 6):
        assert drive(study, first, first + 6) == drive(bare, first, first + 6)
        if first == 6:
            study.checkpoint()
        study.close()
        study = Study.open(store, "plant")
    bare.observe({"a": 0.1, "b": 0.3}, {"c": 0.2}, objective=0.7)
    study.observe({"a": 0.1, "b": 0.3}, {"c": 0.2}, objective=0.7)
    bare.set_limits({"g": 0.4})
    study.set_limits({"g": 0.4})
    for tuner in (bare, study):
        tuner.correct(1, objective=0.25)
        tuner.correct(5, constraints={"g": 0.3})
    assert drive(study, 24, 28) == drive(bare, 24, 28)
    assert encode(study.state()) == encode(bare.state())
    assert str(study.summary()) == str(bare.summary())
    assert study.certificate() == bare.certificate()
    assert (study.step, study.horizon, study.pending) == (bare.step, 50, [])
    study.close()


def test_what_is_repeated_is_recognised_and_what_contradicts_is_refused(store: str) -> None:
    study = Study.open(store, "plant", PROBLEM, optimizer="random")
    s = study.ask({"c": 0.5}, key="monday")
    assert study.ask({"c": 0.5}, key="monday") == s
    assert study.ask({"c": 0.5}).id == s.id + 1
    with pytest.raises(Conflict, match="'monday' was used before"):
        study.ask({"c": 0.6}, key="monday")
    study.tell(s, 1.0, {"g": 0.2})
    seq = study.seq
    study.tell(s.id, 1.0, {"g": 0.2})
    with pytest.raises(Conflict, match="settled before"):
        study.tell(s, 1.5, {"g": 0.2})
    with pytest.raises(Conflict, match="settled before"):
        study.tell(s, 1.0, {"g": 0.2}, applied={"a": 0.5})
    with pytest.raises(Conflict, match="settled before"):
        study.fail(s, "no")
    study.pause("lunch", key="p")
    study.pause("lunch", key="p")
    with pytest.raises(Conflict, match="another call"):
        study.resume(key="p")
    study.correct(s, objective=1.5, key="c")
    study.correct(s, objective=1.5, key="c")
    study.tell(s, 1.0, {"g": 0.2})  # a late repetition of the first tell, after the correction
    assert study.seq == seq + 2
    study.close()


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda s, q: s.ask({"c": float("nan")}), ValueError),
        (lambda s, q: s.ask({}), ValueError),
        (lambda s, q: s.ask({"c": "x"}), TypeError),
        (lambda s, q: s.ask({"c": 0.1}, key=""), ValueError),
        (lambda s, q: s.ask({"c": 0.1}, key=3), TypeError),
        (lambda s, q: s.ask({"c": 0.1}, deadline="soon"), TypeError),
        (lambda s, q: s.ask({"c": 0.1}, deadline=True), TypeError),
        (lambda s, q: s.ask({"c": 0.1}, deadline=-1.0), ValueError),
        (lambda s, q: s.ask({"c": 0.1}, deadline=float("inf")), ValueError),
        (lambda s, q: s.tell(q, float("inf"), {"g": 1.0}), ValueError),
        (lambda s, q: s.tell(q, 1.0, {"g": object()}), TypeError),
        (lambda s, q: s.tell(q, 1.0, {}), ValueError),
        (lambda s, q: s.tell(q, 1.0, {"g": 1.0}, reference=float("nan")), ValueError),
        (lambda s, q: s.tell(q, 1.0, {"g": 1.0}, reference=-1.7e308), ValueError),
        (lambda s, q: s.tell(99, 1.0, {"g": 1.0}), ValueError),
        (lambda s, q: s.fail(q, 5), TypeError),
        (lambda s, q: s.fail(q, "", applied="yes"), TypeError),
        (lambda s, q: s.correct(q, objective=1.0), ValueError),
        (lambda s, q: s.observe({"a": 5.0, "b": 1.0}, {"c": 0.1}, objective=1.0), ValueError),
        (lambda s, q: s.set_limits({"h": 1.0}), ValueError),
        (lambda s, q: s.set_limits({"g": float("nan")}), ValueError),
        (lambda s, q: s.set_guards({"max_change": {"z": 1.0}}), ValueError),
        (lambda s, q: s.set_guards({"deadline": 1.0}), ValueError),
        (lambda s, q: s.set_known_good({"a": 0.1}), ValueError),
        (lambda s, q: s.set_known_good(q, key=[1]), TypeError),
        (lambda s, q: s.set_known_good(1, key="a\nb"), ValueError),
        (lambda s, q: s.return_to_known_good(), Conflict),
    ],
)
def test_refused_calls_leave_no_trace(tmp_path: Path, call, error) -> None:
    study = Study.open(tmp_path / "plant.db", "plant", PROBLEM, optimizer="random")
    q = study.ask({"c": 0.5})
    before = encode(study.state()), study.seq
    with pytest.raises(error):
        call(study, q)
    assert (encode(study.state()), study.seq) == before
    study.tell(q, 1.0, {"g": 0.1})
    assert Study.open(tmp_path / "plant.db", "plant").step == 1


def test_two_openings_of_one_study_see_each_other(store: str) -> None:
    one = Study.open(store, "plant", PROBLEM)
    two = Study.open(store, "plant")
    for t in range(6):
        first, second = (one, two) if t % 2 else (two, one)
        s = first.ask(context(t), key=f"k{t}")
        assert second.ask(context(t), key=f"k{t}") == s
        second.tell(s, *answer(s.parameters, s.context, t))
        first.tell(s, *answer(s.parameters, s.context, t))
    assert encode(one.state()) == encode(two.state())
    assert [e.seq for e in one.events()] == list(range(1, 14))
    one.close()
    two.close()


def test_threads_on_one_study_lose_and_double_nothing(store: str) -> None:
    study = Study.open(store, "plant", PROBLEM, optimizer="random")
    other = Study.open(store, "plant")
    failures: list[BaseException] = []

    def work(tuner: Study, worker: int) -> None:
        try:
            for t in range(10):
                s = tuner.ask(context(t), key=f"{worker}-{t}")
                tuner.tell(s, 1.0, {"g": 0.1})
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(study if i % 2 else other, i)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    events = study.events()
    assert [e.seq for e in events] == list(range(1, 122))
    asked = [e.payload["step"]["suggestion"]["id"] for e in events if e.kind == "ask"]
    assert sorted(asked) == list(range(1, 61))
    assert sorted(e.payload["id"] for e in events if e.kind == "tell") == sorted(asked)
    study.close()
    other.close()


def test_a_study_is_opened_only_as_it_was_created(store: str) -> None:
    Study.open(store, "plant", PROBLEM, horizon=50, beta_sqrt=1.5).close()
    Study.open(store, "plant", PROBLEM, horizon=50, beta_sqrt=1.5).close()
    with pytest.raises(ValueError, match="another horizon: 50, got 60"):
        Study.open(store, "plant", PROBLEM, horizon=60, beta_sqrt=1.5)
    with pytest.raises(ValueError, match="another settings"):
        Study.open(store, "plant", PROBLEM, horizon=50)
    with pytest.raises(KeyError, match="no study 'other'"):
        Study.open(store, "other")
    with pytest.raises(ValueError, match="name must have"):
        Study.open(store, "../etc", PROBLEM)
    with pytest.raises(ValueError, match="optimizer must be one of"):
        Study.open(store, "other", PROBLEM, optimizer="best")
    with Study.open(store, "plant") as study:
        assert study.journal.studies() == ["plant"]


def test_without_a_problem_too_what_is_given_is_held_against_what_was_created(store: str) -> None:
    Study.open(store, "plant", PROBLEM, horizon=50, seed=3, beta_sqrt=1.5, guards={"max_change": {"a": 0.1}}).close()
    for same in ({"optimizer": "pdcbo"}, {"horizon": 50, "beta_sqrt": 1.5}, {"guards": {"max_change": {"a": 0.1}}}):
        Study.open(store, "plant", **same).close()
    for other, words in (
        ({"horizon": 7}, "another horizon: 50, got 7"),
        ({"optimizer": "cei", "horizon": 7}, "another optimizer: 'pdcbo', got 'cei'"),
        ({"optimizer": "best"}, "optimizer must be one of"),
        ({"seed": 0}, "another seed: 3, got 0"),
        ({"guards": {}}, "another guards"),
        ({"beta_sqrt": 2.0}, "another settings"),
        ({"nonsense": 3}, "'nonsense'"),
    ):
        with pytest.raises((TypeError, ValueError), match=words):
            Study.open(store, "plant", **other)


def test_opening_without_a_problem_creates_no_store(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"there is no store .*typo\.db"):
        Study.open(tmp_path / "typo.db", "plant")
    assert not list(tmp_path.iterdir())


def test_addresses_of_other_kinds_are_refused() -> None:
    for url in ("mysql://x/y", "sqlite://", "sqlite:///:memory:", ""):
        with pytest.raises(ValueError, match="store must be"):
            Study.open(url, "plant", PROBLEM)


def test_a_store_that_cannot_be_reached_says_so(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="there is no folder"):
        Study.open(tmp_path / "missing" / "plant.db", "plant", PROBLEM)
    with pytest.raises(StoreError, match="failed") as caught:
        Study.open("postgresql://me:secret@127.0.0.1:1/db", "plant", PROBLEM)
    assert "secret" not in str(caught.value)


def test_a_damaged_checkpoint_is_passed_over(tmp_path: Path) -> None:
    study = Study.open(tmp_path / "plant.db", "plant", PROBLEM, horizon=50)
    drive(study, 0, 8)
    study.checkpoint()
    expected = encode(study.state())
    study.journal.database.execute("UPDATE checkpoints SET state = substr(state, 1, 200)")
    study.close()
    assert encode(Study.open(tmp_path / "plant.db", "plant").state()) == expected


def test_half_characters_are_spelled_out(store: str) -> None:
    study = Study.open(store, "plant", PROBLEM, optimizer="random")
    study.fail(study.ask(context(0)), "no file a\udcff.csv")
    study.pause("a\udcff")
    assert [event.payload["reason"] for event in study.events()[-2:]] == ["no file a\\udcff.csv", "a\\udcff"]
    study.close()


def test_a_failed_step_outside_its_context_is_noticed_as_by_the_optimizer(store: str) -> None:
    study, bare = Study.open(store, "plant", PROBLEM, optimizer="random"), pdcbo.Random(PROBLEM)
    for tuner in (study, bare):
        tuner.fail(tuner.ask({"c": 5000.0}), "offline")
    assert "outside its stated range in 1 step" in str(study.summary())
    assert study.state() == bare.state()
    study.close()


def test_a_repeated_order_gets_its_first_answer_whatever_happened_since(store: str) -> None:
    study = Study.open(store, "plant", PROBLEM, optimizer="random")
    made = study.ask(context(0))
    study.set_known_good(made, key="by suggestion")
    study.set_known_good({"a": 0.1, "b": 0.2}, key="by name")
    study.tell(made, 1.0, {"g": 0.1}, applied={"a": 0.4})
    study.set_guards({"bounds": {"a": [0.5, 1.0]}})
    seq = study.seq
    study.set_known_good(made, key="by suggestion")
    study.set_known_good({"a": 0.1, "b": 0.2}, key="by name")
    assert study.seq == seq
    with pytest.raises(Conflict, match="was used before"):
        study.set_known_good({"a": 0.6, "b": 0.2}, key="by name")
    with pytest.raises(ValueError, match="bounds"):
        study.set_known_good({"a": 0.1, "b": 0.2})
    study.close()


def test_another_definition_is_refused_by_the_place_where_it_differs(tmp_path: Path) -> None:
    problem = pdcbo.Problem({"u": (0.0, 1.0)}, {}, {"e": 1.0})
    Study.open(tmp_path / "s.db", "plant", problem).close()
    for other, words in (
        (
            pdcbo.Problem({"u": (0.0, 1.0)}, {}, {"e": 2.0}),
            r"problem\.constraints\.e\.upper: 1\.0, got 2\.0; set_limits",
        ),
        (pdcbo.Problem({"u": (0.0, 3.0)}, {}, {"e": 1.0}), r"problem\.parameters\.u\.hi: 1\.0, got 3\.0; open it"),
        (pdcbo.Problem({"v": (0.0, 1.0)}, {}, {"e": 1.0}), r"problem\.parameters: \{'u'"),
    ):
        with pytest.raises(Conflict, match=words):
            Study.open(tmp_path / "s.db", "plant", other)


def test_options_of_an_enumeration_of_strings_are_their_strings(tmp_path: Path) -> None:
    class Mode(StrEnum):
        ECO = "eco"
        BOOST = "boost"

    problem = pdcbo.Problem({"mode": pdcbo.Choice(list(Mode)), "u": (0.0, 1.0)}, {}, {"e": 1.0})
    with Study.open(tmp_path / "s.db", "plant", problem) as study:
        study.tell(study.ask(), 1.0, {"e": 0.5}, applied={"mode": Mode.BOOST})
    with Study.open(tmp_path / "s.db", "plant", problem) as study, study.record() as record:
        assert record.last == {"mode": "boost", "u": record.last["u"]}


def test_another_definition_is_a_conflict(store: str) -> None:
    Study.open(store, "plant", PROBLEM, seed=1).close()
    with pytest.raises(Conflict, match="exists with another seed"):
        Study.open(store, "plant", PROBLEM, seed=2)


def test_a_database_of_something_else_is_left_as_it_is(tmp_path: Path) -> None:
    foreign, empty = tmp_path / "other.db", tmp_path / "empty.db"
    with closing(sqlite3.connect(foreign)) as file:
        file.execute("CREATE TABLE parts (name TEXT)")
        file.commit()
    empty.touch()
    for path in (foreign, empty):
        before = path.read_bytes()
        with pytest.raises(StoreError, match="is not a store of studies"):
            Study.open(str(path), "plant")
        assert path.read_bytes() == before
        assert [p.name for p in tmp_path.iterdir() if p.name.startswith(path.name)] == [path.name]


@pytest.mark.parametrize(
    "address",
    ["mysql://u:hunter2@h/db", "postgresql+psycopg://u:hunter2@h/db", "postgresql://u:hunter2%ZZ@127.0.0.1:1/d"],
)
def test_no_password_is_shown(address: str) -> None:
    with pytest.raises((ValueError, StoreError)) as caught:
        Study.open(address, "plant", PROBLEM)
    assert "hunter2" not in str(caught.value)


def test_first_calls_at_once_start_one_thread() -> None:
    before = {t for t in threading.enumerate() if t.name == "pdcbo-model"}
    for _ in range(50):
        worker, barrier = Worker(), threading.Barrier(4)

        def submit(worker: Worker = worker, barrier: threading.Barrier = barrier) -> None:
            barrier.wait()
            worker.submit(lambda: None).result(5.0)

        threads = [threading.Thread(target=submit) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        worker.stop(5.0)
    assert {t for t in threading.enumerate() if t.name == "pdcbo-model"} <= before


def picture(study: Study) -> dict[str, Any]:
    with study.record() as record:
        return {**record.state(), "seq": record.seq, "open": dict(record.open), "running": record.running(),
                "problem": record.book.problem.to_json(), "ledger": record.book.ledger.state()}  # fmt: skip


@pytest.mark.parametrize("order", ["pause", "return"])
def test_a_checkpoint_holds_all_that_the_journal_does(store: str, order: str) -> None:
    study = Study.open(store, "plant", PROBLEM, optimizer="random", guards={"max_change": {"a": 0.1}})
    study.observe({"a": 0.1, "b": 0.3}, {"c": 0.2}, objective=0.7)
    asked = [study.ask(context(t)) for t in range(5)]
    study.tell(asked[2], 1.0, {"g": 0.1}, applied={"a": 0.5})
    study.tell(asked[1], 1.0, {"g": 0.2})
    study.fail(asked[3], "refused", applied=False)
    study.set_limits({"g": 0.4})
    study.set_known_good({"a": 0.2, "b": 1.5})
    study.set_guards({"max_change": {"b": 0.25}, "fallback": {"a": 0.5, "b": 1.0}})
    if order == "pause":
        study.pause("lunch")
    else:
        study.return_to_known_good("smoke")
    study.checkpoint()
    expected = picture(study)
    assert expected["running"] == [{**asked[2].parameters, "a": 0.5}, asked[4].parameters]
    study.close()
    with Study.open(store, "plant") as restored:
        assert picture(restored) == expected
        restored.journal.database.execute("DELETE FROM checkpoints")
    with Study.open(store, "plant") as replayed:
        assert picture(replayed) == expected


def test_checkpoints_are_written_by_themselves_and_only_newer_ones_are_kept(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("pdcbo.store.core.CHECKPOINT_EVENTS", 10)
    study = Study.open(tmp_path / "plant.db", "plant", PROBLEM, optimizer="random")
    for t in range(8):
        study.tell(study.ask(context(t)), 1.0, {"g": 0.1})
    study.close()  # which lets the worker finish
    saved = study.journal.checkpoint(1)
    assert saved is not None
    assert saved[0] >= 10
    study.journal.save_checkpoint(1, saved[0] - 1, {"format": "an older one"})
    assert study.journal.checkpoint(1) == saved


def test_a_checkpoint_of_another_format_is_passed_over(tmp_path: Path) -> None:
    study = Study.open(tmp_path / "plant.db", "plant", PROBLEM, optimizer="random")
    study.tell(study.ask(context(0)), 1.0, {"g": 0.1})
    expected = picture(study), study.state()
    study.journal.save_checkpoint(1, study.seq, {"format": "0.0", "record": None, "optimizer": None})
    study.close()
    with Study.open(tmp_path / "plant.db", "plant") as again:
        assert (picture(again), again.state()) == expected


def test_a_model_that_failed_half_way_is_built_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It fails between counting a step and learning from it: counted once all the same."""

    class Tripping(pdcbo.PDCBO):
        name = "tripping"
        trips = False

        def _learn(self, x: Array, y: Array) -> int | None:
            if self.trips:
                raise np.linalg.LinAlgError("the matrix is not positive definite")
            return super()._learn(x, y)

    monkeypatch.setitem(OPTIMIZERS, "tripping", Tripping)
    bare, study = Tripping(PROBLEM), Study.open(tmp_path / "plant.db", "plant", PROBLEM, optimizer="tripping")
    for tuner in (bare, study):
        tuner.tell(tuner.ask({"c": 0.5}), 1.0, {"g": 0.9})
        waiting = tuner.ask({"c": 0.5})
        tuner.tell(waiting, 1.0, {"g": 0.9})
    monkeypatch.setattr(Tripping, "trips", True)
    with pytest.raises(np.linalg.LinAlgError):
        study.state()
    monkeypatch.setattr(Tripping, "trips", False)
    assert encode(study.state()) == encode(bare.state())


def test_a_commit_is_one_to_disk_whatever_the_server_has_for_a_default(store: str) -> None:
    if store.startswith("postgresql"):
        store += "%20-csynchronous_commit%3Doff"
    with Study.open(store, "plant", PROBLEM, optimizer="random") as study:
        execute = study.journal.database.execute
        if store.startswith("postgresql"):
            assert execute("SHOW synchronous_commit") == [("on",)]
        else:
            assert [execute(f"PRAGMA {name}")[0][0] for name in ("synchronous", "journal_mode")] == [2, "wal"]


def test_where_a_step_ran_stays_as_first_told(tmp_path: Path) -> None:
    with Study.open(tmp_path / "plant.db", "plant", PROBLEM, optimizer="random") as study:
        s = study.ask(context(0))
        study.tell(s, 1.0, {"g": 0.1}, applied={"a": 0.5})
        with pytest.raises(Conflict, match="the parameters and the context that it ran with stay as first told"):
            study.tell(s, 1.0, {"g": 0.1}, applied={"a": 0.6})
        with pytest.raises(Conflict, match=r"use correct\(\)"):
            study.tell(s, 2.0, {"g": 0.1}, applied={"a": 0.5})


def test_a_snapshot_is_the_state_of_its_moment(tmp_path: Path) -> None:
    with Study.open(tmp_path / "plant.db", "plant", PROBLEM, horizon=50) as study:
        drive(study, 0, 9)
        study.ask(context(9))
        with study.optimizer() as optimizer:
            state, later = encode(optimizer.state()), snapshot(optimizer)
        study.correct(1, objective=0.25)
        study.set_limits({"g": pdcbo.Constraint(upper=0.4, noise=0.2)})
        study.observe({"a": 0.1, "b": 0.3}, {"c": 0.2}, objective=0.7)
        study.tell(10, 1.0, {"g": 0.1})
        drive(study, 10, 14)
        assert encode(study.state()) != state
        assert encode(later()) == state
        assert _encode_in_parts(later(), PARTS) == state


@pytest.fixture
def slow_checkpoint(monkeypatch: pytest.MonkeyPatch) -> dict[str, threading.Event]:
    """Checkpoints that are due after ten events, and reach the disk when they are let."""
    monkeypatch.setattr("pdcbo.store.core.CHECKPOINT_EVENTS", 10)
    events, save = {"begun": threading.Event(), "ready": threading.Event()}, Journal.save_checkpoint

    def wait(journal: Journal, study: int, seq: int, state: Any) -> None:
        events["begun"].set()
        assert events["ready"].wait(60)
        save(journal, study, seq, state)

    monkeypatch.setattr(Journal, "save_checkpoint", wait)
    return events


def until_begun(study: Study, checkpoint: dict[str, threading.Event]) -> int:
    """Drive a study until a checkpoint is being written; one that a new event overtakes is left to the next."""
    for t in range(200):
        drive(study, t, t + 1)
        if t >= 5 and checkpoint["begun"].wait(0.3):
            return t + 1
    raise AssertionError("no checkpoint was begun")


def test_nobody_waits_for_a_checkpoint_and_it_is_of_its_seq(
    tmp_path: Path, slow_checkpoint: dict[str, threading.Event]
) -> None:
    guards = {"fallback": {"a": 0.0, "b": 0.0}}
    study = Study.open(tmp_path / "plant.db", "plant", PROBLEM, optimizer="random", guards=guards)
    first = until_begun(study, slow_checkpoint)
    for t in range(first, first + 6):  # while it is being written
        s = study.ask(context(t), deadline=10.0)
        assert study.events()[-1].payload["origin"] == "model"
        study.tell(s, *answer(s.parameters, s.context, t))
    assert study.journal.checkpoint(1) is None
    expected = encode(study.state()), picture(study)
    slow_checkpoint["ready"].set()
    study.close()  # which lets it be written
    saved = study.journal.checkpoint(1)
    assert saved is not None
    assert 10 < saved[0] < study.seq
    assert len(saved[1]["optimizer"]["ledger"]["steps"]) == sum(e.kind == "ask" for e in study.events()[: saved[0]])
    with Study.open(tmp_path / "plant.db", "plant") as restored:
        assert (encode(restored.state()), picture(restored)) == expected
    study.close()


def test_a_checkpoint_that_outlasts_its_study_leaves_no_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, slow_checkpoint: dict[str, threading.Event]
) -> None:
    monkeypatch.setattr("pdcbo.store.study.STOP_SECONDS", 0.01)
    study = Study.open(tmp_path / "plant.db", "plant", PROBLEM, optimizer="random")
    until_begun(study, slow_checkpoint)
    clerk = study._clerk._thread
    assert clerk is not None
    study.close()
    slow_checkpoint["ready"].set()
    clerk.join(60)
    assert isinstance(study.journal.database, SqliteBackend)
    assert study.journal.database._connection is None
    assert study.journal.checkpoint(1) is not None
    study.close()


def test_checkpoints_are_a_small_share_of_the_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Study.open(tmp_path / "plant.db", "plant", PROBLEM, optimizer="random") as study:
        drive(study, 0, 4)
        written: list[int] = []
        monkeypatch.setattr(study, "_checkpoint_quietly", lambda: written.append(study.seq))
        study._follower.checkpoint_seconds = 1.0
        for seconds, due in ((5.0, 0), (19.0, 0), (21.0, 1)):
            study._follower.replay_seconds = study._follower.spared_seconds + seconds
            study.ask(context(5))
            study._clerk.submit(lambda: None).result(60)
            assert len(written) == due


def test_a_model_restored_from_its_checkpoint_has_nothing_to_replay(tmp_path: Path, monkeypatch: Any) -> None:
    with Study.open(tmp_path / "plant.db", "plant", PROBLEM, optimizer="random") as study:
        drive(study, 0, 4)
        study.checkpoint()
        assert study._follower.checkpoint_seconds > 0.0
        assert study._follower.spared_seconds == study._follower.replay_seconds
    restore = pdcbo.Random.restore
    monkeypatch.setattr(pdcbo.Random, "restore", lambda state: (time.sleep(0.5), restore(state))[1])
    with Study.open(tmp_path / "plant.db", "plant") as study:
        study.state()
        assert study._follower.replay_seconds < 0.25


class Forgetful:
    """A connection that commits and, if told so, loses the answer."""

    def __init__(self, path: str, forget: list[bool]) -> None:
        self.real, self.forget = connect_sqlite(path), forget

    def execute(self, sql: str, values: tuple[Any, ...] = ()) -> Any:
        result = self.real.execute(sql, values)
        if sql == "COMMIT" and self.forget:
            self.forget.clear()
            raise sqlite3.OperationalError("disk I/O error")
        return result

    def close(self) -> None:
        self.real.close()


CALLS: dict[str, Any] = {
    "ask": lambda s: s.ask(context(0)),
    "observe": lambda s: s.observe({"a": 0.1, "b": 0.3}, {"c": 0.2}, objective=0.7),
    "correct": lambda s: s.correct(1, objective=0.5),
    "limits": lambda s: s.set_limits({"g": 0.4}),
    "pause": lambda s: s.pause("lunch"),
    "known-good": lambda s: s.set_known_good(1),
}


@pytest.mark.parametrize("call", CALLS)
def test_a_call_whose_answer_the_disk_lost_counts_once_when_repeated(tmp_path: Path, call: str) -> None:
    forget: list[bool] = []
    journal = Journal(SqliteBackend(str(tmp_path / "plant.db"), connect=lambda path: Forgetful(path, forget)))
    with Study.open(journal, "plant", PROBLEM, optimizer="random") as study:
        study.tell(study.ask(context(1)), 1.0, {"g": 0.1})
        before = study.seq
        forget.append(True)
        with pytest.raises(StoreError, match="may be repeated, with the same key where it takes one"):
            CALLS[call](study)
        again = CALLS[call](study)
        assert study.seq == before + 1
        assert call != "ask" or study.pending == [again]
        CALLS[call](study)  # a new one
        assert study.seq == before + 2
        forget.append(True)
        with pytest.raises(StoreError):
            CALLS[call](study)
        study.observe({"a": 0.9, "b": 0.3}, {"c": 0.2}, objective=0.7)
        CALLS[call](study)  # another call came between: it is a new one
        assert study.seq == before + 5


@pytest.mark.parametrize("store", ["postgresql"], indirect=True)
def test_nobody_waits_for_ever_on_postgresql(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import psycopg

    with Study.open(store, "plant", PROBLEM, optimizer="random") as study:
        execute = study.journal.database.execute
        for name, value in (("lock_timeout", "30s"), ("statement_timeout", "1min")):
            assert execute(f"SHOW {name}") == [(value,)]
        given = study.journal.database._connection.info.get_parameters()
        assert {"keepalives_idle": "10", "tcp_user_timeout": "30000"}.items() <= given.items()
        s = study.ask(context(0))
        study.close()
        monkeypatch.setattr("pdcbo.store.backends.BUSY_SECONDS", 0.2)
        monkeypatch.setattr("pdcbo.store.backends.STATEMENT_SECONDS", 0.5)
        with psycopg.connect(store) as other:  # which stands still inside a transaction
            other.execute("SELECT id FROM studies FOR UPDATE")
            with pytest.raises(StoreError, match=r"(?s)lock timeout.*may be repeated"):
                study.tell(s, 1.0, {"g": 0.1})
        with pytest.raises(StoreError, match=r"(?s)statement timeout.*may be repeated"):
            execute("SELECT pg_sleep(5)")
        study.tell(s, 1.0, {"g": 0.1})
        assert study.step == 1


def test_a_study_that_nobody_holds_any_more_is_closed(tmp_path: Path) -> None:
    study = Study.open(tmp_path / "plant.db", "plant", PROBLEM, optimizer="random")
    study.close_when_unused()
    before = {thread for thread in threading.enumerate() if thread.name == "pdcbo-model"}
    study.ask(context(0), deadline=60.0)
    study.prepare()
    [thread] = {thread for thread in threading.enumerate() if thread.name == "pdcbo-model"} - before
    database = study.journal.database
    assert isinstance(database, SqliteBackend)
    assert database._connection is not None
    gc.disable()  # the last user closes it, not some later collection
    try:
        del study
        thread.join(60)
    finally:
        gc.enable()
    assert not thread.is_alive()
    assert database._connection is None


def test_a_file_that_is_no_store_is_not_asked_again(tmp_path: Path) -> None:
    (tmp_path / "junk.db").write_text("hello, this is not a database at all")
    with pytest.raises(StoreError, match="it is no store or a damaged one") as caught:
        Study.open(tmp_path / "junk.db", "plant", PROBLEM)
    assert "may be repeated" not in str(caught.value)
