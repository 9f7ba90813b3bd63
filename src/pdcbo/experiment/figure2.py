"""Figure 2: the Williams-Otto reactor with the limits as the paper states them, and the evidence on what was published.

Hyper-parameters are fitted once to 30 random measurements, as in the paper, and then fixed; outputs are standardised;
50 x 50 candidates; T = 300. SafeOpt starts at (6.9, 83.0), which meets both limits. The flipped problem, X_A >= 0.12
and X_G >= 0.08, is what the published code solves; it is run beside the right one.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pdcbo.experiment.compare import comparison
from pdcbo.experiment.drawing import band, limit_axes, sheet
from pdcbo.experiment.figure1 import ONE, SHADES, over_steps
from pdcbo.experiment.jobs import Variant
from pdcbo.experiment.published import published
from pdcbo.experiment.runner import Report, run_jobs
from pdcbo.experiment.tables import Runs, collect
from pdcbo.plants.williams_otto import FEED_A, NORMAL_PRICES, steady_state

STEPS = 300
POINTS = 30
SAFE = {"feed_rate": 6.9, "temperature": 83.0}
PUBLISHED_START = {"feed_rate": 4.1, "temperature": 81.2}
PUBLISHED_MEAN = -52.764  # of the cost, a constant of the published code
GRID = {"candidates": 50}
CORE = (
    Variant("PDCBO, paper's constants", "pdcbo", {**GRID, "setting": "paper"}, points=POINTS),
    Variant("CEI", "cei", GRID, points=POINTS),
    Variant("SafeOpt", "safeopt", {**GRID, **ONE, "safe": [{"parameters": SAFE}]}, points=POINTS),
)
EXTRAS = (
    Variant("PDCBO, default", "pdcbo", GRID, points=POINTS),
    Variant("CEI, as published", "cei", {**GRID, "published": True}, points=POINTS),
    Variant("CGP-UCB", "cgp-ucb", {**GRID, **ONE}, points=POINTS),
    Variant("random", "random"),
    Variant("best constant", "fixed"),
    Variant("Safe-UCB", "safeopt", {**GRID, **ONE, "safe": [{"parameters": SAFE}], "ucb": True}, points=POINTS),
    Variant("PDCBO, eta = 1/sqrt(T)", "pdcbo", {**GRID, "setting": "paper", "eta": STEPS**-0.5}, points=POINTS),
)
FLIPPED = (
    Variant("PDCBO, paper's constants", "pdcbo", {**GRID, "setting": "paper"}, points=POINTS),
    Variant("CEI, as published", "cei", {**GRID, "published": True}, points=POINTS),
    Variant("SafeOpt", "safeopt", {**GRID, **ONE, "safe": [{"parameters": PUBLISHED_START}]}, points=POINTS),
)
PUBLISHED = {CORE[0].label: "pdcbo", CORE[1].label: "cei", CORE[2].label: "safeopt"}
MORE_SHADES = (*SHADES[:5], "#cc79a7", "#7f7f7f", "#8c6d31", *SHADES[5:])
COLOURS = dict(zip((v.label for v in CORE + EXTRAS), MORE_SHADES, strict=True))


def make(seeds: Sequence[int], data: Path, figures: Path, *, extras: bool, report: Report | None, workers: int | None
         ) -> dict[str, Any]:  # fmt: skip
    """Run, draw `figure2`, and return the facts of the page."""
    jobs = comparison("williams-otto", CORE + (EXTRAS if extras else ()), seeds, STEPS)
    flipped = comparison("williams-otto", FLIPPED, seeds[:10], STEPS, {"flipped": True}) if extras else []
    run_jobs([*jobs, *flipped], data, report=report, workers=workers)
    collected = collect(jobs, data)
    draw(collected, figures / "figure2")
    some = next(iter(collected.values()))
    return {
        "seeds": len(seeds),
        "oracle_per_step": float(some.per_step.sum(axis=1).mean()),
        "oracle_time_average": float(some.time_average.mean()),
        "rows": {label: _facts(runs) for label, runs in collected.items()},
        "published": _published(),
        "start": start_facts(),
        "flipped_seeds": len(seeds[:10]),
        "flipped": {label: _facts(runs) for label, runs in (collect(flipped, data) if flipped else {}).items()},
    }


def start_facts() -> dict[str, float]:
    """Evaluate the reactor at the published safe start, at normal prices, in closed form."""
    feed, temperature = (np.array(PUBLISHED_START[name]) for name in ("feed_rate", "temperature"))
    x = {name: float(value) for name, value in steady_state(feed, temperature).items()}
    p = NORMAL_PRICES
    income = (p["price_p"] * x["x_p"] + p["price_e"] * x["x_e"]) * (FEED_A + float(feed))
    cost = p["price_a"] * FEED_A + p["price_b"] * float(feed) - income
    return {**x, "cost": cost, "reflected": 2.0 * PUBLISHED_MEAN - cost}


def _facts(runs: Runs) -> dict[str, Any]:
    cost, best, v = runs.cost.sum(axis=1), runs.per_step.sum(axis=1), runs.violations
    return {
        "cost": float(cost.mean()),
        "cost_sd": float(cost.std(ddof=1)) if len(cost) > 1 else 0.0,
        "share": float((cost / best).mean()),
        "regret": float((cost - best).mean()),
        "regret_time_average": float((cost - runs.time_average).mean()),
        "averages": runs.final.mean(axis=0).tolist(),
        "worst": runs.final.max(axis=0).tolist(),
        "violating": round(v.estimate * len(cost)),
        "violation_interval": [v.lower, v.upper],
        "unsafe_share": float((runs.limits > 0.0).any(axis=2).mean()),
        "fallback": float(runs.fallback_steps.mean()),
        "milliseconds": float(1e3 * runs.seconds.mean()),
    }


def _published() -> dict[str, dict[str, Any]]:
    curves = published(2)
    return {
        name: {"cost": float(curves["cumulative_cost", name][0, -1]),
               "averages": [float(curves[f"average_constraint_{i}", name][0, -1]) for i in (1, 2)]}
        for name in PUBLISHED.values()
    }  # fmt: skip


def draw(collected: dict[str, Runs], path: Path) -> None:
    """Draw the paper's three panels, mean and one standard deviation, published curves dashed as they were printed."""
    curves, some = published(2), next(iter(collected.values()))
    with sheet(path, 1, 3, (13.5, 4.4), pdf=True) as axes:
        for label, runs in collected.items():
            extra = label not in PUBLISHED
            style = {"linewidth": 1.1, "linestyle": "-."} if extra else {}
            series = (np.cumsum(runs.cost, axis=1), runs.averages[:, :, 0], runs.averages[:, :, 1])
            metrics = ("cumulative_cost", "average_constraint_1", "average_constraint_2")
            for axis, values, metric in zip(axes[0], series, metrics, strict=True):
                band(axis, values, label, COLOURS[label], 0.0 if extra else 1.0, **style)
                if not extra:
                    curve = over_steps(curves[metric, PUBLISHED[label]][0])
                    name = f"{label.split(',')[0]}, published curve"
                    axis.plot(*curve, "--", color=COLOURS[label], linewidth=1.0, label=name)
        best = np.cumsum(some.per_step, axis=1).mean(axis=0)
        axes[0, 0].plot(*over_steps(best), ":", color="black", linewidth=1.0, label="best feasible at each step")
        axes[0, 0].set(title="Cumulative cost", xlabel="step")
        axes[0, 0].legend(fontsize=6.5)
        for i, name in enumerate(("X_A - 0.12", "X_G - 0.08")):
            early = STEPS // 10
            shown = [r.averages[:, early:, i].mean(axis=0) for label, r in collected.items() if label in PUBLISHED]
            shown += [curves[f"average_constraint_{i + 1}", method][0, early:] for method in PUBLISHED.values()]
            limit_axes(axes[0, 1 + i], name, np.concatenate(shown))
