"""Rows of past operation, as people have them: nested by group, or flat with the names as columns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from pdcbo.problem import Array, Problem

GROUPS = ("parameters", "context", "objective", "constraints")


def past_point(problem: Problem, row: Mapping[str, Any]) -> tuple[Array, Array]:
    """Return the point x (d,) and the outcome y (q,) of a row nested by group; what is not named was not measured.

    Raises:
        TypeError, ValueError: a value is malformed, or nothing was measured.
    """
    unknown = [name for name in row if name not in GROUPS]
    if unknown:
        raise ValueError(f"{unknown[0]!r} is unknown; a row has {list(GROUPS)!r}")
    remedy = "; leave out rows of operation beyond the ranges"
    theta = problem.encode_parameters(row["parameters"], remedy=remedy, read_back=True)
    z = problem.encode_context(row.get("context"))
    given = {} if row.get("constraints") is None else row["constraints"]
    if not isinstance(given, Mapping):
        raise TypeError(f"constraints must be a mapping of names, got {given!r}")
    y = problem.encode_outcome(row.get("objective"), {**dict.fromkeys(problem.constraints), **given})
    if np.isnan(y).all():
        raise ValueError("objective and constraints are all missing; there is nothing to learn")
    return np.concatenate([theta, z]), y


def as_rows(rows: Iterable[Any]) -> Iterable[Any]:
    """Refuse what is no table; its rows are for others to check."""
    if hasattr(rows, "to_dict"):
        raise TypeError(
            f"rows must be an iterable of mappings, got a {type(rows).__name__}; its to_dict('records') is one, with"
            " None for what was not measured"
        )
    if isinstance(rows, str | Mapping) or not isinstance(rows, Iterable):
        raise TypeError(f"rows must be an iterable of mappings, got {rows!r}")
    return rows


def past_points(problem: Problem, rows: Iterable[Mapping[str, Any]]) -> list[tuple[Array, Array]]:
    """Return the point and the outcome of every row; an error names the row."""
    points = []
    for i, row in enumerate(as_rows(rows)):
        if not isinstance(row, Mapping):
            raise TypeError(f"rows[{i}] must be a mapping of names, got {row!r}")
        try:
            nested = row if isinstance(row.get("parameters"), Mapping) else nest(problem, row)
            points.append(past_point(problem, nested))
        except (TypeError, ValueError) as error:
            raise type(error)(f"rows[{i}]: {error}") from None
    return points


def nest(problem: Problem, row: Mapping[str, Any]) -> dict[str, Any]:
    """Sort the columns of a flat row into groups."""
    names = (*problem.parameters, *problem.context, *problem.outputs)
    unknown = [name for name in row if name not in names]
    if unknown:
        raise ValueError(f"column {unknown[0]!r} is unknown; there are {list(names)!r}")
    return {
        "parameters": {n: row[n] for n in problem.parameters if n in row},
        "context": {n: row[n] for n in problem.context if n in row},
        "objective": row.get("objective"),
        "constraints": {n: row[n] for n in problem.constraints if n in row},
    }
