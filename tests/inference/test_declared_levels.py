"""Which declared levels a test uses, and what it costs that an empty one may be among them."""

import numpy as np
import pytest

from dpstats.inference.declared_levels import DeclaredLevels
from dpstats.inference.simulation import draw_from
from dpstats.privacy.gaussian import DiscreteGaussian
from dpstats.privacy.laws import DiscreteLaplace
from dpstats.privacy.weighted_noise import Combination

LAWS = [DiscreteLaplace(7.0), DiscreteGaussian(20.0)]
SPLIT = Combination(((0.5, DiscreteGaussian(30.0)), (0.7, DiscreteGaussian(9.0))))


@pytest.mark.parametrize(
    ("law", "weight", "least"), [(LAWS[0], 1.0, 1), (LAWS[1], 0.25, 2), (SPLIT, 1.0, 2)], ids=str
)
def test_a_level_is_used_from_the_joint_quantile_of_the_noise_on(law, weight, least):
    noise, count = weight * np.arange(-5.0, 400, 4), 7
    used = np.array([
        DeclaredLevels.of(np.full(count, size), [(law, weight)] * count, least).used[0]
        for size in noise + (least - 1)
    ])  # fmt: skip
    wanted = np.array([count * law.tail(t - 1e-3) / 2 <= 0.001 for t in noise / weight])
    assert 0 < used.sum() < len(used)
    assert not np.any(used & ~wanted)
    assert np.sum(wanted & ~used) <= (0 if law.lattice else 2)  # what an inverted law leaves open
    assert np.array_equal(used, np.sort(used))


def test_levels_drop_out_as_alpha_falls():
    levels = DeclaredLevels(np.array([0, 1e-3, 0.5, 1e-5, 0]), 1.0, np.zeros(5))
    asked = []

    def test(pvalues):
        def one(used):
            asked.append(used.tolist())
            return pvalues[int(used.sum())]

        return levels.pvalue(one)

    all_used, fewer, two = ([1, 1, 0, 1, 1], [1, 0, 0, 1, 1], [1, 0, 0, 0, 1])
    # at .05 and above all that pass, between 5e-4 and .05 without the second, then two
    assert test({4: 0.06}) == pytest.approx(0.061)
    assert asked == [all_used]
    assert test({4: 0.02, 3: 0.3}) == pytest.approx(0.05)  # where the second drops out
    assert test({4: 0.02, 3: 0.0098}) == pytest.approx(0.01)
    assert test({4: 1e-9, 3: 1e-6, 2: 0.2}) == pytest.approx(5e-4)
    assert test({4: 1e-9, 3: 1e-6, 2: 4.9e-8}) == pytest.approx(5e-8)
    assert asked[-3:] == [all_used, fewer, two]
    assert test({4: 1e-9, 3: None}) == pytest.approx(0.05)  # too few: rejected no further
    assert test({4: None}) == 1


@pytest.mark.parametrize("law", LAWS, ids=str)
def test_an_empty_level_that_is_used_costs_no_more_than_its_share(law):
    """The worst case: wherever a test uses an empty level it finds p = 0. Exact probabilities."""
    count, noise = 4, np.arange(1, law.quantile(1e-12) + 1)
    mass = (law.tail(noise) - law.tail(noise + 1)) / 2
    # of one empty level beside three large ones, whose p-value is p = 1 or 0.02
    for plain in (1.0, 0.02):
        pvalues = []
        for z in noise:
            levels = DeclaredLevels.of(np.array([1e6, 1e6, 1e6, z]), [(law, 1.0)] * count)
            pvalues.append(levels.pvalue(lambda used, plain=plain: 0.0 if used[3] else plain))
        for alpha in (0.2, 0.05, 0.02, 1e-2, 1e-3, 1e-5):
            wrong = mass[np.array(pvalues) <= alpha].sum()
            assert plain < alpha or wrong <= min(alpha / 50, 1e-3) / count * (1 + 1e-6)
    assert min(pvalues) < 1e-3


def test_the_shift_is_the_mean_noise_of_a_chosen_level():
    law = DiscreteGaussian(30.0)
    sd, reach = law.variance**0.5, law.quantile(2e-3 / 5)
    sizes = reach + np.array([1.0, 60.0, 120.0, 400.0, 4_000.0])
    shifts = DeclaredLevels.of(sizes, [(law, 1.0)] * 5).shifts
    drawn = draw_from(law, 100_000, np.random.default_rng(0))
    for size, shift in zip(sizes[1:3], shifts[1:3], strict=True):
        chosen = drawn[drawn > 2 * reach - size]  # those that a level of size - reach needs
        assert shift == pytest.approx(chosen.mean(), abs=5 * sd / len(chosen) ** 0.5 + 0.5)
    assert shifts[0] == pytest.approx(reach + sd**2 / reach, rel=0.05)
    assert np.all(np.diff(shifts) <= 0)
    assert shifts[-1] == 0
