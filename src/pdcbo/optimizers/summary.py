"""What an operator wants to know, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from pdcbo.optimizers.ledger import Step, measured, measured_limit_mean
from pdcbo.problem import Limit, Problem, Scalar
from pdcbo.wording import shown, shown_apart, steps

if TYPE_CHECKING:
    from pdcbo.optimizers.base import Optimizer


# from how many steps on notes speak of measurements, and of how many of them one may be astray
FEW = 10
# how far a measurement is from all others to be called astray, in multiples of their range: at the end of the suite's
# runs 1 of 1,250 series is, all of them right
APART = 5.0


class Summary(str):
    """A text to print, with the same facts as JSON data in `data`."""

    data: dict[str, Any]

    def __repr__(self) -> str:
        return str(self)


def describe(optimizer: Optimizer) -> Summary:
    """Return the summary of an optimizer."""
    data = facts(optimizer)
    summary = Summary("\n".join(_sentences(data)))
    summary.data = data
    return summary


def brief(optimizer: Optimizer) -> str:
    """Return one line: the step, each average against its limit with its price, and what is pending."""
    history = optimizer.ledger.history()
    prices = optimizer.price()
    parts = [f"step {optimizer.step}{_plan(optimizer.step, optimizer.horizon)}"]
    costs = _measured(history, 0)
    if costs:
        parts.append(f"cost average {shown(float(np.mean(costs)))}")
    for i, limit in enumerate(optimizer.problem.limits):
        values, bound = _measured(history, limit.output), measured_limit_mean(limit, history, i)
        words = shown_apart([bound, limit.bound, *([float(np.mean(values))] if values else [])])
        average = f"average {words[2]}" if values else "not measured yet"
        now = f" (now {words[1]})" if _changed(history, i, limit) else ""
        price = "" if prices is None else f", price {prices[i]:.4g} a unit"
        parts.append(f"{limit.label} {average}, limit {'<=' if limit.sign > 0 else '>='} {words[0]}{now}{price}")
    return "; ".join([*parts, f"{len(optimizer.pending)} pending"])


def _measured(history: list[Step], output: int) -> list[float]:
    return [step.y[output] for step in history if not np.isnan(step.y[output])]


def _changed(history: list[Step], index: int, limit: Limit) -> bool:
    """Tell whether a step was held against another limit than the one in force now."""
    return any(step.limits[index] != limit.bound for step in history)


def facts(optimizer: Optimizer) -> dict[str, Any]:
    """Return the summary as JSON data."""
    history = optimizer.ledger.history()
    costs = _measured(history, 0)
    prices, debt = optimizer.price(), optimizer.debt()
    constraints = {}
    for i, (label, certificate) in enumerate(optimizer.certificate().items()):
        limit, average = optimizer.problem.limits[i], certificate.average
        bound = measured_limit_mean(limit, history, i)
        constraints[label] = certificate.to_json() | {
            "limit_measured": bound,
            "limit_now": limit.bound if _changed(history, i, limit) else bound,
            "holds": None if average is None else limit.sign * (average - bound) <= 0.0,
            "proven": certificate.holds,
            "noise_std": optimizer.noise_std(limit.output)[0],
            "two_sided": two_sided(optimizer.problem, limit),
        }
        if debt is not None and prices is not None:
            constraints[label] |= {"debt": float(debt[i]), "price": float(prices[i])}
    outside: dict[str, int] = {}
    for step in optimizer.ledger.steps.values():
        for name in step.outside if step.status != "dropped" else ():
            outside[name] = outside.get(name, 0) + 1
    return {
        "optimizer": optimizer.name,
        "step": optimizer.step,
        "past_rows": optimizer.past_rows(),
        "horizon": optimizer.horizon,
        "average_objective": float(np.mean(costs)) if costs else None,
        "last_objective": costs[-1] if costs else None,
        "unmeasured_steps": sum(not measured(s.y) for s in history),
        "constraints": constraints,
        "context_outside_range": outside,
        "pending": [{"id": s.id, "parameters": s.parameters, "context": s.context} for s in optimizer.pending],
        "latest": _applied(optimizer, history[-1]) if history else None,
        "notes": [*optimizer.notes(), *_never_measured(optimizer, history), *_astray(optimizer, history)],
    }


def _never_measured(optimizer: Optimizer, history: list[Step]) -> list[str]:
    """Say which limits have no influence, because nobody measured what they limit."""
    if len(history) < FEW or optimizer.past_rows():
        return []
    return [
        f"{name}: it was not measured in any of {steps(len(history))}; as long as it is not, its limit changes nothing"
        for i, name in enumerate(optimizer.problem.constraints, start=1)
        if not _measured(history, i)
    ]


def _astray(optimizer: Optimizer, history: list[Step]) -> list[str]:
    """Say which measurements lie so far from all others that they may be a sensor's fault, and how to undo them."""
    said = []
    for i, name in enumerate(optimizer.problem.outputs):
        told = sorted((step.y[i], step.suggestion.id) for step in history if not np.isnan(step.y[i]))
        if len(told) < FEW:
            continue
        values = np.array([value for value, _ in told])
        place = int(np.argmax(np.diff(values))) + 1
        low, high = told[:place], told[place:]
        few, most = (low, high) if len(low) < len(high) else (high, low)
        spread = most[-1][0] - most[0][0]  # without any, as of counts, one that differs is no fault
        if len(few) <= len(told) // FEW and spread > 0.0 and high[0][0] - low[-1][0] > APART * spread:
            suggestion = few[0][1]
            undo = "objective=None" if i == 0 else f"constraints={{{name!r}: None}}"
            more = "" if len(few) == 1 else f" and {len(few) - 1} more"
            said.append(
                f"{name}: suggestion {suggestion}{more} measured {shown(few[0][0])}, far from all others "
                f"({shown(most[0][0])} to {shown(most[-1][0])}); if that is a fault of the sensor, take it back with "
                f"correct({suggestion}, {undo})"
            )
    return said


def two_sided(problem: Problem, limit: Limit) -> bool:
    """Tell whether a limit is one of two of the same quantity."""
    return sum(other.output == limit.output for other in problem.limits) == 2


def _applied(optimizer: Optimizer, step: Step) -> dict[str, Scalar]:
    """Return the parameters of a step that the plant really ran with."""
    if step.proposed is None:
        return step.suggestion.parameters
    return optimizer.problem.decode_parameters(np.array(step.x[: optimizer.problem.n_theta]))


def _plan(step: int, horizon: int | None) -> str:
    if horizon is None:
        return " in endless operation"
    return f" of {horizon}" if step <= horizon else f", past the {horizon} planned, as in endless operation"


def _sentences(data: dict[str, Any]) -> list[str]:
    lines = [f"{data['optimizer']}: step {data['step']}{_plan(data['step'], data['horizon'])}"]
    if data["past_rows"]:
        rows = "1 row" if data["past_rows"] == 1 else f"{data['past_rows']} rows"
        lines.append(f"  learned from {rows} of past operation, which do not count")
    if data["average_objective"] is not None:
        lines.append(f"  cost: average {shown(data['average_objective'])}, latest {shown(data['last_objective'])}")
    if data["unmeasured_steps"]:
        lines.append(f"  {steps(data['unmeasured_steps'])} ran without any measurement")
    for label, c in data["constraints"].items():
        lines += _constraint_sentences(label, c)
    for name, count in data["context_outside_range"].items():
        lines.append(f"  context {name} was outside its stated range in {steps(count)}")
    if data["latest"] is not None:
        lines.append("  latest parameters: " + ", ".join(f"{k} = {shown(v)}" for k, v in data["latest"].items()))
    for s in data["pending"][:5]:
        lines.append(f"  waiting for the result of suggestion {s['id']}")
    if len(data["pending"]) > 5:
        lines.append(f"  and of {len(data['pending']) - 5} more")
    return lines + [f"  note: {note}" for note in data["notes"]]


def _constraint_sentences(label: str, c: dict[str, Any]) -> list[str]:
    word = "at most" if c["side"] == "upper" else "at least"
    average = c["average"]
    words = shown_apart([c["limit_measured"], c["limit_now"], *([] if average is None else [average])])
    limit = f"{word} {words[0]}"
    if c["limit_measured"] != c["limit_now"]:
        limit += f" (its limits so far on average; from now on {words[1]})"
    if average is None:
        return [f"  {label}: not measured yet; its average must be {limit}"]
    unmeasured = c["steps"] - c["measured"]
    verdict = verdict_on(c["holds"], c["side"]) + where_measured(c["measured"], c["steps"])
    lines = [f"  {label}: average {words[2]}, must be {limit}: {verdict}"]
    percent = 100.0 * (1.0 - c["delta"])
    for kind, source in (("observation", "its measurements"), ("posterior", "the model")):
        bound = c[kind]
        if bound is not None:
            sure = "given" if bound["guaranteed"] else "an estimate, given"
            lines.append(
                f"    by {source} the true average is {word} {shown(bound['value'])}, {percent:.6g}% sure at all times;"
                f" {sure} {bound['assumption']}"
            )
    if c["observation"] is None and c["posterior"] is None:
        lines.append(f"    no bound on the true average: {missing_bound(c['noise_std'], c['two_sided'])}")
    if "price" in c:
        if c["price"] > 0.0:
            owed = f"debt {c['debt']:.4g}" if c["debt"] > 0.0 else "no debt, but the limit binds"
            owed += f" (with {steps(unmeasured)} as the model expects them)" if unmeasured else ""
            way = "less" if c["side"] == "upper" else "more"
            lines.append(f"    {owed}: one unit {way} of {label} is now worth a cost of {c['price']:.4g}")
        else:
            lines.append("    no debt: the limit does not bind, the cost alone decides")
    return lines


def verdict_on(holds: bool, side: str) -> str:
    """Return in words whether an average is on the right side of its limit."""
    if holds:
        return "holds"
    return "is exceeded so far" if side == "upper" else "is not reached so far"


def where_measured(measured: int, count: int) -> str:
    """Return of which steps a verdict is, empty where it is of all."""
    return f" in the {measured} of {steps(count)} that were measured" if 0 < measured < count else ""


def missing_bound(noise_std: float | None, two_sided: bool) -> str:
    """Return why there is no bound on a true average, and what would help."""
    if noise_std is None:
        return "its noise is not stated, and a model learns it from 10 measurements on"
    if two_sided:
        return (
            "it was not measured in every step; state its two sides as two constraints, each with a worst value for"
            " steps without measurement"
        )
    return "it was not measured in every step; state a worst value for steps without measurement"
