"""The studies that the service has open, each with a connection of its own, and who wants to hear of changes."""

from __future__ import annotations

import asyncio
import threading
from collections import defaultdict
from typing import Any

from pdcbo.store import Journal, Study, open_journal


class Registry:
    """Opens studies when they are first asked for and keeps them open."""

    def __init__(self, store: str) -> None:
        self.store = store
        self.journal: Journal = open_journal(store)
        self._studies: dict[str, Study] = {}
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
        return self._studies.get(name) or self.create(name, {})

    def create(self, name: str, definition: dict[str, Any]) -> Study:
        """Create a study, or open it where it exists with the same definition."""
        study = Study.open(self.store, name, **definition)  # without the lock: a slow store holds up nobody else
        with self._lock:
            if name in self._studies:
                study.close()
            return self._studies.setdefault(name, study)

    def open_studies(self) -> list[Study]:
        """Return the studies that are open."""
        with self._lock:
            return list(self._studies.values())

    def close(self) -> None:
        """Close every study and the store."""
        for study in self.open_studies():
            study.close()
        self.journal.close()

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
