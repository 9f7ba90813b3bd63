"""What the engine asks of the functions in which it writes the kernel, and the plain ones: its columns themselves.

m functions of theta, M candidates     V (n, m)   L^-1 times the functions of the data     mu (m, q)   weights
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pdcbo.kernels import Kernel
from pdcbo.problem import Array

Indices = NDArray[np.intp]
# V' of some functions, (m, n) in one piece, or that of large features and, in single precision, that of small ones
Parts = tuple[NDArray[Any], ...]


@dataclass(frozen=True)
class Level:
    """The first m functions of a basis, enough for variances that are not too small; the finest level has them all."""

    factor: float  # its tolerance, relative to the finest
    m: int
    large: int  # the first of them, which need double precision

    @property
    def work(self) -> float:
        """What a solve takes, in right-hand sides in double precision."""
        return (self.large + self.m) / 2


class Basis(ABC):
    """m functions of theta in which k between all data and all candidates is written.

    For `pdcbo.inverse` each is a product outer_a(u) inner_t(v), u the first columns of theta and v the others.
    """

    levels: list[Level]  # the finest first

    def __init__(self, kernel: Kernel, candidates: Array) -> None:
        self.kernel = kernel
        self.candidates = candidates
        self.diagonal = kernel.diagonal(candidates)
        self.columns_of_u = candidates.shape[1]

    @property
    def finest(self) -> Level:
        """The level with all functions."""
        return self.levels[0]

    @property
    def m(self) -> int:
        """The number of functions."""
        return self.finest.m

    @cached_property
    def places(self) -> dict[bytes, int]:
        """Where each candidate stands among them."""
        return {c.tobytes(): j for j, c in enumerate(self.candidates)}

    @property
    def runs(self) -> list[tuple[int, Indices, Indices]]:
        """The functions sorted by t: each t, the a of its functions, and which these are."""
        return [(0, np.arange(self.m), np.arange(self.m))]

    @abstractmethod
    def rows(self, theta: Array) -> Array:
        """Return the functions of points, shape (c, m)."""

    def outer(self, u: Array) -> Array:
        """Return the functions outer_a of a point; by default u is all of theta, and these are all functions."""
        functions: Array = self.rows(u[None])[0]
        return functions

    def inner(self, v: Array) -> Array:
        """Return the functions inner_t of a point; by default v is empty, and there is the constant 1."""
        return np.ones(1)

    def serves(self, level: Level, variance: Array | float, prior: float) -> bool:
        """Tell whether a level is accurate where the variances are these, (M,), at a context with this prior part."""
        return level is self.finest

    @abstractmethod
    def sums(self, mu: Array) -> Array:
        """Return the mean of each candidate, shape (M, q), given the weights of all functions (m, q)."""

    @abstractmethod
    def column(self, j: int, parts: Parts) -> Array:
        """Return candidate j's column of V, (n,), given V' of all functions."""

    @abstractmethod
    def variance(self, level: Level, parts: Parts, prior: float) -> Array:
        """Return the variance (M,) at a context whose part of the prior variance is `prior`."""


class Columns(Basis):
    """The columns of the kernel at the M candidates themselves, for kernels without low rank."""

    def __init__(self, kernel: Kernel, candidates: Array) -> None:
        super().__init__(kernel, candidates)
        self.levels = [Level(1.0, len(candidates), len(candidates))]

    def rows(self, theta: Array) -> Array:
        """Return k between points and all candidates, shape (c, M)."""
        return self.kernel.matrix(theta, self.candidates)

    def sums(self, mu: Array) -> Array:
        """Return mu: each candidate has a function of its own."""
        return mu

    def column(self, j: int, parts: Parts) -> Array:
        """Return candidate j's column of V, (n,), given V' of all functions."""
        column: Array = parts[0][j]
        return column

    def variance(self, level: Level, parts: Parts, prior: float) -> Array:
        """Return the variance (M,) at a context whose part of the prior variance is `prior`."""
        (V,) = parts
        variance: Array = self.diagonal * prior - np.einsum("mn,mn->m", V, V)
        return variance
