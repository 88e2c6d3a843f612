"""Sparse pictures: at no penalty the inverse, at a large one nothing, and scikit-learn's own."""

import numpy as np
import pytest

from dpstats.analyses.graphs.sparse_graphs import clime, graphical_lasso, positive_definite


@pytest.fixture(scope="module")
def correlation():
    precision = np.eye(6) - np.diag(np.full(5, 0.4), 1) - np.diag(np.full(5, 0.4), -1)
    found = np.linalg.inv(precision)
    root = np.sqrt(np.diag(found))
    return found / np.outer(root, root)


def test_clime_without_a_penalty_is_the_inverse(correlation):
    [found] = clime(correlation, [1e-9])
    np.testing.assert_allclose(found, np.linalg.inv(correlation), atol=1e-6)


def test_clime_is_within_its_constraint(correlation):
    [found] = clime(correlation, [0.1])
    # The symmetric matrix keeps the entries that are smaller: the constraint holds to a factor.
    assert np.abs(correlation @ found - np.eye(6)).max() < 0.3


def test_an_indefinite_matrix_is_lifted(correlation):
    noisy = correlation.copy()
    noisy[0, 1] = noisy[1, 0] = 0.99
    noisy[0, 2] = noisy[2, 0] = -0.9
    assert np.linalg.eigvalsh(noisy)[0] < 0
    lifted = positive_definite(noisy)
    assert np.linalg.eigvalsh(lifted)[0] > 0
    np.testing.assert_allclose(np.diag(lifted), 1)
    assert positive_definite(correlation) is correlation
    assert np.all(np.isfinite(graphical_lasso(lifted, [0.1])))
