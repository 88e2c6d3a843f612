"""Networks and matrices of graphical models, drawn from results."""

import numpy as np
import pandas as pd
import pytest

import dpstats as dps
from dpstats.errors import RequestError

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")
NAMES = ["a", "b", "c"]


@pytest.fixture(scope="module")
def release():
    schema = dps.Schema([dps.Number(name, -3, 3, missing=0) for name in NAMES])
    z = np.random.default_rng(0).standard_normal((5_000, 3))
    rows = pd.DataFrame(z @ [[1, -0.8, 0.4], [0, 0.6, -0.3], [0, 0, 0.8]], columns=NAMES)
    plan = dps.plan(schema, {"g": dps.GraphicalModel(NAMES)}, budget=dps.PureDP(2_000))
    return dps.release(plan, rows, m=1_000, rng=0)


@pytest.fixture
def ax():
    from matplotlib import pyplot

    figure, axes = pyplot.subplots()
    yield axes
    pyplot.close(figure)


def test_edges_are_lines_of_their_strength(release, ax):
    drawn = dps.plots.network(release.infer("g"), ax=ax)
    assert drawn is ax
    widths = sorted(line.get_linewidth() for line in ax.lines)
    estimates = np.sort(np.abs(release.infer("g").edges()["estimate"]))
    np.testing.assert_allclose(widths, np.maximum(8 * estimates, 0.5))
    colors = {line.get_color() for line in ax.lines}
    assert "tab:red" in colors
    assert {text.get_text() for text in ax.texts} >= set(NAMES)


def test_lines_of_certified_edges_are_solid(release, ax):
    result = release.infer("g")
    dps.plots.network(result, ax=ax)
    solid = sum(line.get_linestyle() == "-" for line in ax.lines)
    assert solid == (result.edges()["certified"] == "present").sum()


def test_trees_and_pictures(release, ax):
    tree = release.infer(dps.GraphicalModel(NAMES, structure="tree"))
    dps.plots.network(tree, ax=ax)
    assert len(ax.lines) == 2
    assert ax.get_title() == "2 sure edges of 2"
    ax.clear()
    sparse = dps.GraphicalModel(NAMES, estimator="clime", penalties=[0.1, 0.95])
    result = release.infer(sparse)
    dps.plots.network(result, penalty=0.1, ax=ax)
    assert ax.get_title() == f"{result.edge_counts[0]} edges, clime"
    ax.clear()
    dps.plots.network(result, penalty=0.95, ax=ax)
    assert not ax.lines


def test_matrices_show_every_pair(release, ax):
    result = release.infer("g")
    dps.plots.matrix(result, ax=ax)
    [image] = ax.images
    values = np.asarray(image.get_array(), dtype=float)
    np.testing.assert_allclose(values[0, 1], result.params[0])
    np.testing.assert_allclose(values, values.T)
    assert len(ax.texts) == 6
    assert [label.get_text() for label in ax.get_yticklabels()] == NAMES


@pytest.mark.parametrize("plot", [dps.plots.network, dps.plots.matrix])
def test_other_results_are_refused(plot, ax):
    with pytest.raises(RequestError, match=r"needs the result of a dps\.GraphicalModel"):
        plot("graph", ax=ax)
