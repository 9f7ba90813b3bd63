"""Imports point one way, the core needs NumPy and SciPy only, and importing the package imports little."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import pdcbo

ROOT = Path(pdcbo.__file__).parent
# From what knows least to what knows most; each may import what stands before it, and its own part.
ORDER = (
    "wording", "variables", "problem", "normal", "lapack", "kernels", "gp", "axis", "basis", "features",
    "inverse", "panels", "table", "rounding",
    "structured", "compression", "fit", "section", "model", "models", "confidence", "certificates", "oracles",
    "descent", "search", "optimizers", "plants", "loop", "metrics", "guards", "history", "figures", "store", "report",
    "experiment", "bench", "service", "client", "cli", "__main__",
)  # fmt: skip
CORE = ORDER[: ORDER.index("metrics") + 1]


def modules() -> dict[str, Path]:
    return {".".join(p.relative_to(ROOT).with_suffix("").parts): p for p in sorted(ROOT.rglob("*.py"))}


PARTS = {module.split(".")[0] for module in modules()} - {"__init__"}


def part(module: str) -> str:
    return module.split(".")[0]


def place(name: str) -> int | None:
    """Where a part stands; parts that are split over files (`bench_stacks`) stand with their first word."""
    for candidate in (name, name.split("_")[0]):
        if candidate in ORDER:
            return ORDER.index(candidate)
    return None


def imports(path: Path, *, top_level: bool = False) -> set[str]:
    tree = ast.parse(path.read_text())
    checked = {n for node in tree.body if isinstance(node, ast.If) for n in ast.walk(node)}  # TYPE_CHECKING
    nodes = tree.body if top_level else [n for n in ast.walk(tree) if n not in checked]
    names = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            if node.module == "pdcbo":  # from pdcbo import oracles is an import of that module
                names |= {f"pdcbo.{a.name}" if a.name in PARTS else "pdcbo" for a in node.names}
            else:
                names.add(node.module or "")
    return names


@pytest.mark.parametrize("module", sorted(set(modules()) - {"__init__", "__main__", "cli"}))
def test_imports_point_one_way(module: str) -> None:
    here = place(part(module))
    if here is None:
        pytest.fail(f"{module}: say in ORDER where it stands")
    for name in imports(modules()[module]):
        if name == "pdcbo" or name.startswith("pdcbo."):
            other = name.removeprefix("pdcbo").removeprefix(".") or "__init__"
            if other == "__init__":
                assert here > ORDER.index("metrics"), f"{module} imports the whole package"
                continue
            there = place(part(other))
            assert there is not None, f"{module} imports {name}, which has no place in ORDER"
            assert there <= here, f"{module} imports {name}, which stands after it"


@pytest.mark.parametrize("module", sorted(m for m in modules() if part(m) in CORE))
def test_the_core_needs_numpy_and_scipy_only(module: str) -> None:
    outside = {name.split(".")[0] for name in imports(modules()[module])}
    assert outside <= {*sys.stdlib_module_names, "numpy", "scipy", "pdcbo"}


def test_importing_the_package_imports_little() -> None:
    code = "import sys, pdcbo; print(*sorted(sys.modules))"
    loaded = set(
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    )
    heavy = {
        "scipy.optimize", "scipy.stats", "scipy.sparse", "matplotlib", "pandas", "rich", "typer", "duckdb", "fastapi",
        "uvicorn", "httpx", "plotly", "psycopg", "sklearn", "torch",
    }  # fmt: skip
    assert not loaded & heavy


def test_public_names_are_there() -> None:
    for name in pdcbo.__all__:
        assert getattr(pdcbo, name) is not None
    for name in ("Problem", "PDCBO", "Constraint", "Real", "Integer", "Choice", "OPTIMIZERS", "PLANTS", "run"):
        assert name in pdcbo.__all__
    for name in pdcbo.OPTIMIZERS | pdcbo.PLANTS:
        assert name == name.lower()
        assert "_" not in name
