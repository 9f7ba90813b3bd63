"""The state of a study as an operator sees it: numbers, pending suggestions with their age, alarms in words.

All of it comes from the record, which is always up to date, so that looking never waits for a model; only noise levels
that nobody stated are taken from the models, as they were when last used. What the record shows is made once for each
seq, however many look, and most of it while others write; ages and what is wrong just now come on top.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np

from pdcbo.history import History
from pdcbo.optimizers.ledger import Step
from pdcbo.optimizers.summary import two_sided
from pdcbo.store.replay import Record
from pdcbo.store.study import Study
from pdcbo.wording import shown_apart

ALARM, WARNING, NOTE = "alarm", "warning", "note"
RANK = {ALARM: 0, WARNING: 1, NOTE: 2}
Alarms = list[tuple[str, str]]


def history_of(record: Record) -> History:
    """Return a study's steps as columns."""
    book = record.book
    return History.of(book.problem, book.ledger, book.horizon, book.delta, record.notes)


@dataclass(frozen=True)
class Seen:
    """What the record of a study shows at one seq; shared by all who look, so read it only.

    Attributes:
        noise: the noise levels that it was made with.
        facts: of the status, all but pending suggestions and alarms.
        waiting: of each pending suggestion the time when it was asked for and what is shown of it.
        patience: the age from which one of them is worth a word.
        pressing: alarms, level and text, that come before those of the moment.
        other: alarms that come after them.
    """

    noise: list[float | None]
    facts: dict[str, Any]
    waiting: list[tuple[float, dict[str, Any]]]
    patience: float
    pressing: Alarms
    other: Alarms


def status(study: Study) -> dict[str, Any]:
    """Return the state of a study as JSON data."""
    return describe(look(study), study.trouble, study.checkpoint_trouble)


def look(study: Study) -> Seen:
    """Return what the record shows, made anew only after the study has changed."""
    noise = study.noise_levels()
    with study.looking:  # whoever comes meanwhile waits for the same instead of making it again
        seen: Seen | None = study.seen
        with study.record() as record:
            if seen is not None and (seen.facts["seq"], seen.noise) == (record.seq, noise):
                return seen
            make = _taken(study.name, record, noise)
        seen = study.seen = make()
        return seen


def describe(seen: Seen, trouble: str | None = None, checkpoint_trouble: str | None = None) -> dict[str, Any]:
    """Return the state of a study now, from what its record shows and what is wrong with its models and checkpoints."""
    now = time.time()
    pending = [{**shown, "age": max(0.0, now - asked)} for asked, shown in seen.waiting]
    alarms = [*seen.pressing, *_of_the_moment(seen, pending, trouble, checkpoint_trouble), *seen.other]
    ranked = [{"level": level, "text": text} for level, text in sorted(alarms, key=lambda alarm: RANK[alarm[0]])]
    return {**seen.facts, "pending": pending, "alarms": ranked}


def _taken(name: str, record: Record, noise: list[float | None]) -> Callable[[], Seen]:
    """Take what is needed of a record, which may change afterwards, and return what makes the rest of it."""
    steps, notes, latest = record.book.ledger.steps, record.notes, next(reversed(record.notes), None)
    outcomes = _outcomes(record)
    waiting = [
        (asked, {"id": i, "parameters": steps[i].suggestion.parameters, "context": steps[i].suggestion.context,
                 "origin": notes[i]["origin"]})
        for i, asked in record.open.items()
    ]  # fmt: skip
    facts = {
        "name": name,
        "optimizer": record.created["optimizer"],
        "seq": record.seq,
        "step": record.book.step,
        "horizon": record.book.horizon,
        "mode": "known-good" if record.returning else "pause" if record.paused else "running",
        "reason": record.returning or record.paused,
        "latest": None if latest is None else {
            **steps[latest].suggestion.to_json(), **{k: notes[latest][k] for k in ("origin", "why", "guarded")},
        },
        "guards": record.guards.to_json(),
        "known_good": record.known_good,
        "past_rows": record.warm,
    }  # fmt: skip
    patience, orders, other = _patience(record), _orders(record), _others(record, facts)

    def make() -> Seen:
        history = outcomes()
        limits = history.problem.limits
        costs = history.y[~np.isnan(history.y[:, 0]), 0]
        facts["average_cost"] = float(costs.mean()) if len(costs) else None
        facts["last_cost"] = float(costs[-1]) if len(costs) else None
        facts["constraints"] = {li.label: _constraint(history, i, noise[li.output]) for i, li in enumerate(limits)}
        return Seen(noise, facts, waiting, patience, [*_limit_alarms(facts), *orders], other)

    return make


def _outcomes(record: Record) -> Callable[[], History]:
    """Return what makes the columns of outcomes and limits, without those of points, as they are now."""
    book, ledger = record.book, record.book.ledger
    problem, ids, steps = book.problem, list(ledger.counted), ledger.history()
    y, limits = [step.y for step in steps], [step.limits for step in steps]
    worst = [ledger.stated_worst(li, problem.constraints[li.constraint].worst) for li in problem.limits]

    def make() -> History:
        n, q = len(ids), len(problem.outputs)
        columns = np.array(y, dtype=float).reshape(n, q), np.array(limits, dtype=float).reshape(n, len(problem.limits))
        return History(problem, book.horizon, book.delta, worst, ids, *columns, {}, {}, [])

    return make


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
        "guaranteed": history.problem.constraints[limit.constraint].noise is not None,
        "noise_std": noise_std,
        "two_sided": two_sided(history.problem, limit),
        "measured": measured,
        "steps": n,
        "holds": bool(limit.sign * (average - bound) <= 0.0) if measured else None,
    }


def _limit_alarms(facts: dict[str, Any]) -> Alarms:
    found = []
    for label, c in facts["constraints"].items():
        if c["holds"] is False and c["measured"] >= 10:
            word = "above its limit" if c["side"] == "upper" else "below its limit"
            average, bound = shown_apart([c["average"], c["limit"]])
            text = f"The average of {label} is {average}, {word} of {bound}"
            if abs(c["average"] - c["limit"]) > (c["doubt"] or 0.0):
                found.append((ALARM, f"{text}."))
            else:
                found.append((WARNING, f"{text}, by no more than measurement noise may explain."))
    return found


def _orders(record: Record) -> Alarms:
    if record.returning:
        return [(WARNING, f"The plant is on its known-good parameters ({record.returning}) until you resume.")]
    if record.paused is not None:
        return [(WARNING, f"The study is paused ({record.paused}): parameters are held until you resume.")]
    return []


def _of_the_moment(
    seen: Seen, pending: list[dict[str, Any]], trouble: str | None, checkpoint_trouble: str | None
) -> Alarms:
    """Say what is wrong in this process or by now; the rest of the alarms changes with the record only."""
    found: Alarms = []
    latest = seen.facts["latest"]
    if latest is not None and latest["origin"] == "fallback":
        found.append((ALARM, f"The latest suggestion {latest['id']} is the fallback: {latest['why']}."))
    elif trouble is not None:
        found.append((ALARM, f"The model could not be formed: {trouble}."))
    if checkpoint_trouble is not None:
        found.append((WARNING, f"Checkpoints cannot be written: {checkpoint_trouble}."))
    old = [p for p in pending if p["age"] > seen.patience]
    if old:
        found.append((WARNING, f"{_number(len(old), 'suggestion')} waiting for a result, the oldest (suggestion "
                               f"{old[0]['id']}) for {age_in_words(old[0]['age'])}."))  # fmt: skip
    return found


def _others(record: Record, facts: dict[str, Any]) -> Alarms:
    found: Alarms = []
    recent: list[Step] = [record.book.ledger.steps[i] for i in record.book.ledger.counted[-20:]]
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
    latest = facts["latest"]
    if latest is not None and latest["guarded"]:
        found.append((NOTE, f"A guard changed suggestion {latest['id']}: {'; '.join(latest['guarded'])}."))
    if facts["horizon"] is not None and facts["step"] >= facts["horizon"]:
        found.append((NOTE, f"The planned {facts['horizon']} steps are done; it goes on as in endless operation."))
    return found


def _patience(record: Record) -> float:
    """Return the age from which a pending suggestion is worth a word: ten times what one usually takes."""
    recent = islice(reversed(record.notes.values()), 50)
    times = [note["settled"] - note["asked"] for note in recent if "settled" in note]
    return max(60.0, 10.0 * float(np.median(times))) if times else 600.0


def _number(count: int, word: str) -> str:
    return f"{count} {word} is" if count == 1 else f"{count} {word}s are"


def age_in_words(seconds: float) -> str:
    """Say how long ago something was."""
    for size, word in ((86400.0, "day"), (3600.0, "hour"), (60.0, "minute")):
        if seconds >= 2.0 * size:
            return f"{seconds / size:.0f} {word}s"
    return f"{seconds:.0f} seconds"
