"""All optimizers over the suite of plants: `pdcbo suite`."""

from __future__ import annotations

from typing import Any


def suite_plants() -> dict[str, Any]:
    """Return the suite's plants by name."""
    from pdcbo.plants.suite import SUITE

    return dict(SUITE)
