"""Triangulations, separator sets, and the zeros that they give the inverse covariance matrix."""

import itertools

import numpy as np

from dpstats.analyses.graphs.separators import (
    separators,
    sign_products,
    triangulated,
)

GRAPHS = {
    "chain": ("abcd", [("a", "b"), ("b", "c"), ("c", "d")]),
    "loop": ("abcde", [("a", "b"), ("b", "c"), ("c", "d"), ("d", "e"), ("e", "a")]),
    "two parts": ("abcd", [("a", "b"), ("c", "d")]),
    "grid": (
        "abcdef",
        [("a", "b"), ("b", "c"), ("d", "e"), ("e", "f"), ("a", "d"), ("b", "e"), ("c", "f")],
    ),
}


def ising(columns, edges, products):
    """Covariance of products of signs under an Ising model with uneven fields."""
    states = np.array(list(itertools.product([-1, 1], repeat=len(columns))))
    at = {name: states[:, i] for i, name in enumerate(columns)}
    energy = sum(0.5 * at[a] * at[b] for a, b in edges) + 0.3 * states @ np.arange(len(columns)) / 4
    chances = np.exp(energy)
    rows = [np.prod([at[name] for name, _ in term], axis=0) for term in products]
    return np.cov(rows, aweights=chances / chances.sum(), bias=True)


def test_the_inverse_is_zero_outside_of_the_triangulation():
    for name in GRAPHS:
        columns, edges = GRAPHS[name]
        filled, cliques = triangulated(columns, edges)
        products = sign_products(columns, separators(cliques))
        assert {frozenset(edge) for edge in edges} <= filled
        inverse = np.linalg.inv(ising(columns, edges, products))
        for (i, a), (j, b) in itertools.combinations(enumerate(columns), 2):
            assert (abs(inverse[i, j]) > 1e-9) >= (
                frozenset((a, b)) in {frozenset(e) for e in edges}
            )
            if frozenset((a, b)) not in filled:
                assert abs(inverse[i, j]) < 1e-9, (a, b)


def test_a_tree_has_separators_of_one_column():
    columns, edges = GRAPHS["chain"]
    _, cliques = triangulated(columns, edges)
    assert sorted(map(sorted, separators(cliques))) == [["b"], ["c"]]
    assert len(sign_products(columns, separators(cliques))) == 4
