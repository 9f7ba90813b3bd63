"""The journal: every event of every study, in order, append-only, and checkpoints that shorten its replay.

    event   (seq, kind, payload, key, time): seq counts 1, 2, 3, ... without a gap within a study; key is the client's
            name for the call, so that a repeated call finds its first answer; time is the wall clock, for people only

Concurrency contract. `writing(study)` is the one way to append: it holds the study's write lock until COMMIT has
returned, so whoever reads the latest seq inside it and appends seq + 1 can neither lose nor double an event, whatever
other threads, processes or machines do. Reading needs no lock: events never change once they are there.
"""

from __future__ import annotations

import hashlib
import json
import time
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from pdcbo.store.backends import Backend
from pdcbo.store.failpoints import failpoint

COLUMNS = "seq, kind, payload, client_key, time"
PARTS = 4  # levels of a checkpoint down to a single step


@dataclass(frozen=True)
class Event:
    """One line of the journal."""

    seq: int
    kind: str
    payload: dict[str, Any]
    key: str | None
    time: float

    def to_json(self) -> dict[str, Any]:
        """Describe the event in JSON."""
        return {"seq": self.seq, "kind": self.kind, "payload": self.payload, "key": self.key, "time": self.time}


class Journal:
    """The events of all studies in one database."""

    def __init__(self, database: Backend) -> None:
        self.database = database

    def studies(self) -> list[str]:
        """Name the studies, oldest first."""
        return [row[0] for row in self.database.execute("SELECT name FROM studies ORDER BY id")]

    def find(self, name: str) -> int | None:
        """Return a study's id, or None where there is no such study."""
        rows = self.database.execute("SELECT id FROM studies WHERE name = ?", (name,))
        return int(rows[0][0]) if rows else None

    def create(self, name: str, payload: dict[str, Any]) -> int:
        """Enter a new study with its first event and return its id; inside a transaction of the caller."""
        self.database.execute("INSERT INTO studies (name, created) VALUES (?, ?)", (name, time.time()))
        study = self.find(name)
        assert study is not None
        self.append(study, Event(1, "created", payload, None, time.time()))
        return study

    def lock_names(self) -> None:
        """Keep others from creating studies until the caller's transaction ends."""
        if self.database.lock_clause:
            self.database.execute("LOCK TABLE studies IN SHARE ROW EXCLUSIVE MODE")

    @contextmanager
    def writing(self, study: int) -> Iterator[int]:
        """Hold the write lock of a study and give its latest seq; everything appended is on disk at the end."""
        with self.database.transaction():
            self.database.execute("SELECT id FROM studies WHERE id = ?" + self.database.lock_clause, (study,))
            yield self.latest(study)
            failpoint("before-commit")
        failpoint("after-commit")

    def latest(self, study: int) -> int:
        """Return the seq of the latest event."""
        return int(self.database.execute("SELECT MAX(seq) FROM events WHERE study_id = ?", (study,))[0][0])

    def append(self, study: int, event: Event) -> None:
        """Append one event inside `writing`."""
        self.database.execute(
            f"INSERT INTO events (study_id, {COLUMNS}) VALUES (?, ?, ?, ?, ?, ?)",
            (study, event.seq, event.kind, encode(event.payload), event.key, event.time),
        )
        failpoint("after-append")

    def events(self, study: int, after: int = 0, limit: int | None = None) -> list[Event]:
        """Return the events after a seq, in order."""
        rows = self.database.execute(
            f"SELECT {COLUMNS} FROM events WHERE study_id = ? AND seq > ? ORDER BY seq LIMIT ?",
            (study, after, 2**31 if limit is None else limit),
        )
        return [_event(row) for row in rows]

    def by_key(self, study: int, key: str) -> Event | None:
        """Return the event that a client's key named, if there is one."""
        rows = self.database.execute(
            f"SELECT {COLUMNS} FROM events WHERE study_id = ? AND client_key = ?", (study, key)
        )
        return _event(rows[0]) if rows else None

    def checkpoint(self, study: int) -> tuple[int, dict[str, Any]] | None:
        """Return the latest checkpoint and its seq, or None where there is none that is whole."""
        rows = self.database.execute("SELECT seq, state FROM checkpoints WHERE study_id = ?", (study,))
        if not rows:
            return None
        check, _, text = rows[0][1].partition(" ")
        if check != f"{zlib.crc32(text.encode()):08x}":
            return None
        return int(rows[0][0]), json.loads(text)

    def save_checkpoint(self, study: int, seq: int, state: Mapping[str, Any]) -> None:
        """Keep a checkpoint unless a later one is there."""
        text = _encode_in_parts(state, PARTS)
        with self.database.transaction():
            self.database.execute(
                "INSERT INTO checkpoints (study_id, seq, state) VALUES (?, ?, ?) ON CONFLICT (study_id) DO UPDATE"
                " SET seq = excluded.seq, state = excluded.state WHERE excluded.seq > checkpoints.seq",
                (study, seq, f"{zlib.crc32(text.encode()):08x} {text}"),
            )

    def add_token(self, name: str, token: str) -> None:
        """Keep the hash of a token; the token itself is kept nowhere."""
        with self.database.transaction():
            self.database.execute("DELETE FROM tokens WHERE name = ?", (name,))
            self.database.execute(
                "INSERT INTO tokens (name, hash, created) VALUES (?, ?, ?)", (name, hash_token(token), time.time())
            )

    def remove_token(self, name: str) -> bool:
        """Forget a token; tell whether there was one of that name."""
        with self.database.transaction():
            there = bool(self.database.execute("SELECT 1 FROM tokens WHERE name = ?", (name,)))
            self.database.execute("DELETE FROM tokens WHERE name = ?", (name,))
        return there

    def tokens(self) -> dict[str, str]:
        """Return name -> hash of every token."""
        return {row[0]: row[1] for row in self.database.execute("SELECT name, hash FROM tokens ORDER BY name")}

    def close(self) -> None:
        """Close the database."""
        self.database.close()


def hash_token(token: str) -> str:
    """Hash a token; it has 256 random bits, so that a plain hash cannot be searched."""
    return hashlib.sha256(token.encode()).hexdigest()


def encode(payload: Any) -> str:
    """Write JSON in ASCII without NaN: what is written can be read by any database and any parser."""
    return json.dumps(payload, allow_nan=False, separators=(",", ":"))


def _encode_in_parts(value: Any, levels: int) -> str:
    """Write JSON as `encode` does, but the upper levels piece by piece: one long call would hold up all threads."""
    if levels and isinstance(value, Mapping):
        return "{" + ",".join(f"{json.dumps(k)}:{_encode_in_parts(v, levels - 1)}" for k, v in value.items()) + "}"
    if levels and isinstance(value, list):
        return "[" + ",".join(_encode_in_parts(v, levels - 1) for v in value) + "]"
    return encode(value)


def _event(row: Any) -> Event:
    return Event(int(row[0]), row[1], json.loads(row[2]), row[3], float(row[4]))
