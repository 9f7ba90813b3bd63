"""Ten thousand generated bad inputs: none gets past validation, none changes state, each error names its field.

Each case takes something valid and spoils one place of it, so that exactly one thing is wrong and its name is known.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any, TypeVar

import numpy as np
import pytest

from pdcbo import PDCBO, Choice, Constraint, Fixed, Integer, Optimizer, Problem, Real

CASES = 10_000
NOT_FINITE = [
    float("nan"),
    float("inf"),
    -float("inf"),
    np.nan,
    np.float32("inf"),
    np.float64("nan"),
    10**400,
    -(10**999),
]
TOO_LARGE = [1e101, -1e300, np.float64(1e150), 10**200]
NOT_NUMBERS = [
    "1", "", "nan", b"1", None, True, np.True_, [], [1.0], (1.0, 2.0), {}, {"x": 1}, 1j, np.array([1.0]),
    np.array([1, 2]), object(), Decimal("1"), lambda: 1, float, np.datetime64("2020-01-01"), Ellipsis,
]  # fmt: skip
NOT_MAPPINGS = [1, "x", [("a", 1.0)], {"a"}, True, np.array([1.0]), (), object()]
BAD_NUMBERS = [(v, ValueError) for v in NOT_FINITE] + [(v, TypeError) for v in NOT_NUMBERS]
BAD_VALUES = [(v, e) for v, e in BAD_NUMBERS if v is not None] + [
    (v, ValueError) for v in TOO_LARGE
]  # None: not measured

PROBLEM = Problem(
    {"feed": (4.0, 7.0), "k": Real(0.1, 10.0, log=True), "n": Integer(1, 5), "mode": Choice(["eco", "fast", 3])},
    {"price": (1.0, 2.0), "crew": Integer(0, 9), "shift": Choice(["day", "night"])},
    {"x_a": 0.12, "flow": Constraint(lower=2.0), "ph": Constraint(lower=6.0, upper=8.0)},
)
PARAMETERS = {"feed": 5.0, "k": 1.0, "n": 2, "mode": "fast"}
CONTEXT = {"price": 1.5, "crew": 3, "shift": "day"}
OUTCOME = {"x_a": 0.1, "flow": 2.5, "ph": 7.0}
NAMES = ["feed2", "Feed", " feed", 3, None, ("feed",), "objectiv", 1.5]

Case = tuple[Callable[[], Any], tuple[type[Exception], ...], str]


T = TypeVar("T")


def pick(rng: np.random.Generator, options: Sequence[T]) -> T:
    return options[int(rng.integers(len(options)))]


def spoil(rng: np.random.Generator, valid: dict[str, Any], kinds: dict[str, Any], group: str) -> tuple[Any, Any, str]:
    """Spoil a mapping: return it, the error to expect and the words that must name the place."""
    how = pick(rng, ["value", "value", "value", "missing", "unknown", "type"])
    if how == "type":
        value = pick(rng, NOT_MAPPINGS)
        return value, TypeError, group
    bad = dict(valid)
    if how == "unknown":
        name = pick(rng, [n for n in NAMES if n not in valid])
        bad[name] = 1.0
        return bad, ValueError, repr(name)
    name = pick(rng, list(valid))
    if how == "missing":
        del bad[name]
        return bad, ValueError, f"{group}[{name!r}]"
    bad[name], error = kinds[name](rng)
    return bad, error, f"{group}[{name!r}]"


def number(rng: np.random.Generator) -> tuple[Any, Any]:
    return pick(rng, BAD_NUMBERS)


def reading(rng: np.random.Generator) -> tuple[Any, Any]:
    return pick(rng, BAD_VALUES)


def whole(rng: np.random.Generator) -> tuple[Any, Any]:
    return pick(rng, [*BAD_NUMBERS, (1.5, ValueError), (np.float32(2.25), ValueError)])


def option(rng: np.random.Generator) -> tuple[Any, Any]:
    return pick(
        rng,
        [("Eco", ValueError), (7, ValueError), (True, ValueError), (float("nan"), ValueError), (None, TypeError),
         ([], TypeError), ({}, TypeError), (b"eco", TypeError), (np.array(["eco"]), TypeError), (1j, TypeError)],
    )  # fmt: skip


def outside(bad: Callable[[np.random.Generator], tuple[Any, Any]], *values: Any) -> Any:
    return lambda rng: pick(rng, [(v, ValueError) for v in values]) if rng.random() < 0.3 else bad(rng)


IN_PARAMETERS = {
    "feed": outside(number, 3.99, 7.01, -1e9, 1e60),
    "k": outside(number, 0.0, -1.0, 0.0999, 11.0),
    "n": outside(whole, 0, 6, -(2**70)),
    "mode": option,
}
IN_CONTEXT = {"price": outside(number, 1e60, -1e99), "crew": whole, "shift": option}
IN_OUTCOME = dict.fromkeys(OUTCOME, reading)


def definition(rng: np.random.Generator, tuner: Optimizer) -> Case:
    """A malformed problem."""
    group = pick(rng, ["parameters", "context", "constraints"])
    valid: dict[str, Any] = {"parameters": {"a": (0.0, 1.0)}, "context": {"z": (0.0, 1.0)}, "constraints": {"g": 1.0}}
    name = {"parameters": "a", "context": "z", "constraints": "g"}[group]
    how = pick(rng, ["value", "value", "name", "type", "twice"])
    errors: tuple[type[Exception], ...] = (TypeError, ValueError)
    if how == "type":
        return lambda: Problem(**{**valid, group: pick(rng, NOT_MAPPINGS)}), (TypeError,), group
    if how == "name":
        bad = pick(rng, ["", "  ", 3, None, ("a",), 1.5, True, b"a"])
        return (
            lambda: Problem(**{**valid, group: {bad: valid[group][name]}}),
            (ValueError if isinstance(bad, str) else TypeError,),
            group,
        )
    if how == "twice":
        taken = pick(rng, [n for n in ("a", "z", "g", "objective") if n != name])
        return (
            lambda: Problem(**{**valid, group: {name: valid[group][name], taken: valid[group][name]}}),
            (ValueError,),
            taken,
        )
    if group == "constraints":
        bad, error = reading(rng)
        return lambda: Problem(**{**valid, group: {name: bad}}), (error,), f"{group}[{name!r}]"
    value, error = number(rng)
    specs: list[Any] = [
        (value, 1.0), (0.0, value), [0.0, value], (1.0, 1.0), (2.0, 1.0), (0.0,), (0.0, 1.0, 2.0), 3.0, "01",
        (-1e308, 1e308),
    ]  # fmt: skip
    spec = pick(rng, specs)
    return lambda: Problem(**{**valid, group: {name: spec}}), errors, f"{group}[{name!r}]"


def variable(rng: np.random.Generator, tuner: Optimizer) -> Case:
    """A malformed variable or constraint by itself; the field is its argument."""
    value, error = number(rng)
    reading_value, reading_error = reading(rng)
    cases: list[Case] = [
        (lambda: Real(value, 1.0), (error,), "lo"),
        (lambda: Real(0.0, value), (error,), "hi"),
        (lambda: Real(2.0, 1.0), (ValueError,), "lo"),
        (lambda: Real(-1.0, 1.0, log=True), (ValueError,), "lo"),
        (lambda: Real(0.0, 1.0, log=1), (TypeError,), "log"),
        (lambda: Integer(value, 3), (error,), "lo"),
        (lambda: Integer(1, 2.5), (ValueError,), "hi"),
        (lambda: Integer(3, 3), (ValueError,), "lo"),
        (lambda: Choice(pick(rng, ["ab", 3, None, {"a": 1}, object()])), (TypeError,), "Choice"),
        (lambda: Choice([1]), (ValueError,), "Choice"),
        (lambda: Choice(["a", "a"]), (ValueError,), "Choice"),
        (lambda: Choice(["a", pick(rng, [None, [], float("nan"), 1j])]), (TypeError, ValueError), "Choice"),
        (lambda: Constraint(), (ValueError,), "Constraint"),
        (lambda: Constraint(upper=reading_value), (reading_error,), "upper"),
        (lambda: Constraint(lower=reading_value), (reading_error,), "lower"),
        (lambda: Constraint(upper=1.0, noise=reading_value), (reading_error,), "noise"),
        (lambda: Constraint(upper=1.0, noise=pick(rng, [0.0, -1.0])), (ValueError,), "noise"),
        (lambda: Constraint(upper=1.0, worst=reading_value), (reading_error,), "worst"),
        (lambda: Constraint(upper=1.0, lower=2.0), (ValueError,), "lower"),
    ]
    return pick(rng, cases)


def ask(rng: np.random.Generator, tuner: Optimizer) -> Case:
    bad, error, words = spoil(rng, CONTEXT, IN_CONTEXT, "context")
    return lambda: tuner.ask(bad), (error,), words


def tell(rng: np.random.Generator, tuner: Optimizer) -> Case:
    i = pick(rng, [s.id for s in tuner.pending])
    if rng.random() < 0.3:
        value, error = reading(rng)
        return lambda: tuner.tell(i, value, OUTCOME), (error,), "objective"
    bad, error, words = spoil(rng, OUTCOME, IN_OUTCOME, "constraints")
    if bad is None:
        return tell(rng, tuner)
    return lambda: tuner.tell(i, 1.0, bad), (error,), words


def applied(rng: np.random.Generator, tuner: Optimizer) -> Case:
    i = pick(rng, [s.id for s in tuner.pending])
    group, valid, kinds = pick(rng, [("applied", PARAMETERS, IN_PARAMETERS), ("context", CONTEXT, IN_CONTEXT)])
    bad, error, words = spoil(rng, valid, kinds, group)
    while isinstance(bad, dict) and set(bad) < set(valid):  # what is not named is as proposed: no error
        bad, error, words = spoil(rng, valid, kinds, group)
    return lambda: tuner.tell(i, 1.0, OUTCOME, **{group: bad}), (error,), words


def identity(rng: np.random.Generator, tuner: Optimizer) -> Case:
    unknown = pick(rng, [0, -1, 10**9, 2**80, np.int64(77777)])
    wrong = pick(rng, ["1", 1.0, None, True, [1], {"id": 1}, np.float64(1.0), b"1", PARAMETERS])
    i, errors = pick(rng, [(unknown, (ValueError,)), (wrong, (TypeError,))])
    calls: list[Callable[[], Any]] = [
        lambda: tuner.tell(i, 1.0, OUTCOME),
        lambda: tuner.fail(i, "x"),
        lambda: tuner.correct(i, objective=2.0),
    ]
    return pick(rng, calls), errors, "suggestion"


def settled(rng: np.random.Generator, tuner: Optimizer) -> Case:
    """A second, different message for a step that was settled."""
    done = [s for s in tuner.ledger.steps.values() if s.status != "pending"]
    i = pick(rng, done).suggestion.id
    calls: list[Callable[[], Any]] = [
        lambda: tuner.tell(i, 1.0 + rng.random(), OUTCOME),
        lambda: tuner.tell(i, None, {**OUTCOME, "ph": rng.random()}),
        lambda: tuner.fail(i, "another reason"),
        lambda: tuner.fail(i, "another reason", applied=False),
    ]
    return pick(rng, calls), (ValueError,), f"suggestion {i}"


def failure(rng: np.random.Generator, tuner: Optimizer) -> Case:
    i = pick(rng, [s.id for s in tuner.pending])
    if rng.random() < 0.5:
        return lambda: tuner.fail(i, pick(rng, [1, None, b"x", ["x"], object()])), (TypeError,), "reason"
    return lambda: tuner.fail(i, "x", applied=pick(rng, [1, None, "yes", 0.0, []])), (TypeError,), "applied"


def correction(rng: np.random.Generator, tuner: Optimizer) -> Case:
    i = pick(rng, tuner.ledger.counted)
    if rng.random() < 0.2:
        return lambda: tuner.correct(pick(rng, tuner.pending), objective=1.0), (ValueError,), "suggestion"
    if rng.random() < 0.3:
        value, error = reading(rng)
        return lambda: tuner.correct(i, objective=value), (error,), "objective"
    bad, error, words = spoil(rng, OUTCOME, IN_OUTCOME, "constraints")
    while isinstance(bad, dict) and set(bad) < set(OUTCOME):  # what is not named stays: no error
        bad, error, words = spoil(rng, OUTCOME, IN_OUTCOME, "constraints")
    return lambda: tuner.correct(i, constraints=bad), (error,), words


def table(rng: np.random.Generator, tuner: Optimizer) -> Case:
    good = {**PARAMETERS, **CONTEXT, "objective": 1.0, **OUTCOME}
    nested: dict[str, Any] = {"parameters": PARAMETERS, "context": CONTEXT, "objective": 1.0, "constraints": OUTCOME}
    how = pick(rng, ["parameters", "context", "constraints", "objective", "column", "nothing", "row", "table"])
    if how == "table":
        return lambda: tuner.observe_table(pick(rng, [3, None, "rows", good, 1.5])), (TypeError,), "rows"
    bad: Any
    errors: tuple[type[Exception], ...]
    if how == "row":
        bad, errors, words = pick(rng, [1, "x", None, [1.0], 2.5]), (TypeError,), "rows[1]"
    elif how == "nothing":
        bad, errors, words = {**PARAMETERS, **CONTEXT}, (ValueError,), "objective"
    elif how == "objective":
        value, error = reading(rng)
        bad, errors, words = (
            pick(rng, [{**good, "objective": value}, {**nested, "objective": value}]),
            (error,),
            "objective",
        )
    elif how == "column":
        name = pick(rng, NAMES)
        bad, errors, words = pick(rng, [{**good, name: 1.0}, {**nested, name: 1.0}]), (ValueError,), repr(name)
    else:
        valid, kinds = {
            "parameters": (PARAMETERS, IN_PARAMETERS),
            "context": (CONTEXT, IN_CONTEXT),
            "constraints": (OUTCOME, IN_OUTCOME),
        }[how]  # fmt: skip
        bad_group, error, words = spoil(rng, valid, kinds, how)
        while isinstance(bad_group, dict) and set(bad_group) < set(valid) and how == "constraints":
            bad_group, error, words = spoil(rng, valid, kinds, how)
        bad, errors = {**nested, how: bad_group}, (error,)
        if how == "parameters" and not isinstance(bad_group, dict):
            errors = (TypeError, ValueError)  # a row without a mapping of parameters is read as a flat one
        if rng.random() < 0.3 and how != "parameters":
            arguments = {k: v for k, v in bad.items() if k not in ("parameters", "context")}
            return lambda: tuner.observe(PARAMETERS, bad["context"], **arguments), errors, words
    return lambda: tuner.observe_table([good, bad, good]), errors, words


def limits(rng: np.random.Generator, tuner: Optimizer) -> Case:
    value, error = pick(rng, [(v, e) for v, e in [*BAD_VALUES, (None, TypeError)]])
    cases: list[Case] = [
        (lambda: tuner.set_limits({"x_a": value}), (error,), "limits['x_a']"),
        (lambda: tuner.set_limits({"flow": 1.0, "x_a": value}), (error,), "limits['x_a']"),
        (lambda: tuner.set_limits({pick(rng, NAMES): 1.0}), (ValueError,), "limits["),
        (lambda: tuner.set_limits({"ph": 7.0}), (ValueError,), "limits['ph']"),
        (lambda: tuner.set_limits({"x_a": Constraint(lower=1.0)}), (ValueError,), "limits['x_a']"),
        (lambda: tuner.set_limits({"ph": Constraint(upper=1.0)}), (ValueError,), "limits['ph']"),
        (lambda: tuner.set_limits(pick(rng, NOT_MAPPINGS)), (TypeError,), "limits"),
    ]
    return pick(rng, cases)


MAKERS = [definition, variable, ask, tell, applied, identity, settled, failure, correction, table, limits]


def prepared(kind: str) -> Optimizer:
    """A tuner in the middle of its life: told, failed, corrected and pending steps, past data."""
    tuner: Optimizer = PDCBO(PROBLEM, horizon=20, candidates=2) if kind == "pdcbo" else Fixed(PROBLEM)
    for i in range(8):
        s = tuner.ask(CONTEXT)
        if i < 3:
            tuner.tell(s, 1.0 + i, {**OUTCOME, "flow": None if i == 1 else 2.0})
        elif i == 3:
            tuner.fail(s, "analyser offline")
        elif i == 4:
            tuner.fail(s, "never ran", applied=False)
    tuner.correct(1, objective=0.5)
    tuner.observe(PARAMETERS, CONTEXT, objective=2.0)
    return tuner


@pytest.mark.parametrize("maker", MAKERS, ids=lambda m: m.__name__)
def test_bad_input_is_refused_and_changes_nothing(maker: Callable[[np.random.Generator, Optimizer], Case]) -> None:
    tuner = prepared("pdcbo" if maker in (tell, correction, table) else "fixed")
    before = json.dumps(tuner.state(), allow_nan=False)
    rng = np.random.default_rng([9, MAKERS.index(maker)])
    for i in range(-(-CASES // len(MAKERS))):
        call, errors, words = maker(rng, tuner)
        with pytest.raises(errors) as caught:  # noqa: PT012
            call()
            pytest.fail(f"case {i} of {maker.__name__} got past validation; expected {errors} about {words}")
        assert words in str(caught.value), (i, words, str(caught.value))
        assert json.dumps(tuner.state(), allow_nan=False) == before, f"case {i} changed the state"
