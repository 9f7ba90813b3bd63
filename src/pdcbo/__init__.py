"""Tune running control systems online: contextual Bayesian optimisation with time-average constraints."""

from typing import TYPE_CHECKING, Any

from pdcbo.certificates import Certificate
from pdcbo.loop import Record, run
from pdcbo.model import Model
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
    "Study",
    "Suggestion",
    "connect",
    "run",
]


if TYPE_CHECKING:
    from pdcbo.client import connect
    from pdcbo.store import Study
else:

    def __getattr__(name: str) -> Any:
        """Import what needs a database or the network when it is first used."""
        if name == "Study":
            from pdcbo.store import Study

            return Study
        if name == "connect":
            try:
                from pdcbo.client import connect
            except ModuleNotFoundError as error:
                words = f'pdcbo.connect needs {error.name}; install it with: pip install "pdcbo[service]"'
                raise ModuleNotFoundError(words, name=error.name) from None
            return connect
        raise AttributeError(f"module 'pdcbo' has no attribute {name!r}")
