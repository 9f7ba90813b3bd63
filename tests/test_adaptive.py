"""The default's prices, margins, reserves and foresight, each by hand; lower limits as mirrors of upper ones."""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest

from pdcbo import PDCBO, Choice, Constraint, Integer, Model, Problem
from pdcbo.models import Models
from pdcbo.optimizers.adaptive import AdaptiveSetting
from pdcbo.optimizers.planning import worst_end
from pdcbo.optimizers.reserve import LEAST_DEVIATIONS, Reserve

GIVEN = Model(length_scales=2.0, variance=4.0, noise_var=0.01)


def adaptive(tuner: PDCBO) -> AdaptiveSetting:
    assert isinstance(tuner.setting, AdaptiveSetting)
    return tuner.setting


@pytest.mark.parametrize("seed", range(3))
def test_a_lower_limit_of_the_default_is_the_mirror_of_an_upper_one(seed: int) -> None:
    """y >= -0.3 on average with y = -g, a step in five not measured: the same choices, prices and balances."""

    def play(sign: float) -> tuple[list[float], PDCBO]:
        limit = Constraint(upper=0.3) if sign > 0.0 else Constraint(lower=-0.3)
        tuner = PDCBO(Problem({"x": (0.0, 1.0)}, {}, {"y": limit}), horizon=40)
        rng, chosen = np.random.default_rng(seed), []
        for t in range(30):
            s = tuner.ask()
            x = float(s.parameters["x"])
            chosen.append(x)
            cost, g = (x - 0.9) ** 2 + 0.01 * rng.normal(), x + 0.01 * rng.normal()
            if t % 5 == 2:
                tuner.fail(s, "analyser offline")
            else:
                tuner.tell(s, cost, {"y": sign * g})
        return chosen, tuner

    (upper, up), (lower, low) = play(1.0), play(-1.0)
    np.testing.assert_allclose(lower, upper, atol=0.02)
    assert np.mean(upper) == pytest.approx(0.3, abs=0.1)
    assert low.price() == pytest.approx(up.price(), rel=0.05)
    assert adaptive(low).balance() == pytest.approx(adaptive(up).balance(), abs=0.05)


@pytest.mark.parametrize("side", [1.0, -1.0])
def test_each_of_two_limits_on_one_quantity_is_kept(side: float) -> None:
    """The cost pulls y up, or down: the limit on that side binds, the other one, far away, must not hide it."""
    tuner = PDCBO(Problem({"x": (-1.0, 1.0)}, {}, {"y": Constraint(lower=-0.5, upper=0.5)}), horizon=60)
    assert adaptive(tuner)._floors() == []
    for _ in range(60):
        s = tuner.ask()
        x = float(s.parameters["x"])
        tuner.tell(s, -side * x, {"y": x})
    assert adaptive(tuner)._floors() == []
    mean = np.mean([step.y[1] for step in tuner.ledger.history()])
    assert 0.3 < side * mean <= 0.5


def told(tuner: PDCBO, steps: int, **values: Any) -> PDCBO:
    for _ in range(steps):
        tuner.tell(tuner.ask({"z": 0.2}), 1.0, values or {"g": -1.0}, applied={"a": 0.5})
    return tuner


def test_what_is_learned_now_pays_in_the_steps_to_come_with_contexts_like_this_one() -> None:
    """R: at most the steps left after this one, at most three times those seen, times the correlation of contexts."""
    problem = Problem({"a": (0.0, 1.0)}, {"z": (0.0, 1.0)}, {"g": 0.0})
    model = Model(length_scales=0.3, variance=1.0, noise_var=0.01)

    def worth(steps: int, z: float, horizon: int | None = 40) -> float:
        tuner = told(PDCBO(problem, horizon=horizon, models=model, candidates=3), steps)
        return adaptive(tuner)._profiting_steps(np.array([z]))

    assert worth(0, 0.2) == 3.0
    assert worth(5, 0.2) == pytest.approx(18.0)
    assert worth(30, 0.2) == pytest.approx(9.0)
    assert worth(39, 0.2) == 0.0  # the last step has nothing to explore for
    assert worth(5, 0.8) == pytest.approx(18.0 * math.exp(-0.5 * (0.6 / 0.3) ** 2))
    assert worth(2, 0.2, None) == pytest.approx(9.0)
    assert worth(50, 0.2, None) == pytest.approx(49.0)


def test_the_primal_step_hopes_for_nothing_below_the_floor() -> None:
    """The floor takes the place of a mean below it and leaves nothing to hope for; above it, what lies between."""
    tuner = PDCBO(Problem({"a": (0.0, 1.0)}, {}, {"g": 0.0}), horizon=100, candidates=5)
    for i in range(20):
        tuner.observe({"a": i / 19}, objective=1.0, constraints={"g": -1.0 + 0.1 * i})
    setting = adaptive(tuner)
    [(_, _, floor)] = setting._floors()
    setting.phi = np.array([1.0])
    means, stds = np.array([[1.0] * 4, [floor - 50.0, floor, floor + 0.1, floor + 0.1]]), np.zeros((2, 4))
    stds[1] = [9.0, 9.0, 9.0, 0.1]
    far, at, wide, narrow = setting.score(np.empty(0))(means, stds)
    assert far == at == pytest.approx(1.0 + floor)
    assert wide == pytest.approx(narrow)
    assert narrow < 1.0 + floor + 0.1


def test_the_margin_and_the_budget_by_hand() -> None:
    """Two limits: 1 % is shared by them, noise adds up over all of the horizon, done and left."""
    problem = Problem({"a": (0.0, 1.0)}, {"z": (0.0, 1.0)}, {"g": 0.0, "h": 0.0})
    tuner = told(PDCBO(problem, horizon=100, models=GIVEN, candidates=5, slack=0.5), 36, g=0.0, h=0.0)
    setting = adaptive(tuner)
    g = np.zeros((2, 2, 2))
    g[0, 0] = [0.3, 0.0]
    g[:, 1] = 1.0  # never chosen: dearer
    f = np.array([[0.0, 9.0], [0.0, 9.0]])
    tuner.balance, setting.revision = np.array([4.0, -7.0]), np.array([1.0, 0.0])
    setting.solved_spread, setting.payback = np.array([1.0, 1e9, 1e9]), np.zeros(2)
    setting.given_slack = 0.0
    rest = setting._budget(g, f, np.array([0.2, 0.0]), np.array([0.0, 3.0]))
    deviations = NormalDist().inv_cdf(1.0 - 0.01 / 2)
    margin = [deviations * (0.1 * math.sqrt(100) + 0.15 + 0.2), deviations * 0.1 * math.sqrt(100) + 3.0]
    assert setting.margin == pytest.approx(margin)
    assert rest == pytest.approx([-(4.0 + 1.0 + margin[0]) / 64, -(-7.0 + margin[1]) / 64])
    setting.given_slack = 0.25
    setting.solved_spread = np.array([1.0, 2.0, 2.0])
    assert setting._budget(g, f, np.array([0.2, 0.0]), np.array([0.0, 3.0])) == pytest.approx(rest - 0.25 * 2.0)


@pytest.mark.parametrize(("balance", "room"), [(3.0, 0.5 * 63 * 0.4 - 3.0 - 1.0), (1e3, 0.0)])
def test_a_step_may_take_half_of_what_the_others_can_pay_back(balance: float, room: float) -> None:
    problem = Problem({"a": (0.0, 1.0)}, {"z": (0.0, 1.0)}, {"g": 0.0})
    tuner = told(PDCBO(problem, horizon=100, models=GIVEN, candidates=5), 36)
    setting = adaptive(tuner)
    tuner.balance, setting.margin, setting.payback = np.array([balance]), np.array([1.0]), np.array([0.4])
    [reserve] = setting._reserves()
    assert reserve.room == pytest.approx(room)
    setting.payback = np.array([0.0])
    assert setting._reserves() == []  # nothing pays back: nothing to reserve


def test_a_limit_is_called_out_of_reach_only_when_it_is_exceeded_by_more_than_noise() -> None:
    tuner = PDCBO(Problem({"a": (0.0, 1.0)}, {}, {"g": 0.0}), horizon=200)
    for a in np.linspace(0.0, 1.0, 40):
        tuner.observe({"a": float(a)}, objective=1.0 - a, constraints={"g": 0.2 + float(a)})
    setting = adaptive(tuner)
    assert setting.phi[0] == pytest.approx(setting._largest_price()[0])
    assert tuner.notes() == []  # nothing has been exceeded so far


def test_the_end_of_a_cycle_does_not_depend_on_the_order_of_late_answers() -> None:
    problem = Problem({"a": (0.0, 1.0)}, {"z": (0.0, 1.0)}, {"g": 0.0})
    ends = []
    for late in (False, True):
        tuner = PDCBO(problem, horizon=90, models=Model(length_scales=0.3, variance=1.0, noise_var=1e-4), candidates=5)
        asked = [tuner.ask({"z": float(t // 12 % 2)}) for t in range(84)]
        for s in sorted(asked, key=lambda s: (-s.context["z"], s.id)) if late else asked:
            a = s.id % 5 / 4
            tuner.tell(s, 1.0 - a, {"g": 0.6 * a + (0.3 if s.context["z"] else -0.7)}, applied={"a": a})
        ends.append(adaptive(tuner)._hard_end(np.linspace(0.0, 1.0, 5)[:, None])[0])
    assert ends[0] == pytest.approx(6 * 0.3, rel=0.15)
    assert ends[1] == pytest.approx(ends[0], rel=0.05)


def test_there_is_nothing_to_save_where_nothing_is_paid_back() -> None:
    problem = Problem({"a": (0.0, 1.0)}, {"z": (0.0, 1.0)}, {"g": 0.0})
    tuner = told(PDCBO(problem, horizon=50, models=GIVEN, candidates=5), 20, g=1.0)
    setting = adaptive(tuner)
    thetas = np.linspace(0.0, 1.0, 5)[:, None]
    setting.payback = np.array([0.1])
    assert setting._hard_end(thetas)[0] > 10.0
    setting.payback = np.array([-0.1])
    assert setting._hard_end(thetas)[0] == 0.0


def test_what_came_after_the_three_likest_moments_counts_at_its_worst() -> None:
    """Four evenings alike; after one of the last three the night was hard."""
    evening, easy, hard = np.linspace(-1.0, -0.5, 24), np.full(12, -0.2), np.full(12, 0.4)
    least = np.concatenate([evening, easy, evening, hard, evening, easy, evening])
    assert worst_end(least, 12) == pytest.approx(12 * 0.4)


def test_the_revision_of_unmeasured_steps_minds_their_own_limits_and_sides() -> None:
    """Two steps ran unmeasured, each against its own limits, where g = 4 and h = 1 (at least 2, then 2.5)."""
    problem = Problem({"a": (0.0, 1.0)}, {"z": (0.0, 1.0)}, {"g": 1.0, "h": Constraint(lower=2.0)})
    tuner = PDCBO(problem, horizon=40, models=GIVEN, candidates=5)
    first = tuner.ask({"z": 0.2})
    tuner.fail(first)
    tuner.set_limits({"g": 1.5, "h": 2.5})
    tuner.fail(tuner.ask({"z": 0.2}))
    for _ in range(8):
        tuner.tell(tuner.ask({"z": 0.2}), 1.0, {"g": 4.0, "h": 1.0}, applied=first.parameters)
    for s in tuner.ledger.history()[:2]:
        assert s.suggestion.parameters == first.parameters
    adaptive(tuner).replan()
    assert adaptive(tuner).balance() == pytest.approx([3.0 + 2.5 + 8 * 2.5, 1.0 + 1.5 + 8 * 1.5], abs=0.3)


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_the_worst_surprise_is_one_on_the_bad_side(sign: float) -> None:
    limit = Constraint(upper=0.0) if sign > 0.0 else Constraint(lower=0.0)
    problem = Problem({"a": (0.0, 1.0)}, {}, {"g": limit})
    for bad in (1.0, -1.0):
        models = Models(problem, Model(length_scales=0.3, variance=1.0, noise_var=1e-4))
        for g in (0.0, 0.0, sign * bad * 0.8):
            models.add(np.array([0.5]), np.array([0.0, g]))
        deviations = Reserve.of(problem.limits[0], 0.0, 1.0, 20.0, models).deviations
        assert (deviations > LEAST_DEVIATIONS) == (bad > 0.0)


def test_the_price_of_a_lower_limit_is_for_one_unit_more() -> None:
    tuner = PDCBO(Problem({"x": (0.0, 1.0)}, {"z": (0.0, 1.0)}, {"yield": Constraint(lower=0.8)}), horizon=50)
    for _ in range(3):
        tuner.tell(tuner.ask({"z": 0.5}), 1.0, {"yield": 0.5})
    tuner.fail(tuner.ask({"z": 7.0}), "never ran", applied=False)
    assert "debt 0.9: one unit more of yield is now worth a cost of" in tuner.summary()
    assert "outside its stated range" not in tuner.summary()  # the one that was never ran


def test_prices_are_sought_three_times_round(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two limits that pull the same way, the second one the tighter: each round moves price to it."""

    def planned(rounds: int) -> Any:
        problem = Problem({"x": (0.0, 1.0), "y": (0.0, 1.0)}, {"z": (0.0, 1.0)}, {"g": 0.6, "h": 0.5})
        tuner = PDCBO(
            problem, horizon=100, models=Model(length_scales=0.5, variance=1.0, noise_var=1e-4), candidates=15
        )
        for x, y, z in np.random.default_rng(0).random((80, 3)).tolist():
            cost = (x - 0.9) ** 2 + (y - 0.8 - 0.1 * z) ** 2
            tuner.models.add(np.array([x, y, z]), np.array([cost, x + 0.6 * y, 0.6 * x + y]))
        for _ in range(rounds):
            tuner.setting.replan()
        return tuner.price()

    once = planned(1)
    monkeypatch.setattr("pdcbo.optimizers.adaptive.SWEEPS", 1)
    assert once == pytest.approx(planned(3), rel=1e-6)
    assert once[1] > 1.5 * planned(1)[1]


def walk(tuner: PDCBO, steps: int, past: float | None = None) -> list[dict[str, Any]]:
    """Return what is tried where the objective falls outwards, after past operation at one point, if any."""
    names = list(tuner.problem.parameters)
    if past is not None:
        tuner.observe(dict.fromkeys(names, past), objective=-past, constraints={"g": past - 2.0})
    tried = []
    for _ in range(steps):
        s = tuner.ask()
        tried.append(s.parameters)
        total = sum(v for v in s.parameters.values() if isinstance(v, int | float))
        tuner.tell(s, objective=-total, constraints={"g": total - 10.0})
    return tried


@pytest.mark.parametrize("dimension", [1, 2, 3])
def test_a_step_goes_no_further_than_a_quarter_of_the_range_beyond_what_was_tried(dimension: int) -> None:
    tuner = PDCBO(Problem({f"x{i}": (0.0, 1.0) for i in range(dimension)}, {}, {"g": 0.0}), horizon=30)
    tried = np.array([list(p.values()) for p in walk(tuner, 8)])
    grid = 0.0 if tuner.candidates is None else 0.5 / 49.0
    for t in range(1, len(tried)):
        assert (tried[t] <= tried[:t].max(axis=0) + 0.25 + grid + 1e-9).all()
        assert (tried[t] >= tried[:t].min(axis=0) - 0.25 - grid - 1e-9).all()
    assert tried.max() > 0.95  # it gets there all the same


def test_bounds_are_those_of_the_point_within_reach() -> None:
    tuner = PDCBO(Problem({"x": (0.0, 1.0)}, {}, {"g": 0.0}), horizon=30)
    walk(tuner, 1)
    s = tuner.ask()
    assert 0.7 < abs(float(s.parameters["x"]) - 0.5) + 0.5 < 0.76  # cut short
    x = np.array([s.parameters["x"]])
    assert s.bounds == tuner.bounds_at(x)
    assert tuner.ask().parameters == s.parameters


def test_past_operation_is_where_the_first_steps_start_from() -> None:
    tuner = PDCBO(Problem({"x": (0.0, 1.0)}, {}, {"g": 0.0}), horizon=30)
    assert all(float(p["x"]) <= 0.1 + 0.26 * (t + 1) for t, p in enumerate(walk(tuner, 3, past=0.1)))


def test_coarse_levels_and_choices_are_within_reach() -> None:
    two = PDCBO(Problem({"n": Integer(0, 1), "k": Integer(0, 2)}, {}, {"g": 0.0}), horizon=20)
    assert walk(two, 6)[-1] == {"n": 1, "k": 2}
    coarse = PDCBO(Problem({"x": (0.0, 1.0)}, {}, {"g": 0.0}), horizon=20, candidates=3)
    assert walk(coarse, 6)[-1] == {"x": 1.0}
    mixed = Problem({"m": Choice(["a", "b", "c"]), "x": (0.0, 1.0), "y": (0.0, 1.0), "z": (0.0, 1.0)}, {}, {"g": 0.0})
    setting = adaptive(PDCBO(mixed, horizon=20))
    assert setting.reach.distance.tolist() == [math.inf, 0.25, 0.25, 0.25]
    assert adaptive(two).reach.distance.tolist() == [1.0, 0.5]


def test_other_settings_go_as_far_as_they_like() -> None:
    tuner = PDCBO(Problem({"x": (0.0, 1.0)}, {}, {"g": 0.0}), horizon=30, setting="standard")
    assert abs(float(walk(tuner, 2)[1]["x"]) - 0.5) > 0.4


@pytest.mark.parametrize("seed", range(3))
def test_a_limit_that_is_sixty_times_itself_in_a_corner_is_kept(seed: int) -> None:
    """Of 100 steps one at (1, 1) would take 66, and all others together can pay back 83."""
    tuner = PDCBO(Problem({"a": (0.0, 1.0), "b": (0.0, 1.0)}, {}, {"e": 1.0}), horizon=100, seed=seed)
    rng, total, excess = np.random.default_rng(seed), 0.0, 0.0
    for _ in range(100):
        s = tuner.ask()
        a, b = float(s.parameters["a"]), float(s.parameters["b"])
        e = math.exp(6.0 * (a * b - 0.3))
        total, excess = total + a + b, excess + e - 1.0
        tuner.tell(s, objective=-a - b + 0.02 * rng.normal(), constraints={"e": e + 0.02 * rng.normal()})
    assert excess <= 0.0
    assert total >= 120.0  # of 130 at the best point, (1, 0.3), without a step to learn from


def late(lag: int, seed: int, steps: int = 60) -> tuple[PDCBO, float]:
    """Run a plant whose results come `lag` steps late; return the tuner and the average of g, at most 0 if it holds."""
    rng = np.random.default_rng(seed)
    tuner = PDCBO(Problem({"a": (0.0, 1.0), "b": (0.0, 1.0)}, {"z": (0.0, 1.0)}, {"g": 0.0}), horizon=steps, seed=seed)
    waiting, values = [], []
    for _ in range(steps):
        z = float(rng.random())
        s = tuner.ask({"z": z})
        a, b = float(s.parameters["a"]), float(s.parameters["b"])
        g = 1.2 * math.exp(-2.0 * a - b) + 0.3 * z - 0.5 + 0.03 * rng.normal()
        waiting.append((s, 3.0 * a * a + b + z * a + 0.02 * rng.normal(), g))
        values.append(g)
        while len(waiting) > lag:
            told, cost, g = waiting.pop(0)
            tuner.tell(told, cost, {"g": g})
    return tuner, float(np.mean(values))


@pytest.mark.parametrize("seed", [2, 4])
def test_late_answers_do_not_cost_the_limit(seed: int) -> None:
    """With nothing charged for the steps that wait, both end above it."""
    assert late(4, seed)[1] <= 0.0


def test_what_runs_and_is_not_measured_yet_is_charged_at_its_mean() -> None:
    tuner, _ = late(3, 0, steps=20)
    setting, waiting = adaptive(tuner), [tuner.ledger.steps[s.id] for s in tuner.pending]
    assert len(waiting) == 3
    mean = tuner.models.predict(np.array([step.x for step in waiting]))[0][1]
    assert setting.charge == pytest.approx([mean.sum()])
    assert setting.balance() == pytest.approx(tuner.balance + setting.charge)
    assert (setting.waiting, setting._steps_left()) == (3, 1)
    first, again = (tuner.ask({"z": 0.5}) for _ in range(2))
    assert first.parameters == again.parameters
    assert PDCBO.restore(tuner.state()).state() == tuner.state()
    for step in reversed(waiting):  # what is older than the one settled last may never have run
        tuner.tell(step.suggestion, 1.0, {"g": 0.1})
        newer = [s for s in tuner.pending if s.id > step.suggestion.id]
        assert setting.waiting == len(newer)


def test_whole_numbers_of_any_range_and_horizons_of_any_length() -> None:
    tuner = PDCBO(Problem({"n": Integer(0, 10**9)}, {"z": (0.0, 1.0)}, {"g": 0.5}), horizon=10**19)
    for i in range(6):
        s = tuner.ask({"z": i / 5})
        u = float(s.parameters["n"]) / 1e9
        tuner.tell(s, u, {"g": 1.0 - u + i / 5})
    assert tuner.step == 6
    box = Problem({"n": Integer(0, 10**9), **{f"x{i}": (0.0, 1.0) for i in range(3)}}, {}, {"g": 0.5})
    assert adaptive(PDCBO(box)).reach.distance.tolist() == [0.25] * 4
