"""The optimizers, by name."""

from __future__ import annotations

from pdcbo.optimizers.base import Optimizer
from pdcbo.optimizers.cei import CEI
from pdcbo.optimizers.cgp_ucb import CGPUCB
from pdcbo.optimizers.ledger import Suggestion
from pdcbo.optimizers.pdcbo import PDCBO
from pdcbo.optimizers.safeopt import SafeOpt
from pdcbo.optimizers.simple import Fixed, Random

OPTIMIZERS: dict[str, type[Optimizer]] = {
    optimizer.name: optimizer for optimizer in (PDCBO, CEI, SafeOpt, CGPUCB, Random, Fixed)
}

__all__ = ["CEI", "CGPUCB", "OPTIMIZERS", "PDCBO", "Fixed", "Optimizer", "Random", "SafeOpt", "Suggestion"]
