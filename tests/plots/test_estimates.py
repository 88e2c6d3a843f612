"""Forest plots: lines are the intervals, for the population and for the private table."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from matplotlib import pyplot

import dpstats as dps

LEVELS = ["n", "s", "e"]


@pytest.fixture(scope="module")
def result():
    """Two groups of many rows, and an empty one."""
    schema = dps.Schema([dps.Number("pay", 0, 9, missing=0), dps.Category("region", LEVELS)])
    means = dps.GroupMeans("pay", by="region")
    plan = dps.plan(schema, {"means": means}, budget=dps.PureDP(1))
    rows = pd.DataFrame({"pay": [i % 10 for i in range(1_000)],
                         "region": [LEVELS[i % 2] for i in range(1_000)]})  # fmt: skip
    return dps.release(plan, rows, m=200, rng=0).infer("means")


def test_lines_are_the_intervals_of_both_targets(result):
    ax = dps.plots.forest(result, alpha=0.1, method="certified", simultaneous=True)
    for lines, target in zip(ax.collections, ("population", "table"), strict=True):
        drawn = np.array([segment[:, 0] for segment in lines.get_segments()])
        options = {"alpha": 0.1, "method": "certified", "simultaneous": True}
        np.testing.assert_allclose(drawn, result.conf_int(target=target, **options))
    assert [label.get_text() for label in ax.get_yticklabels()] == result.terms
    thin, thick = ax.collections
    assert thin.get_zorder() > thick.get_zorder()  # seen also where the other is the longer one


def test_an_interval_without_an_end_runs_to_the_edge(result):
    class Unbounded:
        def conf_int(self, alpha, method, target):
            return np.array([-np.inf, 4.0, 4.0]), np.array([np.inf, 5.0, 5.0])

    ax = dps.plots.forest(replace(result, intervals=Unbounded()))
    ax.figure.draw_without_rendering()
    (first, *_) = ax.collections[0].get_segments()
    np.testing.assert_allclose(first[:, 0], ax.get_xlim())


def test_other_results_and_too_many_parameters_are_refused(result):
    many = [str(i) for i in range(241)]
    zeros = np.zeros(241)
    wide = replace(result, terms=many, params=zeros, sampling_variance=zeros,
                   privacy_variance=zeros)  # fmt: skip
    with pytest.raises(dps.RequestError, match="at most 240 parameters, and this result has 241"):
        dps.plots.forest(wide)


def test_some_terms_are_drawn_in_the_order_asked_for(result):
    asked = result.terms[2::-2]
    ax = dps.plots.forest(result, terms=asked)
    assert [label.get_text() for label in ax.get_yticklabels()] == asked
    np.testing.assert_array_equal(ax.lines[0].get_xdata(), [result.params[t] for t in asked])
    with pytest.raises(dps.RequestError, match="terms must be some of"):
        dps.plots.forest(result, terms=["region=x"])


def test_slopes_entries_and_ratios_have_axes_on_which_they_are_seen():
    """No intercept beside slopes, and a panel for each unit of a covariance or a comparison."""

    def drawn(result, terms=None):
        axes = np.atleast_1d(dps.plots.forest(result, terms=terms))
        return [[label.get_text() for label in ax.get_yticklabels()] for ax in axes]

    schema = dps.Schema([*(dps.Number(name, 0, 9, missing=0) for name in "xy"),
                         *map(dps.Boolean, "ab")])  # fmt: skip
    asked = {"line": dps.OLS("y ~ x"), "gap": dps.Difference("a", "b"),
             "spread": dps.Covariance(["x", "y"])}  # fmt: skip
    plan = dps.plan(schema, asked, budget=dps.PureDP(50))
    numbers = np.arange(600)
    rows = pd.DataFrame({"x": numbers % 10, "y": numbers % 7, "a": numbers % 2 == 0,
                         "b": numbers % 3 == 0})  # fmt: skip
    release = dps.release(plan, rows, m=200, rng=0)
    line = release.infer("line")
    assert drawn(line) == [["x"]]
    assert drawn(release.infer("spread")) == [["var(x)"], ["cov(x, y)"], ["var(y)"]]
    assert drawn(release.infer("gap")) == [["risk difference"], ["risk ratio", "odds ratio"]]


def test_units_have_panels_and_scales_their_axes(no_noise):
    """Means of two columns, dates among them, and quantiles of a logarithmic column."""
    schema = dps.Schema([
        dps.Number("day", "2020-01-01", "2020-12-31", missing="2020-06-01"),
        dps.Number("age", 0, 100, points=101, missing=0),
        dps.Number("pay", 1, 1_000, edges=[10, 100], scale="log", missing=10),
    ])  # fmt: skip
    rows = pd.DataFrame({"day": pd.date_range("2020-01-01", periods=300), "age": 40, "pay": 50})
    asked = {"means": dps.Mean(["day", "age"]), "pay": dps.Quantile("pay", [0.25, 0.5])}
    plan = dps.plan(schema, asked, budget=dps.PureDP(1e4), n=300)
    release = dps.release(plan, rows, rng=0, m=100)
    found = release.infer("means")
    panels = dps.plots.forest(found)
    labels = [[label.get_text() for label in ax.get_yticklabels()] for ax in panels]
    assert labels == [["mean of day"], ["mean of age"]]
    assert panels[0].xaxis.get_major_formatter()(18_262, 0) == "2020-01-01"
    assert dps.plots.forest(release.infer("pay")).get_xscale() == "log"
    assert dps.plots.distribution(release.infer("pay")).get_xscale() == "log"
    figure = pyplot.figure()
    with pytest.raises(dps.RequestError, match="several panels"):
        dps.plots.forest(found, ax=figure.add_axes((0, 0, 1, 1)))
