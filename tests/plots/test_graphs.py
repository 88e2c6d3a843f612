"""Networks and matrices of graphical models, drawn from results."""

import numpy as np
import pandas as pd
import pytest

import dpstats as dps
from dpstats.plots.axes import labels_of


def test_edges_are_lines_of_their_strength(release, ax):
    result = release.infer("graph")
    assert dps.plots.network(result, ax=ax) is ax
    widths = sorted(line.get_linewidth() for line in ax.lines)
    estimates = np.sort(np.abs(result.edges()["estimate"]))
    np.testing.assert_allclose(widths, np.maximum(8 * estimates, 0.5))
    assert "tab:red" in {line.get_color() for line in ax.lines}
    assert {text.get_text() for text in ax.texts} >= set(labels_of(release.schema.names[:4]))


def test_trees_pictures_and_matrices(release, ax):
    names = release.schema.names[:3]
    tree = release.infer(dps.GraphicalModel(names, structure="tree"))
    dps.plots.network(tree, ax=ax)
    assert (len(ax.lines), ax.get_title()) == (2, "2 sure edges of 2")
    with pytest.raises(dps.RequestError, match="adjust"):
        dps.plots.network(tree, adjust="bonferroni")
    sparse = dps.GraphicalModel(names, estimator="clime", penalties=[0.1, 0.95])
    result = release.infer(sparse)
    for penalty, count in zip((0.1, 0.95), result.edge_counts, strict=True):
        ax.clear()
        dps.plots.network(result, penalty=penalty, ax=ax)
        assert ax.get_title() == f"{count} edges, clime at penalty {penalty}"
    assert not ax.lines
    result = release.infer(dps.Correlation(names))
    ax = dps.plots.matrix(result)
    shown, off = ax.images[0].get_array().filled(np.nan), ~np.eye(3, dtype=bool)
    np.testing.assert_array_equal(shown[off], result.matrix.to_numpy()[off])
    assert ax.get_title() == "Correlations"


def test_declared_pairs_that_are_certified_present_are_solid(ax):
    """The first of the loop is strong; it is in the network too, as a pair that is not tested."""
    names = ["p", "q", "r", "s"]
    loop = [("p", "q"), ("q", "r"), ("r", "s"), ("s", "p")]
    asked = {"g": dps.GraphicalModel(names, separators=loop)}
    plan = dps.plan(dps.Schema(map(dps.Boolean, names)), asked, budget=dps.PureDP(5_000), n=20_000)
    rng = np.random.default_rng(0)
    rows = pd.DataFrame(rng.random((20_000, 4)) < 0.5, columns=names)
    rows["q"] = rows["p"] ^ (rng.random(len(rows)) < 0.1)
    result = dps.release(plan, rows, m=100, k=10, rng=0).infer("g")
    assert [term for term, verdict in zip(result.terms, result.verdicts(), strict=True)
            if verdict == "present"] == ["p, q"]  # fmt: skip
    dps.plots.network(result, ax=ax)
    assert [ln.get_color() for ln in ax.lines if ln.get_linestyle() == "-"] == ["tab:blue"]
    dotted = [line.get_color() for line in ax.lines if line.get_linestyle() == ":"]
    assert dotted == ["0.6"] * ((~result.tested).sum() - 1)
    pytest.importorskip("networkx")
    [(first, second, found)] = result.to_networkx().edges(data=True)
    assert ({first, second}, found["tested"], found["certified"]) == ({"p", "q"}, False, "present")
