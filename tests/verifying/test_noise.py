"""The law of a sum of noises, computed twice."""

import pytest

import dpstats as dps
from dpstats.verifying.noise import quantile_of_sum, variance


def test_sums_of_noises():
    for given in [dps.PureDP(1), dps.ZCDP(1)]:
        for terms in [1, 2, 7]:
            for scale in [0.2, 0.9, 1.2, 4.5, 60.0]:
                law, power = given.law(scale, terms), 1 if given.noise == "laplace" else 2
                assert variance(scale, power) * terms == pytest.approx(law.variance, rel=1e-9)
                for beta in (0.3, 0.01, 1e-6):
                    assert quantile_of_sum(scale, power, terms, beta) == law.quantile(beta)
