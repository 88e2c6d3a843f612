"""Draws that calibrate tests follow the law they stand for."""

import numpy as np
import pytest
from scipy.stats import chi2

from dpstats.inference.simulation import draw_from
from dpstats.privacy.gaussian import DiscreteGaussian
from dpstats.privacy.laws import DiscreteLaplace

SIZE = 100_000
LAWS = [
    DiscreteLaplace(3.0),
    DiscreteLaplace(0.5, 6),
    DiscreteGaussian(0.4),
    DiscreteGaussian(1.1, 5),
    DiscreteGaussian(30.0),
    DiscreteGaussian(900.0),
    DiscreteGaussian(5000.0, 2),
]


def pvalue(drawn, law):
    """Chi-square test on 40 cells of about equal probability, and four far out."""
    z = np.arange(-law.support(1e-9), law.support(1e-9) + 1)
    far = np.array([2e-4, 3e-3])
    levels = np.concatenate([far, np.arange(1, 40) / 40, 1 - far[::-1]])
    edges = np.unique(z[np.searchsorted(law.cdf(z), levels)])
    counts = np.bincount(np.searchsorted(edges, drawn), minlength=len(edges) + 1)
    shares = np.diff(np.concatenate([[0.0], law.cdf(edges), [1.0]]))
    return chi2.sf(np.sum((counts - SIZE * shares) ** 2 / (SIZE * shares)), len(edges))


@pytest.mark.parametrize("law", LAWS, ids=str)
def test_draws_follow_the_law(law):
    drawn = draw_from(law, SIZE, np.random.default_rng(4))
    assert drawn.shape == (SIZE,)
    assert np.all(drawn == np.rint(drawn))
    assert pvalue(drawn, law) > 1e-6  # a right sampler fails once in a million seeds


def test_the_same_test_rejects_a_scale_off_by_three_percent():
    for law in (DiscreteGaussian(30.0), DiscreteGaussian(5000.0, 2)):
        wrong = DiscreteGaussian(law.scale * 1.03, law.terms)
        assert pvalue(draw_from(wrong, SIZE, np.random.default_rng(4)), law) < 1e-6


def test_a_huge_scale_is_drawn_too():
    drawn = draw_from(DiscreteGaussian(2.0**52), 1000, np.random.default_rng(0))
    assert 0.9 < drawn.std() / 2.0**52 < 1.1
