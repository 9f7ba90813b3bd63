"""The commands: token, report, export, import, and what serve refuses."""

from __future__ import annotations

from pathlib import Path

import typer
from store_tools import PROBLEM, answer, context
from typer.testing import CliRunner

from pdcbo.service.commands import register
from pdcbo.store import Study, open_journal
from pdcbo.store.journal import hash_token

app = typer.Typer()
register(app)


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
        assert code == 1
        assert "error: there is no study 'none'" in said


def test_tokens_are_printed_once_and_kept_as_hashes(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/plant.db"
    code, said = run("serve", "--store", store, "--host", "0.0.0.0")
    assert code == 1
    assert "needs a token" in said
    token = run("token", "plant", "--store", store)[1].strip()
    journal = open_journal(store)
    assert journal.tokens() == {"plant": hash_token(token)}
    assert token.encode() not in (tmp_path / "plant.db").read_bytes() + (tmp_path / "plant.db-wal").read_bytes()
    assert run("token", "plant", "--remove", "--store", store)[0] == 0
    assert run("token", "plant", "--remove", "--store", store)[0] == 1
    assert journal.tokens() == {}
    journal.close()
