"""What noisy moments tell: variances to first order, boxes, draws; all against simulation."""

import numpy as np
import pytest

from dpstats.analyses.moments.noisy_mean import NoisyMean
from dpstats.families.group_moments import TO_MOMENTS
from dpstats.privacy.laws import DiscreteLaplace

LAW, UNIT = DiscreteLaplace(30.0), 4.0  # noise of sd 10.6 rows
SIZE, MEAN, SD = 900.0, 0.2, 0.7
EXACT = SIZE * np.array([1, MEAN, MEAN**2 + SD**2])


def noise(shape, rng):
    p = -np.expm1(-1 / LAW.scale)
    return (rng.geometric(p, shape) - rng.geometric(p, shape)) / UNIT


def group(moments, mixing=TO_MOMENTS, most=np.inf):
    laws = (None if mixing is not TO_MOMENTS and most < np.inf else LAW, LAW, LAW)
    return NoisyMean(moments, mixing, laws, np.full(3, UNIT), most)


def noisy_groups(runs, mixing=TO_MOMENTS):
    rng = np.random.default_rng(0)
    return [group(EXACT + mixing @ z, mixing) for z in noise((runs, 3), rng)]


def test_noise_variances_are_those_of_a_simulation():
    drawn, known = noisy_groups(1_500), group(EXACT)
    assert known.mean == pytest.approx(MEAN)
    assert np.var([g.mean for g in drawn]) == pytest.approx(known.privacy_variance, rel=0.1)
    assert np.std([g.variance for g in drawn]) == pytest.approx(known.variance_noise, rel=0.1)
    assert np.std([g.size for g in drawn]) == pytest.approx(known.size_noise, rel=0.1)
    # the part that noise takes off the variance is put back
    plain = np.mean([g.observed[2] / g.size - (g.observed[1] / g.size) ** 2 for g in drawn])
    unbiased = np.mean([g.variance for g in drawn])
    assert abs(unbiased - SD**2) < abs(plain - SD**2) + 2 * known.variance_noise / 1_500**0.5


@pytest.mark.parametrize("mixing", [TO_MOMENTS, np.eye(3)], ids=["parts", "moments"])
def test_a_box_holds_the_rows_as_often_as_it_says(mixing):
    """A size, a mean and a variance, all of them; Bonferroni gives a little more."""
    beta, runs = 0.2, 1_000
    held = sizes = 0
    for g in noisy_groups(runs, mixing):
        low, high, variance, size = g.box(beta)
        held += low <= MEAN <= high and variance >= SD**2 and size <= SIZE
        sizes += abs(g.observed[0] - SIZE) <= g.observed[0] - size + 1
    assert held / runs >= 1 - beta
    # of the three statements each has a third of the error, and uses it
    assert sizes / runs == pytest.approx(1 - beta / 3, abs=0.035)


def test_the_box_reaches_the_extremes_of_ratios():
    g = group(np.array([100.0, -40.0, 30.0]), np.eye(3))
    q = LAW.quantile(0.05) / UNIT
    low, high, *_ = g.box(0.1, squares=False)
    least = np.ceil(100 - q)
    assert low == pytest.approx((-40 - q) / least)
    assert high == pytest.approx(max((-40 + q) / least, (-40 + q) / (100 + q)))
    assert g.box(1e-12) == (-1.0, 1.0, 1.0, 0.0)


def test_draws_go_back_from_what_was_seen_and_lost_ones_to_the_ends():
    mean, squared_error, size = group(EXACT).drawn
    assert np.mean(mean) == pytest.approx(MEAN, abs=0.001)
    assert np.var(mean) == pytest.approx(group(EXACT).privacy_variance, rel=0.1)
    assert np.mean(squared_error * (size - 1)) == pytest.approx(SD**2, rel=0.02)
    lost = group(np.array([-500.0, 3.0, 4.0]))
    mean, squared_error, _ = lost.drawn
    assert set(mean) == {-1.0, 1.0}
    assert mean.mean() == pytest.approx(0, abs=1e-12)
    assert np.all(squared_error == 0)
    assert lost.hidden_by_noise
