"""Numbers as people read them: in the words of summaries, alarms and pages."""

from __future__ import annotations

from collections.abc import Sequence

DIGITS = 6
MOST_DIGITS = 15
# a plant's pressure in pascal and a cost in millions are written out; what is larger has an exponent
WRITTEN_OUT = 1e12


def shown(value: object, digits: int = DIGITS) -> str:
    """Return a value in words: a float with so many digits, all of them before the point."""
    if not isinstance(value, float):
        return str(value)
    return f"{value:.0f}" if 10.0**digits <= abs(value) < WRITTEN_OUT else f"{value:.{digits}g}"


def shown_apart(values: Sequence[float]) -> list[str]:
    """Return numbers in words, with as many digits as it takes to tell unequal ones apart."""
    for digits in range(DIGITS, MOST_DIGITS):
        words = [shown(float(value), digits) for value in values]
        if len(set(words)) == len(set(values)):
            return words
    return [repr(float(value)) for value in values]


def steps(count: int) -> str:
    """Return so many steps in words."""
    return "1 step" if count == 1 else f"{count} steps"
