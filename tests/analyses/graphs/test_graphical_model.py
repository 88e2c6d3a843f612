"""Graphical models: options, what is measured, estimates without noise, and what results say."""

import numpy as np
import pandas as pd
import pytest
from statsmodels.stats.multitest import multipletests

import dpstats as dps
from dpstats.errors import RequestError
from dpstats.privacy.noise import _noise_from

NAMES = ["a", "b", "c", "d", "e"]
SCHEMA = dps.Schema([
    *(dps.Number(name, -4, 4, points=801, missing=0) for name in NAMES),
    dps.Boolean("yes"), dps.Category("side", ["left", "right"]),
    dps.Category("three", ["x", "y", "z"]), dps.Number("open", -4, 4, allow_missing=True),
])  # fmt: skip


@pytest.fixture(scope="module")
def rows():
    """A chain of five numbers, a Boolean that follows the first, and others."""
    rng, n = np.random.default_rng(0), 6_000
    chain = rng.standard_normal((n, 5))
    for i in range(1, 5):
        chain[:, i] = 0.6 * chain[:, i - 1] + 0.8 * chain[:, i]
    frame = pd.DataFrame(np.clip(np.round(chain, 2), -4, 4), columns=NAMES)
    return frame.assign(
        yes=chain[:, 0] + rng.standard_normal(n) > 0,
        side=np.where(rng.random(n) < 0.5, "left", "right"),
        three="x",
        open=np.where(rng.random(n) < 0.2, np.nan, frame["a"]),
    )


@pytest.fixture(scope="module")
def release(rows):
    """Little noise, of three analyses."""
    analyses = {
        "numbers": dps.GraphicalModel(NAMES, tolerance=0.2),
        "mixed": dps.GraphicalModel(["a", "yes", "side"]),
        "given": dps.GraphicalModel(["open", "b"], given="yes"),
    }
    plan = dps.plan(SCHEMA, analyses, budget=dps.PureDP(20_000), n=len(rows))
    return dps.release(plan, rows, m=2_000, rng=0)


@pytest.fixture(scope="module")
def noisy(rows, seeded_noise):
    plan = dps.plan(SCHEMA, {"g": dps.GraphicalModel(NAMES)}, budget=dps.PureDP(0.6), n=len(rows))
    with _noise_from(seeded_noise(1)):
        return dps.release(plan, rows, m=2_000, rng=0).infer("g")


def partials(values):
    precision = np.linalg.inv(np.cov(np.asarray(values, dtype=float).T))
    root = np.sqrt(np.diag(precision))
    return precision, -precision / np.outer(root, root)


def test_without_noise_estimates_are_those_of_the_rows(release, rows):
    result = release.infer("numbers")
    precision, partial = partials(rows[NAMES])
    np.testing.assert_allclose(result.precision_, precision, rtol=2e-3, atol=2e-3)
    np.testing.assert_allclose(result.params, partial[np.triu_indices(5, 1)], atol=1e-3)
    np.testing.assert_allclose(result.covariance_, np.cov(rows[NAMES].T), rtol=2e-3, atol=2e-3)
    np.testing.assert_allclose(result.location_, rows[NAMES].mean(), atol=1e-3)
    frame = result.precision(target="table")
    low, high = frame["conf_low"], frame["conf_high"]
    exact = precision[np.triu_indices(5)]
    assert np.all((low <= exact) & (exact <= high))
    assert np.all(high - low < 0.2)


def test_columns_of_two_levels_are_signs(release, rows):
    result = release.infer("mixed")
    signs = pd.DataFrame({
        "a": rows["a"], "yes": np.where(rows["yes"], 1, -1),
        "side": np.where(rows["side"] == "right", 1, -1),
    })  # fmt: skip
    _, partial = partials(signs)
    np.testing.assert_allclose(result.params, partial[np.triu_indices(3, 1)], atol=2e-3)
    assert result.edges()["term"].tolist() == ["a, yes"]
    assert "columns of two levels" in result.summary()
    drawn = release.to_frame()  # and the synthetic rows follow them
    assert drawn["a"].corr(drawn["yes"] * 1.0) == pytest.approx(
        rows["a"].corr(rows["yes"] * 1.0), abs=0.03
    )


def test_given_and_missing_cells_leave_rows_out(release, rows):
    result = release.infer("given")
    kept = rows[rows["yes"] & rows["open"].notna()]
    assert float(result) == pytest.approx(kept["open"].corr(kept["b"]), abs=0.01)
    assert abs(result.nobs - len(kept)) < 5
    assert result.title == "Graphical model of open, b, given yes"


def test_edges_and_adjustments(release):
    result = release.infer("numbers")
    assert result.edges()["term"].head(4).isin(["a, b", "b, c", "c, d", "d, e"]).all()
    raw = np.asarray(result.p_unadjusted)
    for method in ("holm", "fdr_bh"):
        expected = multipletests(raw, method=method)[1]
        np.testing.assert_allclose(result.adjusted_pvalues(method), expected)
    np.testing.assert_array_equal(result.adjusted_pvalues("none"), raw)
    np.testing.assert_array_equal(result.pvalues, result.adjusted_pvalues("holm"))
    with pytest.raises(RequestError, match=r"adjust must be one of \['holm', 'fdr_bh', 'none'\]"):
        result.adjusted_pvalues("bonferroni")


VARIANTS = {
    "any": ({}, {"alpha": 1e-9}),
    "tree": ({"structure": "tree"}, {"alpha": 1e-9}),
    "picture": ({"estimator": "clime", "penalties": [0.05, 0.3]}, {"penalty": 0.3}),
}


@pytest.mark.parametrize(("variant", "options"), VARIANTS.values(), ids=VARIANTS)
def test_all_graphs_have_pairs_edges_and_a_matrix(release, variant, options):
    networkx = pytest.importorskip("networkx")
    result = release.infer(dps.GraphicalModel(NAMES, **variant))
    matrix, pairs, edges = result.matrix, result.pairs(), result.edges(**options)
    assert list(matrix) == list(matrix.index) == NAMES
    np.testing.assert_array_equal(matrix, matrix.T)
    np.testing.assert_array_equal(np.diag(matrix), 1)
    for first, second, estimate in pairs[["first", "second", "estimate"]].itertuples(index=False):
        assert matrix.loc[first, second] == estimate
    assert len(pairs) == 10
    assert 0 < len(edges) <= 6
    assert edges["estimate"].abs().is_monotonic_decreasing
    graph = result.to_networkx(**options)
    assert isinstance(graph, networkx.Graph)
    assert list(graph.nodes) == NAMES
    assert all(not pd.isna(v) for *_, kept in graph.edges(data=True) for v in kept.values())
    ends = zip(edges["first"], edges["second"], edges["estimate"], strict=True)
    assert {frozenset(pair[:2]): pair[2] for pair in ends} == {
        frozenset(pair[:2]): pair[2]["weight"] for pair in graph.edges(data=True)
    }


def test_a_singular_matrix_gets_a_sentence_and_no_number(noisy):
    assert not noisy.known
    assert np.isnan(noisy.params).all()
    assert np.isnan(noisy.precision_).all()
    np.testing.assert_array_equal(noisy.conf_int(), np.tile([-1.0, 1.0], (10, 1)))
    np.testing.assert_array_equal(noisy.pvalues, 1)
    assert noisy.edges().empty
    text = noisy.summary()
    assert "nearly singular" in text
    assert "times the rows, or times the epsilon, would do" in text
    assert "clip_norm=" in text
    assert "noise-aware" not in text  # no table
    assert "10 undecided" in text


def test_trees(release):
    tree = release.infer(dps.GraphicalModel(NAMES, structure="tree"))
    frame = tree.to_frame()
    assert frame.loc[frame["in_tree"], "term"].tolist() == ["a, b", "b, c", "c, d", "d, e"]
    assert (frame["verdict"] == np.where(frame["in_tree"], "sure", "impossible")).all()
    assert "4 sure, 6 impossible, 0 undecided" in tree.summary()
    assert np.isnan(frame["p_value"]).all()
    certified = tree.verdicts(method="certified", target="table")
    assert certified == frame["verdict"].tolist()


def test_pictures_are_those_of_the_rows(release, rows):
    from sklearn.covariance import graphical_lasso

    correlation = np.corrcoef(rows[NAMES].T)
    sparse = dps.GraphicalModel(NAMES, estimator="glasso", penalties=[0.3, 0.05])
    result = release.infer(sparse)
    np.testing.assert_array_equal(result.penalties, [0.05, 0.3])
    expected = graphical_lasso(correlation, 0.05)[1]
    np.testing.assert_allclose(result.precision_[0], expected, atol=0.01)
    assert result.edges(0.3)["first"].tolist() != []
    assert len(result.to_frame()) == 20
    assert "no error probability" not in result.summary()
    assert "none has an error probability" in result.summary()
    with pytest.raises(RequestError, match=r"penalty 0\.7 was not fitted"):
        result.edges(0.7)
    usual = release.infer(dps.GraphicalModel(NAMES, estimator="clime"))
    assert len(usual.penalties) == 4
    assert usual.edge_counts.tolist() == sorted(usual.edge_counts.tolist(), reverse=True)


def test_separators_test_pairs_outside_of_the_declared_graph():
    rng, n = np.random.default_rng(1), 8_000
    names = ["p", "q", "r", "s"]
    schema = dps.Schema([dps.Boolean(name) for name in names])
    values = [rng.random(n) < 0.5]
    for _ in range(3):
        values.append(values[-1] ^ (rng.random(n) < 0.25))
    frame = pd.DataFrame(dict(zip(names, values, strict=True)))
    loop = [("p", "q"), ("q", "r"), ("r", "s"), ("s", "p")]
    model = dps.GraphicalModel(names, separators=loop)
    plan = dps.plan(schema, {"g": model}, budget=dps.PureDP(500), n=n)
    result = dps.release(plan, frame, m=1_000).infer("g")
    assert dps.GraphicalModel(names).family(schema).size == 10
    assert model.family(schema).size > 10
    np.testing.assert_array_equal(model.pvalues(dps.release(plan, frame, m=10)).names, result.terms)
    assert result.tested.sum() == 1  # the other diagonal of the loop is filled in
    assert np.isnan(result.pvalues[~result.tested]).all()
    assert result.pvalues[result.tested] > 1e-4
    assert result.precision_.shape == (4, 4)
    assert "triangulation" in result.summary()
    assert dps.GraphicalModel(names, separators=[["p", "q"]]).separators == (("p", "q"),)


def test_published_rows_alone_have_certified_intervals(rows):
    names = NAMES[:3]
    model = dps.GraphicalModel(names)
    plan = dps.plan(SCHEMA, {"g": model}, budget=dps.PureDP(500), n=len(rows))
    release = dps.release(plan, rows, m=3_000, rng=0)
    published, radius = release.to_frame(), release.radius("g")
    assert radius.spectral is not None
    found = dps.corrected.infer(model, published, radius=radius, schema=SCHEMA)
    ends = np.asarray(found.conf_int(target="table"))
    _, partial = partials(rows[names])
    truth = partial[np.triu_indices(3, 1)]
    assert np.all((ends[:, 0] <= truth) & (truth <= ends[:, 1]))
    assert np.all(np.diff(ends) < 0.5)
    tree = dps.GraphicalModel(names, structure="tree")
    ends = np.asarray(dps.corrected.infer(tree, published, radius=radius, schema=SCHEMA).conf_int())
    truth = rows[names].corr().to_numpy()[np.triu_indices(3, 1)]
    assert np.all((ends[:, 0] <= truth) & (truth <= ends[:, 1]))
    wide = dps.corrected.infer(model, published, radius=0.2, n=len(rows), schema=SCHEMA)
    assert np.all(np.diff(wide.conf_int()) == 2)
    assert "Note: no certified statement: " in str(wide)
    assert "times the rows would do" in str(wide)
    picture = dps.GraphicalModel(names, estimator="clime")
    with pytest.raises(RequestError, match="no certified intervals from a radius"):
        dps.corrected.infer(picture, published, radius=radius, schema=SCHEMA)


def test_one_pair_is_tested_by_name(release, rows):
    graph = release.infer("numbers")
    value = float(graph.params["a, b"])
    near = graph.test(value, term="a, b")
    assert near.pvalue == pytest.approx(1)
    assert graph.test(0, term="a, b").pvalue == pytest.approx(graph.p_unadjusted["a, b"])
    low, high = graph.conf_int(alpha=0.1)[0]
    assert low < value < high
    assert graph.test(float(np.tanh(2 * np.arctanh(value))), term="a, b").pvalue < 1e-6
    with pytest.raises(RequestError, match="name one with term=, such as"):
        graph.test(0)
    single = release.infer("given")
    assert single.test(0).pvalue == pytest.approx(single.p_unadjusted[0])
