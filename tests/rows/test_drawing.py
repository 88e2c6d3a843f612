"""Rows from weights: counts, their law, and the exchanges."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import dpstats as dps
from dpstats.families.tables.cells import tables_of_degree
from dpstats.rows.drawing import draw_counts, random_order, systematic

SCHEMA = dps.Schema(
    [dps.Category(c, list(range(k))) for c, k in zip("abc", (3, 4, 5), strict=True)]
)
FAMILY = dps.Family(tuple(tables_of_degree(SCHEMA, SCHEMA.names, 2)))
CODES = dict(zip("abc", (i.ravel() for i in np.indices((3, 4, 5))), strict=True))
VALUES = FAMILY.evaluate(CODES)
M = 60


def misfit(counts, weights):
    return float(np.sum(VALUES.average(counts / counts.sum() - weights / weights.sum()) ** 2))


weights_of_any_shape = st.builds(
    lambda seed, shape: np.random.default_rng(seed).dirichlet(np.full(M, shape)),
    st.integers(0, 2**32 - 1),
    st.sampled_from([0.02, 0.3, 5.0]),
)


@settings(max_examples=20)
@given(weights=weights_of_any_shape, k=st.sampled_from([1, 2, 7, 60, 1000, 10**7]))
def test_systematic_counts_and_exchanges_that_never_increase_the_misfit(weights, k):
    plain = systematic(weights, k, np.random.default_rng(5))
    assert plain.dtype == np.int64
    assert plain.sum() == k
    assert plain.min() >= 0
    assert np.all(np.abs(plain - k * weights) < 1 + 1e-6)
    if k > 1000:
        return
    exchanged = draw_counts(weights, k, "systematic", VALUES, np.random.default_rng(5))
    assert misfit(exchanged, weights) <= misfit(plain, weights)
    np.testing.assert_array_equal(exchanged[weights == 0], 0)


def test_exchanges_take_off_more_than_half_of_what_equal_steps_leave():
    left = []
    for seed in range(8):
        weights = np.random.default_rng(seed).dirichlet(np.full(M, 0.5))
        plain = systematic(weights, 200, np.random.default_rng(6))
        exchanged = draw_counts(weights, 200, "systematic", VALUES, np.random.default_rng(6))
        left.append(misfit(exchanged, weights) / misfit(plain, weights))
    assert np.mean(left) < 0.5


def test_rows_fall_on_each_candidate_with_its_weight():
    """Single rows, and independent ones with the spread of a multinomial; seeded."""
    weights = np.random.default_rng(0).dirichlet(np.full(M, 2.0))
    rng = np.random.default_rng(1)
    total = sum(systematic(weights, 1, rng) for _ in range(3_000))
    assert stats.chisquare(total, 3_000 * weights).pvalue > 1e-6
    counts = np.array([draw_counts(weights, 50, "iid", VALUES, rng) for _ in range(500)])
    assert stats.chisquare(counts.sum(axis=0), 500 * 50 * weights).pvalue > 1e-6
    statistics = stats.chisquare(counts, 50 * weights, axis=1).statistic
    assert abs(statistics.mean() - (M - 1)) < 5 * statistics.std() / np.sqrt(500)


def test_rows_come_in_random_order():
    counts = np.array([3, 0, 500, 2, 495])
    order = random_order(counts, 7)
    np.testing.assert_array_equal(np.bincount(order, minlength=5), counts)
    np.testing.assert_array_equal(order, random_order(counts, 7))
    assert np.any(order != random_order(counts, 8))
    assert abs(np.mean(order[:500] == 2) - 0.5) < 0.1  # half of the rows are like all
    # Raw numbers of the generator, which stay the same in all versions of numpy.
    np.testing.assert_array_equal(random_order(np.ones(6, np.int64), 1), [2, 4, 5, 0, 3, 1])
