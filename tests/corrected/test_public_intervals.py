"""Intervals from a centre and a radius."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from statsmodels.stats.proportion import proportion_confint as clopper_pearson

from dpstats.corrected.chi_square import chisquare
from dpstats.corrected.eigenvalues import eigenvalues
from dpstats.corrected.least_squares import ols
from dpstats.corrected.proportions import proportion_confint
from dpstats.error_rates import certificate_split
from dpstats.errors import RequestError
from dpstats.privacy.laws import DiscreteLaplace


def test_radius_zero_is_clopper_pearson():
    x = np.arange(41)
    for beta in (0.02, 0):
        found = proportion_confint(x / 40, 0.0, 40, alpha=0.05, beta=beta)
        exact = clopper_pearson(x, 40, alpha=0.05 - beta, method="beta")
        np.testing.assert_allclose(found, exact, rtol=1e-9)
    low, high = proportion_confint(-1 / 40, 0.0, 40)  # a radius of 0 fails where noise is not 0
    assert low == 0 < high < 1


@settings(max_examples=20)
@given(n=st.integers(1, 10**6), share=st.floats(0, 1), wide=st.floats(0, 1))
def test_rounding_never_shortens(n, share, wide):
    """The box ends at two integers exactly, up to the rounding of centre and radius."""
    low_x = int(share * n)
    high_x = low_x + int(wide * (n - low_x))
    centre, radius = (low_x / n + high_x / n) / 2, (high_x / n - low_x / n) / 2
    low, high = proportion_confint(centre, radius, n)
    assert low <= clopper_pearson(low_x, n, alpha=0.025, method="beta")[0] * (1 + 1e-9)
    assert high >= clopper_pearson(high_x, n, alpha=0.025, method="beta")[1] * (1 - 1e-9)


def test_covers_for_the_worst_centre():
    """Whatever the centre within the radius, the error is at most alpha - beta."""
    n, radius = 60, 0.04
    x = np.arange(n + 1)
    high_centre, low_centre = (
        proportion_confint(x / n + sign * radius, radius, n) for sign in (1, -1)
    )
    for p in (0.0, 0.01, 0.2, 0.5, 0.97):
        mass = stats.binom.pmf(x, n, p)
        assert mass @ ((high_centre[0] <= p) & (p <= low_centre[1])) >= 0.975


@pytest.mark.parametrize(("n", "scale"), [(30, 1.0), (100, 4.0)])
def test_certified_coverage_by_enumeration(n, scale):
    law, beta = DiscreteLaplace(scale), certificate_split(n, scale)
    x, z = np.arange(n + 1), np.arange(-int(20 * scale), int(20 * scale) + 1)
    noise = law.cdf(z) - law.cdf(z - 1)
    low, high = proportion_confint((x[:, None] + z) / n, law.quantile(beta) / n, n, beta=beta)
    for p in (0.003, 0.01, 0.2, 0.5):
        covered = stats.binom.pmf(x, n, p) @ ((low <= p) & (p <= high)) @ noise
        assert covered >= 0.95


def test_a_pair_bounds_the_number_of_rows():
    # The union over the numbers between the bounds, and over the counts in the box of each.
    p, radius, few, many = 0.3, 0.02, 180, 200
    low, high = proportion_confint(p, radius, (few, many))
    each = np.array([proportion_confint(p, radius, n) for n in range(few, many + 1)])
    assert low <= each[:, 0].min()
    assert high >= each[:, 1].max()
    assert low > 0.9 * proportion_confint(p, radius + 0.05, few)[0]
    np.testing.assert_array_equal(proportion_confint(p, radius, (few, few)), each[0])
    moments = np.array([[1, 0.1, 0.2], [0.1, 0.5, 0.3], [0.2, 0.3, 0.4]])
    for function, centre in ((eigenvalues, np.diag([0.5, 0.2])), (ols, moments)):
        pair, least, most = (
            np.array(function(centre, 0.001, n=n)) for n in ((few, many), few, many)
        )
        np.testing.assert_array_equal(pair, least)
        assert np.all((pair[0] <= most[0]) & (pair[1] >= most[1]))
    table = np.array([[0.3, 0.2], [0.2, 0.3]])
    pair = chisquare(table, 0.01, (few, many))
    assert chisquare(table, 0.01, [few, many]) == pair  # as JSON has the pair
    ends = [(one.low, one.high) for n in (few, 190, many) for one in [chisquare(table, 0.01, n)]]
    assert pair.low <= np.min(ends)
    assert pair.high >= np.max(ends)


RIGHT = {
    proportion_confint: {"p": 0.2, "radius": 0.1, "n": 10},
    chisquare: {"proportions": [0.2, 0.8], "radius": 0.1, "n": 10, "probabilities": [0.5, 0.5]},
    eigenvalues: {"matrix": [[1, 0], [0, 1]], "radius": 0.1, "n": 100},
    ols: {"second_moments": np.eye(3), "radius": 0.01, "n": 100},
}


@pytest.mark.parametrize("function", RIGHT)
def test_impossible_arguments_are_refused(function):
    function(**RIGHT[function])
    first = next(iter(RIGHT[function]))
    for change, message in (
        ({"alpha": 0.95}, "did you mean alpha=0.05"),
        ({"beta": 0.05}, r"below alpha=0.05.*release.radius\(name, alpha=0.025\)"),
        ({"radius": -0.1}, "negative"),
        ({"n": 0}, "at least 1"),
        ({"n": (10, 9)}, "lower bound above the upper one"),
        ({"n": (9, 10, 11)}, r"nor a pair \(low, high\)"),
        ({"n": (5, 10**400)}, "n is not a number of rows.*bits"),
        ({first: "a"}, "number|regular"),
        ({first: np.full_like(np.asarray(RIGHT[function][first], float), np.nan)}, "finite"),
    ):
        with pytest.raises(RequestError, match=message):
            function(**RIGHT[function] | change)


@pytest.mark.parametrize(("function", "change", "message"), [
    (proportion_confint, {"radius": np.nan}, "negative or missing"),
    (proportion_confint, {"n": 10.5}, "integer"),
    (proportion_confint, {"p": 25}, "p is outside 0 to 1"),
    (proportion_confint, {"p": 1.4, "radius": 0.01, "n": 1000}, "p is outside 0 to 1"),
    (proportion_confint, {"n": [900, 1100]}, r"n is a list.*bounds as a tuple \(low, high\)"),
    (chisquare, {"radius": [0.1] * 3}, "radius must be"),
    (eigenvalues, {"radius": np.ones(2)}, "one number, or a matrix"),
    (ols, {"radius": np.ones(2)}, r"shape \(2,\); it must fit \(3, 3\)"),
    (chisquare, {"proportions": [0.2, 0.3, 0.5]}, "one number per cell"),
    (chisquare, {"probabilities": [0.5, 0.4]}, "sum to 0.9"),
    (chisquare, {"probabilities": None}, "independence needs a table"),
    (chisquare, {"probabilities": None, "proportions": [[0.4], [0.6]]}, "two columns"),
    (chisquare, {"proportions": [40, 60]}, "Divide counts and radii by n"),
    (eigenvalues, {"matrix": [[1, 2], [0, 1]]}, "symmetric"),
    (eigenvalues, {"radius": None}, "give one of radius="),
    (eigenvalues, {"radius": None, "spectral_radius": -1}, "spectral_radius must be one"),
    (eigenvalues, {"ball": 0}, "positive"), (eigenvalues, {"n": None}, "number of rows"),
    (ols, {"n": None, "beta": 0.2}, "beta"),
])  # fmt: skip
def test_arguments_that_only_one_function_refuses(function, change, message):
    with pytest.raises(RequestError, match=message):
        function(**RIGHT[function] | change)
