"""One episode, watched live: `pdcbo run`. Leaves a figure and a summary in an operator's words."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from pdcbo.experiment.drawing import draw_episode
from pdcbo.experiment.jobs import Variant, make_optimizer, make_plant
from pdcbo.loop import Record, run
from pdcbo.optimizers import Optimizer
from pdcbo.plants import SimulatedPlant
from pdcbo.problem import Problem


def run_episode(
    name: str,
    variant: Variant,
    steps: int,
    seed: int,
    out: Path,
    *,
    plant_options: dict[str, Any] | None = None,
    live: bool = True,
) -> str:
    """Tune a plant for one episode, write `episode.png` and `summary.txt` below `out`, and return the summary."""
    plant = make_plant(name, seed, plant_options or {})
    tuner = make_optimizer(variant, plant, None, seed, steps)
    out.mkdir(parents=True, exist_ok=True)  # first, so that what cannot be written is known before the episode
    began = time.perf_counter()
    records, prices = [], []
    watch = _watched if live else _unwatched
    for record in watch(run(plant, tuner, steps), tuner, steps, name):
        records.append(record)
        prices.append(tuner.price())
    elapsed = time.perf_counter() - began
    oracle = plant.oracle([record.context for record in records])
    true = np.array([plant.problem.encode_outcome(*r.truth) for r in records if r.truth is not None])
    text = _words(plant, tuner, name, true, oracle.per_step, oracle.time_average, elapsed)
    (out / "summary.txt").write_text(text + "\n")
    measured = np.array([plant.problem.encode_outcome(*r.observed) for r in records])
    draw_episode(
        {
            "title": f"{name}, {variant.label}: cost",
            "cost": true[:, 0],
            "best": oracle.per_step,
            "limits": {li.label: (measured[:, li.output], li.bound) for li in plant.problem.limits},
            "price": np.array(prices) if prices[0] is not None and plant.problem.limits else None,
            "parameters": {n: np.array([r.parameters[n] for r in records]) for n in plant.problem.parameters},
        },
        out / "episode",
    )
    return text


def _unwatched(records: Iterator[Record], tuner: Optimizer, steps: int, name: str) -> Iterator[Record]:
    yield from records


def _watched(records: Iterator[Record], tuner: Optimizer, steps: int, name: str) -> Iterator[Record]:
    """Pass records on and show where the plant stands."""
    from rich.console import Group
    from rich.live import Live
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    progress = Progress(
        TextColumn("[bold]{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("steps,"),
        TimeRemainingColumn(compact=True), TextColumn("left"),
    )  # fmt: skip
    task = progress.add_task(f"tuning {name}", total=steps)
    sums = np.zeros(len(tuner.problem.outputs))
    with Live(Group(progress), refresh_per_second=8) as live:
        for record in records:
            sums += tuner.problem.encode_outcome(*record.observed)
            progress.advance(task)
            if record.step % 5 == 0 or record.step == steps:
                live.update(Group(progress, _status(tuner.problem, record, sums, tuner.price())))
            yield record


def _status(problem: Problem, record: Record, sums: Any, prices: Any) -> Any:
    from rich.console import Group
    from rich.table import Table

    table = Table(box=None, padding=(0, 2), show_header=True, header_style="dim")
    for heading in ("", "now", "average so far", "must be", "", "price"):
        table.add_column(heading, justify="left" if heading in ("", "must be") else "right")
    average = sums / record.step
    table.add_row("cost", f"{record.observed.objective:.2f}", f"{average[0]:.2f}", "low", "", "")
    for i, limit in enumerate(problem.limits):
        holds = limit.value(float(average[limit.output])) <= 0.0
        side = "at most" if limit.sign > 0 else "at least"
        price = "" if prices is None else f"{prices[i]:.4g}"
        table.add_row(
            limit.label, f"{record.observed.constraints[limit.constraint]:.4g}", f"{average[limit.output]:.4g}",
            f"{side} {limit.bound:.4g}", "[green]holds[/]" if holds else "[red]exceeded[/]", price,
        )  # fmt: skip
    chosen = ", ".join(f"{n} {v:.4g}" if isinstance(v, float) else f"{n} {v}" for n, v in record.parameters.items())
    return Group(table, f"  [dim]the tuner has set[/] {chosen}")


def _words(
    plant: SimulatedPlant, tuner: Optimizer, name: str, true: Any, best: Any, time_average: float, elapsed: float
) -> str:
    steps, total = len(true), float(true[:, 0].sum())
    share = 100.0 * (1.0 - (total - float(best.sum())) / abs(float(best.sum())))
    lines = [
        f"{name}: {steps} steps in {elapsed:.1f} s",
        f"true cost {total:.1f} in all; the best point feasible at each step costs {best.sum():.1f} "
        f"({share:.1f} % reached), the best with limits met on average {time_average:.1f}",
    ]
    for limit, g in zip(plant.problem.limits, plant.rows(true).mean(axis=0), strict=True):
        word = "held" if g <= 0.0 else "was not held"
        average = limit.bound + limit.sign * g
        lines.append(f"true average of {limit.label}: {average:.5g}, limit {limit.bound:.5g}: {word}")
    return "\n".join([*lines, "", "What the tuner itself knows, from noisy measurements:", str(tuner.summary())])
