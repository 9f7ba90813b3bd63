"""The optimizer of a study as a follower of its journal: built when first needed, caught up when asked.

It reads what is committed and nothing else, so that it needs no part in any transaction. One thread at a time uses it;
`Worker` runs what has a deadline in a thread of its own, which never keeps the process from ending.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from copy import copy
from operator import attrgetter
from typing import Any

from pdcbo.optimizers import OPTIMIZERS, Optimizer
from pdcbo.optimizers.base import STATE_VERSION
from pdcbo.optimizers.ledger import Ledger, Step
from pdcbo.store.backends import StoreError
from pdcbo.store.journal import Journal
from pdcbo.store.replay import apply_to_optimizer, new_optimizer

FORMAT = f"{STATE_VERSION}.1"

_fields = attrgetter(*Step.__slots__)


def snapshot(optimizer: Optimizer) -> Callable[[], dict[str, Any]]:
    """Return a function that gives the optimizer's state as it is now, whatever the optimizer does meanwhile.

    The ledger is most of it. Its steps are copied now and described in JSON later, which takes ten times as long; what
    a step's fields hold is replaced and never changed in place.
    """
    shell = copy(optimizer)
    shell.ledger = Ledger()
    state, ledger = shell.state(), copy(optimizer.ledger)
    ledger.steps = {i: Step(*_fields(step)) for i, step in ledger.steps.items()}
    ledger.counted, ledger.superseded = list(ledger.counted), list(ledger.superseded)
    return lambda: {**state, "ledger": ledger.state()}


class Follower:
    """Holds the optimizer of one study.

    Attributes:
        trouble: in words, why the optimizer last failed, None since it made a proposal.
        replay_seconds: the time that catching up took here, all in all.
        spared_seconds: as much of it as the latest checkpoint spares the next opening.
        checkpoint_seconds: what the latest checkpoint took, 0 before one was written here.
        checkpoint_seq: the seq of the latest checkpoint known here.
    """

    def __init__(self, journal: Journal, study: int) -> None:
        self.journal, self.study = journal, study
        self.trouble: str | None = None
        self.replay_seconds = self.spared_seconds = self.checkpoint_seconds = 0.0
        self.checkpoint_seq = 0
        self._lock = threading.RLock()
        self._optimizer: Optimizer | None = None
        self._seq = 0

    @contextmanager
    def caught_up(self) -> Iterator[tuple[Optimizer, int]]:
        """Give the optimizer with every committed event applied, and the seq of the latest of them.

        An error while it is built leaves no half-updated optimizer behind: the next use builds it again.
        """
        with self._lock:
            try:
                if self._optimizer is None:
                    self._optimizer = self._build()
                started = time.perf_counter()
                for event in self.journal.events(self.study, self._seq):
                    apply_to_optimizer(self._optimizer, event)
                    self._seq = event.seq
            except StoreError:
                raise
            except BaseException as error:
                self.discard(error)
                raise
            self.replay_seconds += time.perf_counter() - started
            yield self._optimizer, self._seq

    def peek(self, look: Callable[[Optimizer], Any]) -> Any:
        """Return what `look` sees in the optimizer as it is, or None where there is none or it is in use."""
        if not self._lock.acquire(blocking=False):
            return None
        try:
            return None if self._optimizer is None else look(self._optimizer)
        finally:
            self._lock.release()

    def discard(self, error: BaseException) -> None:
        """Give up an optimizer that failed; the next use builds it again from the journal."""
        with self._lock:
            self._optimizer = None
            self.trouble = f"{type(error).__name__}: {error}"

    def saved(self, seq: int, replayed: float, seconds: float) -> None:
        """Take note of a checkpoint: its seq, `replay_seconds` when its state was taken, and what it took."""
        self.checkpoint_seq = max(self.checkpoint_seq, seq)
        self.spared_seconds, self.checkpoint_seconds = replayed, seconds

    def _build(self) -> Optimizer:
        self.spared_seconds = self.replay_seconds
        saved = self.journal.checkpoint(self.study)
        if saved is not None and saved[1].get("format") == FORMAT:
            self._seq, state = saved[0], saved[1]["optimizer"]
            self.checkpoint_seq = self._seq
            return OPTIMIZERS[state["optimizer"]].restore(state)
        self._seq = 0
        return new_optimizer(self.journal.events(self.study, 0, 1)[0].payload)


class Worker:
    """Runs jobs one after the other in a thread that does not outlive the process."""

    def __init__(self, name: str = "pdcbo-model") -> None:
        self._name = name
        self._jobs: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    def submit(self, job: Callable[[], Any]) -> Future[Any]:
        """Queue a job; a job that is cancelled before its turn never runs."""
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name=self._name, daemon=True)
                self._thread.start()
        future: Future[Any] = Future()
        self._jobs.put((future, job))
        return future

    def stop(self, seconds: float, last: Callable[[], Any] | None = None) -> None:
        """Let queued jobs end, then do `last`, and wait for that long; what takes longer is followed by it too."""
        with self._lock:
            thread, self._thread = self._thread, None
        if thread is None:
            return
        if last is not None:
            self._jobs.put((Future(), last))
        self._jobs.put(None)
        if seconds > 0.0:
            thread.join(seconds)

    def _work(self) -> None:
        while (item := self._jobs.get()) is not None:
            _do(*item)
            del item  # or this thread would hold the study of its last job for as long as it waits for the next


def _do(future: Future[Any], job: Callable[[], Any]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        future.set_result(job())
    except BaseException as error:
        future.set_exception(error)
        del future  # which the error's traceback would hold through this frame, and it the error
