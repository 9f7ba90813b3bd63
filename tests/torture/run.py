"""The long versions of the crash, disk, concurrency and fuzz tests: `make torture`, or one of them by name.

Every run is bounded and seeded; it prints what was seen and ends with an error at the first anomaly.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1])]

import clients  # noqa: E402
import disks  # noqa: E402
import fuzz  # noqa: E402
import kills  # noqa: E402
from store_tools import postgres, served  # noqa: E402


def _kills(folder: Path) -> Any:
    return kills.random_kills(kills.sqlite_url(folder), 1000, seed=1)


def _kills_postgres(folder: Path) -> Any:
    with postgres() as url:
        return kills.random_kills(url, 200, seed=2)


def _failpoints(folder: Path) -> Any:
    return kills.failpoint_kills(kills.sqlite_url(folder), (1, 2, 5, 7))


def _power_cuts(folder: Path) -> Any:
    return disks.power_cuts(1000, seed=3)


def _power_cuts_normal(folder: Path) -> Any:
    seen = disks.power_cuts(1000, seed=3, synchronous="NORMAL")
    assert seen["cuts that lost something"], "synchronous=NORMAL lost nothing: this test does not bite"
    return seen


def _write_errors(folder: Path) -> Any:
    return {
        f"{error}, {'forever' if forever else 'once'}": disks.write_errors(1, error, forever)
        for error in ("full", "io")
        for forever in (False, True)
    }


def _clients(folder: Path) -> Any:
    return clients.many_clients(folder, clients=10, operations=1000, kills=20, seed=4)


def _fuzz(folder: Path) -> Any:
    with served(f"sqlite:///{folder}/fuzz.db") as url:
        seen = fuzz.fuzz(url, 11_000, seed=5)
    assert seen["cases"] >= 10_000
    return seen


RUNS: dict[str, Callable[[Path], Any]] = {
    "kills": _kills,
    "kills-postgresql": _kills_postgres,
    "failpoints": _failpoints,
    "power-cuts": _power_cuts,
    "power-cuts-normal": _power_cuts_normal,
    "write-errors": _write_errors,
    "clients": _clients,
    "fuzz": _fuzz,
}


def main(names: list[str]) -> None:
    for name in names or list(RUNS):
        started = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            seen = RUNS[name](Path(folder))
        print(f"{name}: {seen} in {time.monotonic() - started:.0f} s", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
