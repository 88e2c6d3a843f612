"""Width and power through the public API: what a release says equals the published optimum.

Exact enumeration over the count, the noise and U; tests/inference does the same for the functions.
"""

import numpy as np
import pandas as pd
from scipy import stats

import dpstats as dps
from dpstats.analyses.counts.binomial import proportion_interval
from dpstats.privacy.laws import DiscreteLaplace
from dpstats.privacy.noise import _noise_from

SCHEMA = dps.Schema([dps.Boolean("smoker")])


class Fixed:
    """Fixed noise and U: every outcome of the mechanism can be visited."""

    def __init__(self, noise, uniform):
        self.noise, self.uniform = noise, uniform

    def __call__(self, scale, size):
        self.scale = scale
        return np.full(size, self.noise, np.int64)

    def uniforms(self, size):
        return np.full(size, self.uniform)


def result(total, uniform, n, epsilon):
    """The released proportion when the noisy count is `total`: half of it rows, half noise."""
    rows = int(np.clip(total, 0, n))
    plan = dps.plan(SCHEMA, {"p": dps.Proportion("smoker")}, budget=dps.PureDP(epsilon), n=n)
    source = Fixed(total - rows, uniform)
    with _noise_from(source):
        release = dps.release(plan, pd.DataFrame({"smoker": np.arange(n) < rows}), m=2, k=1, rng=0)
    assert source.scale == 1 / epsilon
    return release.infer("p")


def law_of_total(n, p, epsilon, reach=60):
    """Lattice and probabilities of the count plus its noise."""
    a, half = np.exp(-epsilon), int(reach / epsilon)
    noise = (1 - a) / (1 + a) * a ** np.abs(np.arange(-half, half + 1))
    mass = np.convolve(stats.binom.pmf(np.arange(n + 1), n, p), noise)
    return np.arange(-half, n + half + 1), mass


def test_width_and_coverage_of_a_release(table):
    """n = 100, p = .2, epsilon = 1: Awan and Wang (2023), Table 1: .947 and .1632 by simulation."""
    n, p, epsilon = 100, 0.2, 1.0
    lattice, mass = law_of_total(n, p, epsilon)
    keep = mass > 1e-9  # the rest changes nothing that is shown
    lattice, mass = lattice[keep], mass[keep]
    law = DiscreteLaplace(1 / epsilon)
    node, weight = np.polynomial.legendre.leggauss(4)
    low, high = proportion_interval(lattice[:, None] + node / 2, n, law)
    width = mass @ (high - low) @ weight / 2
    for at in range(0, len(lattice), 16):  # some of the outcomes through a release
        for u in range(4):
            ends = result(int(lattice[at]), node[u] / 2, n, epsilon).conf_int()
            np.testing.assert_allclose(ends, (low[at, u], high[at, u]), rtol=1e-8)

    def covers(t):
        low, high = proportion_interval(t, n, law)
        return (low <= p) & (p <= high)

    # Ends grow with T + U: only two outcomes T cover p for some U and not for others.
    share = (covers(lattice - 0.5) & covers(lattice + 0.5)).astype(float)
    fine = (np.arange(2000) + 0.5) / 2000 - 0.5
    for at in np.flatnonzero(covers(lattice - 0.5) != covers(lattice + 0.5)):
        share[at] = covers(lattice[at] + fine).mean()
    coverage = mass @ share
    setting = f"n = {n}, p = {p}, epsilon = {epsilon}"
    table.check(setting, "coverage", coverage, "", ".947", "exact",
                least=0.95 - 2e-4, most=0.95 + 2e-4)  # fmt: skip
    table.check(setting, "width", width, "", ".1632", "exact",
                least=0.16367 - 1e-4, most=0.16367 + 1e-4)  # fmt: skip


def test_power_of_a_release(table):
    """n = 30, .8 against .9: Awan and Slavkovic (2018), the optimum among private tests."""
    n, epsilon, power = 30, 1.0, 0.3040
    lattice, null = law_of_total(n, 0.8, epsilon)
    _, other = law_of_total(n, 0.9, epsilon)

    def pvalue(total, uniform=0.0):
        return result(int(total), uniform, n, epsilon).test(0.8, "larger").pvalue

    # p-values fall in T + U: find the T where they cross 5%, then the U.
    low, high = -40, 80
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if pvalue(middle, -0.5) > 0.05 else (low, middle)
    below, above = -0.5, 0.5
    for _ in range(40):
        u = (below + above) / 2
        below, above = (u, above) if pvalue(low, u) > 0.05 else (below, u)
    rejects = np.where(lattice > low, 1.0, np.where(lattice == low, 0.5 - below, 0.0))
    level, found = float(null @ rejects), float(other @ rejects)
    setting = f".8 against .9, n = {n}, epsilon = {epsilon}"
    table.check(setting, "level", level, "", "0.05", "exact", least=0.05 - 1e-8, most=0.05 + 1e-8)
    table.check(setting, "power", found, "", power, "exact",
                least=power - 5e-5, most=power + 5e-5)  # fmt: skip
