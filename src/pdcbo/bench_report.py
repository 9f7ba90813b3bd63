"""Tables and figure of `pdcbo bench`."""

from __future__ import annotations

from collections.abc import Mapping
from math import log
from pathlib import Path
from typing import Any

from pdcbo.bench_stacks import BESIDE_GPY, FAST

# ratios to reach: (setting, n) -> (GPy, BoTorch) for a factor for each function, then for shared hyper-parameters
BARS = {
    ("A50", 500): ((35, 25), (75, 50)),
    ("A50", 2000): ((85, 40), (180, 85)),
    ("B", 500): ((35, 100), (100, 250)),
    ("B", 2000): ((85, 45), (240, 120)),
}
FLOOR_BARS = {500: (10, 4), 2000: (7, 3)}
REGRESSION = 1.3


def baseline_of(data: Mapping[str, Any]) -> dict[str, float]:
    """Return the times of pdcbo relative to scikit-learn, by setting, n and stack."""
    return {
        f"{r['setting']} {r['n']} {name}": r["median"][name] / r["median"]["scikit-learn"]
        for r in data["results"]
        if "scikit-learn" in r["median"]
        for name in (*FAST, "pdcbo plain")
        if name in r["median"]
    }


def report(data: Mapping[str, Any], baseline: Mapping[str, float]) -> str:
    """Return all tables in markdown."""
    parts = [
        _times(data),
        _ratios(data),
        _ratios(data, first=True),
        _beside_gpy(data),
        _others(data),
        _interface(data),
        _regressions(baseline_of(data), baseline),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _table(head: list[str], rows: list[list[str]]) -> str:
    lines = ["| " + " | ".join(row) + " |" for row in [head, ["---"] * len(head), *rows]]
    return "\n".join(lines)


def _times(data: Mapping[str, Any]) -> str:
    results = data["results"]
    head = ["CPU ms a step, median (10-90 %)", *(f"{r['setting']}, n = {r['n']}" for r in results)]
    rows = []
    for name in data["versions"]:
        if "not usable" in data["versions"][name]:
            continue
        cells = []
        for r in results:
            low, high = r["spread"][name]
            cells.append(f"{r['median'][name]:.3g} ({low:.3g}-{high:.3g})")
        rows.append([f"{name} {data['versions'][name]}", *cells])
    for name in FAST:
        if name in results[0]["first"]:
            rows.append([f"{name}, first after other work", *(f"{r['first'][name]:.3g}" for r in results)])
    rows.append(["floor, one factor", *(f"{r['floor']:.3g} (r = {r['right_hand_sides']})" for r in results)])
    rows.append(["dgemm, Gflop/s", *(f"{r['dgemm_gflops']:.0f}" for r in results)])
    rows.append(["largest disagreement", *(f"{max(r['disagreement'].values()):.0e}" for r in results)])
    missing = [f"{name}: {why}." for name, why in data["versions"].items() if "not usable" in why]
    return "\n\n".join([_table(head, rows), *missing])


def _ratios(data: Mapping[str, Any], first: bool = False) -> str:
    """Return the table of ratios, of steps in a row or of the first step after other work, which finds cold caches."""
    rows = []
    for r in data["results"]:
        bars = BARS.get((r["setting"], r["n"]), ((None, None), (None, None)))
        times = r["median"] | (r["first"] if first else {})
        rivals = {"GPy": ["GPy"], "BoTorch": ["BoTorch", "BoTorch conditioned"]}
        cells = [f"{r['setting']}, n = {r['n']}"]
        for i, name in enumerate(FAST):
            if name not in times:
                return ""
            for j, ways in enumerate(rivals.values()):
                best = min((times[way] for way in ways if way in times), default=None)
                bar = f" (bar {bars[i][j]})" if bars[i][j] else ""
                cells.append("-" if best is None else f"{best / times[name]:.0f}x{bar}")
            bar = f" (bar {FLOOR_BARS[r['n']][i]})" if r["n"] in FLOOR_BARS else ""
            cells.append(f"{times[name] / r['floor']:.1f}{bar}" if r["floor"] else "-")
        rows.append(cells)
    columns = ["against GPy", "BoTorch, best way", "time over floor"]
    steps = "first step after other work" if first else "steps in a row"
    head = [steps, *(f"separate: {c}" for c in columns), *(f"shared: {c}" for c in columns)]
    return _table(head, rows)


def _beside_gpy(data: Mapping[str, Any]) -> str:
    """Return the ratios to GPy where pdcbo, too, has the NumPy that GPy wants."""
    names = [name + BESIDE_GPY for name in FAST]
    rows = [
        [f"{r['setting']}, n = {r['n']}", *(f"{r['median']['GPy'] / r['median'][name]:.0f}x" for name in names)]
        for r in data["results"]
        if all(name in r["median"] for name in (*names, "GPy"))
    ]
    return _table(["steps in a row, both with GPy's NumPy", "separate: against GPy", "shared"], rows) if rows else ""


def _others(data: Mapping[str, Any]) -> str:
    by = {(r["setting"], r["n"]): r["median"] for r in data["results"]}
    rows = []
    for name, cold in data["cold"].items():
        cells = [name, f"{cold['seconds']:.2f}", f"{cold['megabytes']:.0f}"]
        for setting in ("A50", "B"):
            known = (setting, 2000) in by
            cells.append(
                f"{log(by[setting, 2000][name] / by[setting, 500][name]) / log(4):.2f}" if known else "not measured"
            )
        rows.append(cells)
    head = [
        "",
        "process start to first ask, s",
        "peak MB at A50, n = 500",
        "growth exponent, A50",
        "growth exponent, B",
    ]
    return _table(head, rows)


def _interface(data: Mapping[str, Any]) -> str:
    found = data["interface"]
    kinds = {
        "paper": ("the paper's setting, hyper-parameters given: names, units, validation and the book", " (bar 0.15)"),
        "default": ("the default, hyper-parameters learned: it also weighs observations and plans prices", ""),
    }
    rows = [
        [words, *(f"{found[kind][key]:.3g}" for key in ("public", "engine")), f"{found[kind]['over']:.2f}{bar}"]
        for kind, (words, bar) in kinds.items()
    ]
    head = [
        f"ask and tell at A50, n = {found['n']}, ms",
        "through `pdcbo.PDCBO`",
        "its bare engine",
        "over (median difference)",
    ]
    e = found["episode"]
    rest = e["seconds"] - e["learning"] - e["planning"]
    shares = {key: f"{value:.2f} s ({100 * value / e['seconds']:.0f} %)" for key, value in {**e, "rest": rest}.items()}
    return _table(head, rows) + (
        f"\n\nAn episode of {e['steps']} steps of setting A by the default: {e['seconds']:.2f} s of CPU in all, of "
        f"which learning hyper-parameters {shares['learning']} (bar 1 s), planning prices {shares['planning']}, engine "
        f"and interface {shares['rest']}."
    )


def _regressions(now: Mapping[str, float], baseline: Mapping[str, float]) -> str:
    shared = [key for key in now if key in baseline]
    if not shared:
        return ""
    rows = [
        [
            key,
            f"{1 / baseline[key]:.0f}x",
            f"{1 / now[key]:.0f}x",
            "slower" if now[key] > REGRESSION * baseline[key] else "",
        ]
        for key in shared
    ]
    return _table(["against scikit-learn", "stored baseline", "now", "regression"], rows)


def figure(data: Mapping[str, Any], path: Path) -> None:
    """Draw the medians on a logarithmic scale, where matplotlib is installed."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return
    results = data["results"]
    names = list(results[0]["median"])
    fig = Figure(figsize=(2.4 * len(results) + 1.5, 3.4), layout="constrained")
    for i, r in enumerate(results):
        ax = fig.add_subplot(1, len(results), i + 1)
        values = [r["median"][name] for name in names]
        ax.barh(names, values, color=["#1b6ca8" if name.startswith("pdcbo") else "#b0b0b0" for name in names])
        for y, value in enumerate(values):
            ax.text(value, y, f" {value:.0f}" if value >= 100.0 else f" {value:.3g}", va="center", fontsize=7)
        ax.axvline(r["floor"], color="#c0392b", lw=1, ls="--")
        ax.set_xscale("log")
        ax.set_xlim(min(r["floor"], *values) / 2, 12 * max(values))
        ax.invert_yaxis()
        ax.set_title(f"{r['setting']}, n = {r['n']}", fontsize=9)
        ax.set_xlabel("CPU ms a step", fontsize=8)
        ax.tick_params(labelsize=7, labelleft=i == 0)
    fig.savefig(path, dpi=130)
