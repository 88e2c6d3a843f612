"""The expected error of rows in a preview, and the promise of the theorem beside it."""

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import dpstats as dps
from dpstats.inference.simulation import draw_from
from dpstats.privacy.noise import _noise_from
from dpstats.theory import ReferenceSampling, UniformSampling

SCHEMA = dps.Schema([
    dps.Category("a", list("pqr")), dps.Category("b", list("stuv")), dps.Boolean("c"),
])  # fmt: skip
TABLES = {"one": dps.Marginals(["a", "b"]), "two": dps.Marginals(["b", "c"])}


def preview(budget, n, analyses=TABLES, **given):
    return dps.plan(SCHEMA, analyses, budget=budget, n=n, **given).preview()


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
    """The median of 4,000 draws; and the largest true error of the rows of three releases."""
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
    truth, *found = (shares(frame, n) for frame in (rows, *made))
    errors = [np.abs(share - truth).max() for share in found]
    assert 0.3 * expected.delta < np.median(errors) < 1.5 * expected.delta


def test_the_promise_is_that_of_the_theorem_at_the_plan_s_noise():
    """Two tables: L1 sensitivity 4, and 20 functions, whatever the number of cells."""
    n = 20_000
    shown = preview(dps.PureDP(0.05), n, weights="equal")
    theorem = UniformSampling(epsilon=0.05, gamma=0.0125, functions=20, cells=24, sensitivity=4)
    assert shown.accuracy.promised == pytest.approx(8 * theorem.delta(n))
    assert str(shown).count("Bojkovic") == 0
    last = str(shown.accuracy).splitlines()
    assert str(replace(shown, theory=True)).count(" ".join(last[1].split()[:6])) == 1
    assert last[0].startswith("Synthetic rows: expected error (delta) 0.01")
    times = round(shown.accuracy.promised / shown.accuracy.delta)
    assert last[1].startswith(
        "Theorem II.1 of Bojkovic & Loh (2024) promises "
        f"{shown.accuracy.promised:.2g} with probability 95%, {times} times as much, for the "
        "minimax fit, independent rows, and enough candidates"
    )


def test_the_largest_noise_decides_the_promise():
    """With unequal shares the table with less budget; here a tenth, so L1 is 2 at eps = .01."""
    n = 20_000
    shown = preview(dps.PureDP(0.1), n, shares={"one": 9, "two": 1})
    theorem = ReferenceSampling(
        epsilon=0.01, gamma=0.0125, functions=20, sensitivity=2, condition_number=1
    )
    assert shown.accuracy.promised == pytest.approx(8 * theorem.delta(n))


def test_where_the_theorem_says_nothing():
    few = preview(dps.PureDP(1), 100).accuracy
    assert math.isinf(few.promised)
    assert str(few).endswith("promises nothing at this n.")
    pure = dps.PureDP(1)
    for budget, given, reason in (
        (dps.ZCDP(0.1), {}, "Laplace noise"),
        (pure, {"unit": "add_remove"}, 'a public number of rows, unit="replace"'),
        (pure, {"reference": dps.LogLinear()}, "candidates from a density fixed beforehand"),
    ):
        other = preview(budget, 20_000, **given).accuracy
        assert other.promised is None
        assert f"Loh (2024) promises nothing here: it is for {reason}" in str(other)
        assert 0 < other.delta < 0.05
