"""What all plots share: axes, and names that fit."""

import numpy as np
import pandas as pd
import pytest
from matplotlib import pyplot

import dpstats as dps
from dpstats.errors import RequestError
from dpstats.plots.axes import (
    LINES,
    add_legend,
    axis_of,
    label_rows,
    labels_of,
    titled,
)

ODD = ["a name of forty characters, or even more", "収入", "$x^{$", "plain"]


@pytest.fixture(scope="module")
def release():
    """Two analyses of columns with names that plots cannot show as they are."""
    schema = dps.Schema([dps.Number(name, 0, 9, missing=0) for name in ODD])
    asked = {"graph": dps.GraphicalModel(ODD), "shape": dps.PCA(ODD), "means": dps.Mean(ODD)}
    plan = dps.plan(schema, asked, budget=dps.PureDP(1_000))
    rows = pd.DataFrame({name: [i * k % 10 for k in range(2_000)]
                         for i, name in enumerate(ODD, start=1)})  # fmt: skip
    return dps.release(plan, rows, m=500, rng=0)


PLOTS = {
    dps.plots.network: "graph",
    dps.plots.matrix: "graph",
    dps.plots.scree: "shape",
    dps.plots.loadings: "shape",
    dps.plots.forest: "means",
}


@pytest.mark.parametrize("plot", PLOTS)
def test_any_name_can_be_drawn_on_axes_of_matplotlib(plot, release):
    result = release.infer(PLOTS[plot])
    with pytest.raises(RequestError, match=r"ax must be a matplotlib Axes.*got int"):
        plot(result, ax=3)
    np.ravel(plot(result))[0].figure.canvas.draw()  # a warning is an error


def test_what_another_plot_draws_is_refused():
    for plot, needed in {
        dps.plots.curve: r"is of plan\.curve", dps.plots.distribution: r"dps\.Quantile.*got str",
        dps.plots.risk: r"dps\.LossGrid", dps.plots.path: r"dps\.Lasso",
        dps.plots.network: r"dps\.GraphicalModel", dps.plots.matrix: r"dps\.GraphicalModel",
        dps.plots.forest: "a result with estimates", dps.plots.departures: "a certificate.*got str",
    }.items():  # fmt: skip
        with pytest.raises(RequestError, match=needed):
            plot("another")


def test_names_are_shortened_or_numbered():
    assert labels_of(ODD) == ["a name of …even more", "column 2", r"\$x^{\$", "plain"]
    lines = labels_of([ODD[0]], lines=2)
    assert lines == ["a name of forty\ncharacters, or even more"]
    words = " ".join(["level=abc,"] * 12)
    (whole,), (cut,) = (labels_of([words * k], lines=LINES) for k in (1, 3))
    assert " ".join(whole.split("\n")) == words
    assert whole.count("\n") == 5 == cut.count("\n")
    assert "…" in cut
    assert label_rows([words, "x"]) == 2 * label_rows([words]) == 6


@pytest.mark.parametrize("ends", [(21_000, 39_000), (9_000, 210_000), (1e-3, 1e6)])
def test_logarithmic_axes_have_few_numbers_written_out(ends):
    figure, ax = pyplot.subplots(layout="constrained")
    ax.set_xlim(*ends)
    axis_of(ax, log=True)
    figure.draw_without_rendering()
    shown = [tick.label1.get_text() for tick in ax.xaxis.get_major_ticks()
             if ends[0] <= tick.get_loc() <= ends[1]]  # fmt: skip
    assert 2 <= len(shown) <= 12
    assert all(set(text) <= set("0123456789,.") for text in shown)
    assert not len(ax.xaxis.get_minorticklocs())


@pytest.mark.parametrize("columns", [1, 2])
def test_titles_and_legends_stay_in_the_figure(columns):
    """Also beside long names, which push the axes to the right."""
    figure, drawn = pyplot.subplots(1, columns, squeeze=False, layout="constrained", figsize=(6, 3))
    for ax in drawn[0]:
        for label in ("sampling and privacy noise", "noisy answers", "synthetic rows"):
            ax.plot([0, 1], [0, 1], label=label)
        ax.set_yticks([0, 1], ["retired or in education", "employed, part time"])
        titled(ax, "y ~ " + " + ".join(f"column{i}" for i in range(9)))
        add_legend(ax, ncols=3)
    figure.canvas.draw()
    for ax in drawn[0]:
        legend = ax.get_legend()
        for part in (ax.title, legend):
            box = part.get_window_extent()
            assert figure.bbox.x0 <= box.x0 < box.x1 <= figure.bbox.x1
        assert legend.get_window_extent().y1 < ax.get_window_extent().y0
    assert drawn[0, 0].get_legend()._ncols == (2 if columns == 1 else 1)
