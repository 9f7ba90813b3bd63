"""Durable studies: an append-only journal in SQLite or PostgreSQL, and a study that wraps any optimizer around it."""

from __future__ import annotations

from pdcbo.store.backends import StoreError
from pdcbo.store.core import Conflict
from pdcbo.store.draft import ModelError
from pdcbo.store.journal import Event, Journal
from pdcbo.store.opening import open_journal
from pdcbo.store.schema import SchemaError
from pdcbo.store.study import Study

__all__ = ["Conflict", "Event", "Journal", "ModelError", "SchemaError", "StoreError", "Study", "open_journal"]
