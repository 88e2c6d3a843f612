"""Plots of curves: widths, distribution functions, mean losses and paths of a penalty."""

import numpy as np
import pandas as pd
import pytest

import dpstats as dps
from dpstats.planning.curve import Curve


def made(widths, of=None):
    whose = {name: (of or {}).get(name, "") for name in widths}
    arrays = {name: np.array(found) for name, found in widths.items()}
    return Curve(
        "epsilon", np.array([0.5, 1, 2]), arrays, whose, 100, "noise_aware", 0.05, "even rows"
    )


def test_lines_hold_the_widths_and_crosses_what_is_unbounded():
    whose = {"b": "age"}
    assert not len(dps.plots.curve(made({"a": [np.inf] * 3})).get_yticks())
    ax = dps.plots.curve(made({"a": [0.3, 0.2, 0.1], "b": [np.inf, 20, 10]}, whose))
    first, second = ax.lines
    np.testing.assert_array_equal(first.get_xydata(), [[0.5, 0.3], [1, 0.2], [2, 0.1]])
    np.testing.assert_array_equal(second.get_xydata(), [[1, 20], [2, 10]])
    (cross,) = ax.collections
    np.testing.assert_array_equal(cross.get_offsets(), [[0.5, 1.0]])
    assert (ax.get_xscale(), ax.get_yscale()) == ("log", "log")
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["a", "b: age"]
    assert [tick.get_text() for tick in ax.get_xticklabels()] == ["0.5", "1", "2"]


def test_refusals_of_curves():
    with pytest.raises(dps.RequestError, match="at most 10 analyses, not 11"):
        dps.plots.curve(made({f"a{i}": [1, 1, 1] for i in range(11)}))


@pytest.fixture(scope="module")
def ages():
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


def test_between_edges_the_band_allows_for_all_increasing_functions(ages):
    result = ages.infer("age")
    frame = result.distribution(target="table")
    ax = dps.plots.distribution(result, target="table")
    low, high = frame["band_low"].to_numpy(), frame["band_high"].to_numpy()
    ends = {10: (0, high[0]), 30: (low[0], high[1]), 70: (low[1], 1)}
    for x, expected in ends.items():
        assert band(ax, x) == pytest.approx(expected, abs=1e-3)
    np.testing.assert_array_equal(ax.lines[0].get_xydata(), frame[["edge", "estimate"]])


def test_between_values_the_function_is_constant(ages):
    score = ages.infer("score")
    frame = score.distribution()
    ax = dps.plots.distribution(score)
    for i, x in enumerate((1.5, 3.0)):
        expected = frame["band_low"][i], frame["band_high"][i]
        assert band(ax, x) == pytest.approx(expected, abs=1e-3)
    assert ax.get_ylabel() == "share of the rows up to"


SCHEMA = dps.Schema([
    dps.Number("x", -1, 1, points=21, missing=0), dps.Number("z", -1, 1, points=21, missing=0),
    dps.Number("y", -4, 4, points=81, missing=0),
])  # fmt: skip
GRID = {"Intercept": (-1, 1, 3), "x": (-1, 2, 4), "z": (-2, 1, 4)}


@pytest.fixture(scope="module")
def results():
    rng = np.random.default_rng(0)
    x, z = rng.uniform(-1, 1, (2, 4_000))
    rows = pd.DataFrame({"x": x, "z": z, "y": (x - z + rng.normal(0, 0.5, 4_000)).clip(-4, 4)})
    asked = {
        "three": dps.Huber("y ~ x + z", k=1, grid=GRID),
        "one": dps.Huber("y ~ 1", k=1, grid={"Intercept": (-1, 1, 9)}),
    }
    plan = dps.plan(SCHEMA, asked, budget=dps.ZCDP(50), reference=dps.Uniform())
    return dps.release(plan, rows, m=200, k=10, rng=0)


def test_one_parameter_has_its_noisy_losses_and_its_set(results, ax):
    found = results.infer("one")
    assert dps.plots.risk(found, ax=ax) is ax
    x, y = ax.lines[0].get_data()
    frame = found.risks()
    np.testing.assert_array_equal(x, frame["Intercept"])
    np.testing.assert_array_equal(y, frame["risk"])
    shaded = ax.collections[1].get_paths()[0].get_extents()
    low, high = found.conf_int()[0]
    step = 2 / 120
    assert low - step <= shaded.x0 <= shaded.x1 <= high + step


def test_two_parameters_have_the_estimate_inside_the_set(results, ax):
    found, names = results.infer("three"), ("z", "x")
    dps.plots.risk(found, parameters=names, ax=ax)
    assert (ax.get_xlabel(), ax.get_ylabel()) == names
    point = np.concatenate(ax.lines[0].get_data())
    np.testing.assert_allclose(point, found.params[list(names)])
    assert any(path.contains_point(point) for path in ax.collections[-1].get_paths())
    levels = ax.collections[0].levels
    assert levels[0] <= found.risks()["risk"].max()


def test_refusals_of_risks(results):
    found = results.infer("three")
    for names in (["w"], ["x", "x"]):
        with pytest.raises(dps.RequestError, match="parameters must be one or two of"):
            dps.plots.risk(found, parameters=names)


@pytest.fixture(scope="module")
def followed():
    """Follow-up in two arms; the times are edges, values or dates."""
    ends, edges = ["none", "dead", "relapse"], [100, 200, 300]
    days = dps.Number("days", 0, 400, edges=edges, missing=0)
    schema = dps.Schema([
        days, dps.Number("visit", values=[1, 2, 3], missing=1),
        dps.Number("day", "2020-01-01", "2020-12-31", edges=["2020-04-01", "2020-09-01"]),
        dps.Category("end", ends), dps.Category("arm", ["new", "old"]), dps.Boolean("rare"),
    ])  # fmt: skip
    asked = {
        "arms": dps.Survival("days", "end != 'none'", by="arm"),
        "visits": dps.Survival("visit", "end != 'none'"),
        "dates": dps.Survival("day", "end != 'none'"),
        "kinds": dps.Survival("days", ["end == 'dead'", "end == 'relapse'"], by="arm"),
        "whole": dps.Survival("days", ["end == 'dead'", "end == 'relapse'"]),
        "rare": dps.Survival("days", "end != 'none'", by="rare"),
    }
    plan = dps.plan(schema, asked, budget=dps.PureDP(20))
    i = np.arange(4_000)
    rows = pd.DataFrame({
        "days": i * 7 % 400, "visit": 1 + i % 3, "end": np.array(ends)[i * 11 // 5 % 3],
        "day": pd.Timestamp("2020-01-01") + pd.to_timedelta(i % 360, unit="D"),
        "arm": np.where(i % 5 < 2, "new", "old"), "rare": False,
    })  # fmt: skip
    return dps.release(plan, rows, m=100, k=50, rng=0)


def written_below(ax):
    """Texts of the lines below the time axis, from the highest to the lowest."""
    lines = {}
    for text in ax.texts:
        if hasattr(text, "xyann"):
            lines.setdefault(-text.xyann[1], []).append(text)
    return [[t.get_text() for t in lines[y]] for y in sorted(lines)]


def test_curves_of_groups_run_through_the_edges_with_the_numbers_at_risk(followed):
    result = followed.infer("arms")
    frame = result.curve(alpha=0.1, target="table")
    ax = dps.plots.survival(result, alpha=0.1, target="table")
    groups = [part for _, part in frame.groupby("group")]
    for line, part in zip(ax.lines, groups, strict=True):
        x, y = line.get_data()
        np.testing.assert_array_equal(x, [0, *part["time"]])
        np.testing.assert_array_equal(y, [1, *part["monotone"]])
        assert line.get_drawstyle() == "default"
    for part, band, interval in zip(groups, ax.collections[::2], ax.collections[1::2], strict=True):
        for area, names in ((band, ("band_low", "band_high")), (interval, ("low", "high"))):
            ends = area.get_paths()[0].get_extents()
            assert (ends.y0, ends.y1) == (part[names[0]].min(), 1)
    header, *lines = written_below(ax)
    assert header == ["rows at risk (noisy)"]
    begins = [0, 100, 200]  # the bin that begins there
    for (label, *numbers), part in zip(lines, groups, strict=True):
        assert label == part["group"].iloc[0]
        assert numbers == [f"{rows:,.0f}" for rows in part["at_risk"][: len(begins)]]
    assert ax.get_xticks().tolist() == [0, 100, 200, 300]


def test_times_that_are_dates_are_shown_as_dates(followed):
    ax = dps.plots.survival(followed.infer("dates"), band=False)
    assert [tick.get_text() for tick in ax.get_xticklabels()] == [
        "2020-01-01", "2020-04-01", "2020-09-01"
    ]  # fmt: skip
    assert len(ax.collections) == 1  # without the band


def test_kinds_of_events_have_a_panel_each_for_groups_and_a_colour_each_without(followed):
    result = followed.infer("kinds")
    panels = dps.plots.survival(result)
    frame = result.curve()
    for panel, event in zip(panels, result.events, strict=True):
        assert event in [text.get_text() for text in panel.texts]
        for line, group in zip(panel.lines, result.labels, strict=True):
            part = frame[(frame["group"] == group) & (frame["event"] == event)]
            np.testing.assert_array_equal(line.get_ydata(), [0, *part["monotone"]])
    one = dps.plots.survival(result, groups=["arm=old"])
    assert [line.get_label() for line in one.lines] == list(result.events)
    whole = dps.plots.survival(followed.infer("whole"))
    assert [line.get_label() for line in whole.lines] == list(result.events)
    assert whole.get_ylabel() == "cumulative incidence"


def test_groups_without_a_start_are_left_out(followed):
    result = followed.infer("rare")
    assert [line.get_label() for line in dps.plots.survival(result).lines] == ["rare=False"]
    with pytest.raises(dps.RequestError, match=r"no curve of .*rare=True.* has a start"):
        dps.plots.survival(result, groups=["rare=True"])


def test_refusals_of_survival(followed):
    result = followed.infer("arms")
    with pytest.raises(dps.RequestError, match=r"groups must be some of \['arm=new', 'arm=old'\]"):
        dps.plots.survival(result, groups=["x"])
    with pytest.raises(dps.RequestError, match="at most 10 curves, not 11"):
        dps.plots.survival(result, groups=["arm=new"] * 11)
