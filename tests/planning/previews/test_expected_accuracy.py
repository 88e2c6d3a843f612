"""The expected error of rows in a preview."""

import numpy as np

import dpstats as dps
from dpstats.inference.simulation import draw_from

SCHEMA = dps.Schema([
    dps.Category("a", list("pqr")), dps.Category("b", list("stuv")), dps.Boolean("c"),
])  # fmt: skip
TABLES = {"one": dps.Marginals(["a", "b"]), "two": dps.Marginals(["b", "c"])}


def test_expected_delta_is_the_median_of_the_largest_noise():
    """The median of 4,000 draws, seeded."""
    n, rng = 2_000, np.random.default_rng(0)
    plan = dps.plan(SCHEMA, TABLES, budget=dps.PureDP(0.5), n=n, weights="equal")
    expected = plan.preview().accuracy
    assert expected.functions == plan.family.size == 20
    law = plan.budget.law(float(plan.strategy.scales[0]))
    largest = np.abs(draw_from(law, 80_000, rng)).reshape(-1, 20).max(axis=1) / n
    assert abs(np.median(largest) - expected.delta) <= 1 / n
