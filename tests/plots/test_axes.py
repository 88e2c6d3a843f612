"""What all plots share: axes, and names that fit."""

import numpy as np
import pandas as pd
import pytest

import dpstats as dps
from dpstats.errors import RequestError
from dpstats.plots.axes import (
    labels_of,
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
    return dps.release(plan, rows, m=100, rng=0)


PLOTS = {
    dps.plots.network: "graph",
    dps.plots.matrix: "graph",
    dps.plots.scree: "shape",
    dps.plots.loadings: "shape",
    dps.plots.forest: "means",
}


def test_any_name_can_be_drawn(release):
    for plot, name in PLOTS.items():
        np.ravel(plot(release.infer(name)))[0].figure.draw_without_rendering()  # without a warning
    with pytest.raises(RequestError, match=r"ax must be a matplotlib Axes.*got int"):
        plot(release.infer(name), ax=3)


def test_what_another_plot_draws_is_refused():
    for plot, needed in {
        dps.plots.curve: r"is of plan\.curve", dps.plots.distribution: r"dps\.Quantile.*got str",
        dps.plots.risk: r"dps\.LossGrid", dps.plots.matrix: r"dps\.GraphicalModel",
    }.items():  # fmt: skip
        with pytest.raises(RequestError, match=needed):
            plot("another")


def test_names_are_shortened_or_numbered():
    assert labels_of(ODD) == ["a name of …even more", "column 2", r"\$x^{\$", "plain"]
    lines = labels_of([ODD[0]], lines=2)
    assert lines == ["a name of forty\ncharacters, or even more"]
