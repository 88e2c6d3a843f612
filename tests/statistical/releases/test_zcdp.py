"""Exact coverage of the certificate under Gaussian noise."""

from dataclasses import replace

import numpy as np
from scipy import stats

import dpstats as dps
from dpstats.measured.certificate import certify
from dpstats.measured.measurements import Measurements


def empty(plan, n):
    """Measurements of zeros."""
    zeros = np.zeros(plan.family.size, np.int64)
    return Measurements(replace(plan.strategy, n=n), zeros, zeros * 0.0, not_private=True)


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
