"""Separator sets of a declared graph, and the products of signs that they add to a model.

For columns of two values the inverse covariance matrix of the columns alone follows the graph only
if that is a tree. With the products over all subsets of the separator sets of a triangulation
added, its entry for two columns is zero unless the triangulation joins them (Loh and Wainwright
2013, Theorem 1 and Corollary 1).

References
----------
P.-L. Loh and M. J. Wainwright (2013), Structure estimation for discrete graphical models:
generalized covariance matrices and their inverses. Ann. Statist. 41, 3022-3049.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence

from dpstats.checks import counted, first_few, listed
from dpstats.errors import RequestError
from dpstats.families.features import SIGN, Term, product

Edges = frozenset[frozenset[str]]


def checked_edges(given: object, columns: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Pairs of columns, or a RequestError, which quotes no name: it may be a cell."""
    pairs = listed(given)
    edges = pairs if isinstance(pairs, list | tuple) else [pairs]
    for place, edge in enumerate(edges, start=1):
        names = isinstance(edge, list | tuple) and all(isinstance(name, str) for name in edge)
        if not names or len(edge) != 2:
            kind = counted(len(edge), "name") if names else f"type {type(edge).__name__}"
            raise RequestError(
                "separators must be the edges of a graph, such as [('a', 'b'), ('b', 'c')]; "
                f"entry {place} is of {kind}"
            )
        if edge[0] == edge[1] or not set(edge) <= set(columns):
            raise RequestError(
                f"entry {place} of separators does not name two of {first_few(columns)}"
            )
    return tuple((edge[0], edge[1]) for edge in edges)


def triangulated(
    columns: Sequence[str], edges: Iterable[Iterable[str]]
) -> tuple[Edges, list[set[str]]]:
    """A triangulation of a graph, and the maximal cliques of it.

    Columns are eliminated one by one, each time the one whose neighbours lack the fewest edges, and
    these edges are filled in; ties go by name, so the order of the columns does not matter.
    """
    neighbours: dict[str, set[str]] = {name: set() for name in columns}
    for one, other in edges:
        neighbours[one].add(other)
        neighbours[other].add(one)
    filled = {frozenset(edge) for edge in edges}
    cliques: list[set[str]] = []

    def missing(name: str) -> list[tuple[str, str]]:
        pairs = itertools.combinations(sorted(neighbours[name]), 2)
        return [(a, b) for a, b in pairs if b not in neighbours[a]]

    while neighbours:
        name = min(neighbours, key=lambda name: (len(missing(name)), name))
        for a, b in missing(name):
            neighbours[a].add(b)
            neighbours[b].add(a)
            filled.add(frozenset((a, b)))
        clique = {name, *neighbours.pop(name)}
        if not any(clique <= known for known in cliques):
            cliques.append(clique)
        for other in clique - {name}:
            neighbours[other].discard(name)
    return frozenset(filled), cliques


def separators(cliques: Sequence[set[str]]) -> list[set[str]]:
    """The distinct separator sets of a junction tree: common columns of neighbouring cliques.

    A junction tree is a maximum spanning tree of the cliques by the number of common columns.
    """
    pairs = itertools.combinations(range(len(cliques)), 2)
    by_size = sorted(pairs, key=lambda pair: -len(cliques[pair[0]] & cliques[pair[1]]))
    tree = list(range(len(cliques)))
    found: list[set[str]] = []
    for i, j in by_size:
        shared = cliques[i] & cliques[j]
        if tree[i] != tree[j]:
            gone = tree[j]
            tree = [tree[i] if component == gone else component for component in tree]
            if shared and shared not in found:
                found.append(shared)
    return found


def sign_products(columns: Sequence[str], sets: Iterable[set[str]]) -> list[Term]:
    """The columns' signs, then the products over all larger subsets of some sets."""
    subsets = dict.fromkeys(
        subset
        for one in sets
        for size in range(2, len(one) + 1)
        for subset in itertools.combinations(sorted(one), size)
    )
    every = [*((name,) for name in columns), *sorted(subsets)]
    return [tuple((name, SIGN) for name in subset) for subset in every]


def moments_of_products(products: Sequence[Term]) -> list[Term]:
    """The distinct means that the covariance matrix of some products of signs needs."""
    pairs = itertools.combinations(products, 2)
    found = dict.fromkeys([*products, *(product(one, other) for one, other in pairs)])
    return [term for term in found if term]
