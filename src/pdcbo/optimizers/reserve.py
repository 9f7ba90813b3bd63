"""What one step may use up of a limit's budget: no more than the steps left can pay back.

Among parameters with the same expected g, one that is known well and one beside a cliff are not alike when few steps
are left: a surprise at the second may be more than all of them can make up for. So of each limit a step may take

    room = [(steps left - 1) payback / 2 - B - margin]+

with B the balance so far, the margin for noise, and payback the mean of -g that the models think possible at best; and
parameters count as taking their g a number of standard deviations on the bad side: that many by which the worst of all
measurements exceeds its forecast by the models as they are now, and two at the least. What is taken beyond the room
costs the largest price. Where nothing is sure to stay within it, what is taken beyond the surest costs the present
price: with little to lose it is avoided, while a debt at the start does not keep anybody from learning.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pdcbo.models import Models
from pdcbo.problem import Array, Limit

SHARE = 0.5
LEAST_DEVIATIONS = 2.0


@dataclass(frozen=True)
class Reserve:
    """The room that one limit leaves a step.

    Attributes:
        limit: of which a step takes g.
        room: what it may take, in plant units of g.
        price: what a unit of g is worth now, in units of the objective.
        largest: the largest price there is.
        models: forecast g.
        deviations: on the bad side, that a step counts with.
    """

    limit: Limit
    room: float
    price: float
    largest: float
    models: Models
    deviations: float

    @classmethod
    def of(cls, limit: Limit, room: float, price: float, largest: float, models: Models) -> Reserve:
        """Return the reserve whose deviations are those of the worst surprise that the models have on record."""
        posterior, column = models.posterior(limit.output)
        surprises = limit.sign * posterior.W[:, column]  # (y - mean) / sqrt(std^2 + noise_var) from the data before y
        return cls(limit, room, price, largest, models, float(surprises.max(initial=LEAST_DEVIATIONS)))

    def excess(self, mean: Array, std: Array) -> Array:
        """Return what steps may take beyond the room, (m,), from mean and std of the outputs, (q, m) each."""
        limit, compression = self.limit, self.models.hyper[self.limit.output].compression
        centre, spread = mean[limit.output], std[limit.output]
        if compression is None:
            y = centre + limit.sign * self.deviations * spread
        else:
            y = compression.worse(centre, spread, self.deviations)
        g = limit.sign * (y - limit.bound)
        return np.asarray(g if limit.worst is None else np.minimum(g, limit.worst)) - self.room

    def terms(self, excess: Array) -> tuple[float, float]:
        """Return the price of an excess, and how much of it is free, from those of all parameters there are."""
        least = float(excess.min())
        return (self.largest, 0.0) if least <= 0.0 else (self.price, least)
