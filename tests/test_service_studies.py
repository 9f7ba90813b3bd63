"""Which studies the service has open, the list of them, and what its pages and orders refuse."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from store_tools import PROBLEM, context, served

import pdcbo
from pdcbo.service import registry as registry_module
from pdcbo.service.registry import Registry
from pdcbo.store import Study, open_journal

API = "/api/v1/studies"


@pytest.fixture
def address(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/service.db"


@pytest.fixture
def two_kept(address: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Registry]:
    """A registry that keeps two studies open, on a store of six."""
    monkeypatch.setattr(registry_module, "KEPT", 2)
    fill(address, 6)
    studies = Registry(address)
    yield studies
    studies.close()


def fill(address: str, count: int) -> None:
    for i in range(count):
        Study.open(address, f"s{i}", PROBLEM, optimizer="random").close()


def names(studies: Registry) -> set[str]:
    gc.collect()
    return {study.name for study in studies.open_studies()}


def test_idle_studies_beyond_those_used_last_are_closed(two_kept: Registry) -> None:
    threads = threading.active_count()
    held = two_kept.get("s0")
    databases = {}
    for name in two_kept.names():
        study = two_kept.get(name)
        study.ask(context(0), deadline=60.0)  # in a thread of its own
        databases[name] = study.journal.database
        del study
    assert names(two_kept) == {"s0", "s4", "s5"}
    assert two_kept.get("s0") is held, "one in use stays the same, and open"
    assert held.seq == 2
    assert {name for name, each in databases.items() if each._connection is not None} >= {"s0"}
    assert [databases[name]._connection for name in ("s1", "s2", "s3")] == [None] * 3
    for _ in range(500):
        if threading.active_count() <= threads + 3:
            break
        time.sleep(0.01)
    assert threading.active_count() <= threads + 3
    assert two_kept.get("s1").seq == 2


def test_closing_and_opening_at_once_lose_nothing(two_kept: Registry) -> None:
    failures: list[BaseException] = []

    def work(worker: int) -> None:
        try:
            for t in range(12):
                study = two_kept.get(f"s{(worker + t) % 6}")
                study.tell(study.ask(context(t), key=f"{worker}-{t}"), 1.0, {"g": 0.1})
                study.prepare()
        except BaseException as error:
            failures.append(error)

    workers = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    assert not failures
    assert sum(two_kept.get(name).step for name in two_kept.names()) == 48
    for _ in range(500):
        if len(names(two_kept)) <= 2:
            break
        time.sleep(0.01)
    assert len(names(two_kept)) == 2


def test_a_live_stream_keeps_its_study(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry_module, "KEPT", 1)
    fill(address, 3)
    with (
        served(address) as url,
        httpx.stream("GET", f"{url}{API}/s0/stream", params={"after": 1}, timeout=20) as stream,
    ):
        lines = stream.iter_lines()
        assert next(lines) == "retry: 1000"
        for name in ("s1", "s2", "s1", "s0"):
            assert httpx.post(f"{url}{API}/{name}/ask", json={"context": {"c": 0.5}}).status_code == 200
        assert "id: 2" in (line for line in lines if line.startswith("id: "))


def test_one_unreadable_study_does_not_hide_the_others(address: str) -> None:
    fill(address, 3)
    journal = open_journal(address)
    journal.database.execute("UPDATE events SET payload = '{}' WHERE study_id = 2")
    journal.close()
    with served(address) as url:
        page = httpx.get(url)
        assert page.status_code == 200
        assert [page.text.count(f'href="/studies/s{i}"') for i in range(3)] == [2, 2, 2]  # a card and a link
        assert page.text.count("Cannot be read") == page.text.count("It cannot be read: ") == 1


def test_the_list_opens_what_changed_and_closes_nothing_that_is_used(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry_module, "KEPT", 1)
    fill(address, 4)
    opened: list[str] = []
    real = Study.open.__func__
    monkeypatch.setattr(
        Study, "open", classmethod(lambda c, s, name, *a, **k: opened.append(name) or real(c, s, name, *a, **k))
    )
    with served(address) as url:
        assert httpx.post(f"{url}{API}/s2/ask", json={"context": {"c": 0.5}}).status_code == 200
        assert httpx.get(url).status_code == 200
        assert sorted(opened) == ["s0", "s1", "s2", "s3"]
        opened.clear()
        assert httpx.post(f"{url}{API}/s2/ask", json={"context": {"c": 0.5}}).status_code == 200
        assert httpx.get(url).status_code == 200
        assert opened == []
        with Study.open(address, "s1") as other:  # as another process would
            other.ask({"c": 0.5})
        opened.clear()
        assert "waiting for a result" not in httpx.get(url).text
        assert opened == ["s1"]
        now = time.time()
        monkeypatch.setattr(time, "time", lambda: now + 7200.0)
        assert httpx.get(url).text.count("waiting for a result") == 2
        assert opened == ["s1"], "ages need no opening"


def test_a_key_of_a_wrong_type_is_refused_as_such(service: str) -> None:
    with pdcbo.connect(service, "plant", PROBLEM, optimizer="random") as remote:
        remote.ask({"c": 0.5})
        for body in ({"suggestion": 1}, {"parameters": {"a": 0.5, "b": 0.5}}):
            refused = httpx.put(f"{service}{API}/plant/known-good", json={**body, "key": [1]})
            assert (refused.status_code, refused.json()["kind"]) == (422, "type")
            assert "key must be a string, got [1]" in refused.json()["error"]
        assert remote.status()["seq"] == 2


def test_a_sign_in_reads_no_more_than_a_token_may_have(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = open_journal(address)
    journal.add_token("plant", "secret")
    journal.close()
    parsed: list[int] = []
    from pdcbo.service import pages

    real = pages.parse_qs
    monkeypatch.setattr(pages, "parse_qs", lambda text: parsed.append(len(text)) or real(text))
    with served(address, require_token=True) as url:
        form = {"Content-Type": "application/x-www-form-urlencoded"}
        assert httpx.post(f"{url}/login", content=b"token=secret&" + b"&" * 4000, headers=form).status_code == 303
        parsed.clear()
        for body in (b"&" * 4097, (b"&" * 4096 for _ in range(200)), b"a=1&" * 200_000):
            refused = httpx.post(f"{url}/login", content=body, headers=form)
            assert refused.status_code == 413
            assert "longer than any token" in refused.text
        assert parsed == []
