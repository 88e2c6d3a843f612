"""Many roots at once."""

import numpy as np

from dpstats.corrected.roots import find_roots


def test_roots_of_many_functions_in_few_evaluations():
    target = np.linspace(-3, 3, 50) ** 3
    calls = 0

    def cubic(y, which):
        nonlocal calls
        calls += 1
        return np.expm1(y) ** 3 - np.expm1(target[which]) ** 3

    roots = find_roots(cubic, np.full(50, -30.0), np.full(50, 40.0))
    np.testing.assert_allclose(np.expm1(roots), np.expm1(target), rtol=1e-8, atol=1e-8)
    assert calls < 60


def test_jumps_flat_parts_and_exact_ends():
    where = np.array([0.3, 0.5, 0.99])
    roots = find_roots(lambda y, i: np.sign(y - where[i]), np.zeros(3), np.ones(3))
    np.testing.assert_allclose(roots, where, atol=1e-9)
    np.testing.assert_array_equal(find_roots(lambda y, i: y, np.zeros(1), np.ones(1)), [0])
    # no change of sign: the end where the function is smaller
    np.testing.assert_array_equal(find_roots(lambda y, i: y + 1, np.zeros(1), np.ones(1)), [0])


def test_stops_where_numbers_are_too_large_for_the_tolerance():
    roots = find_roots(lambda y, i: y**3 - 1e33, np.zeros(1), np.full(1, 3e12))
    np.testing.assert_allclose(roots, 1e11)
