"""Sequences of contexts in the unit cube: the paper's, and kinder and harder ones.

The theorem promises its bounds for any sequence, chosen by an adversary if need be; the paper's experiments use
`uniform` only. A sequence is a function of the seed and the step alone, whatever the order of the questions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from pdcbo.problem import Array, as_whole

BLOCK = 256

# (generator of the sequence, steps (B,) of a block, context (n_z,) before it) -> contexts (B, n_z)
Sequencer = Callable[[np.random.Generator, Array, Array], Array]


def uniform(rng: np.random.Generator, steps: Array, last: Array) -> Array:
    """Draw each context independently and uniformly, as in the paper's section VI."""
    return rng.random((len(steps), len(last)))


def seasonal(rng: np.random.Generator, steps: Array, last: Array) -> Array:
    """Follow a day of 24 steps and a season of 365, each coordinate a sixth of a turn later, with weather on top."""
    phase = 2.0 * np.pi * np.arange(len(last)) / 6.0
    day = np.sin(2.0 * np.pi * steps[:, None] / 24.0 + phase)
    season = np.sin(2.0 * np.pi * steps[:, None] / 365.0 + phase)
    return np.clip(0.5 + 0.25 * day + 0.2 * season + 0.05 * rng.standard_normal(day.shape), 0.0, 1.0)


def random_walk(rng: np.random.Generator, steps: Array, last: Array) -> Array:
    """Walk with Gaussian steps of 0.05 from a uniform start, reflected at the faces of the cube."""
    free = last + np.cumsum(0.05 * rng.standard_normal((len(steps), len(last))), axis=0)
    return np.abs((free + 1.0) % 2.0 - 1.0)


def jumping(rng: np.random.Generator, steps: Array, last: Array) -> Array:
    """Stay for a geometric time of mean 20 steps, then jump to a uniform context."""
    jumps = rng.random(len(steps)) < 1.0 / 20.0
    places = np.vstack([last, rng.random((len(steps), len(last)))])
    latest = np.maximum.accumulate(np.where(jumps, np.arange(1, len(steps) + 1), 0))
    return places[latest]


def adversarial(rng: np.random.Generator, steps: Array, last: Array) -> Array:
    """Alternate between two opposite corners in blocks that double in length: 8, 16, 32, ... steps.

    The adversary is against methods that learn a price of the constraint from the past. It knows the algorithm, not
    the plant: while one corner lasts, the queue settles at what that corner needs, and as soon as it has, the other
    corner comes, where that price is too low (violations pile up until it is learned again) or too high (cost is
    wasted). As blocks double, the block at hand always outweighs all that went before, so an average over the past
    never predicts the future, and where only one corner is expensive, all slack is earned before it is needed or
    all debt is made first. The seed picks the pair of corners; contexts sweep a twentieth of the cube around each.
    """
    first = np.where(_block(steps[0] - 1.0) % 2, 1.0 - np.round(last), np.round(last))
    place = np.where(_block(steps)[:, None] % 2, 1.0 - first, first)
    sweep = 0.025 * (1.0 + np.sin(steps)[:, None])
    return np.abs(place - sweep)


def _block(steps: Any) -> Any:
    """Return the index of the block of 8 * 2^k steps that each step t = 1, 2, ... lies in."""
    return np.floor(np.log2((steps - 1.0) / 8.0 + 1.0))


SEQUENCES: dict[str, Sequencer] = {
    "uniform": uniform,
    "seasonal": seasonal,
    "random-walk": random_walk,
    "jumping": jumping,
    "adversarial": adversarial,
}


class ContextPath:
    """A sequence of contexts in the unit cube, drawn block by block and kept.

    Args:
        name: a name in `SEQUENCES`.
        n_z: the number of context variables.
        seed: of the sequence.
    """

    def __init__(self, name: str, n_z: int, seed: int) -> None:
        if name not in SEQUENCES:
            raise ValueError(f"contexts must be one of {sorted(SEQUENCES)!r}, got {name!r}")
        self.name = name
        self._rng = np.random.default_rng([seed, 2])
        self._start = self._rng.random(n_z)
        self._blocks: list[Array] = []

    def __call__(self, t: int) -> Array:
        """Return the context (n_z,) of step t = 1, 2, ..., or with t = 0 the one before the first step."""
        t = as_whole(t, "t")
        if t < 0:
            raise ValueError(f"t must be at least 0, got {t!r}")
        if t == 0:
            return self._start
        block, i = divmod(t - 1, BLOCK)
        while len(self._blocks) <= block:
            steps = np.arange(1.0, BLOCK + 1.0) + BLOCK * len(self._blocks)
            last = self._blocks[-1][-1] if self._blocks else self._start
            self._blocks.append(SEQUENCES[self.name](self._rng, steps, last))
        z: Array = self._blocks[block][i]
        return z
