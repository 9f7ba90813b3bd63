"""Numbers and verdicts as operators read them."""

import pytest

import pdcbo
from pdcbo.optimizers.summary import missing_bound, verdict_on
from pdcbo.wording import shown, shown_apart, steps


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (147725.49, "147725"),
        (1013254.0, "1013254"),
        (30123456.78, "30123457"),
        (-30123456.78, "-30123457"),
        (0.70416666, "0.704167"),
        (1.5, "1.5"),
        (1e-7, "1e-07"),
        (2e12, "2e+12"),
        (3, "3"),
        ("eco", "eco"),
    ],
)
def test_numbers_are_written_out_at_ordinary_sizes(value, words) -> None:
    assert shown(value) == words


def test_unequal_numbers_look_unequal_and_equal_ones_equal() -> None:
    assert shown_apart([1013254.0, 1013250.0]) == ["1013254", "1013250"]
    assert shown_apart([293.1503, 293.15, 293.15]) == ["293.1503", "293.15", "293.15"]
    assert shown_apart([1.0, 2.0]) == ["1", "2"]
    assert shown_apart([0.1 + 0.2, 0.3]) == ["0.30000000000000004", "0.3"]


def test_one_step_and_many() -> None:
    assert [steps(count) for count in (0, 1, 2)] == ["0 steps", "1 step", "2 steps"]


def test_a_lower_limit_is_not_reached_rather_than_exceeded() -> None:
    tuner = pdcbo.PDCBO(pdcbo.Problem({"u": (0.0, 1.0)}, {}, {"y": pdcbo.Constraint(lower=3.0)}), horizon=20)
    tuner.tell(tuner.ask(), 1.0, {"y": 2.5})
    assert "y: average 2.5, must be at least 3: is not reached so far" in tuner.summary()
    assert [verdict_on(*of) for of in ((True, "lower"), (False, "upper"))] == ["holds", "is exceeded so far"]


def test_a_verdict_on_some_steps_says_so_and_debt_says_what_it_is_made_of() -> None:
    tuner = pdcbo.PDCBO(pdcbo.Problem({"u": (0.0, 1.0)}, {"z": (0.0, 1.0)}, {"e": 1.0}), horizon=40)
    for z, count, value in ((0.1, 3, 1.3), (0.1, 10, None), (0.9, 3, 0.6)):
        for _ in range(count):
            tuner.tell(tuner.ask({"z": z}), 1.0, {"e": value})
    text = tuner.summary()
    assert "must be at most 1: holds in the 6 of 16 steps that were measured" in text
    assert "(with 10 steps as the model expects them): one unit less of e" in text


def test_a_missing_bound_comes_with_a_remedy_that_can_be_followed() -> None:
    assert "noise is not stated" in missing_bound(None, two_sided=False)
    assert "state a worst value" in missing_bound(0.1, two_sided=False)
    assert "two constraints, each with a worst value" in missing_bound(0.1, two_sided=True)
    pdcbo.Problem({"u": (0.0, 1.0)}, {}, {
        "pressure high": pdcbo.Constraint(upper=5.0, noise=0.1, worst=9.0),
        "pressure low": pdcbo.Constraint(lower=3.0, noise=0.1, worst=0.0),
    })  # fmt: skip


def test_a_limit_that_never_changed_is_shown_as_it_was_stated() -> None:
    tuner = pdcbo.PDCBO(pdcbo.Problem({"a": (0.0, 1.0)}, constraints={"g": 0.8}), horizon=20)
    for _ in range(15):
        tuner.tell(tuner.ask(), 1.0, {"g": 0.6})
    assert tuner.summary().data["constraints"]["g"]["limit"] == 0.8
    assert "limit <= 0.8," in repr(tuner)


def test_notes_name_what_nobody_measured_and_what_is_far_from_all_else() -> None:
    tuner = pdcbo.PDCBO(pdcbo.Problem({"a": (0.0, 1.0)}, constraints={"g": 0.8, "h": 1.0}), horizon=20)
    for i in range(12):
        assert tuner.summary().data["notes"] == []
        tuner.tell(tuner.ask(), 0.01 * i, {"g": 0.1 * (i % 4), "h": None})
        if i == 9:
            assert "h: it was not measured in any of 10 steps" in tuner.summary()
            tuner.correct(3, constraints={"h": 0.5})
            tuner.correct(5, constraints={"g": -999.0})
            assert "g: suggestion 5 measured -999, far from all others (0 to 0.3)" in tuner.summary()
            assert "take it back with correct(5, constraints={'g': None})" in tuner.summary()
            tuner.correct(5, constraints={"g": None})


def test_the_one_that_differs_among_equal_ones_is_no_fault() -> None:
    tuner = pdcbo.PDCBO(pdcbo.Problem({"a": (0.0, 1.0)}, constraints={"alarms": 0.5}), horizon=20)
    for i in range(12):
        tuner.tell(tuner.ask(), 1.0 + 0.1 * i, {"alarms": 1.0 if i == 5 else 0.0})
    assert tuner.summary().data["notes"] == []
