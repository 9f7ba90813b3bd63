"""The paper's two figures with one command: `pdcbo reproduce`.

Below `out`: `figures/` with PNG and PDF, `tables/` with every number as JSON, and the page `reproduction.md`, whose
numbers all come from the run. Runs are kept in `data`, so that a second call continues or only draws again.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pdcbo.experiment import figure1, figure2
from pdcbo.experiment.page import write_page
from pdcbo.experiment.runner import Report

FIGURES: dict[str, Callable[..., dict[str, Any]]] = {"figure1": figure1.make, "figure2": figure2.make}
QUICK_SEEDS = 5


def reproduce(
    names: Sequence[str],
    seeds: int,
    out: Path,
    *,
    data: Path | None = None,
    extras: bool = False,
    workers: int | None = None,
    bar: Callable[[str], Any],
) -> dict[str, float]:
    """Run and draw figures, write the page, and return the seconds that each figure took.

    Args:
        names: out of "figure1" and "figure2".
        seeds: runs of each method.
        out: where figures, tables and the page go.
        data: where runs are kept; by default `out`/data.
        extras: beside the paper's three methods all others, our default among them, and the flipped reactor.
        workers: see `run_jobs`.
        bar: title -> context manager that yields a `Report`.
    """
    unknown = [name for name in names if name not in FIGURES]
    if unknown:
        raise ValueError(f"figure must be one of {[*FIGURES, 'all']!r}, got {unknown[0]!r}")
    taken = {}
    for name in names:
        began = time.perf_counter()
        report: Report
        with bar(name) as report:
            kept = (data or out / "data") / name
            facts = FIGURES[name](range(seeds), kept, out / "figures", extras=extras, report=report, workers=workers)
        taken[name] = time.perf_counter() - began
        table = out / "tables" / f"{name}.json"
        table.parent.mkdir(parents=True, exist_ok=True)
        table.write_text(json.dumps(facts, indent=1) + "\n")
    write_page(out)
    return taken
