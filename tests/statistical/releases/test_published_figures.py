"""Width and power through the public API: what a release says equals the published optimum.

Exact enumeration over the count, the noise and U; tests/inference does the same for the functions.
"""

import numpy as np
import pandas as pd
import pytest
from scipy import optimize, stats

import dpstats as dps
from dpstats.analyses.counts.binomial import proportion_interval, proportion_pvalue
from dpstats.privacy.laws import DiscreteLaplace
from dpstats.privacy.noise import _noise_from

SCHEMA = dps.Schema([dps.Boolean("smoker")])
EPSILON = 1.0
LAW = DiscreteLaplace(1 / EPSILON)


class Fixed:
    """Fixed noise and U: every outcome of the mechanism can be visited."""

    def __init__(self, noise, uniform):
        self.noise, self.uniform = noise, uniform

    def __call__(self, scale, size):
        assert scale == 1 / EPSILON
        return np.full(size, self.noise, np.int64)

    def uniforms(self, size):
        return np.full(size, self.uniform)


@pytest.mark.parametrize(("n", "p", "alternative"), [(100, 0.2, "two-sided"), (30, 0.8, "larger")])
def test_a_release_says_what_the_functions_say(n, p, alternative):
    """Of the count and its noise only the sum is seen: `total` with U."""
    plan = dps.plan(SCHEMA, {"p": dps.Proportion("smoker")}, budget=dps.PureDP(EPSILON), n=n)
    for total, uniform in ((-7, 0.43), (4, -0.1), (n // 5, 0.2), (n - 3, -0.43), (n + 5, 0.1)):
        count = int(np.clip(total, 0, n))
        with _noise_from(Fixed(total - count, uniform)):
            rows = pd.DataFrame({"smoker": np.arange(n) < count})
            found = dps.release(plan, rows, m=2, k=1, rng=0).infer("p")
        t = total + uniform
        np.testing.assert_allclose(found.conf_int(), proportion_interval(t, n, LAW), rtol=1e-8)
        exact = proportion_pvalue(t, n, p, LAW, alternative)
        assert found.test(p, alternative).pvalue == pytest.approx(float(exact), rel=1e-8)


def law_of_total(n, p):
    """Lattice and probabilities of the count plus its noise."""
    a, half = np.exp(-EPSILON), int(60 / EPSILON)
    noise = (1 - a) / (1 + a) * a ** np.abs(np.arange(-half, half + 1))
    mass = np.convolve(stats.binom.pmf(np.arange(n + 1), n, p), noise)
    return np.arange(-half, n + half + 1), mass


def root(function):
    return optimize.brentq(function, -20, 80, xtol=1e-12)


def test_width_and_coverage(table):
    """n = 100, p = .2, epsilon = 1: Awan and Wang (2023), Table 1: .947 and .1632 by simulation."""
    n, p = 100, 0.2
    lattice, mass = law_of_total(n, p)
    node, weight = np.polynomial.legendre.leggauss(4)
    low, high = proportion_interval(lattice[:, None] + node / 2, n, LAW)
    width = mass @ (high - low) @ weight / 2
    # Ends grow with T + U: where they cross p, exactly.
    last, first = (root(lambda t, i=i: proportion_interval(t, n, LAW)[i] - p) for i in (0, 1))
    covered = np.minimum(lattice + 0.5, last) - np.maximum(lattice - 0.5, first)
    coverage = float(mass @ np.clip(covered, 0, 1))
    setting = f"n = {n}, p = {p}, epsilon = {EPSILON}"
    table.check(setting, "coverage", coverage, "", ".947", "exact",
                least=0.95 - 1e-7, most=0.95 + 1e-6)  # fmt: skip
    table.check(setting, "width", width, "", ".1632", "exact",
                least=0.16367 - 1e-4, most=0.16367 + 1e-4)  # fmt: skip


def test_power(table):
    """n = 30, .8 against .9: Awan and Slavkovic (2018), the optimum among private tests."""
    n, power = 30, 0.3040
    critical = root(lambda t: proportion_pvalue(t, n, 0.8, LAW, "larger") - 0.05)
    level, found = (
        float(mass @ np.clip(lattice + 0.5 - critical, 0, 1))
        for lattice, mass in (law_of_total(n, p) for p in (0.8, 0.9))
    )
    setting = f".8 against .9, n = {n}, epsilon = {EPSILON}"
    table.check(setting, "level", level, "", "0.05", "exact", least=0.05 - 1e-8, most=0.05 + 1e-8)
    table.check(setting, "power", found, "", power, "exact",
                least=power - 5e-5, most=power + 5e-5)  # fmt: skip
