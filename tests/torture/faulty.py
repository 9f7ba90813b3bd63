"""A file system that fails as real ones do, under SQLite: errors at a chosen call, and power cuts.

`Disk` is a VFS (SQLite's layer over the operating system). Files live in memory as two layers: what is on the platter,
and the writes since the last sync. A power cut keeps the platter, and of the unsynced writes of each file a random
subset, some of them torn, as a drive with a cache may. The wal-index lives in memory of its own (exclusive locking), so
nothing of it survives.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw

from pdcbo.store.backends import SqliteBackend


class File:
    """One file: `synced` is on the platter, `now` is what a running system sees, `log` the difference."""

    def __init__(self) -> None:
        self.synced = bytearray()
        self.now = bytearray()
        self.log: list[tuple[int, bytes | None]] = []  # (offset, data), or (size, None) for a truncation
        self.durable = False  # its name is on the platter

    def change(self, at: int, data: bytes | None) -> None:
        _apply(self.now, at, data)
        self.log.append((at, data))

    def sync(self) -> None:
        self.synced, self.log, self.durable = bytearray(self.now), [], True

    def after_power_cut(self, rng: random.Random) -> bytes | None:
        """Return what is found afterwards, or None if the name was never synced and is gone."""
        if not self.durable and rng.random() < 0.5:
            return None
        content = bytearray(self.synced)
        kept = rng.random()
        for at, data in self.log:
            if rng.random() < kept:
                if data is not None and rng.random() < 0.2:  # torn at a sector
                    data = data[: 512 * rng.randrange(len(data) // 512 + 1)]
                _apply(content, at, data)
        return bytes(content)


def _apply(content: bytearray, at: int, data: bytes | None) -> None:
    if data is None:
        del content[at:]
        return
    if len(content) < at:
        content.extend(bytes(at - len(content)))
    content[at : at + len(data)] = data


class Disk(apsw.VFS):
    """See the module.

    Attributes:
        writes: calls that change a file so far.
        fail_at: the call to fail (counted from 1), None for none.
        forever: whether later calls fail too.
        error: what fails: "full", "io" or "cut" (the power).
    """

    counter = 0

    def __init__(self) -> None:
        Disk.counter += 1
        self.name = f"disk-{Disk.counter}"
        self.files: dict[str, File] = {}
        self.writes = 0
        self.fail_at: int | None = None
        self.forever = False
        self.error = "io"
        self.off = False
        super().__init__(self.name, "")

    def step(self) -> None:
        """Count a call that changes a file, and fail it if it is its turn."""
        if self.off:
            raise apsw.IOError
        self.writes += 1
        if self.fail_at is None or self.writes < self.fail_at or (self.writes > self.fail_at and not self.forever):
            return
        if self.error == "cut":
            self.off = True
            raise apsw.IOError
        raise apsw.FullError if self.error == "full" else apsw.IOError

    def xOpen(self, name: Any, flags: list[int]) -> Handle:
        path = name.filename() if isinstance(name, apsw.URIFilename) else name or f"temporary-{len(self.files)}"
        if self.off:
            raise apsw.CantOpenError
        if path not in self.files and not flags[0] & apsw.SQLITE_OPEN_CREATE:
            raise apsw.CantOpenError
        self.files.setdefault(path, File())
        flags[1] = flags[0]
        return Handle(self, self.files[path])

    def xAccess(self, path: str, flags: int) -> bool:
        return path in self.files

    def xDelete(self, path: str, sync: bool) -> None:
        self.step()
        if path not in self.files:
            raise apsw.IOError
        del self.files[path]

    def xFullPathname(self, name: str) -> str:
        return name

    def cut(self, folder: Path, rng: random.Random) -> None:
        """Cut the power and write what is found afterwards to a folder."""
        self.off = True
        for path, file in self.files.items():
            content = file.after_power_cut(rng)
            if content is not None and not path.startswith("temporary"):
                (folder / path).write_bytes(content)


class Handle(apsw.VFSFile):
    """An open file of a `Disk`."""

    def __init__(self, disk: Disk, file: File) -> None:
        self.disk, self.file = disk, file

    def xRead(self, amount: int, offset: int) -> bytes:
        return bytes(self.file.now[offset : offset + amount])

    def xWrite(self, data: bytes, offset: int) -> None:
        self.disk.step()
        self.file.change(offset, bytes(data))

    def xTruncate(self, size: int) -> None:
        self.disk.step()
        self.file.change(size, None)

    def xSync(self, flags: int) -> None:
        self.disk.step()
        self.file.sync()

    def xFileSize(self) -> int:
        return len(self.file.now)

    def xLock(self, level: int) -> None:
        pass

    def xUnlock(self, level: int) -> None:
        pass

    def xCheckReservedLock(self) -> bool:
        return False

    def xFileControl(self, op: int, pointer: int) -> bool:
        return False

    def xSectorSize(self) -> int:
        return 4096

    def xDeviceCharacteristics(self) -> int:
        return 0

    def xClose(self) -> None:
        pass


@contextmanager
def quiet() -> Iterator[None]:
    """Pass over errors of connections that are thrown away while their disk fails: nobody is there to hear of them."""
    before = sys.unraisablehook
    sys.unraisablehook = lambda u: None if isinstance(u.exc_value, apsw.Error) else before(u)
    try:
        yield
    finally:
        sys.unraisablehook = before


def backend(disk: Disk, path: str = "plant.db", synchronous: str = "FULL", pages: int = 1000) -> SqliteBackend:
    """Return the store's own backend on this disk; the log is moved into the database after so many pages."""

    def connect(name: str) -> Any:
        connection = apsw.Connection(name, vfs=disk.name)
        connection.execute("PRAGMA locking_mode = EXCLUSIVE")
        connection.execute(f"PRAGMA wal_autocheckpoint = {pages}")
        return connection

    return SqliteBackend(path, connect, (apsw.Error,), synchronous)
