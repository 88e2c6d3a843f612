"""Many roots at once."""

import numpy as np

from dpstats.roots import find_roots, find_roots_near


def test_jumps_flat_parts_and_exact_ends():
    where = np.array([0.3, 0.5, 0.99])
    roots = find_roots(lambda y, i: np.sign(y - where[i]), np.zeros(3), np.ones(3))
    np.testing.assert_allclose(roots, where, atol=1e-9)
    np.testing.assert_array_equal(find_roots(lambda y, i: y, np.zeros(1), np.ones(1)), [0])
    # numbers too large for the tolerance
    roots = find_roots(lambda y, i: y**3 - 1e33, np.zeros(1), np.full(1, 3e12))
    np.testing.assert_allclose(roots, 1e11)
    # no change of sign: the end where the function is smaller
    np.testing.assert_array_equal(find_roots(lambda y, i: y + 1, np.zeros(1), np.ones(1)), [0])


def test_without_a_root_between_the_ends_it_is_beyond_them():
    signs = np.array([1.0, -1.0, 1e-9, -1e-9])
    ends = np.full(4, 50.0)
    found = find_roots_near(lambda y, i: signs[i], np.zeros(4), np.ones(4), -ends, ends)
    np.testing.assert_array_equal(found, [np.inf, -np.inf, np.inf, -np.inf])


def test_roots_near_a_guess_are_those_of_a_search_everywhere():
    roots = np.random.default_rng(0).uniform(-40, 40, 60)
    guess = roots + np.random.default_rng(1).normal(0, 1, 60) * np.geomspace(1e-9, 30, 60)

    def cubic(y, which):
        return -((y - roots[which]) ** 3) - (y - roots[which])

    low, high = np.full(60, -50.0), np.full(60, 50.0)
    found = find_roots_near(cubic, guess, np.full(60, 0.01), low, high)
    np.testing.assert_allclose(found, roots, atol=1e-9)
    np.testing.assert_allclose(find_roots(cubic, low, high), roots, atol=1e-9)
