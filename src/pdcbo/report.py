"""A study as one HTML file that opens anywhere: summary, certificate and figures, with Plotly's script inside."""

from __future__ import annotations

import json
import os
import time
from html import escape
from importlib.resources import files
from pathlib import Path

from pdcbo import figures
from pdcbo.optimizers.modelled import ModelBased
from pdcbo.store import Study
from pdcbo.store.status import history_of, status

STYLE = """body{font:15px/1.5 system-ui,sans-serif;max-width:1100px;margin:2rem auto;padding:0 1rem;color:#17202e}
pre{background:#f5f7fa;padding:1rem;border-radius:8px;overflow-x:auto}figure{margin:1rem 0}
li.alarm{color:#b91c1c}li.warning{color:#92600a}"""


def report(study: Study, path: str | os.PathLike[str]) -> Path:
    """Write the report of a study, whole or not at all, and return its path."""
    target = Path(path)
    if target.is_dir():
        raise IsADirectoryError(f"{path} is a folder; name a file in it")
    facts = status(study)
    with study.record() as record:
        history = history_of(record)
        latest = record.latest
    drawn = figures.history_figures(history, study.noise_levels())
    with study.optimizer() as optimizer:
        words = str(optimizer.summary())
        if isinstance(optimizer, ModelBased) and latest is not None:
            drawn["posterior"] = figures.posterior_figure(optimizer, latest.context, latest.parameters)
    alarms = "".join(f'<li class="{a["level"]}">{escape(a["text"])}</li>' for a in facts["alarms"])
    # "<" is written as an escape, so that no name can end the script element.
    data = json.dumps(drawn, allow_nan=False).replace("<", "\\u003c")
    script = (files("plotly") / "package_data" / "plotly.min.js").read_text(encoding="utf-8")
    page = f"""<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(study.name)}</title>
<style>{STYLE}</style></head><body><h1>{escape(study.name)}</h1>
<p>Written {time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())} after {facts["seq"]} events.</p>
<ul>{alarms or "<li>No alarms.</li>"}</ul><pre>{escape(words)}</pre>
{"".join(f'<figure id="{escape(name)}"></figure>' for name in drawn)}
<script>{script}</script><script>const figures = {data};
for (const [name, f] of Object.entries(figures)) Plotly.newPlot(name, f.data, f.layout, {{responsive: true}});</script>
</body></html>"""
    part = target.with_name(target.name + ".part")
    try:
        part.write_text(page, encoding="utf-8")
        os.replace(part, target)
    finally:
        part.unlink(missing_ok=True)
    return target
