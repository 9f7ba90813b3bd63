"""The core of a study: its record and its optimizer as followers of the journal, appending, checkpoints.

Locks are taken in one order: the follower's (the optimizer), the study's (the record), the database's. Whoever holds
the record never waits for a model. A checkpoint holds the first two only while its state is taken; it is described and
written in a thread of its own, so that no ask waits for bookkeeping.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from threading import RLock
from typing import Any

from pdcbo.optimizers import Optimizer
from pdcbo.store.failpoints import failpoint
from pdcbo.store.follower import FORMAT, Follower, Worker, snapshot
from pdcbo.store.journal import Event, Journal
from pdcbo.store.replay import Record
from pdcbo.store.values import as_key

Check = Callable[[Record], object]

# what makes a checkpoint due: events since the last one, or a replay that takes long and many times what it took
CHECKPOINT_EVENTS = 200
CHECKPOINT_SECONDS = 0.25
CHECKPOINT_WORTH = 20.0


class Conflict(ValueError):  # noqa: N818
    """Say that a call contradicts an earlier one: a suggestion settled otherwise, a key used before, a pause."""


class StudyCore:
    """What a study does that no user calls."""

    def __init__(self, journal: Journal, name: str, study: int) -> None:
        self.name = name
        self.journal = journal
        self._id = study
        self._lock = RLock()
        self._follower = Follower(journal, study)
        self._worker = Worker()
        self._clerk = Worker("pdcbo-checkpoint")
        self._record: Record | None = None
        self._unsure: Event | None = None
        self._checkpointing = self._preparing = False
        self._noise: list[float | None] | None = None
        self.checkpoint_trouble: str | None = None
        self.looking = RLock()  # taken before the study's
        self.seen: Any = None  # what `pdcbo.store.status` last made of the record

    @contextmanager
    def record(self) -> Iterator[Record]:
        """Give what is on record, up to date; nobody changes it meanwhile. Read it only."""
        with self._lock:
            yield self._current()

    @contextmanager
    def optimizer(self) -> Iterator[Optimizer]:
        """Give the optimizer with every event applied; nobody else uses it meanwhile. Read it only."""
        with self._follower.caught_up() as (optimizer, _):
            yield optimizer

    def noise_levels(self) -> list[float | None]:
        """Return the noise level of each output: stated, or as the models last estimated it; no model is waited for."""
        book = self._current().book
        stated = [None, *(book.noise_std(i)[0] for i in range(1, len(book.problem.outputs)))]
        learned = self._follower.peek(lambda o: [o.noise_std(i)[0] if i else None for i in range(len(stated))])
        self._noise = learned or self._noise
        return [s if s is not None else e for s, e in zip(stated, self._noise or [None] * len(stated), strict=True)]

    def prepare(self) -> None:
        """Let the models learn what was told, in the background, so that the next ask need not wait for it."""
        if not self._preparing:
            self._preparing = True
            self._worker.submit(self._prepare_quietly)

    def checkpoint(self) -> None:
        """Shorten the replay that the next opening needs; the journal stays as it is."""
        follower = self._follower
        with follower.caught_up() as (optimizer, seq):
            started, replayed = time.perf_counter(), follower.replay_seconds
            with self._lock:
                record = self._current()
                if record.seq != seq or seq <= follower.checkpoint_seq:
                    return
                own = record.state()
            state = snapshot(optimizer)
        failpoint("checkpoint-begin")
        self.journal.save_checkpoint(self._id, seq, {"format": FORMAT, "record": own, "optimizer": state()})
        failpoint("checkpoint-done")
        follower.saved(seq, replayed, time.perf_counter() - started)

    def close_when_unused(self) -> None:
        """Close the store, which must be of this study alone, as soon as nobody holds the study any more."""
        weakref.finalize(self, _close, self.journal, self._worker, self._clerk).atexit = False

    # Inside

    def _current(self) -> Record:
        """Return the record with every committed event applied."""
        with self._lock:
            if self._record is None:
                self._record = self._load()
            for event in self.journal.events(self._id, self._record.seq):
                self._record.apply(event)
            return self._record

    def _load(self) -> Record:
        created = self.journal.events(self._id, 0, 1)[0]
        saved = self.journal.checkpoint(self._id)
        if saved is not None and saved[1].get("format") == FORMAT:
            self._follower.checkpoint_seq = saved[0]
            return Record.restore(created.payload, saved[0], saved[1]["record"], saved[1]["optimizer"])
        return Record(created.payload)

    @contextmanager
    def _writing(self) -> Iterator[Record]:
        """Hold the study's write lock with an up-to-date record; after any failure to write, it is loaded again."""
        with self._lock:
            unsure = self._unsure
            try:
                with self.journal.writing(self._id) as latest:
                    record = self._record
                    yield self._current() if record is None or record.seq != latest else record
            except (TypeError, ValueError, KeyError):
                raise  # refused: nothing was changed
            except BaseException:
                self._record = None
                self._unsure = self._unsure or unsure
                raise
            if self._unsure is not unsure:  # it is on disk, or was found there
                self._unsure = None

    def _append(self, record: Record, kind: str, payload: dict[str, Any], key: str | None) -> None:
        event = Event(record.seq + 1, kind, payload, key, time.time())
        record.apply(event)
        try:
            self.journal.append(self._id, event)
        except BaseException:
            self._record = None
            raise
        self._unsure = event

    def _repeated(self, kind: str, same: Callable[[dict[str, Any]], bool]) -> Event | None:
        """Return what a call without a key failed to write last, if it is on disk all the same and the call is back.

        The call may have failed after its COMMIT; its event is known again by place and time.
        """
        event = self._unsure
        if event is None or event.key is not None or event.kind != kind or not same(event.payload):
            return None
        found = self.journal.events(self._id, event.seq - 1, 1)
        if not found or (found[0].kind, found[0].time) != (kind, event.time):
            return None
        self._unsure = None
        return found[0]

    def _order(
        self, record: Record, kind: str, payload: dict[str, Any], key: str | None, check: Check | None = None
    ) -> None:
        """Append an event unless its key is known; `check` may refuse one that is new."""
        key = as_key(key)
        if key is None and self._repeated(kind, lambda written: written == payload):
            return
        if key is not None and (known := self.journal.by_key(self._id, key)) is not None:
            if (known.kind, known.payload) != (kind, payload):
                raise Conflict(f"key {key!r} was used before for another call ({known.kind}); use a new one")
            return
        if check is not None:
            check(record)
        self._append(record, kind, payload, key)

    def _command(self, kind: str, payload: dict[str, Any], key: str | None, check: Check | None = None) -> None:
        with self._writing() as record:
            self._order(record, kind, payload, key, check)

    def _checkpoint_if_due(self, record: Record) -> None:
        follower = self._follower
        new = record.seq - follower.checkpoint_seq
        if self._checkpointing or new < 2:
            return
        replay = follower.replay_seconds - follower.spared_seconds
        worth = max(CHECKPOINT_SECONDS, CHECKPOINT_WORTH * follower.checkpoint_seconds)
        if new >= max(CHECKPOINT_EVENTS, record.seq // 4) or replay > worth:
            self._checkpointing = True
            self._clerk.submit(self._checkpoint_quietly)

    def _prepare_quietly(self) -> None:
        """Catch up with the journal; what goes wrong is for the next ask to meet, with its fallback."""
        self._preparing = False  # before reading: whatever is told from now on is prepared for anew
        with suppress(Exception), self._follower.caught_up():
            pass

    def _checkpoint_quietly(self) -> None:
        """Write a checkpoint; a failure is shown as an alarm and never fails a call, since nothing rests on it."""
        try:
            self.checkpoint()
            self.checkpoint_trouble = None
        except Exception as error:
            self.checkpoint_trouble = str(error)
        finally:
            self._checkpointing = False


def _close(journal: Journal, *workers: Worker) -> None:
    """Close what a study left behind; no job is left, since a job holds its study."""
    for worker in workers:
        worker.stop(0.0)
    journal.close()
