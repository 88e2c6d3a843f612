"""Coverage of least squares that leaves out levels with few rows, whose errors add up."""

import numpy as np
import pytest

import dpstats as dps


def rare_levels(few, each, far):
    """Schema, and how to draw rows: rare levels at the top of y, and at x = 10 if `far`."""
    levels = ["k0", "k1", "k2", *(f"e{i}" for i in range(few))]
    schema = dps.Schema([
        dps.Number("x", 0, 10, points=101, missing=0), dps.Category("g", levels),
        dps.Number("y", -10, 10, points=201, missing=0),
    ])  # fmt: skip

    def draw(rng, n=4_000):
        g = np.concatenate([np.repeat(np.arange(3, 3 + few), each), rng.integers(0, 3, n)])[:n]
        x = np.where(far & (g > 2), 10, rng.normal(5, 1.5, n))
        y = np.where(g > 2, 8, -6) + rng.normal(0, 1, n)
        return {"x": schema["x"].encode_numbers(x), "g": g, "y": schema["y"].encode_numbers(y)}

    return schema, draw


# number of rare levels, rows of each, whether they are far, budget
SETTINGS = [
    (5, 10, False, dps.PureDP(3.5)), (5, 40, False, dps.PureDP(0.7)),
    (10, 30, True, dps.PureDP(1)), (3, 25, True, dps.PureDP(1)),
    (1, 30, False, dps.PureDP(0.7)), (5, 0, False, dps.PureDP(1)),
]  # fmt: skip
TRUTH = {"Intercept": -6, "x": 0, "g[T.k1]": 0, "g[T.k2]": 0}


@pytest.mark.simulate(SETTINGS, few=(2,), runs=(40, 300))
def test_levels_left_out(setting, runs, table, tools):
    """40 releases: with independent errors of the levels at most 28 cover the worst term."""
    (schema, draw), budget = rare_levels(*setting[:3]), setting[3]
    asked, left = dps.OLS("y ~ x + g"), 0
    plan = dps.plan(schema, {"o": asked}, budget=budget, n=4_000, reference=dps.Uniform())
    for *_, view in tools.fresh(plan, 4_000, draw, runs, 3):
        found = asked.infer(view)
        left += len(found.intervals.left.names) / runs
        ends = dict(zip(found.terms, np.asarray(found.conf_int()), strict=True))
        table.hold("term", [ends[term] for term in TRUTH], list(TRUTH.values()))
    table.check(setting, "levels left out", left, least=setting[0] - 0.5)
    table.finish(setting)
