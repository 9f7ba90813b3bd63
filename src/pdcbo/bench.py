"""`pdcbo bench`: one step of a tuner, ask and tell, through pdcbo and the stacks people use, on the same data.

All stacks run interleaved, one at a time, on one thread, each in a process of its own (`pdcbo.bench_worker`) with the
packages that pip gives it, and see the same observations; their answers are compared before anything is timed. Times
are CPU times. A round is one step of each stack, and then a few more of the fast ones: the first of these finds its
data pushed out of the caches by the others, as a control loop would. Where GPy has an interpreter of its own, pdcbo is
timed with that one's NumPy, too.

The floor is the time that the step's arithmetic alone would take at the measured speed of a large matrix product:
n^2 r + n r^2 for one factor, r right-hand sides, half of it for what is done in single precision. It counts all
features; where sums within groups or a coarser level of the features do with less, time may fall below it. Ratios to
scikit-learn, which move less between machines than times, are held against `benchmarks/baseline.json`.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
import warnings
from collections.abc import Mapping
from contextlib import ExitStack, closing
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from pdcbo.bench_interface import measure
from pdcbo.bench_stacks import BESIDE_GPY, FAST, SETTINGS, STACKS, Plain, Setting
from pdcbo.bench_worker import PACKAGES, Remote, Worker

AGREEMENT = 1e-5
STARTS = 3
BASELINE = Path("benchmarks/baseline.json")
KEPT = 2**30
ENVIRONMENT = {
    # a process that gives freed memory back takes page faults at each step to have it again, now many and now few
    "GLIBC_TUNABLES": f"glibc.malloc.trim_threshold={KEPT}:glibc.malloc.mmap_threshold={KEPT}",
    **{name: "1" for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")},
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "CUDA_VISIBLE_DEVICES": "-1",
}


def run(
    out: Path, quick: bool = False, stacks: list[str] | None = None, pythons: Mapping[str, str] | None = None
) -> None:
    """Measure in a process of its own with one thread, print the tables, and write them to `out`.

    Args:
        out: directory for `bench.json`, `bench.md`, `bench.png` and `baseline.json`, which may replace the stored one.
        quick: two settings at n = 500 only.
        stacks: names in `STACKS`, by default all that are installed.
        pythons: interpreters of stacks that want an environment of their own, by the first word of their names.

    Raises:
        ValueError: a stack is unknown, or an interpreter is not there.
        SystemExit: no stack can be timed, or one disagrees with the others.
    """
    unknown = [name for name in stacks or [] if name not in STACKS]
    if unknown:
        raise ValueError(f"stacks must be among {list(STACKS)!r}, got {unknown[0]!r}")
    for kind, python in (pythons or {}).items():
        if kind not in PACKAGES:
            raise ValueError(f"python must be for one of {list(PACKAGES)!r}, got {kind!r}")
        if shutil.which(python) is None:
            raise ValueError(f"python of {kind} must be an interpreter with it and pdcbo installed, got {python!r}")
    arguments = json.dumps(
        {"out": str(out), "quick": quick, "wanted": stacks or list(STACKS), "pythons": pythons or {}}
    )
    done = subprocess.run([sys.executable, "-m", "pdcbo.bench", arguments], env={**os.environ, **ENVIRONMENT})
    if done.returncode:
        raise SystemExit(done.returncode)  # it said why


def dgemm_rate() -> float:
    """Return the speed of a large matrix product in flops per ms."""
    A = np.random.default_rng(0).normal(size=(1000, 1000))
    times = []
    for _ in range(3):
        start = time.process_time()
        A @ A
        times.append(1e3 * (time.process_time() - start))
    return 2e9 / min(times)


def compare(setting: Setting, n: int, workers: Mapping[str, Worker], rounds: int, hot: int = 8) -> dict[str, Any]:
    """Measure one setting at n observations; return medians, spreads, the floor and the disagreement, in ms.

    Raises:
        RuntimeError: a stack disagrees with the plain posterior.
    """
    end = n + rounds * (hot + 1) + 1
    # the fast stacks take more steps, and start below n by half of these
    fast = {name: name.startswith(FAST) for name in workers}
    begin = {name: n - rounds * (hot + 1) // 2 if fast[name] else n for name in workers}
    sizes = [worker.load(setting.name, begin[name], end) for name, worker in workers.items()]
    r, large = max(sizes, default=(0, 0))
    X, Y = setting.data(end)
    z = X[n, setting.candidates.shape[1] :]
    references = {m: Plain(setting, X[:m], Y[:m]).ask(z) for m in set(begin.values())}
    disagreement = {}
    for name, worker in workers.items():
        pairs = zip(worker.answer(n), references[begin[name]], strict=True)
        disagreement[name] = max(float(np.abs(np.array(answer) - reference).max()) for answer, reference in pairs)
        if not disagreement[name] <= AGREEMENT:
            raise RuntimeError(
                f"{name} disagrees with the plain posterior by {disagreement[name]:.1e} in {setting.name}"
            )
        if not fast[name]:  # some keep what the answer above needed: let the timed steps start without it
            worker.steps(n, n + 1)
    times: dict[str, list[float]] = {name: [] for name in workers}
    first: dict[str, list[float]] = {name: [] for name in workers if fast[name]}
    rates = []
    for i in range(rounds):
        for name, worker in workers.items():
            if fast[name]:
                k = begin[name] + i * (hot + 1)
                after_others, *in_a_row = worker.steps(k, k + hot + 1)
                first[name].append(after_others)
                times[name] += in_a_row
            else:
                times[name] += worker.steps(n + 1 + i, n + 2 + i)
        rates.append(dgemm_rate())
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


def cold_start(name: str, python: str = sys.executable) -> dict[str, float]:
    """Return the median of a few starts: the first may wait for the disk, which the stack is not to blame for."""
    starts = [first_answer(name, python) for _ in range(STARTS)]
    return {key: median(start[key] for start in starts) for key in starts[0]}


def first_answer(name: str, python: str) -> dict[str, float]:
    """Start a process that imports a stack and asks once; return seconds to the answer and MB at n = 500."""
    # a package has its bytecode once it is installed or was imported, unless it must not be written
    env = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    command = [python, "-m", "pdcbo.bench_worker", "start", name]
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


def start_all(
    wanted: list[str], pythons: Mapping[str, str], end: ExitStack
) -> tuple[dict[str, Worker], dict[str, str]]:
    """Start the stacks that can be had; return them, and for all the version or why it is missing."""
    workers: dict[str, Worker] = {}
    versions = {}

    def begin(label: str, name: str, python: str) -> None:
        worker = end.enter_context(closing(Remote(name, python)))
        try:
            versions[label] = worker.version()
            workers[label] = worker
        except RuntimeError as error:
            versions[label] = "not usable: " + str(error).removeprefix(f"{name}: ")
            print(f"{label}: {versions[label]}", flush=True)
            worker.close()

    for name in wanted:
        begin(name, name, pythons.get(name.split()[0], sys.executable))
    if "GPy" in pythons and "GPy" in workers:
        for name in FAST:
            if name in workers:
                begin(name + BESIDE_GPY, name, pythons["GPy"])
    return workers, versions


def main(out: Path, quick: bool, wanted: list[str], pythons: Mapping[str, str]) -> None:
    """Measure, print and write; `run` calls this in a process of its own."""
    from pdcbo.bench_report import baseline_of, figure, report

    warnings.simplefilter("ignore")
    results = []
    with ExitStack() as end:
        workers, versions = start_all(wanted, pythons, end)
        if not workers:
            sys.exit("no stack can be timed")
        for setting in ("A50", "B") if quick else SETTINGS:
            for n, rounds in ((500, 5),) if quick else ((500, 15), (2000, 7)):
                print(f"measuring {setting}, n = {n} ...", flush=True)
                results.append(compare(SETTINGS[setting], n, workers, rounds))
    others = [name for name in workers if name in wanted and name not in ("pdcbo separate", "BoTorch conditioned")]
    cold = {name: cold_start(name, pythons.get(name.split()[0], sys.executable)) for name in others}
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
    given = json.loads(sys.argv[1])
    main(Path(given["out"]), given["quick"], given["wanted"], given["pythons"])
