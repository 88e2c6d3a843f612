"""What all plots share: axes, names that fit, and refusals."""

import numpy as np
import pytest
from matplotlib import pyplot

import dpstats as dps
from dpstats.planning.curve import Curve
from dpstats.plots.axes import labels_of

PLOTS = {
    dps.plots.network: "graph",
    dps.plots.matrix: "graph",
    dps.plots.scree: "shape",
    dps.plots.loadings: "shape",
}


def test_any_name_can_be_drawn(release):
    for plot, name in PLOTS.items():
        plot(release.infer(name)).figure.draw_without_rendering()  # without a warning
    with pytest.raises(dps.RequestError, match=r"ax must be a matplotlib Axes.*got int"):
        plot(release.infer(name), ax=3)
    odd = release.schema.names[:4]
    assert labels_of(odd) == ["a name of …even more", "column 2", r"\$x^{\$", "plain"]
    assert labels_of(odd[:1], lines=2) == ["a name of forty\ncharacters, or even more"]


def test_what_cannot_be_drawn_is_refused(release):
    plots, arms, rare = dps.plots, release.infer("arms"), release.infer("rare")
    alone = pyplot.figure().add_axes((0, 0, 1, 1))
    correlation = dps.Correlation(release.schema.names[:2])
    many = {f"a{i}": np.ones(3) for i in range(11)}
    curve = Curve("epsilon", np.array([0.5, 1, 2]), many, dict.fromkeys(many, ""), 100,
                  "noise_aware", 0.05, "even rows")  # fmt: skip
    for plot, given, options, message in [
        (plots.curve, ("another",), {}, r"is of plan\.curve"),
        (plots.curve, (curve,), {}, "at most 10 analyses, not 11"),
        (plots.distribution, ("another",), {}, r"dps\.Quantile.*got str"),
        (plots.risk, ("another",), {}, r"dps\.LossGrid"),
        (plots.matrix, ("another",), {}, r"dps\.GraphicalModel"),
        (plots.matrix, (release.infer(correlation),), {"penalty": 0.1}, "penalty="),
        (plots.table, (release, "wage", "end"), {}, "cannot answer"),
        (plots.table, (release, "age", "age"), {}, "two different columns, got 'age' twice"),
        (plots.margin, ("release.zip", "region"), {}, "needs a release, got str"),
        (plots.departures, ("release.zip",), {}, "needs a release or a certificate.*got str"),
        (plots.risk, (release.infer("three"),), {"parameters": ["w"]}, "be one or two of"),
        (plots.risk, (release.infer("three"),), {"parameters": ["x", "x"]}, "be one or two of"),
        (plots.survival, (arms,), {"groups": ["x"]}, r"some of \['arm=new', 'arm=old'\]"),
        (plots.survival, (arms,), {"groups": ["arm=new"] * 11}, "at most 10 curves, not 11"),
        (plots.survival, (rare,), {"groups": ["rare=True"]}, "no curve of .*rare=True.* a start"),
        (plots.forest, (release.infer("means"),), {"terms": ["region=x"]}, "must be some of"),
        (plots.forest, (release.infer("both"),), {"ax": alone}, "several panels"),
    ]:
        with pytest.raises(dps.DpstatsError, match=message):
            plot(*given, **options)
