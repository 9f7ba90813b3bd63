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
import numbers
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Scalar = float | int | str | bool
Values = Mapping[str, Any]

OBJECTIVE = "objective"

# Squares and products of what was measured must stay within a float; no plant has such numbers.
LARGEST = 1e100
FARTHEST = 1e50


def as_number(value: object, field_name: str) -> float:
    """Return `value` as a finite float, or say what is wrong with it.

    Raises:
        TypeError: it is not a Python or NumPy number (booleans are not numbers here).
        ValueError: it is not finite.
    """
    if type(value) is float:
        number = value
    else:
        if isinstance(value, np.ndarray) and value.ndim == 0:
            value = value.item()
        if isinstance(value, bool | np.bool_) or not isinstance(value, numbers.Real):
            raise TypeError(f"{field_name} must be a number, got {value!r} of type {type(value).__name__}")
        try:
            number = float(value)
        except OverflowError:
            raise ValueError(f"{field_name} must be a finite number, got one too large for a float") from None
    if not math.isfinite(number):
        raise ValueError(f"{field_name} must be a finite number, got {number!r}")
    return number


def as_positive(value: object, field_name: str) -> float:
    """Return `value` as a finite float above zero."""
    number = as_number(value, field_name)
    if number <= 0:
        raise ValueError(f"{field_name} must be above 0, got {number!r}")
    return number


def as_quantity(value: object, field_name: str) -> float:
    """Return `value` as a finite float of a size that a model can take, at most 1e100."""
    number = as_number(value, field_name)
    if abs(number) > LARGEST:
        raise ValueError(f"{field_name} must be a finite number of size at most {LARGEST:g}, got {number!r}")
    return number


def as_whole(value: object, field_name: str) -> int:
    """Return `value` as an int; a float is welcome if it has no fraction."""
    number = as_number(value, field_name)
    if number != math.floor(number):
        raise ValueError(f"{field_name} must be a whole number, got {value!r}")
    return int(value) if isinstance(value, numbers.Integral) else int(number)


@dataclass(frozen=True)
class Real:
    """A real number between `lo` and `hi`; `log=True` where ratios matter more than differences."""

    lo: float
    hi: float
    log: bool = False

    def __post_init__(self) -> None:
        lo, hi = as_number(self.lo, "lo"), as_number(self.hi, "hi")
        if not lo < hi or not math.isfinite(hi - lo):
            raise ValueError(f"a range needs lo < hi with a finite width, got ({lo!r}, {hi!r})")
        if not isinstance(self.log, bool | np.bool_):
            raise TypeError(f"log must be True or False, got {self.log!r}")
        if self.log and lo <= 0:
            raise ValueError(f"a log-scaled range needs lo > 0, got lo = {lo!r}")
        object.__setattr__(self, "lo", lo)
        object.__setattr__(self, "hi", hi)
        object.__setattr__(self, "log", bool(self.log))
        a, b = (math.log(lo), math.log(hi)) if self.log else (lo, hi)
        if not b > a:
            raise ValueError(f"the range ({lo!r}, {hi!r}) is too narrow to be told apart")
        object.__setattr__(self, "_offset", a)
        object.__setattr__(self, "_width", b - a)

    levels = None

    def encode(self, value: object, field_name: str) -> float:
        """Map a value to the unit interval, linearly beyond it."""
        number = as_number(value, field_name)
        if self.log:
            if number <= 0:
                raise ValueError(f"{field_name} is log-scaled and must be above 0, got {number!r}")
            number = math.log(number)
        return float((number - self._offset) / self._width)  # type: ignore[attr-defined]

    def decode(self, u: float) -> float:
        """Map the unit interval to values, its ends exactly to `lo` and `hi`."""
        if u <= 0.0:
            return self.lo
        if u >= 1.0:
            return self.hi
        value = self._offset + u * self._width  # type: ignore[attr-defined]
        return min(max(math.exp(value) if self.log else value, self.lo), self.hi)

    def contains(self, value: object) -> bool:
        """Tell whether a valid value lies within the stated range."""
        return bool(self.lo <= value <= self.hi)  # type: ignore[operator]

    def plain(self, value: Any) -> float:
        """Return a valid value as a Python float."""
        return float(value)

    def length(self, scale: float) -> float:
        """Map a length scale in plant units (in log units for a log range) to the unit cube."""
        return float(scale / self._width)  # type: ignore[attr-defined]

    def to_json(self) -> dict[str, Any]:
        """Describe the variable in JSON."""
        return {"type": "real", "lo": self.lo, "hi": self.hi, "log": self.log}


@dataclass(frozen=True)
class Integer:
    """A whole number from `lo` to `hi`, both included."""

    lo: int
    hi: int

    def __post_init__(self) -> None:
        lo, hi = as_whole(self.lo, "lo"), as_whole(self.hi, "hi")
        if not lo < hi:
            raise ValueError(f"an integer range needs lo < hi, got ({lo!r}, {hi!r})")
        if hi - lo > 2**53:
            raise ValueError(f"an integer range may span at most 2**53 values, got ({lo!r}, {hi!r})")
        object.__setattr__(self, "lo", lo)
        object.__setattr__(self, "hi", hi)

    @property
    def levels(self) -> int:
        """The number of distinct values."""
        return self.hi - self.lo + 1

    def encode(self, value: object, field_name: str) -> float:
        """Map a whole number to the unit interval, linearly beyond it."""
        return (as_whole(value, field_name) - self.lo) / (self.hi - self.lo)

    def decode(self, u: float) -> int:
        """Map the unit interval to the nearest whole number."""
        return min(max(self.lo + round(u * (self.hi - self.lo)), self.lo), self.hi)

    def contains(self, value: object) -> bool:
        """Tell whether a valid value lies within the stated range."""
        return bool(self.lo <= value <= self.hi)  # type: ignore[operator]

    def plain(self, value: Any) -> int:
        """Return a valid value as a Python int."""
        return int(value)

    def length(self, scale: float) -> float:
        """Map a length scale in plant units to the unit cube."""
        return scale / (self.hi - self.lo)

    def to_json(self) -> dict[str, Any]:
        """Describe the variable in JSON."""
        return {"type": "integer", "lo": self.lo, "hi": self.hi}


@dataclass(frozen=True)
class Choice:
    """One of several options (strings, numbers or booleans) without an order between them."""

    options: tuple[Scalar, ...]

    def __init__(self, options: Sequence[Scalar]) -> None:
        if isinstance(options, np.ndarray) and options.ndim == 1:
            options = options.tolist()
        if isinstance(options, str | bytes) or not isinstance(options, Sequence):
            raise TypeError(f"Choice takes a list of options, got {options!r}")
        plain = tuple(option.item() if isinstance(option, np.generic) else option for option in options)
        plain = tuple(
            option if isinstance(option, str | bool | int) else as_number(option, "an option of a Choice")
            for option in plain
        )
        index = {_option_key(option): i for i, option in enumerate(plain)}
        if len(plain) < 2:
            raise ValueError(f"Choice needs at least two options, got {list(plain)!r}")
        if len(index) < len(plain):
            raise ValueError(f"the options of a Choice must differ, got {list(plain)!r}")
        object.__setattr__(self, "options", plain)
        object.__setattr__(self, "_index", index)

    @property
    def levels(self) -> int:
        """The number of options."""
        return len(self.options)

    def encode(self, value: object, field_name: str) -> float:
        """Map an option to its place in the unit interval; only equality of places has a meaning."""
        plain = value.item() if isinstance(value, np.generic) else value
        if not isinstance(plain, str | bool | numbers.Real):
            raise TypeError(f"{field_name} must be one of {list(self.options)!r}, got {value!r}")
        i = self._index.get(_option_key(plain))  # type: ignore[attr-defined]
        if i is None:
            raise ValueError(f"{field_name} must be one of {list(self.options)!r}, got {value!r}")
        return float(i / (len(self.options) - 1))

    def decode(self, u: float) -> Scalar:
        """Map the unit interval to the nearest option."""
        return self.options[min(max(round(u * (len(self.options) - 1)), 0), len(self.options) - 1)]

    def contains(self, value: object) -> bool:
        """Tell whether a valid value is within what was stated: always, since `encode` refuses others."""
        return True

    def plain(self, value: Any) -> Scalar:
        """Return a valid value as the option that it equals."""
        return self.options[round(self.encode(value, "option") * (len(self.options) - 1))]

    def length(self, scale: float) -> float:
        """Return the length scale as given: two different options are at distance 1."""
        return scale

    def to_json(self) -> dict[str, Any]:
        """Describe the variable in JSON."""
        return {"type": "choice", "options": list(self.options)}


Variable = Real | Integer | Choice


def _option_key(option: object) -> tuple[str, object]:
    """Tell True from 1 and "1" from 1, but let 1 and 1.0 be one option."""
    kind = "bool" if isinstance(option, bool) else "str" if isinstance(option, str) else "number"
    return (kind, option)


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
            if sign * (self.worst - bound) < 0:  # type: ignore[operator]
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


def _variable(spec: object, field_name: str) -> Variable:
    if isinstance(spec, Real | Integer | Choice):
        return spec
    if isinstance(spec, tuple | list | np.ndarray) and len(spec) == 2:
        try:
            return Real(spec[0], spec[1])
        except (TypeError, ValueError) as error:
            raise type(error)(f"{field_name}: {error}") from None
    raise TypeError(f"{field_name} must be (lo, hi), Real, Integer or Choice, got {spec!r}")


def _constraint(spec: object, field_name: str) -> Constraint:
    if isinstance(spec, Constraint):
        return spec
    try:
        return Constraint(upper=as_quantity(spec, field_name))
    except TypeError:
        raise TypeError(f"{field_name} must be a number (its upper limit) or a Constraint, got {spec!r}") from None


def _mapping(value: object, field_name: str) -> dict[str, Any]:
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
                if not isinstance(name, str) or not name.strip():
                    raise TypeError(f"{group}: a name must be a non-empty string, got {name!r}")
                if name in seen:
                    raise ValueError(f"{group}[{name!r}]: the name is taken by {seen[name]}; names must be unique")
                seen[name] = group
            make = _constraint if group == "constraints" else _variable
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
        object.__setattr__(self, "limits", tuple(limits))

    limits: tuple[Limit, ...] = field(init=False, repr=False, compare=False)

    @property
    def outputs(self) -> tuple[str, ...]:
        """The measured quantities: the objective, then each constraint's."""
        return (OBJECTIVE, *self.constraints)

    @property
    def variables(self) -> tuple[Variable, ...]:
        """The parameters' variables, then the context's: the columns of x = (theta, z)."""
        return (*self.parameters.values(), *self.context.values())

    @property
    def n_theta(self) -> int:
        """The number of parameters."""
        return len(self.parameters)

    @property
    def n_z(self) -> int:
        """The number of context variables."""
        return len(self.context)

    def encode_parameters(self, values: Values, group: str = "parameters") -> Array:
        """Map named parameters, which must lie in their ranges, to theta; errors speak of `group`."""
        theta = self._encode(values, self.parameters, group)
        for name, variable in self.parameters.items():
            if not variable.contains(values[name]):
                raise ValueError(
                    f"{group}[{name!r}] must lie in [{variable.lo!r}, {variable.hi!r}], got {values[name]!r}"
                )
        return theta

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
        y = np.empty(1 + len(self.constraints))
        y[0] = math.nan if objective is None else as_quantity(objective, OBJECTIVE)
        for i, name in enumerate(self.constraints, start=1):
            value = given[name]
            y[i] = math.nan if value is None else as_quantity(value, f"constraints[{name!r}]")
        return y

    def with_limits(self, changes: Values) -> Problem:
        """Return the problem with other limits; `name: number` moves the one limit of a one-sided constraint."""
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
                n: _variable_from_json(s, f"{group}[{n!r}]") for n, s in _mapping(data.get(group, {}), group).items()
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
        u = np.array([v.encode(given[name], f"{group}[{name!r}]") for name, v in variables.items()], dtype=float)
        if not (np.abs(u) <= FARTHEST).all():
            name = list(variables)[int(np.flatnonzero(~(np.abs(u) <= FARTHEST))[0])]
            raise ValueError(f"{group}[{name!r}] is too far outside its range to be scaled, got {given[name]!r}")
        return u


def _check_names(given: Mapping[Any, Any], expected: Mapping[str, Any], group: str, remedy: str) -> None:
    if given.keys() == expected.keys():
        return
    for name in expected:
        if name not in given:
            raise ValueError(f"{group}[{name!r}] is missing; {remedy}")
    unknown = next(name for name in given if name not in expected)
    raise ValueError(f"{group}[{unknown!r}] is unknown; there are {list(expected)!r}")


def _variable_from_json(spec: object, field_name: str) -> Variable:
    """Read a variable; the short form [lo, hi] is a real number."""
    if isinstance(spec, Mapping):
        kinds: dict[Any, Any] = {"real": Real, "integer": Integer, "choice": Choice}
        arguments = dict(spec)
        kind = arguments.pop("type", "real")
        if not isinstance(kind, str) or kind not in kinds:
            raise ValueError(f"{field_name}.type must be 'real', 'integer' or 'choice', got {kind!r}")
        try:
            return kinds[kind](**arguments)  # type: ignore[no-any-return]
        except (TypeError, ValueError) as error:
            raise type(error)(f"{field_name}: {error}") from None
    return _variable(spec, field_name)


def _constraint_from_json(spec: object, field_name: str) -> Constraint:
    if isinstance(spec, Mapping):
        try:
            return Constraint(**spec)
        except (TypeError, ValueError) as error:
            raise type(error)(f"{field_name}: {error}") from None
    return _constraint(spec, field_name)
