"""Verdicts on spanning trees against all corners of the intervals."""

import itertools

import numpy as np
import pytest

from dpstats.analyses.graphs.tree import spanning_tree, tree_verdicts


def brute_force_tree(weights, pairs, p):
    """The heaviest set of p - 1 edges without a loop."""
    best, found = -np.inf, None
    for chosen in itertools.combinations(range(len(weights)), p - 1):
        component = list(range(p))
        for d in chosen:
            one, other = (component[i] for i in pairs[:, d])
            if one == other:
                break
            component = [one if c == other else c for c in component]
        else:
            if weights[list(chosen)].sum() > best:
                best, found = weights[list(chosen)].sum(), set(chosen)
    return found


@pytest.mark.parametrize("p", [3, 4, 5])
def test_trees_are_the_heaviest(p):
    rng, pairs = np.random.default_rng(p), np.array(np.triu_indices(p, 1))
    for _ in range(20):
        weights = rng.random(pairs.shape[1])
        assert set(np.flatnonzero(spanning_tree(weights, pairs, p))) == brute_force_tree(
            weights, pairs, p
        )


@pytest.mark.parametrize("width", [0.02, 0.2, 1.0])
def test_verdicts_hold_for_all_weights_and_say_all_that_can_be_said(width):
    """Sure: in the tree even at its lower end, with all others at the upper one; and so on."""
    rng, kinds = np.random.default_rng(0), set()
    for _ in range(60):
        p = int(rng.integers(3, 7))
        pairs = np.array(np.triu_indices(p, 1))
        centre = rng.random(pairs.shape[1])
        low, high = (
            centre - width * rng.random(len(centre)),
            centre + width * rng.random(len(centre)),
        )
        verdicts = tree_verdicts(low, high, pairs, p)
        kinds |= set(verdicts)
        for d, verdict in enumerate(verdicts):
            own = np.arange(len(low)) == d
            assert (verdict == "sure") == spanning_tree(np.where(own, low, high), pairs, p)[d]
            assert (verdict == "impossible") != spanning_tree(np.where(own, high, low), pairs, p)[d]
    assert kinds >= {"sure", "impossible"}
