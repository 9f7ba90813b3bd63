"""What stands between a suggestion and the plant: bounds, rate limits, a fallback, known-good parameters.

A guard never changes what was learned. It replaces parameters before they are proposed, and says so in words:

    bounds       a narrower range for a parameter than the problem states (a choice: the options allowed)
    max_change   the largest change of a parameter against what was applied last (an integer or a real number)
    fallback     the parameters proposed when the deadline for `ask` passes or the model cannot be formed
    deadline     seconds that `ask` may take

The rate limit is against what the plant may be running now: the newest parameters reported as applied, and those of
later suggestions still pending, since they may have been applied; before any, the `start` parameters. A new `start`,
put in force later on, says where the plant stands by then, whatever was suggested before. Where one value is not within
reach of all of them, the newest counts. What an operator's order proposes (known-good parameters, the fallback) goes
through the same bounds and rate limits: a plant that must not jump must not jump to its fallback either.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pdcbo.problem import Choice, Integer, Problem, Real, Scalar, Variable, as_number, as_positive
from pdcbo.wording import shown


@dataclass(frozen=True)
class Guards:
    """The guards of a study, in plant units; see the module.

    Raises:
        TypeError, ValueError: a guard is malformed; `check` also holds it against the problem.
    """

    max_change: Mapping[str, float] = field(default_factory=dict)
    bounds: Mapping[str, tuple[float, float] | list[Scalar]] = field(default_factory=dict)
    fallback: Mapping[str, Scalar] | None = None
    start: Mapping[str, Scalar] | None = None
    deadline: float | None = None

    def check(self, problem: Problem) -> Guards:
        """Return the guards in their plain form, after holding them against the problem.

        Raises:
            TypeError, ValueError: a name is unknown, a value malformed, or the fallback outside the bounds.
        """
        for group in ("max_change", "bounds"):
            given = getattr(self, group)
            if not isinstance(given, Mapping):
                raise TypeError(f"guards.{group} must be a mapping of parameter names, got {given!r}")
            for name in given:
                if name not in problem.parameters:
                    raise ValueError(f"guards.{group}[{name!r}] is unknown; there are {list(problem.parameters)!r}")
        max_change = {}
        for name, change in self.max_change.items():
            if isinstance(problem.parameters[name], Choice):
                raise ValueError(f"guards.max_change[{name!r}]: a choice has no distance; use bounds")
            max_change[name] = as_positive(change, f"guards.max_change[{name!r}]")
            if isinstance(problem.parameters[name], Integer) and max_change[name] < 1.0:
                raise ValueError(f"guards.max_change[{name!r}] of an integer must be at least 1, got {change!r}")
        bounds = {name: _bound(problem, name, given) for name, given in self.bounds.items()}
        plain = Guards(
            max_change,
            bounds,
            _parameters(problem, self.fallback, "guards.fallback"),
            _parameters(problem, self.start, "guards.start"),
            None if self.deadline is None else as_positive(self.deadline, "guards.deadline"),
        )
        for label in ("fallback", "start"):
            plain.admit(problem, getattr(plain, label) or {}, f"guards.{label}")
        if plain.deadline is not None and plain.fallback is None:
            raise ValueError(
                f"guards.deadline = {plain.deadline:g} needs guards.fallback, what to propose when it passes"
            )
        return plain

    def admit(self, problem: Problem, parameters: Mapping[str, Scalar], label: str) -> None:
        """Refuse parameters outside the bounds; errors speak of `label`."""
        for name, value in parameters.items():
            bound = self.bounds.get(name)
            if not _inside(problem.parameters[name], value, bound):
                raise ValueError(f"{label}[{name!r}] must lie in its bounds {bound!r}, got {value!r}")

    def apply(
        self, problem: Problem, parameters: Mapping[str, Scalar], running: Sequence[Mapping[str, Scalar]]
    ) -> tuple[dict[str, Scalar], list[str]]:
        """Return the parameters that may be proposed, and in words what was changed and why.

        Args:
            problem: names the parameters.
            parameters: what the optimizer would propose.
            running: the parameters that the plant may be running now, the newest last.
        """
        if not running and self.start is not None:
            running = [self.start]
        last = running[-1] if running else None
        result, words = dict(parameters), []
        for name, variable in problem.parameters.items():
            wanted = allowed = parameters[name]
            bound = self.bounds.get(name)
            if not _inside(variable, allowed, bound):
                assert bound is not None
                if isinstance(variable, Choice):
                    allowed = last[name] if last is not None and _inside(variable, last[name], bound) else bound[0]
                else:
                    allowed = min(max(allowed, bound[0]), bound[1])
                words.append(f"{name}: {shown(wanted)} is outside its bounds, {shown(allowed)} instead")
            change = self.max_change.get(name)
            if change is not None and running:
                reached = _reach(variable, [r[name] for r in running], allowed, change)
                if reached != allowed:
                    allowed = reached
                    words.append(
                        f"{name}: {shown(wanted)} is more than {change:g} away from what is running, "
                        f"{shown(allowed)} instead"
                    )
            result[name] = allowed
        return result, words

    def to_json(self) -> dict[str, Any]:
        """Describe the guards in JSON."""
        return {
            "max_change": dict(self.max_change),
            "bounds": {name: list(bound) for name, bound in self.bounds.items()},
            "fallback": None if self.fallback is None else dict(self.fallback),
            "start": None if self.start is None else dict(self.start),
            "deadline": self.deadline,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any] | None) -> Guards:
        """Read what `to_json` wrote; what is not named is absent."""
        if data is not None and not isinstance(data, Mapping):
            raise TypeError(f"guards must be Guards or a mapping, got {data!r}")
        unknown = set(data or {}) - set(cls.__dataclass_fields__)
        if unknown:
            raise ValueError(f"guards: unknown {sorted(unknown)!r}; there are {list(cls.__dataclass_fields__)!r}")
        return cls(**{k: v for k, v in (data or {}).items() if v is not None})


def _parameters(problem: Problem, given: Mapping[str, Scalar] | None, label: str) -> dict[str, Scalar] | None:
    if given is None:
        return None
    try:
        problem.encode_parameters(given)
    except (TypeError, ValueError) as error:
        raise type(error)(f"{label}: {error}") from None
    return problem.plain_parameters(given)


def _bound(problem: Problem, name: str, given: Any) -> tuple[Any, ...]:
    variable, label = problem.parameters[name], f"guards.bounds[{name!r}]"
    if not isinstance(given, tuple | list) or not given:
        raise TypeError(f"{label} must be (lo, hi), or a list of options for a choice, got {given!r}")
    if isinstance(variable, Choice):
        return tuple(variable.options[round(variable.encode(v, label) * (variable.levels - 1))] for v in given)
    if len(given) != 2:
        raise ValueError(f"{label} must be (lo, hi), got {given!r}")
    lo, hi = as_number(given[0], label), as_number(given[1], label)
    if isinstance(variable, Integer):
        lo, hi = math.ceil(lo), math.floor(hi)
    if not variable.lo <= lo <= hi <= variable.hi:
        raise ValueError(f"{label} must be (lo, hi) within [{variable.lo!r}, {variable.hi!r}], got {given!r}")
    return (lo, hi)


def _inside(variable: Variable, value: Any, bound: Any) -> bool:
    if bound is None:
        return True
    if isinstance(variable, Choice):
        place = variable.encode(value, "value")
        return any(variable.encode(option, "option") == place for option in bound)
    return bool(bound[0] <= value <= bound[1])


def _towards(variable: Real | Integer, last: Any, wanted: Any, change: float) -> Any:
    """Return the value nearest to `wanted` within `change` of `last`, rounding never exceeding it."""
    if isinstance(variable, Integer):
        step = math.floor(change)
        return min(max(wanted, last - step), last + step)
    value = min(max(wanted, last - change), last + change)
    while abs(value - last) > change:
        value = math.nextafter(value, last)
    return min(max(value, variable.lo), variable.hi)


def _reach(variable: Real | Integer, running: list[Any], wanted: Any, change: float) -> Any:
    """Return the value nearest to `wanted` within `change` of all that may be running, or else of the newest."""
    value = wanted
    for _ in range(2):  # the second time for what the first lost by rounding
        for near in (min(running), max(running)):
            value = _towards(variable, near, value, change)
    if any(abs(value - near) > change for near in running):
        return _towards(variable, running[-1], wanted, change)
    return value
