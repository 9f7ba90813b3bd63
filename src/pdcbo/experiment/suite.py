"""All optimizers over the suite of plants, with nothing set by hand: `pdcbo suite`.

Every step counts and nobody gets free samples. Of each plant and optimizer over the seeds:

    normalised cost   (cost - time-average oracle) / (cost of random search - time-average oracle): 0 is the best that
                      limits on the average allow, 1 is random search
    worst             the highest normalised cost of any seed
    violating         runs that end with a true average above its limit
    rank              by mean cost among optimizers that violate in fewer than 5 % of their runs; the best constant
                      parameters are known in hindsight only, and CGP-UCB and random search only rank if they hold
    behind            the first, seed by seed: the mean difference and its standard error

The best point feasible at each step stands beside them: what keeps every limit at every step, as all but PDCBO try to,
cannot be expected to be cheaper.

Where no run of anybody keeps the limits, the excess over them takes the place of the cost, 1 being random search's, and
nobody ranks.

Below `out`: runs and oracles as in `pdcbo compare`, `results.parquet`, `suite.md` and `suite.csv`.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from pdcbo.experiment.compare import check, comparison, parse_variants, write_results
from pdcbo.experiment.jobs import Job, Variant
from pdcbo.experiment.runner import Report, run_jobs
from pdcbo.experiment.tables import Runs, collect, markdown
from pdcbo.metrics import proportion
from pdcbo.plants import SUITE
from pdcbo.problem import Array

VARIANTS = (
    Variant("pdcbo", "pdcbo"),
    Variant("algorithm 1", "pdcbo", {"setting": "standard"}),  # standardised, measured values in (10)
    Variant("cei", "cei"),
    Variant("safeopt", "safeopt"),
    Variant("safe-ucb", "safeopt", {"ucb": True}),
    Variant("cgp-ucb", "cgp-ucb"),
    Variant("random", "random"),
    Variant("best constant", "fixed"),
)
ALLOWED = 0.05
PER_STEP = "best of each step"


@dataclass(frozen=True)
class Score:
    """One optimizer on one plant; `rank` and `behind` are None where it violates too often or knows the future.

    `excess` is that of the worst run over the limit it breaks most, each in units of random search's mean abs g.
    """

    plant: str
    variant: str
    cost: float
    sd: float
    worst: float
    violating: int
    runs: int
    excess: float
    rank: int | None
    behind: float | None
    behind_se: float | None
    milliseconds: float | None


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
    chance = next(v.label for v in variants if v.optimizer == "random")
    by_chance = collected[chance]
    size = np.abs(by_chance.limits).mean(axis=(0, 1))
    excess = {label: _excess(runs, np.where(size > 0.0, size, 1.0)) for label, runs in collected.items()}
    unmet = all((each > 0.0).all() for each in excess.values())
    above = excess if unmet else {label: _above_oracle(runs) for label, runs in collected.items()}
    scale = max(float(above[chance].mean()), 1e-12)
    in_hindsight = {v.label for v in variants if v.optimizer == "fixed" and "parameters" not in v.options}
    normalised = {label: each / scale for label, each in above.items()}
    if not unmet:
        normalised[PER_STEP] = (by_chance.per_step.sum(axis=1) - by_chance.time_average) / scale
    order = sorted(normalised, key=lambda label: float(normalised[label].mean()))
    violating = {label: int((each > 0.0).sum()) for label, each in excess.items()}
    allowed = [
        label for label in order
        if label in excess and label not in in_hindsight and violating[label] < ALLOWED * len(excess[label])
    ]  # fmt: skip
    scores = []
    for label in order:
        each, runs = normalised[label], collected.get(label)
        ranked = label in allowed
        behind = each - normalised[allowed[0]] if ranked else None
        scores.append(Score(
            plant, label, float(each.mean()), _sd(each), float(each.max()), violating.get(label, 0), len(each),
            float(np.maximum(excess[label], 0.0).max()) if label in excess else 0.0,
            allowed.index(label) + 1 if ranked else None,
            None if behind is None else float(behind.mean()),
            None if behind is None else _sd(behind) / math.sqrt(len(behind)),
            None if runs is None else float(1e3 * runs.seconds.mean()),
        ))  # fmt: skip
    return scores


def _sd(values: Array) -> float:
    return float(values.std(ddof=1)) if len(values) > 1 else 0.0


def _above_oracle(runs: Runs) -> Array:
    """Return each run's cost above the time-average oracle's, (runs,)."""
    return np.asarray(runs.cost.sum(axis=1) - runs.time_average)


def _excess(runs: Runs, size: Array) -> Array:
    """Return by how much each run's averages end above their limits at most, (runs,), in units of `size` (N,).

    It is negative where all are kept.
    """
    return np.asarray((runs.final / size).max(axis=1, initial=-np.inf))


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
    labels.sort(key=lambda label: (label == PER_STEP, -_firsts(scores, label)))
    rows = []
    for plant, group in scores.items():
        by_label = {s.variant: s for s in group}
        rows.append((plant, *(_cell(by_label.get(label)) for label in labels)))
    ranked = sum(any(s.rank for s in group) for group in scores.values())
    rows.append(("first on", *(f"{_firsts(scores, label)} of {ranked}" for label in labels)))
    words = (
        "Normalised cost (0: time-average oracle, 1: random search), in brackets runs that violate, if any; bold"
        ": lowest cost among those that violate in fewer than 5 % of their runs. The best constant parameters and the"
        " best point feasible at each step are known in hindsight only and do not rank; the latter is what methods that"
        " want every step feasible can hope for. Excess: the worst run's average above its limit, in units of random"
        " search's mean abs g. Behind: the cost above the first one's, seed by seed, with its standard error."
    )
    runs = max(s.runs for group in scores.values() for s in group)
    most = math.ceil(ALLOWED * runs) - 1
    if most > 0:
        upper = 100.0 * proportion(most, runs).upper
        words += f" Fewer than 5 % is at most {most} of {runs}; with {most} the rate may be up to {upper:.0f} % (95 %)."
    unmet = [plant for plant, group in scores.items() if all(s.violating == s.runs for s in group)]
    if unmet:
        words += (
            f" No run of anybody keeps the limits of {', '.join(unmet)}: there the excess over them, 1 being random"
            " search's, takes the place of the cost."
        )
    return f"{words}\n\n" + markdown(("plant", *labels), rows)


def _cell(s: Score | None) -> str:
    if s is None:
        return ""
    text = f"{s.cost:.3f}" + (f" ({s.violating} of {s.runs})" if s.violating else "")
    return f"**{text}**" if s.rank == 1 else text


def _firsts(scores: dict[str, list[Score]], label: str) -> int:
    return sum(s.rank == 1 for group in scores.values() for s in group if s.variant == label)


def _details(scores: Sequence[Score]) -> str:
    rows = [
        (s.plant, s.variant, f"{s.cost:.3f}", f"{s.sd:.3f}", f"{s.worst:.3f}", f"{s.violating} of {s.runs}",
         f"{s.excess:.3f}", "" if s.rank is None else str(s.rank),
         "" if not s.behind else f"{s.behind:.3f} ({s.behind_se:.3f})",
         "" if s.milliseconds is None else f"{s.milliseconds:.1f}")
        for s in scores
    ]  # fmt: skip
    header = ("plant", "optimizer", "normalised cost", "sd", "worst", "violating", "excess", "rank", "behind (se)",
              "ms a step")  # fmt: skip
    return markdown(header, rows)
