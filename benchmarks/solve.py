"""Time forward substitution in panels against LAPACK's and against a bare product: `python benchmarks/solve.py`.

All three do n^2 m operations on the same factor; the product, of n / 2 rows with all of the right-hand sides, is what
BLAS needs for as many operations without any order among them. CPU times, interleaved, one thread.
"""

import os

os.environ.update(OPENBLAS_NUM_THREADS="1", OMP_NUM_THREADS="1", MKL_NUM_THREADS="1")

import time
from collections.abc import Callable
from statistics import median

import numpy as np

from pdcbo.gp import Posterior
from pdcbo.kernels import Factor, Kernel
from pdcbo.panels import Panels

ROUNDS = 40


def timed(work: Callable[[], object]) -> float:
    """Return the CPU time in ms of the second of two calls."""
    work()
    start = time.process_time()
    work()
    return 1e3 * (time.process_time() - start)


def ways(n: int, m: int) -> list[Callable[[], object]]:
    """Return LAPACK's solve, the one in panels, and the product, ready to be timed."""
    kernel = Kernel((Factor("squared-exponential", (0, 1), (0.05, 0.05)),), 2.0)
    rng = np.random.default_rng(0)
    factor = Posterior.build(kernel, 0.0025, rng.random((n, 2)), rng.normal(size=(n, 1))).factor
    B = rng.normal(size=(n, m))
    columns, rows, half = np.asfortranarray(B), B.copy(), np.ascontiguousarray(factor.L[: n // 2])
    panels = Panels(factor, np.dtype(np.float64))

    def in_panels() -> None:
        np.copyto(rows, B)  # which the solve overwrites; LAPACK's copies too
        panels.solve(rows)

    return [lambda: factor.solve(columns), in_panels, lambda: half @ B]


print("| n | right-hand sides | LAPACK, ms | panels, ms | product, ms | panels over LAPACK | over the product |")
print("|---|---|---|---|---|---|---|")
for n in (500, 2000):
    for m in (50, 64, 136):
        three = ways(n, m)
        rounds = [[timed(way) for way in three] for _ in range(ROUNDS)]
        lapack, own, product = (median(times) for times in zip(*rounds, strict=True))
        cells = (f"{lapack:.2f}", f"{own:.2f}", f"{product:.2f}", f"{own / lapack:.2f}", f"{own / product:.2f}")
        print(f"| {n} | {m} | {' | '.join(cells)} |")
