"""The expected error of rows in a preview."""

import numpy as np
import pandas as pd

import dpstats as dps
from dpstats.inference.simulation import draw_from
from dpstats.privacy.noise import _noise_from

SCHEMA = dps.Schema([
    dps.Category("a", list("pqr")), dps.Category("b", list("stuv")), dps.Boolean("c"),
])  # fmt: skip
TABLES = {"one": dps.Marginals(["a", "b"]), "two": dps.Marginals(["b", "c"])}


CELLS = {
    ("a", "b"): pd.MultiIndex.from_product([list("pqr"), list("stuv")]),
    ("b", "c"): pd.MultiIndex.from_product([list("stuv"), [False, True]]),
}


def shares(frame, n):
    """Of all cells of both tables, (20,)."""
    return np.concatenate([
        frame.groupby(list(pair)).size().reindex(cells, fill_value=0) / n
        for pair, cells in CELLS.items()
    ])  # fmt: skip


def test_expected_delta_is_the_median_of_the_largest_noise_and_what_rows_have():
    """The median of 4,000 draws; and the largest true error of the rows of a release."""
    n, rng = 2_000, np.random.default_rng(0)
    plan = dps.plan(SCHEMA, TABLES, budget=dps.PureDP(0.5), n=n, weights="equal")
    expected = plan.preview().accuracy
    assert expected.functions == plan.family.size == 20
    law = plan.budget.law(float(plan.strategy.scales[0]))
    largest = np.abs(draw_from(law, 80_000, rng)).reshape(-1, 20).max(axis=1) / n
    assert abs(np.median(largest) - expected.delta) <= 1 / n
    a = rng.choice(3, n, p=[0.6, 0.3, 0.1])
    rows = pd.DataFrame({
        "a": np.array(list("pqr"))[a], "b": np.array(list("stuv"))[(a + (rng.random(n) < 0.3)) % 4],
        "c": rng.random(n) < 0.2 + 0.3 * a,
    })  # fmt: skip
    with _noise_from(lambda scale, size: draw_from(plan.budget.law(scale), size, rng).astype(int)):
        made = [dps.release(plan, rows, m=2_000, rng=seed).to_frame() for seed in range(3)]
    errors = [np.abs(shares(frame, n) - shares(rows, n)).max() for frame in made]
    assert 0.3 * expected.delta < np.median(errors) < 1.5 * expected.delta
