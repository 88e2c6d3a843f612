"""Numbers of rows of a survey are in rows, though sums are in steps of the weights."""

import pandas as pd
import pytest

import dpstats as dps
from dpstats.errors import RequestError

N = 1_200
DESIGN = dps.Design("w", mean=2, cap=3, unit="u", units=list(range(40)))


@pytest.fixture(scope="module", params=["add_remove", "replace"])
def release(request):
    schema = dps.Schema([dps.Boolean("y"), dps.Category("g", list("abc"))], design=DESIGN)
    asked = {"y": dps.Proportion("y"), "g": dps.Marginals(["g"], 1)}
    plan = dps.plan(schema, asked, budget=dps.PureDP(10**6), unit=request.param)
    rows = pd.DataFrame({"y": [True, False] * (N // 2), "w": [3, 1] * (N // 2)})
    rows["g"], rows["u"] = list("aab") * (N // 3), rows.index % 40
    return dps.release(plan, rows, m=100)


def test_rows_are_weights_over_their_mean_and_means_those_of_weights_without_a_radius(release):
    assert release.n == release.measurements.n == release.k == N
    assert release.infer("y").nobs == N
    about = "" if release.measurements.strategy.unit == "replace" else "about "
    assert f"from {about}{N} private rows, {N} synthetic rows" in str(release)
    assert "Accuracy of the rows" in str(release)
    assert "Radius" not in str(release)
    with pytest.raises(RequestError, match="accuracy and bound"):
        release.radius("y")
    answers = release.answers(dps.Cells.condition(release.schema, "g == 'a'"))
    assert answers.means == pytest.approx([2 / 3], abs=1e-4)
    measured = release.measurements
    means = dict(zip(measured.family.names, measured.means, strict=True))
    assert means["g=a"] == pytest.approx(2 / 3, abs=1e-4)
    assert float(release.infer("y")) == pytest.approx(0.75, abs=1e-4)


@pytest.mark.parametrize("unit", ["replace", "add_remove"])
def test_a_public_number_of_rows_is_no_estimate(unit):
    """Planned for n rows under replace, which the table then has; their weights may differ."""
    schema = dps.Schema([dps.Boolean("y")], design=DESIGN)
    plan = dps.plan(schema, {"y": dps.Proportion("y")}, budget=dps.PureDP(5), unit=unit, n=N)
    rows = pd.DataFrame({"y": [True, False] * (N // 2), "w": 1.5, "u": [i % 40 for i in range(N)]})
    release = dps.release(plan, rows, m=100)
    exact = unit == "replace"
    assert (release.n == N) is (release.measurements.n == N) is exact
    assert ("about" not in str(release).split("\n")[0]) is exact
    assert release.infer("y").rows.public is False
