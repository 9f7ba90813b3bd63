"""Lemma 1 and Theorem 1: values computed by hand, and the erratum seen in a simulation."""

from __future__ import annotations

import re

import numpy as np
import pytest
from scipy.stats import binom

from pdcbo import PDCBO, Choice, Constraint, Model, Problem
from pdcbo.confidence import (
    beta_sqrt,
    beta_sqrt_printed,
    horizon_needed,
    largest_variance,
    lower_bound,
    theorem_constants,
    upper_bound,
)
from pdcbo.gp import Posterior
from pdcbo.kernels import FAMILIES, Factor, Kernel
from pdcbo.model import kernel_for
from pdcbo.optimizers.settings import TheoremSetting


def test_beta_by_hand() -> None:
    """C = 1, sigma = 0.05, lambda = 0.0025, gamma = 5, N + 1 = 3, delta = 0.05.

    ln(3 / 0.05) = ln 60 = 4.094345;  2 (5 + 1 + 4.094345) = 20.188689;  its root is 4.493182.
    Corrected: sigma / sqrt(lambda) = 0.05 / 0.05 = 1, so 1 + 4.493182. Printed: 1 + 0.05 * 4.493182 = 1.224659.
    """
    assert beta_sqrt(1.0, 0.05, 0.0025, 5.0, 3, 0.05) == pytest.approx(5.493182, abs=1e-6)
    assert beta_sqrt_printed(1.0, 0.05, 5.0, 3, 0.05) == pytest.approx(1.224659, abs=1e-6)
    # With a GP noise variance of 1, the two agree.
    assert beta_sqrt(1.0, 0.3, 1.0, 5.0, 3, 0.05) == beta_sqrt_printed(1.0, 0.3, 5.0, 3, 0.05)


def test_bounds_are_truncated() -> None:
    mean, std = np.array([0.0, 0.9, -0.9]), np.array([0.1, 0.2, 0.2])
    assert lower_bound(mean, std, 2.0, 1.0) == pytest.approx([-0.2, 0.5, -1.0])
    assert upper_bound(mean, std, 2.0, 1.0) == pytest.approx([0.2, 1.0, -0.5])
    assert lower_bound(mean, std, 2.0) == pytest.approx([-0.2, 0.5, -1.3])


def test_theorem_1_by_hand() -> None:
    """T = 10000, C_0 = 1.5, C = (1, 2), xi = 0.5, gamma = (4, 3), beta^(1/2) = (5, 7).

    eta      = 1 / sqrt(10000) = 0.01
    ||C||^2  = 1 + 4 = 5
    lambda_1 = 4 * 1.5 / (0.01 * 0.5) + 4 * 5 / 0.5 = 1200 + 40 = 1240
    drift    = sqrt(2 * 1240^2 + 4 * 1.5 / 0.01 + 4 * 5) = sqrt(3075200 + 600 + 20) = sqrt(3075820) = 1753.8016
    ||gamma|| = 5, sqrt(T * 5) = sqrt(50000) = 223.606798
    ||beta^(1/2)|| = sqrt(25 + 49) = 8.602325;  8 * 8.602325 * 223.606798 = 15388.3072
    epsilon  = (1753.8016 + 15388.3072) / 10000 = 1.71421088
    printed, with beta = (25, 49): ||beta|| = sqrt(625 + 2401) = 55.009090;  8 * 55.009090 * 223.606798 = 98403.2520
    epsilon as printed = (1753.8016 + 98403.2520) / 10000 = 10.0157054
    """
    constants = theorem_constants(10000, np.array([1.0, 2.0]), 0.5, np.array([5.0, 7.0]), np.array([4.0, 3.0]), 1.5)
    assert constants.eta == pytest.approx(0.01, rel=1e-15)
    assert constants.initial_queue == pytest.approx(1240.0, rel=1e-12)
    assert constants.slack == pytest.approx(1.71421088, abs=1e-7)
    assert constants.slack_printed == pytest.approx(10.0157054, abs=1e-6)
    assert not constants.applies  # 1.71 > 0.25


def test_horizon_needed_is_the_smallest_to_a_thousandth() -> None:
    """C = 1, xi = 0.5, gamma = 5: about 1.4e4 steps with the theorem's own constants for beta^(1/2) = 1."""

    def constants(horizon: int):
        return theorem_constants(horizon, np.array([1.0]), 0.5, np.array([1.0]), np.array([5.0]), 1.0)

    needed = horizon_needed(constants)
    assert needed is not None
    assert constants(needed).applies
    assert not constants(int(needed * 0.998)).applies
    assert horizon_needed(constants, largest=1000) is None
    # T eps = sqrt(lambda_1^2 + ...) + 8 sqrt(5 T): about (8 + 17.9) sqrt(T) + 8 <= T / 4, so T is near 107^2 = 11400
    assert needed == pytest.approx(11_400, rel=0.1)


PROBLEM = Problem({"a": (0.0, 10.0)}, {"z": (0.0, 1.0)}, {"g": Constraint(upper=2.0, noise=0.1)})
THEOREM = {
    "setting": "theorem",
    "models": Model(length_scales=5.0, variance=1.0, noise_var=0.01),
    "norm_bounds": 1.0,
    "slater_margin": 0.5,
    "horizon": 400,
}


def test_theorem_setting_says_from_which_horizon_on_it_applies() -> None:
    tuner = PDCBO(PROBLEM, **THEOREM)
    first, second = tuner.notes()
    assert "Theorem 1: eta = 0.05" in first
    assert "as printed" in first
    assert "epsilon exceeds xi / 2 = 0.25" in second
    found = re.search(r"horizon of 400; it needs at least ([\d.e+]+) steps", second)
    assert found
    needed = int(float(found.group(1)) * 1.01)
    assert "epsilon is at most xi / 2" in PDCBO(PROBLEM, **{**THEOREM, "horizon": needed}).notes()[1]
    assert "epsilon exceeds" in PDCBO(PROBLEM, **{**THEOREM, "horizon": int(needed * 0.95)}).notes()[1]
    assert second in tuner.summary()


def test_theorem_setting_uses_theorem_1() -> None:
    """lambda_1 = 4 C_0 sqrt(T) / xi + 4 ||C||^2 / xi = 4 * 20 / 0.5 + 4 / 0.5 = 168 in plant units of g."""
    tuner = PDCBO(PROBLEM, **THEOREM)
    assert tuner.queue == pytest.approx([168.0])
    assert tuner.price() == pytest.approx([0.05 * 168.0])
    # Nothing visited: gamma_0 = 0, sigma / sqrt(lambda) = 1: beta^(1/2) = 1 + sqrt(2 (1 + ln(2 / 0.05)))
    assert tuner.beta_sqrt() == pytest.approx(1.0 + np.sqrt(2.0 * (1.0 + np.log(40.0))))
    s = tuner.ask({"z": 0.5})
    # The prior's bounds are truncated at C = 1 about the prior means, 0 and the limit 2.
    assert s.bounds == {"objective": (-1.0, 1.0), "g": (1.0, 3.0)}
    tuner.tell(s, 0.0, {"g": 2.0})
    slack = tuner.setting.slack()[0]
    # (10) moves by the lower bound, g = 1 - 2 = -1, plus epsilon
    assert tuner.queue == pytest.approx([168.0 - 1.0 + slack])
    # One point visited: gamma_1 = 1/2 ln(1 + 1 / 0.01)
    gain = 0.5 * np.log(101.0)
    assert tuner.beta_sqrt() == pytest.approx(1.0 + np.sqrt(2.0 * (gain + 1.0 + np.log(40.0))))


def test_theorem_setting_names_everything_it_lacks() -> None:
    with pytest.raises(ValueError, match=r"setting='theorem' needs horizon .*slater_margin.*norm_bounds.*models"):
        PDCBO(PROBLEM, setting="theorem")


def _coverage(runs: int, printed: bool, norm_bound: float, function: bool) -> int:
    """Count the runs in which some bound of Lemma 1 misses the truth at some of 200 points at any of 60 steps."""
    sigma, noise_var, delta = 0.05, 0.05**2, 0.05
    kernel = Kernel((Factor("squared-exponential", (0,), (0.1,)),))
    A = np.linspace(0.0, 1.0, 200)[:, None]
    misses = 0
    for run in range(runs):
        rng = np.random.default_rng([11, run])
        centres = rng.random((5, 1))
        weights = rng.normal(size=5) if function else np.zeros(5)
        norm = np.sqrt(weights @ kernel.matrix(centres, centres) @ weights)
        weights = weights * (norm_bound / norm if norm else 0.0)
        truth = kernel.matrix(A, centres) @ weights
        posterior = Posterior(kernel, noise_var, 1, 1)
        for _ in range(60):
            # An adversary would look where the bound is widest.
            j = int(np.argmax(posterior.predict(A)[1] + 1e-3 * rng.random(200)))
            noise = sigma * rng.choice([-1.0, 1.0])  # sub-Gaussian with constant sigma
            posterior.add(A[j], np.array([truth[j] + noise]))
            gain = posterior.information_gain
            beta = (
                beta_sqrt_printed(norm_bound, sigma, gain, 1, delta)
                if printed
                else beta_sqrt(norm_bound, sigma, noise_var, gain, 1, delta)
            )
            mean, std = posterior.predict(A)
            if (np.abs(mean[:, 0] - truth) > beta * std).any():
                misses += 1
                break
    return misses


def test_erratum_of_lemma_1() -> None:
    """f = 0, C = 0.1, lambda = sigma^2: the printed interval misses always, the corrected one never (delta = 5 %).

    If the corrected interval missed with probability 5 %, 20 runs would show more than 5 misses once in 3000.
    """
    assert _coverage(20, printed=True, norm_bound=0.1, function=False) == 20
    assert _coverage(20, printed=False, norm_bound=0.1, function=False) <= binom.ppf(1 - 1e-3, 20, 0.05)


def test_lemma_1_covers_functions_of_full_norm() -> None:
    assert _coverage(20, printed=False, norm_bound=1.0, function=True) <= binom.ppf(1 - 1e-3, 20, 0.05)


@pytest.mark.parametrize("family", FAMILIES)
def test_truncation_holds_for_every_kernel(family: str) -> None:
    """|f(x)| <= C sqrt(k(x, x)): the ceiling is the largest k(x, x) in the cube."""
    problem = Problem({"a": (0, 1), "c": Choice(["x", "y", "z"])}, {"z": (0, 1)})
    kernel = kernel_for(problem, family, np.array([0.3, 0.7, 0.9]), 2.0)
    corners = np.array([[a, c, z] for a in (0, 0.5, 1) for c in (0, 0.5, 1) for z in (0, 0.5, 1)], dtype=float)
    assert largest_variance(kernel) == pytest.approx(kernel.diagonal(corners).max())


def test_theorem_setting_minds_the_variance() -> None:
    """Values twice as large, variance fourfold, norm 1: as a kernel of variance 1 with norm 2 and beta doubled."""
    loud = Problem({"a": (0.0, 10.0)}, {"z": (0.0, 1.0)}, {"g": Constraint(upper=4.0, noise=0.2)})
    models = Model(length_scales=5.0, variance=4.0, noise_var=0.04)
    small, large = (
        PDCBO(problem, **{**THEOREM, **other}).setting
        for problem, other in ((PROBLEM, {}), (loud, {"models": models, "slater_margin": 1.0}))
    )
    assert isinstance(small, TheoremSetting)
    assert isinstance(large, TheoremSetting)
    assert large.initial_queue() == pytest.approx(4.0 * 2.0 * 20.0 / 1.0 + 4.0 * 2.0**2 / 1.0)
    assert large.constants(400).beta_sqrt == pytest.approx(2.0 * np.array(small.constants(400).beta_sqrt))


def test_theorem_setting_minds_where_g_stands() -> None:
    """The model's mean is 0 and the limit 2: |g| goes up to C + 2 = 3."""
    models = Model(length_scales=5.0, variance=1.0, noise_var=0.01, mean=0.0)
    tuner = PDCBO(PROBLEM, **{**THEOREM, "models": models})
    assert tuner.queue == pytest.approx([4.0 * 20.0 / 0.5 + 4.0 * 3.0**2 / 0.5])
