"""From what callers pass to plain JSON data."""

from __future__ import annotations

import numbers
from collections.abc import Mapping
from typing import Any

import numpy as np

KEY_LENGTH = 200
REASON_LENGTH = 2000


def as_json(value: Any, field_name: str) -> Any:
    """Return a value with NumPy and other numbers as Python ones, mappings as dicts, sequences as lists.

    Raises:
        TypeError: it holds something that JSON has no word for.
    """
    if value is None or type(value) in (float, bool, int):
        return value
    if isinstance(value, str):
        return in_unicode(str.__str__(value))  # also of an enumeration of strings
    if isinstance(value, Mapping):
        for name in value:
            if not isinstance(name, str):
                raise TypeError(f"{field_name}: a name must be a string, got {name!r}")
        return {name: as_json(v, f"{field_name}[{name!r}]") for name, v in value.items()}
    if isinstance(value, np.generic) or (isinstance(value, np.ndarray) and value.ndim == 0):
        return as_json(value.item(), field_name)
    if isinstance(value, list | tuple):
        return [as_json(v, f"{field_name}[{i}]") for i, v in enumerate(value)]
    if isinstance(value, numbers.Integral):
        return int(value)
    if isinstance(value, numbers.Real):
        return float(value)
    raise TypeError(f"{field_name} must be a number, a string, True, False or None, got {value!r}")


def as_json_values(values: object, field_name: str) -> dict[str, Any] | None:
    """Return named values as plain data, None staying None."""
    if values is None:
        return None
    if not isinstance(values, Mapping):
        raise TypeError(f"{field_name} must be a mapping of names, got {values!r}")
    result: dict[str, Any] = as_json(values, field_name)
    return result


def as_reason(reason: object) -> str:
    """Return a reason, which may be an exception, in words, cut short."""
    if reason is None:
        raise TypeError("reason must be in words, or left out, got None")
    return in_unicode(str(reason))[:REASON_LENGTH]


def as_failure_reason(reason: object) -> str:
    """Return the reason of a failure, which `Optimizer.fail` wants in words."""
    if not isinstance(reason, str):
        raise TypeError(f"reason must be a string, got {reason!r}")
    return as_reason(reason)


def in_unicode(text: str) -> str:
    """Return a text that can be written as UTF-8; half characters, as in undecodable file names, are spelled out."""
    return text.encode("utf-8", "backslashreplace").decode()


def as_key(key: object) -> str | None:
    """Check a client's key: 1 to 200 printable characters."""
    if key is None:
        return None
    if not isinstance(key, str):
        raise TypeError(f"key must be a string, got {key!r}")
    if not key.isprintable() or not 1 <= len(key) <= KEY_LENGTH:
        raise ValueError(f"key must have 1 to {KEY_LENGTH} printable characters, got {key!r}")
    return key
