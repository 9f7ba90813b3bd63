"""The horizon that Theorem 1's own constants need before epsilon <= xi / 2, for the kernels of Table I."""

from __future__ import annotations

from pdcbo.confidence import horizon_needed
from pdcbo.experiment.tables import markdown
from pdcbo.model import Model
from pdcbo.optimizers import PDCBO
from pdcbo.optimizers.settings import TheoremSetting
from pdcbo.problem import Constraint, Problem

NOISE = 0.05
LARGEST = 10**15


def theorem_horizon(family: str, norm: float, margin: float, half: float = 2.0) -> int | None:
    """Return the smallest horizon to which Theorem 1 applies, None beyond 1e15.

    Args:
        family: of the kernel, with variance 1; the linear one exceeds 1 towards the corners, which the constants mind.
        norm: the RKHS norm bound C of objective and constraint.
        margin: the Slater margin xi.
        half: half the width of the box of theta and z.
    """
    problem = Problem({"theta": (-half, half)}, {"z": (-half, half)}, {"g": Constraint(upper=0.0, noise=NOISE)})
    length = half if family == "linear" else 1.0
    tuner = PDCBO(
        problem,
        horizon=1000,
        setting="theorem",
        models=Model(family, length, 1.0, NOISE**2),
        norm_bounds=norm,
        slater_margin=margin,
    )
    assert isinstance(tuner.setting, TheoremSetting)
    return horizon_needed(tuner.setting.constants, LARGEST)


def horizon_table() -> str:
    """Return a table over kernels, norm bounds and Slater margins."""
    pairs = ((1.0, 0.5), (1.0, 0.2), (3.0, 0.5), (3.0, 0.2))
    rows = []
    for family in ("linear", "squared-exponential", "matern-5/2"):
        needed = [theorem_horizon(family, norm, margin) for norm, margin in pairs]
        rows.append((family, *(f"{T:.1e}" if T is not None else "above 1e15" for T in needed)))
    return markdown(("kernel", *(f"C = {norm:g}, xi = {margin:g}" for norm, margin in pairs)), rows)
