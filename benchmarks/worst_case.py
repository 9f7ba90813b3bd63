"""Climb towards data for which the engine's mean is furthest off: `python benchmarks/worst_case.py [seconds]`.

Random problems (`benchmarks/accuracy.py`) seldom have the worst of data: many measurements near one point that are
steady, then some at one point that lie elsewhere, by 4 roots of the prior variance at most, all of them asked for. Here
such problems are drawn, and the worst found so far are changed a little, again and again, each of six searches for 120
seconds or as many as are given: for noise variances, relative to the prior variance, at which rows may be read off
answers, at which they may not, and at which the plain posterior answers for small variances, as the engine is and as it
were if it took all data to agree with each other. The largest difference of the mean from the plain posterior's, in
roots of the prior variance, the same if all rows are solved for, how far the plain posterior itself is off by rounding
(against `numpy.longdouble`), and the data.
"""

import os
import sys

os.environ.update(OPENBLAS_NUM_THREADS="1", OMP_NUM_THREADS="1", MKL_NUM_THREADS="1")

import time
from dataclasses import dataclass, replace
from unittest.mock import patch

import numpy as np

from pdcbo import rounding, structured
from pdcbo.gp import BLOCK, Posterior
from pdcbo.kernels import Factor, Kernel
from pdcbo.problem import Array

CANDIDATES = {
    "20 x 20": np.stack(np.meshgrid(*[np.linspace(0.0, 1.0, 20)] * 2, indexing="ij"), axis=-1).reshape(-1, 2),
    "50 x 50": np.stack(np.meshgrid(*[np.linspace(0.0, 1.0, 50)] * 2, indexing="ij"), axis=-1).reshape(-1, 2),
    "line": np.linspace(0.0, 1.0, 300)[:, None],
    "cloud": np.random.default_rng(3).random((300, 2)),
}
FIRST, KEPT, MOST_CHANGE = 60, 6, 4.0


@dataclass(frozen=True)
class Case:
    """Measurements of 1 at some places near a centre, then of 1 - change at one of them."""

    candidates: str
    scales: tuple[float, float, float]
    noise_var: float
    blocks: int
    centre: float
    stride: int
    places: int
    contexts: str
    last: int
    change: float

    def posterior(self) -> tuple[Kernel, Array, Array, Array, Array]:
        """Return kernel, candidates, points, targets and contexts to ask for."""
        rng = np.random.default_rng(self.blocks)
        C = CANDIDATES[self.candidates]
        d, n = C.shape[1], BLOCK * (self.blocks + 1) - 1
        centre = C[int(self.centre * len(C))]
        near = np.argsort(((C - centre) ** 2).sum(axis=1))[:: self.stride][: self.places]
        theta = C[near[rng.integers(len(near), size=n)]]
        theta[-self.last :] = centre
        z = {"one": np.zeros(n), "two": rng.integers(2, size=n) * 1.0, "all": rng.random(n)}[self.contexts]
        kernel = Kernel((Factor("squared-exponential", tuple(range(d)), self.scales[:d]),
                         Factor("squared-exponential", (d,), self.scales[2:])))  # fmt: skip
        Y = np.where(np.arange(n) < n - self.last, 1.0, 1.0 - self.change)[:, None]
        return kernel, C, np.hstack([theta, z[:, None]]), Y, np.unique([0.0, z[-1], 1.0])[:, None]

    def errors(self) -> tuple[float, float]:
        """Return the largest errors of the means, read off answers and solved for, in all contexts."""
        kernel, C, X, Y, contexts = self.posterior()
        plain = Posterior.build(kernel, self.noise_var, X, Y)
        asked = np.full(len(X), True)
        read = structured.CandidatePosterior.build(kernel, self.noise_var, X, Y, C, asked)
        solved = structured.CandidatePosterior(plain, C)
        off = [0.0, 0.0]
        for z in contexts:
            expected, _ = plain.predict(np.hstack([C, np.broadcast_to(z, (len(C), 1))]))
            for i, model in enumerate((read, solved)):
                off[i] = max(off[i], float(np.abs(model.at(z)[0] - expected).max()))
        return off[0], off[1]

    def plain_error(self) -> float:
        """Return how far the plain posterior's mean is off where arithmetic is more precise."""
        kernel, C, X, Y, contexts = self.posterior()
        n = len(X)
        K = kernel.matrix(X, X).astype(np.longdouble)
        K[np.diag_indices(n)] += np.longdouble(self.noise_var)
        b = Y[:, 0].astype(np.longdouble)
        for j in range(n - 1):  # Gaussian elimination; the matrix is positive definite
            ratio = K[j + 1 :, j] / K[j, j]
            K[j + 1 :, j + 1 :] -= ratio[:, None] * K[j, j + 1 :]
            b[j + 1 :] -= ratio * b[j]
        for j in range(n - 1, -1, -1):
            b[j] = (b[j] - K[j, j + 1 :] @ b[j + 1 :]) / K[j, j]
        plain = Posterior.build(kernel, self.noise_var, X, Y)
        points = [np.hstack([C, np.broadcast_to(z, (len(C), 1))]) for z in contexts]
        return max(float(np.abs(kernel.matrix(A, X) @ b - plain.predict(A)[0][:, 0]).max()) for A in points)


def draw(rng: np.random.Generator, noise: list[float]) -> Case:
    """Return a case at random."""
    return Case(
        candidates=str(rng.choice(list(CANDIDATES))),
        scales=(*np.exp(rng.uniform(np.log(0.05), np.log(8.0), 2)).tolist(), float(rng.choice([0.3, 1.0, 3.0]))),
        noise_var=float(rng.choice(noise)),
        blocks=int(rng.choice([1, 2, 4, 8, 12, 20, 24])),
        centre=float(rng.random()),
        stride=int(rng.choice([1, 1, 7, 30])),
        places=int(rng.choice([1, 2, 3, 6, 12, 40])),
        contexts=str(rng.choice(["one", "two", "all"])),
        last=int(rng.choice([1, 5, 20, 40, 63])),
        change=float(np.exp(rng.uniform(np.log(0.05), np.log(MOST_CHANGE)))),
    )


def changed(rng: np.random.Generator, case: Case, noise: list[float]) -> Case:
    """Return a case that differs a little from another."""
    other = draw(rng, noise)
    names = rng.choice(list(Case.__dataclass_fields__), size=rng.integers(1, 3), replace=False)
    case = replace(case, **{name: getattr(other, name) for name in names})
    first, second, change = (np.array([*case.scales[:2], case.change]) * np.exp(0.2 * rng.normal(size=3))).tolist()
    return replace(case, scales=(first, second, case.scales[2]), change=min(MOST_CHANGE, change))


def climb(seconds: float, noise: list[float]) -> tuple[int, float, float, Case]:
    """Return how many cases were tried, the worst one's errors with rows read off and solved for, and that case."""
    rng = np.random.default_rng(1)
    worst: list[tuple[float, float, Case]] = []
    tried, end = 0, time.monotonic() + seconds
    while time.monotonic() < end:
        tried += 1
        anew = tried <= FIRST or rng.random() < 0.25
        case = draw(rng, noise) if anew else changed(rng, worst[rng.integers(len(worst))][2], noise)
        worst = sorted([*worst, (*case.errors(), case)], key=lambda found: -found[0])[:KEPT]
    return tried, *worst[0]


seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 120.0
print("| noise variance | data | tried | off by | rows solved for | plain, by rounding | worst case |\n|" + "---|" * 7)
for noise in ([1e-3, 2e-3, 1e-2, 0.1], [5e-5, 1e-4, 3e-4, 9e-4], [1e-6, 3e-6, 1e-5, 4.9e-5]):
    for words, contradiction in (("as they are", rounding.CONTRADICTION), ("taken to agree", np.inf)):
        with patch.object(rounding, "CONTRADICTION", contradiction):
            tried, read, solved, case = climb(seconds, noise)
        errors = " | ".join(f"{error:.1e}" for error in (read, solved, case.plain_error()))
        print(f"| {noise[0]:g} to {noise[-1]:g} | {words} | {tried} | {errors} | {case} |", flush=True)
