"""The numbers behind the paper's two figures, for overlays; `published/README.md` says where they come from."""

from __future__ import annotations

import csv
from importlib.resources import files

import numpy as np

from pdcbo.problem import Array

FIGURES = {1: "published_gp_instances.csv", 2: "published_williams_otto.csv"}


def published(figure: int) -> dict[tuple[str, str], Array]:
    """Return (metric, algorithm) -> mean, low and high end of the band, shape (3, T), of figure 1 or 2."""
    text = files("pdcbo.experiment").joinpath("published", FIGURES[figure]).read_text()
    curves: dict[tuple[str, str], list[tuple[int, float, float, float]]] = {}
    for row in csv.DictReader(text.splitlines()):
        point = (int(row["step"]), float(row["mean"]), float(row["band_low"]), float(row["band_high"]))
        curves.setdefault((row["metric"], row["algorithm"]), []).append(point)
    return {key: np.array(sorted(points))[:, 1:].T for key, points in curves.items()}
