import numpy as np
import pytest

from dpstats.corrected.chi_square import fourfold_bounds, independence_verdict, statistic_bounds


def chi_square(tables):
    """Pearson's statistic of (m, R, C) counts."""
    expected = (
        tables.sum(axis=2, keepdims=True)
        * tables.sum(axis=1, keepdims=True)
        / tables.sum(axis=(1, 2), keepdims=True)
    )
    return ((tables - expected) ** 2 / expected).sum(axis=(1, 2))


def every_table(low, high, steps):
    """All 2x2 tables of proportions of a box on a fine grid of three cells."""
    axes = [np.linspace(low.flat[i], high.flat[i], steps) for i in range(3)]
    cells = np.stack([axis.ravel() for axis in np.meshgrid(*axes)], axis=1)
    last = 1 - cells.sum(axis=1)
    kept = (last >= low[1, 1]) & (last <= high[1, 1])
    return np.column_stack([cells[kept], last[kept]]).reshape(-1, 2, 2)


@pytest.mark.parametrize("seed", range(4))
def test_fourfold_bounds_are_the_extremes_of_a_dense_grid(seed):
    rng = np.random.default_rng(seed)
    centre = rng.dirichlet(np.ones(4) * 3).reshape(2, 2)
    radius = rng.uniform(0.002, 0.03)
    low, high = np.maximum(centre - radius, 0.004), centre + radius
    values = chi_square(every_table(low, high, 41))
    lower, upper = fourfold_bounds(low, high)
    assert lower <= values.min() + 1e-12
    assert upper >= values.max() - 1e-12
    # A grid of 41 steps misses an extreme by little; the bounds by a thousandth.
    slack = 0.1 * (values.max() - values.min())
    assert lower >= values.min() * 0.998 - slack - 1e-8
    assert upper <= values.max() * 1.002 + slack + 1e-8


def test_a_wide_or_empty_box_says_nothing():
    assert fourfold_bounds(np.zeros((2, 2)), np.ones((2, 2))) == (0, 1)
    assert fourfold_bounds(np.full((2, 2), 0.4), np.full((2, 2), 0.5)) == (0, 1)


@pytest.mark.parametrize(("shape", "radius"), [((2, 2), 40), ((2, 3), 3), ((4, 7), 3)])
def test_every_table_in_the_box_is_within_the_bounds(shape, radius):
    rng = np.random.default_rng(radius)
    n = 5_000
    for _ in range(2):
        centre = rng.multinomial(n, rng.dirichlet(np.full(np.prod(shape), 3.0))).reshape(shape)
        low, high = centre - radius, centre + radius
        lower, upper = statistic_bounds(low, high, n)
        moved = rng.choice([-radius, 0, radius], (4_000, *shape))
        moved = moved - np.rint(moved.mean(axis=(1, 2), keepdims=True))
        tables = (centre + moved).astype(float)
        tables[:, -1, -1] += n - tables.sum(axis=(1, 2))
        kept = np.all((tables >= np.maximum(low, 0)) & (tables <= high), axis=(1, 2))
        kept &= np.all(tables.sum(axis=1) > 0, axis=1) & np.all(tables.sum(axis=2) > 0, axis=1)
        values = chi_square(np.concatenate([tables[kept], centre[np.newaxis]]))
        assert lower <= values.min()
        assert upper >= values.max()
        assert 0 <= lower <= upper <= n * (min(shape) - 1) * (1 + 1e-12)


def test_without_expected_counts_of_five_there_is_no_verdict_and_it_says_why():
    counts = np.diag([2.0, 398.0])[np.newaxis]
    few = independence_verdict(counts, counts, (400, 400), 0.05, 0.0)
    assert few.low == pytest.approx(400)
    assert few.low > few.critical
    assert few.verdict == "inconclusive"
    assert str(few).endswith("): " + few.reason)
    assert "expected counts of 5 are not certain" in few.reason
    counts = np.diag([50.0, 350.0])[np.newaxis]
    enough = independence_verdict(counts, counts, (400, 400), 0.05, 0.0)
    assert (enough.verdict, enough.reason) == ("reject", "")
    assert str(enough).endswith(")")


def test_a_box_of_strata_without_any_table_has_a_statistic_of_at_least_zero():
    """Noise can put more rows into the strata than the bounds on their number allow."""
    low = np.zeros((2, 2, 2))
    low[0] = 50.0
    for sizes in ((1, 1), (1, 120)):
        verdict = independence_verdict(low, low + 10, sizes, 0.05, 0.025)
        assert 0 <= verdict.low <= verdict.high
        assert verdict.verdict == "inconclusive"
