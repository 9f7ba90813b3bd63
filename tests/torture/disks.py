"""Power cuts, full disks and failing writes under the store's own code."""

from __future__ import annotations

import random
import tempfile
from pathlib import Path
from typing import Any

from faulty import Disk, backend, quiet
from store_tools import PROBLEM, context

from pdcbo.store import Journal, StoreError, Study
from pdcbo.store.journal import encode

STEPS = 8


def run(study: Study, acknowledged: list[Any], steps: int = STEPS) -> None:
    """Drive a study and note every call that was acknowledged."""
    for t in range(study.step, steps):
        s = study.ask(context(t), key=f"t{t}")
        acknowledged.append(("ask", f"t{t}", s.id))
        study.tell(s, 1.0 / (t + 1), {"g": 0.1 * t})
        acknowledged.append(("tell", None, s.id))
        if t % 4 == 3:
            study.checkpoint()


def lost(study: Study, acknowledged: list[Any]) -> int:
    """Return how many acknowledged calls are not in the journal, after checking that it is whole."""
    events = study.events()
    assert [e.seq for e in events] == list(range(1, len(events) + 1))
    asked = {(e.key, e.payload["step"]["suggestion"]["id"]) for e in events if e.kind == "ask"}
    told = {e.payload["id"] for e in events if e.kind == "tell"}
    return sum(
        (key, number) not in asked if kind == "ask" else number not in told for kind, key, number in acknowledged
    )


@quiet()
def power_cuts(count: int, seed: int, synchronous: str = "FULL") -> dict[str, int]:
    """Cut the power at random moments; return how many cuts lost something that was acknowledged."""
    rng = random.Random(seed)
    seen = {"cuts": 0, "cuts that lost something": 0, "calls lost": 0, "calls acknowledged": 0}
    while seen["cuts"] < count:
        disk = Disk()
        disk.error, disk.fail_at = "cut", rng.randrange(1, 260)
        journal = Journal(backend(disk, synchronous=synchronous, pages=rng.choice((5, 20, 1000))))
        acknowledged: list[Any] = []
        created = False
        try:
            study = Study.open(journal, "plant", PROBLEM, optimizer="random")
            created = True
            run(study, acknowledged)
        except StoreError:
            assert disk.off
        with tempfile.TemporaryDirectory() as folder:
            disk.cut(Path(folder), rng)
            seen["cuts"] += 1
            seen["calls acknowledged"] += len(acknowledged) + created
            path = Path(folder) / "plant.db"
            try:
                study = Study.open(path, "plant")
            except KeyError:
                missing = len(acknowledged) + created
            except StoreError as error:
                # a store that is there can be read; one that was cut off before its tables were there is none yet
                if path.exists() and "is not a store of studies" not in str(error):
                    raise
                missing = len(acknowledged) + created
            else:
                missing = lost(study, acknowledged)
                if not missing:
                    run(study, acknowledged)
                    assert study.step == STEPS
                    assert lost(study, acknowledged) == 0
                study.close()
            seen["calls lost"] += missing
            seen["cuts that lost something"] += missing > 0
    return seen


@quiet()
def write_errors(every: int, error: str, forever: bool, offset: int = 0) -> dict[str, int]:
    """Fail each (or every n-th) write of a run in turn, then let the disk work again: the same objects go on."""
    clean = Disk()
    study = Study.open(Journal(backend(clean, pages=20)), "plant", PROBLEM, optimizer="random")
    run(study, [])
    expected = encode(study.state())
    seen = {"writes": clean.writes, "failed": 0, "calls refused": 0}
    for number in range(1 + offset, clean.writes + 1, every):
        disk = Disk()
        journal = Journal(backend(disk, pages=20))
        disk.error, disk.fail_at, disk.forever = error, number, forever
        acknowledged: list[Any] = []
        opened: Study | None = None
        refused, clear = 0, True
        for _ in range(6):
            try:
                if opened is None:
                    opened = Study.open(journal, "plant", PROBLEM, optimizer="random")
                run(opened, acknowledged)
                break
            except StoreError as problem:
                clear = clear and "may be repeated" in str(problem)
                refused += 1
                if opened is not None and refused == 1 and forever:
                    try:  # still failing: clear errors, no change of mind
                        run(opened, acknowledged)
                    except StoreError:
                        refused += 1
                disk.fail_at = None  # there is room again; no restart
        assert clear
        assert opened is not None
        assert opened.step == STEPS
        assert lost(opened, acknowledged) == 0
        assert encode(opened.state()) == expected
        seen["failed"] += 1
        seen["calls refused"] += refused
        opened.close()
    return seen
