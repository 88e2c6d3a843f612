"""Networks and matrices of graphical models, drawn from results."""

import numpy as np
import pandas as pd
import pytest

import dpstats as dps
from dpstats.errors import RequestError

NAMES = ["a", "b", "c"]


@pytest.fixture(scope="module")
def release():
    schema = dps.Schema([dps.Number(name, -3, 3, missing=0) for name in NAMES])
    z = np.random.default_rng(0).standard_normal((5_000, 3))
    rows = pd.DataFrame(z @ [[1, -0.8, 0.4], [0, 0.6, -0.3], [0, 0, 0.8]], columns=NAMES)
    plan = dps.plan(schema, {"g": dps.GraphicalModel(NAMES)}, budget=dps.PureDP(2_000))
    return dps.release(plan, rows, m=100, rng=0)


def test_edges_are_lines_of_their_strength(release, ax):
    drawn = dps.plots.network(release.infer("g"), ax=ax)
    assert drawn is ax
    widths = sorted(line.get_linewidth() for line in ax.lines)
    estimates = np.sort(np.abs(release.infer("g").edges()["estimate"]))
    np.testing.assert_allclose(widths, np.maximum(8 * estimates, 0.5))
    colors = {line.get_color() for line in ax.lines}
    assert "tab:red" in colors
    assert {text.get_text() for text in ax.texts} >= set(NAMES)


def test_trees_and_pictures(release, ax):
    tree = release.infer(dps.GraphicalModel(NAMES, structure="tree"))
    dps.plots.network(tree, ax=ax)
    assert len(ax.lines) == 2
    assert ax.get_title() == "2 sure edges of 2"
    ax.clear()
    sparse = dps.GraphicalModel(NAMES, estimator="clime", penalties=[0.1, 0.95])
    result = release.infer(sparse)
    dps.plots.network(result, penalty=0.1, ax=ax)
    assert ax.get_title() == f"{result.edge_counts[0]} edges, clime at penalty 0.1"
    ax.clear()
    dps.plots.network(result, penalty=0.95, ax=ax)
    assert not ax.lines


def test_a_matrix_shows_correlations(ax):
    schema = dps.Schema([dps.Number(name, -3, 3, missing=0) for name in NAMES])
    plan = dps.plan(schema, {"r": dps.Correlation(NAMES)}, budget=dps.PureDP(2_000))
    z = np.random.default_rng(0).standard_normal((500, 3))
    result = dps.release(plan, pd.DataFrame(z, columns=NAMES), m=50, rng=0).infer("r")
    dps.plots.matrix(result, ax=ax)
    shown = ax.images[0].get_array().filled(np.nan)
    off = ~np.eye(3, dtype=bool)
    np.testing.assert_array_equal(shown[off], result.matrix.to_numpy()[off])
    assert ax.get_title() == "Correlations"
    with pytest.raises(RequestError, match="penalty="):
        dps.plots.matrix(result, penalty=0.1, ax=ax)


def test_declared_pairs_that_are_certified_present_are_solid(ax):
    """The first of the loop is strong; it is in the network too, as a pair that is not tested."""
    names = ["p", "q", "r", "s"]
    schema = dps.Schema([dps.Boolean(name) for name in names])
    loop = [("p", "q"), ("q", "r"), ("r", "s"), ("s", "p")]
    model = dps.GraphicalModel(names, separators=loop)
    plan = dps.plan(schema, {"g": model}, budget=dps.PureDP(5_000), n=20_000)
    rng = np.random.default_rng(0)
    rows = pd.DataFrame(rng.random((20_000, 4)) < 0.5, columns=names)
    rows["q"] = rows["p"] ^ (rng.random(len(rows)) < 0.1)
    result = dps.release(plan, rows, m=100, rng=0).infer("g")
    present = [term for term, one in zip(result.terms, result.verdicts(), strict=True)
               if one == "present"]  # fmt: skip
    assert present == ["p, q"]
    dps.plots.network(result, ax=ax)
    solid = [line for line in ax.lines if line.get_linestyle() == "-"]
    assert [line.get_color() for line in solid] == ["tab:blue"]
    dotted = [line for line in ax.lines if line.get_linestyle() == ":"]
    assert len(dotted) == (~result.tested).sum() - 1
    assert {line.get_color() for line in dotted} == {"0.6"}
    pytest.importorskip("networkx")
    [(first, second, found)] = result.to_networkx().edges(data=True)
    assert ({first, second}, found["tested"], found["certified"]) == ({"p", "q"}, False, "present")
