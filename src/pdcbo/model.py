"""How one output is modelled, as a user says it in plant units, and the kernel that comes of it in the unit cube."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from pdcbo.fit import Hyperparameters
from pdcbo.kernels import FAMILIES, Factor, Kernel
from pdcbo.problem import Array, Choice, Problem, as_number, as_positive
from pdcbo.variables import LARGEST, SMALLEST

# the noise variance relative to the prior variance below which rounding in the factor takes over
LEAST_NOISE = 1e-12


@dataclass(frozen=True)
class Model:
    """How one output is modelled: the kernel's family alone, or all hyper-parameters, in the plant's units.

    Attributes:
        kernel: a name in `pdcbo.kernels.FAMILIES`; one factor over the parameters times one over the context.
        length_scales: one number for all, or name -> number, in plant units (in log units for a log-scaled variable;
            two different options of a choice are at distance 1). None: all hyper-parameters are learned.
        variance: the prior variance in squared plant units; given together with `length_scales`.
        noise_var: the noise variance lambda of equation (6) in squared plant units; given with `length_scales`. At
            least 1e-12 of the variance is assumed: less would be lost in rounding.
        mean: the prior mean in plant units; by default 0 for the objective and the limit for a constraint, so that f
            and g have the zero mean of equation (6).
    """

    kernel: str = "squared-exponential"
    length_scales: float | Mapping[str, float] | None = None
    variance: float | None = None
    noise_var: float | None = None
    mean: float | None = None

    def __post_init__(self) -> None:
        if self.kernel not in FAMILIES:
            raise ValueError(f"kernel must be one of {list(FAMILIES)!r}, got {self.kernel!r}")
        given = [self.length_scales is not None, self.variance is not None, self.noise_var is not None]
        if any(given) and not all(given):
            raise ValueError("length_scales, variance and noise_var are given together or not at all")
        plain: dict[str, Any] = {}
        if all(given):
            scales: Any = self.length_scales
            if isinstance(scales, Mapping):
                plain["length_scales"] = {n: _length(v, f"length_scales[{n!r}]") for n, v in scales.items()}
            else:
                plain["length_scales"] = _length(scales, "length_scales")
            plain |= {name: as_positive(getattr(self, name), name) for name in ("variance", "noise_var")}
        if self.mean is not None:
            if not all(given):
                raise ValueError("mean is given together with length_scales, variance and noise_var; it is learned too")
            plain["mean"] = as_number(self.mean, "mean")
        for name, value in plain.items():
            object.__setattr__(self, name, value)

    def to_json(self) -> dict[str, Any]:
        """Describe the model in JSON."""
        scales = dict(self.length_scales) if isinstance(self.length_scales, Mapping) else self.length_scales
        return {
            "kernel": self.kernel,
            "length_scales": scales,
            "variance": self.variance,
            "noise_var": self.noise_var,
            "mean": self.mean,
        }


def _length(value: object, field_name: str) -> float:
    """Return a length scale, whose square is a number too."""
    number = as_positive(value, field_name)
    if not SMALLEST <= number <= LARGEST:
        raise ValueError(f"{field_name} must lie between {SMALLEST:g} and {LARGEST:g}, got {number!r}")
    return number


def kernel_for(problem: Problem, family: str, length_scales: Array, variance: float = 1.0) -> Kernel:
    """Return a kernel with one factor over the parameters and, if there is a context, one over the context."""
    variables = problem.variables
    choices = frozenset(j for j, v in enumerate(variables) if isinstance(v, Choice))
    n_theta = problem.n_theta
    groups = [range(n_theta), range(n_theta, len(variables))]
    return Kernel(
        tuple(
            Factor(family, tuple(g), tuple(float(length_scales[j]) for j in g), choices & frozenset(g))
            for g in groups
            if len(g)
        ),
        variance,
    )


def given_hyperparameters(problem: Problem, model: Model, default_mean: float) -> Hyperparameters:
    """Map hyper-parameters in plant units to the unit cube; the scale is 1, so nothing is standardised."""
    names = (*problem.parameters, *problem.context)
    if isinstance(model.length_scales, Mapping):
        unknown = [name for name in model.length_scales if name not in names]
        missing = [name for name in names if name not in model.length_scales]
        if unknown or missing:
            raise ValueError(f"length_scales must name {list(names)!r}, got {list(model.length_scales)!r}")
        scales = [as_positive(model.length_scales[name], f"length_scales[{name!r}]") for name in names]
    else:
        scales = [as_positive(model.length_scales, "length_scales")] * len(names)
    unit = np.array([v.length(scale) for v, scale in zip(problem.variables, scales, strict=True)])
    variance = float(model.variance or 1.0)
    kernel = kernel_for(problem, model.kernel, unit, variance)
    mean = default_mean if model.mean is None else float(model.mean)
    return Hyperparameters(kernel, max(float(model.noise_var or 1.0), LEAST_NOISE * variance), mean, 1.0)


def model_for_each_output(problem: Problem, models: Model | Mapping[str, Model] | None) -> list[Model]:
    """Return the models in the order of the outputs, from one for all of them or some by name."""
    if models is None:
        models = Model()
    if isinstance(models, Model):
        return [models] * len(problem.outputs)
    if not isinstance(models, Mapping):
        raise TypeError(f"models must be a Model or a mapping of outputs to Models, got {models!r}")
    unknown = [name for name in models if name not in problem.outputs]
    if unknown:
        raise ValueError(f"models[{unknown[0]!r}] is unknown; the outputs are {list(problem.outputs)!r}")
    for name, model in models.items():
        if not isinstance(model, Model):
            raise TypeError(f"models[{name!r}] must be a Model, got {model!r}")
    return [models.get(name, Model()) for name in problem.outputs]
