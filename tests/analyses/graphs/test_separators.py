"""Triangulations, separator sets, and the zeros that they give the inverse covariance matrix."""

import itertools

import numpy as np
import pytest

from dpstats.analyses.graphs.separators import separators, sign_products, triangulated

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
