"""Tables of results: Parquet by DuckDB in and out, and what a comparison comes to.

Table    column -> (n,) array; one row a step
curves   (runs, T) or (runs, T, N), one row a run, in the order of seeds
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from pdcbo.experiment.jobs import Job
from pdcbo.metrics import Proportion, proportion
from pdcbo.problem import Array

Table = dict[str, Any]


@cache
def database() -> Any:
    """Return this process's connection: making one takes longer than writing a run."""
    import duckdb

    return duckdb.connect(config={"threads": 1})


def write_table(columns: Table, path: Path) -> None:
    """Write columns as Parquet."""
    connection = database()
    connection.register("columns", columns)
    connection.execute(f"copy (select * from columns) to {quoted(path)} (format parquet)")
    connection.unregister("columns")


def read_table(paths: Iterable[Path]) -> Table:
    """Read Parquet files as one table; a column that a file lacks is NaN there."""
    files = ", ".join(quoted(path) for path in paths)
    found = database().execute(f"select * from read_parquet([{files}], union_by_name = true)").fetchnumpy()
    return {name: np.ma.filled(column, np.nan) if np.ma.isMaskedArray(column) else column
            for name, column in found.items()}  # fmt: skip


def quoted(path: Path) -> str:
    """Return a path as a string of SQL."""
    return "'" + str(path).replace("'", "''") + "'"


@dataclass(frozen=True)
class Runs:
    """All runs of one variant on one plant.

    Attributes:
        cost: (runs, T) true cost.
        limits: (runs, T, N) true value of every limit, <= 0 on average.
        per_step: (runs, T) the per-step oracle's cost.
        time_average: (runs,) the time-average oracle's total.
        prices: (runs, N) the time-average oracle's multipliers.
        labels: of the limits.
        seconds: (runs, T) of ask and tell.
        fallback_steps: (runs,) steps without a safe choice.
    """

    cost: Array
    limits: Array
    per_step: Array
    time_average: Array
    prices: Array
    labels: tuple[str, ...]
    seconds: Array
    fallback_steps: Array

    @property
    def regret(self) -> Array:
        """Cumulative contextual regret (3a), (runs, T)."""
        return np.cumsum(self.cost - self.per_step, axis=1)

    @property
    def totals(self) -> Array:
        """Cumulative limits, (runs, T, N)."""
        return np.cumsum(self.limits, axis=1)

    @property
    def averages(self) -> Array:
        """Running averages of the limits, (runs, T, N)."""
        return self.totals / np.arange(1.0, self.limits.shape[1] + 1.0)[:, None]

    @property
    def final(self) -> Array:
        """The limits' averages at the end, (runs, N)."""
        return np.asarray(self.limits.mean(axis=1))

    @property
    def violations(self) -> Proportion:
        """How many runs ended with a limit's true average above it."""
        worst = self.final.max(axis=1, initial=-np.inf)
        return proportion(int((worst > 0.0).sum()), len(worst))


def collect(jobs: Iterable[Job], out: Path) -> dict[str, Runs]:
    """Return the runs of every variant, in the order of the jobs; oracles are among the jobs."""
    jobs = list(jobs)
    oracle: dict[int, Table] = {}
    runs: dict[str, list[Table]] = {}
    seeds: dict[str, list[int]] = {}
    for job in jobs:
        if job.variant is None:
            oracle[job.seed] = read_table([out / job.filename])
    for label in dict.fromkeys(job.label for job in jobs if job.variant is not None):
        own = sorted((job for job in jobs if job.variant is not None and job.label == label), key=lambda job: job.seed)
        table = read_table([out / job.filename for job in own])
        order = np.lexsort([table["step"], table["seed"]])
        T = own[0].steps
        runs[label] = _split({name: column[order] for name, column in table.items()}, T)
        seeds[label] = [job.seed for job in own]
    return {label: _runs(tables, [oracle[s] for s in seeds[label]]) for label, tables in runs.items()}


def _split(table: Table, T: int) -> list[Table]:
    n = len(table["step"]) // T
    return [{name: column[i * T : (i + 1) * T] for name, column in table.items()} for i in range(n)]


def _runs(tables: list[Table], oracles: list[Table]) -> Runs:
    labels = tuple(name.removeprefix("limit_") for name in tables[0] if name.startswith("limit_"))
    T = len(tables[0]["step"])
    limits = np.array([[t[f"limit_{label}"] for label in labels] for t in tables]).reshape(len(tables), len(labels), T)
    return Runs(
        cost=np.array([t["true_objective"] for t in tables]),
        limits=limits.swapaxes(1, 2),
        per_step=np.array([o["per_step"] for o in oracles]),
        time_average=np.array([o["time_average"].sum() for o in oracles]),
        prices=np.array([[o[f"price_{label}"][0] for label in labels] for o in oracles]),
        labels=labels,
        seconds=np.array([t["seconds"] for t in tables]),
        fallback_steps=np.array([t["fallback_steps"][0] for t in tables]),
    )


SUMMARY = (
    "variant", "runs", "cost", "cost sd", "of per-step optimum", "regret per step", "regret time average",
    "average (worst)", "violating runs", "95 % interval", "ms a step",
)  # fmt: skip


def summary_rows(collected: dict[str, Runs]) -> list[tuple[str, ...]]:
    """Return one row of text a variant, columns as in `SUMMARY`."""
    rows: list[tuple[str, ...]] = []
    for label, r in collected.items():
        total, v = r.cost.sum(axis=1), r.violations
        best = r.per_step.sum(axis=1)
        share = 100.0 * (1.0 - (total - best) / np.abs(best))
        averages = ", ".join(
            f"{name} {a:+.3g} ({w:+.3g})" for name, a, w in zip(r.labels, r.final.mean(0), r.final.max(0), strict=True)
        )
        rows.append((
            label, str(len(total)), f"{total.mean():.1f}", f"{total.std(ddof=1) if len(total) > 1 else 0.0:.1f}",
            f"{share.mean():.1f} %", f"{(total - best).mean():.1f}", f"{(total - r.time_average).mean():.1f}",
            averages or "no limits", f"{round(v.estimate * len(total))} of {len(total)}",
            f"{100 * v.lower:.0f} to {100 * v.upper:.0f} %", f"{1e3 * r.seconds.mean():.2f}",
        ))  # fmt: skip
    return rows


def reflow(text: str, width: int = 116) -> str:
    """Wrap the prose of a Markdown text anew, since numbers have moved its line ends; tables stay as they are."""
    blocks: list[list[str]] = []
    for line in text.split("\n"):
        kept = not line.strip() or line.startswith(("|", "#", "!"))
        starts = re.match(r"\s*(- |\d+\. )", line) is not None
        if kept or starts or not blocks or not blocks[-1][-1].strip() or blocks[-1][-1].startswith(("|", "#", "!")):
            blocks.append([line])
        else:
            blocks[-1].append(line)
    lines = []
    for block in blocks:
        if not block[0].strip() or block[0].startswith(("|", "#", "!")):
            lines += block
            continue
        marker = re.match(r"\s*(- |\d+\. )?", block[0])
        indent = " " * len(marker.group(0)) if marker else ""
        lines.append(textwrap.fill(" ".join(part.strip() for part in block), width, subsequent_indent=indent,
                                   break_long_words=False, break_on_hyphens=False))  # fmt: skip
    return "\n".join(lines)


def markdown(header: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Return a table in Markdown."""
    header = list(header)
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows]) + "\n"
