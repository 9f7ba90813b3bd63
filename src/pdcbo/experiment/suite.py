"""All optimizers over the suite of plants, with nothing set by hand: `pdcbo suite`.

Every step counts and nobody gets free samples. Of each plant and optimizer over the seeds:

    normalised cost   (cost - time-average oracle) / (cost of random search - time-average oracle): 0 is the best that
                      limits on the average allow, 1 is random search
    worst             the highest normalised cost of any seed
    violating         runs that end with a true average above its limit
    rank              by mean cost among optimizers that violate in fewer than 5 % of their runs; the best constant
                      parameters are known in hindsight only, and CGP-UCB and random search only rank if they hold

Where no run of anybody keeps the limits, the excess over them takes the place of the cost, 1 being random search's, and
nobody ranks.

Below `out`: runs and oracles as in `pdcbo compare`, `results.parquet`, `suite.md` and `suite.csv`.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from pdcbo.experiment.compare import check, comparison, parse_variants, write_results
from pdcbo.experiment.jobs import Job, Variant
from pdcbo.experiment.runner import Report, run_jobs
from pdcbo.experiment.tables import Runs, collect, markdown
from pdcbo.plants import SUITE
from pdcbo.problem import Array

VARIANTS = (
    Variant("pdcbo", "pdcbo"),
    Variant("cei", "cei"),
    Variant("safeopt", "safeopt"),
    Variant("safe-ucb", "safeopt", {"ucb": True}),
    Variant("cgp-ucb", "cgp-ucb"),
    Variant("random", "random"),
    Variant("best constant", "fixed"),
)
ALLOWED = 0.05


@dataclass(frozen=True)
class Score:
    """One optimizer on one plant; `rank` is None where it violates too often or knows the future."""

    plant: str
    variant: str
    cost: float
    sd: float
    worst: float
    violating: int
    runs: int
    excess: float
    rank: int | None
    milliseconds: float


def suite_variants(options: Iterable[str]) -> list[Variant]:
    """Return the suite's variants with `label.key=value` for each option that is set by hand after all."""
    given = parse_variants([f"{v.label}:{v.optimizer}" for v in VARIANTS], options)
    return [replace(v, options={**v.options, **g.options}) for v, g in zip(VARIANTS, given, strict=True)]


def suite_jobs(
    plants: Sequence[str], variants: Sequence[Variant], seeds: Sequence[int], steps: int | None
) -> dict[str, list[Job]]:
    """Return the jobs of every plant, over so many steps or over the plant's own horizon."""
    unknown = [name for name in plants if name not in SUITE]
    if unknown:
        raise ValueError(f"--plants: {unknown[0]!r} is not in the suite; there are {list(SUITE)!r}")
    return {name: comparison(name, variants, seeds, steps or SUITE[name].steps) for name in plants}


def with_random_search(variants: Sequence[Variant]) -> list[Variant]:
    """Return the variants with random search among them, by which costs are normalised."""
    if any(variant.optimizer == "random" for variant in variants):
        return list(variants)
    taken = [variant for variant in variants if variant.label == "random"]
    if taken:
        raise ValueError(f"--optimizers: 'random' stands for random search here, got it for {taken[0].optimizer!r}")
    return [*variants, Variant("random", "random")]


def score(plant: str, variants: Sequence[Variant], collected: dict[str, Runs]) -> list[Score]:
    """Return the scores of all variants on one plant, random search among them, in order of cost."""
    measure = _excess if all((_excess(runs) > 0.0).all() for runs in collected.values()) else _above_oracle
    by_chance = collected[next(v.label for v in variants if v.optimizer == "random")]
    in_hindsight = {v.label for v in variants if v.optimizer == "fixed" and "parameters" not in v.options}
    scale = max(float(measure(by_chance).mean()), 1e-12)
    limits = by_chance.limits
    size = float(np.abs(limits).mean()) if limits.size else 1.0
    scores = []
    for label, runs in collected.items():
        normalised = measure(runs) / scale
        final = _excess(runs)
        violating = int((final > 0.0).sum())
        scores.append(Score(
            plant, label, float(normalised.mean()), float(normalised.std(ddof=1)) if len(normalised) > 1 else 0.0,
            float(normalised.max()), violating, len(final), float(np.maximum(final, 0.0).max() / (size or 1.0)), None,
            float(1e3 * runs.seconds.mean()),
        ))  # fmt: skip
    scores.sort(key=lambda s: s.cost)
    allowed = [s.variant for s in scores if s.violating < ALLOWED * s.runs and s.variant not in in_hindsight]
    return [
        Score(**{**vars(s), "rank": allowed.index(s.variant) + 1 if s.variant in allowed else None}) for s in scores
    ]


def _above_oracle(runs: Runs) -> Array:
    """Return each run's cost above the time-average oracle's, (runs,)."""
    return np.asarray(runs.cost.sum(axis=1) - runs.time_average)


def _excess(runs: Runs) -> Array:
    """Return by how much each run's averages end above their limits at most, (runs,); negative where all are kept."""
    return np.asarray(runs.final.max(axis=1, initial=-np.inf))


def suite(
    seeds: Sequence[int],
    out: Path,
    *,
    plants: Sequence[str] | None = None,
    variants: Sequence[Variant] = VARIANTS,
    steps: int | None = None,
    workers: int | None = None,
    bar: Callable[[str], Any],
) -> str:
    """Run the suite, or what is left of it, write its tables, and return them as text."""
    variants = with_random_search(variants)
    groups = suite_jobs(plants or list(SUITE), variants, seeds, steps)
    jobs = [job for group in groups.values() for job in group]
    check(jobs)
    report: Report
    with bar("suite") as report:
        run_jobs(jobs, out, workers=workers, report=report)
    scores = {plant: score(plant, variants, collect(group, out)) for plant, group in groups.items()}
    write_results(jobs, out)
    flat = [s for group in scores.values() for s in group]
    with (out / "suite.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, list(vars(flat[0])))
        writer.writeheader()
        writer.writerows(vars(s) for s in flat)
    heading = f"# The suite, {len(seeds)} seeds" + (f", {steps} steps" if steps else "")
    text = f"{heading}\n\n{_overview(scores)}\n{_details(flat)}"
    (out / "suite.md").write_text(text)
    return text


def _overview(scores: dict[str, list[Score]]) -> str:
    labels = list(dict.fromkeys(s.variant for group in scores.values() for s in group))
    labels.sort(key=lambda label: -_firsts(scores, label))
    rows = []
    for plant, group in scores.items():
        by_label = {s.variant: s for s in group}
        rows.append((plant, *(_cell(by_label[label]) for label in labels)))
    ranked = sum(any(s.rank for s in group) for group in scores.values())
    rows.append(("first on", *(f"{_firsts(scores, label)} of {ranked}" for label in labels)))
    words = (
        "Normalised cost (0: time-average oracle, 1: random search), in brackets runs that violate, if any; bold"
        ": lowest cost among those that violate in fewer than 5 % of their runs. The best constant parameters are known"
        " in hindsight only and do not rank. Excess: the worst run's average above its limit, in units of random"
        " search's mean abs g."
    )
    unmet = [plant for plant, group in scores.items() if all(s.violating == s.runs for s in group)]
    if unmet:
        words += (
            f" No run of anybody keeps the limits of {', '.join(unmet)}: there the excess over them, 1 being random"
            " search's, takes the place of the cost."
        )
    return f"{words}\n\n" + markdown(("plant", *labels), rows)


def _cell(s: Score) -> str:
    text = f"{s.cost:.3f}" + (f" ({s.violating} of {s.runs})" if s.violating else "")
    return f"**{text}**" if s.rank == 1 else text


def _firsts(scores: dict[str, list[Score]], label: str) -> int:
    return sum(s.rank == 1 for group in scores.values() for s in group if s.variant == label)


def _details(scores: Sequence[Score]) -> str:
    rows = [
        (s.plant, s.variant, f"{s.cost:.3f}", f"{s.sd:.3f}", f"{s.worst:.3f}", f"{s.violating} of {s.runs}",
         f"{s.excess:.3f}", "" if s.rank is None else str(s.rank), f"{s.milliseconds:.1f}")
        for s in scores
    ]  # fmt: skip
    header = ("plant", "optimizer", "normalised cost", "sd", "worst", "violating", "excess", "rank",
              "ms a step")  # fmt: skip
    return markdown(header, rows)
