"""Put the tables of `make results` together as docs/results.md: python scripts/results.py RUNS DOCS."""

from __future__ import annotations

import re
import sys
from pathlib import Path

INTRODUCTION = """# Results

Made by `make results`, `make frontier` and `make suite`, on seeds that no decision was developed on. Every step counts,
nobody gets free samples, hyper-parameters are learned on the way, and nothing is set by hand unless the label says so.
`pdcbo` is the default. On `gp-sample`, `pdcbo known kernel` is given the kernel the plants were drawn from, which shows
what learning it costs. "What the limit costs" shows what breaking the limit would save: without any limit the regret is
hardly lower, so nearly all of what lies above the time-average optimum is the price of learning two unknown functions
while running, whose length scale is a twentieth of the range in both directions.

In the suite a cost is normalised by plant, and a run violates if a true average ends above its limit by any amount.

"""


def section(path: Path) -> str:
    """Return a summary as a section: one heading level deeper."""
    return re.sub(r"^#", "##", path.read_text(), flags=re.M).strip() + "\n"


def main(runs: Path, docs: Path) -> None:
    """Write the page."""
    parts = [section(runs / "gp-sample" / "summary.md"), section(runs / "williams-otto" / "summary.md")]
    for other in ("frontier.md", "suite/suite.md"):
        if (runs / other).is_file():
            parts.append(section(runs / other))
    (docs / "results.md").write_text(INTRODUCTION + "\n".join(parts))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
