"""The primal step's search: grids, integers and choices, and gradient search in ten dimensions against brute force.

`PDCBO_SEARCH_POSTERIORS=100` runs the full check in ten dimensions (`make search-check`); by default 20 are tried.
"""

from __future__ import annotations

import os

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.stats import binom, qmc

from pdcbo import PDCBO, Choice, Integer, Model, Problem, Real
from pdcbo.models import Models
from pdcbo.problem import Array
from pdcbo.search import Score, _neighbours, grid, lowest, multi_start, score_gradient

POSTERIORS = int(os.environ.get("PDCBO_SEARCH_POSTERIORS", "20"))
NO_CONTEXT = np.empty(0)


def lagrangian(beta: float, price: float) -> Score:
    """The score of equation (9): lower bounds of the objective and, priced, of the constraint."""
    return lambda mean, std: (mean[0] - beta * std[0]) + price * (mean[1] - beta * std[1])


def posterior(seed: int, n_theta: int = 10) -> tuple[Models, Score]:
    """A posterior of two functions on the unit cube, of random kind, length scales, size and acquisition."""
    rng = np.random.default_rng([31, seed])
    problem = Problem({f"p{j}": (0.0, 1.0) for j in range(n_theta)}, {}, {"g": 0.0})
    family = ["squared-exponential", "matern-5/2", "matern-3/2"][seed % 3]
    specs = {}
    for name in ("objective", "g"):
        shortest, longest = [(0.4, 2.5), (0.2, 1.2)][seed // 3 % 2]
        scales = np.exp(rng.uniform(np.log(shortest), np.log(longest), n_theta))
        specs[name] = Model(family, dict(zip(problem.parameters, scales, strict=True)), 1.0, 1e-3)
    models = Models(problem, specs)
    n = int(rng.integers(20, 121))
    centre, tilt = rng.random(n_theta), rng.normal(size=n_theta)
    for theta in rng.random((n, n_theta)):
        bowl = float(((theta - centre) ** 2).sum())
        y = [bowl + np.sin(6 * theta[0] + 3 * theta[1]), float(tilt @ (theta - 0.5)) + np.cos(5 * theta[2])]
        models.add(theta, np.array(y) + 0.03 * rng.normal(size=2))
    return models, lagrangian(float(rng.choice([1.0, 2.0, 3.0])), float(rng.choice([0.0, 0.5, 2.0])))


def score_at(models: Models, score: Score, theta: Array) -> Array:
    """The score by the plain posterior, which the search itself does not use."""
    return score(*models.predict(theta))


def brute_force(models: Models, score: Score, extra: Array, starts: int) -> tuple[float, float]:
    """Return the lowest and the highest score found by many long local searches, one by one.

    They start from the best of 8192 spread points, from as many points chosen at random among them, from the data, from
    the best corner reachable by changing one coordinate at a time, and from `extra`, so that the minimum is never above
    what is being judged.
    """
    d = models.problem.n_theta
    pool = qmc.Sobol(d, seed=1).random(8192)
    values = score_at(models, score, pool)
    order = np.argsort(values)
    data = models.X
    best_data = data[np.argsort(score_at(models, score, data))[:5]]
    corner = (pool[order[0]] > 0.5).astype(float)
    for _ in range(3):
        for j in range(d):
            pair = np.repeat(corner[None], 2, axis=0)
            pair[:, j] = (0.0, 1.0)
            corner = pair[int(np.argmin(score_at(models, score, pair)))]
    chosen = np.random.default_rng(0).choice(8192, starts // 2, replace=False)
    first = np.vstack([pool[order[: starts // 2]], pool[chosen], best_data, corner, extra])

    section = models.section(NO_CONTEXT)

    def value(theta: Array) -> tuple[float, Array]:
        v, g = score_gradient(section, score, theta[None])
        return float(v[0]), g[0]

    lowest_found = min(
        float(
            minimize(
                value, start, jac=True, method="L-BFGS-B", bounds=[(0.0, 1.0)] * d,
                options={"maxiter": 300, "ftol": 1e-11, "gtol": 1e-7},
            ).fun
        )
        for start in first
    )  # fmt: skip
    return lowest_found, float(values.max())


def test_gradient_search_in_ten_dimensions_against_brute_force() -> None:
    """Within 1 % of the range of the minimum in 95 of 100 posteriors; no more misses than that allows in 20.

    If one in twenty failed, more than 4 of 20 would once in 300: below the bar of 95 of 100, the full check says more.
    """
    starts = 120 if POSTERIORS >= 100 else 30
    misses = []
    for seed in range(POSTERIORS):
        models, score = posterior(seed)
        theta = multi_start(models, NO_CONTEXT, score, np.random.default_rng(seed), models.X[-32:])
        assert ((theta >= 0) & (theta <= 1)).all()
        found = float(score_at(models, score, theta[None])[0])
        low, high = brute_force(models, score, theta[None], starts)
        gap = (found - low) / (high - low)
        if gap > 0.01:
            misses.append((seed, round(gap, 4)))
    print(f"\n{POSTERIORS - len(misses)} of {POSTERIORS} within 1 % of the range; misses: {misses}")
    allowed = POSTERIORS * 5 // 100 if POSTERIORS >= 100 else int(binom.ppf(0.99, POSTERIORS, 0.05))
    assert len(misses) <= allowed, misses


def test_search_finds_a_minimum_known_in_closed_form() -> None:
    """One observation y < 0 and no exploration: the mean is lowest at the observation itself."""
    problem = Problem({f"p{j}": (0.0, 1.0) for j in range(10)})
    models = Models(problem, Model(length_scales=1.0, variance=1.0, noise_var=1e-6))
    spot = np.random.default_rng(3).random(10)
    models.add(spot, np.array([-2.0]))
    theta = multi_start(models, NO_CONTEXT, lambda mean, std: mean[0], np.random.default_rng(0), np.empty((0, 10)))
    np.testing.assert_allclose(theta, spot, atol=0.02)


def test_score_gradient_equals_finite_differences() -> None:
    models, score = posterior(1, 4)
    theta = np.random.default_rng(2).random((6, 4))
    _, gradient = score_gradient(models.section(NO_CONTEXT), score, theta)
    for j in range(4):
        step = np.zeros(4)
        step[j] = 1e-6
        up, down = (score_at(models, score, theta + s) for s in (step, -step))
        np.testing.assert_allclose(gradient[:, j], (up - down) / 2e-6, rtol=1e-4, atol=1e-5)


def test_integers_choices_and_log_reals_are_searched() -> None:
    """Against the whole of a fine grid in the real parameters times all levels of the others."""
    problem = Problem(
        {"a": (0.0, 1.0), "k": Real(1e-3, 1e3, log=True), "n": Integer(0, 6), "m": Choice(["x", "y", "z"])}
    )
    fine = grid(problem, 13)
    assert fine is not None
    assert len(fine) == 13 * 13 * 7 * 3
    worse = 0
    for seed in range(10):
        rng = np.random.default_rng([5, seed])
        scales = {"a": 0.4, "k": 5.0, "n": 3.0, "m": 0.8}
        models = Models(problem, Model("matern-5/2", scales, 1.0, 1e-3))
        for theta in problem.snap(rng.random((40, 4))):
            models.add(theta, rng.normal(size=1))

        def score(mean: Array, std: Array) -> Array:
            return np.asarray(mean[0] - std[0])

        theta = multi_start(models, NO_CONTEXT, score, rng, models.X)
        assert (problem.snap(theta) == theta).all()
        values = score_at(models, score, fine)
        found = float(score_at(models, score, theta[None])[0])
        worse += found > values.min() + 0.01 * np.ptp(values)
    assert worse <= 1


def test_grids() -> None:
    assert np.array_equal(grid(Problem({"a": (0, 1)})), np.linspace(0, 1, 256)[:, None])
    two = grid(Problem({"a": (0, 1), "b": (0, 1)}))
    assert two is not None
    assert two.shape == (2500, 2)
    assert grid(Problem({"a": (0, 1), "b": (0, 1), "c": (0, 1)})) is None
    whole = grid(Problem({"n": Integer(3, 5), "m": Choice(list("abcd"))}))
    assert whole is not None
    assert len(np.unique(whole, axis=0)) == 12
    assert grid(Problem({f"n{j}": Integer(0, 9) for j in range(5)})) is None
    three = Choice(list("abc"))
    mixed = grid(Problem({"a": (0, 1), "n": Integer(1, 12), "m": three}))
    assert mixed is not None
    assert len(np.unique(mixed, axis=0)) == 113 * 12 * 3  # the most points for the real that 4096 allow
    assert grid(Problem({"a": (0, 1), "n": Integer(1, 28), "m": three})) is None  # 48 would be left
    assert grid(Problem({"a": (0, 1), "b": (0, 1), "m": three})) is None
    assert grid(Problem({"n": Integer(0, 10**9)})) is not None


def test_ties_go_to_the_centre_or_to_chance() -> None:
    candidates = np.linspace(0, 1, 5)[:, None]
    rng = np.random.default_rng(0)
    assert lowest(np.zeros(5), candidates, lambda: rng) == 2
    chosen = {lowest(np.array([0.0, 1.0, 0.0, 1.0, 1.0]), candidates, lambda: rng) for _ in range(50)}
    assert chosen == {0, 2}
    assert lowest(np.array([3.0, 1.0, 2.0, 1.5, 9.0]), candidates, lambda: rng) == 1


@pytest.mark.parametrize("candidates", [None, 0])
def test_suggestions_lie_where_they_may(candidates: int | None) -> None:
    problem = Problem(
        {"a": (-3.0, -1.0), "k": Real(1e-6, 1e-2, log=True), "n": Integer(-2, 2), "m": Choice([True, "off"])},
        {"z": (0.0, 1.0)},
    )
    tuner = PDCBO(problem, horizon=8, candidates=candidates, seed=1)
    for t in range(8):
        p = tuner.ask({"z": t / 8}).parameters
        assert -3.0 <= p["a"] <= -1.0
        assert 1e-6 <= p["k"] <= 1e-2
        assert p["n"] in (-2, -1, 0, 1, 2)
        assert p["m"] in (True, "off")
        assert isinstance(p["n"], int)
        tuner.tell(tuner.pending[-1], float(p["a"]) + float(p["n"]))


def test_all_options_and_at_most_101_whole_numbers_enter_a_grid() -> None:
    options, numbers = grid(Problem({"m": Choice(list(range(150)))})), grid(Problem({"n": Integer(0, 10**9)}))
    assert options is not None
    assert numbers is not None
    assert (len(np.unique(options)), len(np.unique(numbers))) == (150, 101)


class _Itself:
    """A section whose forecast of the first output is the first parameter, of the second output the second one."""

    def predict(self, theta: Array) -> tuple[Array, Array]:
        return theta.T, np.zeros_like(theta.T)


@pytest.mark.parametrize(
    ("start", "target", "reached"),
    [
        (0.50, 0.47, 0.47),  # three levels down, one at a time
        (0.99, 1.40, 1.00),  # up to the last level and not beyond it
        (0.02, -0.5, 0.00),
        (0.50, 0.90, 0.60),  # at most ten moves
    ],
)
def test_many_levels_are_walked_one_at_a_time(start: float, target: float, reached: float) -> None:
    problem = Problem({"n": Integer(0, 100), "m": Choice(["a", "b", "c", "d", "e"])})

    def score(mean: Array, std: Array) -> Array:
        return np.asarray((mean[0] - target) ** 2)

    theta = _neighbours(_Itself(), problem, score, np.array([start, 0.5]))
    np.testing.assert_allclose(theta, [reached, 0.5], atol=1e-12)


def test_few_levels_are_all_tried_in_one_move() -> None:
    """Beside a hill that steps to the neighbouring level would not cross."""
    problem = Problem({"n": Integer(0, 100), "m": Choice(["a", "b", "c", "d", "e"])})

    def score(mean: Array, std: Array) -> Array:
        return np.asarray(np.where(mean[1] == 1.0, -1.0, -mean[1] * (mean[1] == 0.0) + (mean[1] > 0.0)))

    theta = _neighbours(_Itself(), problem, score, np.array([0.5, 0.0]))
    np.testing.assert_allclose(theta, [0.5, 1.0])
