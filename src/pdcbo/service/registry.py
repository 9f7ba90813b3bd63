"""The studies that the service has open, each with a connection of its own, and who wants to hear of changes.

The latest used stay open, up to `KEPT`. Whoever uses a study holds it: a call until it is answered, a stream until it
ends, a thread until its model has learned. So one beyond those is closed when the last of its users lets go of it, and
never before; whoever asks for it meanwhile gets the same.
"""

from __future__ import annotations

import asyncio
import threading
from collections import OrderedDict, defaultdict
from typing import Any
from weakref import WeakValueDictionary

from pdcbo.store import Journal, Study, open_journal
from pdcbo.store.status import Seen, describe, look

KEPT = 32


class Registry:
    """Opens studies when they are asked for and keeps the latest used open."""

    def __init__(self, store: str) -> None:
        self.store = store
        self.journal: Journal = open_journal(store)
        self._open: WeakValueDictionary[str, Study] = WeakValueDictionary()
        self._kept: OrderedDict[str, Study] = OrderedDict()  # the latest used last
        self._seen: dict[str, Seen] = {}
        self._lock = threading.Lock()
        self._listeners: dict[str, set[asyncio.Event]] = defaultdict(set)
        self._loop: asyncio.AbstractEventLoop | None = None

    def names(self) -> list[str]:
        """Name the studies of the store."""
        return self.journal.studies()

    def get(self, name: str) -> Study:
        """Return an open study.

        Raises:
            KeyError: there is none of this name.
        """
        return self._keep(self._find(name) or self._add(name, {}))

    def create(self, name: str, definition: dict[str, Any]) -> Study:
        """Create a study, or open it where it exists with the same definition."""
        return self._keep(self._add(name, definition))

    def facts(self, name: str) -> dict[str, Any]:
        """Return a study's status for the list of all; one that has not changed since is not opened for it."""
        study, seen = self._find(name), self._seen.get(name)
        if study is None:
            if seen is not None and seen.facts["seq"] == self.journal.latest(self.journal.find(name) or 0):
                return describe(seen)
            study = self._add(name, {})
            if len(self._kept) < KEPT:  # a look at all of them is no reason to close what is used
                self._keep(study)
        seen = self._seen[name] = look(study)
        return describe(seen, study.trouble, study.checkpoint_trouble)

    def open_studies(self) -> list[Study]:
        """Return the studies that are open."""
        with self._lock:
            return list(self._open.values())

    def close(self) -> None:
        """Close every study and the store."""
        for study in self.open_studies():
            study.close()
        self.journal.close()

    def _find(self, name: str) -> Study | None:
        with self._lock:
            return self._open.get(name)

    def _add(self, name: str, definition: dict[str, Any]) -> Study:
        study = Study.open(self.store, name, **definition)  # without the lock: a slow store holds up nobody else
        with self._lock:
            first = self._open.setdefault(name, study)
        if first is study:
            study.close_when_unused()
        else:
            study.close()
        return first

    def _keep(self, study: Study) -> Study:
        with self._lock:
            self._kept[study.name] = study
            self._kept.move_to_end(study.name)
            spare = [self._kept.popitem(last=False) for _ in range(len(self._kept) - KEPT)]
        del spare  # without the lock: what nobody else holds is closed here
        return study

    # Listeners, on the event loop

    def attach(self, loop: asyncio.AbstractEventLoop) -> None:
        """Take the loop that listeners wait on."""
        self._loop = loop

    def listen(self, name: str) -> asyncio.Event:
        """Return an event that is set whenever a study changes through this process, or the service stops."""
        event = asyncio.Event()
        self._listeners[name].add(event)
        return event

    def leave(self, name: str, event: asyncio.Event) -> None:
        """Stop listening."""
        self._listeners[name].discard(event)

    def changed(self, name: str) -> None:
        """Wake the listeners of a study, from any thread."""
        if self._loop is not None and self._listeners.get(name):
            self._loop.call_soon_threadsafe(self._wake, name)

    def wake_all(self) -> None:
        """Wake every listener, on the loop."""
        for name in list(self._listeners):
            self._wake(name)

    def _wake(self, name: str) -> None:
        for event in list(self._listeners[name]):
            event.set()
