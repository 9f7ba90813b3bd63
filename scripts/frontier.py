"""Cost against violations, and when the cost arises: PDCBO and its variations on Gaussian-process draws.

    python scripts/frontier.py OUT [SEEDS]

Runs the 500 steps of `make results` on the same plants and contexts, with the true limit g <= 0 told, or g <= c in its
place up to a limit that never binds; with the true kernel given; looking less or further ahead for what exploring
earns; and with the other settings. Costs and violations are those of the true limit. A second table shows in which
tenth of the run the regret arises. Writes OUT/frontier.md.
"""

from __future__ import annotations

import os
import sys
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from pdcbo import PDCBO, Model, run
from pdcbo.metrics import violation_probability
from pdcbo.optimizers import adaptive
from pdcbo.plants import PLANTS

STEPS, FIRST_SEED, TENTHS = 500, 1000, 10
KNOWN = {"models": Model(length_scales=1.0, variance=2.0, noise_var=0.0025)}


@dataclass(frozen=True)
class Variant:
    """The limit told, the options of `PDCBO`, and how many times the steps seen the default looks ahead."""

    limit: float = 0.0
    options: dict[str, Any] = field(default_factory=dict)
    foresight: int = adaptive.FORESIGHT


VARIANTS = {
    "default": Variant(),
    "default, told g <= 0.5": Variant(limit=0.5),
    "default, told no limit": Variant(limit=100.0),
    "default, looks a third as far ahead": Variant(foresight=1),
    "default, looks ahead to the end": Variant(foresight=STEPS),
    "default, kernel known": Variant(options=KNOWN),
    "standard setting, kernel known": Variant(options={"setting": "standard", **KNOWN}),
    "paper's constants, kernel known": Variant(options={"setting": "paper", **KNOWN}),
}
IN_TIME = ("default", "default, kernel known", "default, told no limit")


def episode(job: tuple[str, int]) -> list[float]:
    """Return the true sum of g, the regret of the time-average optimum, and the regret in each tenth of the run.

    Regret is against the per-step optimum on 401 points.
    """
    variant, seed = VARIANTS[job[0]], job[1]
    adaptive.FORESIGHT = variant.foresight
    plant = PLANTS["gp-sample"](seed=seed)
    contexts = [plant.context(t) for t in range(1, STEPS + 1)]
    oracle = plant.oracle(contexts, candidates=np.linspace(0.0, 1.0, 401)[:, None], polish=False)
    tuner = PDCBO(plant.problem, horizon=STEPS, seed=seed, **variant.options)
    if variant.limit:
        tuner.set_limits({"g": variant.limit})
    truths = [record.truth for record in run(plant, tuner, STEPS)]
    regret = np.array([truth.objective for truth in truths if truth is not None]) - oracle.per_step
    total = sum(truth.constraints["g"] for truth in truths if truth is not None)
    return [total, oracle.time_average - float(oracle.per_step.sum()), *regret.reshape(TENTHS, -1).sum(axis=1)]


def main(out: Path, seeds: int) -> None:
    """Run all variants and write the tables."""
    jobs = [(name, FIRST_SEED + k) for name in VARIANTS for k in range(seeds)]
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        results = np.array(list(pool.map(episode, jobs, chunksize=1))).reshape(len(VARIANTS), seeds, 2 + TENTHS)
    optimum = float(results[0, :, 1].mean())
    rows = [
        "| | regret | sd | above the time-average optimum | sum of g | worst | violating runs | 95 % |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, (totals, _, *tenths) in zip(VARIANTS, results.transpose(0, 2, 1), strict=True):
        regret, violating = np.sum(tenths, axis=0), violation_probability(totals[:, None])
        cells = (
            name, f"{regret.mean():.1f}", f"{regret.std(ddof=1):.1f}", f"{regret.mean() - optimum:.1f}",
            f"{totals.mean():.1f}", f"{totals.max():.1f}", f"{round(violating.estimate * seeds)} of {seeds}",
            f"{100 * violating.lower:.0f} to {100 * violating.upper:.0f} %",
        )  # fmt: skip
        rows.append(f"| {' | '.join(cells)} |")
    in_time = [
        f"| regret in tenths of the run | {' | '.join(str(k + 1) for k in range(TENTHS))} |",
        "|---" * (TENTHS + 1) + "|",
    ]
    for name in IN_TIME:
        means = results[list(VARIANTS).index(name), :, 2:].mean(axis=0)
        in_time.append(f"| {name} | {' | '.join(f'{mean:.1f}' for mean in means)} |")
    in_time.append(f"| time-average optimum{f' | {optimum / TENTHS:.1f}' * TENTHS} |")
    words = (
        f"# Cost against violations: gp-sample, {STEPS} steps, {seeds} seeds, oracle on 401 points\n\n"
        f"The time-average optimum has the regret {optimum:.1f} on these seeds.\n\n"
    )
    text = words + "\n".join(rows) + "\n\n" + "\n".join(in_time) + "\n"
    out.mkdir(parents=True, exist_ok=True)
    (out / "frontier.md").write_text(text)
    sys.stdout.write(text)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 50)
