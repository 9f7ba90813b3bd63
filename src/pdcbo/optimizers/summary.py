"""What an operator wants to know, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from pdcbo.optimizers.ledger import measured

if TYPE_CHECKING:
    from pdcbo.optimizers.base import Optimizer


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
    data = facts(optimizer)
    parts = [f"step {data['step']} " + ("in endless operation" if data["horizon"] is None else f"of {data['horizon']}")]
    if data["average_objective"] is not None:
        parts.append(f"cost average {data['average_objective']:.6g}")
    for label, c in data["constraints"].items():
        average = "not measured yet" if c["average"] is None else f"average {c['average']:.6g}"
        price = f", price {c['price']:.4g} a unit" if "price" in c else ""
        parts.append(f"{label} {average}, limit {'<=' if c['side'] == 'upper' else '>='} {c['limit']:.6g}{price}")
    return "; ".join([*parts, f"{len(data['pending'])} pending"])


def facts(optimizer: Optimizer) -> dict[str, Any]:
    """Return the summary as JSON data."""
    history = optimizer.ledger.history()
    costs = [s.y[0] for s in history if s.y and not np.isnan(s.y[0])]
    prices = getattr(optimizer, "price", None)
    debt = getattr(optimizer, "debt", None)
    constraints = {}
    for i, (label, certificate) in enumerate(optimizer.certificate().items()):
        constraints[label] = certificate.to_json()
        if debt is not None and prices is not None:
            constraints[label] |= {"debt": float(debt()[i]), "price": float(prices()[i])}
    outside: dict[str, int] = {}
    for step in optimizer.ledger.steps.values():
        for name in step.outside if step.status != "dropped" else ():
            outside[name] = outside.get(name, 0) + 1
    return {
        "optimizer": optimizer.name,
        "step": optimizer.step,
        "horizon": optimizer.horizon,
        "average_objective": float(np.mean(costs)) if costs else None,
        "last_objective": costs[-1] if costs else None,
        "unmeasured_steps": sum(not measured(s.y) for s in history),
        "constraints": constraints,
        "context_outside_range": outside,
        "pending": [{"id": s.id, "parameters": s.parameters, "context": s.context} for s in optimizer.pending],
        "latest": history[-1].suggestion.parameters if history else None,
        "notes": list(getattr(optimizer, "notes", lambda: [])()),
    }


def _sentences(data: dict[str, Any]) -> list[str]:
    horizon = "in endless operation" if data["horizon"] is None else f"of {data['horizon']}"
    lines = [f"{data['optimizer']}: step {data['step']} {horizon}"]
    if data["average_objective"] is not None:
        lines.append(f"  cost: average {data['average_objective']:.6g}, latest {data['last_objective']:.6g}")
    if data["unmeasured_steps"]:
        lines.append(f"  {data['unmeasured_steps']} steps ran without any measurement")
    for label, c in data["constraints"].items():
        lines += _constraint_sentences(label, c)
    for name, count in data["context_outside_range"].items():
        lines.append(f"  context {name} was outside its stated range in {count} steps")
    if data["latest"] is not None:
        lines.append("  latest parameters: " + ", ".join(f"{k} = {_short(v)}" for k, v in data["latest"].items()))
    for s in data["pending"][:5]:
        lines.append(f"  waiting for the result of suggestion {s['id']}")
    if len(data["pending"]) > 5:
        lines.append(f"  and of {len(data['pending']) - 5} more")
    return lines + [f"  note: {note}" for note in data["notes"]]


def _constraint_sentences(label: str, c: dict[str, Any]) -> list[str]:
    sign = 1.0 if c["side"] == "upper" else -1.0
    word = "at most" if c["side"] == "upper" else "at least"
    if c["average"] is None:
        return [f"  {label}: not measured yet; its average must be {word} {c['limit']:.6g}"]
    verdict = "holds" if sign * (c["average"] - c["limit"]) <= 0.0 else "is exceeded so far"
    lines = [f"  {label}: average {c['average']:.6g}, must be {word} {c['limit']:.6g}: {verdict}"]
    if c["measured"] < c["steps"]:
        lines.append(f"    measured in {c['measured']} of {c['steps']} steps")
    for kind in ("observation", "posterior"):
        bound = c[kind]
        if bound is not None:
            sure = "certain" if bound["guaranteed"] else "estimated"
            percent = 100.0 * (1.0 - c["delta"])
            lines.append(
                f"    true average {word} {bound['value']:.6g} with {percent:.6g}% confidence, at all times"
                f" ({sure}; assumes {bound['assumption']})"
            )
    if "price" in c:
        if c["price"] > 0.0:
            owed = f"debt {c['debt']:.4g}" if c["debt"] > 0.0 else "no debt, but the limit binds"
            lines.append(f"    {owed}: one unit less of {label} is now worth a cost of {c['price']:.4g}")
        else:
            lines.append("    no debt: the limit does not bind, the cost alone decides")
    return lines


def _short(value: object) -> str:
    return f"{value:.5g}" if isinstance(value, float) else str(value)
