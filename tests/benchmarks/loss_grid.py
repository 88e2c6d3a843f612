"""Widths of the certified set of a Huber regression against the number of grid points.

    python tests/benchmarks/loss_grid.py [--runs 4]

The figures of docs/explanation/regression/m-estimation.md: mean widths for the intercept and the
slope, and root mean squared errors of their estimates.
"""

import numpy as np
import pandas as pd
from measuring import parsed

import dpstats as dps

SCHEMA = dps.Schema([
    dps.Number("x", -1, 1, points=41, missing=0), dps.Number("y", 0, 10, points=101, missing=5)
])  # fmt: skip

given, rng = parsed(__doc__, runs=4), np.random.default_rng(1)
for n in (5_000, 50_000):
    x = rng.uniform(-1, 1, n)
    rows = pd.DataFrame({"x": x, "y": np.clip(5 + x + rng.normal(0, 1, n), 0, 10)})
    for points in (7, 9, 11, 15, 21):
        grid = {"Intercept": (0, 10, points), "x": (-5, 5, points)}
        asked = {"h": dps.Huber("y ~ x", k=1.5, grid=grid)}
        plan = dps.plan(SCHEMA, asked, budget=dps.ZCDP(0.2), reference=dps.Uniform())
        found = [dps.release(plan, rows, m=50, k=1).infer("h") for _ in range(given.runs)]
        widths = np.mean([np.diff(one.conf_int(target="table"))[:, 0] for one in found], axis=0)
        errors = np.sqrt(np.mean([(one.params - [5, 1]) ** 2 for one in found], axis=0))
        print(n, points, widths.round(2), errors.round(3), flush=True)
