"""Forward substitution by blocks against LAPACK's, and its independence of how the factor came about."""

import numpy as np
import pytest

from pdcbo.blocks import WIDEST, Blocks, joined
from pdcbo.gp import BLOCK, Posterior
from pdcbo.kernels import Factor, Kernel

KERNEL = Kernel((Factor("squared-exponential", (0, 1), (0.3, 0.3)),))


def in_blocks(B: np.ndarray) -> np.ndarray:
    """Return right-hand sides (n, m) as the blocks (k, m, BLOCK) that they are solved in."""
    n, m = B.shape
    padded = np.zeros((-(-n // BLOCK) * BLOCK, m), B.dtype)
    padded[:n] = B
    return np.ascontiguousarray(padded.reshape(len(padded) // BLOCK, BLOCK, m).transpose(0, 2, 1))


@pytest.mark.parametrize(("dtype", "error"), [(np.float64, 1e-12), (np.float32, 1e-4)])
def test_grown_or_built_the_solution_is_the_same_and_right(dtype, error) -> None:
    rng = np.random.default_rng(11)
    X, Y, B = rng.random((3 * BLOCK, 2)), rng.normal(size=(3 * BLOCK, 1)), rng.normal(size=(3 * BLOCK, 5))
    grown = Posterior(KERNEL, 0.01, 2)
    blocks = Blocks(grown.factor, np.dtype(dtype))
    for n in range(1, len(X) + 1):
        grown.add(X[n - 1], Y[n - 1])
        if n % 7 and n % BLOCK not in (0, 1, BLOCK - 1):
            continue
        sides = in_blocks(B[:n].astype(dtype))
        solution = blocks.solve(sides.copy())
        assert solution.dtype == dtype
        np.testing.assert_allclose(solution.T, grown.factor.solve(B[:n]), rtol=0, atol=error)
        built = Blocks(Posterior.build(KERNEL, 0.01, X[:n], Y[:n]).factor, np.dtype(dtype))
        assert (solution == built.solve(sides)).all()


@pytest.mark.parametrize("m", [0, 1, 7, WIDEST])
@pytest.mark.parametrize("n", [0, 1, BLOCK, 2 * BLOCK + 3])
def test_any_number_of_right_hand_sides(n, m) -> None:
    rng = np.random.default_rng(12)
    factor = Posterior.build(KERNEL, 0.01, rng.random((n, 2)), rng.normal(size=(n, 1))).factor
    B = rng.normal(size=(n, m))
    solution = Blocks(factor, np.dtype(np.float64)).solve(in_blocks(B))
    assert solution.shape == (m, n)
    np.testing.assert_allclose(solution.T, factor.solve(B), rtol=0, atol=1e-12)


def test_blocks_are_joined_row_by_row() -> None:
    B = np.random.default_rng(13).random((BLOCK + 5, 3))
    assert (joined(in_blocks(B), len(B)) == B.T).all()
