"""What the public interface costs around the engine, and where the default's time goes: a part of `pdcbo bench`.

The engine of a tuner is `at` and `add` of copies of its own posteriors, fed with the same points. What is over that is
the interface: names, units, validation, confidence bounds, the book, and for the default the planning of prices.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median
from typing import Any
from unittest.mock import patch

import numpy as np

from pdcbo.bench_stacks import Setting
from pdcbo.gp import Posterior
from pdcbo.model import Model
from pdcbo.models import Models
from pdcbo.optimizers.adaptive import AdaptiveSetting
from pdcbo.optimizers.pdcbo import PDCBO
from pdcbo.plants.gp_sample import GPSample
from pdcbo.problem import Array, Problem
from pdcbo.structured import CandidatePosterior


class Stopwatch:
    """Adds up the CPU time of a function's calls, in seconds."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def around(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return the function, timed."""

        def timed(*args: Any, **kwargs: Any) -> Any:
            start = time.process_time()
            try:
                return function(*args, **kwargs)
            finally:
                self.seconds += time.process_time() - start

        return timed


def measure(setting: Setting, n: int = 500, steps: int = 150, episode_steps: int = 500) -> dict[str, Any]:
    """Return the overhead of the paper's setting and of the default, and the shares of an episode of the default."""
    given = Model(length_scales=1.0, variance=setting.variance, noise_var=setting.noise_var, mean=0.0)
    return {
        "n": n,
        "paper": overhead(setting, n, steps, setting="paper", models=given),
        "default": overhead(setting, n, steps),
        "episode": episode(episode_steps),
    }


def overhead(bench: Setting, n: int, steps: int, **options: Any) -> dict[str, float]:
    """Return the medians of ask and tell through `PDCBO`, of its bare engine, and of their difference, in ms."""
    problem = Problem(parameters={"theta": (-10.0, 10.0)}, context={"z": (-10.0, 10.0)}, constraints={"g": 0.0})
    tuner = PDCBO(problem, candidates=len(bench.candidates), **options)
    X, Y = bench.data(n + steps)
    rng = np.random.default_rng(3)
    plant_units = 20.0 * X - 10.0
    for (theta, z), y in zip(plant_units[:n], Y[:n], strict=True):
        tuner.observe({"theta": theta}, {"z": z}, objective=y[0], constraints={"g": y[1]})
    engine = _Engine(tuner)
    through, bare = [], []
    for z in plant_units[n:, 1].tolist():
        start = time.process_time()
        suggestion = tuner.ask({"z": z})
        asked = time.process_time()
        x = np.array([suggestion.parameters["theta"], z]) / 20.0 + 0.5
        y = bench.measure(x[None], rng)[0]
        resumed = time.process_time()
        tuner.tell(suggestion, objective=y[0], constraints={"g": y[1]})
        through.append(1e3 * (time.process_time() - resumed + asked - start))
        bare.append(1e3 * engine.step(tuner.models.X[-1], y))
    return {
        "public": median(through),
        "engine": median(bare),
        "over": median(a - b for a, b in zip(through, bare, strict=True)),
    }


class _Engine:
    """The posteriors of a tuner, copied."""

    def __init__(self, tuner: PDCBO) -> None:
        assert tuner.candidates is not None
        self.hyper = list(tuner.models.hyper)
        found = [tuner.models.posterior(output)[0] for output in range(tuner.models.q)]
        self.groups = [
            (
                [i for i, other in enumerate(found) if other is posterior],
                CandidatePosterior(
                    Posterior.build(posterior.kernel, posterior.noise_var, posterior.X, posterior.Y), tuner.candidates
                ),
            )
            for posterior in {id(each): each for each in found}.values()
        ]

    def step(self, x: Array, y: Array) -> float:
        """Ask at the context of x and tell y there; return the CPU time in seconds."""
        targets = [np.array([self.hyper[i].standardise(x, float(y[i])) for i in group]) for group, _ in self.groups]
        start = time.process_time()
        for target, (_, posterior) in zip(targets, self.groups, strict=True):
            posterior.at(x[posterior.n_theta :])
            posterior.add(x, target, asked=True)
        return time.process_time() - start


def episode(steps: int) -> dict[str, float]:
    """Return the CPU seconds of an episode of setting A by the default: in all, learning and planning prices."""
    plant = GPSample(seed=0)
    tuner = PDCBO(plant.problem, horizon=steps)
    learning, planning, total = Stopwatch(), Stopwatch(), Stopwatch()
    ask, tell = total.around(tuner.ask), total.around(tuner.tell)
    with (
        patch.object(Models, "_refit", learning.around(Models._refit)),
        patch.object(AdaptiveSetting, "advance", planning.around(AdaptiveSetting.advance)),
    ):
        for t in range(steps):
            suggestion = ask(plant.context(t + 1))
            outcome = plant.evaluate(suggestion.parameters, suggestion.context)
            tell(suggestion, outcome.objective, outcome.constraints)
    return {
        "steps": steps,
        "seconds": total.seconds,
        "learning": learning.seconds,
        "planning": planning.seconds,
    }
