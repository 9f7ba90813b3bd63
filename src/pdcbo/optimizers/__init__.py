"""The optimizers, by name."""

from __future__ import annotations

from pdcbo.optimizers.base import Optimizer
from pdcbo.optimizers.ledger import Suggestion
from pdcbo.optimizers.pdcbo import PDCBO
from pdcbo.optimizers.simple import Fixed, Random

OPTIMIZERS: dict[str, type[Optimizer]] = {
    optimizer.name: optimizer for optimizer in (PDCBO, Random, Fixed)
}

__all__ = ["OPTIMIZERS", "PDCBO", "Fixed", "Optimizer", "Random", "Suggestion"]
