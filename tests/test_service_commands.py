"""The commands: token, report, export, import, what serve refuses, and errors in one line."""

from __future__ import annotations

from pathlib import Path

import pytest
from store_tools import PROBLEM, answer, context
from typer.testing import CliRunner

from pdcbo.cli import app
from pdcbo.service import server
from pdcbo.store import Study, open_journal
from pdcbo.store.journal import hash_token


def run(*arguments: object) -> tuple[int, str]:
    result = CliRunner().invoke(app, [str(a) for a in arguments])
    return result.exit_code, result.output


def test_report_export_and_import(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/plant.db"
    with Study.open(store, "plant", PROBLEM, horizon=9) as study:
        for t in range(3):
            s = study.ask(context(t))
            study.tell(s, *answer(s.parameters, s.context, t))
    assert run("report", "plant", "--store", store, "--out", tmp_path / "r.html") == (0, f"{tmp_path}/r.html\n")
    assert (tmp_path / "r.html").stat().st_size > 1_000_000  # Plotly's script is inside
    assert run("export", "plant", tmp_path / "t.csv", "--store", store)[1].startswith("3 rows")
    Study.open(store, "other", PROBLEM, horizon=9).close()
    assert run("import", "other", tmp_path / "t.csv", "--store", store)[1].startswith("learned from 3 rows")
    for command in (("report", "none"), ("export", "none", tmp_path / "t.csv"), ("import", "none", tmp_path / "t.csv")):
        code, said = run(*command, "--store", store)
        assert (code, said) == (1, "error: there is no study 'none'; the store holds ['plant', 'other']\n")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("report", "plant", "--out", "none/r.html"), "there is no folder 'none' to write 'r.html' into"),
        (("export", "plant", "none/t.csv"), "there is no folder 'none' to write 't.csv' into"),
        (("export", "plant", "none/t.parquet"), "there is no folder 'none' to write 't.parquet' into"),
        (("import", "plant", "none.csv"), "none.csv: No such file or directory"),
        (("import", "plant", "none.parquet"), "none.parquet: No such file or directory"),
        (("import", "plant", "junk.parquet"), "junk.parquet is not a Parquet file"),
        (("import", "plant", "junk.txt"), "must end in .csv or .parquet, got 'junk.txt'"),
        (("serve", "--certificate", "no.pem", "--key", "no.key"), "--certificate 'no.pem' with --key 'no.key' cannot"),
        (("serve", "--max-body", "0"), "--max-body must be at least 1 byte, got 0"),
        (("serve", "--port", "99999"), "--port must be at least 0 and at most 65535, got 99999"),
        (("serve", "--log-level", "loud"), "--log-level must be one of DEBUG, INFO, WARNING, ERROR, got 'loud'"),
        (("serve", "--key", "no.key"), "--key 'no.key' needs its --certificate"),
        (
            ("serve", "--store", "sqlite:///none/plant.db"),
            "the store none/plant.db cannot be opened: there is no folder",
        ),
        (("token", "x", "--remove"), "there is no token 'x'; the store holds []"),
        (("run", "--out", "junk.parquet"), "--out must be a folder, got 'junk.parquet'"),
        (("run", "--out", "junk.parquet/below"), "got 'junk.parquet/below', and 'junk.parquet' is a file"),
    ],
)
def test_errors_are_one_line_that_names_the_file_or_value(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], words: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("junk.parquet").write_text("junk")
    Study.open("pdcbo.db", "plant", PROBLEM).close()
    code, said = run(*arguments)
    assert code == 1
    assert said.startswith("error: ")
    assert words in said
    assert said.count("\n") == 1


@pytest.mark.parametrize("given", ["warning", "Warning", "WARNING"])
def test_a_log_level_may_be_written_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str) -> None:
    levels: list[str] = []
    monkeypatch.setattr(server, "serve", lambda store, *, log_level, **_: levels.append(log_level))
    assert run("serve", "--store", tmp_path / "plant.db", "--log-level", given) == (0, "")
    assert levels == ["WARNING"]


@pytest.mark.parametrize(
    "arguments", [("report", "x"), ("export", "x", "t.csv"), ("import", "x", "t.csv"), ("token", "x", "--remove")]
)
def test_commands_that_need_what_is_there_create_no_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(*arguments, "--store", "sqlite:///typo.db") == (1, "error: there is no store 'typo.db'\n")
    assert not list(tmp_path.iterdir())


def test_import_says_what_it_did_not_read(tmp_path: Path) -> None:
    Study.open(tmp_path / "plant.db", "plant", PROBLEM).close()
    (tmp_path / "t.csv").write_text("a,b,c,objective,g,shift\n0.5,1,0.5,1.0,,late\n")
    code, said = run("import", "plant", tmp_path / "t.csv", "--store", tmp_path / "plant.db")
    assert code == 0
    assert "note: t.csv: no row has a value of 'g'" in said
    assert "note: t.csv: other columns were not read: 'shift'" in said
    assert f"learned from 1 rows of {tmp_path}/t.csv" in said


def test_tokens_are_printed_once_and_kept_as_hashes(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/plant.db"
    code, said = run("serve", "--store", store, "--host", "0.0.0.0")
    assert code == 1
    assert "needs a token" in said
    assert f"there was no store {store}x so far" in run("token", "plant", "--store", f"{store}x")[1]
    token = run("token", "plant", "--store", store)[1].strip()
    journal = open_journal(store)
    assert journal.tokens() == {"plant": hash_token(token)}
    assert token.encode() not in (tmp_path / "plant.db").read_bytes() + (tmp_path / "plant.db-wal").read_bytes()
    assert run("token", "plant", "--remove", "--store", store)[0] == 0
    assert run("token", "plant", "--remove", "--store", store)[0] == 1
    assert journal.tokens() == {}
    journal.close()
