"""Figure 1: regret and cumulative constraint on draws of a Gaussian process, as published, beside the published curves.

As published: eta = 1, epsilon = 0, lambda_1 = 0, beta^(1/2) = 1, noise 0.05, known kernel exp(-r^2 / 2) with
variance 2, 50 candidates, contexts on 50 values, T = 500. Not as published: functions are exact draws, not
interpolations of 10 x 10 samples. SafeOpt gets one measurement at its safe start (0, 0), the others nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pdcbo.experiment.compare import comparison
from pdcbo.experiment.drawing import band, sheet
from pdcbo.experiment.jobs import Job, Variant
from pdcbo.experiment.published import published
from pdcbo.experiment.runner import Report, run_jobs
from pdcbo.experiment.tables import Runs, collect
from pdcbo.problem import Array

STEPS = 500
KNOWN = {"models": {"kernel": "squared-exponential", "length_scales": 1.0, "variance": 2.0, "noise_var": 0.05**2},
         "candidates": 50}  # fmt: skip
ONE = {"beta_sqrt": 1.0}  # of the published experiments; PDCBO's setting "paper" has it by itself
START = {"parameters": {"theta": 0.0}, "context": {"z": 0.0}}
CORE = (
    Variant("PDCBO, paper's constants", "pdcbo", {**KNOWN, "setting": "paper"}),
    Variant("CEI", "cei", KNOWN),
    Variant("SafeOpt", "safeopt", {**KNOWN, **ONE, "safe": [START]}, (START,)),
)
EXTRAS = (
    Variant("PDCBO, default", "pdcbo", KNOWN),
    Variant("CEI, as published", "cei", {**KNOWN, "published": True}),
    Variant("Safe-UCB", "safeopt", {**KNOWN, **ONE, "safe": [START], "ucb": True}, (START,)),
    Variant("PDCBO, eta = 1/sqrt(T)", "pdcbo", {**KNOWN, "setting": "paper", "eta": STEPS**-0.5}),
)
PUBLISHED = {CORE[0].label: "pdcbo", CORE[1].label: "cei", CORE[2].label: "safeopt"}
SHADES = ("#0072b2", "#d55e00", "#009e73", "#56b4e9", "#e69f00", "#999933", "#332288")
COLOURS = dict(zip((v.label for v in CORE + EXTRAS), SHADES, strict=True))


def jobs(seeds: Sequence[int], *, extras: bool = False) -> tuple[list[Job], list[Job]]:
    """Return the runs with the oracle on the 50 candidates, and the oracles on the continuous box."""
    variants = CORE + (EXTRAS if extras else ())
    on_grid = comparison("gp-sample", variants, seeds, STEPS, {"context_levels": 50}, {"grid": 50, "polish": False})
    return on_grid, comparison("gp-sample", (), seeds, STEPS, {"context_levels": 50})


def make(seeds: Sequence[int], data: Path, figures: Path, *, extras: bool, report: Report | None, workers: int | None
         ) -> dict[str, Any]:  # fmt: skip
    """Run, draw `figure1`, and return the facts of the page."""
    on_grid, continuous = jobs(seeds, extras=extras)
    run_jobs([*on_grid, *continuous], data, report=report, workers=workers)
    collected = collect(on_grid, data)
    exact = collect([*continuous, *(job for job in on_grid if job.variant is not None)], data)
    draw(collected, figures / "figure1")
    return {"seeds": len(seeds), "rows": {label: _facts(runs, exact[label]) for label, runs in collected.items()},
            "published": _published()}  # fmt: skip


def _facts(runs: Runs, exact: Runs) -> dict[str, Any]:
    regret, total = runs.regret[:, -1], runs.totals[:, -1, 0]
    half = runs.regret.shape[1] // 2
    mean = runs.regret.mean(axis=0)
    return {
        "regret": float(regret.mean()),
        "regret_sd": float(regret.std(ddof=1)) if len(regret) > 1 else 0.0,
        "regret_exact": float(exact.regret[:, -1].mean()),
        "regret_time_average": float((exact.cost.sum(axis=1) - exact.time_average).mean()),
        "second_half": float((mean[-1] - mean[half - 1]) / mean[-1]),
        "constraint": float(total.mean()),
        "constraint_worst": float(total.max()),
        "violating": int((total > 0.0).sum()),
        "unsafe_share": float((runs.limits > 0.0).mean()),
        "fallback": float(runs.fallback_steps.mean()),
        "milliseconds": float(1e3 * runs.seconds.mean()),
    }


def _published() -> dict[str, dict[str, float]]:
    curves = published(1)
    return {
        name: {"regret": float(curves["cumulative_regret", name][0, -1]),
               "constraint": float(curves["cumulative_constraint", name][0, -1])}
        for name in PUBLISHED.values()
    }  # fmt: skip


def draw(collected: dict[str, Runs], path: Path) -> None:
    """Draw the paper's two panels, mean and half a standard deviation, published curves dashed."""
    curves = published(1)
    with sheet(path, 1, 2, (10.0, 4.2), pdf=True) as axes:
        left, right = axes[0]
        for label, runs in collected.items():
            extra = label not in PUBLISHED
            style = {"linewidth": 1.1, "linestyle": "-."} if extra else {}
            band(left, runs.regret, label, COLOURS[label], 0.5, **style)
            band(right, runs.totals[:, :, 0], label, COLOURS[label], 0.5, **style)
            if not extra:
                for axis, metric in ((left, "cumulative_regret"), (right, "cumulative_constraint")):
                    curve = over_steps(curves[metric, PUBLISHED[label]][0])
                    name = f"{label.split(',')[0]}, published curve"
                    axis.plot(*curve, "--", color=COLOURS[label], linewidth=1.0, label=name)
        right.axhline(0.0, color="black", linewidth=0.8)
        left.set(title="Cumulative contextual regret", xlabel="step")
        right.set(title="Cumulative constraint, at most 0", xlabel="step")
        left.legend(fontsize=7)


def over_steps(curve: Array) -> tuple[Array, Array]:
    """Return a curve (T,) with its steps 1, ..., T in front, to be plotted."""
    return np.arange(1.0, len(curve) + 1.0), curve
