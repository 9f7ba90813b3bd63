"""The problem: units to the unit cube and back, what is legal, and how errors read."""

from __future__ import annotations

import json
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdcbo import Choice, Constraint, Integer, Problem, Real

PROBLEM = Problem(
    parameters={"gain": Real(1e-3, 10.0, log=True), "steps": Integer(2, 9), "mode": Choice(["eco", "fast", 3, True])},
    context={"load": (0.0, 50.0), "shift": Choice(["day", "night"]), "crew": Integer(1, 5)},
    constraints={"heat": 80.0, "flow": Constraint(lower=2.0), "ph": Constraint(lower=6.5, upper=7.5, noise=0.1)},
)


def test_limits_are_signed_rows_of_measured_quantities() -> None:
    labels = [(limit.label, limit.output, limit.sign, limit.bound) for limit in PROBLEM.limits]
    assert labels == [("heat", 1, 1, 80.0), ("flow", 2, -1, 2.0), ("ph.upper", 3, 1, 7.5), ("ph.lower", 3, -1, 6.5)]
    assert [limit.value(7.0) for limit in PROBLEM.limits] == [-73.0, -5.0, -0.5, -0.5]
    assert PROBLEM.outputs == ("objective", "heat", "flow", "ph")


def test_worst_values_become_the_largest_g() -> None:
    problem = Problem(
        {"a": (0, 1)}, {}, {"u": Constraint(upper=1.0, worst=3.0), "l": Constraint(lower=1.0, worst=-1.0)}
    )
    assert [limit.worst for limit in problem.limits] == [2.0, 2.0]
    with pytest.raises(ValueError, match=r"worst must lie on the far side of the limit 1\.0, got 0\.5"):
        Constraint(upper=1.0, worst=0.5)
    with pytest.raises(ValueError, match="one-sided"):
        Constraint(upper=1.0, lower=0.0, worst=3.0)


@given(st.floats(1e-3, 10.0), st.integers(2, 9), st.sampled_from(["eco", "fast", 3, True]))
def test_parameters_survive_the_unit_cube(gain: float, steps: int, mode: object) -> None:
    theta = PROBLEM.encode_parameters({"mode": mode, "gain": gain, "steps": steps})
    assert ((theta >= 0) & (theta <= 1)).all()
    back = PROBLEM.decode_parameters(theta)
    assert back["gain"] == pytest.approx(gain, rel=1e-12)
    assert back["steps"] == steps
    assert type(back["steps"]) is int
    assert back["mode"] == mode
    assert type(back["mode"]) is type(mode)
    assert (PROBLEM.snap(theta) == theta).all()


@given(st.lists(st.floats(-1.0, 2.0), min_size=3, max_size=3))
def test_whatever_is_decoded_is_legal(u: list[float]) -> None:
    parameters = PROBLEM.decode_parameters(PROBLEM.snap(np.array(u)))
    PROBLEM.encode_parameters(parameters)
    assert 1e-3 <= parameters["gain"] <= 10.0


def test_what_lies_beyond_the_cube_is_put_on_its_edge() -> None:
    mixed = Problem({"a": (0.0, 1.0), "n": Integer(0, 4)})
    np.testing.assert_array_equal(mixed.snap(np.array([[-0.2, 1.3], [1.7, -0.4]])), [[0.0, 1.0], [1.0, 0.0]])


@given(
    st.floats(-1e300, 1e300).filter(lambda v: abs(v) < 1e300),
    st.floats(1e-300, 1e300),
    st.floats(0.0, 1.0),
)
def test_ranges_of_any_size(lo: float, width: float, u: float) -> None:
    hi = lo + width
    if not lo < hi:
        return
    real = Real(lo, hi)
    assert real.decode(0.0) == lo
    assert real.decode(1.0) == hi
    assert lo <= real.decode(u) <= hi
    assert real.encode(hi, "x") == 1.0
    assert real.encode(lo, "x") == 0.0


def test_log_scale_halves_ratios() -> None:
    assert Real(1.0, 100.0, log=True).decode(0.5) == pytest.approx(10.0)
    assert Real(1.0, 100.0, log=True).encode(10.0, "x") == pytest.approx(0.5)
    with pytest.raises(ValueError, match="log-scaled range needs lo > 0"):
        Real(0.0, 1.0, log=True)


def test_a_context_beyond_its_range_is_encoded_beyond_the_cube_and_named() -> None:
    context = {"load": 75.0, "shift": "night", "crew": 0}
    assert PROBLEM.encode_context(context).tolist() == [1.5, 1.0, -0.25]
    assert PROBLEM.outside(context) == ("load", "crew")
    assert PROBLEM.outside({"load": 50.0, "shift": "day", "crew": 5}) == ()


def test_true_one_and_its_name_are_three_options() -> None:
    choice = Choice([True, 1, "1", 2.5])
    assert [choice.encode(v, "x") for v in (True, 1, "1", 2.5, 1.0)] == [0.0, 1 / 3, 2 / 3, 1.0, 1 / 3]
    with pytest.raises(ValueError, match="must differ"):
        Choice([1, 1.0])


@pytest.mark.parametrize(
    "number", [np.float32(0.5), np.float64(0.5), np.array(0.5), Fraction(1, 2), np.longdouble(0.5)]
)
def test_numbers_of_every_kind_are_welcome(number: object) -> None:
    problem = Problem(
        {"a": (0, np.int64(1)), "c": Choice(np.array([1, 2]))}, {"z": np.array([0.0, 1.0])}, {"g": number}
    )
    theta = problem.encode_parameters({"a": number, "c": np.int32(2)})
    assert theta.tolist() == [0.5, 1.0]
    assert problem.encode_context({"z": number}).tolist() == [0.5]
    assert problem.encode_outcome(number, {"g": np.int8(3)}).tolist() == [0.5, 3.0]
    plain = problem.plain_context({"z": number})
    assert plain == {"z": 0.5}
    assert type(plain["z"]) is float
    assert problem.limits[0].bound == 0.5
    assert Integer(np.int16(1), 4.0).encode(np.uint8(4), "x") == 1.0
    json.dumps(problem.to_json(), allow_nan=False)


def test_not_measured_is_nan_and_nothing_else() -> None:
    y = PROBLEM.encode_outcome(None, {"heat": 3, "flow": None, "ph": 7})
    assert math.isnan(y[0])
    assert math.isnan(y[2])
    assert y[[1, 3]].tolist() == [3.0, 7.0]


def test_empty_context_and_constraints_are_legal() -> None:
    problem = Problem(parameters={"a": (0, 1)}, context={}, constraints={})
    assert problem.encode_context({}).shape == problem.encode_context(None).shape == (0,)
    assert problem.encode_outcome(1.0, {}).tolist() == problem.encode_outcome(1.0, None).tolist() == [1.0]
    assert problem.limits == ()


def test_json_round_trip() -> None:
    assert Problem.from_json(json.loads(json.dumps(PROBLEM.to_json(), allow_nan=False))) == PROBLEM
    short = Problem.from_json({"parameters": {"a": [0, 1]}, "constraints": {"g": 0.5}})
    assert short == Problem({"a": (0, 1)}, {}, {"g": 0.5})


def test_limits_can_change_and_the_rest_stays() -> None:
    changed = PROBLEM.with_limits({"heat": np.float32(70), "flow": 3.0, "ph": Constraint(lower=6.0, upper=8.0)})
    assert [limit.bound for limit in changed.limits] == [70.0, 3.0, 8.0, 6.0]
    assert PROBLEM.limits[0].bound == 80.0
    assert changed.parameters == PROBLEM.parameters


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"parameters": {}}, ValueError, "parameters must name at least one"),
        ({"parameters": {"a": (1, 0)}}, ValueError, r"parameters\['a'\]: a range needs lo < hi .*\(1.0, 0.0\)"),
        ({"parameters": {"a": (0, math.nan)}}, ValueError, r"parameters\['a'\]: hi must be a finite number, got nan"),
        ({"parameters": {"a": (0, "1")}}, TypeError, r"parameters\['a'\]: hi must be a number, got '1'"),
        ({"parameters": {"a": (0, 1, 2)}}, TypeError, r"parameters\['a'\] must be \(lo, hi\), Real, Integer or Choice"),
        ({"parameters": {"a": 3}}, TypeError, r"parameters\['a'\] must be"),
        ({"parameters": [("a", (0, 1))]}, TypeError, "parameters must be a mapping"),
        ({"parameters": {"": (0, 1)}}, ValueError, "parameters: a name must not be empty, got ''"),
        ({"parameters": {3: (0, 1)}}, TypeError, "parameters: a name must be a string, got 3"),
        ({"context": {"a": (0, 1)}}, ValueError, r"context\['a'\]: the name is taken by parameters"),
        ({"constraints": {"a": 1}}, ValueError, r"constraints\['a'\]: the name is taken by parameters"),
        (
            {"constraints": {"objective": 1}},
            ValueError,
            r"constraints\['objective'\]: the name is taken by the objective",
        ),
        (
            {"constraints": {"g": Constraint(upper=1.0, lower=0.0), "g.upper": 5.0}},
            ValueError,
            r"constraints\['g.upper'\]: the name is taken by a limit of 'g'",
        ),
        ({"constraints": {"g": math.inf}}, ValueError, r"constraints\['g'\] must be a finite number, got inf"),
        ({"constraints": {"g": "low"}}, TypeError, r"constraints\['g'\] must be a number \(its upper limit\)"),
        ({"constraints": {"g": True}}, TypeError, r"constraints\['g'\] must be a number"),
    ],
)
def test_malformed_definitions_name_field_value_and_remedy(arguments: dict, error: type, words: str) -> None:
    with pytest.raises(error, match=words):
        Problem(**{"parameters": {"a": (0, 1)}, **arguments})


@pytest.mark.parametrize(
    ("context", "error", "words"),
    [
        ({"load": 1.0, "shift": "day"}, ValueError, r"context\['crew'\] is missing"),
        ({"load": 1.0, "shift": "day", "crew": 1, "x": 2}, ValueError, r"context\['x'\] is unknown; there are"),
        (
            {"load": math.nan, "shift": "day", "crew": 1},
            ValueError,
            r"context\['load'\] must be a finite number, got nan",
        ),
        ({"load": 10**400, "shift": "day", "crew": 1}, ValueError, r"context\['load'\] must be a finite number"),
        ({"load": 1e99, "shift": "day", "crew": 1}, ValueError, r"context\['load'\] is too far outside its range"),
        ({"load": "1", "shift": "day", "crew": 1}, TypeError, r"context\['load'\] must be a number, got '1'"),
        ({"load": True, "shift": "day", "crew": 1}, TypeError, r"context\['load'\] must be a number, got True"),
        ({"load": [1.0], "shift": "day", "crew": 1}, TypeError, r"context\['load'\] must be a number"),
        (
            {"load": 1.0, "shift": "noon", "crew": 1},
            ValueError,
            r"context\['shift'\] must be one of \['day', 'night'\]",
        ),
        ({"load": 1.0, "shift": None, "crew": 1}, TypeError, r"context\['shift'\] must be one of"),
        ({"load": 1.0, "shift": "day", "crew": 1.5}, ValueError, r"context\['crew'\] must be a whole number, got 1.5"),
        ([1.0, "day", 1], TypeError, "context must be a mapping of names"),
        (None, ValueError, r"context\['load'\] is missing"),
    ],
)
def test_malformed_contexts(context: object, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        PROBLEM.encode_context(context)


def test_parameters_outside_their_range_are_refused() -> None:
    with pytest.raises(ValueError, match=r"parameters\['steps'\] must lie in \[2, 9\], got 10"):
        PROBLEM.encode_parameters({"gain": 1.0, "steps": 10, "mode": "eco"})
    with pytest.raises(ValueError, match=r"parameters\['gain'\] is log-scaled and must be above 0, got -1.0"):
        PROBLEM.encode_parameters({"gain": -1.0, "steps": 3, "mode": "eco"})
