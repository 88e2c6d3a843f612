"""Widths of the certified set of a Huber regression against the number of grid points.

Run with ``python tests/benchmarks/loss_grid.py``; about a minute. The figures are those
of docs/explanation/regression/m-estimation.md: mean widths and root mean squared errors of the
estimates over four draws of the noise, for the intercept and the slope.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

import dpstats as dps
from dpstats.analyses.regression.loss_grid import RiskSurface
from dpstats.measured.answers import answer

SCHEMA = dps.Schema([
    dps.Number("x", -1, 1, points=41, missing=0), dps.Number("y", 0, 10, points=101, missing=5)
])  # fmt: skip
DRAWS = 4


def main() -> None:
    """Print one line per n, budget and number of points along each axis."""
    rng = np.random.default_rng(1)
    for n in (5_000, 50_000):
        x = rng.uniform(-1, 1, n)
        rows = pd.DataFrame({"x": x, "y": np.clip(5 + x + rng.normal(0, 1, n), 0, 10)})
        for budget in (dps.ZCDP(0.2), dps.PureDP(4)):
            for points in (7, 9, 11, 15, 21):
                grid = {"Intercept": (0, 10, points), "x": (-5, 5, points)}
                huber = dps.Huber("y ~ x", k=1.5, grid=grid)
                plan = dps.plan(SCHEMA, {"h": huber}, budget=budget, reference=dps.Uniform())
                block = huber.block(SCHEMA)
                seen = [RiskSurface(block, answer(dps.measure(plan, rows), block))
                        for _ in range(DRAWS)]  # fmt: skip
                widths = np.mean([np.diff(s.near(0.05, "table").hull)[:, 0] for s in seen], axis=0)
                errors = np.sqrt(np.mean([(s.estimate - [5, 1]) ** 2 for s in seen], axis=0))
                print(n, budget, points, widths.round(2), errors.round(3))


if __name__ == "__main__":
    main()
