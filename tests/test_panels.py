"""Forward substitution in panels against LAPACK's, and its independence of how the factor came about."""

import numpy as np
import pytest

from pdcbo.gp import BLOCK, Posterior
from pdcbo.kernels import Factor, Kernel
from pdcbo.panels import PANEL, Copy, Inverses, Panels

KERNEL = Kernel((Factor("squared-exponential", (0, 1), (0.3, 0.3)),))


@pytest.mark.parametrize(("dtype", "error"), [(np.float64, 1e-12), (np.float32, 1e-4)])
def test_grown_or_built_the_solution_is_the_same_and_right(dtype, error) -> None:
    rng = np.random.default_rng(11)
    size = 2 * PANEL + 5
    X, Y, B = rng.random((size, 2)), rng.normal(size=(size, 1)), rng.normal(size=(size, 5))
    grown = Posterior(KERNEL, 0.01, 2)
    panels = Panels(Inverses(grown.factor), np.dtype(dtype))
    for n in range(1, size + 1):
        grown.add(X[n - 1], Y[n - 1])
        if n % 7 and n % BLOCK not in (0, 1, BLOCK - 1):
            continue
        sides = B[:n].astype(dtype)
        solution = panels.solve(sides.copy())
        assert solution.dtype == dtype
        np.testing.assert_allclose(solution, grown.factor.solve(B[:n]), rtol=0, atol=error)
        built = Panels(Inverses(Posterior.build(KERNEL, 0.01, X[:n], Y[:n]).factor), np.dtype(dtype))
        assert (solution == built.solve(sides)).all()


@pytest.mark.parametrize("m", [0, 1, 7, 300])
@pytest.mark.parametrize("n", [0, 1, BLOCK, PANEL, PANEL + 3])
def test_any_number_of_right_hand_sides(n, m) -> None:
    rng = np.random.default_rng(12)
    factor = Posterior.build(KERNEL, 0.01, rng.random((n, 2)), rng.normal(size=(n, 1))).factor
    B = rng.normal(size=(n, m))
    solution = Panels(Inverses(factor), np.dtype(np.float64)).solve(B.copy())
    assert solution.shape == (n, m)
    np.testing.assert_allclose(solution, factor.solve(B), rtol=0, atol=1e-12)


def test_little_noise_loses_no_digits() -> None:
    rng = np.random.default_rng(13)
    X = np.repeat(rng.random((40, 2)), 10, axis=0)  # repeated points and little noise: as ill-conditioned as it gets
    factor = Posterior.build(KERNEL, 1e-6, X, rng.normal(size=(len(X), 1))).factor
    B = KERNEL.matrix(X, rng.random((20, 2)))
    V = Panels(Inverses(factor), np.dtype(np.float64)).solve(B.copy())
    assert np.abs(factor.L @ V - B).max() < 5e-14  # that of LAPACK's solution is below 1e-14
    explained = np.square(factor.solve(B)).sum(axis=0)
    assert np.abs(np.square(V).sum(axis=0) - explained).max() < 2e-7 * 1e-6  # of the noise variance


def test_a_solve_overwrites_its_right_hand_sides_and_nothing_else() -> None:
    rng = np.random.default_rng(14)
    posterior = Posterior.build(KERNEL, 0.01, rng.random((PANEL + 9, 2)), rng.normal(size=(PANEL + 9, 1)))
    L, B = posterior.factor.L.copy(), rng.normal(size=(PANEL + 9, 3))
    room = B.copy()
    assert Panels(Inverses(posterior.factor), np.dtype(np.float64)).solve(room) is room
    assert (posterior.factor.L == L).all()
    assert (room != B).all()


def test_a_copy_takes_the_rows_of_a_block_again_when_it_is_full() -> None:
    rows = np.tril(np.random.default_rng(15).normal(size=(128, 128)))
    copy = Copy()
    copy.of(rows[:70])
    rows[BLOCK:70] += 1.0
    assert (copy.of(rows)[:, :128] == rows.astype(np.float32)).all()
    rows[BLOCK:70] += 1.0  # a full block stays as it is
    assert (copy.of(rows)[BLOCK:70, :128] != rows[BLOCK:70].astype(np.float32)).all()


@pytest.mark.parametrize("wrong", [np.zeros((20, 4))[:, :2], np.zeros((2, 20)).T, np.zeros((20, 2), np.float32)])
def test_a_solve_refuses_what_it_could_not_overwrite(wrong) -> None:
    rng = np.random.default_rng(16)
    factor = Posterior.build(KERNEL, 0.01, rng.random((20, 2)), rng.normal(size=(20, 1))).factor
    with pytest.raises(AssertionError):
        Panels(Inverses(factor), np.dtype(np.float64)).solve(wrong)
