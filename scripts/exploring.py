"""What better exploring could gain: rules of choice on Gaussian-process draws, in the place of the default's.

    python scripts/exploring.py OUT [SEEDS]

The plants of `make frontier` made as easy as they can be: the kernel is known, there is no limit, and parameters and
contexts lie on grids, so that the posterior of the whole function is at hand at every step and a rule may look at all
of it. 500 steps, length scale 1 on [-10, 10] in both directions, variance 2, noise 0.05. With R the steps that profit,
as in `pdcbo.optimizers.adaptive`:

    greedy        the least mean m
    default       m - R EI
    index         m - b(R) s with b = R E[(-b - Z)+]: at this value a trial that shows all is worth as much as a known
                  one, so that it is Gittins' index of independent options
    look-ahead    m - sum over all contexts to come of E[the least mean there falls by]: the knowledge gradient, which
                  knows what one observation tells of other parameters and contexts

Writes OUT/exploring.md: what a run loses against the least true value of each step, in all and in each tenth.

    F, mean, var (NZ, NT)    the function and its posterior on the grids        V (t, NZ, NT)    L^-1 k(data, grids)
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from math import erfc, pi, sqrt
from pathlib import Path

import numpy as np

from pdcbo.normal import cdf
from pdcbo.optimizers.adaptive import FORESIGHT
from pdcbo.problem import Array

STEPS, TENTHS, VARIANCE, NOISE = 500, 10, 2.0, 0.05
THETA, CONTEXT = np.linspace(-10.0, 10.0, 101), np.linspace(-10.0, 10.0, 51)
REACH = 3.0  # length scales, beyond which an observation tells next to nothing of a context
NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(12)


def correlation(points: Array) -> Array:
    """Return the kernel of one direction between all points."""
    return np.exp(-0.5 * (points[:, None] - points) ** 2)


K_THETA, K_CONTEXT = correlation(THETA), correlation(CONTEXT)


@dataclass
class Posterior:
    """What is known of the function on the whole grid."""

    mean: Array
    var: Array
    V: Array
    n: int = 0

    @classmethod
    def prior(cls) -> Posterior:
        """Return what is known before the first step."""
        shape = (len(CONTEXT), len(THETA))
        return cls(np.zeros(shape), np.full(shape, VARIANCE), np.empty((STEPS, *shape)))

    def covariance(self, z: int, contexts: Array) -> Array:
        """Return the covariance (NT, k, NT) of all parameters in the context z with all of them in others."""
        prior = VARIANCE * K_THETA[:, None, :] * K_CONTEXT[z, contexts][None, :, None]
        known = self.V[: self.n, z].T @ self.V[: self.n, contexts].reshape(self.n, prior[0].size)
        return np.asarray(prior - known.reshape(prior.shape))

    def add(self, z: int, j: int, y: float) -> None:
        """Take one observation in."""
        prior = VARIANCE * np.outer(K_CONTEXT[z], K_THETA[j])
        row = prior - np.tensordot(self.V[: self.n, z, j], self.V[: self.n], axes=1)
        spread = sqrt(self.var[z, j] + NOISE**2)
        row /= spread
        self.mean += row * (y - self.mean[z, j]) / spread
        self.var = np.maximum(self.var - row * row, 0.0)
        self.V[self.n] = row
        self.n += 1


def improvement(x: float) -> float:
    """Return E[(x - Z)+] of a standard normal Z."""
    return x * 0.5 * erfc(-x / sqrt(2.0)) + float(np.exp(-0.5 * x * x)) / sqrt(2.0 * pi)


def default(known: Posterior, z: int, coming: int, likeness: float) -> Array:
    """Return m - R EI."""
    m, s = known.mean[z], np.sqrt(np.maximum(known.var[z], 1e-18))
    u = (m.min() - m) / s
    return m - coming * likeness * s * (u * cdf(u) + np.exp(-0.5 * u * u) / sqrt(2.0 * pi))


def index(known: Posterior, z: int, coming: int, likeness: float) -> Array:
    """Return m - b(R) s."""
    low, high = 0.0, 8.0
    for _ in range(40):
        b = 0.5 * (low + high)
        low, high = (b, high) if coming * likeness * improvement(-b) > b else (low, b)
    return known.mean[z] - low * np.sqrt(known.var[z])


def look_ahead(known: Posterior, z: int, coming: int, likeness: float) -> Array:
    """Return m less what the least means of all contexts to come are expected to fall by."""
    near = np.flatnonzero(np.abs(CONTEXT - CONTEXT[z]) <= REACH)
    moves = known.covariance(z, near) / np.sqrt(known.var[z] + NOISE**2)[:, None, None]
    least = sum(w * (known.mean[near] + x * moves).min(axis=2) for x, w in zip(NODES, WEIGHTS, strict=True))
    falls = known.mean[near].min(axis=1) - least / WEIGHTS.sum()
    return known.mean[z] - coming / len(CONTEXT) * falls.sum(axis=1)


def greedy(known: Posterior, z: int, coming: int, likeness: float) -> Array:
    """Return m."""
    return known.mean[z]


Rule = Callable[[Posterior, int, int, float], Array]
RULES: dict[str, Rule] = {"greedy": greedy, "default": default, "index": index, "look-ahead": look_ahead}


def episode(job: tuple[str, int]) -> Array:
    """Return what a run loses in each tenth, (TENTHS,)."""
    rule = RULES[job[0]]
    rng = np.random.default_rng([job[1], 11])
    roots = [np.linalg.cholesky(K + 1e-9 * np.eye(len(K))) for K in (K_CONTEXT, K_THETA)]
    F = sqrt(VARIANCE) * roots[0] @ rng.standard_normal((len(CONTEXT), len(THETA))) @ roots[1].T
    contexts, noise = rng.integers(len(CONTEXT), size=STEPS), NOISE * rng.standard_normal(STEPS)
    known, lost = Posterior.prior(), np.empty(STEPS)
    for t, z in enumerate(contexts.tolist()):
        coming = min(STEPS - t - 1, FORESIGHT * (t + 1))
        likeness = float(K_CONTEXT[z, contexts[:t]].mean()) if t else 1.0
        j = int(np.argmin(rule(known, z, coming, likeness)))
        lost[t] = F[z, j] - F[z].min()
        known.add(z, j, F[z, j] + noise[t])
    return lost.reshape(TENTHS, -1).sum(axis=1)


def main(out: Path, seeds: int) -> None:
    """Run all rules and write the table."""
    jobs = [(name, seed) for name in RULES for seed in range(seeds)]
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        lost = np.array(list(pool.map(episode, jobs))).reshape(len(RULES), seeds, TENTHS)
    totals = lost.sum(axis=2)
    against = totals - totals[list(RULES).index("default")]
    rows = [
        f"| rule | lost in all | less the default's (se) | {' | '.join(str(k + 1) for k in range(TENTHS))} |",
        "|---" * (TENTHS + 3) + "|",
    ]
    for name, total, difference, tenths in zip(RULES, totals, against, lost.mean(axis=1), strict=True):
        error = difference.std(ddof=1) / sqrt(seeds) if seeds > 1 else 0.0
        beside = "" if name == "default" else f"{difference.mean():.1f} ({error:.1f})"
        rows.append(f"| {name} | {total.mean():.1f} | {beside} | {' | '.join(f'{x:.1f}' for x in tenths)} |")
    words = (
        f"# What better exploring could gain: no limit, kernel known, {STEPS} steps, {seeds} seeds\n\n"
        "Loss against the least true value of each step, in all and in tenths of the run; `scripts/exploring.py` says"
        " what the rules are.\n\n"
    )
    text = words + "\n".join(rows) + "\n"
    out.mkdir(parents=True, exist_ok=True)
    (out / "exploring.md").write_text(text)
    sys.stdout.write(text)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 50)
