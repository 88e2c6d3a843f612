"""Exact coverage under Gaussian noise: of a proportion by enumeration, and of the certificate."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

import dpstats as dps
from dpstats.analyses.counts.binomial import noisy_binomial_cdf
from dpstats.analyses.counts.proportion_intervals import ProportionIntervals
from dpstats.measured.answers import answer
from dpstats.measured.certificate import certify
from dpstats.measured.measurements import Measurements
from dpstats.privacy.gaussian import DiscreteGaussian

METHODS = ("noise_aware", "certified")


def empty(plan, n):
    """Measurements of zeros."""
    zeros = np.zeros(plan.family.size, np.int64)
    return Measurements(replace(plan.strategy, n=n), zeros, zeros * 0.0, not_private=True)


@pytest.mark.parametrize(("n", "p", "rho"), [(30, 0.1, 2.0), (200, 0.3, 0.02), (200, 0.01, 1e-4)])
def test_coverage_of_a_proportion_by_enumeration(n, p, rho, table):
    """Sum over the count and the noise, with the uniform on a grid: .95 exactly.

    Or .975, where no noisy count, read as 0 or more, is low enough to exclude p.
    """
    condition = {"p": dps.Proportion("b")}
    plan = dps.plan(dps.Schema([dps.Boolean("b")]), condition, budget=dps.ZCDP(rho), n=n)
    held = empty(plan, n)
    law = answer(held, plan.family).law(0)
    assert law == DiscreteGaussian(held.scales[0])
    reach = law.support(1e-9)
    t = np.arange(-reach, n + reach + 1)
    x = np.arange(n + 1)
    weight = np.array([stats.binom.pmf(x, n, p) @ law.pmf(v - x) for v in t])
    t, weight = t[weight > 1e-9], weight[weight > 1e-9]  # within the 1e-6 allowed below
    points = 128 if n < 100 else 32
    grid = (np.arange(points) + 0.5) / points - 0.5
    rates = dict.fromkeys(METHODS, 0.0)
    for method in METHODS:
        for u in grid:
            answers = answer(held, plan.family)
            many = replace(
                answers,
                names=["b"] * len(t),
                sums=t.astype(float),
                uniforms=np.full(len(t), u),
                bounds=np.ones(len(t), np.int64),
                law_of=np.zeros(len(t), np.intp),
            )
            low, high = ProportionIntervals(many).conf_int(0.05, method, "population")
            rates[method] += weight[(low <= p) & (p <= high)].sum() / len(grid)
        # The grid of uniforms moves the rate by a part of one probability at either end.
        reach = 2 * weight.max() / points + 1e-6
        exact = 0.95 + 0.025 * (noisy_binomial_cdf(0.0, n, p, law) >= 0.025)
        limits = (exact - reach, exact + reach) if method == "noise_aware" else (0.95, 1.0)
        table.check(f"n={n}, p={p}, rho={rho}", method, rates[method], reference=".95, exact",
                    least=limits[0], most=limits[1])  # fmt: skip


def test_the_certificate_holds_jointly_at_its_exact_rate(tools):
    """Rows that match every noisy answer: it holds iff all noises are within their quantiles."""
    analyses = {
        "m": dps.Marginals(["a", "c"]),
        "p": dps.Proportion("a == 'l0' and c == 'l2'"),
    }
    columns = [dps.Category(c, [f"l{i}" for i in range(s)]) for c, s in (("a", 3), ("c", 4))]
    plan = dps.plan(
        dps.Schema(columns), analyses, budget=dps.ZCDP(0.2), n=500, shares={"m": 1, "p": 3}
    )
    held, runs, alpha = empty(plan, 500), 20_000, 0.05
    laws, which = held.laws
    radius = certify(held, held.means, alpha=alpha, target="rows").joint_radius
    q = np.rint(radius * 500 * held.family.bounds)
    rate = float(np.prod([1 - laws[i].tail(bound + 1) for i, bound in zip(which, q, strict=True)]))
    assert 1 - alpha <= rate < 1 - alpha / 4
    source = tools.Gaussian(3)
    noise = np.stack([source(float(scale), runs) for scale in held.scales], axis=1)
    successes = np.all(np.abs(noise) <= q, axis=1).sum()
    low, high = stats.binom.ppf([5e-7, 1 - 5e-7], runs, rate)
    assert low <= successes <= high
