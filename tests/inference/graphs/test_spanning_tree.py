"""Verdicts on spanning trees against all corners of the intervals."""

import numpy as np
import pytest

from dpstats.analyses.graphs.tree import spanning_tree, tree_verdicts


@pytest.mark.parametrize("width", [0.02, 0.2, 1.0])
def test_verdicts_hold_for_all_weights_and_say_all_that_can_be_said(width):
    """Sure: in the tree even at its lower end, with all others at the upper one; and so on."""
    rng, kinds = np.random.default_rng(0), set()
    for _ in range(25):
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
