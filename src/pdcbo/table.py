"""The functions of a basis at all observations: a table that grows by a row with each, and memory for its products."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pdcbo.gp import BLOCK
from pdcbo.panels import Panels
from pdcbo.problem import Array


class Table:
    """Some functions of all observations, and room for their products with a diagonal matrix.

    Args:
        begin, end: the first function, and the first after the last.
        panels: what solves for them, in their precision.
    """

    def __init__(self, begin: int, end: int, panels: Panels) -> None:
        self.n, self.panels = 0, panels
        self._begin, self._end = begin, end
        self._values = np.empty((BLOCK, end - begin), panels.dtype)
        self._room = np.empty(self._values.size, panels.dtype)

    def append(self, rows: Array) -> None:
        """Add all functions of some observations (c, m), of which it takes its own."""
        n = self.n + len(rows)
        if n > len(self._values):
            values = np.empty((n + n // 2, self._end - self._begin), self._values.dtype)
            values[: self.n] = self._values[: self.n]
            self._values, self._room = values, np.empty(values.size, values.dtype)
        self._values[self.n : n] = rows[:, self._begin : self._end]
        self.n = n

    def columns(self, begin: int, end: int) -> NDArray[Any]:
        """Return these functions, (n, end - begin)."""
        return self._values[: self.n, begin - self._begin : end - self._begin]

    def room(self, begin: int, end: int) -> NDArray[Any]:
        """Return memory for these functions, in one piece, which the next call reuses."""
        return self._room[: self.n * (end - begin)].reshape(self.n, end - begin)

    def times(self, s: Array, begin: int, end: int) -> NDArray[Any]:
        """Return these functions of each observation times its entry of s (n,), in memory that the next call reuses."""
        scale = s.astype(self._values.dtype, copy=False)[:, None]
        product: NDArray[Any] = np.multiply(self.columns(begin, end), scale, out=self.room(begin, end))
        return product
