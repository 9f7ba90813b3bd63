"""Export and import as CSV and Parquet."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest

import pdcbo
from pdcbo.store import Study
from pdcbo.store.tables import export, load, read, rows

PROBLEM = pdcbo.Problem(
    {
        "r": (0.0, 1.0),
        "i": pdcbo.Integer(0, 9),
        "k": pdcbo.Choice(["x", 'it\'s "y"']),
        "f": pdcbo.Choice([True, False]),
    },
    {"c,d": (0.0, 1.0)},
    {"g": 0.5},
)
HEADER = 'r,i,k,f,"c,d",objective,g\n'


def filled(path: Path) -> Study:
    study = Study.open(path, "plant", PROBLEM, optimizer="random")
    for t in range(8):
        s = study.ask({"c,d": t / 7})
        if t == 2:
            study.fail(s, "line, broken\nhere")
        elif t == 3:
            study.tell(s, 0.1 + 0.2, {"g": None}, applied={"r": 1 / 3})
        elif t < 7:
            study.tell(s, t / 3, {"g": -1e-17 * t})
    return study


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_study_goes_out_and_comes_in_without_losing_a_bit(tmp_path: Path, kind: str) -> None:
    study = filled(tmp_path / "a.db")
    file = tmp_path / f"table.{kind}"
    assert export(study, file) == 8
    past = read(file, PROBLEM)
    assert len(past) == 6  # the failed and the pending one have nothing to learn from
    assert past[2] == {**study.events()[7].payload["step"]["suggestion"]["parameters"], "r": 1 / 3, "c,d": 3 / 7,
                       "objective": 0.1 + 0.2}  # fmt: skip
    other = Study.open(tmp_path / "b.db", "other", PROBLEM, horizon=50)
    assert load(other, file) == 6
    said: list[str] = []
    assert load(other, file, say=said.append) == 0
    assert load(study, file) == 0, "its own results"
    assert said == [
        f"{file.name}: 2 rows without any measurement were left out",
        f"{file.name}: 6 rows were known already and left out",
    ]
    with other.optimizer() as optimizer:
        assert optimizer.models.n == 6
    assert other.step == 0


def test_bad_tables_are_refused_by_row_and_column(tmp_path: Path) -> None:
    file = tmp_path / "t.csv"
    file.write_text(HEADER + "0.5,1,x,True,0.5,1.0,\n0.5,1,x,True,,1.0,\n")
    with pytest.raises(ValueError, match="row 2: column 'c,d' is empty"):
        read(file, PROBLEM)
    file.write_text(HEADER + "0.5,1,x,True,0.5,nan,\n")
    with pytest.raises(ValueError, match=r"row 1, column 'objective': must be a finite number, or an empty cell"):
        read(file, PROBLEM)
    file.write_text(HEADER + "0.5,1,z,True,0.5,1,\n")
    with pytest.raises(ValueError, match="must be one of"):
        read(file, PROBLEM)
    with pytest.raises(ValueError, match="must end in"):
        export(filled(tmp_path / "a.db"), tmp_path / "t.xlsx")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (HEADER.replace(",", ";"), r"no column 'r'; its columns are \['r;i;k;f;"),
        (HEADER.replace(",g", ",G"), "no column 'g'; add an empty one if it was never measured; its columns are"),
        (HEADER.replace(",objective", ",cost"), "no column 'objective'; add an empty one"),
        (HEADER.replace("\n", ",r\n"), "column 'r' twice"),
        ("", r"no column 'r'; its columns are \[\]"),
        (HEADER + "0.5,1,x,True,0.5,1,\xe9\n", "t.csv is not a CSV file in UTF-8"),
    ],
)
def test_a_table_without_all_columns_is_refused_with_those_it_has(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "t.csv").write_text(text, encoding="latin-1")
    with pytest.raises(ValueError, match=words):
        read(tmp_path / "t.csv", PROBLEM)


def test_a_byte_order_mark_is_passed_over_and_what_was_not_read_is_said(tmp_path: Path) -> None:
    said: list[str] = []
    text = HEADER.replace("\n", ",operator,reason\n") + "0.5,1,x,True,0.5,1,,Jörg,\n"
    (tmp_path / "t.csv").write_text(text, encoding="utf-8-sig")
    assert read(tmp_path / "t.csv", PROBLEM, said.append) == [
        {"r": 0.5, "i": 1, "k": "x", "f": True, "c,d": 0.5, "objective": 1.0}
    ]
    assert said == [
        "t.csv: no row has a value of 'g'; nothing is learned of it",
        "t.csv: other columns were not read: 'operator'",
    ]


def test_parquet_files_that_cannot_be_read_or_written_are_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"none\.parquet"):
        read(tmp_path / "none.parquet", PROBLEM)
    (tmp_path / "junk.parquet").write_text("junk")
    with pytest.raises(ValueError, match=r"junk\.parquet is not a Parquet file: .*Parquet file$"):
        read(tmp_path / "junk.parquet", PROBLEM)
    with filled(tmp_path / "a.db") as study, pytest.raises(OSError, match=r"none/t\.parquet\.part cannot be written"):
        export(study, tmp_path / "none" / "t.parquet")


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_an_export_that_fails_leaves_nothing_behind(tmp_path: Path, kind: str) -> None:
    target = tmp_path / "tables" / f"t.{kind}"
    target.mkdir(parents=True)  # a folder is where the file should go
    with filled(tmp_path / "a.db") as study, pytest.raises(OSError, match=r"t\.(csv|parquet)"):
        export(study, target)
    assert list(target.parent.iterdir()) == [target]


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_names_of_the_export_itself_may_be_the_problems_too(tmp_path: Path, kind: str) -> None:
    problem = pdcbo.Problem({"Asked": (0.0, 1.0)}, {"status": (0.0, 1.0), "status_": pdcbo.Choice(["a", "b"])})
    file = tmp_path / f"t.{kind}"
    with Study.open(tmp_path / "a.db", "plant", problem, optimizer="random") as study:
        s = study.ask({"status": 0.25, "status_": "b"})
        study.tell(s, 1.5)
        assert export(study, file) == 1
        with study.record() as record:
            [row] = rows(record)
    assert (row["status__"], row["status_"], row["status"]) == ("told", "b", 0.25)
    assert row["asked_"] == study.events()[1].time
    said: list[str] = []
    assert read(file, problem, said.append) == [{**s.parameters, **s.context, "objective": 1.5}]
    assert not said


def test_names_that_differ_in_case_go_to_csv_and_not_to_parquet(tmp_path: Path) -> None:
    problem = pdcbo.Problem({"T": (0.0, 1.0), "t": (0.0, 1.0)})
    with Study.open(tmp_path / "a.db", "plant", problem, optimizer="random") as study:
        s = study.ask()
        study.tell(s, 1.5)
        with pytest.raises(ValueError, match=r"columns 'T' and 't' are one .* export a \.csv file"):
            export(study, tmp_path / "t.parquet")
        export(study, tmp_path / "t.csv")
    assert read(tmp_path / "t.csv", problem) == [{**s.parameters, "objective": 1.5}]


def test_an_import_counts_equal_rows_and_knows_what_was_corrected(tmp_path: Path) -> None:
    problem = pdcbo.Problem({"u": (0.0, 1.0), "k": pdcbo.Choice([1, True])}, {}, {"g": 1.0})
    study = Study.open(tmp_path / "a.db", "a", problem, optimizer="random")
    file, row = tmp_path / "t.csv", "0.5,1,2.0,0.5\n"
    file.write_text("u,k,objective,g\n" + 2 * row)
    assert load(study, file) == 2
    for count in (3, 4):
        file.write_text("u,k,objective,g\n" + count * row)
        assert load(study, file) == 1
    assert study.events()[-1].seq == 4
    suggestion = study.ask()
    study.tell(suggestion, 1.0, {"g": 500.0})
    export(study, file)
    study.correct(suggestion, constraints={"g": 0.5})
    assert load(study, file) == 0, "the value that was corrected since"
    export(study, file)
    with file.open("a") as table:
        table.write(",".join({"u": "0.25", "k": "1", "objective": "3", "g": "0.1"}.get(c, "") for c in columns(file)))
    assert load(study, file) == 1
    study.correct(suggestion, constraints={"g": 0.6})
    assert load(study, file) == 0, "nor the one between two corrections"
    late = study.ask()
    study.tell(late, None, {"g": 0.5})
    study.correct(late, objective=4.0)
    export(study, file)
    assert load(study, file) == 0


def columns(file: Path) -> list[str]:
    return file.read_text().splitlines()[0].split(",")


@pytest.mark.parametrize("row", ["0,5,1,x,True,0.5,1.0,0.1", "0.5,1,x,True,0.5,1.0"])
def test_a_row_with_cells_too_many_or_too_few_is_refused(tmp_path: Path, row: str) -> None:
    file = tmp_path / "t.csv"
    file.write_text(HEADER + f"0.5,1,x,True,0.5,1.0,0.1\n{row}\n")
    with pytest.raises(ValueError, match=r"row 2: must have 7 cells like the header, got [68]"):
        read(file, PROBLEM)


def test_options_are_read_as_spreadsheets_write_them(tmp_path: Path) -> None:
    problem = pdcbo.Problem({"on": pdcbo.Choice([True, False]), "n": pdcbo.Choice([1, 2.5])}, {}, {"g": 1.0})
    file = tmp_path / "t.csv"
    file.write_text("on,n,objective,g\nTRUE,1.0,1,1\nfalse,2.50,1,1\n")
    assert [(row["on"], row["n"]) for row in read(file, problem)] == [(True, 1), (False, 2.5)]


def test_no_reason_is_a_formula_and_numbers_stay_numbers(tmp_path: Path) -> None:
    problem = pdcbo.Problem({"u": (-1.0, 0.0), "k": pdcbo.Choice(["-x", "=y"])}, {}, {"reason": 0.5})
    file = tmp_path / "t.csv"
    reasons = ['=HYPERLINK("http://evil.example")', "+1", "-1", "@SUM(A1)", "\t=1", "plain, -1", ""]
    with Study.open(tmp_path / "a.db", "plant", problem, optimizer="random") as study:
        for reason in reasons:
            study.fail(study.ask(), reason)
        told = study.ask()
        study.tell(told, -1.5, {"reason": -0.25})
        export(study, file)
        with file.open(newline="") as table:
            exported = list(csv.DictReader(table))
        assert [row["reason_"] for row in exported[:-1]] == [f"'{r}" for r in reasons[:5]] + reasons[5:]
        assert (exported[-1]["objective"], exported[-1]["reason"]) == ("-1.5", "-0.25")
        assert exported[-1]["k"] == told.parameters["k"]
        assert read(file, problem) == [{**told.parameters, "objective": -1.5, "reason": -0.25}]
        assert load(study, file) == 0


def test_parquet_is_written_in_one_go_in_the_types_of_its_columns(tmp_path: Path, monkeypatch: Any) -> None:
    import duckdb

    problem = pdcbo.Problem(
        {"u": (0.0, 1.0), "i": pdcbo.Integer(0, 9), "k": pdcbo.Choice(["x", 3, True])}, {}, {"g": 0.5}
    )
    file = tmp_path / "t.parquet"
    connect, statements = duckdb.connect, []

    class Counting:
        def __init__(self) -> None:
            self.real = connect()

        def __enter__(self) -> Any:
            return self

        def __exit__(self, *_: object) -> None:
            self.real.close()

        def execute(self, sql: str, *values: Any) -> Any:
            statements.append(sql)
            return self.real.execute(sql, *values)

    monkeypatch.setattr(duckdb, "connect", Counting)
    with Study.open(tmp_path / "a.db", "plant", problem, optimizer="random") as study:
        assert export(study, file) == 0
        made = [study.ask() for _ in range(30)]
        for s in made[:20]:
            study.tell(s, 0.1 * s.id, {"g": None})
        statements.clear()
        assert export(study, file) == 30
    assert len(statements) == 3
    with connect() as database:
        found = database.execute(f"SELECT suggestion, settled, u, i, k, objective, g FROM '{file}'")
        kinds, written = [column[1] for column in found.description], found.fetchall()
    assert [str(kind) for kind in kinds] == ["BIGINT", "DOUBLE", "DOUBLE", "BIGINT", "VARCHAR", "DOUBLE", "DOUBLE"]
    for s, row in zip(made, written, strict=True):
        told = s.id <= 20
        assert row[0] == s.id
        assert row[1:2] != (None,) if told else row[1] is None
        assert row[2:5] == (s.parameters["u"], s.parameters["i"], str(s.parameters["k"]))
        assert row[5:] == (0.1 * s.id if told else None, None)
    assert [row["k"] for row in read(file, problem)] == [s.parameters["k"] for s in made[:20]]


def test_a_suffix_in_capitals_and_a_word_for_a_parameter(tmp_path: Path) -> None:
    problem = pdcbo.Problem({"speed": (0.0, 1.0)}, {}, {"g": 1.0})
    file = tmp_path / "PAST.CSV"
    file.write_text("speed,objective,g\n0.5,1.0,\n")
    assert read(file, problem) == [{"speed": 0.5, "objective": 1.0}]
    file.write_text("speed,objective,g\nrpm,1.0,0.1\n")
    with pytest.raises(ValueError, match="column 'speed': must be a finite number, got 'rpm'"):
        read(file, problem)
    file.write_text("speed,objective,g\n0.5,1.0,none\n")
    with pytest.raises(ValueError, match="or an empty cell if it was not measured, got 'none'"):
        read(file, problem)
