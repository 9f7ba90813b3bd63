"""Time the ways to L^-1 B against each other and against a bare product: `python benchmarks/solve.py`.

LAPACK, panels and the product do n^2 m operations on the same factor; the product, of n / 2 rows with all of the
right-hand sides, is what BLAS needs for as many operations without any order among them. Groups do fewer: the data lie
on 50 values of one parameter (setting A), or on 50 x 50 values of two (setting B). All in double precision; CPU times,
interleaved, one thread, for n observations that fill their last block.
"""

import os

os.environ.update(OPENBLAS_NUM_THREADS="1", OMP_NUM_THREADS="1", MKL_NUM_THREADS="1")

import time
from collections.abc import Callable
from statistics import median

import numpy as np

from pdcbo.basis import Basis, Columns
from pdcbo.bench import SETTINGS
from pdcbo.features import find, split
from pdcbo.gp import Posterior
from pdcbo.inverse import GroupedInverse
from pdcbo.panels import Inverses, Panels
from pdcbo.rounding import TOLERANCE
from pdcbo.structured import MAX_RANK

ROUNDS = 40


def timed(work: Callable[[], object]) -> float:
    """Return the CPU time in ms of the second of two calls."""
    work()
    start = time.process_time()
    work()
    return 1e3 * (time.process_time() - start)


def ways(name: str, n: int) -> tuple[int, list[Callable[[], object]]]:
    """Return m, and LAPACK's solve, the one in panels, the one in groups and the product, ready to be timed."""
    setting = SETTINGS[name]
    X, Y = setting.data(n)
    n_theta = setting.candidates.shape[1]
    parts = split(setting.kernel, n_theta)
    assert parts is not None
    basis: Basis | None = find(parts[0], setting.candidates, TOLERANCE * setting.noise_var, MAX_RANK)
    if basis is None or len(setting.candidates) == basis.m:
        basis = Columns(parts[0], setting.candidates)
    factor = Posterior.build(setting.kernel, setting.noise_var, X, Y[:, :1]).factor
    theta = X[:, :n_theta]
    s = parts[1].matrix(X[:1, n_theta:], X[:, n_theta:])[0]
    B = basis.rows(theta) * s[:, None]
    columns, rows, half = np.asfortranarray(B), B.copy(), np.ascontiguousarray(factor.L[: n // 2])
    panels = Panels(Inverses(factor), np.dtype(np.float64))
    inverse, out = GroupedInverse(factor, basis), np.empty((basis.m, n))
    large = basis.finest.large
    both = (out,) if large == basis.m else (out[:large], out[large:])
    inverse.sort(theta)

    def in_panels() -> None:
        np.copyto(rows, B)  # which the solve overwrites; LAPACK's copies too
        panels.solve(rows)

    inverse.times(s, theta, both)
    assert np.allclose(out.T, factor.solve(columns), rtol=0, atol=1e-10)
    return basis.m, [
        lambda: factor.solve(columns), in_panels, lambda: inverse.times(s, theta, both), lambda: half @ B,
    ]  # fmt: skip


print(
    "| setting, n | m | LAPACK, ms | panels, ms | groups, ms | product, ms | panels over the product | groups over it |"
)
print("|---|---|---|---|---|---|---|---|")
for name in ("A50", "B"):
    for n in (512, 1024, 2048):
        m, four = ways(name, n)
        rounds = [[timed(way) for way in four] for _ in range(ROUNDS)]
        lapack, own, groups, product = (median(times) for times in zip(*rounds, strict=True))
        cells = [f"{value:.2f}" for value in (lapack, own, groups, product, own / product, groups / product)]
        print(f"| {name}, {n} | {m} | {' | '.join(cells)} |")
