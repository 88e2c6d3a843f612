"""Plots of curves: widths, distribution functions, mean losses and survival."""

import numpy as np
import pytest

import dpstats as dps
from dpstats.planning.curve import Curve


def test_lines_hold_the_widths_and_crosses_what_is_unbounded():
    def drawn(**widths):
        arrays = {name: np.array(found) for name, found in widths.items()}
        of = {name: "age" if name == "b" else "" for name in widths}
        return dps.plots.curve(Curve(
            "epsilon", np.array([0.5, 1, 2]), arrays, of, 100, "noise_aware", 0.05, "even rows"
        ))  # fmt: skip

    assert not len(drawn(a=[np.inf] * 3).get_yticks())
    ax = drawn(a=[0.3, 0.2, 0.1], b=[np.inf, 20, 10])
    first, second = ax.lines
    np.testing.assert_array_equal(first.get_xydata(), [[0.5, 0.3], [1, 0.2], [2, 0.1]])
    np.testing.assert_array_equal(second.get_xydata(), [[1, 20], [2, 10]])
    (cross,) = ax.collections
    np.testing.assert_array_equal(cross.get_offsets(), [[0.5, 1.0]])
    assert (ax.get_xscale(), ax.get_yscale()) == ("log", "log")
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["a", "b: age"]
    assert [tick.get_text() for tick in ax.get_xticklabels()] == ["0.5", "1", "2"]


def band(ax, x):
    """Limits of the drawn band at some x."""
    (path,) = ax.collections[0].get_paths()
    inside = [y for y in np.linspace(0, 1, 4_001) if path.contains_point((x, y))]
    return min(inside), max(inside)


def test_bands_allow_for_increasing_functions_between_edges_and_constant_ones_between_values(
    release,
):
    result = release.infer("age")
    frame = result.distribution(target="table")
    ax = dps.plots.distribution(result, target="table")
    low, high = frame["band_low"], frame["band_high"]
    for x, expected in {10: (0, high[0]), 30: (low[0], high[1]), 70: (low[1], 1)}.items():
        assert band(ax, x) == pytest.approx(expected, abs=1e-3)
    np.testing.assert_array_equal(ax.lines[0].get_xydata(), frame[["edge", "estimate"]])
    score = release.infer("score")
    ax = dps.plots.distribution(score)
    for (_, row), x in zip(score.distribution().iterrows(), (1.5, 3.0), strict=False):
        assert band(ax, x) == pytest.approx((row["band_low"], row["band_high"]), abs=1e-3)
    assert ax.get_ylabel() == "share of the rows up to"
    assert dps.plots.distribution(release.infer("wage")).get_xscale() == "log"


def test_risks_are_the_noisy_losses_with_the_estimate_inside_the_set(release, ax):
    found = release.infer("one")
    assert dps.plots.risk(found, ax=ax) is ax
    np.testing.assert_array_equal(ax.lines[0].get_xydata(), found.risks()[["Intercept", "risk"]])
    shaded = ax.collections[1].get_paths()[0].get_extents()
    low, high = found.conf_int()[0]
    step = 2 / 120
    assert low - step <= shaded.x0 <= shaded.x1 <= high + step

    found, names = release.infer("three"), ("z", "x")
    ax = dps.plots.risk(found, parameters=names)
    assert (ax.get_xlabel(), ax.get_ylabel()) == names
    point = np.concatenate(ax.lines[0].get_data())
    np.testing.assert_allclose(point, found.params[list(names)])
    assert any(path.contains_point(point) for path in ax.collections[-1].get_paths())
    assert ax.collections[0].levels[0] <= found.risks()["risk"].max()


def written_below(ax):
    """Texts of the lines below the time axis, from the highest to the lowest."""
    lines = {}
    for text in ax.texts:
        if hasattr(text, "xyann"):
            lines.setdefault(-text.xyann[1], []).append(text)
    return [[t.get_text() for t in lines[y]] for y in sorted(lines)]


def test_curves_of_groups_run_through_the_edges_with_the_numbers_at_risk(release):
    result = release.infer("arms")
    frame = result.curve(alpha=0.1, target="table")
    ax = dps.plots.survival(result, alpha=0.1, target="table")
    groups = [part for _, part in frame.groupby("group")]
    for line, part in zip(ax.lines, groups, strict=True):
        x, y = line.get_data()
        np.testing.assert_array_equal(x, [0, *part["time"]])
        np.testing.assert_array_equal(y, [1, *part["monotone"]])
        assert line.get_drawstyle() == "default"
    for part, band, interval in zip(groups, ax.collections[::2], ax.collections[1::2], strict=True):
        for area, low in ((band, "band_low"), (interval, "low")):
            ends = area.get_paths()[0].get_extents()
            assert (ends.y0, ends.y1) == (part[low].min(), 1)
    header, *lines = written_below(ax)
    assert header == ["rows at risk (noisy)"]
    for (label, *numbers), part in zip(lines, groups, strict=True):
        assert label == part["group"].iloc[0]
        assert numbers == [f"{rows:,.0f}" for rows in part["at_risk"][:3]]
    assert ax.get_xticks().tolist() == [0, 100, 200, 300]
    rare = dps.plots.survival(release.infer("rare"))  # a group without a start is left out
    assert [line.get_label() for line in rare.lines] == ["rare=False"]


def test_times_that_are_dates_are_shown_as_dates(release):
    ax = dps.plots.survival(release.infer("dates"), band=False)
    shown = [tick.get_text() for tick in ax.get_xticklabels()]
    assert shown == ["2020-01-01", "2020-04-01", "2020-09-01"]
    assert len(ax.collections) == 1  # without the band


def test_kinds_of_events_have_a_panel_each_for_groups_and_a_colour_each_without(release):
    result = release.infer("kinds")
    curves = result.curve().set_index(["group", "event"])["monotone"]
    for panel, event in zip(dps.plots.survival(result), result.events, strict=True):
        assert event in [text.get_text() for text in panel.texts]
        for line, group in zip(panel.lines, result.labels, strict=True):
            np.testing.assert_array_equal(line.get_ydata(), [0, *curves[group, event]])
    one = dps.plots.survival(result, groups=["arm=old"])
    assert [line.get_label() for line in one.lines] == list(result.events)
    assert one.get_ylabel() == "cumulative incidence"
