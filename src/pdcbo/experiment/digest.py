"""Digests of code, by which a result on disk is known to be of the code at hand, and never taken for another one's."""

from __future__ import annotations

import hashlib
import inspect
import re
import sys
from functools import cache
from pathlib import Path
from typing import Any
from uuid import uuid4

from pdcbo.optimizers import Optimizer
from pdcbo.plants.suite import Entry

# parts of the package that no result depends on
APART = {
    "__init__", "__main__", "bench", "bench_interface", "bench_report", "bench_stacks", "cli", "client", "experiment",
    "figures", "guards", "history", "report", "service", "store",
}  # fmt: skip

# stands for code that lies in no file, as in a notebook: its results are found again by the same process only
THIS_PROCESS = uuid4().bytes


@cache
def code_digest(optimizer: type[Optimizer] | None) -> str:
    """Return a digest of all code that a result depends on: a changed optimizer or plant has no results yet.

    Of the optimizers, the one at hand counts with what it imports; none does for an oracle, whose optimizer is None.
    """
    package = Path(__file__).parents[1]
    digest = hashlib.sha256()
    for path in sorted(package.rglob("*.py")):
        if path.relative_to(package).parts[0].removesuffix(".py") not in {*APART, "optimizers"}:
            digest.update(path.read_bytes())
    for path in sorted(() if optimizer is None else _optimizer_code(optimizer)):
        digest.update(path.read_bytes())
    for name in ("jobs.py", "preparation.py"):
        digest.update((package / "experiment" / name).read_bytes())
    return digest.hexdigest()


def own_digest(plant: Any, optimizer: type[Optimizer] | None) -> str:
    """Return a digest of the files outside this package that define the plant and the optimizer; empty without any."""
    modules = _modules(plant) | (set() if optimizer is None else _modules(optimizer))
    foreign = sorted(name for name in modules if name.partition(".")[0] not in {"pdcbo", *sys.stdlib_module_names})
    digest = hashlib.sha256()
    for name in foreign:
        file = getattr(sys.modules.get(name), "__file__", None)
        digest.update(THIS_PROCESS if file is None else Path(file).read_bytes())
    return digest.hexdigest() if foreign else ""


def _modules(defined: Any) -> set[str]:
    """Return the modules that define a class and its bases, or a function, bare or in an entry of the suite."""
    if isinstance(defined, Entry):
        defined = defined.build
    parts = defined.__mro__ if inspect.isclass(defined) else [getattr(defined, "func", defined)]
    return {getattr(part, "__module__", None) or type(part).__module__ for part in parts}


def _optimizer_code(optimizer: type[Optimizer]) -> set[Path]:
    """Return the modules among the optimizers that one of them consists of: its classes' own, and what they import."""
    folder = Path(__file__).parents[1] / "optimizers"
    modules = [part.__module__.rpartition(".") for part in optimizer.__mro__]
    found, ahead = set(), [folder / f"{own}.py" for package, _, own in modules if package == "pdcbo.optimizers"]
    while ahead:
        path = ahead.pop()
        found.add(path)
        imported = {folder / f"{m}.py" for m in re.findall(r"from pdcbo\.optimizers\.(\w+) import", path.read_text())}
        ahead.extend(imported - found)
    return found
