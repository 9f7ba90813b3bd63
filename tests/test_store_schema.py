"""Every released version of the store opens; a newer one is refused; migrations keep what is there."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from store_tools import PROBLEM, context

from pdcbo.store import Journal, SchemaError, Study
from pdcbo.store.backends import PostgresBackend, SqliteBackend
from pdcbo.store.journal import hash_token
from pdcbo.store.schema import MIGRATIONS, VERSION

FIXTURES = sorted((Path(__file__).parent / "fixtures").glob("store-*.sql"))


def test_every_version_has_a_migration() -> None:
    assert list(MIGRATIONS) == list(range(1, VERSION + 1))
    assert FIXTURES


@pytest.mark.parametrize("name", ["pdcbo", "random"])
@pytest.mark.parametrize("fixture", FIXTURES, ids=lambda p: p.stem)
def test_a_released_store_opens_and_goes_on(fixture: Path, name: str, tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    connection = sqlite3.connect(path)
    connection.executescript(fixture.read_text())
    connection.close()
    study = Study.open(path, name)
    assert study.step == 7
    assert [s.id for s in study.pending] == [8]
    assert study.problem.constraints["g"].upper == 0.45
    with study.record() as record:
        assert record.known_good == {"a": 0.2, "b": 1.5}
        assert record.paused is None
        assert record.guards.fallback == {"a": 0.5, "b": 1.0}
        assert record.notes[1]["tell"]["reference"] == 0.1
        assert record.warm == 1
        assert record.book.ledger.steps[2].y[0] == 0.3
    again = study.ask(context(0), key="key-0")
    assert again.id == 1
    study.tell(study.pending[0], 0.2, {"g": 0.3})
    s = study.ask(context(9))
    assert s.id == 9
    assert study.step == 8
    assert study.journal.tokens() == {"plant": hash_token("not-a-secret")}
    study.close()


def backend(address: str, schema: int) -> SqliteBackend | PostgresBackend:
    if address.startswith("sqlite"):
        return SqliteBackend(address.removeprefix("sqlite:///"), schema=schema)
    return PostgresBackend(address, schema=schema)


def test_migration_keeps_every_event(store: str) -> None:
    journal = Journal(backend(store, 1))
    study = Study.open(journal, "plant", PROBLEM, optimizer="random")
    study.tell(study.ask({"c": 0.5}), 1.0, {"g": 0.1})
    events = study.events()
    assert journal.database.execute("SELECT version FROM schema_version") == [(1,)]
    study.close()
    with Study.open(store, "plant") as migrated:
        assert migrated.events() == events
        assert [r[0] for r in migrated.journal.database.execute("SELECT version FROM schema_version")] == [1, 2]
        assert migrated.journal.tokens() == {}


def test_a_newer_store_is_refused_and_left_alone(store: str) -> None:
    study = Study.open(store, "plant", PROBLEM, optimizer="random")
    study.journal.database.execute("INSERT INTO schema_version (version) VALUES (99)")
    study.close()
    for _ in range(2):
        with pytest.raises(SchemaError, match="schema version 99; this release reads up to"):
            Study.open(store, "plant")
        with pytest.raises(SchemaError, match="schema version 99"):
            Study.open(store, "plant", PROBLEM, optimizer="random")
