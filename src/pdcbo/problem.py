"""What is tuned, what is seen and what must hold: the one place that maps plant units to the unit cube and back.

A `Problem` names the parameters theta that may be chosen, the context z that is given, and the constraints whose
averages are limited. Everything outside this module is a plain array in the unit cube or a number in plant units:

    theta   (n_theta,)  parameters in the unit cube; an integer or a choice sits at the level of its value
    z       (n_z,)      context in the unit cube, beyond it where the plant leaves the stated range
    y       (1 + n,)    objective first, then the measured constraint quantities, in plant units, NaN = not measured

A constraint is measured in plant units `y`; what must be non-positive on average is a `Limit` on it,
g = sign * (y - bound). One quantity may carry an upper and a lower limit: one model, two limits.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from pdcbo.variables import (
    FARTHEST,
    Array,
    Choice,
    Integer,
    Real,
    Scalar,
    Variable,
    as_number,
    as_positive,
    as_quantity,
    as_variable,
    as_whole,
    variable_from_json,
)

__all__ = [
    "OBJECTIVE",
    "Array",
    "Choice",
    "Constraint",
    "Integer",
    "Limit",
    "Problem",
    "Real",
    "Scalar",
    "Values",
    "Variable",
    "as_number",
    "as_positive",
    "as_quantity",
    "as_whole",
]

Values = Mapping[str, Any]

OBJECTIVE = "objective"


@dataclass(frozen=True)
class Constraint:
    """Limits on the time average of a measured quantity, in plant units.

    Attributes:
        upper: the average must be at most this.
        lower: the average must be at least this.
        noise: the measurement noise is sub-Gaussian with this standard deviation, if it is known. It turns the
            observation certificate from an estimate into a guarantee.
        worst: the worst value that the quantity can ever take, if one is known: the largest where there is an upper
            limit, the smallest where there is only a lower one. Unmeasured steps enter the certificate with it.
    """

    upper: float | None = None
    lower: float | None = None
    noise: float | None = None
    worst: float | None = None

    def __post_init__(self) -> None:
        if self.upper is None and self.lower is None:
            raise ValueError("a Constraint needs an upper limit, a lower limit or both, got neither")
        for name in ("upper", "lower", "worst"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, as_quantity(getattr(self, name), name))
        if self.noise is not None:
            object.__setattr__(self, "noise", as_positive(as_quantity(self.noise, "noise"), "noise"))
        if self.upper is not None and self.lower is not None:
            if self.lower > self.upper:
                raise ValueError(f"lower must be at most upper, got lower = {self.lower!r}, upper = {self.upper!r}")
            if self.worst is not None:
                raise ValueError("worst is for a one-sided constraint; leave it out where upper and lower are given")
        elif self.worst is not None:
            bound, sign = (self.upper, 1.0) if self.upper is not None else (self.lower, -1.0)
            assert bound is not None  # one of the two was given
            if sign * (self.worst - bound) < 0:
                raise ValueError(f"worst must lie on the far side of the limit {bound!r}, got {self.worst!r}")

    def to_json(self) -> dict[str, Any]:
        """Describe the constraint in JSON."""
        return {"upper": self.upper, "lower": self.lower, "noise": self.noise, "worst": self.worst}


@dataclass(frozen=True)
class Limit:
    """One scalar condition, average of g = sign * (y - bound) at most 0.

    Attributes:
        label: the constraint's name, with `.upper` or `.lower` where it carries both.
        constraint: the constraint's name.
        output: the index of its measured quantity among the outputs (0 is the objective).
        sign: +1 for an upper limit, -1 for a lower one.
        bound: the limit in plant units.
        worst: the largest value g can take, or None if no such value was stated.
    """

    label: str
    constraint: str
    output: int
    sign: float
    bound: float
    worst: float | None

    def value(self, y: float) -> float:
        """Return g(y) = sign * (y - bound)."""
        return self.sign * (y - self.bound)


def _constraint(spec: object, field_name: str) -> Constraint:
    if isinstance(spec, Constraint):
        return spec
    try:
        return Constraint(upper=as_quantity(spec, field_name))
    except TypeError:
        raise TypeError(f"{field_name} must be a number (its upper limit) or a Constraint, got {spec!r}") from None


def _mapping(value: object, field_name: str) -> dict[str, Any]:
    """Return a mapping as a dict that is read and never written to."""
    if type(value) is dict:  # the usual case, at a tenth of the time of the question below
        return value
    if not isinstance(value, Mapping):
        raise TypeError(f"{field_name} must be a mapping of names, got {value!r}")
    return dict(value)


@dataclass(frozen=True)
class Problem:
    """A tuning problem: named parameters, context and constraints in the plant's own units.

    Args:
        parameters: name -> `(lo, hi)`, `Real`, `Integer` or `Choice`; what the tuner chooses.
        context: name -> the same; what is given before each choice. Its range is what is expected, not a clip.
        constraints: name -> upper limit on the time average, or a `Constraint`.

    Raises:
        TypeError, ValueError: a definition is malformed; the message names the field, the value and what is right.
    """

    parameters: Mapping[str, Any]
    context: Mapping[str, Any] = field(default_factory=dict)
    constraints: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        seen: dict[str, str] = {OBJECTIVE: "the objective"}
        for group in ("parameters", "context", "constraints"):
            mapping = _mapping(getattr(self, group), group)
            for name in mapping:
                if not isinstance(name, str):
                    raise TypeError(f"{group}: a name must be a string, got {name!r}")
                if not name.strip():
                    raise ValueError(f"{group}: a name must not be empty, got {name!r}")
                if name in seen:
                    raise ValueError(f"{group}[{name!r}]: the name is taken by {seen[name]}; names must be unique")
                seen[name] = group
            make = _constraint if group == "constraints" else as_variable
            object.__setattr__(self, group, {n: make(s, f"{group}[{n!r}]") for n, s in mapping.items()})
        if not self.parameters:
            raise ValueError("parameters must name at least one parameter to tune, got none")
        limits = []
        for output, (name, c) in enumerate(self.constraints.items(), start=1):
            both = c.upper is not None and c.lower is not None
            if c.upper is not None:
                worst = None if c.worst is None else c.worst - c.upper
                limits.append(Limit(name + ".upper" * both, name, output, 1.0, c.upper, worst))
            if c.lower is not None:
                worst = None if c.worst is None else c.lower - c.worst
                limits.append(Limit(name + ".lower" * both, name, output, -1.0, c.lower, worst))
        for limit in limits:
            if limit.label != limit.constraint and limit.label in self.constraints:
                raise ValueError(
                    f"constraints[{limit.label!r}]: the name is taken by a limit of {limit.constraint!r}, which has two"
                )
        object.__setattr__(self, "limits", tuple(limits))

    limits: tuple[Limit, ...] = field(init=False, repr=False, compare=False)

    @cached_property
    def outputs(self) -> tuple[str, ...]:
        """The measured quantities: the objective, then each constraint's."""
        return (OBJECTIVE, *self.constraints)

    @cached_property
    def variables(self) -> tuple[Variable, ...]:
        """The parameters' variables, then the context's: the columns of x = (theta, z)."""
        return (*self.parameters.values(), *self.context.values())

    @cached_property
    def upper_limits(self) -> Array | None:
        """The bounds of all limits, (N, 1), where every constraint has an upper limit and no lower one; else None."""
        one_sided = all(limit.sign > 0 for limit in self.limits)
        return np.array([[limit.bound] for limit in self.limits]).reshape(-1, 1) if one_sided else None

    @property
    def n_theta(self) -> int:
        """The number of parameters."""
        return len(self.parameters)

    @property
    def n_z(self) -> int:
        """The number of context variables."""
        return len(self.context)

    def encode_parameters(
        self, values: Values, group: str = "parameters", remedy: str = "", read_back: bool = False
    ) -> Array:
        """Map named parameters, which must lie in their ranges, to theta; errors speak of `group` and of a remedy.

        Args:
            values: name -> value.
            group: what they are called in errors.
            remedy: ends the message on a value beyond its range.
            read_back: they come from the plant, where single precision may have put one just beyond its range.
        """
        theta = self._encode(values, self.parameters, group)
        for i, (name, variable) in enumerate(self.parameters.items()):
            if not variable.contains(values[name]):
                if not (read_back and isinstance(variable, Real) and variable.nearly_contains(values[name])):
                    raise ValueError(
                        f"{group}[{name!r}] must lie in [{variable.lo!r}, {variable.hi!r}], got {values[name]!r}"
                        f"{remedy}"
                    )
                theta[i] = min(max(theta[i], 0.0), 1.0)
        return theta

    def plain_parameters(self, values: Values) -> dict[str, Scalar]:
        """Return valid parameters as plain Python numbers and options, fit for JSON, in the order of the problem."""
        return {name: variable.plain(values[name]) for name, variable in self.parameters.items()}

    def plain_context(self, values: Values | None) -> dict[str, Scalar]:
        """Return a valid context as plain Python numbers and options, fit for JSON, in the order of the problem."""
        given = values or {}
        return {name: variable.plain(given[name]) for name, variable in self.context.items()}

    def encode_context(self, values: Values | None) -> Array:
        """Map a named context to z; one outside its range goes beyond the unit cube and is never clipped."""
        return self._encode({} if values is None else values, self.context, "context")

    def outside(self, values: Values | None) -> tuple[str, ...]:
        """Name the context variables that lie outside their stated range."""
        return tuple(name for name, variable in self.context.items() if not variable.contains((values or {})[name]))

    def decode_parameters(self, theta: Array) -> dict[str, Scalar]:
        """Map theta back to named parameters in plant units."""
        return {
            name: variable.decode(u)
            for (name, variable), u in zip(self.parameters.items(), theta.tolist(), strict=True)
        }

    def snap(self, theta: Array) -> Array:
        """Move integers and choices of theta, shape (..., n_theta), to their nearest level."""
        theta = np.clip(theta, 0.0, 1.0)
        for j, variable in enumerate(self.parameters.values()):
            if variable.levels is not None:
                theta[..., j] = np.round(theta[..., j] * (variable.levels - 1)) / (variable.levels - 1)
        return theta

    def encode_outcome(self, objective: object, constraints: Values | None) -> Array:
        """Map an observation to y, with NaN for what was given as None, i.e. not measured.

        Raises:
            TypeError, ValueError: a value is not a finite number, or a name is missing or unknown.
        """
        given = {} if constraints is None else _mapping(constraints, "constraints")
        _check_names(given, self.constraints, "constraints", "give its measured value, or None if it was not measured")
        y = [_measured(objective, OBJECTIVE)]
        for name in self.constraints:
            y.append(_measured(given[name], f"constraints[{name!r}]"))
        return np.array(y)

    def with_limits(self, changes: Values) -> Problem:
        """Return the problem with other limits; `name: number` moves the one limit of a one-sided constraint.

        What was stated of it, noise and worst value, stays then; a `Constraint` takes the place of all of it.
        """
        constraints = dict(self.constraints)
        for name, spec in _mapping(changes, "limits").items():
            if name not in constraints:
                raise ValueError(f"limits[{name!r}]: no such constraint; there are {list(constraints)!r}")
            old = constraints[name]
            if isinstance(spec, Constraint):
                if (spec.upper is None) != (old.upper is None) or (spec.lower is None) != (old.lower is None):
                    raise ValueError(f"limits[{name!r}] must limit the same sides as before, got {spec!r}")
                constraints[name] = spec
            else:
                bound = as_quantity(spec, f"limits[{name!r}]")
                if old.upper is not None and old.lower is not None:
                    raise ValueError(f"limits[{name!r}] has two sides; give a Constraint with both, got {spec!r}")
                side = "upper" if old.upper is not None else "lower"
                try:
                    constraints[name] = Constraint(**{side: bound}, noise=old.noise, worst=old.worst)
                except ValueError as error:
                    raise ValueError(f"limits[{name!r}]: {error}; give a Constraint with another worst value") from None
        return Problem(self.parameters, self.context, constraints)

    def to_json(self) -> dict[str, Any]:
        """Describe the problem in JSON; `from_json` reads it back."""
        return {
            group: {name: spec.to_json() for name, spec in getattr(self, group).items()}
            for group in ("parameters", "context", "constraints")
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Problem:
        """Read what `to_json` wrote."""
        data = _mapping(data, "problem")
        unknown = set(data) - {"parameters", "context", "constraints"}
        if unknown:
            raise ValueError(f"problem: unknown {sorted(unknown)!r}; it has parameters, context and constraints")
        variables = {
            group: {
                n: variable_from_json(s, f"{group}[{n!r}]") for n, s in _mapping(data.get(group, {}), group).items()
            }
            for group in ("parameters", "context")
        }
        constraints = {
            n: _constraint_from_json(s, f"constraints[{n!r}]")
            for n, s in _mapping(data.get("constraints", {}), "constraints").items()
        }
        return cls(variables["parameters"], variables["context"], constraints)

    @staticmethod
    def _encode(values: object, variables: Mapping[str, Variable], group: str) -> Array:
        given = _mapping(values, group)
        _check_names(given, variables, group, "give its value")
        places = [variable.encode(given[name], f"{group}[{name!r}]") for name, variable in variables.items()]
        if max(map(abs, places), default=0.0) > FARTHEST:
            name = next(name for name, u in zip(variables, places, strict=True) if abs(u) > FARTHEST)
            raise ValueError(f"{group}[{name!r}] is too far outside its range to be scaled, got {given[name]!r}")
        return np.array(places)


def _measured(value: object, field_name: str) -> float:
    """Return a measured value, NaN for None."""
    if value is None:
        return math.nan
    if isinstance(value, (float, np.floating)) and math.isnan(value):
        raise ValueError(f"{field_name} must be a finite number, or None if it was not measured, got nan")
    return as_quantity(value, field_name)


def _check_names(given: Mapping[Any, Any], expected: Mapping[str, Any], group: str, remedy: str) -> None:
    if given.keys() == expected.keys():
        return
    unknown = next((name for name in given if name not in expected), None)
    for name in expected:
        if name not in given:
            typo = "" if unknown is None else f", and {unknown!r} is unknown"
            raise ValueError(f"{group}[{name!r}] is missing{typo}; {remedy}")
    raise ValueError(f"{group}[{unknown!r}] is unknown; there are {list(expected)!r}")


def _constraint_from_json(spec: object, field_name: str) -> Constraint:
    if isinstance(spec, Mapping):
        try:
            return Constraint(**spec)
        except (TypeError, ValueError) as error:
            raise type(error)(f"{field_name}: {error}") from None
    return _constraint(spec, field_name)
