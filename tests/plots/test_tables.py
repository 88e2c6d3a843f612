"""Plots of tables, margins and certificates: what is drawn are the numbers of the release."""

import itertools

import numpy as np
import pandas as pd
import pytest

import dpstats as dps

LEVELS = ["n", "s", "e"]


def closed(ax):
    ax.figure.draw_without_rendering()
    return ax


def test_a_margin_has_the_answers_their_noise_and_the_synthetic_shares(release):
    ax = closed(dps.plots.margin(release, "region", alpha=0.1))
    found = release.infer(dps.Marginals(["region"], 1))
    np.testing.assert_allclose(ax.lines[0].get_xdata(), found.params)
    (bars,) = ax.collections
    drawn = np.array([segment[:, 0] for segment in bars.get_segments()])
    np.testing.assert_allclose(drawn, found.conf_int(alpha=0.1, target="table"))
    shares = release.to_frame()["region"].value_counts(normalize=True)
    assert [bar.get_width() for bar in ax.patches] == pytest.approx(
        [shares.get(x, 0) for x in LEVELS]
    )


def test_a_table_is_drawn_the_other_way_round(release):
    ax = closed(dps.plots.table(release, "smoker", "region"))
    found = release.infer(dps.Marginals(["region", "smoker"], 2))
    rows, columns = (
        [label.get_text() for label in axis.get_ticklabels()] for axis in (ax.yaxis, ax.xaxis)
    )
    shown = pd.DataFrame(found.conf_int(target="table"), found.terms).assign(share=found.fitted)
    texts = iter(ax.texts)
    for row, column in itertools.product(rows, columns):
        low, high, fitted = shown.loc[f"region={column}, smoker={row}"]
        share, noise = (float(part) for part in next(texts).get_text().split("\n±"))
        assert share == pytest.approx(100 * fitted, abs=0.06)
        assert noise == pytest.approx(100 * max(fitted - low, high - fitted), abs=0.06)


def test_departures_are_those_of_the_certificate(release):
    accuracy = release.accuracy()
    ax = closed(dps.plots.departures(accuracy, most=3))
    worst = np.sort(np.argsort(-accuracy.joint_bounds, kind="stable")[:3])
    np.testing.assert_allclose(
        ax.lines[0].get_xdata(), (accuracy.synthetic - accuracy.noisy)[worst], atol=1e-15
    )
    drawn = np.array([segment[:, 0] for segment in ax.collections[0].get_segments()])
    np.testing.assert_allclose(drawn, (accuracy.joint_ends - accuracy.noisy).T[worst])
    whole = closed(dps.plots.departures(release, most=3))
    np.testing.assert_array_equal(whole.lines[0].get_xdata(), ax.lines[0].get_xdata())


def test_labels_that_do_not_fit_are_left_out(ax):
    edges = [f"2020-{month:02}-{day}" for month in range(1, 13) for day in (10, 20)]
    day = dps.Number("day", "2020-01-01", "2020-12-31", edges=edges)
    asked = {"t": dps.Independence("x", "day")}
    plan = dps.plan(dps.Schema([day, dps.Boolean("x")]), asked, budget=dps.PureDP(1))
    rows = pd.DataFrame({"day": ["2020-05-05"] * 500, "x": [True] * 500})
    ax.figure.set_size_inches(4, 5)
    dps.plots.table(dps.release(plan, rows, m=50, k=50, rng=0), "x", "day", ax=ax)
    labels = closed(ax).get_xticklabels()
    boxes = [label.get_window_extent() for label in labels]
    assert all(one.x1 < two.x0 for one, two in itertools.pairwise(boxes))
    assert labels[0].get_text() == "[2020-01-01, 2020-01-10)"
    assert len(labels) < 25
