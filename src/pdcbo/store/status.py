"""The state of a study as an operator sees it: numbers, pending suggestions with their age, alarms in words.

All of it comes from the record, which is always up to date, so that looking never waits for a model; only noise levels
that nobody stated are taken from the models, as they were when last used.
"""

from __future__ import annotations

import math
import time
from typing import Any

import numpy as np

from pdcbo.history import History
from pdcbo.store.replay import Record
from pdcbo.store.study import Study

ALARM, WARNING, NOTE = "alarm", "warning", "note"


def history_of(record: Record) -> History:
    """Return a study's steps as columns."""
    book = record.book
    return History.of(book.problem, book.ledger, book.horizon, book.delta, record.notes)


def status(study: Study) -> dict[str, Any]:
    """Return the state of a study as JSON data."""
    now = time.time()
    noise = study.noise_levels()
    with study.record() as record:
        history = history_of(record)
        steps = record.book.ledger.steps
        pending = [
            {"id": i, "age": max(0.0, now - asked), "parameters": steps[i].suggestion.parameters,
             "context": steps[i].suggestion.context, "origin": record.notes[i]["origin"]}
            for i, asked in record.open.items()
        ]  # fmt: skip
        last = next(reversed(record.notes), None)
        constraints = {
            limit.label: _constraint(history, i, noise[limit.output])
            for i, limit in enumerate(record.book.problem.limits)
        }
        costs = history.y[~np.isnan(history.y[:, 0]), 0]
        facts = {
            "name": study.name,
            "optimizer": record.created["optimizer"],
            "seq": record.seq,
            "step": len(history.ids),
            "horizon": record.book.horizon,
            "mode": "known-good" if record.returning else "pause" if record.paused else "running",
            "reason": record.returning or record.paused,
            "average_cost": float(costs.mean()) if len(costs) else None,
            "last_cost": float(costs[-1]) if len(costs) else None,
            "constraints": constraints,
            "pending": pending,
            "latest": None if last is None else {
                **steps[last].suggestion.to_json(), "origin": record.notes[last]["origin"],
                "why": record.notes[last]["why"], "guarded": record.notes[last]["guarded"],
            },
            "guards": record.guards.to_json(),
            "known_good": record.known_good,
            "past_rows": record.warm,
        }  # fmt: skip
        facts["alarms"] = _alarms(study, record, history, facts, now)
    return facts


def _constraint(history: History, index: int, noise_std: float | None) -> dict[str, Any]:
    limit = history.problem.limits[index]
    n = len(history.ids)
    average = history.running_average(limit.output)[-1] if n else math.nan
    certified = history.certified(index, noise_std) if n else None
    known = ~np.isnan(history.y[:, limit.output])
    measured = int(known.sum())
    held = history.limits[known if measured else slice(None), index]  # the limits of the steps the average is of
    bound = float(held.mean()) if n else limit.bound
    doubt = None
    if measured and noise_std is not None:
        doubt = float(history.noise_boundary(index, noise_std)[-1]) / measured
    return {
        "side": "upper" if limit.sign > 0 else "lower",
        "limit": bound,
        "limit_now": limit.bound if (history.limits[:, index] != limit.bound).any() else bound,
        "average": float(average) if measured else None,
        "doubt": doubt,
        "certified": None if certified is None or math.isnan(certified[-1]) else float(certified[-1]),
        "measured": measured,
        "steps": n,
        "holds": bool(limit.sign * (average - bound) <= 0.0) if measured else None,
    }


def _alarms(study: Study, record: Record, history: History, facts: dict[str, Any], now: float) -> list[dict[str, str]]:
    """Say in words what an operator should know, the most pressing first."""
    found: list[tuple[str, str]] = []
    for label, c in facts["constraints"].items():
        if c["holds"] is False and c["measured"] >= 10:
            word = "above its limit" if c["side"] == "upper" else "below its limit"
            text = f"The average of {label} is {c['average']:.5g}, {word} of {c['limit']:.5g}"
            if abs(c["average"] - c["limit"]) > (c["doubt"] or 0.0):
                found.append((ALARM, f"{text}."))
            else:
                found.append((WARNING, f"{text}, by no more than measurement noise may explain."))
    latest = facts["latest"]
    if latest is not None and latest["origin"] == "fallback":
        found.append((ALARM, f"The latest suggestion {latest['id']} is the fallback: {latest['why']}."))
    elif study.trouble is not None:
        found.append((ALARM, f"The model could not be formed: {study.trouble}."))
    if study.checkpoint_trouble is not None:
        found.append((WARNING, f"Checkpoints cannot be written: {study.checkpoint_trouble}."))
    if record.returning:
        found.append((WARNING, f"The plant is on its known-good parameters ({record.returning}) until you resume."))
    elif record.paused is not None:
        found.append((WARNING, f"The study is paused ({record.paused}): parameters are held until you resume."))
    old = [p for p in facts["pending"] if p["age"] > _patience(record)]
    if old:
        found.append((WARNING, f"{_number(len(old), 'suggestion')} waiting for a result, the oldest (suggestion "
                               f"{old[0]['id']}) for {age_in_words(old[0]['age'])}."))  # fmt: skip
    recent = [record.book.ledger.steps[i] for i in history.ids[-20:]]
    outside = sorted({name for step in recent for name in step.outside})
    if outside:
        found.append((WARNING, f"The context left its stated range in the last 20 steps: {', '.join(outside)}."))
    unmeasured = sum(all(math.isnan(v) for v in step.y) for step in recent)
    if unmeasured > 5:
        found.append((WARNING, f"{unmeasured} of the last {len(recent)} steps ran without any measurement."))
    try:
        record.guards.admit(record.book.problem, record.known_good or {}, "known_good")
    except ValueError as error:
        found.append((WARNING, f"The known-good parameters cannot be reached: {error}."))
    for i, output in enumerate(record.book.problem.outputs):
        missing = sum(math.isnan(step.y[i]) for step in recent)
        if missing > max(unmeasured, 0.5 * len(recent)) and len(recent) >= 10:
            found.append((NOTE, f"{output} was not measured in {missing} of the last {len(recent)} steps."))
    if latest is not None and latest["guarded"]:
        found.append((NOTE, f"A guard changed suggestion {latest['id']}: {'; '.join(latest['guarded'])}."))
    if record.book.horizon is not None and facts["step"] >= record.book.horizon:
        found.append((NOTE, f"The planned {record.book.horizon} steps are done; it goes on as in endless operation."))
    rank = {ALARM: 0, WARNING: 1, NOTE: 2}
    return [{"level": level, "text": text} for level, text in sorted(found, key=lambda a: rank[a[0]])]


def _patience(record: Record) -> float:
    """Return the age from which a pending suggestion is worth a word: ten times what one usually takes."""
    times = [n["settled"] - n["asked"] for n in list(record.notes.values())[-50:] if "settled" in n]
    return max(60.0, 10.0 * float(np.median(times))) if times else 600.0


def _number(count: int, word: str) -> str:
    return f"{count} {word} is" if count == 1 else f"{count} {word}s are"


def age_in_words(seconds: float) -> str:
    """Say how long ago something was."""
    for size, word in ((86400.0, "day"), (3600.0, "hour"), (60.0, "minute")):
        if seconds >= 2.0 * size:
            return f"{seconds / size:.0f} {word}s"
    return f"{seconds:.0f} seconds"
