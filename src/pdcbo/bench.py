"""`pdcbo bench`: one step of a tuner, ask and tell, through pdcbo and the stacks people use, on the same data.

All stacks run interleaved in one process on one thread and see the same observations; their answers are compared before
anything is timed. Times are CPU times. A round is one step of each stack, and then a few more of the fast ones: the
first of these finds its data pushed out of the caches by the others, as a control loop would.

The floor is the time that the step's arithmetic alone would take at the measured speed of a large matrix product:
n^2 r + n r^2 for one factor, r right-hand sides, half of it for what is done in single precision. It counts all
features; where sums within groups or a coarser level of the features do with less, time may fall below it. Ratios to
scikit-learn, which move less between machines than times, are held against `benchmarks/baseline.json`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import warnings
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from pdcbo.bench_interface import measure
from pdcbo.bench_stacks import STACKS, Setting, Shared, Stack, prepare

LINE = np.linspace(0.0, 1.0, 50)
SETTINGS = {
    "A50": Setting("A50", LINE[:, None], (0.05, 0.05), 2),
    "A1000": Setting("A1000", np.linspace(0.0, 1.0, 1000)[:, None], (0.05, 0.05), 2),
    "B": Setting("B", np.stack(np.meshgrid(LINE, LINE, indexing="ij"), axis=-1).reshape(-1, 2), (1 / 3,) * 6, 3),
}
AGREEMENT = 1e-5
STARTS = 3
BASELINE = Path("benchmarks/baseline.json")
FAST = ("pdcbo shared", "pdcbo separate")
ONE_THREAD = {name: "1" for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")}


def run(out: Path, quick: bool = False, stacks: list[str] | None = None) -> None:
    """Measure in a process of its own with one thread, print the tables, and write them to `out`.

    Args:
        out: directory for `bench.json`, `bench.md`, `bench.png` and `baseline.json`, which may replace the stored one.
        quick: two settings at n = 500 only.
        stacks: names in `STACKS`, by default all that are installed.

    Raises:
        ValueError: a stack is unknown.
    """
    unknown = [name for name in stacks or [] if name not in STACKS]
    if unknown:
        raise ValueError(f"stacks must be among {list(STACKS)!r}, got {unknown[0]!r}")
    command = [sys.executable, "-m", "pdcbo.bench", str(out), str(int(quick)), *(stacks or STACKS)]
    subprocess.run(command, check=True, env={**os.environ, **ONE_THREAD})


def step(stack: Stack, setting: Setting, x: Any, y: Any) -> float:
    """Do one ask and tell; return its CPU time in ms."""
    z = x[setting.candidates.shape[1] :]
    start = time.process_time()
    stack.ask(z)
    stack.tell(x, y)
    return 1e3 * (time.process_time() - start)


def dgemm_rate() -> float:
    """Return the speed of a large matrix product in flops per ms."""
    A = np.random.default_rng(0).normal(size=(1000, 1000))
    times = []
    for _ in range(3):
        start = time.process_time()
        A @ A
        times.append(1e3 * (time.process_time() - start))
    return 2e9 / min(times)


def compare(setting: Setting, n: int, names: list[str], rounds: int, hot: int = 8) -> dict[str, Any]:
    """Measure one setting at n observations; return medians, spreads, the floor and the disagreement, in ms."""
    X, Y = setting.data(n + rounds * (hot + 1))
    # the fast stacks take more steps, and start below n by half of these
    start = {name: n - rounds * (hot + 1) // 2 if name in FAST else n for name in names}
    loaded = {name: STACKS[name](setting, X[: start[name]], Y[: start[name]]) for name in names}
    z = X[n, setting.candidates.shape[1] :]
    references = {m: STACKS["pdcbo plain"](setting, X[:m], Y[:m]).ask(z) for m in set(start.values())}
    disagreement = {}
    for name, stack in loaded.items():
        answer, reference = stack.ask(z), references[start[name]]
        disagreement[name] = max(float(np.abs(a - b).max()) for a, b in zip(answer, reference, strict=True))
        if not disagreement[name] <= AGREEMENT:
            raise RuntimeError(
                f"{name} disagrees with the plain posterior by {disagreement[name]:.1e} in {setting.name}"
            )
        if name not in FAST:  # some keep what the answer above needed: let the timed steps start without it
            step(stack, setting, X[n], Y[n])
    times: dict[str, list[float]] = {name: [] for name in names}
    first: dict[str, list[float]] = {name: [] for name in names if name in FAST}
    rates = []
    for i in range(rounds):
        for name, stack in loaded.items():
            if name not in FAST:
                times[name].append(step(stack, setting, X[n + 1 + i], Y[n + 1 + i]))
                continue
            k = start[name] + i * (hot + 1)
            steps = [step(stack, setting, X[j], Y[j]) for j in range(k, k + hot + 1)]
            first[name].append(steps[0])
            times[name] += steps[1:]
        rates.append(dgemm_rate())
    shared = loaded.get("pdcbo shared")
    model = shared.models[0][1] if isinstance(shared, Shared) else None
    r = model.right_hand_sides if model else 0
    large = r - model.in_single_precision if model else 0
    flops = n * n * (r + large) / 2
    if r < len(setting.candidates):
        flops += n * (r * r + large * large) / 2
    return {
        "setting": setting.name,
        "n": n,
        "right_hand_sides": r,
        "floor": flops / median(rates),
        "dgemm_gflops": median(rates) / 1e6,
        "median": {name: median(values) for name, values in times.items()},
        "spread": {name: [float(q) for q in np.quantile(values, [0.1, 0.9])] for name, values in times.items()},
        "first": {name: median(values) for name, values in first.items()},
        "disagreement": disagreement,
    }


def cold_start(name: str) -> dict[str, float]:
    """Return the median of a few starts: the first may wait for the disk, which the stack is not to blame for."""
    starts = [first_answer(name) for _ in range(STARTS)]
    return {key: median(start[key] for start in starts) for key in starts[0]}


def first_answer(name: str) -> dict[str, float]:
    """Start a process that imports a stack and asks once; return seconds to the answer and MB at n = 500."""
    # a package has its bytecode once it is installed or was imported, unless it must not be written
    env = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    command = [sys.executable, "-m", "pdcbo.bench_stacks", name]
    start = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=env) as process:
        assert process.stdout is not None
        lines = iter(process.stdout.readline, "")
        for line in lines:
            if line.startswith("asked"):
                seconds = time.perf_counter() - start
                memory = [rest.split()[1] for rest in lines if rest.startswith("MB")]
                return {"seconds": seconds, "megabytes": float(memory[0])}
    raise RuntimeError(f"{name} did not answer in a process of its own")


def main(out: Path, quick: bool, wanted: list[str]) -> None:
    """Measure, print and write; `run` calls this in a process of its own."""
    from pdcbo.bench_report import baseline_of, figure, report

    warnings.simplefilter("ignore")
    versions = prepare(wanted)
    names = [name for name in wanted if "not usable" not in versions[name]]
    results = []
    for setting in ("A50", "B") if quick else SETTINGS:
        for n, rounds in ((500, 5),) if quick else ((500, 15), (2000, 7)):
            print(f"measuring {setting}, n = {n} ...", flush=True)
            results.append(compare(SETTINGS[setting], n, names, rounds))
    cold = {name: cold_start(name) for name in names if name not in ("pdcbo separate", "BoTorch conditioned")}
    data = {"versions": versions, "results": results, "cold": cold, "interface": measure(SETTINGS["A50"])}
    baseline = json.loads(BASELINE.read_text()) if BASELINE.exists() else {}
    text = report(data, baseline)
    out.mkdir(parents=True, exist_ok=True)
    (out / "bench.json").write_text(json.dumps(data, indent=1) + "\n")
    (out / "bench.md").write_text(text)
    (out / "baseline.json").write_text(json.dumps(baseline_of(data), indent=1) + "\n")
    figure(data, out / "bench.png")
    try:
        from rich.console import Console
        from rich.markdown import Markdown

        Console(width=140).print(Markdown(text))
    except ImportError:
        print(text)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2] == "1", sys.argv[3:])
