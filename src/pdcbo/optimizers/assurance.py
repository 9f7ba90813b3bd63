"""The certificates that every optimizer gives, from its book: `pdcbo.certificates` applied to the steps that count.

A bound on the average of g over all steps is made of three parts,

    (sum of measured g  +  noise boundary  +  bound on the unmeasured steps) / t

the last one from the worst value stated for the quantity, or else from the posterior, where there is one. Each limit
gets an equal share of delta, so that all hold at once.
"""

from __future__ import annotations

import numpy as np

from pdcbo.certificates import Bound, Certificate, noise_boundary
from pdcbo.optimizers.ledger import Ledger, Step, limit_mean
from pdcbo.problem import Array, Limit, Problem, as_number
from pdcbo.wording import shown, steps

# The part of delta that the observation certificate allows to the noise where the posterior answers for missing values.
MEASURED_SHARE = 0.9

# A bound on the sum or the average of g, what it assumes in words, and whether all of that was stated by the user.
GBound = tuple[float, str, bool]


class Assurance:
    """What can be said of the true averages; a model adds its own bounds by the two methods that return None here."""

    problem: Problem
    ledger: Ledger
    horizon: int | None
    delta: float

    def certificate(self, delta: float | None = None) -> dict[str, Certificate]:
        """Return what can be said of each limit's true average, valid at all times at once.

        Args:
            delta: the joint probability of error over all limits; by default the optimizer's.
        """
        delta = self.delta if delta is None else as_number(delta, "delta")
        if not 0.0 < delta < 1.0:
            raise ValueError(f"delta must lie between 0 and 1, got {delta!r}")
        return {limit.label: self._certify(i, limit, delta) for i, limit in enumerate(self.problem.limits)}

    def noise_std(self, output: int) -> tuple[float | None, bool]:
        """Return the noise of a constraint quantity, None if it is not known, and whether the user stated it."""
        name = self.problem.outputs[output]
        stated = self.ledger.stated_noise(name, self.problem.constraints[name].noise)
        return stated, stated is not None

    def _unmeasured_bound(self, index: int, steps: list[Step], alpha: float) -> GBound | None:
        """Return the posterior's bound on the sum of g over unmeasured steps."""
        return None

    def _posterior_bound(self, index: int, history: list[Step], delta: float) -> GBound | None:
        """Return the posterior's bound on the average of g."""
        return None

    def _certify(self, index: int, limit: Limit, delta: float) -> Certificate:
        history = self.ledger.history()
        y = np.array([step.y[limit.output] for step in history])
        known = ~np.isnan(y)
        bound = limit_mean(limit, history, index)

        def in_plant_units(found: GBound | None) -> Bound | None:
            return None if found is None else Bound(bound + limit.sign * found[0], found[2], found[1])

        return Certificate(
            label=limit.label,
            side="upper" if limit.sign > 0 else "lower",
            limit=bound,
            average=float(np.mean(y[known])) if known.any() else None,
            steps=len(history),
            measured=int(known.sum()),
            delta=delta,
            observation=in_plant_units(
                self._observation_bound(index, limit, y, history, delta / len(self.problem.limits))
            ),
            posterior=in_plant_units(self._posterior_bound(index, history, delta)),
        )

    def _observation_bound(
        self, index: int, limit: Limit, y: Array, history: list[Step], alpha: float
    ) -> GBound | None:
        """Return the bound on the average of g that rests on the noise level, with probability 1 - alpha."""
        noise_std, guaranteed = self.noise_std(limit.output)
        if not history or noise_std is None:
            return None
        known = ~np.isnan(y)
        g = limit.sign * (y - np.array([step.limits[index] for step in history]))
        words = f"sub-Gaussian noise of standard deviation {noise_std:.3g} ({'stated' if guaranteed else 'estimated'})"
        extra = 0.0
        unmeasured = [step for step, k in zip(history, known, strict=True) if not k]
        worst = self.ledger.stated_worst(limit, self.problem.constraints[limit.constraint].worst)
        if worst is not None:
            extra = sum(limit.sign * (worst - step.limits[index]) for step in unmeasured)
            missing = f", {steps(len(unmeasured))} without measurement at the stated worst value {shown(worst)}"
            words += missing if unmeasured else ""
        else:
            # Shared always, so that it does not depend on what happens whether the noise may err by all of alpha.
            alpha, spare = MEASURED_SHARE * alpha, (1.0 - MEASURED_SHARE) * alpha
            if unmeasured:
                bound = self._unmeasured_bound(index, unmeasured, spare)
                if bound is None:
                    return None
                extra, more, sure = bound
                words += f", {steps(len(unmeasured))} without measurement by the posterior's bound ({more})"
                guaranteed = guaranteed and sure
        count = int(known.sum())
        noise = float(noise_boundary(count, noise_std, alpha, float(self.horizon or 1000))) if count else 0.0
        return (float(g[known].sum()) + noise + extra) / len(g), words, guaranteed
