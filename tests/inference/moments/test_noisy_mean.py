"""What noisy moments tell: variances to first order, boxes, draws; all against simulation."""

import numpy as np
import pytest

from dpstats.analyses.moments.mean_intervals import Contrast
from dpstats.analyses.moments.noisy_mean import NoisyMean
from dpstats.analyses.moments.one_way import OneWay
from dpstats.families.group_moments import TO_MOMENTS
from dpstats.privacy.gaussian import DiscreteGaussian
from dpstats.privacy.laws import DiscreteLaplace

LAW, UNIT = DiscreteLaplace(30.0), 4.0  # noise of sd 10.6 rows
SIZE, MEAN, SD = 900.0, 0.2, 0.7
EXACT = SIZE * np.array([1, MEAN, MEAN**2 + SD**2])


def noise(shape, rng, law=LAW):
    p = -np.expm1(-1 / law.scale)
    return (rng.geometric(p, shape) - rng.geometric(p, shape)) / UNIT


def group(moments, mixing=TO_MOMENTS):
    return NoisyMean(moments, mixing, (LAW,) * 3, np.full(3, UNIT), np.inf)


def noisy_groups(runs, mixing=TO_MOMENTS):
    drawn = noise((runs, 3), np.random.default_rng(0))
    return [group(EXACT + mixing @ z, mixing) for z in drawn]


def test_noise_variances_are_those_of_a_simulation():
    drawn, known = noisy_groups(1_500), group(EXACT)
    assert known.mean == pytest.approx(MEAN)
    spread = np.std([(g.mean, g.variance, g.size) for g in drawn], axis=0)
    expected = known.privacy_variance**0.5, known.variance_noise, known.size_noise
    np.testing.assert_allclose(spread, expected, rtol=0.1)
    # the part that noise takes off the variance is put back
    plain = np.mean([g.observed[2] / g.size - (g.observed[1] / g.size) ** 2 for g in drawn])
    unbiased = np.mean([g.variance for g in drawn])
    assert abs(unbiased - SD**2) < abs(plain - SD**2) + 2 * known.variance_noise / 1_500**0.5


@pytest.mark.parametrize("mixing", [TO_MOMENTS, np.eye(3)], ids=["parts", "moments"])
def test_the_mean_of_the_table_has_the_noise_of_the_estimate(mixing):
    known = group(EXACT, mixing)
    ratio = known.of_table
    np.testing.assert_allclose([*ratio.t, ratio.count], [SIZE * (1 + MEAN) / 2, SIZE])
    for mean in (MEAN, 1.0, -1.0):  # of the sum less the mean times the size, in [0, 1]
        gradient = np.array([-mean, 1, 0]) / 2
        found = ratio.noise.variance(np.array([(1 + mean) / 2]))
        np.testing.assert_allclose(found, gradient @ known.covariance @ gradient)


@pytest.mark.parametrize("alpha", [0.05, 1e-10])  # for the table by a law, or by a box
@pytest.mark.parametrize("target", ["population", "table"])
def test_two_certified_means_share_the_error(target, alpha):
    groups = group(EXACT), group(EXACT * 3)
    ones = [Contrast((one,), 0.0, 2.0).certified(alpha / 2, target) for one in groups]
    (low, high), (other_low, other_high) = np.reshape(ones, (2, 2))
    found = Contrast(groups, 0.0, 2.0).certified(alpha, target)
    np.testing.assert_allclose(np.ravel(found), [low - other_high, high - other_low], rtol=1e-9)


@pytest.mark.parametrize("law", [LAW, DiscreteGaussian(40.0)], ids=["Laplace", "Gaussian"])
def test_far_pvalues_have_the_noise_of_the_value_tested(law):
    """Where the size of a group is noisy; also of a difference from a group without noise."""
    moments = np.array([1, MEAN, MEAN**2 + 0.01])
    few, many = (
        NoisyMean(size * moments, TO_MOMENTS, (law,) * 3, np.full(3, UNIT), np.inf, seed)
        for seed, size in enumerate((160.0, 1e8))
    )
    for value in (0.8, 0.9, 1.0):
        of_noise = 2 * few.of_table.tails((1 + value) / 2, read=True).min()
        assert 1e-9 < of_noise < 2e-3
        found = [
            Contrast((few,), 0.0, 1.0).pvalues(value, "two-sided")[0],
            Contrast((few, many), 0.0, 1.0).pvalues(value - MEAN, "two-sided")[0],
            Contrast((many, few), 0.0, 1.0).pvalues(MEAN - value, "two-sided")[0],
        ]
        assert of_noise <= found[0]
        assert of_noise / 3 < min(found) <= max(found) < 10 * of_noise, value


def test_pvalues_are_below_alpha_only_outside_of_the_interval():
    rng = np.random.default_rng(3)
    constant = NoisyMean(100 * np.array([1, 0.5, 0.25]), TO_MOMENTS, (LAW,) * 3, np.full(3, UNIT),
                         np.inf, 5)  # fmt: skip
    for groups in ((constant,), (constant, group(EXACT / 5))):
        contrast = Contrast(groups, 0.0, 1.0)
        for alpha in (0.1, 0.01, 1e-3, 1e-5):
            (low,), (high,) = contrast.noise_aware(alpha, "population")
            for inside in low + (high - low) * np.append(rng.random(2), [1e-4, 1 - 1e-4]):
                assert contrast.pvalues(inside, "two-sided")[0] >= alpha * (1 - 1e-4)
            for outside in (low - 1e-3, high + 1e-3):
                if abs(outside) < 1:
                    assert contrast.pvalues(outside, "two-sided")[0] < alpha


@pytest.mark.parametrize("mixing", [TO_MOMENTS, np.eye(3)], ids=["parts", "moments"])
def test_a_box_holds_the_rows_as_often_as_it_says(mixing):
    """A size, a mean and a variance, all of them; Bonferroni gives a little more."""
    beta, held = 0.2, []
    for g in noisy_groups(1_000, mixing):
        low, high, variance, size = g.box(beta)
        all_of_them = low <= MEAN <= high and variance >= SD**2 and size <= SIZE
        held.append((all_of_them, abs(g.observed[0] - SIZE) <= g.observed[0] - size + 1))
    every, sizes = np.mean(held, axis=0)
    assert every >= 1 - beta
    # of the three statements each has a third of the error, and uses it
    assert sizes == pytest.approx(1 - beta / 3, abs=0.035)


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


def one_way(means, sds=(0.1, 0.5, 0.3), law=None, rng=None):
    """Groups with these moments, and noise from a law if there is a generator."""
    sizes, units = np.array([400.0, 60.0, 200.0]), np.full(3, UNIT)
    moments = sizes[:, None] * np.transpose([np.ones(3), means, np.square(means) + np.square(sds)])
    if rng is not None:
        moments = moments + noise((3, 3), rng, law) @ TO_MOMENTS.T
    return OneWay(tuple(
        NoisyMean(own, TO_MOMENTS, (law,) * 3, units, 660.0, i) for i, own in enumerate(moments)
    ))  # fmt: skip


def test_the_noise_of_the_means_of_groups_is_no_effect():
    means, law = np.array([0.0, 0.1, -0.05]), DiscreteLaplace(60.0)
    true, hidden = one_way(means), one_way(means, law=law)
    assert true.eta_squared > 0.01
    assert hidden.eta_squared == hidden.omega_squared == 0
    # on average over the noise the sum between is that of the rows
    rng, quiet = np.random.default_rng(0), DiscreteLaplace(10.0)
    drawn = [one_way(means, law=quiet, rng=rng)._sums_of_squares[0] for _ in range(100)]
    error = np.std(drawn) / 100**0.5
    assert np.mean(drawn) == pytest.approx(true._sums_of_squares[0], abs=4 * error)
    # groups that do not vary have a statistic
    constant = one_way(np.zeros(3), np.zeros(3))
    assert constant.welch[:2] == (0, 1)
    assert np.isnan(constant.eta_squared)
    assert one_way(np.array([0.0, 0.1, 0.1]), np.zeros(3)).welch[1] < 1e-6
