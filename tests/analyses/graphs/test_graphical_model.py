"""Graphical models: options, what is measured, estimates without noise, and what results say."""

import itertools

import numpy as np
import pandas as pd
import pytest
from statsmodels.stats.multitest import multipletests

import dpstats as dps
from dpstats.analyses.graphs.separators import separators, sign_products, triangulated
from dpstats.errors import RequestError

NAMES = ["a", "b", "c", "d", "e"]
SCHEMA = dps.Schema([
    *(dps.Number(name, -4, 4, points=801, missing=0) for name in NAMES),
    dps.Boolean("yes"), dps.Category("side", ["left", "right"]),
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
    )


@pytest.fixture(scope="module")
def release(rows):
    asked = {"numbers": dps.GraphicalModel(NAMES, tolerance=0.2),
             "mixed": dps.GraphicalModel(["a", "yes", "side"])}  # fmt: skip
    plan = dps.plan(SCHEMA, asked, budget=dps.PureDP(20_000), n=len(rows))
    return dps.release(plan, rows, m=100, k=10, rng=0)


def partials(values):
    precision = np.linalg.inv(np.cov(np.asarray(values, dtype=float).T))
    root = np.sqrt(np.diag(precision))
    return precision, (-precision / np.outer(root, root))[np.triu_indices(len(root), 1)]


def test_without_noise_estimates_are_those_of_the_rows(release, rows):
    result = release.infer("numbers")
    precision, partial = partials(rows[NAMES])
    np.testing.assert_allclose(result.precision_, precision, rtol=2e-3, atol=2e-3)
    np.testing.assert_allclose(result.params, partial, atol=1e-3)
    np.testing.assert_allclose(result.covariance_, np.cov(rows[NAMES].T), rtol=2e-3, atol=2e-3)
    np.testing.assert_allclose(result.location_, rows[NAMES].mean(), atol=1e-3)
    low, high = result.precision(target="table")[["conf_low", "conf_high"]].to_numpy().T
    exact = precision[np.triu_indices(5)]
    assert np.all((low <= exact) & (exact <= high) & (high - low < 0.2))


def test_columns_of_two_levels_are_signs(release, rows):
    result = release.infer("mixed")
    signs = np.column_stack([rows["a"], 2 * rows["yes"] - 1, 2 * (rows["side"] == "right") - 1])
    np.testing.assert_allclose(result.params, partials(signs)[1], atol=2e-3)
    assert result.edges()["term"].tolist() == ["a, yes"]


def test_edges_adjustments_and_tests_of_one_pair(release):
    result = release.infer("numbers")
    assert result.edges()["term"].head(4).isin(["a, b", "b, c", "c, d", "d, e"]).all()
    for method in ("holm", "fdr_bh"):
        expected = multipletests(np.asarray(result.p_unadjusted), method=method)[1]
        np.testing.assert_allclose(result.adjusted_pvalues(method), expected)
    with pytest.raises(RequestError, match=r"adjust must be one of \['holm', 'fdr_bh', 'none'\]"):
        result.adjusted_pvalues("bonferroni")
    value = float(result.params["a, b"])
    assert result.test(value, term="a, b").pvalue == pytest.approx(1)
    assert result.test(0, term="a, b").pvalue == pytest.approx(result.p_unadjusted["a, b"])
    assert result.test(float(np.tanh(2 * np.arctanh(value))), term="a, b").pvalue < 1e-6


def test_a_singular_matrix_gets_a_sentence_and_no_number(rows, inferred, seeded_noise):
    asked = dps.GraphicalModel(NAMES)
    noisy = inferred(SCHEMA, rows, asked, dps.PureDP(0.6), noise_from=seeded_noise(1))
    assert not noisy.known
    assert np.isnan(noisy.params).all()
    assert np.isnan(noisy.precision_).all()
    assert np.isinf(noisy.precision(target="table")["conf_high"]).all()
    for options in ({}, {"method": "certified", "target": "table"}):
        np.testing.assert_array_equal(noisy.conf_int(**options), [[-1, 1]] * 10)
    np.testing.assert_array_equal(noisy.pvalues, 1)
    assert noisy.edges().empty
    assert "clip_norm=" in noisy.summary()


def test_trees(release):
    tree = release.infer(dps.GraphicalModel(NAMES, structure="tree"))
    frame = tree.to_frame()
    assert frame.loc[frame["in_tree"], "term"].tolist() == ["a, b", "b, c", "c, d", "d, e"]
    assert (frame["verdict"] == np.where(frame["in_tree"], "sure", "impossible")).all()
    assert tree.verdicts(method="certified", target="table") == frame["verdict"].tolist()
    matrix = tree.matrix.to_numpy()
    np.testing.assert_array_equal(matrix[np.triu_indices(5, 1)], tree.params)
    np.testing.assert_array_equal(matrix, matrix.T)
    pytest.importorskip("networkx")
    drawn = {frozenset(pair) for pair in tree.to_networkx().edges}
    assert drawn == set(map(frozenset, ("ab", "bc", "cd", "de")))


def test_pictures_are_those_of_the_rows(release, rows):
    from sklearn.covariance import graphical_lasso

    sparse = dps.GraphicalModel(NAMES, estimator="glasso", penalties=[0.3, 0.05, 0.05002])
    result = release.infer(sparse)
    np.testing.assert_array_equal(result.penalties, [0.05, 0.05002, 0.3])
    shown = result.to_frame()["estimate"].to_numpy()
    for i, penalty in enumerate((0.05, 0.05002, 0.30001)):
        pairs = result.pairs(penalty)["estimate"]
        np.testing.assert_array_equal(pairs, shown[10 * i : 10 * i + 10])
    expected = graphical_lasso(np.corrcoef(rows[NAMES].T), 0.05)[1]
    np.testing.assert_allclose(result.precision_[0], expected, atol=0.01)
    assert len(shown) == 30
    with pytest.raises(RequestError, match=r"penalty 0\.7 was not fitted"):
        result.edges(0.7)


def test_pictures_of_nearly_collinear_columns():
    """A penalty at which the graphical lasso finds none is noted, and refused if asked for."""
    rng, names = np.random.default_rng(0), [*"abcdef"]
    numbers = [dps.Number(name, -4, 4, points=81, missing=0) for name in names]
    alike = rng.standard_normal((5_000, 1)) + 0.05 * rng.standard_normal((5_000, 6))
    model = dps.GraphicalModel(names, estimator="glasso")
    plan = dps.plan(dps.Schema(numbers), {"g": model}, budget=dps.PureDP(1_000))
    release = dps.release(plan, pd.DataFrame(alike.clip(-4, 4), columns=names), m=50, k=10, rng=0)
    result = release.infer("g")
    assert 1 <= len(result.penalties) < 4
    assert result.edge_counts[0] == 15
    assert sum("finds no graph of these nearly collinear" in note for note in result.notes) == 1
    asked = dps.GraphicalModel(names, estimator="glasso", penalties=[0.5, 0.001])
    with pytest.raises(RequestError, match=r"no graph of .* 0\.001; give a larger one, as"):
        release.infer(asked)


def test_separators_test_pairs_outside_of_the_declared_graph():
    names, rng = [*"pqrs"], np.random.default_rng(1)
    schema = dps.Schema([dps.Boolean(name) for name in names])
    flips = rng.random((8_000, 4)) < [0.5, 0.25, 0.25, 0.25]
    frame = pd.DataFrame(np.logical_xor.accumulate(flips, axis=1), columns=names)
    loop = [("p", "q"), ("q", "r"), ("r", "s"), ("s", "p")]
    model = dps.GraphicalModel(names, separators=loop)
    plan = dps.plan(schema, {"g": model}, budget=dps.PureDP(500), n=len(frame))
    release = dps.release(plan, frame, m=100, k=10)
    result = release.infer("g")
    np.testing.assert_array_equal(model.pvalues(release).names, result.terms)
    assert dps.GraphicalModel(names).family(schema).size == 10
    assert model.family(schema).size > 10
    assert result.tested.sum() == 1  # the other diagonal of the loop is filled in
    assert np.isnan(result.pvalues[~result.tested]).all()
    assert result.pvalues[result.tested] > 1e-4
    (term,) = np.array(result.terms)[result.tested]
    assert result.test(term=term).pvalue == result.pvalues[term]
    with pytest.raises(RequestError, match="'p, q' is not tested: it is in the graph that"):
        result.test(term="p, q")


def test_published_rows_alone_have_certified_intervals(rows):
    model = dps.GraphicalModel(NAMES[:3])
    plan = dps.plan(SCHEMA, {"g": model}, budget=dps.PureDP(500), n=len(rows))
    release = dps.release(plan, rows, m=3_000, rng=0)
    published, radius = release.to_frame(), release.radius("g")
    found = dps.corrected.infer(model, published, radius=radius, schema=SCHEMA)
    ends = np.asarray(found.conf_int(target="table"))
    _, truth = partials(rows[NAMES[:3]])
    assert np.all((ends[:, 0] <= truth) & (truth <= ends[:, 1]))
    assert np.all(np.diff(ends) < 0.5)
    wide = dps.corrected.infer(model, published, radius=0.2, n=len(rows), schema=SCHEMA)
    assert np.all(np.diff(wide.conf_int()) == 2)
    picture = dps.GraphicalModel(NAMES[:3], estimator="clime")
    with pytest.raises(RequestError, match="no certified intervals from a radius"):
        dps.corrected.infer(picture, published, radius=radius, schema=SCHEMA)


# Triangulations, separator sets, and the zeros that they give the inverse covariance matrix.

GRAPHS = {
    "chain": "ab bc cd", "loop": "ab bc cd de ea", "two parts": "ab cd",
    "grid": "ab bc de ef ad be cf",
}  # fmt: skip


def ising(columns, edges, products):
    """Covariance of products of signs under an Ising model with uneven fields."""
    states = np.array(list(itertools.product([-1, 1], repeat=len(columns))))
    at = dict(zip(columns, states.T, strict=True))
    energy = sum(0.5 * at[a] * at[b] for a, b in edges) + 0.3 * states @ np.arange(len(columns)) / 4
    rows = [np.prod([at[name] for name, _ in term], axis=0) for term in products]
    return np.cov(rows, aweights=np.exp(energy) / np.exp(energy).sum(), bias=True)


@pytest.mark.parametrize("name", GRAPHS)
def test_the_inverse_is_zero_outside_of_the_triangulation(name):
    edges = [tuple(edge) for edge in GRAPHS[name].split()]
    columns = "".join(sorted(set(itertools.chain(*edges))))
    filled, cliques = triangulated(columns, edges)
    between = separators(cliques)
    inverse = np.linalg.inv(ising(columns, edges, sign_products(columns, between)))
    for (i, a), (j, b) in itertools.combinations(enumerate(columns), 2):
        joined = {(a, b), (b, a)} & set(edges)
        zero = abs(inverse[i, j]) < 1e-9
        assert zero if frozenset((a, b)) not in filled else not (zero and joined), (a, b)
        assert not joined or frozenset((a, b)) in filled
    if name == "chain":
        assert sorted(map(sorted, between)) == [["b"], ["c"]]
        assert len(sign_products(columns, between)) == 4
