"""What steps took of the limits that ran without measurement, or whose results are late, as the models see it now."""

from __future__ import annotations

from math import isnan
from typing import TYPE_CHECKING

import numpy as np

from pdcbo.optimizers.ledger import PENDING
from pdcbo.problem import Array

if TYPE_CHECKING:
    from pdcbo.optimizers.pdcbo import PDCBO


def unmeasured(optimizer: PDCBO) -> tuple[Array, Array]:
    """Return how much more the steps that were not measured took than was booked, (N,), and its deviation, (N,).

    What was booked is the mean of the models of that time at the point they chose: too low, as what is chosen for its
    mean is on average.
    """
    limits, rows = optimizer.problem.limits, optimizer.models.rows
    more, doubt = np.zeros(len(limits)), np.zeros(len(limits))
    missing = [step for step in optimizer.ledger.history() if step.expected]
    for i, limit in enumerate(limits):
        steps = [step for step in missing if isnan(step.y[limit.output])]
        if steps and rows[limit.output]:
            total, doubt[i] = optimizer.sum_over(limit.output, np.array([step.x for step in steps]))
            more[i] = limit.sign * (total - sum(s.limits[i] for s in steps)) - sum(s.expected[i] for s in steps)
    return more, doubt


def running(optimizer: PDCBO) -> tuple[int, Array]:
    """Return how many steps were asked after the one settled last and wait for their results, and their mean g, (N,).

    What was asked before it and waits still may never have run. To be looked at when a step is settled, and not at an
    ask: then what is asked twice is answered twice the same.
    """
    ledger, limits = optimizer.ledger, optimizer.problem.limits
    later = (ledger.steps.get(i) for i in range(ledger.counted[-1] + 1, ledger.next_id))
    steps = [step for step in later if step is not None and step.status == PENDING]
    charge = np.zeros(len(limits))
    if steps and limits:
        mean = optimizer.models.predict(np.array([step.x for step in steps]))[0]
        for i, limit in enumerate(limits):
            charge[i] = float((limit.sign * (mean[limit.output] - [step.limits[i] for step in steps])).sum())
    return len(steps), charge
