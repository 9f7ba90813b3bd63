"""Algorithm 1: a dual trace by hand, settings, endless operation and the doubling trick, what an operator reads."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pdcbo import OPTIMIZERS, PDCBO, Choice, Constraint, Integer, Model, Problem, Real, run
from pdcbo.optimizers.adaptive import AdaptiveSetting
from pdcbo.optimizers.planning import spread_out, worst_end
from pdcbo.plants.base import Outcome
from pdcbo.problem import Array

# Two options at distance 1 with length scale 0.1 are independent: exp(-50) is nothing. With variance 1 and noise 1,
# n readings with average y and prior mean m give mean m + n/(n+1) (y - m) and variance 1/(n+1).
TWO = Problem({"mode": Choice(["A", "B"])}, {}, {"g": 0.0})
UNIT = Model(length_scales=0.1, variance=1.0, noise_var=1.0)
READINGS = [(-2.0, 3.0), (-1.0, 2.0), (0.5, -4.0)]


def trace(
    problem: Problem = TWO, readings: list[tuple[float, float]] = READINGS, **arguments: object
) -> tuple[list[str], list[float]]:
    tuner = PDCBO(problem, horizon=3, setting="paper", models=UNIT, **arguments)
    chosen, queue = [], []
    for f, g in readings:
        s = tuner.ask()
        chosen.append(str(s.parameters["mode"]))
        tuner.tell(s, f, {"g": g})
        queue.append(float(tuner.queue[0]))
    return chosen, queue


def test_dual_trace_of_three_steps_by_hand() -> None:
    """The paper's constants: eta = 1, epsilon = 0, lambda_1 = 0, beta^(1/2) = 1.

    t = 1: nothing is known, f_ = -1 and g_ = 0 - 1 = -1 for both: the first, A. lambda_2 = [0 - 1]+ = 0.
           Read f = -2, g = 3: at A, f ~ (-1, 1/2), g ~ (1.5, 1/2).
    t = 2: f_(A) = -1 - 0.707107 = -1.707107 < f_(B) = -1: A. g_(A) = 1.5 - 0.707107 = 0.792893.
           lambda_3 = [0 + 0.792893]+ = 0.792893.
           Read f = -1, g = 2: at A, f ~ (2/3 * -1.5, 1/3) = (-1, 1/3), g ~ (2/3 * 2.5, 1/3) = (1.666667, 1/3).
    t = 3: A: f_ = -1 - 0.577350 = -1.577350, g_ = 1.666667 - 0.577350 = 1.089316,
              f_ + lambda g_ = -1.577350 + 0.792893 * 1.089316 = -0.713639.
           B: -1 + 0.792893 * -1 = -1.792893, less: B. lambda_4 = [0.792893 - 1]+ = 0.
    """
    chosen, queue = trace()
    assert chosen == ["A", "A", "B"]
    assert queue == pytest.approx([0.0, 0.792893, 0.0], abs=1e-6)


def test_dual_trace_with_slack_and_initial_queue_by_hand() -> None:
    """epsilon = 0.25: lambda_2 = [0 - 0.75]+ = 0, lambda_3 = 0.792893 + 0.25, lambda_4 = 1.042893 - 1 + 0.25.

    With lambda_1 = 2 and eta = 0.5: lambda_2 = [2 - 1]+ = 1. t = 2: price 0.5, A: -1.707107 + 0.5 * 0.792893 =
    -1.310660, B: -1 - 0.5 = -1.5: B, lambda_3 = 0. B reads f = -1, g = 2: f ~ (-0.5, 1/2). t = 3: price 0,
    f_(A) = -1.707107, f_(B) = -1.207107: A, and lambda_4 = 0.792893.
    """
    assert trace(slack=0.25)[1] == pytest.approx([0.0, 1.042893, 0.292893], abs=1e-6)
    chosen, queue = trace(initial_queue=2.0, eta=0.5)
    assert chosen == ["A", "B", "A"]
    assert queue == pytest.approx([1.0, 0.0, 0.792893], abs=1e-6)


def test_dual_trace_of_a_lower_limit_is_its_mirror() -> None:
    """y >= 0 on average with y = -g: the same choices and the same queue."""
    mirrored = Problem({"mode": Choice(["A", "B"])}, {}, {"g": Constraint(lower=0.0)})
    expected, got = trace(), trace(mirrored, [(f, -g) for f, g in READINGS])
    assert got[0] == expected[0]
    assert got[1] == pytest.approx(expected[1])


def test_dual_moves_by_observations_where_told_to() -> None:
    """lambda: [0 + 3]+ = 3; then B, [3 + 2]+ = 5; then [5 - 4]+ = 1."""
    assert trace(signal="observed")[1] == pytest.approx([3.0, 5.0, 1.0])


class Slope:
    """A cheap plant: cost (a - 0.9 - 0.1 z)^2 and a <= 0.5 on average; the best each step is a = 0.5."""

    problem = Problem({"a": (0.0, 1.0)}, {"z": (0.0, 1.0)}, {"g": Constraint(upper=0.5, noise=0.01)})

    def __init__(self, seed: int = 0) -> None:
        self.rng = np.random.default_rng(seed)

    def context(self, t: int) -> dict[str, float]:
        return {"z": (0.37 * t) % 1.0}

    def truth(self, parameters: dict, context: dict) -> Outcome:
        a, z = parameters["a"], context["z"]
        return Outcome((a - 0.9 - 0.1 * z) ** 2, {"g": a})

    def evaluate(self, parameters: dict, context: dict) -> Outcome:
        f, g = self.truth(parameters, context)
        return Outcome(f + 0.01 * self.rng.normal(), {"g": g["g"] + 0.01 * self.rng.normal()})


THEOREM = {
    "setting": "theorem",
    "models": Model(length_scales=0.5, variance=1.0, noise_var=1e-4),
    "norm_bounds": 3.0,
    "slater_margin": 0.5,
    "beta_sqrt": 1.0,
    "slack": 0.0,
    "candidates": 21,
}


def regret_and_violation(tuner: PDCBO, steps: int) -> tuple[Array, Array]:
    records = list(run(Slope(), tuner, steps))
    f = np.array([r.truth.objective for r in records])
    best = np.array([(0.5 - 0.9 - 0.1 * float(r.context["z"])) ** 2 for r in records])
    g = np.array([r.truth.constraints["g"] - 0.5 for r in records])
    return np.cumsum(f - best), np.cumsum(g)


def test_doubling_restarts_with_doubled_horizons() -> None:
    """Epochs of 4, 8, 16, ... steps; each starts before its first ask with its own eta and lambda_1."""
    tuner = PDCBO(Slope.problem, doubling=4, **THEOREM)
    plant = Slope()
    starts = []
    for t in range(1, 61):
        start, length = tuner.setting.epoch()
        eta = float(tuner.setting.eta()[0])
        assert start < t <= start + length
        assert eta == pytest.approx(1.0 / math.sqrt(length))
        if t >= 4:  # the promise of a horizon that is right up to a factor of two
            assert 1 / math.sqrt(2) <= eta * math.sqrt(t) <= math.sqrt(2)
        if t == start + 1:
            starts.append((t, length))
            # lambda_1 = 4 C_0 / (eta xi) + 4 ||C||^2 / xi of the epoch's own horizon, in force when the step is asked
            assert tuner.queue == pytest.approx([4 * 3.0 * math.sqrt(length) / 0.5 + 4 * 9.0 / 0.5])
        s = tuner.ask(plant.context(t))
        y = plant.evaluate(s.parameters, s.context)
        tuner.tell(s, y.objective, y.constraints)
    assert starts == [(1, 4), (5, 8), (13, 16), (29, 32)]
    assert tuner.models.n == 60  # a restart forgets no data


def test_doubling_costs_a_constant_factor() -> None:
    """For a regret of order sqrt(T), epochs of doubled length add up to sqrt(2) / (sqrt(2) - 1) = 3.42 of it at most.

    lambda_1 = 4 C_0 sqrt(T) / xi + 4 C^2 / xi = 1.6 sqrt(T) + 2 is cautious here, where eta lambda settles at 0.9, so
    that the regret is positive and of order sqrt(T); 8 (2^5 - 1) = 248 steps are five whole epochs.
    """
    factor = math.sqrt(2) / (math.sqrt(2) - 1)
    arguments = {**THEOREM, "norm_bounds": {"objective": 0.2, "g": 0.5}}
    known, _ = regret_and_violation(PDCBO(Slope.problem, horizon=248, **arguments), 248)
    doubled, g = regret_and_violation(PDCBO(Slope.problem, doubling=8, **arguments), 248)
    assert known[-1] > 0
    assert doubled[-1] <= factor * known[-1]
    # and the regret is sublinear: the average falls from epoch to epoch
    ends = [8 * (2**k - 1) for k in range(1, 6)]
    averages = [doubled[e - 1] / e for e in ends]
    assert averages[1:] == sorted(averages[1:], reverse=True)
    assert averages[-1] < 0.6 * averages[1]
    assert g[-1] / 248 < 0.05


def test_eta_of_a_known_horizon_and_after_it() -> None:
    """eta = 1/sqrt(T) up to T, then 1/sqrt(t) as in endless operation; nothing else changes at the horizon."""
    tuner = PDCBO(Slope.problem, horizon=9, **THEOREM)
    etas = []
    plant = Slope()
    for t in range(1, 17):
        etas.append(float(tuner.setting.eta()[0]))
        s = tuner.ask(plant.context(t))
        tuner.tell(s, 0.0, {"g": 0.4})
    assert etas[:9] == pytest.approx([1 / 3] * 9)
    assert etas[9:] == pytest.approx([1 / math.sqrt(t) for t in range(10, 17)])
    assert tuner.step == 16
    assert "step 16, past the 9 planned" in repr(tuner)


def test_default_needs_nothing_and_holds_its_limit() -> None:
    records = list(run(Slope(), PDCBO(Slope.problem, horizon=100, seed=0), 100))
    average = np.mean([r.truth.constraints["g"] for r in records])
    cost = np.mean([r.truth.objective for r in records])
    assert average <= 0.52
    assert cost <= 0.26  # always 0.5 costs 0.2033; the centre is feasible and costs the same


class Nights:
    """Twelve steps of day, then twelve of night in which no parameters keep the limit, and so on; it ends at night."""

    problem = Problem({"a": (0.0, 1.0)}, {"night": (0.0, 1.0)}, {"g": 0.0})
    steps = 96

    @staticmethod
    def context(t: int) -> dict[str, float]:
        return {"night": float(t // 12 % 2)}

    @staticmethod
    def truth(a: float, night: float) -> tuple[float, float]:
        return 2.0 * (1.0 - a), 0.6 * a + (0.3 if night else -0.7)

    def average(self, horizon: int | None, seed: int) -> tuple[PDCBO, float]:
        tuner, rng = PDCBO(self.problem, horizon=horizon, seed=seed), np.random.default_rng(seed)
        total = 0.0
        for t in range(self.steps):
            suggestion = tuner.ask(self.context(t))
            f, g = self.truth(suggestion.parameters["a"], self.context(t)["night"])
            total += g
            tuner.tell(suggestion, f + 0.1 * rng.normal(), {"g": g + 0.05 * rng.normal()})
        return tuner, total / self.steps


def test_a_run_that_ends_in_the_hard_part_of_a_cycle_has_saved_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    assert all(Nights().average(Nights.steps, seed)[1] <= 0.0 for seed in range(4))
    monkeypatch.setattr(AdaptiveSetting, "_hard_end", lambda self, thetas: np.zeros(1))
    assert any(Nights().average(Nights.steps, seed)[1] > 0.0 for seed in range(4))


def test_what_a_run_may_end_with_is_what_came_after_moments_like_the_present_one() -> None:
    cycle = np.tile(np.repeat([-0.7, 0.3], 12), 4)  # four days and nights
    assert worst_end(cycle[:84], 12) == pytest.approx(12 * 0.3)  # the last evening before the end at dawn
    assert worst_end(cycle[:84], 9) == pytest.approx(9 * 0.3)
    assert worst_end(cycle, 9) == 0.0  # at dawn, before an end in the afternoon
    assert worst_end(cycle, 18) == pytest.approx(6 * 0.3)
    assert worst_end(cycle[:30], 40) == pytest.approx(12 * 0.3)  # too early to tell: any stretch that was seen
    assert worst_end(cycle[:30], 5) == pytest.approx(5 * 0.3)
    assert worst_end(np.full(50, -1.0), 10) == 0.0
    assert worst_end(np.array([0.5]), 1) == 0.5


def test_only_a_run_with_an_end_saves_for_it_and_past_operation_is_no_cycle() -> None:
    tuner, _ = Nights().average(Nights.steps + 12, 0)
    assert isinstance(tuner.setting, AdaptiveSetting)
    thetas = np.linspace(0.0, 1.0, 11)[:, None]
    assert tuner.setting._hard_end(thetas) == pytest.approx(0.0)  # the day that comes
    tuner.horizon = Nights.steps + 24
    assert tuner.setting._hard_end(thetas) == pytest.approx(12 * 0.3, rel=0.15)
    for _ in range(30):
        tuner.observe({"a": 0.5}, {"night": 1.0}, objective=1.0, constraints={"g": 0.6})
    assert tuner.setting._hard_end(thetas) == pytest.approx(12 * 0.3, rel=0.15)
    tuner.setting.replan()
    with_end = tuner.setting.margin
    tuner.horizon = None
    tuner.setting.replan()
    assert tuner.setting.margin < with_end - 2.0


@pytest.mark.parametrize("period", [2, 3, 7, 24])
def test_the_plan_sees_every_part_of_a_cycle(period: int) -> None:
    for n in range(31 * period - 2, 31 * period + 4):
        seen = spread_out(np.arange(n)[:, None] % period)
        assert len(seen) == 32
        assert len(np.unique(seen)) > min(period, 12) * 0.7
    assert len(spread_out(np.zeros((5, 1)))) == 5


def test_a_limit_that_nobody_can_keep_is_reported_long_before_the_end() -> None:
    tuner, rng = PDCBO(Problem({"a": (0.0, 1.0)}, {}, {"g": 0.0}), horizon=200), np.random.default_rng(0)
    for a in np.linspace(0.0, 1.0, 40):
        tuner.observe({"a": float(a)}, objective=1.0 - a, constraints={"g": 0.2 + a + 0.05 * rng.normal()})
    for _ in range(30):
        suggestion = tuner.ask()
        a = suggestion.parameters["a"]
        tuner.tell(suggestion, 1.0 - a, {"g": 0.2 + a + 0.05 * rng.normal()})
    assert "g: no parameters seem to keep its average within the limit" in str(tuner.summary())
    assert suggestion.parameters["a"] < 0.2


@pytest.mark.parametrize("name", sorted(OPTIMIZERS))
@pytest.mark.parametrize(
    "problem",
    [
        Problem({"a": (0.0, 1.0)}),
        Problem({"a": (0.0, 1.0)}, {"z": (0.0, 1.0)}),
        Problem({"a": (0.0, 1.0), "m": Choice(["x", "y"])}, {}, {"g": 0.7}),
        Problem({"n": Integer(1, 3)}, {"s": Choice(["d", "n"])}, {"g": Constraint(lower=0.2, upper=0.7)}),
        Problem(
            {"k": Real(1e-3, 1e3, log=True), "b": (-5, 5), "c": (0, 1), "n": Integer(0, 300)}, {"z": (0, 1)}, {"g": 1}
        ),
    ],
)
def test_every_optimizer_runs_every_kind_of_problem(name: str, problem: Problem) -> None:
    tuner = OPTIMIZERS[name](problem, horizon=6, seed=3)
    rng = np.random.default_rng(0)
    for _ in range(6):
        context = {k: v.decode(rng.random()) for k, v in problem.context.items()}
        s = tuner.ask(context)
        theta = problem.encode_parameters(s.parameters)
        tuner.tell(s, float(((theta - 0.3) ** 2).sum()), {k: float(theta[0]) for k in problem.constraints})
    assert tuner.step == 6
    text = str(tuner.summary())
    assert f"{name}: step 6 of 6" in text
    for limit in problem.limits:
        assert limit.label in text


@settings(max_examples=25)
@given(
    st.integers(0, 2**40),
    st.lists(st.tuples(st.floats(-1, 2), st.floats(-1e3, 1e3), st.floats(-1e-3, 1e-3)), min_size=1, max_size=12),
    st.sampled_from(["default", "paper"]),
    st.sampled_from([None, 0, 7]),
)
def test_duals_and_suggestions_whatever_the_plant_answers(seed, answers, setting, candidates) -> None:
    problem = Problem({"a": (2.0, 3.0), "k": Real(1e-4, 1.0, log=True)}, {"z": (0.0, 1.0)}, {"g": 0.0})
    tuner = PDCBO(problem, seed=seed, setting=setting, candidates=candidates)
    moved = 0.0
    for z, f, g in answers:
        s = tuner.ask({"z": z})
        assert 2.0 <= s.parameters["a"] <= 3.0
        assert 1e-4 <= s.parameters["k"] <= 1.0
        assert s.outside == (() if 0 <= z <= 1 else ("z",))
        assert all(low <= high for low, high in s.bounds.values())
        tuner.tell(s, f, {"g": g})
        moved += tuner.ledger.steps[s.id].signal[0]
        assert (tuner.queue >= 0).all()
        assert tuner.queue[0] >= moved - 1e-9
        assert np.isfinite(tuner.price()).all()


def test_ask_is_pure_and_repeatable() -> None:
    tuner = PDCBO(Slope.problem, horizon=50, seed=4)
    for _ in run(Slope(), tuner, 12):
        pass
    before = tuner.state()
    first, second = tuner.ask({"z": 0.4}), tuner.ask({"z": 0.4})
    tuner.ask({"z": 0.9})
    third = tuner.ask({"z": 0.4})
    assert first.parameters == second.parameters == third.parameters
    assert first.bounds == second.bounds == third.bounds
    assert len({first.id, second.id, third.id}) == 3
    after = tuner.state()
    assert after["extra"] == before["extra"]  # models and queue
    assert [s for s in after["ledger"]["steps"] if s["status"] != "pending"] == before["ledger"]["steps"]
    assert after["ledger"]["counted"] == before["ledger"]["counted"]
    again = PDCBO(Slope.problem, horizon=50, seed=4)
    for _ in run(Slope(), again, 12):
        again.ask({"z": 0.123})  # asks in between change nothing
    assert again.ask({"z": 0.4}).parameters == first.parameters


@pytest.mark.parametrize(
    ("name", "arguments"), [*((name, {}) for name in sorted(OPTIMIZERS)), ("pdcbo", {"candidates": 0})]
)
def test_asks_do_not_change_what_is_proposed(name: str, arguments: dict) -> None:
    """Randomness is keyed by the seed and what was told, never by asks: also where chance decides."""
    tuner = OPTIMIZERS[name](Slope.problem, horizon=20, seed=11, **arguments)
    for t in range(4):
        first = tuner.ask({"z": 0.25})
        tuner.ask({"z": 0.75})
        second = tuner.ask({"z": 0.25})
        assert first.parameters == second.parameters
        assert first.bounds == second.bounds
        tuner.fail(first, applied=False)  # it never ran: nothing was told either
        assert tuner.ask({"z": 0.25}).parameters == second.parameters
        tuner.tell(second, 1.0 + t, {"g": 0.4})


def test_a_context_outside_its_range_is_reported_and_not_clipped() -> None:
    tuner = PDCBO(Slope.problem, horizon=10)
    s = tuner.ask({"z": 1.75})
    assert s.outside == ("z",)
    assert s.context == {"z": 1.75}
    assert "context z was outside its stated range in 1 step" in tuner.summary()
    tuner.tell(s, 1.0, {"g": 0.1})
    assert tuner.models.X[0, 1] == 1.75
    inside = tuner.ask({"z": 0.5})
    assert inside.outside == ()
    tuner.tell(inside, 1.0, {"g": 0.1}, context={"z": -3.0})
    assert tuner.models.X[1, 1] == -3.0
    assert tuner.summary().data["context_outside_range"] == {"z": 2}


def test_summary_and_repr_say_what_an_operator_wants() -> None:
    problem = Problem({"feed": (4.0, 7.0)}, {"price": (1.0, 2.0)}, {"x_a": 0.12, "yield": Constraint(lower=0.8)})
    tuner = PDCBO(problem, horizon=300)
    assert "not measured yet; its average must be at most 0.12" in tuner.summary()
    for x_a in (0.13, 0.15):
        tuner.tell(tuner.ask({"price": 1.5}), -70.0, {"x_a": x_a, "yield": 0.9})
    tuner.fail(tuner.ask({"price": 1.5}), "analyser offline")
    waiting = tuner.ask({"price": 1.5})
    text = str(tuner.summary())
    for words in (
        "pdcbo: step 3 of 300",
        "cost: average -70, latest -70",
        "x_a: average 0.14, must be at most 0.12: is exceeded so far",
        "yield: average 0.9, must be at least 0.8: holds",
        "in the 2 of 3 steps that were measured",
        "1 step ran without any measurement",
        f"waiting for the result of suggestion {waiting.id}",
        "latest parameters: feed = ",
        "one unit less of x_a is now worth a cost of",
        "no debt",
    ):
        assert words in text, words
    short = repr(tuner)
    for words in (
        "PDCBO",
        "step 3 of 300",
        "x_a average 0.14, limit <= 0.12",
        "yield average 0.9, limit >= 0.8",
        "1 pending",
    ):
        assert words in short, words
    assert "price" in short
    assert "\n" not in short
    import json

    json.dumps(tuner.summary().data, allow_nan=False)


def test_numpy_numbers_are_welcome_everywhere() -> None:
    import json

    problem = Problem(
        {"a": np.array([0.0, 1.0]), "n": Integer(np.int8(1), np.int64(4))}, {"z": (0, np.float32(1))}, {"g": 1}
    )
    tuner = PDCBO(
        problem, horizon=np.int64(9), seed=np.uint32(3), delta=np.float32(0.1), beta_sqrt=np.float32(1.5),
        eta=np.float32(0.2), slack=np.float64(0.0), initial_queue=np.int64(0), candidates=np.int16(5),
        norm_bounds={"g": np.float32(3)}, models={"g": Model("linear", np.float32(1), np.int64(2), np.float32(0.1))},
    )  # fmt: skip
    s = tuner.ask({"z": np.float16(0.5)})
    tuner.tell(
        np.int64(s.id), np.float32(1), {"g": np.int32(2)}, applied={"n": np.int8(2)}, context={"z": np.array(0.25)}
    )
    tuner.observe({"a": np.float32(0.5), "n": np.uint8(3)}, {"z": np.int8(1)}, objective=np.float32(2))
    tuner.correct(np.int64(s.id), objective=np.float32(3))
    tuner.set_limits({"g": np.float32(2)})
    assert tuner.state() == PDCBO.restore(json.loads(json.dumps(tuner.state(), allow_nan=False))).state()
    fixed = OPTIMIZERS["fixed"](problem, parameters={"a": np.float32(0.5), "n": np.int64(3)})
    assert json.loads(json.dumps(fixed.state()))["settings"]["parameters"] == {"a": 0.5, "n": 3}


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"horizon": 0}, ValueError, "horizon must be at least 1, or None for endless operation, got 0"),
        ({"horizon": 2.5}, ValueError, "horizon must be a whole number, got 2.5"),
        ({"horizon": "3"}, TypeError, "horizon must be a number, got '3'"),
        ({"seed": -1}, ValueError, "seed must be at least 0, got -1"),
        ({"delta": 1.0}, ValueError, "delta must lie between 0 and 1, got 1.0"),
        ({"setting": "best"}, ValueError, "setting must be one of .*got 'best'"),
        ({"setting": ["default"]}, ValueError, "setting must be one of .*got \\['default'\\]"),
        ({"signal": "upper"}, ValueError, "signal must be one of .*got 'upper'"),
        ({"eta": 0.0}, ValueError, "eta must be above 0"),
        ({"slack": -1.0}, ValueError, "slack must be at least 0, got -1.0"),
        ({"initial_queue": math.nan}, ValueError, "initial_queue must be a finite number"),
        ({"doubling": 4, "horizon": 10}, ValueError, "doubling must be at least 1 and goes with horizon=None"),
        ({"beta_sqrt": -2}, ValueError, "beta_sqrt must be above 0"),
        ({"candidates": -2}, ValueError, "candidates must be at least 2, or 0"),
        ({"candidates": 1}, ValueError, "candidates must be at least 2, or 0"),
        ({"candidates": 10**12}, ValueError, "makes a grid that is too large"),
        ({"norm_bounds": {"q": 1.0}}, ValueError, r"norm_bounds\['q'\] is unknown"),
        ({"norm_bounds": {"g": -1.0}}, ValueError, r"norm_bounds\['g'\] must be above 0"),
        ({"norm_bounds": 3.0, "signal": "mean"}, ValueError, "signal='mean' goes without norm_bounds"),
        ({"models": "linear"}, TypeError, "models must be a Model or a mapping"),
        ({"problem": {"a": (0, 1)}}, TypeError, "problem must be a Problem"),
    ],
)
def test_malformed_settings_are_refused(arguments: dict, error: type, words: str) -> None:
    with pytest.raises(error, match=words):
        PDCBO(**{"problem": Slope.problem, **arguments})


def test_run_refuses_what_it_cannot_run() -> None:
    with pytest.raises(ValueError, match=r"optimizer must be one of .*got 'adam'"):
        next(run(Slope(), "adam", 3))
    with pytest.raises(ValueError, match="horizon must be at least 1, got 0"):
        next(run(Slope(), "fixed", 0))


def test_run_takes_a_pair_for_an_outcome_and_names_what_it_needs() -> None:
    class Pair(Slope):
        answer: Any = (1.0, {"g": -1.0})

        def evaluate(self, parameters: Any, context: Any) -> Any:
            return self.answer

    assert next(run(Pair(), "fixed", 1)).observed == Outcome(1.0, {"g": -1.0})
    for answer in (1.0, {"objective": 1.0}, None):
        Pair.answer = answer
        with pytest.raises(TypeError, match=r"evaluate must return Outcome\(objective, constraints\), got "):
            next(run(Pair(), "fixed", 1))


def test_changed_limits_move_the_price_at_once() -> None:
    tuner = PDCBO(Problem({"a": (0.0, 1.0)}, {}, {"g": 2.0}), horizon=400)
    for _ in range(60):
        s = tuner.ask()
        a = float(s.parameters["a"])
        tuner.tell(s, (a - 0.8) ** 2, {"g": a})
    before, price = tuner.ask().parameters["a"], tuner.price()[0]
    assert price == 0.0
    tuner.set_limits({"g": 0.5})
    assert tuner.price()[0] > 0.0
    assert tuner.ask().parameters["a"] < before


@pytest.mark.parametrize("setting", ["default", "standard"])
def test_values_too_small_to_be_squared_are_zero(setting: str) -> None:
    tuner = PDCBO(Problem({"x": (0.0, 1.0)}, {}, {"g": 1e-160}), horizon=20, setting=setting)
    for i in range(5):
        tuner.tell(tuner.ask(), 1e-160 * i, {"g": 1e-160 * (i + 1)})
    assert tuner.problem.limits[0].bound == 0.0
    assert np.isfinite(tuner.price()).all()


def line(x: float) -> tuple[float, dict[str, float]]:
    """A cost and a limited quantity that are linear in each other: every price but one leads to a corner."""
    return -x, {"g": x}


def test_credit_is_spent_where_cost_and_constraint_are_linear_in_each_other() -> None:
    tuner = PDCBO(Problem({"x": (0.0, 1.0)}, {}, {"g": 0.5}), horizon=100)
    for _ in range(100):
        s = tuner.ask()
        tuner.tell(s, *line(float(s.parameters["x"])))
    assert -5.0 < tuner.balance[0] <= 0.0


@pytest.mark.parametrize("level", [0.3, 3e-7, 3e7])
def test_a_constraint_that_never_changes_leaves_the_cost_to_decide(level: float) -> None:
    tuner = PDCBO(Problem({"x": (0.0, 1.0)}, {}, {"g": 0.8 * level}), horizon=40)
    total = 0.0
    for _ in range(40):
        s = tuner.ask()
        cost = (float(s.parameters["x"]) - 0.2) ** 2
        tuner.tell(s, cost, {"g": level})
        total += cost
    assert total < 2.0


def test_past_operation_reaches_the_price() -> None:
    tuner = PDCBO(Problem({"x": (0.0, 1.0)}, {}, {"g": 0.5}), horizon=50)
    rows = [{"x": float(x), "objective": line(x)[0], **line(x)[1]} for x in np.linspace(0.0, 1.0, 40)]
    tuner.observe_table(rows)
    assert tuner.price()[0] > 0.0
    assert tuner.ask().parameters["x"] < 0.9


def test_the_price_is_planned_again_after_a_correction() -> None:
    right, wrong = (PDCBO(Problem({"x": (0.0, 1.0)}, {}, {"g": 0.5}), horizon=60) for _ in range(2))
    for x in np.linspace(0.0, 1.0, 30):
        cost, values = line(float(x))
        right.tell(right.ask(), cost, values, applied={"x": float(x)})
        late = wrong.ask()
        wrong.tell(late, cost, {"g": 500.0} if x == 1.0 else values, applied={"x": float(x)})
    wrong.correct(late, constraints={"g": 1.0})
    assert wrong.balance == pytest.approx(right.balance)
    assert wrong.price() == pytest.approx(right.price(), rel=0.2)
    assert wrong.ask().parameters["x"] == pytest.approx(right.ask().parameters["x"], abs=0.1)


def test_past_operation_row_by_row_is_planned_from_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    tuner = PDCBO(Problem({"x": (0.0, 1.0)}, {}, {"g": 0.5}), horizon=60)
    solved: list[int] = []
    monkeypatch.setattr(tuner.setting, "_solve", lambda: solved.append(tuner.models.n))
    for x in np.linspace(0.0, 1.0, 100):
        tuner.observe({"x": float(x)}, objective=line(x)[0], constraints=line(x)[1])
    assert solved[:4] == [3, 4, 5, 6]
    assert len(solved) < 20


def test_a_correction_counts_only_where_it_corrects() -> None:
    tuner = PDCBO(Problem({"x": (0.0, 1.0)}, {}, {"a": 0.5, "b": 0.5}), horizon=40)
    first = tuner.ask()
    tuner.tell(first, 0.1, {"a": None, "b": 0.9}, applied={"x": 0.9})
    for x in np.linspace(0.0, 1.0, 12):
        tuner.tell(tuner.ask(), float(x), {"a": 3.0 * x, "b": float(x)}, applied={"x": float(x)})
    before = tuner.balance.copy()
    tuner.correct(first, objective=0.2)
    np.testing.assert_array_equal(tuner.balance, before)
    tuner.correct(first, constraints={"b": 0.8})
    np.testing.assert_allclose(tuner.balance - before, [0.0, -0.1])


def test_every_option_enters_the_plan() -> None:
    problem = Problem({"x": (0.0, 1.0), "k": Choice([f"k{i}" for i in range(22)])}, {}, {"g": 0.0})
    tuner = PDCBO(problem, horizon=10)
    tuner.tell(tuner.ask(), 0.0, {"g": 0.0})
    thetas = tuner.setting._thetas()
    assert len(np.unique(thetas[:, 1])) == 22


def test_norm_bounds_never_cross() -> None:
    problem = Problem({"x": (0.0, 1.0)}, {"z": (0.0, 1.0)}, {"g": 40.0})
    for models in (None, Model(length_scales=0.3, variance=1.0, noise_var=1e-4)):
        tuner = PDCBO(problem, horizon=40, models=models, norm_bounds=0.5)
        rng = np.random.default_rng(0)
        for _ in range(15):
            s = tuner.ask({"z": float(rng.random())})
            assert all(lower <= upper for lower, upper in s.bounds.values())
            tuner.tell(s, 3.0, {"g": 30.0 * s.context["z"] + 0.3 * s.parameters["x"]})


def test_a_step_is_adopted_once() -> None:
    tuner = PDCBO(TWO, horizon=3)
    first, second = tuner.propose(), tuner.propose()
    tuner.adopt(first)
    with pytest.raises(ValueError, match="suggestion 1 is in the book already"):
        tuner.adopt(second)


def test_the_summary_tells_limits_parameters_and_steps_apart() -> None:
    problem = Problem({"u": (0.0, 10.0)}, {}, {"e": Constraint(upper=5.0, noise=0.1, worst=9.0)})
    tuner = PDCBO(problem, horizon=10)
    tuner.tell(tuner.ask(), 1.0, {"e": 4.97}, applied={"u": 9.0})
    assert "must be at most 5: holds" in tuner.summary()
    assert "latest parameters: u = 9" in tuner.summary()
    facts = tuner.summary().data["constraints"]["e"]
    assert (facts["holds"], facts["proven"]) == (True, False)
    for _ in range(8):
        tuner.tell(tuner.ask(), 1.0, {"e": 4.0}, applied={"u": 9.0})
    tuner.set_limits({"e": 3.0})
    assert tuner.problem.constraints["e"] == Constraint(upper=3.0, noise=0.1, worst=9.0), "what was stated stays"
    for _ in range(2):
        tuner.tell(tuner.ask(), 1.0, {"e": 4.0})
    text = tuner.summary()
    assert "step 11, past the 10 planned" in text
    assert "must be at most 4.63636 (its limits so far on average; from now on 3): holds" in text
    assert text.data["constraints"]["e"]["holds"] is True
    assert "limit <= 4.63636 (now 3)" in repr(tuner)


@pytest.mark.parametrize(("variance", "candidates"), [(1e18, None), (1e20, 7), (1e20, 0)])
def test_a_point_known_without_any_doubt_has_a_score(variance: float, candidates: int | None) -> None:
    """With so little noise the posterior's deviation is rounded to zero where something was measured."""
    models = Model(length_scales=0.3, variance=variance, noise_var=1.0)
    tuner = PDCBO(Problem({"a": (0.0, 1.0)}), horizon=30, models=models, candidates=candidates)
    for _ in range(8):
        s = tuner.ask()
        tuner.tell(s, math.sqrt(variance) * (float(s.parameters["a"]) - 0.3) ** 2)
    assert tuner.step == 8


def test_the_largest_cost_over_the_smallest_limit_is_a_price() -> None:
    tuner = PDCBO(Problem({"a": (0.0, 1.0)}, {}, {"g": 5e-50}), horizon=20)
    for _ in range(8):
        s = tuner.ask()
        a = float(s.parameters["a"])
        tuner.tell(s, -1e50 * a, {"g": 1e-49 * a})
    assert 0.0 < tuner.price()[0] < math.inf
