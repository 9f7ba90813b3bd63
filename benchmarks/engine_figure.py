"""Draw docs/figures/engine.png, the figure of docs/engine.md: run with `python benchmarks/engine_figure.py`."""

from __future__ import annotations

import os

os.environ.update(OPENBLAS_NUM_THREADS="1", OMP_NUM_THREADS="1", MKL_NUM_THREADS="1")

import time
from pathlib import Path
from statistics import median

import numpy as np
from matplotlib.figure import Figure

from pdcbo.bench import SETTINGS
from pdcbo.bench_stacks import STACKS
from pdcbo.features import GridFeatures, find
from pdcbo.rounding import SMALL, TOLERANCE
from pdcbo.structured import MAX_RANK

setting = SETTINGS["B"]
theta_kernel = type(setting.kernel)(
    (type(setting.kernel.factors[0])("squared-exponential", (0, 1), setting.length_scales[:2]),), setting.variance
)
features = find(theta_kernel, setting.candidates, TOLERANCE * setting.noise_var, MAX_RANK, SMALL * setting.noise_var)
assert isinstance(features, GridFeatures)

fig = Figure(figsize=(11.5, 3.4), layout="constrained")
left, middle, right = fig.subplots(1, 3)

u = np.linspace(0.0, 1.0, 50)
for s, row in enumerate(features.axes[0].R[:6]):
    left.plot(u, row, lw=1.2, label=f"s = {s}")
left.set(title="(a) first features of one axis", xlabel="parameter", ylabel="$R_s(u)$")
left.legend(fontsize=7, ncol=2)

kept = np.zeros((len(features.axes[0].R), len(features.axes[1].R)))
kept[features.s, features.t] = np.where(np.arange(features.m) < features.finest.large, 1.0, 0.4)
middle.imshow(kept, origin="lower", cmap="Blues", vmin=-0.3, vmax=1.4)
middle.set(
    title=f"(b) {features.m} products carry {len(setting.candidates)} candidates\n(light: in single precision)",
    xlabel="feature of the second axis, t",
    ylabel="feature of the first axis, s",
)

sizes = [64, 125, 250, 500, 1000, 2000]
for name, label, style in (("pdcbo plain", "plain", "o-"), ("pdcbo separate", "structured", "s-")):
    times = []
    for n in sizes:
        X, Y = setting.data(n + 7)
        stack = STACKS[name](setting, X[:n], Y[:n, :1])
        steps = []
        for x, y in zip(X[n:], Y[n:], strict=True):
            start = time.process_time()
            stack.ask(x[2:])
            stack.tell(x, y[:1])
            steps.append(1e3 * (time.process_time() - start))
        times.append(median(steps))
    right.loglog(sizes, times, style, ms=4, label=label)
right.set(title="(c) one step, one function", xlabel="observations n", ylabel="CPU ms")
right.legend()
right.grid(alpha=0.3, which="both")
path = Path(__file__).parents[1] / "docs" / "figures" / "engine.png"
path.parent.mkdir(parents=True, exist_ok=True)
fig.savefig(path, dpi=130)
print(features.m, path)
