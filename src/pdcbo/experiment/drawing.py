"""Figures by matplotlib: one style, one colour an optimizer, always mean and band over runs.

Every function draws what it is given and writes PNG, and PDF where a figure is for print; none computes a result.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

from pdcbo.experiment.tables import Runs
from pdcbo.problem import Array

COLOURS = {
    "pdcbo": "#0072b2", "cei": "#d55e00", "safeopt": "#009e73", "cgp-ucb": "#cc79a7", "random": "#7f7f7f",
    "fixed": "#8c6d31",
}  # fmt: skip
OTHERS = ("#56b4e9", "#e69f00", "#332288", "#999933", "#aa4499", "#117733", "#882255")
STYLE: Any = {
    "figure.dpi": 120, "savefig.dpi": 160, "font.size": 9, "axes.spines.top": False, "axes.spines.right": False,
    "axes.grid": True, "grid.color": "#e6e6e6", "grid.linewidth": 0.6, "axes.axisbelow": True, "legend.frameon": False,
    "legend.fontsize": 8, "lines.linewidth": 1.6, "axes.titlesize": 10, "axes.titleweight": "bold",
    "axes.titlelocation": "left",
}  # fmt: skip


@contextmanager
def sheet(path: Path, rows: int, columns: int, size: tuple[float, float], *, pdf: bool = False) -> Iterator[Any]:
    """Yield axes (rows, columns) in the house style, then write `path`.png and, if asked, `path`.pdf."""
    with mpl.rc_context(STYLE):
        drawing = Figure(figsize=size, layout="constrained")
        yield drawing.subplots(rows, columns, squeeze=False)
        path.parent.mkdir(parents=True, exist_ok=True)
        drawing.savefig(path.with_suffix(".png"))
        if pdf:
            drawing.savefig(path.with_suffix(".pdf"), metadata={"CreationDate": None})


def colours(labels: Sequence[str]) -> dict[str, str]:
    """Return one colour a label: an optimizer's own for its plain name, others for its variants."""
    spare = iter(OTHERS * (1 + len(labels)))
    return {label: COLOURS.get(label) or next(spare) for label in labels}


def band(axes: Any, curves: Array, label: str, colour: str, spread: float = 1.0, **style: Any) -> None:
    """Draw the mean of curves (runs, T) with a band of `spread` standard deviations."""
    mean, sd = curves.mean(axis=0), curves.std(axis=0)
    steps = np.arange(1, len(mean) + 1)
    axes.plot(steps, mean, color=colour, label=label, **style)
    if len(curves) > 1:
        axes.fill_between(steps, mean - spread * sd, mean + spread * sd, color=colour, alpha=0.15, linewidth=0)


def draw_comparison(collected: dict[str, Runs], title: str, path: Path) -> None:
    """Draw regret and the running average of every limit, mean and one standard deviation over seeds."""
    some = next(iter(collected.values()))
    palette, early, N = colours(list(collected)), len(some.cost[0]) // 10, len(some.labels)
    with sheet(path, 1, 1 + N, (4.2 * (1 + N), 3.4)) as axes:
        for label, runs in collected.items():
            band(axes[0, 0], runs.regret, label, palette[label])
            for i in range(N):
                band(axes[0, 1 + i], runs.averages[:, :, i], label, palette[label])
        axes[0, 0].set(title=title, xlabel="step", ylabel="cost above the best feasible, so far")
        axes[0, 0].legend()
        for i, name in enumerate(some.labels):
            ends = np.concatenate([runs.averages[:, early:, i].mean(axis=0) for runs in collected.values()])
            limit_axes(axes[0, 1 + i], name, ends)


def limit_axes(axes: Any, name: str, values: Array) -> None:
    """Label an axis of a limit's running average, with what is allowed shaded and the early swing cut off."""
    low, high = min(float(values.min()), 0.0), max(float(values.max()), 0.0)
    margin = 0.25 * (high - low) or 1.0
    axes.axhline(0.0, color="black", linewidth=0.8)
    axes.axhspan(low - 2 * margin, 0.0, color="#009e73", alpha=0.05, linewidth=0)
    axes.set(ylim=(low - margin, high + margin), xlabel="step", ylabel="running average of g",
             title=f"{name}: at most 0 on average")  # fmt: skip


def draw_episode(data: dict[str, Any], path: Path) -> None:
    """Draw one episode: cost, each limit's running average, prices, and parameters over time.

    Args:
        data: `cost` (T,), `best` (T,) or None, `limits` label -> (values (T,), bound), `price` (T, N) or None,
            `parameters` name -> (T,), `title`.
        path: where the figure goes, without a suffix.
    """
    limits, parameters = data["limits"], data["parameters"]
    columns = max(len(limits) + 1, len(parameters) + (data["price"] is not None))
    steps = np.arange(1, len(data["cost"]) + 1)
    with sheet(path, 2, columns, (4.0 * columns, 6.0)) as (top, bottom):
        top[0].plot(steps, np.cumsum(data["cost"]) / steps, color=COLOURS["pdcbo"], label="this run")
        if data["best"] is not None:
            top[0].plot(steps, np.cumsum(data["best"]) / steps, color="black", linewidth=1, linestyle="--",
                        label="best feasible at each step")  # fmt: skip
        top[0].set(title=data["title"], ylabel="average cost so far", xlabel="step")
        top[0].legend()
        for axis, (label, (values, bound)) in zip(top[1:], limits.items(), strict=False):
            axis.plot(steps, values, ".", color="#bbbbbb", markersize=3, label="measured")
            axis.plot(steps, np.cumsum(values) / steps, color=COLOURS["cei"], label="average so far")
            axis.axhline(bound, color="black", linewidth=1, linestyle="--", label="limit")
            axis.set(title=f"{label}: average against its limit", xlabel="step")
            axis.legend()
        for axis, (name, values) in zip(bottom, parameters.items(), strict=False):
            axis.plot(steps, values, ".", color=COLOURS["pdcbo"], markersize=3)
            axis.set(title=f"{name}, as set by the tuner", xlabel="step")
        used = len(parameters)
        if data["price"] is not None:
            for i, label in enumerate(limits):
                bottom[used].plot(steps, data["price"][:, i], label=label, color=OTHERS[i % len(OTHERS)], linewidth=1)
            bottom[used].set(title="price of each limit", xlabel="step", ylabel="cost per unit")
            bottom[used].legend()
            used += 1
        for axis in [*top[1 + len(limits) :], *bottom[used:]]:
            axis.set_visible(False)
