"""Comparisons: what is run, kept, continued and summed up; the paper's figures, its rates and the suite in small."""

from __future__ import annotations

import json
import multiprocessing
import shutil
import threading
import time
from collections.abc import Iterator
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pdcbo import Fixed, Problem, run
from pdcbo.experiment import digest, figure1, figure2, runner
from pdcbo.experiment import jobs as jobs_module
from pdcbo.experiment.compare import compare, comparison, parse_variants
from pdcbo.experiment.jobs import Job, Variant
from pdcbo.experiment.preparation import as_model, best_constant, prepare
from pdcbo.experiment.published import published
from pdcbo.experiment.rates import CASES, fit_exponent, jobs, priced_regret
from pdcbo.experiment.reproduce import reproduce
from pdcbo.experiment.runner import run_jobs
from pdcbo.experiment.suite import score, suite
from pdcbo.experiment.tables import Runs, collect, read_table, reflow
from pdcbo.fit import Priors, fit, initial
from pdcbo.model import kernel_for
from pdcbo.optimizers import OPTIMIZERS
from pdcbo.plants import PLANTS, Outcome
from pdcbo.plants.suite import Entry

VARIANTS = parse_variants(["pdcbo", "paper:pdcbo", "random", "fixed"], ["paper.setting=paper", "pdcbo.candidates=20"])


@contextmanager
def no_bar(title: str) -> Iterator[Any]:
    yield lambda finished, total: None


def small(out: Path, steps: int = 6) -> Any:
    return compare("gp-sample", VARIANTS, range(2), steps, out, workers=0)


def test_seconds_are_those_of_ask_and_tell_and_not_of_the_plant(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]

    def takes(owner: type, method: str, duration: float) -> None:
        inside = getattr(owner, method)

        def slow(*args: Any, **kwargs: Any) -> Any:
            clock[0] += duration
            return inside(*args, **kwargs)

        monkeypatch.setattr(owner, method, slow)

    takes(OPTIMIZERS["random"], "ask", 1.0)
    takes(OPTIMIZERS["random"], "tell", 2.0)
    takes(type(PLANTS["gp-sample"](seed=0)), "evaluate", 1000.0)
    monkeypatch.setattr(jobs_module.time, "perf_counter", lambda: clock[0])
    columns = Job("gp-sample", 0, 4, Variant("random", "random")).execute()
    assert columns["seconds"].tolist() == [3.0] * 4


def test_a_comparison_keeps_every_run_and_a_table_of_all(tmp_path: Path) -> None:
    small(tmp_path)
    table = read_table([tmp_path / "results.parquet"])
    assert len(table["step"]) == 4 * 2 * 6
    assert set(table["variant"]) == {"pdcbo", "paper", "random", "fixed"}
    columns = {"plant", "optimizer", "seed", "step", "context_z", "parameter_theta", "observed_objective", "observed_g",
               "true_objective", "true_g", "limit_g", "oracle_per_step", "oracle_time_average", "seconds"}  # fmt: skip
    assert columns <= set(table)
    row = {name: column[17] for name, column in table.items()}
    plant = PLANTS["gp-sample"](seed=int(row["seed"]))
    truth = plant.truth({"theta": float(row["parameter_theta"])}, {"z": float(row["context_z"])})
    assert row["true_objective"] == pytest.approx(truth.objective, abs=1e-9)
    assert row["limit_g"] == pytest.approx(truth.constraints["g"], abs=1e-9)
    assert (tmp_path / "summary.md").read_text().count("| 2 |") == 4
    assert (tmp_path / "comparison.png").stat().st_size > 10_000


def test_a_second_call_runs_only_what_is_missing(tmp_path: Path) -> None:
    small(tmp_path)
    runs = sorted((tmp_path / "runs").iterdir())
    stamps = {path: path.stat().st_mtime_ns for path in runs}
    before = read_table([runs[3]])
    runs[3].unlink()
    small(tmp_path)
    assert [path for path in runs if path.stat().st_mtime_ns != stamps[path]] == [runs[3]]
    after = read_table([runs[3]])
    assert all((before[name] == after[name]).all() for name in before if name != "seconds")


def test_an_option_or_a_step_more_is_another_run() -> None:
    variant = Variant("a", "pdcbo", {"eta": 1.0})
    names = {
        Job("gp-sample", seed, steps, v, plant).filename
        for seed in (0, 1)
        for steps in (5, 6)
        for v in (variant, Variant("a", "pdcbo", {"eta": 2.0}), None)
        for plant in ({}, {"noise": 0.1})
    }
    assert len(names) == 24


def test_a_plant_of_ones_own_is_known_by_its_file_in_the_suite_too(tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "own_plant.py").write_text("def make(seed=0, contexts='uniform'):\n    return None\n")
    monkeypatch.syspath_prepend(tmp_path)
    import own_plant

    assert digest.own_digest(Entry(own_plant.make, "mine"), None) == digest.own_digest(own_plant.make, None) != ""


def test_a_changed_optimizer_leaves_the_results_of_the_others(tmp_path, monkeypatch) -> None:
    package = tmp_path / "pdcbo"
    shutil.copytree(Path(digest.__file__).parents[1], package)
    monkeypatch.setattr(digest, "__file__", str(package / "experiment" / "digest.py"))

    def digests() -> dict[str | None, str]:
        digest.code_digest.cache_clear()
        return {name: digest.code_digest(name and OPTIMIZERS[name]) for name in (None, "pdcbo", "cei", "random")}

    def changed_by(file: str) -> set[str | None]:
        before = digests()
        (package / file).write_text((package / file).read_text() + "# another line")
        return {name for name, now in digests().items() if now != before[name]}

    assert changed_by("optimizers/reserve.py") == {"pdcbo"}  # which the default setting imports
    assert changed_by("optimizers/modelled.py") == {"pdcbo", "cei"}
    assert changed_by("optimizers/ledger.py") == {"pdcbo", "cei", "random"}
    assert changed_by("plants/base.py") == {None, "pdcbo", "cei", "random"}
    assert changed_by("cli.py") == set()
    digest.code_digest.cache_clear()


def test_a_plant_that_does_not_know_its_truth_is_for_the_loop_only(monkeypatch) -> None:
    class Real:
        problem = Problem({"a": (0.0, 1.0)})

        def __init__(self, seed: int = 0) -> None:
            self.seed = seed

        def context(self, t: int) -> dict[str, float]:
            return {}

        def evaluate(self, parameters: dict[str, float], context: dict[str, float]) -> Outcome:
            return Outcome(parameters["a"], {})

    monkeypatch.setitem(PLANTS, "real", Real)
    assert len(list(run(Real(), "random", 3))) == 3
    with pytest.raises(TypeError, match=r"plant 'real' lacks \['values', 'rows', 'oracle'\].*SimulatedPlant"):
        jobs_module.make_plant("real", 0, {})


def test_a_killed_worker_costs_time_only(tmp_path: Path) -> None:
    work = comparison("gp-sample", VARIANTS[:2], range(3), 40)
    killed = []

    def kill_one() -> None:
        for _ in range(600):
            time.sleep(0.05)
            children = multiprocessing.active_children()
            if children and any((tmp_path / "runs").glob("*.parquet")):
                children[0].kill()
                killed.append(children[0].pid)
                return

    killer = threading.Thread(target=kill_one)
    killer.start()
    run_jobs(work, tmp_path, workers=1)
    killer.join()
    assert killed
    run_jobs(work, tmp_path / "alone", workers=0)
    for label, runs in collect(work, tmp_path).items():
        np.testing.assert_array_equal(runs.cost, collect(work, tmp_path / "alone")[label].cost)
    assert not list(tmp_path.rglob(".*.parquet*"))


@pytest.mark.parametrize("breaks", [runner.BREAKS - 1, runner.BREAKS])
def test_workers_that_die_again_and_again_are_given_up(breaks: int, tmp_path: Path, monkeypatch: Any) -> None:
    work = comparison("gp-sample", VARIANTS[2:3], range(2), 3)
    times = iter(range(breaks))

    def pool(jobs: list[Job], out: Path, workers: int) -> Any:
        if next(times, None) is not None:
            raise BrokenProcessPool
        return runner._here(jobs, out)

    monkeypatch.setattr(runner, "_pool", pool)
    if breaks == runner.BREAKS:
        with pytest.raises(RuntimeError, match=r"workers died 5 times, 4 jobs are left"):
            run_jobs(work, tmp_path, workers=1)
    else:
        assert run_jobs(work, tmp_path, workers=1) == 4


@pytest.mark.parametrize("workers", [0, 1])
def test_a_job_that_fails_is_named_and_the_others_are_kept(workers: int, tmp_path: Path) -> None:
    bad = Variant("bad", "pdcbo", {"eta": -1.0})
    work = comparison("gp-sample", [bad, Variant("random", "random")], range(1), 3)
    with pytest.raises(RuntimeError, match=r"bad, seed 0: eta"):
        run_jobs(work, tmp_path, workers=workers)
    assert len(list((tmp_path / "runs").iterdir())) == 1


@pytest.mark.parametrize(
    ("names", "options", "words"),
    [
        (["nobody"], [], "no optimizer"),
        (["pdcbo", "pdcbo"], [], "label"),
        (["pdcbo"], ["cei.published=true"], "label.key=value"),
        (["pdcbo"], ["pdcbo.eta"], "label.key=value"),
    ],
)
def test_what_cannot_be_read_is_refused(names: list[str], options: list[str], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        parse_variants(names, options)


def test_option_values_are_numbers_words_and_lists() -> None:
    [variant] = parse_variants(["a:cei"], ["a.published=true", "a.confidence=0.9", "a.models=None", "a.x=[1, 2]"])
    assert variant.options == {"published": True, "confidence": 0.9, "models": None, "x": [1, 2]}


def test_best_constant_is_the_best_of_a_fine_grid_that_holds_on_average() -> None:
    plant = PLANTS["gp-sample"](seed=2)
    contexts = [plant.context(t) for t in range(1, 61)]
    theta = np.linspace(0.0, 1.0, 4001)[:, None]
    z = np.array([plant.problem.encode_context(c) for c in contexts])
    y = np.mean([plant.values(theta, row) for row in z], axis=0)
    best = y[y[:, 1] <= 0.0, 0].min()
    chosen = plant.problem.encode_parameters(best_constant(plant, contexts))
    got = np.mean([plant.values(chosen[None], row)[0] for row in z], axis=0)
    assert got[1] <= 0.0
    assert got[0] == pytest.approx(best, abs=2e-3)


def test_preparation_standardises_and_keeps_limits_where_they_are() -> None:
    plant = PLANTS["williams-otto"](seed=1)
    preparation = prepare(plant, 30, seed=1)
    at_limits = preparation.standardise(np.array([0.0, 0.12, 0.08]))
    np.testing.assert_allclose(at_limits[1:], 0.0, atol=1e-12)
    assert [limit.bound for limit in preparation.problem.limits] == [0.0, 0.0]
    assert set(preparation.models) == set(plant.problem.outputs)
    widths = {name: v.hi - v.lo for name, v in {**plant.problem.parameters, **plant.problem.context}.items()}
    for model in preparation.models.values():
        assert all(0.02 < model["length_scales"][name] / width < 100.0 for name, width in widths.items())


def test_a_fit_with_a_slope_is_not_handed_over_without_it() -> None:
    problem = PLANTS["williams-otto"](seed=1).problem
    X = np.random.default_rng(3).random((20, len(problem.variables)))
    y = 4.0 * X[:, -1] + np.sin(5.0 * X[:, 0])
    start = initial(kernel_for(problem, "squared-exponential", np.ones(X.shape[1])), Priors(), y, None)
    with pytest.raises(ValueError, match="slope"):
        as_model(problem, fit(X, y, start, Priors()), "squared-exponential")
    as_model(problem, fit(X, y, start, Priors(trend=0.0)), "squared-exponential")


def test_published_curves_are_the_numbers_of_the_paper() -> None:
    one, two = published(1), published(2)
    assert one["cumulative_regret", "pdcbo"].shape == (3, 500)
    assert one["cumulative_regret", "pdcbo"][0, -1] == pytest.approx(169.6, abs=0.05)
    assert two["average_constraint_2", "safeopt"][0, -1] == pytest.approx(-0.0118, abs=1e-4)


def test_published_safe_start_is_unsafe_and_explains_the_published_cost() -> None:
    facts = figure2.start_facts()
    assert facts["x_a"] == pytest.approx(0.1251, abs=5e-5)
    assert facts["x_g"] == pytest.approx(0.0918, abs=5e-5)
    assert 300 * facts["reflected"] == pytest.approx(published(2)["cumulative_cost", "safeopt"][0, -1], rel=1e-3)


def test_reproduce_draws_both_figures_and_writes_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(figure1, "STEPS", 12)
    monkeypatch.setattr(figure2, "STEPS", 10)
    reproduce(["figure1", "figure2"], 2, tmp_path, extras=True, workers=0, bar=no_bar)
    page = (tmp_path / "reproduction.md").read_text()
    for name in ("figure1", "figure2"):
        assert (tmp_path / "figures" / f"{name}.png").stat().st_size > 20_000
        assert (tmp_path / "figures" / f"{name}.pdf").stat().st_size > 5_000
        assert f"figures/{name}.png" in page
        facts = json.loads((tmp_path / "tables" / f"{name}.json").read_text())
        assert all(label in page for label in facts["rows"])
    assert "X_A = 0.1251 and X_G = 0.0918" in page
    with pytest.raises(ValueError, match="figure1"):
        reproduce(["figure3"], 1, tmp_path, workers=0, bar=no_bar)


def test_exponents_of_power_laws_are_found_with_their_interval() -> None:
    horizons, rng = [50, 100, 200, 400], np.random.default_rng(0)
    totals = 3.0 * np.array(horizons) ** 0.6 * np.exp(0.2 * rng.standard_normal((40, 4)))
    fitted = fit_exponent(horizons, totals)
    assert fitted is not None
    assert fitted[0] == pytest.approx(0.6, abs=0.1)
    assert fitted[1] < fitted[0] < fitted[2]
    assert fit_exponent(horizons, -totals) is None


def test_priced_regret_is_never_negative(tmp_path: Path) -> None:
    work = jobs(CASES[1], 25, range(3))
    run_jobs(work, tmp_path, workers=0)
    assert (priced_regret(collect(work, tmp_path)["T = 25"]) >= -1e-9).all()


def test_suite_ranks_only_those_that_hold(tmp_path: Path) -> None:
    variants = parse_variants(["random", "fixed", "cgp-ucb"], ["cgp-ucb.candidates=10"])
    text = suite(range(2), tmp_path, plants=["gardner"], variants=variants, workers=0, bar=no_bar)
    assert "| gardner |" in text
    assert (tmp_path / "suite.csv").read_text().count("gardner") == 3
    work = [j for v in variants for j in comparison("gardner", [v], range(2), 200)]
    scores = score("gardner", variants, collect(work, tmp_path))
    assert [s.cost for s in scores] == sorted(s.cost for s in scores)
    assert all(s.rank is None for s in scores if s.violating)
    with pytest.raises(ValueError, match="not in the suite"):
        suite(range(1), tmp_path, plants=["nowhere"], workers=0, bar=no_bar)


def test_scores_by_hand() -> None:
    """Two limits of very unlike size, two seeds: each excess counts in its own limit's size, costs seed by seed."""

    def runs(cost: list[float], g: list[list[float]]) -> Runs:
        limits = np.array(g)[:, None]  # one step
        return Runs(
            np.array(cost)[:, None], limits, np.array([[2.0], [3.0]]), np.array([1.0, 2.0]), np.zeros((2, 2)),
            ("big", "small"), np.ones((2, 1)), np.zeros(2),
        )  # fmt: skip

    variants = [Variant(name, name) for name in ("random", "cei", "pdcbo", "safeopt")]
    collected = {
        "random": runs([11.0, 12.0], [[100.0, -0.3], [-100.0, -0.1]]),  # 10 above the oracle; abs g 100 and 0.2
        "pdcbo": runs([2.0, 4.0], [[-1.0, -0.1], [-1.0, -0.1]]),
        "safeopt": runs([3.0, 7.0], [[-1.0, -0.1], [-1.0, -0.1]]),
        "cei": runs([1.5, 2.5], [[20.0, -0.1], [-1.0, 0.1]]),
    }
    scores = {s.variant: s for s in score("plant", variants, collected)}
    assert list(scores) == ["cei", "best of each step", "pdcbo", "safeopt", "random"]
    assert {name: s.rank for name, s in scores.items() if s.rank} == {"pdcbo": 1, "safeopt": 2}
    assert scores["pdcbo"].cost == pytest.approx(0.15)
    assert scores["best of each step"].cost == pytest.approx(0.1)
    assert scores["cei"].excess == pytest.approx(0.5)  # 0.1 over the small limit, not 20 over the big one
    assert scores["safeopt"].behind == pytest.approx(0.2)
    assert scores["safeopt"].behind_se == pytest.approx(0.1)
    assert scores["cei"].behind is None


def test_suite_knows_random_search_and_hindsight_under_any_label(tmp_path: Path) -> None:
    variants = parse_variants(["oracle:random", "held:fixed"], [])
    suite(range(2), tmp_path, plants=["branin"], variants=variants, steps=5, workers=0, bar=no_bar)
    scores = score("branin", variants, collect(comparison("branin", variants, range(2), 5), tmp_path))
    by_label = {s.variant: s for s in scores}
    assert by_label["oracle"].cost == pytest.approx(1.0)
    assert by_label["held"].cost < 1.0
    assert by_label["held"].rank is None
    with pytest.raises(ValueError, match=r"'random' stands for random search here, got it for 'fixed'"):
        suite(range(1), tmp_path, plants=["branin"], variants=parse_variants(["random:fixed"], []), bar=no_bar)


def test_suite_runs_over_other_horizons_and_without_end(tmp_path: Path) -> None:
    variants = parse_variants(["pdcbo", "endless:pdcbo"], ["endless.horizon=None"])
    text = suite(range(1), tmp_path, plants=["branin"], variants=variants, steps=8, workers=0, bar=no_bar)
    assert text.startswith("# The suite, 1 seeds, 8 steps")
    runs = collect(comparison("branin", variants, range(1), 8), tmp_path)
    assert runs["pdcbo"].cost.shape == (1, 8)
    assert (runs["pdcbo"].cost != runs["endless"].cost).any()  # at the end of a horizon nothing is explored


def test_suite_scores_by_excess_where_no_limit_can_be_met(tmp_path: Path) -> None:
    variants = parse_variants(["random", "fixed"], [])
    text = suite(range(2), tmp_path, plants=["infeasible"], variants=variants, workers=0, bar=no_bar)
    assert "No run of anybody keeps the limits of infeasible" in text
    collected = collect(comparison("infeasible", variants, range(2), 200), tmp_path)
    scores = {s.variant: s for s in score("infeasible", variants, collected)}
    assert scores["random"].cost == pytest.approx(1.0)
    assert 0.0 < scores["fixed"].cost < 1.0  # the best constant exceeds the limit by less than random search does
    assert all(s.rank is None for s in scores.values())


def test_reflow_wraps_prose_and_leaves_tables() -> None:
    table = "| " + "x" * 200 + " |"
    text = reflow(f"# Title\n\nwords\nmore words {'long ' * 40}\n\n- item\n  continued\n- next\n\n{table}\n")
    assert table in text
    assert "words more words" in text
    assert "- item continued\n- next" in text
    assert max(len(line) for line in text.split("\n") if not line.startswith("|")) <= 116


def test_a_second_run_goes_on_where_the_first_ended() -> None:
    plant = PLANTS["gp-sample"](seed=3)
    tuner = Fixed(plant.problem)
    steps = [*run(plant, tuner, 3), *run(plant, tuner, 2)]
    assert [record.step for record in steps] == [1, 2, 3, 4, 5]
    assert [record.context for record in steps] == [plant.context(t) for t in range(1, 6)]


def test_points_measured_before_the_first_step_are_told_and_not_counted() -> None:
    point = {"parameters": {"theta": 4.0}, "context": {"z": 1.0}}
    plain, started = (Job("gp-sample", 0, 5, Variant("a", "pdcbo", {"candidates": 20}, start)).execute()
                      for start in ((), (point,) * 4))  # fmt: skip
    assert len(started["step"]) == len(plain["step"]) == 5
    assert (started["parameter_theta"] != plain["parameter_theta"]).any()


def test_options_of_the_oracle_make_another_oracle() -> None:
    names = {Job("gp-sample", 0, 5, None, {}, options).filename for options in ({}, {"grid": 10}, {"polish": False})}
    assert len(names) == 3


def test_a_result_is_there_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def cut_off(table: Any, path: Path) -> None:
        path.write_bytes(b"PAR1")
        raise OSError("no space left on device")

    monkeypatch.setattr(runner, "write_table", cut_off)
    work = comparison("gp-sample", parse_variants(["random"], []), range(1), 3)
    with pytest.raises((OSError, RuntimeError), match="no space left"):
        run_jobs(work, tmp_path, workers=0)
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]
