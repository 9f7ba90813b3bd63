"""Look for problems in which the engine is off: `python benchmarks/accuracy.py [seconds]`, by default 120.

Kernels, noise levels, candidates, data and contexts are drawn at random, clustered, repeated and one-sided data among
them, and targets that agree with the model, that are noise, or that are steady and then change at one point. The answer
is compared with the plain posterior's, in four ways: as the engine decides by itself, always summing within groups,
trying the coarsest level of the features first, and both. In every second problem all observations were asked for, so
that what follows the last full block has rows read off earlier answers. For each way, with and without such rows, for
targets that agree and that contradict each other, the largest error of the standard deviation, relative to it, and of
the mean, relative to the root of the prior variance.
"""

import os
import sys

os.environ.update(OPENBLAS_NUM_THREADS="1", OMP_NUM_THREADS="1", MKL_NUM_THREADS="1")

import time
from collections import defaultdict
from unittest.mock import patch

import numpy as np

from pdcbo.gp import Posterior
from pdcbo.inverse import GroupedInverse
from pdcbo.kernels import Factor, Kernel
from pdcbo.problem import Array
from pdcbo.rounding import CONTRADICTION, Rounding
from pdcbo.structured import CandidatePosterior

SE = "squared-exponential"
GROUPS = {(GroupedInverse, "pays"): lambda self, work: self.n > 0}
COARSEST = {(Rounding, "recent_variance"): np.inf}
WAYS = {
    "own choice": {},
    "groups": GROUPS,
    "coarsest first": COARSEST,
    "groups, coarsest first": GROUPS | COARSEST,
}


def grid(first: int, second: int) -> Array:
    """Return the points of a grid on the unit square."""
    axes = np.linspace(0.0, 1.0, first), np.linspace(0.0, 1.0, second)
    return np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, 2)


def parameters(rng: np.random.Generator, candidates: Array, n: int) -> Array:
    """Return n choices: spread, at few places, on an edge, in the middle, on one side, in a cluster, or some off."""
    some, weights = candidates, None
    match rng.integers(7):
        case 1:
            some = candidates[rng.integers(len(candidates), size=5)]
        case 2:
            some = candidates[((candidates < 0.05) | (candidates > 0.95)).any(axis=1)]
        case 3:
            some = candidates[(np.abs(candidates - 0.5) < 0.2).all(axis=1)]
        case 4:
            some = candidates[candidates[:, 0] < 0.3]
        case 5:
            centre = candidates[rng.integers(len(candidates))]
            weights = np.exp(-50.0 * ((candidates - centre) ** 2).sum(axis=1))
            weights /= weights.sum()
        case 6:
            off = rng.random((n, candidates.shape[1])) * (1.0 + 0.2 * rng.random()) - 0.05
            return np.where(rng.random((n, 1)) < 0.1, off, candidates[rng.integers(len(candidates), size=n)])
    return some[rng.choice(len(some), size=n, p=weights)]


def problem(rng: np.random.Generator) -> tuple[Kernel, float, Array, Array, Array]:
    """Return a kernel, a noise variance, candidates, points and targets."""
    line = np.linspace(0.0, 1.0, rng.integers(60, 400))[:, None]
    candidates = [line, grid(30, 30), grid(50, 20), rng.random((300, 2))][rng.integers(4)]
    d, n_z = candidates.shape[1], int(rng.integers(1, 5))
    n = int(rng.integers(64, 500) if rng.integers(20) else rng.integers(500, 2500))
    scales = tuple(np.exp(rng.uniform(np.log(0.1), np.log(3.0), d)))
    of_context = np.exp(rng.uniform(np.log(0.05), np.log(2.0), n_z))
    family = [SE, SE, "matern-5/2", "linear"][rng.integers(4)]
    if family == "linear":
        of_context = np.maximum(of_context, 0.4)
    factors = Factor(SE, tuple(range(d)), scales), Factor(family, tuple(range(d, d + n_z)), tuple(of_context))
    kernel = Kernel(factors, float(np.exp(rng.uniform(-3.0, 3.0))))
    contexts = rng.random((n, n_z)) if rng.integers(3) else rng.random((6, n_z))[rng.integers(6, size=n)]
    X = np.hstack([parameters(rng, candidates, n), contexts])
    noise_var = 10.0 ** rng.uniform(-6.0, 0.7)
    return kernel, kernel.variance * noise_var, candidates, X, kernel.variance**0.5 * targets(rng, X, d, noise_var)


def targets(rng: np.random.Generator, X: Array, d: int, noise_var: float) -> Array:
    """Return what two functions were measured at, in roots of the prior variance; it may gather the last points."""
    n = len(X)
    match rng.integers(3):
        case 0:
            return np.sin(np.column_stack([X.sum(axis=1), 2.0 * X[:, 0]])) + noise_var**0.5 * rng.normal(size=(n, 2))
        case 1:
            return np.column_stack([rng.normal(size=n), np.sin(3.0 * X.sum(axis=1))])
    last = int(rng.integers(1, 64))
    X[-last:, :d] = X[-1, :d]
    change = 4.0 * rng.random() if rng.integers(2) else 4.0 * noise_var**0.5 * rng.random()
    return np.column_stack([np.repeat([1.0, 1.0 - change], [n - last, last]), np.ones(n)])


def search(seconds: float) -> dict[tuple[str, str, str], list[tuple[float, float, int]]]:
    """Return way, rows, targets -> errors of std and mean and the seed, for as many problems as there is time for."""
    found = defaultdict(list)
    end, seed = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        seed += 1
        rng = np.random.default_rng(seed)
        kernel, noise_var, candidates, X, Y = problem(rng)
        d = candidates.shape[1]
        contexts = [X[-1, d:], X[len(X) // 2, d:], rng.random(X.shape[1] - d), 1.5 * rng.random(X.shape[1] - d) - 0.25]
        posterior = Posterior.build(kernel, noise_var, X, Y)
        points = [np.hstack([candidates, np.broadcast_to(z, (len(candidates), len(z)))]) for z in contexts]
        expected = [posterior.predict(A) for A in points]
        asked, rows = (np.ones(len(X), bool), "read") if seed % 2 else (np.zeros(len(X), bool), "solved")
        for way, patches in WAYS.items():
            patched = [patch.object(owner, name, instead) for (owner, name), instead in patches.items()]
            for each in patched:
                each.start()
            model = CandidatePosterior.build(kernel, noise_var, X, Y, candidates, asked)
            for z, (mean, std) in zip(contexts, expected, strict=True):
                own_mean, own_std = model.at(z)
                of_mean = np.abs(own_mean - mean).max() / kernel.variance**0.5
                agree = "agree" if posterior.furthest_off <= CONTRADICTION else "contradict"
                found[way, rows, agree].append((np.abs(own_std / std - 1.0).max(), of_mean, seed))
            for each in patched:
                each.stop()
    return found


found = search(float(sys.argv[1]) if len(sys.argv) > 1 else 120.0)
print("| way | rows | targets | answers | largest error of std | seed | largest error of the mean | seed |")
print("|---|---|---|---|---|---|---|---|")
for (way, rows, agree), cases in sorted(found.items()):
    std, mean = max(cases), max(cases, key=lambda case: case[1])
    print(f"| {way} | {rows} | {agree} | {len(cases)} | {std[0]:.1e} | {std[2]} | {mean[1]:.1e} | {mean[2]} |")
