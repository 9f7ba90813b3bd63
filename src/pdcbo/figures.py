"""The figures of a study: one module for notebooks, the HTML report and the live page.

Every function returns a plain `{"data": [...], "layout": {...}}` that Plotly draws; `show` makes a Plotly figure of it
for a notebook. Colours work on a light and on a dark background; backgrounds are transparent. A trace has at most
`POINTS` points: beyond that, each of equal stretches of steps is shown by its lowest and its highest point, so that no
extreme is lost.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from pdcbo.history import History
from pdcbo.optimizers.modelled import ModelBased
from pdcbo.problem import Array, Choice, Scalar

Figure = dict[str, Any]

POINTS = 1000
BLUE, ORANGE, GREEN, RED, GREY = "#3b82f6", "#f59e0b", "#10b981", "#ef4444", "#8b95a5"
PALETTE = (BLUE, ORANGE, GREEN, "#a855f7", "#06b6d4", RED)
ORIGINS = {"model": BLUE, "fallback": RED, "pause": GREY, "known-good": ORANGE}


def constraint_figure(history: History, index: int, noise_std: float | None) -> Figure:
    """Draw a limit: what was measured, its running average, the limit, and the certificate's band."""
    limit = history.problem.limits[index]
    average = history.running_average(limit.output)
    traces = [
        _dots(history.t, history.y[:, limit.output], "measured", GREY),
        _line(history.t, average, "running average", BLUE, 2.5),
    ]
    certified = history.certified(index, noise_std)
    if certified is not None:
        keep = thin(history.t, certified)
        traces += [
            _line(history.t[keep], average[keep], "", BLUE, 0.0, showlegend=False, hoverinfo="skip"),
            _line(history.t[keep], certified[keep], f"certified, {1 - history.delta:.0%}", BLUE, 1.0, dash="dot",
                  fill="tonexty", fillcolor="rgba(59,130,246,0.15)"),
        ]  # fmt: skip
    traces.append(_line(history.t, history.running_limit(index), "limit", RED, 2.0, dash="dash"))
    return _figure(
        traces, f"{limit.label}: average against its limit", "step", limit.constraint, _focus(history, index)
    )


def cost_figure(history: History) -> Figure:
    """Draw the cost: what was measured and its running average."""
    return _figure(
        [
            _dots(history.t, history.y[:, 0], "measured", GREY),
            _line(history.t, history.running_average(0), "running average", BLUE, 2.5),
        ],
        "Cost",
        "step",
        "cost",
    )


def regret_figure(history: History) -> Figure | None:
    """Draw the summed cost above the reference, where it is known."""
    regret = history.regret()
    if regret is None:
        return None
    return _figure(
        [_line(history.t, regret, "regret", BLUE, 2.0)], "Regret against the reference", "step", "summed cost"
    )


def dual_figure(history: History) -> Figure | None:
    """Draw the price of each limit: what one unit of it is worth, in units of the cost."""
    labels = [limit.label for limit in history.problem.limits]
    rows = [note.get("prices") for note in history.notes]
    if not labels or all(row is None for row in rows):
        return None
    prices = np.array([row if row is not None else [np.nan] * len(labels) for row in rows], dtype=float)
    traces = [_line(history.t, prices[:, i], label, PALETTE[i % 6], 2.0) for i, label in enumerate(labels)]
    return _figure(traces, "Price of each limit (dual variable)", "step", "cost a unit")


def operation_figure(history: History) -> Figure:
    """Draw parameters and context over time, one row each, on one time axis."""
    names = [*history.parameters, *history.context]
    traces, layout = [], {}
    origins = [note.get("origin", "model") for note in history.notes]
    for row, name in enumerate(names):
        suffix = "" if row == 0 else str(row + 1)
        values = history.parameters.get(name) or history.context.get(name) or []
        keep = thin(history.t, _numeric(history, name, values))
        trace = {
            "type": "scatter",
            "mode": "markers" if name in history.parameters else "lines",
            "x": history.t[keep].tolist(),
            "y": [values[i] for i in keep],
            "name": name,
            "showlegend": False,
            "xaxis": "x",
            "yaxis": f"y{suffix}",
            "hovertemplate": f"{name} = %{{y}}<br>step %{{x}}<extra></extra>",
        }
        if name in history.parameters:
            trace["marker"] = {"size": 5, "color": [ORIGINS.get(origins[i], BLUE) for i in keep]}
        else:
            trace["line"] = {"color": GREEN, "width": 1.5}
        traces.append(trace)
        height = 1.0 / len(names)
        top = 1.0 - row * height
        layout[f"yaxis{suffix}"] = {
            **_axis(name), "domain": [top - height * 0.82, top],
            "title": {"text": name, "font": {"size": 11}, "standoff": 4},
        }  # fmt: skip
    figure = _figure(traces, "Parameters and context", "step", "")
    figure["layout"].update(layout)
    figure["layout"]["xaxis"]["anchor"] = f"y{len(names) if len(names) > 1 else ''}"
    figure["layout"]["height"] = 90 + 95 * len(names)
    return figure


def posterior_figure(
    optimizer: ModelBased, context: dict[str, Scalar], parameters: dict[str, Scalar], points: int = 60
) -> Figure:
    """Draw what the models believe at a context: each output over each parameter, through the suggestion marked.

    Rows are outputs, columns parameters; the band is the confidence bound that suggestions report.
    """
    problem = optimizer.problem
    theta, z = problem.encode_parameters(parameters), problem.encode_context(context)
    blocks, axes = [], []
    for j, variable in enumerate(problem.parameters.values()):
        u = np.linspace(0.0, 1.0, points if variable.levels is None else min(variable.levels, points))
        block = np.tile(theta, (len(u), 1))
        block[:, j] = u
        blocks.append(problem.snap(block))
        axes.append([variable.decode(float(v)) for v in blocks[-1][:, j]])
    stacked = np.vstack([*blocks, theta[None]])
    mean, std = optimizer.models.predict(np.hstack([stacked, np.tile(z, (len(stacked), 1))]))
    lower, upper = optimizer.lower_upper(mean, std)
    rows, columns = len(problem.outputs), len(problem.parameters)
    traces: list[dict[str, Any]] = []
    layout: dict[str, Any] = {}
    start = 0
    for j, (name, variable) in enumerate(problem.parameters.items()):
        part = slice(start, start + len(axes[j]))
        start = part.stop
        for i, output in enumerate(problem.outputs):
            number = i * columns + j + 1
            suffix = "" if number == 1 else str(number)
            place = {"xaxis": f"x{suffix}", "yaxis": f"y{suffix}", "showlegend": False}
            discrete = {"mode": "markers"} if isinstance(variable, Choice) else {}
            traces += [
                {**_line(axes[j], lower[i, part], "lower", BLUE, 0.0), **place, "hoverinfo": "skip"},
                {**_line(axes[j], upper[i, part], "bounds", BLUE, 0.0), **place, "fill": "tonexty",
                 "fillcolor": "rgba(59,130,246,0.18)", "hoverinfo": "skip"},
                {**_line(axes[j], mean[i, part], output, BLUE, 2.0), **place, **discrete},
                {"type": "scatter", "mode": "markers", "x": [parameters[name]], "y": [float(mean[i, -1])],
                 "marker": {"symbol": "diamond", "size": 11, "color": ORANGE}, "name": "suggestion", **place},
            ]  # fmt: skip
            for limit in problem.limits:
                if limit.output == i:
                    flat = np.full(len(axes[j]), limit.bound)
                    traces.append({**_line(axes[j], flat, "limit", RED, 1.5, dash="dash"), **place})
            gap = 0.12 / columns
            layout[f"xaxis{suffix}"] = {
                **_axis(name if i == rows - 1 else ""), "anchor": f"y{suffix}",
                "domain": [j / columns + (gap if j else 0.0), (j + 1) / columns - (gap if j < columns - 1 else 0.0)],
            }  # fmt: skip
            layout[f"yaxis{suffix}"] = {
                **_axis(output if j == 0 else ""), "anchor": f"x{suffix}",
                "domain": [1.0 - (i + 0.86) / rows, 1.0 - i / rows],
            }  # fmt: skip
    figure = _figure(traces, "What the models believe at the latest context", "", "")
    figure["layout"].update(layout)
    figure["layout"]["height"] = 100 + 170 * rows
    return figure


def history_figures(history: History, noise: list[float | None]) -> dict[str, Figure]:
    """Return every figure that needs no model, by name; `noise` holds the noise level of each output."""
    figures: dict[str, Figure | None] = {
        f"constraint-{i}": constraint_figure(history, i, noise[limit.output])
        for i, limit in enumerate(history.problem.limits)
    }
    figures |= {"cost": cost_figure(history), "regret": regret_figure(history), "duals": dual_figure(history),
                "operation": operation_figure(history)}  # fmt: skip
    return {name: figure for name, figure in figures.items() if figure is not None}


def show(figure: Figure) -> Any:
    """Return a Plotly figure, which a notebook draws."""
    try:
        import plotly.graph_objects as go
    except ModuleNotFoundError as error:
        words = f'show needs {error.name}; install it with: pip install "pdcbo[service]"'
        raise ModuleNotFoundError(words, name=error.name) from None
    return go.Figure(figure)


def thin(t: Array, y: Array, points: int = POINTS) -> list[int]:
    """Return at most `points` indices: of each stretch of steps those of its lowest and highest value, and the ends."""
    n = len(t)
    if n <= points:
        return list(range(n))
    keep = {0, n - 1}
    low, high = np.where(np.isnan(y), np.inf, y), np.where(np.isnan(y), -np.inf, y)
    edges = np.linspace(0, n, points // 2, dtype=int)
    for a, b in pairwise(edges):
        if b > a:
            keep |= {int(a + np.argmin(low[a:b])), int(a + np.argmax(high[a:b]))}
    return sorted(keep)


def _numeric(history: History, name: str, values: list[Any]) -> Array:
    variable = {**history.problem.parameters, **history.problem.context}[name]
    if isinstance(variable, Choice):
        return np.array([variable.encode(v, name) for v in values], dtype=float)
    return np.array(values, dtype=float)


def _focus(history: History, index: int) -> list[float] | None:
    """Return a range of the vertical axis that shows average and limit well, however wild single values are."""
    limit = history.problem.limits[index]
    average = history.running_average(limit.output)[len(history.ids) // 10 :]
    seen = np.concatenate([average[~np.isnan(average)], history.limits[:, index], [limit.bound]])
    measured = history.y[~np.isnan(history.y[:, limit.output]), limit.output]
    if len(measured):
        seen = np.concatenate([seen, np.quantile(measured, [0.02, 0.98])])
    low, high = float(seen.min()), float(seen.max())
    room = 0.12 * (high - low) or 0.1 * abs(high) or 1.0
    return [low - room, high + room]


def _values(y: Any) -> list[Any]:
    return [None if isinstance(v, float) and np.isnan(v) else v for v in np.asarray(y).tolist()]


def _line(x: Any, y: Any, name: str, color: str, width: float, dash: str = "solid", **more: Any) -> dict[str, Any]:
    xs, ys = list(x), np.asarray(y, dtype=float)
    keep = thin(ys, ys) if len(xs) > POINTS else range(len(xs))
    return {
        "type": "scatter", "mode": "lines", "x": [float(xs[i]) if isinstance(xs[i], float) else xs[i] for i in keep],
        "y": _values(ys[list(keep)]), "name": name, "line": {"color": color, "width": width, "dash": dash}, **more,
    }  # fmt: skip


def _dots(t: Array, y: Array, name: str, color: str) -> dict[str, Any]:
    keep = thin(t, y)
    return {
        "type": "scatter", "mode": "markers", "x": t[keep].tolist(), "y": _values(y[keep]), "name": name,
        "marker": {"color": color, "size": 4, "opacity": 0.5},
    }  # fmt: skip


def _axis(title: str) -> dict[str, Any]:
    return {
        "title": {"text": title, "font": {"size": 12}, "standoff": 8}, "gridcolor": "rgba(139,149,165,0.2)",
        "linecolor": "rgba(139,149,165,0.5)", "zeroline": False, "automargin": True, "tickfont": {"size": 11},
    }  # fmt: skip


def _figure(traces: list[dict[str, Any]], title: str, x: str, y: str, y_range: list[float] | None = None) -> Figure:
    layout: dict[str, Any] = {
        "title": {"text": title, "font": {"size": 14}, "x": 0.01, "xanchor": "left"},
        "margin": {"l": 64, "r": 16, "t": 40, "b": 70},
        "height": 300,
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"family": "system-ui, sans-serif", "size": 12},
        "legend": {"orientation": "h", "y": -0.26, "yanchor": "top", "x": 0, "font": {"size": 11}},
        "hovermode": "closest",
        "xaxis": _axis(x),
        "yaxis": _axis(y),
    }
    if y_range is not None:
        layout["yaxis"]["range"] = y_range
    return {"data": traces, "layout": layout}
