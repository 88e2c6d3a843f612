"""Plots of distribution functions: the band is that of the result, and holds between edges."""

import numpy as np
import pandas as pd
import pytest

import dpstats as dps

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")


@pytest.fixture(scope="module")
def release():
    schema = dps.Schema([
        dps.Number("age", 0, 100, edges=[20, 50], missing=50),
        dps.Number("score", values=[1, 2, 4], missing=2),
        dps.Number("day", "2020-01-01", "2020-12-31", edges=["2020-07-01"]),
    ])  # fmt: skip
    asked = {name: dps.Quantile(name) for name in schema.names}
    plan = dps.plan(schema, asked, budget=dps.PureDP(9))
    rows = pd.DataFrame({"age": [i % 100 for i in range(900)],
                         "score": [(1, 2, 4)[i % 3] for i in range(900)],
                         "day": pd.Timestamp("2020-03-01")})  # fmt: skip
    return dps.release(plan, rows, m=100, k=100, rng=0)


def band(ax, x):
    """Limits of the drawn band at some x."""
    (path,) = ax.collections[0].get_paths()
    inside = [y for y in np.linspace(0, 1, 4_001) if path.contains_point((x, y))]
    return min(inside), max(inside)


@pytest.mark.parametrize("target", ["population", "table"])
def test_between_edges_the_band_allows_for_all_increasing_functions(release, target):
    from matplotlib import pyplot

    ages = release.infer("age")
    frame = ages.distribution(target=target)
    ax = dps.plots.distribution(ages, target=target)
    low, high = frame["band_low"].to_numpy(), frame["band_high"].to_numpy()
    ends = {10: (0, high[0]), 30: (low[0], high[1]), 70: (low[1], 1)}
    for x, expected in ends.items():
        assert band(ax, x) == pytest.approx(expected, abs=1e-3)
    np.testing.assert_array_equal(ax.lines[0].get_xydata(), frame[["edge", "estimate"]])
    pyplot.close(ax.figure)


def test_between_values_the_function_is_constant(release):
    from matplotlib import pyplot

    score = release.infer("score")
    frame = score.distribution()
    ax = dps.plots.distribution(score)
    for i, x in enumerate((1.5, 3.0)):
        expected = frame["band_low"][i], frame["band_high"][i]
        assert band(ax, x) == pytest.approx(expected, abs=1e-3)
    assert ax.get_ylabel() == "share of the rows up to"
    pyplot.close(ax.figure)


def test_dates_are_dates(release):
    from matplotlib import dates, pyplot

    ax = dps.plots.distribution(release.infer("day"))
    ax.figure.canvas.draw()
    assert dates.num2date(ax.lines[0].get_xdata()[0]).strftime("%Y-%m-%d") == "2020-07-01"
    assert ax.get_xticklabels()[0].get_text().startswith("2020")
    pyplot.close(ax.figure)


def test_other_results_are_refused(release):
    with pytest.raises(dps.RequestError, match=r"needs the result of a dps.Quantile.*got str"):
        dps.plots.distribution("age")
