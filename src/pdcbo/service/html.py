"""The pages as text: everything that comes from outside is escaped, numbers are short, words are an operator's."""

from __future__ import annotations

import json
from collections.abc import Iterable
from html import escape
from typing import Any

from pdcbo.optimizers.summary import missing_bound, verdict_on, where_measured
from pdcbo.store.status import age_in_words
from pdcbo.wording import shown, shown_apart

MODES = {"running": "Running", "pause": "Paused", "known-good": "On known-good parameters",
         "unreadable": "Cannot be read"}  # fmt: skip
ORIGINS = {"model": "chosen by the model", "fallback": "the fallback", "pause": "held during a pause",
           "known-good": "known-good"}  # fmt: skip


def index(studies: list[dict[str, Any]]) -> str:
    """Return the list of studies."""
    cards = "".join(_study_card(s) for s in studies)
    empty = '<p class="empty">No study yet. Create one with <code>POST /api/v1/studies</code>.</p>'
    body = f'<main id="main"><h1>Studies</h1><div class="cards">{cards or empty}</div></main>'
    return page("Studies", body, [s["name"] for s in studies], None)


def study(facts: dict[str, Any], problem: dict[str, Any], names: list[str]) -> str:
    """Return a study's page; its script fills the figures and keeps it live."""
    limits = "".join(f'<figure id="constraint-{i}" class="plot"></figure>' for i in range(len(facts["constraints"])))
    tall = '<figure id="operation" class="plot wide"></figure><figure id="posterior" class="plot wide"></figure>'
    body = f"""<main id="main" data-study="{escape(facts["name"])}" data-seq="{facts["seq"]}">
<div class="title"><h1>{escape(facts["name"])}</h1><span id="live" class="live" role="status">connecting</span></div>
<section id="status">{status(facts)}</section>
<section class="orders" aria-label="Orders"><h2>Orders</h2>
<form id="orders"><label for="reason">Reason</label><input id="reason" maxlength="200" autocomplete="off"
 placeholder="for the record">
<button type="button" data-order="pause">Pause</button>
<button type="button" data-order="resume">Resume</button>
<button type="button" data-order="return">Return to known-good</button>
<output id="said"></output></form></section>
<section aria-label="Figures"><h2>Figures</h2><div class="plots">{limits}<figure id="cost" class="plot"></figure>
<figure id="regret" class="plot"></figure><figure id="duals" class="plot"></figure>{tall}</div></section>
{_definition(problem)}</main>
<script src="/static/plotly.min.js" defer></script>"""
    return page(facts["name"], body, names, facts["name"])


def status(facts: dict[str, Any]) -> str:
    """Return the part of the page that changes with every event."""
    alarms = "".join(
        f'<li class="{escape(a["level"])}"><strong>{escape(a["level"].title())}</strong> {escape(a["text"])}</li>'
        for a in facts["alarms"]
    ) or '<li class="fine"><strong>All well</strong> No alarms.</li>'  # fmt: skip
    horizon = facts["horizon"]
    progress = f"of {horizon}" if horizon else "in endless operation"
    bar = f'<progress max="{horizon}" value="{min(facts["step"], horizon)}"></progress>' if horizon else ""
    cards = [
        _card("Step", f"{facts['step']:,}", progress + bar),
        _card("Mode", MODES[facts["mode"]], escape(facts["reason"] or facts["optimizer"])),
        _card("Average cost", _known(facts["average_cost"]), f"latest {_known(facts['last_cost'])}"),
        *(_limit_card(label, c) for label, c in facts["constraints"].items()),
    ]
    return (
        f'<ul class="alarms" aria-live="polite" aria-label="Alarms">{alarms}</ul>'
        f'<div class="cards">{"".join(cards)}</div><div class="pair">{_latest(facts["latest"])}{_pending(facts)}</div>'
    )


def login(message: str) -> str:
    """Return the sign-in page."""
    said = f'<p class="alarm" role="alert">{escape(message)}</p>' if message else ""
    form = (
        '<form method="post" action="/login" class="login"><h1>Sign in</h1>' + said + '<label for="token">Token</label>'
        '<input id="token" name="token" type="password" autocomplete="current-password" required autofocus>'
        "<button>Sign in</button></form>"
    )
    return page("Sign in", f'<main id="main">{form}</main>', [], None, script=False)


def page(title: str, body: str, names: Iterable[str], current: str | None, script: bool = True) -> str:
    """Return a whole page."""
    links = "".join(
        f'<a href="/studies/{escape(n)}"{" aria-current=page" if n == current else ""}>{escape(n)}</a>' for n in names
    )
    code = '<script src="/static/app.js" defer></script>' if script else ""
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{escape(title)} - pdcbo</title>
<meta name="viewport" content="width=device-width, initial-scale=1"><meta name="color-scheme" content="light dark">
<link rel="icon" href="data:,"><link rel="stylesheet" href="/static/app.css"></head>
<body><a class="skip" href="#main">Skip to content</a>
<header><a class="brand" href="/">pdcbo</a><nav aria-label="Studies">{links}</nav></header>{body}{code}</body></html>"""


def _study_card(facts: dict[str, Any]) -> str:
    worst = facts["alarms"][0] if facts["alarms"] else None
    level, text = (worst["level"], worst["text"]) if worst else ("fine", "No alarms.")
    done, planned = facts["step"], facts["horizon"]
    step = "" if done is None else f"step {done:,}" + (f" of {planned:,}" if planned else "")
    return (
        f'<a class="card study {escape(level)}" href="/studies/{escape(facts["name"])}"><span class="label">'
        f'{MODES[facts["mode"]]}</span><span class="value">{escape(facts["name"])}</span>'
        f'<span class="more">{step}</span><span class="more">{escape(text)}</span></a>'
    )


def _card(label: str, value: str, more: str, kind: str = "") -> str:
    return (
        f'<div class="card {kind}"><span class="label">{label}</span><span class="value">{value}</span>'
        f'<span class="more">{more}</span></div>'
    )


def _limit_card(label: str, c: dict[str, Any]) -> str:
    word = "at most" if c["side"] == "upper" else "at least"
    verdict = "not measured yet" if c["holds"] is None else verdict_on(c["holds"], c["side"])
    words = shown_apart([c["limit"], c["limit_now"], *([] if c["average"] is None else [c["average"]])])
    more = f"{word} {words[0]}: <b>{verdict}</b>{where_measured(c['measured'], c['steps'])}"
    if c["limit"] != c["limit_now"]:
        more += f"<br>limit from now on {words[1]}"
    if c["certified"] is not None:
        more += f"<br>{'certified' if c['guaranteed'] else 'estimated to be'} {word} {shown(c['certified'])}"
    elif c["measured"]:
        more += f"<br>no bound by its measurements alone: {missing_bound(c['noise_std'], c['two_sided'])}"
    kind = {None: "", True: "fine", False: "alarm"}[c["holds"]]
    return _card(f"Average {escape(label)}", "none" if c["average"] is None else words[2], more, kind)


def _latest(latest: dict[str, Any] | None) -> str:
    if latest is None:
        return '<div class="panel"><h2>Latest suggestion</h2><p class="empty">Nothing was asked yet.</p></div>'
    values = _rows("parameter", latest["parameters"]) + _rows("context", latest["context"])
    words = "".join(f'<p class="note">{escape(w)}</p>' for w in [latest["why"], *latest["guarded"]] if w)
    return (
        f'<div class="panel"><h2>Latest suggestion</h2><p>Number {latest["id"]}, {ORIGINS[latest["origin"]]}.</p>'
        f"{words}"
        f'<div class="scroll"><table><thead><tr><th>Name</th><th>Value</th><th></th></tr></thead>'
        f"<tbody>{values}</tbody></table></div></div>"
    )


def _rows(kind: str, values: dict[str, Any]) -> str:
    return "".join(
        f'<tr><th scope="row">{escape(str(n))}</th><td>{escape(shown(v))}</td><td class="kind">{kind}</td></tr>'
        for n, v in values.items()
    )


def _pending(facts: dict[str, Any]) -> str:
    rows = "".join(
        f"<tr><td>{p['id']}</td><td>{age_in_words(p['age'])}</td>"
        f"<td>{escape(', '.join(f'{k} = {shown(v)}' for k, v in p['parameters'].items()))}</td></tr>"
        for p in facts["pending"][:20]
    )
    more = len(facts["pending"]) - 20
    table = (
        f'<div class="scroll"><table><thead><tr><th>Number</th><th>Age</th><th>Parameters</th></tr></thead>'
        f"<tbody>{rows}</tbody></table></div>" + (f"<p>and {more} more</p>" if more > 0 else "")
        if rows
        else '<p class="empty">Every suggestion has its result.</p>'
    )
    return f'<div class="panel"><h2>Waiting for a result</h2>{table}</div>'


def _definition(problem: dict[str, Any]) -> str:
    text = escape(json.dumps(problem, indent=1))
    return f'<details class="panel"><summary>Definition of the problem</summary><pre>{text}</pre></details>'


def _known(value: float | None) -> str:
    return "none" if value is None else shown(value)
