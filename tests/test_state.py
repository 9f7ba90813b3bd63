"""State: a tuner that is saved and restored at random moments is the tuner that was not, to the last bit."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from pdcbo import OPTIMIZERS, PDCBO, Choice, Constraint, Integer, Model, Optimizer, Problem, Random, Real

PROBLEM = Problem(
    {"a": (0.0, 10.0), "k": Real(0.01, 1.0, log=True), "m": Choice(["x", "y"])},
    {"z": (0.0, 1.0), "c": Integer(0, 3)},
    {"g": Constraint(upper=1.0, noise=0.1), "h": Constraint(lower=2.0, upper=4.0)},
)
GIVEN = Model("matern-5/2", length_scales=1.0, variance=4.0, noise_var=0.01)
KINDS: dict[str, dict[str, Any]] = {
    "default": {"candidates": 4},
    "gradient": {"candidates": 0},
    "paper": {"setting": "paper", "models": GIVEN, "candidates": 4, "norm_bounds": {"g": 3.0}},
    "theorem": {
        "setting": "theorem", "models": GIVEN, "candidates": 4, "norm_bounds": 3.0, "slater_margin": 0.1, "doubling": 2,
    },
    "mixed": {"models": {"g": GIVEN}, "candidates": 3, "signal": "mean", "slack": 0.1, "initial_queue": 1.0},
}  # fmt: skip

numbers = st.floats(-5, 5).map(lambda v: round(v, 3))
maybe = st.none() | numbers


def through_json(optimizer: Optimizer) -> Optimizer:
    return type(optimizer).restore(json.loads(json.dumps(optimizer.state(), allow_nan=False)))


class Twins(RuleBasedStateMachine):
    """Every call goes to both; one of them goes through JSON now and then."""

    name = "pdcbo"
    kinds: tuple[str, ...] = ("default",)

    @initialize(
        kind=st.sampled_from(["a", "b", "c", "d"]), seed=st.integers(0, 2**63), horizon=st.sampled_from([None, 8])
    )
    def start(self, kind: str, seed: int, horizon: int | None) -> None:
        arguments = KINDS[self.kinds["abcd".index(kind) % len(self.kinds)]] if self.name == "pdcbo" else {}
        horizon = None if "doubling" in arguments else horizon
        self.plain = OPTIMIZERS[self.name](PROBLEM, horizon=horizon, seed=seed, **arguments)
        self.saved = through_json(self.plain)
        self.told: list[tuple[int, tuple[Any, ...], dict[str, Any]]] = []
        self.open: list[int] = []

    def both(self, method: str, *args: Any, **kwargs: Any) -> Any:
        results = []
        for tuner in (self.plain, self.saved):
            try:
                results.append((getattr(tuner, method)(*args, **kwargs), None))
            except (TypeError, ValueError) as error:
                results.append((None, f"{type(error).__name__}: {error}"))
        assert results[0] == results[1]
        return results[0]

    @rule()
    def save_and_restore(self) -> None:
        self.saved = through_json(self.saved)

    @rule(z=st.floats(-1, 2), c=st.integers(-1, 4))
    def ask(self, z: float, c: int) -> None:
        suggestion, error = self.both("ask", {"z": z, "c": c})
        assert error is None
        self.open.append(suggestion.id)

    @rule(data=st.data(), f=maybe, g=maybe, h=maybe, moved=st.booleans())
    def tell(self, data: st.DataObject, f: Any, g: Any, h: Any, moved: bool) -> None:
        if self.open:
            i = self.open.pop(data.draw(st.integers(0, len(self.open) - 1)))
            extra = {"applied": {"a": 2.5, "m": "y"}, "context": {"z": 0.9}} if moved else {}
            call = (i, (f, {"g": g, "h": h}), extra)
            assert self.both("tell", i, *call[1], **extra)[1] is None
            self.told.append(call)

    @rule(data=st.data())
    def tell_again(self, data: st.DataObject) -> None:
        if self.told:
            i, args, extra = self.told[data.draw(st.integers(0, len(self.told) - 1))]
            before = self.plain.state()
            assert self.both("tell", i, *args, **extra)[1] is None
            assert self.plain.state() == before

    @rule(data=st.data(), applied=st.booleans())
    def fail(self, data: st.DataObject, applied: bool) -> None:
        if self.open:
            i = self.open.pop(data.draw(st.integers(0, len(self.open) - 1)))
            self.both("fail", i, "why", applied=applied)
            before = self.plain.state()
            self.both("fail", i, "why", applied=applied)
            assert self.plain.state() == before

    @rule(data=st.data(), f=maybe, g=maybe)
    def correct(self, data: st.DataObject, f: Any, g: Any) -> None:
        if self.plain.ledger.counted:
            i = data.draw(st.sampled_from(self.plain.ledger.counted))
            assert self.both("correct", i, objective=f, constraints={"g": g})[1] is None

    @rule(a=st.floats(0, 10), z=st.floats(0, 1), f=numbers, h=maybe)
    def observe(self, a: float, z: float, f: float, h: Any) -> None:
        arguments = {"a": a, "k": 0.1, "m": "x"}, {"z": z, "c": 1}
        assert self.both("observe", *arguments, objective=f, constraints={"h": h})[1] is None

    @rule(g=numbers, noise=st.sampled_from([None, 0.05, 0.5]))
    def set_limits(self, g: float, noise: float | None) -> None:
        assert self.both("set_limits", {"g": Constraint(upper=g, noise=noise)})[1] is None

    @rule(bad=st.sampled_from([("ask", {"z": 1.0}), ("tell", 10**6, 1.0), ("fail", "x"), ("correct", None)]))
    def blunder(self, bad: tuple[Any, ...]) -> None:
        before = self.plain.state()
        assert self.both(*bad)[1] is not None
        assert self.plain.state() == before

    @invariant()
    def equal(self) -> None:
        if hasattr(self, "plain"):
            assert self.plain.state() == self.saved.state()
            assert self.plain.certificate() == self.saved.certificate()
            assert str(self.plain.summary()) == str(self.saved.summary())


def machine(title: str, **attributes: Any) -> type[RuleBasedStateMachine]:
    return type(title, (Twins,), attributes)


def check(title: str, examples: int, steps: int, **attributes: Any) -> None:
    from hypothesis.stateful import run_state_machine_as_test

    run_state_machine_as_test(
        machine(title, **attributes),
        settings=settings(settings.get_profile("pdcbo"), max_examples=examples, stateful_step_count=steps),
    )


def test_pdcbo_twins() -> None:
    check("Grid", 25, 30, kinds=("default", "paper", "theorem", "mixed"))


def test_pdcbo_twins_by_gradient_search() -> None:
    check("Gradient", 4, 12, kinds=("gradient",))


@pytest.mark.parametrize("name", sorted(set(OPTIMIZERS) - {"pdcbo"}))
def test_twins_of_every_optimizer(name: str) -> None:
    check(f"Twins{name.title()}", 5, 20, name=name)


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_a_long_run_through_json_at_every_step(kind: str) -> None:
    """Past two blocks of the factor and many refits, with suggestions pending all the time."""
    steps = 20 if kind == "gradient" else 150
    plain = PDCBO(PROBLEM, seed=7, **KINDS[kind])
    saved: Optimizer = through_json(plain)
    rng = np.random.default_rng(1)
    waiting: list[int] = []
    for t in range(steps):
        context = {"z": rng.random(), "c": int(rng.integers(4))}
        s = plain.ask(context)
        assert saved.ask(context) == s
        waiting.append(s.id)
        if t % 3:
            i = waiting.pop(int(rng.integers(len(waiting))))
            f, g, h = rng.normal(size=3)
            for tuner in (plain, saved):
                tuner.tell(i, f, {"g": None if t % 5 == 0 else g, "h": 3 + h})
        if t % 10 == 9 or t > steps - 5:
            saved = through_json(saved)
    assert json.dumps(plain.state()) == json.dumps(saved.state())
    assert len(plain.pending) == len(waiting)


def test_the_state_is_plain_json_with_the_problem() -> None:
    tuner = Random(PROBLEM, horizon=5, seed=3)
    tuner.ask({"z": 0.5, "c": 1})
    state = json.loads(json.dumps(tuner.state(), allow_nan=False))
    assert Problem.from_json(state["problem"]) == PROBLEM
    assert OPTIMIZERS[state["optimizer"]].restore(state).state() == state


@pytest.mark.parametrize("name", ["pdcbo", "safeopt"])
def test_a_store_of_json_may_sort_the_names(name: str) -> None:
    problem = Problem(
        {"b": (0.0, 1.0), "a": (0.0, 10.0)}, {"y": (0.0, 1.0), "x": (0.0, 5.0)}, {"h": 2.0, "c": Constraint(lower=1.0)}
    )
    tuner, rng = OPTIMIZERS[name](problem, horizon=30, candidates=12), np.random.default_rng(0)
    for t in range(12):
        s = tuner.ask({"y": float(rng.random()), "x": 5.0 * float(rng.random())})
        b, a = float(s.parameters["b"]), float(s.parameters["a"])
        tuner.tell(s, a - b, {"h": 1.0 + b + 0.1 * a, "c": None if t == 5 else 1.5 - 0.1 * a})
    again = type(tuner).restore(json.loads(json.dumps(tuner.state(), sort_keys=True)))
    tuner.fail(tuner.ask({"y": 0.3, "x": 2.0}))
    again.fail(again.ask({"x": 2.0, "y": 0.3}))  # the bounds of an unmeasured step move the dual
    assert again.state() == tuner.state()
    assert again.ask({"y": 0.9, "x": 1.0}) == tuner.ask({"y": 0.9, "x": 1.0})
    assert str(again.summary()) == str(tuner.summary())


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"version": 99}, "state has version 99; this release reads 3"),
        ({"optimizer": "random"}, "state is of optimizer 'random'; PDCBO is 'pdcbo'"),
        ({"ledger": None}, "it lacks"),
        ({"names": 5}, "'names' are not those of 'problem'"),
        ({"names": [["nobody"], [], []]}, "'names' are not those of 'problem'"),
    ],
)
def test_foreign_states_are_refused(change: dict[str, Any], words: str) -> None:
    state = {**PDCBO(PROBLEM).state(), **change}
    if change == {"ledger": None}:
        del state["ledger"]
    with pytest.raises(ValueError, match=words):
        PDCBO.restore(state)
    with pytest.raises(ValueError, match="state must be what"):
        PDCBO.restore([])


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda s: s["ledger"].update(steps=s["ledger"]["steps"][:2]), r"name each step that counts once.*\[3\]"),
        (lambda s: s["ledger"].update(counted=[]), "name each step that counts once"),
        (lambda s: s["ledger"].update(counted=[1, 2, 3, 3]), "the same step twice"),
        (lambda s: s["extra"].update(balance=[None, 0.0, 0.0]), "'balance' must be 3 finite numbers"),
        (lambda s: s["extra"].update(queue=[0.0]), "'queue' must be 3 finite numbers"),
        (lambda s: s["ledger"]["steps"][0]["suggestion"].update(bounds=None), "state is damaged"),
    ],
)
def test_a_damaged_state_is_refused(damage, words: str) -> None:
    tuner = PDCBO(PROBLEM, horizon=8, candidates=4)
    for i in range(3):
        tuner.tell(tuner.ask({"z": i / 2, "c": i}), 1.0, {"g": 0.5, "h": 3.0})
    state = json.loads(json.dumps(tuner.state()))
    damage(state)
    with pytest.raises(ValueError, match=words):
        PDCBO.restore(state)


def test_a_state_shares_nothing_with_its_tuner() -> None:
    problem = Problem({"x": (0.0, 1.0)}, {}, {"g": 1.0})
    safe = OPTIMIZERS["safeopt"](problem, safe=[{"parameters": {"x": 0.1}}])
    fixed = OPTIMIZERS["fixed"](problem, parameters={"x": 0.1})
    for tuner in (safe, fixed):
        before = json.dumps(tuner.state())
        settings = tuner.state()["settings"]
        (settings["parameters"] if tuner is fixed else settings["safe"][0]["parameters"])["x"] = 0.9
        assert json.dumps(tuner.state()) == before
