"""The batched descent: it arrives, bounds hold, what may not move does not."""

from __future__ import annotations

import numpy as np
from scipy.optimize import minimize

from pdcbo.descent import descend
from pdcbo.problem import Array

ALL = np.ones(3, dtype=bool)


def rosenbrock(x: Array) -> tuple[Array, Array]:
    """In the unit cube, with the minimum 0 at (1/2, 1/2, 1/2)."""
    v = 2.0 * x
    a, b = v[:, 1:] - v[:, :-1] ** 2, 1.0 - v[:, :-1]
    gradient = np.zeros_like(x)
    gradient[:, 1:] += 200.0 * a
    gradient[:, :-1] += -400.0 * a * v[:, :-1] - 2.0 * b
    return (100.0 * a**2 + b**2).sum(axis=1), 2.0 * gradient


def test_the_minimum_of_a_bowl_is_reached_and_no_start_rises() -> None:
    centre, scales = np.array([0.2, 0.5, 0.9]), np.array([1.0, 10.0, 100.0])

    def bowl(x: Array) -> tuple[Array, Array]:
        return (scales * (x - centre) ** 2).sum(axis=1), 2.0 * scales * (x - centre)

    starts = np.random.default_rng(0).random((20, 3))
    arrived = descend(bowl, starts, ALL, 1e-12, 60)
    assert bowl(arrived)[0].min() < 1e-9
    assert (bowl(arrived)[0] <= bowl(starts)[0]).all()


def test_a_curved_valley_is_followed_to_its_end() -> None:
    starts = np.random.default_rng(1).random((24, 3))
    arrived = descend(rosenbrock, starts, ALL, 1e-10, 80)
    assert rosenbrock(arrived)[0].min() < 1e-6


def test_bounds_hold_and_are_left_again() -> None:
    """Against SciPy from the same starts: linear functions end in a corner, others on a face."""
    rng = np.random.default_rng(2)
    for _ in range(10):
        A = rng.normal(size=(3, 3))
        A = A @ A.T + 0.1 * np.eye(3)
        centre = rng.uniform(-1.0, 2.0, 3)

        def quadratic(x: Array, A: Array = A, centre: Array = centre) -> tuple[Array, Array]:
            e = x - centre
            return 0.5 * np.einsum("mi,ij,mj->m", e, A, e), e @ A

        starts = np.vstack([rng.random((5, 3)), np.zeros((1, 3)), np.ones((1, 3))])
        arrived = descend(quadratic, starts, ALL, 1e-12, 80)
        assert ((arrived >= 0.0) & (arrived <= 1.0)).all()
        best = minimize(
            lambda x: quadratic(x[None])[0][0], np.full(3, 0.5), bounds=[(0.0, 1.0)] * 3, options={"ftol": 1e-14}
        ).fun
        assert quadratic(arrived)[0].min() < best + 1e-6 * (1.0 + abs(best))


def test_what_may_not_move_stays() -> None:
    starts = np.random.default_rng(3).random((6, 3))
    arrived = descend(rosenbrock, starts, np.array([True, False, True]), 1e-10, 40)
    assert (arrived[:, 1] == starts[:, 1]).all()
    assert (rosenbrock(arrived)[0] < rosenbrock(starts)[0]).all()


def test_a_flat_function_moves_nothing() -> None:
    starts = np.random.default_rng(4).random((6, 3))
    assert (descend(lambda x: (np.zeros(len(x)), np.zeros_like(x)), starts, ALL, 1e-12, 40) == starts).all()


def test_changes_of_gradient_too_small_to_square_are_no_curvature() -> None:
    def faint(x: Array) -> tuple[Array, Array]:
        return 1e-170 * ((x - 0.5) ** 2).sum(axis=1), 2e-170 * (x - 0.5)

    with np.errstate(all="raise", under="ignore"):
        arrived = descend(faint, np.random.default_rng(2).random((4, 3)), ALL, 1e-200, 10)
    assert np.isfinite(arrived).all()
