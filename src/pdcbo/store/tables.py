"""Studies as tables: one row a suggestion, for other tools (Parquet, CSV), and tables of past operation read in.

Columns of an export: `suggestion`, `status`, `asked` and `settled` (seconds since 1970), `origin`, one column for each
parameter (as applied), context variable, and output (`objective` and every constraint; empty = not measured), `reason`.
Where the problem itself has one of the first names, the export's own column gets a `_` behind it. CSV is in UTF-8;
a reason that a spreadsheet would take for a formula has a `'` before it there. What an import reads stays as it is.

An import reads the parameter, context and output columns of such a table, or of any table with those names, and learns
from it as from past operation: models only, no averages, no dual. Since it cannot be undone, a table without a column
for every name is refused; what was never measured is an empty column. What the study knows already is left out.
"""

from __future__ import annotations

import csv
import hashlib
import json
import math
import os
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pdcbo.history import as_run
from pdcbo.optimizers.ledger import PENDING, Step
from pdcbo.optimizers.past import nest, past_point
from pdcbo.problem import Choice, Integer, Problem, Scalar
from pdcbo.store.replay import Record
from pdcbo.store.study import Study

FIXED = ("suggestion", "status", "asked", "settled", "origin", "reason")
FORMULA = ("=", "+", "-", "@", "\t", "\r")
Say = Callable[[str], object]


def rows(record: Record) -> list[dict[str, Any]]:
    """Return one row a suggestion, in the order they were asked."""
    problem = record.book.problem
    fixed = _fixed(problem)
    return [_row(problem, fixed, step, record.notes[i]) for i, step in record.book.ledger.steps.items()]


def _names(problem: Problem) -> list[str]:
    return [*problem.parameters, *problem.context, *problem.outputs]


def _fixed(problem: Problem) -> list[str]:
    """Return the columns of `FIXED` under names that are not the problem's in small or capital letters."""
    taken = {name.lower() for name in _names(problem)}
    columns = []
    for column in FIXED:
        while column in taken:
            column += "_"
        columns.append(column)
    return columns


def _row(problem: Problem, fixed: list[str], step: Step, note: Mapping[str, Any]) -> dict[str, Any]:
    values = [None if math.isnan(v) else v for v in step.y] or [None] * len(problem.outputs)
    own = (step.suggestion.id, step.status, note["asked"], note.get("settled"), note["origin"], step.reason)
    return {
        **dict(zip(fixed, own, strict=True)),
        **as_run(problem, step, note),
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
    columns = [*_fixed(problem), *_names(problem)]
    reason = columns[FIXED.index("reason")]
    part = target.with_name(target.name + ".part")
    try:
        if kind == "parquet":
            _write_parquet(part, problem, columns, table)
        else:
            with part.open("w", newline="", encoding="utf-8") as file:
                writer = csv.DictWriter(file, columns)
                writer.writeheader()
                writer.writerows({**row, reason: _plain(row[reason])} for row in table)
        os.replace(part, target)
    finally:
        part.unlink(missing_ok=True)
    return len(table)


def _plain(text: str) -> str:
    """Return a text that no spreadsheet takes for a formula, since anybody may have written it."""
    return f"'{text}" if text.startswith(FORMULA) else text


def read(path: str | os.PathLike[str], problem: Problem, say: Say | None = None) -> list[dict[str, Any]]:
    """Read a table of past operation: only the problem's own columns, and only rows where something was measured.

    Args:
        path: of a `.csv` or `.parquet` file.
        problem: its names are the columns.
        say: takes words on what was not read: other columns, and outputs that no row has.

    Raises:
        ValueError: it is no such table, a column is missing or there twice, or a cell is not what its column takes.
        OSError: the file cannot be read.
    """
    source = Path(path)
    header, table = _read_parquet(source) if _kind(source) == "parquet" else _read_csv(source)
    for name in _names(problem):
        if name not in header:
            remedy = "; add an empty one if it was never measured" if name in problem.outputs else ""
            raise ValueError(f"{source.name} has no column {name!r}{remedy}; its columns are {header!r}")
        if header.count(name) > 1:
            raise ValueError(f"{source.name} has column {name!r} twice; its columns are {header!r}")
    needed = [*problem.parameters, *problem.context]
    result = []
    for i, row in enumerate(table):
        where = f"{source.name}, row {i + 1}"
        missing = [name for name in needed if row.get(name) in (None, "")]
        if missing:
            raise ValueError(f"{where}: column {missing[0]!r} is empty")
        flat = {n: _cell(problem, n, row[n], f"{where}, column {n!r}") for n in needed}
        for name in problem.outputs:
            if row.get(name) not in (None, ""):
                flat[name] = _number(
                    row[name], f"{where}, column {name!r}", ", or an empty cell if it was not measured"
                )
        if any(name in flat for name in problem.outputs):
            try:
                past_point(problem, nest(problem, flat))
            except ValueError as error:
                raise ValueError(f"{where}: {error}") from None
            result.append(flat)
    if say is not None:
        if len(result) < len(table):
            say(f"{source.name}: {len(table) - len(result)} rows without any measurement were left out")
        unmeasured = [name for name in problem.outputs if not any(name in flat for flat in result)]
        ignored = [c for c in header if c not in (*_fixed(problem), *_names(problem))]
        if unmeasured:
            say(f"{source.name}: no row has a value of {', '.join(map(repr, unmeasured))}; nothing is learned of it")
        if ignored:
            say(f"{source.name}: other columns were not read: {', '.join(map(repr, ignored))}")
    return result


def load(study: Study, path: str | os.PathLike[str], *, say: Say | None = None) -> int:
    """Learn from a `.csv` or `.parquet` table of past operation, see `read`; return the number of rows learned from.

    Rows that the study has learned from before, as past operation or as its own results, are left out, so that a table
    that has grown since may be read again.
    """
    problem, table = study.problem, read(path, study.problem, say)
    known = Counter(_identity(problem, row) for row in _known(study))
    fresh = []
    for row in table:
        identity = _identity(problem, row)
        if known[identity]:
            known[identity] -= 1
        else:
            fresh.append(row)
    if say is not None and len(fresh) < len(table):
        say(f"{Path(path).name}: {len(table) - len(fresh)} rows were known already and left out")
    # two imports at once are one
    key = hashlib.sha256(json.dumps([table, fresh], sort_keys=True).encode()).hexdigest()
    return study.observe_table(fresh, key=f"import-{key}")


def _known(study: Study) -> list[dict[str, Any]]:
    """Return what a study has learned from, flat: its results, also as they were before a correction, and the past."""
    problem = study.problem
    with study.record() as record:
        ran = dict(zip(record.book.ledger.steps, rows(record), strict=True))
    known: list[dict[str, Any]] = []
    measured: dict[int, dict[str, Any]] = {}
    for event in study.events():
        if event.kind in ("tell", "correct") and event.payload["id"] in ran:
            told = {**measured.get(event.payload["id"], {}), **(event.payload.get("constraints") or {})}
            if "objective" in event.payload:
                told["objective"] = event.payload["objective"]
            measured[event.payload["id"]] = told
            known.append({**ran[event.payload["id"]], **told})
        for row in event.payload["rows"] if event.kind == "observe" else ():
            nested = row if isinstance(row.get("parameters"), Mapping) else nest(problem, row)
            outputs = {"objective": nested.get("objective"), **(nested.get("constraints") or {})}
            known.append({**nested["parameters"], **(nested.get("context") or {}), **outputs})
    return known


def _identity(problem: Problem, row: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return the place of a flat row and its values, None for what was not measured."""
    variables = {**problem.parameters, **problem.context}
    return (*(v.encode(row[name], name) for name, v in variables.items()), *map(row.get, problem.outputs))


def _kind(path: Path) -> str:
    kind = path.suffix.lower()
    if kind not in (".csv", ".parquet"):
        raise ValueError(f"a table's file must end in .csv or .parquet, got {path.name!r}")
    return kind[1:]


def _cell(problem: Problem, name: str, value: Any, where: str) -> Any:
    variable = {**problem.parameters, **problem.context}[name]
    if isinstance(variable, Choice):
        for option in variable.options:
            if _same(option, value):
                return option
        raise ValueError(f"{where}: must be one of {list(variable.options)!r}, got {value!r}")
    number = _number(value, where)
    return int(number) if isinstance(variable, Integer) and number == math.floor(number) else number


def _same(option: Scalar, cell: Any) -> bool:
    """Tell whether a cell is an option, as it is or as spreadsheets write it: TRUE for True, 1.0 for 1."""
    if isinstance(option, bool) or isinstance(cell, bool):
        return str(option).lower() == str(cell).lower()
    if isinstance(option, str):
        return option == str(cell)
    try:
        return float(option) == float(cell)
    except (TypeError, ValueError):
        return False


def _number(value: Any, where: str, otherwise: str = "") -> float:
    try:
        number = math.nan if isinstance(value, str) and "_" in value else float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number):
        raise ValueError(f"{where}: must be a finite number{otherwise}, got {value!r}")
    return number


def _read_csv(path: Path) -> tuple[list[str], list[dict[str, Any]]]:
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:  # spreadsheets put a byte-order mark first
            lines = [line for line in csv.reader(file) if line]
    except (UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"{path.name} is not a CSV file in UTF-8: {error}") from None
    header = lines[0] if lines else []
    for i, line in enumerate(lines[1:], 1):
        if len(line) != len(header):
            raise ValueError(
                f"{path.name}, row {i}: must have {len(header)} cells like the header, got {len(line)}: {line!r}; "
                "decimals take a point, and a cell with a comma quotes"
            )
    return header, [dict(zip(header, line, strict=True)) for line in lines[1:]]


def _write_parquet(path: Path, problem: Problem, columns: list[str], table: list[dict[str, Any]]) -> None:
    import duckdb

    folded: dict[str, str] = {}
    for name in columns:
        other = folded.setdefault(name.lower(), name)
        if other != name:
            raise ValueError(
                f"columns {other!r} and {name!r} are one to Parquet's readers, which do not tell small letters from "
                "capitals; export a .csv file"
            )
    numbers = {"suggestion": "BIGINT", "asked": "DOUBLE", "settled": "DOUBLE"}
    types = {column: numbers.get(kind, "VARCHAR") for kind, column in zip(FIXED, columns, strict=False)}
    types |= dict.fromkeys(problem.outputs, "DOUBLE")
    for name, variable in {**problem.parameters, **problem.context}.items():
        if isinstance(variable, Choice):
            kinds = {type(option) for option in variable.options}
            types[name] = "BOOLEAN" if kinds == {bool} else "DOUBLE" if kinds <= {int, float} else "VARCHAR"
        else:
            types[name] = "BIGINT" if isinstance(variable, Integer) else "DOUBLE"
    with duckdb.connect() as database:
        names = ", ".join(f"{_quoted(c)} {types[c]}" for c in columns)
        database.execute(f"CREATE TABLE study ({names})")
        # a list a column: row by row takes a hundred times as long
        values = ", ".join(f"unnest(?::{types[c]}[])" for c in columns)
        database.execute(f"INSERT INTO study SELECT {values}", [_column(table, c, types[c]) for c in columns])
        try:
            database.execute(f"COPY study TO {_text(str(path))} (FORMAT PARQUET)")
        except duckdb.Error as error:
            raise OSError(f"{path} cannot be written: {_first_line(error)}") from None


def _column(table: list[dict[str, Any]], name: str, kind: str) -> list[Any]:
    """Return a column of one type, as DuckDB wants a list to be."""
    cast: Callable[[Any], Any] = {"VARCHAR": str, "DOUBLE": float, "BIGINT": int, "BOOLEAN": bool}[kind]
    return [None if row[name] is None else cast(row[name]) for row in table]


def _read_parquet(path: Path) -> tuple[list[str], list[dict[str, Any]]]:
    import duckdb

    path.open("rb").close()  # an error of the system, which DuckDB's would not be
    with duckdb.connect() as database:
        try:
            cursor = database.execute(f"SELECT * FROM read_parquet({_text(str(path))})")
            rows = cursor.fetchall()
        except duckdb.Error as error:
            raise ValueError(f"{path.name} is not a Parquet file: {_first_line(error)}") from None
        names = [column[0] for column in cursor.description]
        return names, [dict(zip(names, row, strict=True)) for row in rows]


def _first_line(error: Exception) -> str:
    """Return an error of DuckDB without the statement that it shows below."""
    return str(error).partition("\n")[0]


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"
