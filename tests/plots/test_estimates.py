"""Forest plots: lines are the intervals, for the population and for the private table."""

from dataclasses import replace

import numpy as np
import pytest

import dpstats as dps


@pytest.fixture(scope="module")
def result(release):
    """Two groups of many rows, and an empty one."""
    return release.infer("means")


def test_lines_are_the_intervals_of_both_targets(result):
    options = {"alpha": 0.1, "method": "certified", "simultaneous": True}
    ax = dps.plots.forest(result, **options)
    for lines, target in zip(ax.collections, ("population", "table"), strict=True):
        drawn = np.array([segment[:, 0] for segment in lines.get_segments()])
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


def test_some_terms_are_drawn_in_the_order_asked_for_and_no_more_than_fit(result):
    asked = result.terms[2::-2]
    ax = dps.plots.forest(result, terms=asked)
    assert [label.get_text() for label in ax.get_yticklabels()] == asked
    np.testing.assert_array_equal(ax.lines[0].get_xdata(), [result.params[t] for t in asked])
    many, zeros = [str(i) for i in range(241)], np.zeros(241)
    wide = replace(result, terms=many, params=zeros, sampling_variance=zeros,
                   privacy_variance=zeros)  # fmt: skip
    with pytest.raises(dps.RequestError, match="at most 240 parameters, and this result has 241"):
        dps.plots.forest(wide)


def test_slopes_entries_ratios_and_units_have_axes_on_which_they_are_seen(release):
    """No intercept beside slopes; a panel for each unit of covariances, comparisons and means."""
    spread = release.infer(dps.Covariance(["$x^{$", "plain"]))
    for result, labels in [
        (release.infer(dps.OLS("plain ~ 収入")), [["term 1"]]),
        (spread, [[r"var(\$x^{\$)"], [r"cov(\$x^{\$, plain)"], ["var(plain)"]]),
        (release.infer("gap"), [["risk difference"], ["risk ratio", "odds ratio"]]),
        (release.infer("both"), [["mean of day"], ["mean of age"]]),
    ]:
        axes = np.atleast_1d(dps.plots.forest(result))
        assert [[label.get_text() for label in ax.get_yticklabels()] for ax in axes] == labels
    assert axes[0].xaxis.get_major_formatter()(18_262, 0) == "2020-01-01"
    assert dps.plots.forest(release.infer("wage")).get_xscale() == "log"
