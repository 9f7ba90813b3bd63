"""The benchmark: stacks agree before they are timed, and the report tells a regression."""

import sys
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest

from pdcbo import bench, bench_worker
from pdcbo.bench_report import baseline_of, figure, report
from pdcbo.bench_stacks import Shared
from pdcbo.bench_worker import Work

NAMES = ["pdcbo shared", "pdcbo separate", "pdcbo plain", "scikit-learn"]


@pytest.fixture(scope="module")
def data() -> dict:
    with ExitStack() as end:
        workers, versions = bench.start_all(NAMES, {}, end)
        results = [bench.compare(bench.SETTINGS["A50"], n, workers, rounds=1, hot=2) for n in (70, 140)]
    cold = {"pdcbo shared": bench.cold_start("pdcbo shared")}
    return {
        "versions": versions,
        "results": results,
        "cold": cold,
        "interface": bench.measure(bench.SETTINGS["A50"], 70, 5, 12),
    }


def test_stacks_agree_and_are_timed(data) -> None:
    for result in data["results"]:
        assert set(result["median"]) == set(NAMES)
        assert max(result["disagreement"].values()) < 1e-8
        assert all(time > 0.0 for time in result["median"].values())
        assert result["right_hand_sides"] == 50


def test_the_interface_is_timed_against_its_own_engine(data) -> None:
    found = data["interface"]
    for kind in ("paper", "default"):
        assert 0.0 < found[kind]["engine"] < found[kind]["public"]
    episode = found["episode"]
    assert 0.0 < episode["learning"] + episode["planning"] < episode["seconds"]
    text = report(data, {})
    assert f"{found['paper']['over']:.2f} (bar 0.15)" in text
    assert f"learning hyper-parameters {episode['learning']:.2f} s" in text


def test_the_bare_engine_answers_as_the_tuner_does() -> None:
    from pdcbo import PDCBO, Problem
    from pdcbo.bench_interface import _Engine

    tuner = PDCBO(Problem({"theta": (0.0, 1.0)}, {"z": (0.0, 1.0)}, {"g": 0.0}), candidates=20)
    for t in range(30):
        suggestion = tuner.ask({"z": t / 30})
        theta = float(suggestion.parameters["theta"])
        tuner.tell(suggestion, np.sin(9 * theta) + t / 30, {"g": np.cos(5 * theta)})
    z = np.array([0.3])
    mean, std = tuner.models.at(z)
    for group, posterior in _Engine(tuner).groups:
        for j, i in enumerate(group):
            h = tuner.models.hyper[i]
            bare_mean, bare_std = posterior.at(z)
            trend = h.prior_mean(np.column_stack([tuner.candidates, np.full(20, 0.3)]))
            np.testing.assert_allclose(mean[i], trend + h.scale * bare_mean[:, j], rtol=1e-12, atol=1e-12)
            np.testing.assert_allclose(std[i], h.scale * bare_std, rtol=1e-12)


def test_report_shows_a_regression_against_the_baseline(data, tmp_path) -> None:
    now = baseline_of(data)
    text = report(data, {key: value / 2.0 for key, value in now.items()})
    assert text.count("| slower |") == len(now)
    assert "| slower |" not in report(data, now)
    figure(data, tmp_path / "bench.png")
    assert (tmp_path / "bench.png").stat().st_size > 10_000


def test_the_report_says_what_each_stack_ran_with(data) -> None:
    text = report(data, {})
    for name in NAMES:
        assert any(
            line.startswith(f"| {name} ") and f"with NumPy {np.__version__} |" in line for line in text.split("\n")
        )


def interpreter(path: Path, code: str = "") -> str:
    """Return a Python that notes its arguments beside itself, and runs some code before the module it is asked for."""
    started = (
        f"import runpy, sys; {code or 'pass'}; sys.argv = sys.argv[2:]; runpy.run_module(sys.argv[0], None, '__main__')"
    )
    path.write_text(f'#!/bin/sh\necho "$@" >> {path}.calls\nexec {sys.executable} -c "{started}" "$@"\n')
    path.chmod(0o755)
    return str(path)


def calls(python: str) -> list[str]:
    return Path(f"{python}.calls").read_text().splitlines()


def test_where_gpy_has_its_own_interpreter_pdcbo_is_timed_there_too(data, tmp_path) -> None:
    own = interpreter(tmp_path / "python", "import types; sys.modules['GPy'] = types.SimpleNamespace(__version__='7')")
    with ExitStack() as end:
        workers, versions = bench.start_all(["pdcbo shared", "GPy"], {"GPy": own}, end)
        assert versions["GPy"] == f"7 {versions['pdcbo shared']}"
        assert set(workers) == {"pdcbo shared", "GPy", "pdcbo shared beside GPy"}
    serve = "-m pdcbo.bench_worker serve"
    assert calls(own) == [f"{serve} GPy", f"{serve} pdcbo shared"]
    assert "both with GPy's NumPy" not in report(data, {})
    timed = {"GPy": 40.0, "pdcbo separate beside GPy": 2.0, "pdcbo shared beside GPy": 0.5}
    results = [result | {"median": result["median"] | timed} for result in data["results"]]
    assert "| A50, n = 140 | 20x | 80x |" in report(data | {"results": results}, {})


def test_a_stack_starts_cold_with_its_own_interpreter(tmp_path) -> None:
    own = interpreter(tmp_path / "python")
    bench.first_answer("pdcbo plain", own)
    assert calls(own) == ["-m pdcbo.bench_worker start pdcbo plain"]


def test_the_command_hands_interpreters_on(monkeypatch) -> None:
    from typer.testing import CliRunner

    from pdcbo.cli import app

    seen: list[object] = []
    monkeypatch.setattr(bench, "run", lambda *arguments: seen.append(arguments))
    result = CliRunner().invoke(app, ["bench", "--python", "GPy=a/b", "--python", "GPflow=c=d", "--stacks", "GPy"])
    assert result.exit_code == 0
    assert seen == [(Path("bench"), False, ["GPy"], {"GPy": "a/b", "GPflow": "c=d"})]


def test_what_cannot_be_timed_is_said_before_the_others_are(tmp_path, capfd) -> None:
    broken = interpreter(tmp_path / "python", "import os; raise OSError(os.environ['CUDA_VISIBLE_DEVICES'])")
    with pytest.raises(SystemExit, match="1"):
        bench.run(tmp_path, True, ["GPy"], {"GPy": broken})
    said = "".join(capfd.readouterr())
    assert "GPy: not usable: its process ended with code 1: OSError: -1" in said
    assert "no stack can be timed" in said


def test_a_stack_that_prints_is_understood(tmp_path) -> None:
    loud = interpreter(tmp_path / "python", "import pdcbo.bench_stacks as s; s.Shared.tell = lambda *_: print('told')")
    worker = bench_worker.Remote("pdcbo shared", loud)
    worker.load("A50", 10, 20)
    assert len(worker.steps(10, 13)) == 3
    worker.close()


def test_a_process_that_fails_or_ends_is_named() -> None:
    worker = bench_worker.Remote("pdcbo shared")
    with pytest.raises(RuntimeError, match="pdcbo shared: KeyError: 'C'"):
        worker.load("C", 10, 20)
    worker.load("A50", 10, 20)  # and goes on
    worker._process.kill()
    with pytest.raises(RuntimeError, match="pdcbo shared: its process ended with code -9: it said nothing"):
        worker.steps(10, 11)
    worker.close()


@pytest.mark.parametrize(
    ("stacks", "pythons", "words"),
    [
        (["gp"], {}, r"stacks must be among .* got 'gp'"),
        (None, {"Gpy": sys.executable}, r"python must be for one of .*'GPy'.* got 'Gpy'"),
        (None, {"GPy": "/usr"}, r"python of GPy must be an interpreter .* got '/usr'"),
        (None, {"GPy": "nowhere"}, r"python of GPy must be an interpreter .* got 'nowhere'"),
    ],
)
def test_what_there_is_not_is_refused(tmp_path, stacks, pythons, words) -> None:
    with pytest.raises(ValueError, match=words):
        bench.run(tmp_path, True, stacks, pythons)


def test_a_stack_that_disagrees_is_not_timed(monkeypatch) -> None:
    class Wrong(Shared):
        def ask(self, z):
            mean, std = super().ask(z)
            return mean + 1e-3, std

    monkeypatch.setitem(bench.STACKS, "pdcbo shared", Wrong)
    with pytest.raises(RuntimeError, match="pdcbo shared disagrees"):
        bench.compare(bench.SETTINGS["A50"], 30, {"pdcbo shared": Work("pdcbo shared")}, rounds=1, hot=1)
