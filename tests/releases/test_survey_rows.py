"""Numbers of rows of a survey are in rows, though sums are in steps of the weights."""

import pandas as pd
import pytest

import dpstats as dps

N = 1_200


@pytest.fixture(scope="module", params=["add_remove", "replace"])
def release(request):
    design = dps.Design("w", mean=2, cap=3, unit="u", units=list(range(40)))
    schema = dps.Schema([dps.Boolean("y"), dps.Category("g", list("abc"))], design=design)
    asked = {"y": dps.Proportion("y"), "g": dps.Marginals(["g"], 1)}
    plan = dps.plan(schema, asked, budget=dps.PureDP(10**6), unit=request.param)
    rows = pd.DataFrame({"y": [True, False] * (N // 2), "w": [3, 1] * (N // 2)})
    rows["g"], rows["u"] = list("aab") * (N // 3), rows.index % 40
    return dps.release(plan, rows, m=100)


def test_the_number_of_rows_is_the_sum_of_weights_over_their_mean(release):
    assert release.n == release.measurements.n == release.k == N
    assert release.infer("y").nobs == N
    assert f"about {N} private rows, {N} synthetic rows" in str(release)
    assert f"about {N} private rows" in str(release.measurements)
    assert f"n = {N}, k = {N}" in repr(release)
    assert f"About {N:,} rows by their weights" in str(release.infer("y"))


def test_means_are_those_of_weights(release):
    answers = release.answers(dps.Cells.condition(release.schema, "g == 'a'"))
    assert answers.means == pytest.approx([2 / 3], abs=1e-4)
    measured = release.measurements
    means = dict(zip(measured.family.names, measured.means, strict=True))
    assert means["g=a"] == pytest.approx(2 / 3, abs=1e-4)
    assert float(release.infer("y")) == pytest.approx(0.75, abs=1e-4)
