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
    ax = dps.plots.curve(made({"a": [0.3, 0.2, 0.1], "b": [np.inf, 20, 10]}, whose))
    first, second = ax.lines
    np.testing.assert_array_equal(first.get_xydata(), [[0.5, 0.3], [1, 0.2], [2, 0.1]])
    np.testing.assert_array_equal(second.get_xydata(), [[1, 20], [2, 10]])
    (cross,) = ax.collections
    np.testing.assert_array_equal(cross.get_offsets(), [[0.5, 1.0]])
    assert (ax.get_xscale(), ax.get_yscale()) == ("log", "log")
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["a", "b: age"]
    assert [tick.get_text() for tick in ax.get_xticklabels()] == ["0.5", "1", "2"]


def test_crosses_alone_are_drawn():
    ax = dps.plots.curve(made({"a": [np.inf] * 3}))
    ax.figure.draw_without_rendering()
    assert len(ax.collections[0].get_offsets()) == 3
    assert not len(ax.get_yticks())
    assert ax.get_xlim()[0] < 0.5 < 2 < ax.get_xlim()[1]


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


@pytest.mark.parametrize("target", ["population", "table"])
def test_between_edges_the_band_allows_for_all_increasing_functions(ages, target):
    result = ages.infer("age")
    frame = result.distribution(target=target)
    ax = dps.plots.distribution(result, target=target)
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
GRID = {"Intercept": (-1, 1, 5), "x": (-1, 2, 7), "z": (-2, 1, 7)}


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
    assert [text.get_text() for text in ax.get_legend().get_texts()] == [
        "bounds, jointly", "noisy mean loss", "possible minimum"
    ]  # fmt: skip


@pytest.mark.parametrize("names", [("x", "z"), ("z", "x"), ("Intercept", "z")])
def test_two_parameters_have_the_estimate_inside_the_set(results, ax, names):
    found = results.infer("three")
    dps.plots.risk(found, parameters=names, ax=ax)
    assert (ax.get_xlabel(), ax.get_ylabel()) == names
    point = np.concatenate(ax.lines[0].get_data())
    np.testing.assert_allclose(point, found.params[list(names)])
    assert any(path.contains_point(point) for path in ax.collections[-1].get_paths())
    levels = ax.collections[0].levels
    assert levels[0] <= found.risks()["risk"].max()


def test_refusals_of_risks(results):
    found = results.infer("three")
    for names in (["w"], ["x", "x"], ["x", "z", "Intercept"], []):
        with pytest.raises(dps.RequestError, match="parameters must be one or two of"):
            dps.plots.risk(found, parameters=names)


def test_a_path_has_a_line_per_coefficient_and_the_penalty():
    names = ["a", "b", "y"]
    schema = dps.Schema([dps.Number(name, -1, 1, points=201, missing=0) for name in names])
    rng = np.random.default_rng(0)
    rows = pd.DataFrame(rng.uniform(-1, 1, (2_000, 3)).round(2), columns=names)
    plan = dps.plan(schema, {"it": dps.Lasso("y ~ a + b", 0.01)}, budget=dps.PureDP(50))
    result = dps.release(plan, rows, m=200, k=10).infer("it")
    ax = dps.plots.path(result, size=10)
    labels = [line.get_label() for line in ax.lines]
    assert labels[:2] == ["a", "b"]
    assert ax.lines[2].get_xdata()[0] == 0.01
    drawn = ax.lines[0].get_ydata()
    np.testing.assert_allclose(drawn, result.path_in_units(10)[1][:, 1])
    assert drawn[0] == 0
