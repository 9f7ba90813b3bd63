"""The benchmark: stacks agree before they are timed, and the report tells a regression."""

import pytest

from pdcbo import bench
from pdcbo.bench_report import baseline_of, figure, report

NAMES = ["pdcbo shared", "pdcbo separate", "pdcbo plain", "scikit-learn"]


@pytest.fixture(scope="module")
def data() -> dict:
    results = [bench.compare(bench.SETTINGS["A50"], n, NAMES, rounds=1, hot=2) for n in (70, 140)]
    cold = {"pdcbo shared": bench.cold_start("pdcbo shared")}
    return {
        "versions": dict.fromkeys(NAMES, "here"),
        "results": results,
        "cold": cold,
        "api": bench.api_overhead(30, 5),
    }


def test_stacks_agree_and_are_timed(data) -> None:
    for result in data["results"]:
        assert set(result["median"]) == set(NAMES)
        assert max(result["disagreement"].values()) < 1e-8
        assert all(time > 0.0 for time in result["median"].values())
        assert result["right_hand_sides"] == 50


def test_report_shows_a_regression_against_the_baseline(data, tmp_path) -> None:
    now = baseline_of(data)
    text = report(data, {key: value / 2.0 for key, value in now.items()})
    assert text.count("| slower |") == len(now)
    assert "| slower |" not in report(data, now)
    figure(data, tmp_path / "bench.png")
    assert (tmp_path / "bench.png").stat().st_size > 10_000


def test_an_unknown_stack_is_refused(tmp_path) -> None:
    with pytest.raises(ValueError, match=r"stacks must be among .* got 'gp'"):
        bench.run(tmp_path, True, ["gp"])


def test_a_stack_that_disagrees_is_not_timed(monkeypatch) -> None:
    class Wrong(bench.Shared):
        def ask(self, z):
            mean, std = super().ask(z)
            return mean + 1e-3, std

    monkeypatch.setitem(bench.STACKS, "pdcbo shared", Wrong)
    with pytest.raises(RuntimeError, match="pdcbo shared disagrees"):
        bench.compare(bench.SETTINGS["A50"], 30, ["pdcbo shared"], rounds=1, hot=1)
