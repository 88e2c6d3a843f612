"""Forest plots: lines are the intervals, for the population and for the private table."""

import numpy as np
import pandas as pd
import pytest

import dpstats as dps

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")
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
    from matplotlib import pyplot

    ax = dps.plots.forest(result, alpha=0.1, method="certified", simultaneous=True)
    for lines, target in zip(ax.collections, ("population", "table"), strict=True):
        drawn = np.array([segment[:, 0] for segment in lines.get_segments()])
        options = {"alpha": 0.1, "method": "certified", "simultaneous": True}
        np.testing.assert_allclose(drawn, result.conf_int(target=target, **options))
    assert [label.get_text() for label in ax.get_yticklabels()] == result.terms
    thin, thick = ax.collections
    assert thin.get_zorder() > thick.get_zorder()  # seen also where the other is the longer one
    assert thin.get_linewidth()[0] < thick.get_linewidth()[0]
    pyplot.close(ax.figure)


def test_an_interval_without_an_end_runs_to_the_edge(result):
    from dataclasses import replace

    from matplotlib import pyplot

    class Unbounded:
        def conf_int(self, alpha, method, target):
            return np.array([-np.inf, 4.0, 4.0]), np.array([np.inf, 5.0, 5.0])

    ax = dps.plots.forest(replace(result, intervals=Unbounded()))
    ax.figure.canvas.draw()
    (first, *_) = ax.collections[0].get_segments()
    np.testing.assert_allclose(first[:, 0], ax.get_xlim())
    pyplot.close(ax.figure)


def test_other_results_and_too_many_parameters_are_refused(result):
    from dataclasses import replace

    with pytest.raises(dps.RequestError, match=r"needs a result with estimates.*FTestResult"):
        dps.plots.forest(result.anova())
    many = [str(i) for i in range(61)]
    zeros = np.zeros(61)
    wide = replace(result, terms=many, params=zeros, sampling_variance=zeros,
                   privacy_variance=zeros)  # fmt: skip
    with pytest.raises(dps.RequestError, match="at most 60 parameters, and this result has 61"):
        dps.plots.forest(wide)


def test_some_terms_are_drawn_in_the_order_asked_for(result):
    from matplotlib import pyplot

    asked = result.terms[2::-2]
    ax = dps.plots.forest(result, terms=asked)
    assert [label.get_text() for label in ax.get_yticklabels()] == asked
    np.testing.assert_array_equal(ax.lines[0].get_xdata(), [result.params[t] for t in asked])
    pyplot.close(ax.figure)
    for terms in ([], ["region=x"]):
        with pytest.raises(dps.RequestError, match="terms must be some of"):
            dps.plots.forest(result, terms=terms)
