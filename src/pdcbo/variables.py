"""The kinds of variables a problem may have, each a map from plant units to the unit interval and back.

Numbers are checked here and nowhere else: what passes is finite, of the right type and of a size a model can take.
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

# Squares and products of what was measured must stay within a float, those of a cost over a limit among them; no plant
# has such numbers.
LARGEST = 1e50
SMALLEST = 1e-50
FARTHEST = 1e50
SINGLE_PRECISION = 1e-7


def as_number(value: object, field_name: str) -> float:
    """Return `value` as a finite float, or say what is wrong with it.

    Raises:
        TypeError: it is not a Python or NumPy number (booleans are not numbers here).
        ValueError: it is not finite.
    """
    if isinstance(value, float):  # NumPy's own among them
        number = float(value)
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
    """Return `value` as a finite float of a size that a model can take: at most 1e50, and 0 below 1e-50."""
    number = as_number(value, field_name)
    size = abs(number)
    if size > LARGEST:
        raise ValueError(f"{field_name} must be a finite number of size at most {LARGEST:g}, got {number!r}")
    return number if size >= SMALLEST else 0.0


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
    _offset: float = field(init=False, repr=False, compare=False)
    _width: float = field(init=False, repr=False, compare=False)

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
        return float((number - self._offset) / self._width)

    def decode(self, u: float) -> float:
        """Map the unit interval to values, its ends exactly to `lo` and `hi`."""
        if u <= 0.0:
            return self.lo
        if u >= 1.0:
            return self.hi
        value = self._offset + u * self._width
        return min(max(math.exp(value) if self.log else value, self.lo), self.hi)

    def decode_beyond(self, u: float) -> float:
        """Map what `encode` returned back, also where it is outside the unit interval."""
        if 0.0 <= u <= 1.0:
            return self.decode(u)
        value = self._offset + u * self._width
        return math.exp(value) if self.log else value

    def contains(self, value: Any) -> bool:
        """Tell whether a valid value lies within the stated range."""
        return self.lo <= float(value) <= self.hi  # as a float: NumPy compares in single precision what is in it

    def nearly_contains(self, value: Any) -> bool:
        """Tell whether a valid value lies within the stated range but for rounding to single precision."""
        largest = max(abs(self.lo), abs(self.hi))
        below, above = (self.lo, self.hi) if self.log else (largest, largest)
        return self.lo - SINGLE_PRECISION * below <= float(value) <= self.hi + SINGLE_PRECISION * above

    def plain(self, value: Any) -> float:
        """Return a valid value as a Python float."""
        return float(value)

    def length(self, scale: float) -> float:
        """Map a length scale in plant units (in log units for a log range) to the unit cube."""
        return float(scale / self._width)

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
        return min(max(self.decode_beyond(u), self.lo), self.hi)

    def decode_beyond(self, u: float) -> int:
        """Map what `encode` returned back, also where it is outside the unit interval."""
        return self.lo + round(u * (self.hi - self.lo))

    def contains(self, value: Any) -> bool:
        """Tell whether a valid value lies within the stated range."""
        return bool(self.lo <= value <= self.hi)

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
    _index: dict[Any, int] = field(init=False, repr=False, compare=False)

    def __init__(self, options: Sequence[Scalar]) -> None:
        if isinstance(options, np.ndarray) and options.ndim == 1:
            options = options.tolist()
        if isinstance(options, str | bytes) or not isinstance(options, Sequence):
            raise TypeError(f"Choice takes a list of options, got {options!r}")
        plain = tuple(option.item() if isinstance(option, np.generic) else option for option in options)
        for option in plain:
            if not isinstance(option, str | bool | numbers.Real):
                raise TypeError(f"an option of a Choice must be a string, a number or a boolean, got {option!r}")
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
        i = self._index.get(_option_key(plain))
        if i is None:
            raise ValueError(f"{field_name} must be one of {list(self.options)!r}, got {value!r}")
        return float(i / (len(self.options) - 1))

    def decode(self, u: float) -> Scalar:
        """Map the unit interval to the nearest option."""
        return self.options[min(max(round(u * (len(self.options) - 1)), 0), len(self.options) - 1)]

    decode_beyond = decode

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


def as_variable(spec: object, field_name: str) -> Variable:
    """Return a variable as it is, or the real number that (lo, hi) describes."""
    if isinstance(spec, Real | Integer | Choice):
        return spec
    if isinstance(spec, np.ndarray):
        spec = spec.tolist()
    if isinstance(spec, tuple | list) and len(spec) == 2:
        if all(isinstance(each, str) for each in spec):
            raise TypeError(f"{field_name} must be (lo, hi), or Choice({list(spec)!r}) for options, got {spec!r}")
        try:
            return Real(spec[0], spec[1])
        except (TypeError, ValueError) as error:
            raise type(error)(f"{field_name}: {error}") from None
    raise TypeError(f"{field_name} must be (lo, hi), Real, Integer or Choice, got {spec!r}")


def variable_from_json(spec: object, field_name: str) -> Variable:
    """Read a variable; the short form [lo, hi] is a real number."""
    if isinstance(spec, Mapping):
        kinds: dict[Any, Any] = {"real": Real, "integer": Integer, "choice": Choice}
        arguments = dict(spec)
        kind = arguments.pop("type", "real")
        if not isinstance(kind, str) or kind not in kinds:
            raise ValueError(f"{field_name}.type must be 'real', 'integer' or 'choice', got {kind!r}")
        try:
            variable: Variable = kinds[kind](**arguments)
            return variable
        except (TypeError, ValueError) as error:
            raise type(error)(f"{field_name}: {error}") from None
    return as_variable(spec, field_name)
