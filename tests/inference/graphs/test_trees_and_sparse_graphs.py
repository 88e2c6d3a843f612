"""Verdicts on spanning trees against all corners of the intervals, and sparse pictures."""

import numpy as np

from dpstats.analyses.graphs.sparse_graphs import clime, graphical_lasso, positive_definite
from dpstats.analyses.graphs.tree import spanning_tree, tree_verdicts


def test_verdicts_hold_for_all_weights_and_say_all_that_can_be_said():
    """Sure: in the tree even at its lower end, with all others at the upper one; and so on."""
    rng, kinds = np.random.default_rng(0), set()
    for run in range(45):
        p, width = int(rng.integers(3, 7)), (0.02, 0.2, 1.0)[run % 3]
        pairs = np.array(np.triu_indices(p, 1))
        centre, below, above = rng.random((3, pairs.shape[1])) * np.array([[1], [width], [width]])
        low, high = centre - below, centre + above
        verdicts = tree_verdicts(low, high, pairs, p)
        kinds |= set(verdicts)
        for d, verdict in enumerate(verdicts):
            own = np.arange(len(low)) == d
            assert (verdict == "sure") == spanning_tree(np.where(own, low, high), pairs, p)[d]
            assert (verdict == "impossible") != spanning_tree(np.where(own, high, low), pairs, p)[d]
    assert kinds == {"sure", "impossible", "undecided"}


def test_clime_is_the_inverse_without_a_penalty_and_else_within_its_constraint():
    inverse = np.eye(6) - np.diag(np.full(5, 0.4), 1) - np.diag(np.full(5, 0.4), -1)
    matrix = np.linalg.inv(inverse)
    exact, sparse = clime(matrix, [1e-9])[0], clime(matrix, [0.1])[0]
    np.testing.assert_allclose(exact, inverse, atol=1e-6)
    # The symmetric matrix keeps the entries that are smaller: the constraint holds to a factor.
    assert np.abs(matrix @ sparse - np.eye(6)).max() < 0.3


def test_an_indefinite_matrix_is_lifted():
    whole, noisy = np.eye(3), np.eye(3)
    noisy[0, 1] = noisy[1, 0] = 0.99
    noisy[0, 2] = noisy[2, 0] = -0.9
    assert np.linalg.eigvalsh(noisy)[0] < 0
    lifted = positive_definite(noisy)
    assert np.linalg.eigvalsh(lifted)[0] > 0
    np.testing.assert_allclose(np.diag(lifted), 1)
    assert positive_definite(whole) is whole
    assert np.all(np.isfinite(graphical_lasso(lifted, [0.1])))
