"""Would episodes in lockstep be faster than one after another? `python benchmarks/lockstep.py`.

Many seeds of an experiment could advance together: their posteriors stacked, a step one call for all of them, so that
what a call costs by itself is shared. Figure 1's setting, where that should pay most: 50 candidates, two functions on
one factor, hyper-parameters given. Stacked posteriors do the plain n^2 M operations (sums within groups differ from
episode to episode and cannot be stacked); the engine goes through the same episodes one after another, and both answer
alike. Beside them what a whole step takes, plant and tuner and records, of which the posterior is a part: what lockstep
could save at the most is the difference of the first two, of the third. CPU times, interleaved, one thread.
"""

import os

os.environ.update(OPENBLAS_NUM_THREADS="1", OMP_NUM_THREADS="1", MKL_NUM_THREADS="1")

import time

import numpy as np

from pdcbo import PDCBO, PLANTS, loop
from pdcbo.experiment.figure1 import CORE
from pdcbo.gp import Posterior
from pdcbo.kernels import Factor, Kernel
from pdcbo.problem import Array
from pdcbo.structured import CandidatePosterior

STEPS, PART = 500, 100
SCALE, VARIANCE, NOISE_VAR = 0.05, 2.0, 0.0025
CANDIDATES = np.linspace(0.0, 1.0, 50)


def covariance(a: Array, b: Array) -> Array:
    """Return exp(-(a - b)^2 / (2 SCALE^2))."""
    return np.exp(-0.5 * ((a - b) / SCALE) ** 2)


class Stacked:
    """E posteriors of two functions in lockstep, with room for all steps of an episode.

    S (E, n, n)   the inverses of the Cholesky factors     T (E, n, M)   k_theta between data and candidates
    W (E, n, 2)   S y                                      z (E, n)      contexts
    """

    def __init__(self, episodes: int) -> None:
        self.S = np.zeros((episodes, STEPS, STEPS))
        self.T = np.empty((episodes, STEPS, len(CANDIDATES)))
        self.W = np.empty((episodes, STEPS, 2))
        self.z = np.empty((episodes, STEPS))
        self.n = 0
        self.table = VARIANCE * covariance(CANDIDATES[:, None], CANDIDATES)
        self.all = np.arange(episodes)

    def at(self, z: Array) -> tuple[Array, Array]:
        """Return mean (E, M, 2) and standard deviation (E, M) at a context for each episode."""
        n = self.n
        B = self.T[:, :n] * covariance(self.z[:, :n], z[:, None])[:, :, None]
        self.V = self.S[:, :n, :n] @ B
        variance = VARIANCE - np.einsum("enm,enm->em", self.V, self.V)
        return self.V.transpose(0, 2, 1) @ self.W[:, :n], np.sqrt(np.maximum(variance, 0.0))

    def add(self, j: Array, z: Array, y: Array) -> None:
        """Extend each by what was measured (E, 2) at candidate j (E,) and the context z (E,) that was asked for."""
        n = self.n
        row = self.V[self.all, :, j][:, None]  # (E, 1, n)
        root = np.sqrt(VARIANCE + NOISE_VAR - (row @ row.transpose(0, 2, 1))[:, 0])
        self.S[:, n, :n] = -(row @ self.S[:, :n, :n])[:, 0] / root
        self.S[:, n, n] = 1.0 / root[:, 0]
        self.W[:, n] = (y - (row @ self.W[:, :n])[:, 0]) / root
        self.T[:, n], self.z[:, n] = self.table[j], z
        self.n = n + 1


def episodes(count: int) -> tuple[Array, Array, Array]:
    """Return candidates, contexts (count, STEPS) and measurements (count, STEPS, 2)."""
    rng = np.random.default_rng(4)
    j, z = rng.integers(len(CANDIDATES), size=(count, STEPS)), rng.random((count, STEPS))
    y = np.stack([np.sin(20.0 * (CANDIDATES[j] + z)), np.cos(20.0 * (CANDIDATES[j] - z))], axis=-1)
    return j, z, y + NOISE_VAR**0.5 * rng.normal(size=y.shape)


def stacked(together: int, data: tuple[Array, Array, Array]) -> tuple[Array, Array]:
    """Return seconds for each step, of all episodes, and the last means; `together` advance at a time."""
    seconds, means = np.zeros(STEPS), []
    for first in range(0, len(data[0]), together):
        j, z, y = (values[first : first + together] for values in data)
        model = Stacked(len(j))
        for t in range(STEPS):
            start = time.process_time()
            mean, _ = model.at(z[:, t])
            model.add(j[:, t], z[:, t], y[:, t])
            seconds[t] += time.process_time() - start
        means.append(mean)
    return seconds, np.concatenate(means)


def one_by_one(data: tuple[Array, Array, Array]) -> tuple[Array, Array]:
    """Return the same of the engine, an episode after another."""
    seconds, means = np.zeros(STEPS), []
    kernel = Kernel((Factor("squared-exponential", (0, 1), (SCALE, SCALE)),), VARIANCE)
    for j, z, y in zip(*data, strict=True):
        model = CandidatePosterior(Posterior(kernel, NOISE_VAR, 2, 2), CANDIDATES[:, None])
        for t in range(STEPS):
            start = time.process_time()
            mean, _ = model.at(z[t : t + 1])
            model.add(np.array([CANDIDATES[j[t]], z[t]]), y[t], asked=True)
            seconds[t] += time.process_time() - start
        means.append(mean)
    return seconds, np.array(means)


def whole(count: int) -> Array:
    """Return seconds for each step of whole episodes of figure 1 by PDCBO with the paper's constants."""
    seconds = np.zeros(STEPS)
    for seed in range(count):
        plant = PLANTS["gp-sample"](seed=seed, context_levels=50)
        records = loop.run(plant, PDCBO(plant.problem, horizon=STEPS, seed=seed, **CORE[0].options), STEPS)
        for t in range(STEPS):
            start = time.process_time()
            next(records)
            seconds[t] += time.process_time() - start
    return seconds


COUNT, ROUNDS = 24, 3
data = episodes(COUNT)
ways = {
    "engine, one after another": lambda: one_by_one(data)[0],
    **{f"stacked, {k} in lockstep": lambda k=k: stacked(k, data)[0] for k in (1, 6, 24)},
    "whole step, one after another": lambda: whole(COUNT),
}
reference = one_by_one(data)[1]
for k in (1, 24):
    assert np.abs(stacked(k, data)[1] - reference).max() < 1e-8, "they disagree"
times = {name: np.empty((ROUNDS, STEPS)) for name in ways}
for i in range(ROUNDS):
    for name, run in ways.items():
        times[name][i] = run()
parts = [f"{n}-{n + PART}" for n in range(0, STEPS, PART)]
head = ["microseconds a step of an episode, n =", *parts, "all", f"all, spread of {ROUNDS}"]
print(f"| {' | '.join(head)} |\n{'|---' * len(head)}|")
for name, values in times.items():
    each = 1e6 * values / COUNT
    cells = [f"{part.mean():.0f}" for part in np.split(np.median(each, axis=0), STEPS // PART)]
    rounds = each.mean(axis=1)
    print(f"| {name} | {' | '.join(cells)} | {np.median(rounds):.0f} | {rounds.min():.0f}-{rounds.max():.0f} |")
