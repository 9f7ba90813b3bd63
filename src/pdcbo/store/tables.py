"""Studies as tables: one row a suggestion, for other tools (Parquet, CSV), and tables of past operation read in.

Columns of an export: `suggestion`, `status`, `asked` and `settled` (seconds since 1970), `origin`, one column for each
parameter (as applied), context variable, and output (`objective` and every constraint; empty = not measured), `reason`.
An import reads the parameter, context and output columns of such a table, or of any table with those names, and learns
from it as from past operation: models only, no averages, no dual.
"""

from __future__ import annotations

import csv
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pdcbo.optimizers.ledger import PENDING, Step
from pdcbo.problem import Choice, Integer, Problem
from pdcbo.store.replay import Record
from pdcbo.store.study import Study

FIXED = ("suggestion", "status", "asked", "settled", "origin", "reason")


def rows(record: Record) -> list[dict[str, Any]]:
    """Return one row a suggestion, in the order they were asked."""
    problem = record.book.problem
    return [_row(problem, step, record.notes[i]) for i, step in record.book.ledger.steps.items()]


def _row(problem: Problem, step: Step, note: Mapping[str, Any]) -> dict[str, Any]:
    told = note.get("tell") or {}
    values = [None if math.isnan(v) else v for v in step.y] or [None] * len(problem.outputs)
    return {
        "suggestion": step.suggestion.id,
        "status": step.status,
        "asked": note["asked"],
        "settled": note.get("settled"),
        "origin": note["origin"],
        "reason": step.reason,
        **{**step.suggestion.parameters, **(told.get("applied") or {})},
        **{**step.suggestion.context, **(told.get("context") or {})},
        **(
            dict.fromkeys(problem.outputs)
            if step.status == PENDING
            else dict(zip(problem.outputs, values, strict=True))
        ),
    }


def export(study: Study, path: str | os.PathLike[str]) -> int:
    """Write a study's suggestions to a `.csv` or `.parquet` file, whole or not at all; return the number of rows."""
    target = Path(path)
    kind = _kind(target)
    with study.record() as record:
        table = rows(record)
        problem = record.book.problem
    columns = [*FIXED, *problem.parameters, *problem.context, *problem.outputs]
    part = target.with_name(target.name + ".part")
    if kind == "parquet":
        _write_parquet(part, problem, columns, table)
    else:
        with part.open("w", newline="") as file:
            writer = csv.DictWriter(file, columns)
            writer.writeheader()
            writer.writerows(table)
    os.replace(part, target)
    return len(table)


def read(path: str | os.PathLike[str], problem: Problem) -> list[dict[str, Any]]:
    """Read a table of past operation: only the problem's own columns, and only rows where something was measured.

    Raises:
        ValueError: a parameter or context column is missing, or a cell is not what its column takes.
    """
    source = Path(path)
    if _kind(source) == "parquet":
        table = _read_parquet(source)
    else:
        with source.open(newline="") as file:
            table = list(csv.DictReader(file))
    needed = [*problem.parameters, *problem.context]
    result = []
    for i, row in enumerate(table):
        missing = [name for name in needed if row.get(name) in (None, "")]
        if missing:
            raise ValueError(f"{source.name}, row {i + 1}: column {missing[0]!r} is missing or empty")
        flat = {n: _cell(problem, n, row[n], f"{source.name}, row {i + 1}, column {n!r}") for n in needed}
        for name in problem.outputs:
            if row.get(name) not in (None, ""):
                flat[name] = _number(row[name], f"{source.name}, row {i + 1}, column {name!r}")
        if any(name in flat for name in problem.outputs):
            result.append(flat)
    return result


def load(study: Study, path: str | os.PathLike[str], *, key: str | None = None) -> int:
    """Learn from a `.csv` or `.parquet` table of past operation; return the number of rows learned from."""
    return study.observe_table(read(path, study.problem), key=key)


def _kind(path: Path) -> str:
    if path.suffix not in (".csv", ".parquet"):
        raise ValueError(f"a table's file must end in .csv or .parquet, got {path.name!r}")
    return path.suffix[1:]


def _cell(problem: Problem, name: str, value: Any, where: str) -> Any:
    variable = {**problem.parameters, **problem.context}[name]
    if isinstance(variable, Choice):
        for option in variable.options:
            if option == value or str(option) == str(value):
                return option
        raise ValueError(f"{where}: must be one of {list(variable.options)!r}, got {value!r}")
    number = _number(value, where)
    return int(number) if isinstance(variable, Integer) and number == math.floor(number) else number


def _number(value: Any, where: str) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise ValueError(f"{where}: must be a number, got {value!r}") from None
    if not math.isfinite(number):
        raise ValueError(f"{where}: must be finite, got {value!r}")
    return number


def _write_parquet(path: Path, problem: Problem, columns: list[str], table: list[dict[str, Any]]) -> None:
    import duckdb

    types = {"suggestion": "BIGINT", "asked": "DOUBLE", "settled": "DOUBLE", **dict.fromkeys(problem.outputs, "DOUBLE")}
    for name, variable in {**problem.parameters, **problem.context}.items():
        if isinstance(variable, Choice):
            kinds = {type(option) for option in variable.options}
            types[name] = "BOOLEAN" if kinds == {bool} else "DOUBLE" if kinds <= {int, float} else "VARCHAR"
        else:
            types[name] = "BIGINT" if isinstance(variable, Integer) else "DOUBLE"
    with duckdb.connect() as database:
        names = ", ".join(f"{_quoted(c)} {types.get(c, 'VARCHAR')}" for c in columns)
        database.execute(f"CREATE TABLE study ({names})")
        if table:
            database.executemany(
                f"INSERT INTO study VALUES ({', '.join('?' * len(columns))})",
                [[row[c] for c in columns] for row in table],
            )
        database.execute(f"COPY study TO {_text(str(path))} (FORMAT PARQUET)")


def _read_parquet(path: Path) -> list[dict[str, Any]]:
    import duckdb

    with duckdb.connect() as database:
        cursor = database.execute(f"SELECT * FROM read_parquet({_text(str(path))})")
        names = [column[0] for column in cursor.description]
        return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"
