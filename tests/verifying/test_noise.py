"""The law of a sum of noises, computed twice."""

import pytest

import dpstats as dps
from dpstats.verifying.noise import quantile_of_sum, variance


@pytest.mark.parametrize("given", [dps.PureDP(1), dps.ZCDP(1)], ids=["pure", "zcdp"])
@pytest.mark.parametrize("terms", [1, 2, 7])
@pytest.mark.parametrize("scale", [0.2, 0.9, 1.2, 4.5, 60.0])
def test_sums_of_noises(given, terms, scale):
    law, power = given.law(scale, terms), 1 if given.noise == "laplace" else 2
    assert variance(scale, power) * terms == pytest.approx(law.variance, rel=1e-9)
    for beta in (0.3, 0.01, 1e-6):
        assert quantile_of_sum(scale, power, terms, beta) == law.quantile(beta)
