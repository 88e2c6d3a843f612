"""The figure of widths against the budget."""

import numpy as np
import pytest

import dpstats as dps
from dpstats.planning.curve import Curve

pyplot = pytest.importorskip("matplotlib.pyplot")


def made(widths, of=None):
    whose = {name: (of or {}).get(name, "") for name in widths}
    arrays = {name: np.array(found) for name, found in widths.items()}
    return Curve(
        "epsilon", np.array([0.5, 1, 2]), arrays, whose, 100, "noise_aware", 0.05, "even rows"
    )


@pytest.fixture(autouse=True)
def closed():
    pyplot.switch_backend("Agg")
    yield
    pyplot.close("all")


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


def test_it_draws_on_given_axes_and_the_legend_covers_no_data():
    figure, ax = pyplot.subplots(layout="constrained")
    assert dps.plots.curve(made({"a": [0.3, 0.2, 0.1]}), ax=ax) is ax
    figure.canvas.draw()
    assert ax.get_legend().get_window_extent().y1 < ax.get_window_extent().y0


def test_long_names_are_whole_in_the_legend():
    name = "share of smokers among the old of the north and of the islands beyond it"
    ax = dps.plots.curve(made({name: [0.3, 0.2, 0.1], "b": [3, 2, 1]}))
    shown = [text.get_text() for text in ax.get_legend().get_texts()]
    assert " ".join(shown[0].split("\n")) == name
    assert max(map(len, shown[0].split("\n"))) <= 72
    assert ax.get_legend()._ncols == 1


def test_refusals():
    with pytest.raises(dps.RequestError, match=r"is of plan\.curve"):
        dps.plots.curve(3)
    with pytest.raises(dps.RequestError, match="at most 10 analyses, not 11"):
        dps.plots.curve(made({f"a{i}": [1, 1, 1] for i in range(11)}))
