"""Tune running control systems online: contextual Bayesian optimisation with time-average constraints."""

from pdcbo.certificates import Certificate
from pdcbo.loop import Record, run
from pdcbo.models import Model
from pdcbo.optimizers import OPTIMIZERS, PDCBO, Fixed, Optimizer, Random, Suggestion
from pdcbo.plants import PLANTS, Outcome, Plant
from pdcbo.problem import Choice, Constraint, Integer, Problem, Real

__version__ = "0.1.0"

__all__ = [
    "OPTIMIZERS",
    "PDCBO",
    "PLANTS",
    "Certificate",
    "Choice",
    "Constraint",
    "Fixed",
    "Integer",
    "Model",
    "Optimizer",
    "Outcome",
    "Plant",
    "Problem",
    "Random",
    "Real",
    "Record",
    "Suggestion",
    "run",
]
