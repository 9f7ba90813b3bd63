"""What is run: a job is a plant, a variant of an optimizer, a seed and a number of steps, as plain JSON data.

A job has a digest of all it consists of, the code that it runs included, so that a result on disk is found again, and
never taken for another one; of a plant or an optimizer of the user's own, the files that define its classes. Its result
is a table with one row a step, in plant units:

    plant, variant, optimizer, seed, step, seconds (ask + tell), fallback_steps
    context_<name>, parameter_<name>, observed_<output>, true_<output>, limit_<label>   (true g, <= 0 on average)
"""

from __future__ import annotations

import hashlib
import inspect
import json
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from pdcbo.experiment.digest import code_digest, own_digest
from pdcbo.experiment.preparation import Preparation, best_constant, prepare
from pdcbo.optimizers import OPTIMIZERS, Optimizer
from pdcbo.plants import PLANTS, SimulatedPlant
from pdcbo.problem import Array

Columns = dict[str, Any]


@dataclass(frozen=True)
class Variant:
    """An optimizer under a label, with options of its own.

    Attributes:
        label: names it in tables and figures.
        optimizer: a name in `pdcbo.OPTIMIZERS`.
        options: keyword arguments of the optimizer, as JSON data; its horizon is the run's steps unless given here.
        start: points with `parameters` and `context` that are measured before the first step, told as past operation
            and not counted.
        points: measure so many random points first, fit all hyper-parameters to them once, then work in standardised
            units (`pdcbo.experiment.preparation`); 0: the optimizer sees the plant's units and learns by itself.
    """

    label: str
    optimizer: str
    options: dict[str, Any] = field(default_factory=dict)
    start: tuple[dict[str, Any], ...] = ()
    points: int = 0


@dataclass(frozen=True)
class Job:
    """One run, or with no variant the oracle of its plant and seed."""

    plant: str
    seed: int
    steps: int
    variant: Variant | None = None
    plant_options: dict[str, Any] = field(default_factory=dict)
    oracle_options: dict[str, Any] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """What the job is called in messages and file names."""
        return "oracle" if self.variant is None else self.variant.label

    @property
    def filename(self) -> str:
        """Where its result lies, below the folder of results."""
        optimizer = None if self.variant is None else find_optimizer(self.variant.optimizer)
        code = code_digest(optimizer) + own_digest(find_plant(self.plant), optimizer)
        text = json.dumps(asdict(self), sort_keys=True) + code
        digest = hashlib.sha256(text.encode()).hexdigest()[:12]
        folder = "oracles" if self.variant is None else "runs"
        readable = "".join(c if c.isalnum() or c in "-_." else "-" for c in f"{self.plant}-{self.label}")
        return f"{folder}/{readable}-{self.seed:04d}-{digest}.parquet"

    def make_plant(self) -> SimulatedPlant:
        """Return the plant, made anew."""
        return make_plant(self.plant, self.seed, self.plant_options)

    def execute(self) -> Columns:
        """Run the job and return its table as columns."""
        return _oracle(self) if self.variant is None else _run(self, self.variant)


def find_optimizer(name: str) -> type[Optimizer]:
    """Return an optimizer by its name."""
    if name not in OPTIMIZERS:
        raise ValueError(f"optimizer must be one of {list(OPTIMIZERS)!r}, got {name!r}")
    return OPTIMIZERS[name]


def find_plant(name: str) -> Any:
    """Return the factory of a plant by its name."""
    if name not in PLANTS:
        raise ValueError(f"plant must be one of {sorted(PLANTS)!r}, got {name!r}")
    return PLANTS[name]


def make_plant(name: str, seed: int, options: Mapping[str, Any]) -> SimulatedPlant:
    """Return a plant by its name; see `find_plant`."""
    make = find_plant(name)
    _check_options(make, options, f"plant {name!r}")
    try:
        plant: SimulatedPlant = make(seed=seed, **options)
    except TypeError as error:
        raise TypeError(f"options of plant {name!r}: {error}") from None
    missing = [each for each in ("values", "rows", "oracle") if not hasattr(plant, each)]
    if missing:
        raise TypeError(
            f"plant {name!r} lacks {missing!r}: an experiment needs noise-free values and an oracle, which"
            " subclasses of pdcbo.plants.base.SimulatedPlant have; pdcbo.run does without"
        )
    return plant


def _check_options(make: Any, options: Mapping[str, Any], who: str) -> None:
    """Refuse options that a plant or an optimizer does not have, where it says which it has."""
    known = inspect.signature(getattr(make, "build", make)).parameters
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in known.values()):
        return
    own = [name for name in known if name not in ("problem", "seed")]
    for name in options:
        if name not in own:
            raise ValueError(f"{who} has no option {name!r}; there are {own!r}")


def make_optimizer(
    variant: Variant, plant: SimulatedPlant, preparation: Preparation | None, seed: int, steps: int
) -> Optimizer:
    """Return the variant's optimizer for a plant."""
    optimizer = find_optimizer(variant.optimizer)
    options, problem = {"horizon": steps, **variant.options}, plant.problem
    if variant.optimizer == "fixed" and "parameters" not in options:
        options["parameters"] = best_constant(plant, _contexts(plant, steps))
    elif preparation is not None:
        problem = preparation.problem
        options.setdefault("models", preparation.models)
    _check_options(optimizer, options, f"optimizer {variant.label!r} ({variant.optimizer})")
    try:
        return optimizer(problem, seed=seed, **options)
    except TypeError as error:
        raise TypeError(f"options of {variant.label!r} ({variant.optimizer}): {error}") from None


def _run(job: Job, variant: Variant) -> Columns:
    plant = job.make_plant()
    takes_models = variant.optimizer not in ("random", "fixed")
    preparation = prepare(plant, variant.points, job.seed) if variant.points and takes_models else None
    tuner = make_optimizer(variant, plant, preparation, job.seed, job.steps)
    for point in variant.start:
        y = plant.problem.encode_outcome(*plant.evaluate(point["parameters"], point["context"]))
        told = y if preparation is None else preparation.standardise(y)
        tuner.observe(
            point["parameters"], point["context"], objective=float(told[0]),
            constraints=dict(zip(plant.problem.constraints, told[1:].tolist(), strict=True)),
        )  # fmt: skip
    contexts, parameters, observed = [], [], []
    seconds = np.empty(job.steps)
    for t in range(job.steps):
        context = plant.context(t + 1)
        began = time.perf_counter()
        suggestion = tuner.ask(context)
        asked = time.perf_counter()
        outcome = plant.evaluate(suggestion.parameters, context)
        told = y = plant.problem.encode_outcome(*outcome)
        resumed = time.perf_counter()
        if preparation is not None:
            told = preparation.standardise(y)
            outcome = outcome._replace(
                objective=float(told[0]),
                constraints=dict(zip(plant.problem.constraints, told[1:].tolist(), strict=True)),
            )
        tuner.tell(suggestion, outcome.objective, outcome.constraints)
        seconds[t] = time.perf_counter() - resumed + asked - began
        contexts.append(context)
        parameters.append(suggestion.parameters)
        observed.append(y)
    fallback = getattr(tuner, "unsafe_steps", lambda: 0)()
    return {
        "plant": _constant(job.plant, job.steps),
        "variant": _constant(variant.label, job.steps),
        "optimizer": _constant(variant.optimizer, job.steps),
        "seed": np.full(job.steps, job.seed),
        "step": np.arange(1, job.steps + 1),
        "seconds": seconds,
        "fallback_steps": np.full(job.steps, fallback),
        **_columns(plant, contexts, parameters, np.array(observed)),
    }


def _columns(plant: SimulatedPlant, contexts: list[Any], parameters: list[Any], observed: Array) -> Columns:
    problem = plant.problem
    theta = np.array([problem.encode_parameters(p) for p in parameters])
    z = np.array([problem.encode_context(c) for c in contexts]).reshape(len(contexts), problem.n_z)
    true = plant.values(theta[:, None], z[:, None])[:, 0]
    g = plant.rows(true)
    return {
        **{f"context_{name}": _column([c[name] for c in contexts]) for name in problem.context},
        **{f"parameter_{name}": _column([p[name] for p in parameters]) for name in problem.parameters},
        **{f"observed_{name}": observed[:, i] for i, name in enumerate(problem.outputs)},
        **{f"true_{name}": true[:, i] for i, name in enumerate(problem.outputs)},
        **{f"limit_{limit.label}": g[:, i] for i, limit in enumerate(problem.limits)},
    }


def _oracle(job: Job) -> Columns:
    plant = job.make_plant()
    options = dict(job.oracle_options)
    if "grid" in options:
        from pdcbo.search import grid

        options["candidates"] = grid(plant.problem, options.pop("grid"))
    oracle = plant.oracle(_contexts(plant, job.steps), **options)
    return {
        "plant": _constant(job.plant, job.steps),
        "seed": np.full(job.steps, job.seed),
        "step": np.arange(1, job.steps + 1),
        "per_step": oracle.per_step,
        "in_expectation": oracle.in_expectation,
        "time_average": np.full(job.steps, oracle.time_average / job.steps),
        **{
            f"price_{limit.label}": np.full(job.steps, price)
            for limit, price in zip(plant.problem.limits, oracle.prices, strict=True)
        },
    }


def _contexts(plant: SimulatedPlant, steps: int) -> list[dict[str, Any]]:
    return [plant.context(t) for t in range(1, steps + 1)]


def _constant(text: str, steps: int) -> Any:
    return np.full(steps, text, dtype=object)


def _column(values: list[Any]) -> Any:
    return np.array(values, dtype=object if isinstance(values[0], str) else None)
