"""What HTTP and the disk cost: ask and tell at n steps, in process, on a durable study and through the service.

    python -m pdcbo.service.bench [--steps 500] [--pairs 100]

All three run the same optimizer with given hyper-parameters from the same n past steps, interleaved step by step, so
that whatever else the machine does falls on all alike. Then the time to reopen a study and to its first ask is
measured, and the throughput of several clients at once with an optimizer that costs nothing.
"""

from __future__ import annotations

import argparse
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

import pdcbo
from pdcbo.service.server import make_server
from pdcbo.store import Study

PROBLEM = pdcbo.Problem({"a": (0.0, 1.0)}, {"c": (0.0, 1.0)}, {"g": 0.5})
MODEL = pdcbo.Model(length_scales=0.2, variance=1.0, noise_var=0.0025)
PORT = 8799


@contextmanager
def served(store: str) -> Any:
    """Serve a store from a thread."""
    server = make_server(store, port=PORT)
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    try:
        yield f"http://127.0.0.1:{PORT}"
    finally:
        server.should_exit = True
        thread.join()


def pair(tuner: Any, rng: np.random.Generator) -> tuple[float, float]:
    """Return the seconds of one ask and of one tell."""
    context = {"c": float(rng.random())}
    start = time.perf_counter()
    suggestion = tuner.ask(context)
    asked = time.perf_counter()
    tuner.tell(suggestion, float(rng.normal()), {"g": float(rng.normal())})
    return asked - start, time.perf_counter() - asked


def fill(observe: Callable[[list[dict[str, Any]]], Any], steps: int) -> None:
    """Give a tuner n past steps to learn from."""
    rng = np.random.default_rng(0)
    rows = [{"a": rng.random(), "c": rng.random(), "objective": rng.normal(), "g": rng.normal()} for _ in range(steps)]
    observe([{k: float(v) for k, v in row.items()} for row in rows])


def compare(folder: Path, steps: int, pairs: int) -> None:
    """Print medians and 95th percentiles of ask and tell, three ways."""
    bare = pdcbo.PDCBO(PROBLEM, horizon=steps + pairs, models=MODEL)
    store = f"sqlite:///{folder}/bench.db"
    options: dict[str, Any] = {"horizon": steps + pairs, "models": MODEL}
    with Study.open(store, "durable", PROBLEM, **options) as durable, served(store) as url:  # noqa: SIM117
        with pdcbo.connect(url, "remote", PROBLEM, **options) as remote:
            fill(bare.observe_table, steps)
            fill(durable.observe_table, steps)
            with Study.open(store, "remote") as direct:
                fill(direct.observe_table, steps)
            tuners = {"in process": bare, "durable study": durable, "through HTTP": remote}
            rngs = {name: np.random.default_rng(1) for name in tuners}
            times: dict[str, list[tuple[float, float]]] = {name: [] for name in tuners}
            for _ in range(pairs + 5):
                for name, tuner in tuners.items():
                    times[name].append(pair(tuner, rngs[name]))
    print(f"n = {steps}, {pairs} pairs each, interleaved; milliseconds, median (95th percentile)")
    for name, rows in times.items():
        ask, tell = 1e3 * np.array(rows[5:]).T
        both = np.median(ask + tell)
        print(
            f"  {name:14s} ask {np.median(ask):7.2f} ({np.quantile(ask, 0.95):7.2f})   "
            f"tell {np.median(tell):6.2f} ({np.quantile(tell, 0.95):6.2f})   {1e3 / both:6.0f} pairs/s"
        )


def reopen(folder: Path, steps: int) -> None:
    """Print the time to open a study of n told steps, and to its first ask."""
    path = folder / "reopen.db"
    rng = np.random.default_rng(0)
    with Study.open(path, "plant", PROBLEM, horizon=steps, models=MODEL) as study:
        study.pause("filling")  # held parameters: no model is needed to fill the study
        study.set_known_good({"a": 0.5})
        for _ in range(steps):
            s = study.ask({"c": float(rng.random())})
            study.tell(s, float(rng.normal()), {"g": float(rng.normal())}, applied={"a": float(rng.random())})
        study.resume()
        study.checkpoint()
    start = time.perf_counter()
    with Study.open(path, "plant") as study:
        opened = time.perf_counter() - start
        assert study.step == steps
        known = time.perf_counter() - start
        study.ask({"c": 0.5})
        print(
            f"reopened at {steps} steps: open {opened * 1e3:.0f} ms, ledger {known * 1e3:.0f} ms, "
            f"first ask {time.perf_counter() - start:.2f} s"
        )


def throughput(folder: Path, clients: int, pairs: int) -> None:
    """Print ask and tell pairs a second of several clients at once on one study."""
    store = f"sqlite:///{folder}/throughput.db"
    with served(store) as url:
        pdcbo.connect(url, "plant", PROBLEM, optimizer="random").close()

        def work() -> None:
            with pdcbo.connect(url, "plant") as remote:
                for _ in range(pairs):
                    remote.tell(remote.ask({"c": 0.5}), 1.0, {"g": 0.1})

        threads = [threading.Thread(target=work) for _ in range(clients)]
        start = time.perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        rate = clients * pairs / (time.perf_counter() - start)
    print(f"{clients} clients at once, optimizer 'random': {rate:.0f} pairs/s")


def main() -> None:
    """Run all of it."""
    parser = argparse.ArgumentParser(description="what HTTP and the disk cost")
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--pairs", type=int, default=100)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        compare(Path(folder), given.steps, given.pairs)
        reopen(Path(folder), 2000)
        throughput(Path(folder), 4, given.pairs)


if __name__ == "__main__":
    main()
