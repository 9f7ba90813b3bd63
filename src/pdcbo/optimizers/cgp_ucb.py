"""CGP-UCB: Krause and Ong, Contextual Gaussian process bandit optimization (NeurIPS 2011), without constraints.

    theta_t = argmax  mean(theta, z_t) + beta^(1/2) std(theta, z_t)        their rule, here for a cost

It does not look at constraints: what it reaches is the cost that a plant without limits would have.
"""

from __future__ import annotations

from pdcbo.optimizers.modelled import ModelBased
from pdcbo.problem import Array
from pdcbo.search import Score


class CGPUCB(ModelBased):
    """Minimise the cost's lower confidence bound at the context at hand; limits are recorded, not enforced."""

    name = "cgp-ucb"

    def _score(self, z: Array) -> Score:
        return lambda mean, std: self.lower_upper(mean, std)[0][0]
