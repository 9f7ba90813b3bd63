"""Opening and creating studies: what is given must be what the study was created with."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

from pdcbo.guards import Guards
from pdcbo.optimizers import OPTIMIZERS
from pdcbo.problem import Problem
from pdcbo.store.backends import backend
from pdcbo.store.journal import Journal

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")


def open_journal(store: str | os.PathLike[str] | Journal) -> Journal:
    """Return the journal at an address; nothing is opened before it is used."""
    return store if isinstance(store, Journal) else Journal(backend(store))


def definition(
    problem: Problem,
    optimizer: str,
    horizon: int | None,
    seed: int,
    delta: float,
    guards: Guards | Mapping[str, Any] | None,
    settings: Mapping[str, Any],
) -> dict[str, Any]:
    """Return the payload of a study's first event, after making the optimizer once to have everything checked."""
    if optimizer not in OPTIMIZERS:
        raise ValueError(f"optimizer must be one of {list(OPTIMIZERS)!r}, got {optimizer!r}")
    made = OPTIMIZERS[optimizer](problem, horizon=horizon, seed=seed, delta=delta, **settings)
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
    optimizer: str,
    horizon: int | None,
    seed: int,
    delta: float,
    guards: Guards | Mapping[str, Any] | None,
    settings: Mapping[str, Any],
) -> int:
    """Return the id of a study, which is created if it is not there.

    Raises:
        KeyError: there is no such study and no problem was given.
        ValueError: the study exists with another definition.
    """
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise ValueError(
            f"name must have 1 to 64 letters, digits, '_', '-' or '.', a letter or digit first, got {name!r}"
        )
    if problem is None:
        study = journal.find(name)
        if study is None:
            raise KeyError(f"there is no study {name!r} in the store; give a problem to create it")
        return study
    wanted = definition(problem, optimizer, horizon, seed, delta, guards, settings)
    with journal.database.transaction():
        journal.lock_names()
        study = journal.find(name)
        if study is None:
            return journal.create(name, wanted)
        created = journal.events(study, 0, 1)[0].payload
    for field_name, value in wanted.items():
        if created.get(field_name) != value:
            raise ValueError(
                f"study {name!r} exists with another {field_name}: {created.get(field_name)!r}, got {value!r}; "
                "open it with its name alone, or choose another name"
            )
    return study
