"""Maximum spanning trees of correlations that are known within intervals.

In a tree of columns where each depends on its neighbours linearly (Gaussian columns, or columns of
two values) the correlation of two columns is the product of those along their path. Then the tree
is the maximum spanning tree of the absolute correlations (Chow and Liu 1968), and with distinct
weights an edge is in it if and only if its weight exceeds the bottleneck, the largest minimum of
weights, over all other paths between its ends.

References
----------
C. K. Chow and C. N. Liu (1968), Approximating discrete probability distributions with dependence
trees. IEEE Trans. Inf. Theory 14, 462-467.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from dpstats.analyses.graphs.pair_laws import Pairs
from dpstats.arrays import Floats

TreeVerdict = Literal["sure", "impossible", "undecided"]


def spanning_tree(
    weights: Floats, pairs: Pairs, p: int
) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Which of the d pairs, all pairs of p columns, are in the maximum spanning tree (Kruskal)."""
    inside = np.zeros(len(weights), dtype=bool)
    component = np.arange(p)
    for d in np.argsort(-weights, kind="stable").tolist():
        one, other = component[pairs[:, d]]
        if one != other:
            inside[d] = True
            component[component == other] = one
    return inside


def tree_verdicts(low: Floats, high: Floats, pairs: Pairs, p: int) -> list[TreeVerdict]:
    """What holds of the maximum spanning tree for all weights within their intervals.

    An edge is surely in it if its lower end exceeds the bottleneck over all other paths at the
    upper ends: no weights in the intervals make another path as good. It is impossible if its upper
    end is below the bottleneck at the lower ends. If the intervals hold jointly, no verdict is
    wrong.

    Parameters
    ----------
    low, high : (d,) float64
        Intervals of the weights of all pairs, in the order of `pairs`.
    pairs : (2, d) int64
    p : int
    """
    found: list[TreeVerdict] = ["undecided"] * len(low)
    bottleneck = _bottlenecks(low, pairs, p)
    for d in range(len(low)):
        if high[d] < bottleneck[pairs[0, d], pairs[1, d]]:
            found[d] = "impossible"
    # Outside of the tree of the upper ends another path is at least as good at these.
    inside = spanning_tree(high, pairs, p)
    for d in np.flatnonzero(inside).tolist():
        side = _side(np.flatnonzero(inside & (np.arange(len(low)) != d)), pairs, p, pairs[0, d])
        crossing = side[pairs[0]] != side[pairs[1]]
        crossing[d] = False
        if low[d] > high[crossing].max(initial=-np.inf):
            found[d] = "sure"
    return found


def _bottlenecks(weights: Floats, pairs: Pairs, p: int) -> Floats:
    """(p, p) largest minimum of weights over all paths between two columns."""
    found = np.full((p, p), -np.inf)
    members = {i: [i] for i in range(p)}
    owner = np.arange(p)
    for d in np.argsort(-weights, kind="stable").tolist():
        one, other = owner[pairs[:, d]].tolist()
        if one != other:
            found[np.ix_(members[one], members[other])] = weights[d]
            found[np.ix_(members[other], members[one])] = weights[d]
            owner[members[other]] = one
            members[one] += members.pop(other)
    return found


def _side(
    edges: np.ndarray[tuple[int], np.dtype[np.intp]], pairs: Pairs, p: int, start: int
) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Which columns some edges connect with `start`."""
    reached = np.zeros(p, dtype=bool)
    reached[start] = True
    while True:
        touched = reached[pairs[0, edges]] | reached[pairs[1, edges]]
        ends = pairs[:, edges[touched]].ravel()
        if reached[ends].all():
            return reached
        reached[ends] = True
