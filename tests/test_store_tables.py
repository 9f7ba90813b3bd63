"""Export and import as CSV and Parquet."""

from __future__ import annotations

from pathlib import Path

import pytest

import pdcbo
from pdcbo.store import Study
from pdcbo.store.tables import export, load, read

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
    rows = read(file, PROBLEM)
    assert len(rows) == 6  # the failed and the pending one have nothing to learn from
    assert rows[2] == {**study.events()[7].payload["step"]["suggestion"]["parameters"], "r": 1 / 3, "c,d": 3 / 7,
                       "objective": 0.1 + 0.2}  # fmt: skip
    other = Study.open(tmp_path / "b.db", "other", PROBLEM, horizon=50)
    assert load(other, file, key="import") == 6
    assert load(other, file, key="import") == 6
    with other.optimizer() as optimizer:
        assert optimizer.models.n == 6  # type: ignore[attr-defined]
    assert other.step == 0


def test_bad_tables_are_refused_by_row_and_column(tmp_path: Path) -> None:
    file = tmp_path / "t.csv"
    file.write_text('r,i,k,f,"c,d",objective\n0.5,1,x,True,0.5,1.0\n0.5,1,x,True,,1.0\n')
    with pytest.raises(ValueError, match="row 2: column 'c,d' is missing"):
        read(file, PROBLEM)
    file.write_text('r,i,k,f,"c,d",objective\n0.5,1,x,True,0.5,nan\n')
    with pytest.raises(ValueError, match=r"row 1, column 'objective': must be finite"):
        read(file, PROBLEM)
    file.write_text('r,i,k,f,"c,d",objective\n0.5,1,z,True,0.5,1\n')
    with pytest.raises(ValueError, match="must be one of"):
        read(file, PROBLEM)
    with pytest.raises(ValueError, match="must end in"):
        export(filled(tmp_path / "a.db"), tmp_path / "t.xlsx")
