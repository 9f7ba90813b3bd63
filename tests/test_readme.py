"""What the README shows must run, and what it points to must be there."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()


def test_python_blocks_run_in_order(capsys):
    namespace: dict[str, object] = {}
    blocks = re.findall(r"```python\n(.*?)```", README, re.S)
    assert len(blocks) >= 3
    for block in blocks:
        exec(compile(block, "README.md", "exec"), namespace)
    assert "x_a" in capsys.readouterr().out


def test_the_guide_runs_and_its_summary_says_what_it_explains(capsys, tmp_path, monkeypatch):
    namespace: dict[str, object] = {}
    guide = (ROOT / "docs" / "guide.md").read_text()
    monkeypatch.chdir(tmp_path)
    Path("past.csv").write_text("".join(re.findall(r"```csv\n(.*?)```", guide, re.S)))
    for block in re.findall(r"```python\n(.*?)```", guide, re.S):
        exec(compile(block, "guide.md", "exec"), namespace)
    text = capsys.readouterr().out
    assert "learned from 2 rows of past operation" in text
    for words in re.findall(r"^- \*\*(.*?)(?: \.\.\.|\*\*)", guide, re.M):
        assert words.rstrip(".") in text or words.startswith(("debt", "note")), words


def test_a_plant_and_an_optimizer_of_ones_own_are_compared_as_the_docs_say(capsys, tmp_path, monkeypatch):
    """In a file of their own, so that a change of it is seen, and over processes that import it anew."""
    monkeypatch.chdir(tmp_path)
    program = tmp_path / "fan_study.py"
    code = "\n".join(re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "extend.md").read_text(), re.S))

    def runs(code: str) -> set[str]:
        program.write_text(code)
        said = subprocess.run([sys.executable, program], check=True, capture_output=True, text=True).stdout
        assert all(f"| {name} |" in said for name in ("pdcbo", "greedy", "coin"))
        return {path.name for path in (tmp_path / "fan" / "runs").iterdir()}

    code = code.replace("range(3), steps=40", "range(1), steps=6")
    first = runs(code)
    assert len(first) == 3
    assert runs(code) == first
    changed = runs(code.replace("30.0 + 25.0", "31.0 + 25.0").replace("workers=0", "workers=2"))
    assert len(changed) == 6
    assert changed > first


def test_every_command_is_a_command():
    from pdcbo.cli import app

    names = {command.name or command.callback.__name__ for command in app.registered_commands}
    shown = set(re.findall(r"`pdcbo (\w+)", README)) | set(re.findall(r"^pdcbo (\w+)", README, re.M))
    assert shown - names == set()


def test_make_targets_exist():
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"^make (\w[\w-]*)", README, re.M):
        assert re.search(rf"^{target}:", makefile, re.M), target


def test_files_it_points_to_exist():
    for path in re.findall(r"\]\((docs/[^)]+)\)", README):
        assert (ROOT / path).is_file(), path
