"""Opening and creating studies: what is given must be what the study was created with."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

from pdcbo.guards import Guards
from pdcbo.optimizers import OPTIMIZERS
from pdcbo.problem import Problem
from pdcbo.store.backends import SqliteBackend, StoreError, backend
from pdcbo.store.core import Conflict
from pdcbo.store.journal import Journal

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.\-]{0,63}")


def check_name(name: str, field_name: str) -> None:
    """Refuse what can be no name of a study, which is part of addresses."""
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise ValueError(
            f"{field_name} must have 1 to 64 letters, digits, '_', '-' or '.', a letter or digit first, got {name!r}"
        )


def open_journal(store: str | os.PathLike[str] | Journal, *, create: bool = True) -> Journal:
    """Return the journal at an address; nothing is opened before it is used.

    Raises:
        StoreError: `create` is False, and the store is a file that does not exist or is something else.
    """
    if isinstance(store, Journal):
        return store
    database = backend(store)
    if not create and isinstance(database, SqliteBackend):
        if not os.path.exists(database.where):
            raise StoreError(f"there is no store {database.where!r}")
        if not database.has_tables():
            raise StoreError(f"{database.where!r} is not a store of studies")
    return Journal(database)


def definition(
    problem: Problem,
    optimizer: str = "pdcbo",
    horizon: int | None = None,
    seed: int = 0,
    delta: float = 0.05,
    guards: Guards | Mapping[str, Any] | None = None,
    settings: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return the payload of a study's first event, after making the optimizer once to have everything checked."""
    if not isinstance(optimizer, str) or optimizer not in OPTIMIZERS:
        raise ValueError(f"optimizer must be one of {list(OPTIMIZERS)!r}, got {optimizer!r}")
    made = OPTIMIZERS[optimizer](problem, horizon=horizon, seed=seed, delta=delta, **(settings or {}))
    given = guards if isinstance(guards, Guards) else Guards.from_json(guards)
    state = made.state()
    return {
        **{k: state[k] for k in ("optimizer", "problem", "horizon", "seed", "delta", "settings")},
        "guards": given.check(problem).to_json(),
    }


def opened(
    journal: Journal,
    name: str,
    problem: Problem | None,
    given: Mapping[str, Any],
    settings: Mapping[str, Any],
) -> int:
    """Return the id of a study, which is created if it is not there and a problem is given.

    Args:
        journal: of the store.
        name: of the study.
        problem: the whole definition goes with it; without one, what is not given is as the study was created.
        given: those of the other arguments of `definition` that were given.
        settings: of the optimizer.

    Raises:
        KeyError: there is no such study and no problem was given.
        TypeError, ValueError: something is malformed, or the study exists with another definition.
    """
    check_name(name, "name")
    if problem is None:
        study = journal.find(name)
        if study is None:
            raise KeyError(f"there is no study {name!r} in the store; give a problem to create it")
        if given or settings:
            created = journal.events(study, 0, 1)[0].payload
            if given.get("optimizer", created["optimizer"]) == created["optimizer"]:
                settings = {**created["settings"], **settings}
            as_created = {**created, "problem": Problem.from_json(created["problem"])}
            _compare(name, created, definition(**{**as_created, **given, "settings": settings}))
        return study
    wanted = definition(problem, **given, settings=settings)
    with journal.database.transaction():
        journal.lock_names()
        study = journal.find(name)
        if study is None:
            return journal.create(name, wanted)
        created = journal.events(study, 0, 1)[0].payload
    _compare(name, created, wanted)
    return study


def _compare(name: str, created: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    for field_name, value in wanted.items():
        if created.get(field_name) != value:
            place, was, now = _difference(field_name, created.get(field_name), value)
            remedy = "set_limits changes limits; " if place.startswith("problem.constraints.") else ""
            raise Conflict(
                f"study {name!r} exists with another {place}: {was!r}, got {now!r}; {remedy}"
                "open it with its name alone, or choose another name"
            )


def _difference(place: str, was: Any, now: Any) -> tuple[str, Any, Any]:
    """Return the first place below which two definitions differ, as a path of names, and what stands there."""
    if isinstance(was, Mapping) and isinstance(now, Mapping) and list(was) == list(now):
        for name, value in now.items():
            if was[name] != value:
                return _difference(f"{place}.{name}", was[name], value)
    return place, was, now
