"""Compare optimizers on one plant over many seeds: `pdcbo compare`.

Below the folder of results: `runs/` and `oracles/` with one Parquet file a run, `results.parquet` with all of them and
the oracles as columns, `summary.md` and `summary.csv`, and a figure.
"""

from __future__ import annotations

import ast
import csv
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from pdcbo.experiment.jobs import Job, Variant, make_optimizer
from pdcbo.experiment.runner import Report, run_jobs
from pdcbo.experiment.tables import SUMMARY, Runs, collect, database, markdown, quoted, summary_rows
from pdcbo.optimizers import OPTIMIZERS
from pdcbo.plants import SimulatedPlant


def parse_variants(names: Sequence[str], options: Iterable[str]) -> list[Variant]:
    """Read `name` or `label:name` for each variant and `label.key=value` for their options.

    Raises:
        ValueError: a name or an option is not understood; the message shows what is.
    """
    chosen: dict[str, Variant] = {}
    for text in names:
        label, _, name = text.strip().rpartition(":")
        if name not in OPTIMIZERS:
            raise ValueError(f"{name!r} is no optimizer; there are {list(OPTIMIZERS)!r}")
        label = label or name
        if label in chosen:
            raise ValueError(f"--optimizers: the label {label!r} is taken; name variants apart, as in fast:{name}")
        chosen[label] = Variant(label, name, {})
    for text in options:
        target, equals, value = text.partition("=")
        label, dot, key = target.rpartition(".")
        if not (equals and dot and key) or label not in chosen:
            raise ValueError(f"--option: {text!r} is not label.key=value with a label out of {list(chosen)!r}")
        chosen[label].options[key] = _value(value)
    return list(chosen.values())


def parse_options(options: Iterable[str]) -> dict[str, Any]:
    """Read `key=value` for each option of a plant."""
    chosen = {}
    for text in options:
        key, equals, value = text.partition("=")
        if not (key and equals):
            raise ValueError(f"--plant-option: {text!r} is not key=value")
        chosen[key] = _value(value)
    return chosen


def _value(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return {"true": True, "false": False, "none": None}.get(text.lower(), text)


def comparison(
    plant: str, variants: Sequence[Variant], seeds: Iterable[int], steps: int,
    plant_options: dict[str, Any] | None = None, oracle_options: dict[str, Any] | None = None,
) -> list[Job]:  # fmt: skip
    """Return the jobs of a comparison: the oracle of each seed, then every variant on it, seed by seed."""
    seeds, own = list(seeds), plant_options or {}
    oracles = [Job(plant, seed, steps, None, own, oracle_options or {}) for seed in seeds]
    return oracles + [Job(plant, seed, steps, variant, own) for seed in seeds for variant in variants]


def check(jobs: Sequence[Job]) -> None:
    """Make each plant and optimizer once: a wrong name or option is one error before anything runs, not one a job."""
    plants: dict[str, SimulatedPlant] = {}
    first: dict[tuple[str, str], Job] = {}
    for job in jobs:
        first.setdefault((job.plant, job.label), job)
    for job in first.values():
        plant = plants[job.plant] = plants.get(job.plant) or job.make_plant()
        variant = job.variant
        if variant is None or (variant.optimizer == "fixed" and "parameters" not in variant.options):
            continue  # an oracle, or the best constant, which takes a search
        make_optimizer(variant, plant, None, job.seed, job.steps)


def compare(
    plant: str, variants: Sequence[Variant], seeds: Sequence[int], steps: int, out: Path, *,
    plant_options: dict[str, Any] | None = None, workers: int | None = None, report: Report | None = None,
) -> dict[str, Runs]:  # fmt: skip
    """Run a comparison, or what is left of it, and write its tables and its figure."""
    from pdcbo.experiment.drawing import draw_comparison

    out = Path(out)
    jobs = comparison(plant, variants, seeds, steps, plant_options)
    check(jobs)
    run_jobs(jobs, out, workers=workers, report=report)
    collected = collect(jobs, out)
    write_results(jobs, out)
    write_summary(collected, out, f"{plant}, {steps} steps, {len(seeds)} seeds")
    draw_comparison(collected, plant, out / "comparison")
    return collected


def write_results(jobs: Sequence[Job], out: Path) -> None:
    """Write all runs with their oracles as one Parquet file, one row a step."""
    runs, oracles = (
        ", ".join(quoted(out / job.filename) for job in jobs if (job.variant is None) == o) for o in (False, True)
    )
    database().execute(
        f"copy (select r.*, o.per_step as oracle_per_step, o.in_expectation as oracle_in_expectation, "
        f"o.time_average as oracle_time_average from read_parquet([{runs}], union_by_name = true) r "
        f"join read_parquet([{oracles}], union_by_name = true) o using (plant, seed, step) "
        f"order by plant, variant, seed, step) to {quoted(out / 'results.parquet')} (format parquet)"
    )


def write_summary(collected: dict[str, Runs], out: Path, title: str) -> None:
    """Write the summary as Markdown and as CSV."""
    rows = summary_rows(collected)
    words = (
        "Cost is the true total, its spread over seeds beside it; regret is against the best point feasible at each "
        "step and against the time-average optimum; averages are true averages of each limit's g, at most 0 where it "
        "holds, with the worst run in brackets; a run violates if any of them ends above 0.\n"
    )
    (out / "summary.md").write_text(f"# {title}\n\n{words}\n{markdown(SUMMARY, rows)}")
    with (out / "summary.csv").open("w", newline="") as file:
        csv.writer(file).writerows([SUMMARY, *rows])
