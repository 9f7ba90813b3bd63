"""The command line: arguments reach what they name, errors are one line, missing extras are named."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

import pdcbo
from pdcbo import experiment
from pdcbo.cli import app
from pdcbo.experiment.jobs import Variant
from pdcbo.experiment.suite import VARIANTS

ENVIRONMENT = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}


def invoke(*arguments: str) -> str:
    result = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_help_names_every_command() -> None:
    text = invoke("--help")
    for command in ("run", "compare", "reproduce", "rates", "suite", "bench", "serve"):
        assert command in text


@pytest.mark.parametrize("command", ["run", "compare", "reproduce", "rates", "suite", "bench", "serve", "token",
                                     "report", "export", "import"])  # fmt: skip
def test_help_of_every_command_is_no_error(command: str) -> None:
    assert f"pdcbo {command}" in invoke(command, "--help").replace("root", "pdcbo")


def test_run_leaves_a_figure_and_words_of_an_operator(tmp_path: Path) -> None:
    text = invoke("run", "williams-otto", "--steps", "8", "--option", "pdcbo.candidates=12", "--out", str(tmp_path))
    assert "true average of x_a" in text
    assert "must be at most 0.12" in (tmp_path / "summary.txt").read_text()
    assert (tmp_path / "episode.png").stat().st_size > 20_000


def test_run_takes_plants_without_constraints_prices_or_reals(tmp_path: Path) -> None:
    invoke("run", "pump-station", "--optimizer", "random", "--steps", "4", "--out", str(tmp_path))


def test_compare_prints_its_summary(tmp_path: Path) -> None:
    text = invoke(
        "compare", "gp-sample", "--optimizers", "random,same:random", "--seeds", "2", "--steps", "4", "--workers", "0",
        "--plant-option", "contexts=adversarial", "--plant-option", "noise=0.1", "--out", str(tmp_path),
    )  # fmt: skip
    assert "| same | 2 |" in text
    assert (tmp_path / "results.parquet").is_file()


def test_options_reach_the_variants_that_the_suite_has_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Variant] = []
    monkeypatch.setattr(experiment.suite, "suite", lambda seeds, out, *, variants, **_: seen.extend(variants))
    invoke("suite", "--option", "safe-ucb.beta_sqrt=3", "--option", "pdcbo.candidates=12")
    changed = {"safe-ucb": {"ucb": True, "beta_sqrt": 3}, "pdcbo": {"candidates": 12}}
    assert seen == [replace(v, options=changed.get(v.label, v.options)) for v in VARIANTS]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("compare", "nowhere", "--optimizers", "random", "--seeds", "1", "--workers", "0"), "plant must be one of"),
        (("compare", "gp-sample", "--optimizers", "nobody"), "is no optimizer"),
        (("reproduce", "figure9"), "figure must be one of"),
        (("run", "--plant-option", "contexts"), "is not key=value"),
        (("suite", "--option", "nobody.eta=3"), "a label out of ['pdcbo', 'algorithm 1', 'cei', 'safeopt', 'safe-ucb'"),
        (("run", "--option", "pdcbo.speed=1", "--steps", "1"), "speed"),
    ],
)
def test_what_the_user_got_wrong_is_one_line(tmp_path: Path, arguments: tuple[str, ...], words: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pdcbo.cli", *arguments, "--out", str(tmp_path)],
        capture_output=True, text=True, env=ENVIRONMENT, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert words in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("missing", ["typer", "duckdb", "matplotlib"])
def test_a_missing_extra_is_named(tmp_path: Path, missing: str) -> None:
    script = (
        f"import sys; sys.modules[{missing!r}] = None; "
        f"sys.argv = ['pdcbo', 'compare', 'gp-sample', '--optimizers', 'random', '--seeds', '1', '--steps', '2', "
        f"'--workers', '0', '--out', {str(tmp_path)!r}]; import pdcbo.cli; pdcbo.cli.main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, env=ENVIRONMENT, timeout=60, check=False
    )
    assert done.returncode == 1
    assert 'pip install "pdcbo[experiments]"' in done.stderr


def without(missing: str, code: str) -> str:
    """Return what Python says at the end of a script, with a module missing."""
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.modules[{missing!r}] = None; {code}"],
        capture_output=True, text=True, env=ENVIRONMENT, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    return done.stderr


@pytest.mark.parametrize(
    ("missing", "code"),
    [
        ("fastapi", "sys.argv = ['pdcbo', 'serve', '--store', STORE]; import pdcbo.cli; pdcbo.cli.main()"),
        ("httpx", "import pdcbo; pdcbo.connect('http://127.0.0.1:1', 'study')"),
        ("psycopg", "import pdcbo; pdcbo.Study.open('postgresql://nobody@127.0.0.1:1/nothing', 'study')"),
    ],
)
def test_what_the_service_needs_is_named(tmp_path: Path, missing: str, code: str) -> None:
    said = without(missing, code.replace("STORE", repr(f"sqlite:///{tmp_path}/plant.db")))
    assert missing in said
    assert 'pip install "pdcbo[service]"' in said


def test_the_command_starts_itself_again_with_one_thread() -> None:
    environment = {k: v for k, v in ENVIRONMENT.items() if not k.endswith("_NUM_THREADS")}
    done = subprocess.run(
        [sys.executable, "-m", "pdcbo.cli", "--help"],
        capture_output=True, text=True, env=environment, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0
    assert "compare" in done.stdout


def test_an_interrupt_stops_a_comparison_and_keeps_what_was_finished(tmp_path: Path) -> None:
    seeds = 200
    started = subprocess.Popen(
        [sys.executable, "-m", "pdcbo", "compare", "gp-sample", "--optimizers", "pdcbo", "--seeds", str(seeds),
         "--steps", "60", "--workers", "1", "--out", str(tmp_path)],
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # tests in the background ignore it
    )  # fmt: skip
    while not any((tmp_path / "runs").glob("*.parquet")):
        assert started.poll() is None
        time.sleep(0.05)
    started.send_signal(signal.SIGINT)
    said = started.communicate(timeout=60)[1]
    assert started.returncode == 130
    assert "what was finished is kept" in said
    assert "Traceback" not in said
    assert 0 < len(list((tmp_path / "runs").glob("*.parquet"))) < seeds
    assert not list(tmp_path.rglob(".*"))


def test_a_wrong_option_is_one_error_before_anything_runs(tmp_path: Path) -> None:
    for command in (("compare", "branin"), ("suite", "--plants", "branin,gardner")):
        result = CliRunner().invoke(
            app, [*command, "--optimizers", "random,pdcbo", "--option", "pdcbo.setting=fast", "--seeds", "3",
                  "--out", str(tmp_path)],
        )  # fmt: skip
        assert result.exit_code == 1
        assert str(result.output).count("setting must be one of") == 1
        assert not list(tmp_path.iterdir())


def test_the_version_is_said_and_the_package_is_a_command() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pdcbo", "--version"], capture_output=True, text=True, env=ENVIRONMENT, timeout=60,
        check=True,
    )  # fmt: skip
    assert done.stdout == f"pdcbo {pdcbo.__version__}\n"
    citation = (Path(__file__).parents[1] / "CITATION.cff").read_text()
    assert f"\nversion: {pdcbo.__version__}\n" in citation


def test_make_clean_keeps_the_results() -> None:
    done = subprocess.run(
        ["make", "--dry-run", "clean"], cwd=Path(__file__).parents[1], capture_output=True, text=True, check=True
    )
    assert ".venv" in done.stdout
    assert "runs" not in done.stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("compare", "gp-sample", "--seeds", "0"), "'--seeds': must be at least 1, got 0"),
        (("run", "gp-sample", "--seed", "-1"), "'--seed': must be at least 0, got -1"),
        (("suite", "--steps", "-3"), "'--steps': must be at least 1, got -3"),
    ],
)
def test_a_number_that_is_too_small_is_named(arguments: tuple[str, ...], words: str) -> None:
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 2
    assert words in result.output
