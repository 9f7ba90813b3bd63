"""The tables of a store, by version, and the way from each version to the next.

A new store runs every migration from the first; an old one those it has not seen, in one transaction. A store written
by a newer release is refused and left as it is.

    version 1   studies, events (the journal: the truth), checkpoints (a shortcut that may be deleted at any time)
    version 2   tokens of the service, as hashes

The two databases differ in the words for a big counter, a double and a blob; the statements are templates over them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

VERSION = 2

MIGRATIONS: dict[int, tuple[str, ...]] = {
    1: (
        "CREATE TABLE studies (id {serial}, name TEXT NOT NULL UNIQUE, created {double} NOT NULL)",
        "CREATE TABLE events ("
        " study_id {bigint} NOT NULL REFERENCES studies (id), seq {bigint} NOT NULL, kind TEXT NOT NULL,"
        " payload TEXT NOT NULL, client_key TEXT, time {double} NOT NULL, PRIMARY KEY (study_id, seq))",
        "CREATE UNIQUE INDEX events_by_key ON events (study_id, client_key) WHERE client_key IS NOT NULL",
        "CREATE TABLE checkpoints ("
        " study_id {bigint} PRIMARY KEY REFERENCES studies (id), seq {bigint} NOT NULL, state TEXT NOT NULL)",
    ),
    2: ("CREATE TABLE tokens (name TEXT PRIMARY KEY, hash TEXT NOT NULL, created {double} NOT NULL)",),
}

Execute = Callable[..., list[Any]]


class SchemaError(RuntimeError):
    """Say that a store was written by a release that this one cannot read."""


def migrate(execute: Execute, words: dict[str, str], target: int = VERSION) -> int:
    """Bring a store to a version, inside the caller's transaction, and return the version found.

    Args:
        execute: runs one statement and returns its rows.
        words: the dialect's words for the templates.
        target: the version to reach; an older one is for tests of the migrations themselves.

    Raises:
        SchemaError: the store is newer than this release.
    """
    execute("CREATE TABLE IF NOT EXISTS schema_version (version {bigint} NOT NULL)".format(**words))
    rows = execute("SELECT MAX(version) FROM schema_version")
    found = int(rows[0][0] or 0)
    if found > VERSION:
        raise SchemaError(
            f"the store has schema version {found}; this release reads up to {VERSION}: upgrade pdcbo to open it"
        )
    for version in range(found + 1, target + 1):
        for statement in MIGRATIONS[version]:
            execute(statement.format(**words))
        execute(f"INSERT INTO schema_version (version) VALUES ({version})")
    return found
