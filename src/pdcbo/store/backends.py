"""The two databases behind a journal: SQLite (a file) and PostgreSQL (a server that several machines share).

A backend runs statements with `?` for values and gives transactions that write. Nothing is acknowledged before COMMIT
has returned, and COMMIT returns once the data are on disk:

    SQLite       WAL with synchronous=FULL; BEGIN IMMEDIATE, so that two writers queue instead of failing half-way
    PostgreSQL   synchronous_commit=on; the study's row is locked by the journal, so that writers of one study queue

Nobody waits for ever: for another writer 30 seconds, for a server's answer a minute, and half of one if it is gone.
After an error inside a transaction the connection is given up and opened again at the next use: what a database says
about a transaction whose commit failed is not to be relied on.
"""

from __future__ import annotations

import os
import re
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from threading import RLock
from typing import Any, ClassVar, Protocol
from urllib.parse import quote, unquote, urlsplit

from pdcbo.store.schema import VERSION, migrate

BUSY_SECONDS = 30.0
STATEMENT_SECONDS = 60.0
# of a server that is gone without a word: asked after 10 s, three times, given up after 30 s
KEEPALIVES: dict[str, Any] = {
    "keepalives_idle": 10, "keepalives_interval": 5, "keepalives_count": 3, "tcp_user_timeout": 30_000,
}  # fmt: skip
REPEAT = (
    "nothing was acknowledged, the call may be repeated, with the same key where it takes one, or it could count twice"
)


class StoreError(RuntimeError):
    """Say that the store could not be read or written; nothing of the call was acknowledged.

    The call may be repeated: a tell or a fail as it is, any other with the same key, or it could count twice.
    """


class Backend(Protocol):
    """What a journal needs of a database."""

    lock_clause: str

    def execute(self, sql: str, values: tuple[Any, ...] = ()) -> list[Any]:
        """Run one statement and return its rows."""
        ...

    def transaction(self) -> Any:
        """Return a context manager: committed to disk at its end, undone on any error."""
        ...

    def close(self) -> None:
        """Close the connection; the next use opens it again."""
        ...


class _Base(ABC):
    """One connection that is opened when needed and given up after an error; calls from several threads queue."""

    words: ClassVar[dict[str, str]]
    has_schema: ClassVar[str]
    lock_clause = ""
    errors: tuple[type[BaseException], ...] = ()

    def __init__(self, where: str, schema: int = VERSION) -> None:
        self.where = where
        self._schema = schema
        self._lock = RLock()
        self._connection: Any = None
        self._inside = False

    def execute(self, sql: str, values: tuple[Any, ...] = ()) -> list[Any]:
        """Run one statement and return its rows."""
        with self._lock:
            if self._inside:
                return self._run(sql, values)
            try:
                self._open()
                return self._run(sql, values)
            except self.errors as error:
                self.close()
                raise self._explain(error) from error

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Commit to disk at the end, or undo everything on any error."""
        with self._lock:
            if self._inside:
                yield
                return
            try:
                self._open()
                self._begin()
                self._inside = True
                yield
                self._run("COMMIT", ())
                self._inside = False
            except BaseException as error:
                self._inside = False
                if isinstance(error, self.errors):
                    self.close()
                    raise self._explain(error) from error
                self._undo()
                raise

    def close(self) -> None:
        """Close the connection; the next use opens it again."""
        with self._lock:
            connection, self._connection = self._connection, None
            if connection is not None:
                with suppress(*self.errors):
                    connection.close()

    def _undo(self) -> None:
        if self._connection is None:  # it could not be opened, for a reason of its own
            return
        try:
            self._run("ROLLBACK", ())
        except self.errors:
            self.close()

    def _open(self) -> None:
        if self._connection is not None:
            return
        self._connection = self._connect()
        try:
            if not self._run(self.has_schema) or self._version() != self._schema:
                self._begin()
                self._lock_schema()
                migrate(self._run, self.words, self._schema)
                self._run("COMMIT", ())
        except BaseException:
            self.close()
            raise

    def _version(self) -> int:
        return int(self._run("SELECT MAX(version) FROM schema_version")[0][0] or 0)

    @abstractmethod
    def _lock_schema(self) -> None:
        """Keep two processes from creating the same tables."""

    def _explain(self, error: BaseException) -> StoreError:
        return StoreError(f"the store {self.where} failed: {error}; {REPEAT}")

    @abstractmethod
    def _connect(self) -> Any:
        """Open a connection that commits to disk."""

    @abstractmethod
    def _begin(self) -> None:
        """Begin a transaction that writes."""

    @abstractmethod
    def _run(self, sql: str, values: tuple[Any, ...] = ()) -> list[Any]:
        """Run one statement on the open connection."""


# a path that begins with one of these is an address that lacks its slashes
SCHEMES = ("sqlite:", "postgresql:", "postgres:", "file:")


def connect_sqlite(path: str) -> Any:
    """Open a file with the standard library's SQLite; transactions are stated, never implied."""
    return sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=BUSY_SECONDS)


class SqliteBackend(_Base):
    """A file.

    Args:
        path: of the file; it is created where it does not exist.
        connect: opens the file; fault tests pass a driver whose file system fails.
        errors: the driver's errors.
        synchronous: "FULL"; the power-cut test passes "NORMAL" to show that it would notice.
    """

    words: ClassVar = {"serial": "INTEGER PRIMARY KEY", "bigint": "INTEGER", "double": "REAL"}
    has_schema = "SELECT 1 FROM sqlite_master WHERE name = 'schema_version'"

    def __init__(
        self,
        path: str,
        connect: Callable[[str], Any] = connect_sqlite,
        errors: tuple[type[BaseException], ...] = (sqlite3.Error,),
        synchronous: str = "FULL",
        schema: int = VERSION,
    ) -> None:
        super().__init__(path, schema)
        self.errors = errors
        self._connect_path = connect
        self._synchronous = synchronous

    def has_tables(self) -> bool:
        """Tell whether the file holds a journal, without changing it; an empty or a foreign database does not."""
        if os.path.exists(f"{self.where}-wal"):  # which may hold all of it, and is for whoever opens it to read
            return True
        with suppress(sqlite3.Error), closing(sqlite3.connect(f"file:{quote(self.where)}?mode=ro", uri=True)) as file:
            return bool(file.execute(self.has_schema).fetchall())
        return True  # no database at all, or one in use: for whoever opens it to say

    def _connect(self) -> Any:
        folder = os.path.dirname(os.path.abspath(self.where))
        if not os.path.isdir(folder):
            raise StoreError(f"the store {self.where} cannot be opened: there is no folder {folder}")
        if os.path.isdir(self.where):
            raise StoreError(f"the store {self.where} cannot be opened: it is a folder")
        connection = self._connect_path(self.where)
        try:
            connection.execute(f"PRAGMA busy_timeout = {int(BUSY_SECONDS * 1000)}")
            mode = connection.execute("PRAGMA journal_mode = WAL").fetchall()[0][0]
            connection.execute(f"PRAGMA synchronous = {self._synchronous}")
            connection.execute("PRAGMA foreign_keys = ON")
        except BaseException:
            with suppress(*self.errors):
                connection.close()
            raise
        if mode != "wal":
            connection.close()
            raise StoreError(f"the file system of {self.where} cannot hold a write-ahead log (journal mode {mode})")
        return connection

    def _explain(self, error: BaseException) -> StoreError:
        if any(words in str(error) for words in ("not a database", "malformed")):
            return StoreError(
                f"the store {self.where} cannot be read: {error}; it is no store or a damaged one, which no repetition "
                "of the call mends: name another file or put a backup in its place"
            )
        return super()._explain(error)

    def _begin(self) -> None:
        self._run("BEGIN IMMEDIATE", ())

    def _lock_schema(self) -> None:
        pass  # the transaction has locked the whole store

    def _run(self, sql: str, values: tuple[Any, ...] = ()) -> list[Any]:
        return list(self._connection.execute(sql, values).fetchall())


class PostgresBackend(_Base):
    """A server, by a `postgresql://user@host/database` address."""

    words: ClassVar = {"serial": "BIGSERIAL PRIMARY KEY", "bigint": "BIGINT", "double": "DOUBLE PRECISION"}
    lock_clause = " FOR UPDATE"
    has_schema = "SELECT 1 WHERE to_regclass('schema_version') IS NOT NULL"

    def __init__(self, url: str, schema: int = VERSION) -> None:
        try:
            import psycopg
        except ModuleNotFoundError as error:
            words = f'a postgresql:// store needs {error.name}; install it with: pip install "pdcbo[service]"'
            raise ModuleNotFoundError(words, name=error.name) from None
        super().__init__(url, schema)
        self.errors = (psycopg.Error,)

    def _connect(self) -> Any:
        import psycopg

        connection = psycopg.connect(self.where, autocommit=True, connect_timeout=10, **KEEPALIVES)
        connection.execute(
            f"SET synchronous_commit = on; SET lock_timeout = '{BUSY_SECONDS}s';"
            f" SET statement_timeout = '{STATEMENT_SECONDS}s'"
        )
        return connection

    def _lock_schema(self) -> None:
        self._run("SELECT pg_advisory_xact_lock(7302266)")

    def _begin(self) -> None:
        self._run("BEGIN", ())

    def _run(self, sql: str, values: tuple[Any, ...] = ()) -> list[Any]:
        cursor = self._connection.execute(sql.replace("?", "%s"), values)
        return cursor.fetchall() if cursor.description is not None else []

    def _explain(self, error: BaseException) -> StoreError:
        where = urlsplit(self.where)
        host = where.netloc.rpartition("@")[2]  # no user name, no password in messages
        shown = f"{where.scheme}://{host}{where.path}"
        said = re.sub(r"://[^/@\s]*@", "://...@", str(error))
        if where.password:
            said = said.replace(where.password, "...")
        return StoreError(f"the store {shown} failed: {said}; {REPEAT}")


def backend(url: str | os.PathLike[str]) -> Backend:
    """Return the backend of `sqlite:///relative.db`, `sqlite:////absolute.db`, `postgresql://...` or a file's path.

    Raises:
        ValueError: the address is of another kind.
    """
    if not isinstance(url, str | os.PathLike):
        raise TypeError(f"store must be an address or a file's path, got {url!r}")
    text = os.fspath(url)
    if text.startswith("sqlite:///"):
        path = unquote(text.removeprefix("sqlite:///"))
        if path and ":memory:" not in path:
            return SqliteBackend(path)
    elif text.startswith(("postgresql://", "postgres://")):
        return PostgresBackend(text)
    elif text and "://" not in text and ":memory:" not in text and not text.startswith(SCHEMES):
        return SqliteBackend(text)
    kind, found, _ = text.partition("://")
    shown = f"{kind}://..." if found and kind != "sqlite" else repr(text)  # an address may hold a password
    raise ValueError(f"store must be sqlite:///file.db, postgresql://user@host/database or a file's path, got {shown}")
