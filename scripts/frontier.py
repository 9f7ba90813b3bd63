"""What the limit costs: PDCBO's default told other limits than the true one, on Gaussian-process draws.

    python scripts/frontier.py OUT [SEEDS]

Runs the 500 steps of `make results` on the same plants and contexts, but tells the tuner g <= c in the place of g <= 0,
up to a limit that never binds, and counts cost and violations of the true limit. The first column shows how much
cheaper breaking the limit would be; what then remains of the regret is the price of learning. Writes OUT/frontier.md.
"""

from __future__ import annotations

import os
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np

from pdcbo import PDCBO, run
from pdcbo.metrics import violation_probability
from pdcbo.plants import PLANTS

STEPS, FIRST_SEED = 500, 1000
LIMITS = (0.0, 0.5, 100.0)


def episode(job: tuple[float, int]) -> tuple[float, float, float]:
    """Return the regret against the per-step optimum on 401 points, its time-average limit, and the true sum of g."""
    limit, seed = job
    plant = PLANTS["gp-sample"](seed=seed)
    contexts = [plant.context(t) for t in range(1, STEPS + 1)]
    oracle = plant.oracle(contexts, candidates=np.linspace(0.0, 1.0, 401)[:, None], polish=False)
    tuner = PDCBO(plant.problem, horizon=STEPS, seed=seed)
    if limit:
        tuner.set_limits({"g": limit})
    truths = [record.truth for record in run(plant, tuner, STEPS)]
    cost = sum(truth.objective for truth in truths if truth is not None)
    best = float(oracle.per_step.sum())
    return cost - best, oracle.time_average - best, sum(t.constraints["g"] for t in truths if t is not None)


def main(out: Path, seeds: int) -> None:
    """Run all limits and write the table."""
    jobs = [(limit, FIRST_SEED + k) for limit in LIMITS for k in range(seeds)]
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        results = np.array(list(pool.map(episode, jobs, chunksize=1))).reshape(len(LIMITS), seeds, 3)
    rows = [
        "| limit told | regret | sd | above the time-average optimum | sum of g | worst | violating runs | 95 % |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for limit, (regret, optimum, total) in zip(LIMITS, results.transpose(0, 2, 1), strict=True):
        violating = violation_probability(total[:, None])
        cells = (
            "none" if limit >= 100.0 else f"g <= {limit:g}", f"{regret.mean():.1f}", f"{regret.std(ddof=1):.1f}",
            f"{(regret - optimum).mean():.1f}", f"{total.mean():.1f}", f"{total.max():.1f}",
            f"{round(violating.estimate * seeds)} of {seeds}",
            f"{100 * violating.lower:.0f} to {100 * violating.upper:.0f} %",
        )  # fmt: skip
        rows.append(f"| {' | '.join(cells)} |")
    words = (
        f"# What the limit costs: gp-sample, {STEPS} steps, {seeds} seeds, oracle on 401 points\n\n"
        f"The time-average optimum has the regret {results[0, :, 1].mean():.1f} on these seeds.\n\n"
    )
    out.mkdir(parents=True, exist_ok=True)
    (out / "frontier.md").write_text(words + "\n".join(rows) + "\n")
    sys.stdout.write("\n".join(rows) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 50)
