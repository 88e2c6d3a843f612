"""Section F: audits. Real noise on two neighbouring tables shows no more than the budget.

Under epsilon, P(E | D) <= exp(epsilon) P(E | D') for every event E. Under rho, whether E came is a
function of the release, so the Renyi divergence of order a of the two laws of that one bit is at
most a rho for every a > 1 (Bun and Steinke 2016); the (epsilon, delta) curve is derived from these
divergences and proves no more. Both losses grow with P(E | D) and fall with P(E | D') while the
first is larger, so Clopper-Pearson bounds of the two give a lower bound of the loss. The event is
chosen on other draws than those that it is tested on, sums with the noise of one call: one test,
without a correction.
"""

import os
from functools import partial

import numpy as np
import pyarrow as pa
import pytest
from scipy.stats import beta

import dpstats as dps
from dpstats.families.tables.cells import Indicator, Table
from dpstats.privacy import noise
from dpstats.privacy.neighbours import Sensitivity
from dpstats.private import measure as measuring

MISS = 1e-6  # probability that a correct release fails an audit
ORDERS = np.geomspace(1.01, 200, 200)[:, None]  # of the Renyi divergences; every order is valid
SCHEMA = dps.Schema([dps.Boolean("b")])
TABLES = {
    # One function takes the whole budget and alone changes.
    "replace": ([True, True], [True, False]),
    # The sum and the number of rows change, and share the budget.
    "add_remove": ([True, True], [True]),
}
BUDGETS = {"laplace": dps.PureDP(1), "gaussian": dps.ZCDP(2)}
ALL = pytest.mark.parametrize(("kind", "unit"), [(k, u) for k in BUDGETS for u in TABLES])
SOME = pytest.mark.parametrize(
    ("kind", "unit"), [("laplace", "replace"), ("gaussian", "add_remove")]
)


def proved(kind, hits, others, runs):
    """Loss that counts of an event on the two tables prove with confidence 1 - MISS."""
    with np.errstate(invalid="ignore"):  # no bound is NaN, and becomes the trivial one
        p = np.nan_to_num(beta.ppf(MISS / 2, hits, runs - hits + 1), nan=0.0)
        q = np.nan_to_num(beta.isf(MISS / 2, others + 1, runs - others), nan=1.0)
    p, q = np.where(p > q, (p, q), 0.5)  # nothing is proved
    if kind == "laplace":
        return np.log(p / q)
    inside = ORDERS * np.log(p) + (1 - ORDERS) * np.log(q)
    outside = ORDERS * np.log1p(-p) + (1 - ORDERS) * np.log1p(-q)
    return (np.logaddexp(inside, outside) / (ORDERS * (ORDERS - 1))).max(axis=0)


def loss_of(kind, thresholds, scores, others):
    """Proved losses of the events that a score is at least a threshold."""
    hits = [s.size - np.searchsorted(np.sort(s), thresholds) for s in (scores, others)]
    return proved(kind, *hits, scores.size)


def sums_of(measured):
    count = () if measured.count is None else (measured.count,)
    return np.concatenate([block.sums for block in (*measured.measured, *count)])


def scales_of(plan):
    kind = plan.budget.noise
    scales = [measuring.noise_scales(p.block, p.multiplier, kind) for p in plan.strategy.blocks]
    return np.concatenate(scales).tolist()


def true_sums(plan, table):
    with noise._noise_from(lambda scale, size: np.zeros(size, np.int64)):
        return sums_of(dps.measure(plan, table))


def whole_releases(plan, table, runs):
    """Noisy sums of many calls of `measure`, in one thread, (runs, functions)."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "cpu_count", lambda: 1)
        return np.stack([sums_of(dps.measure(plan, table)) for _ in range(runs)])


def batches(plan, table, runs):
    """Noisy sums as `measure` makes them, one draw per function, (runs, functions)."""
    pairs = zip(true_sums(plan, table).tolist(), scales_of(plan), strict=True)
    draw = partial(measuring.add_noise, noise=plan.budget.noise)
    return np.stack([draw(np.full(runs, total), scale) for total, scale in pairs], axis=1)


def audit(kind, unit, draw, runs):
    """Proved loss between two tables, in units of the budget.

    From `runs` draws on each, and at most 4000 sums from which the event is chosen.
    """
    plan = dps.plan(SCHEMA, {"p": dps.Proportion("b")}, budget=BUDGETS[kind], unit=unit)
    tables = [pa.table({"b": rows}) for rows in TABLES[unit]]
    true = [true_sums(plan, table) for table in tables]
    laws = [plan.budget.law(scale) for scale in scales_of(plan)]

    def ratios(draw, runs):
        found = []
        for table in tables:
            columns = zip(laws, draw(plan, table, runs).T, *true, strict=True)
            logs = [np.log(law.pmf(z - s)) - np.log(law.pmf(z - t)) for law, z, s, t in columns]
            found.append(np.sum(logs, axis=0).round(9))  # so that equal ratios stay equal
        return found

    chosen = (0.0, 0.0, 1)
    drawn = ratios(batches, min(runs, 4000))
    for sign in (1, -1):
        here, there = (sign * scores for scores in drawn[::sign])
        thresholds = np.quantile(here, np.linspace(0, 1, 400), method="lower")
        losses = loss_of(kind, thresholds, here, there)
        chosen = max(chosen, (losses.max(), thresholds[losses.argmax()], sign))
    _, threshold, sign = chosen
    here, there = (sign * scores for scores in ratios(draw, runs)[::sign])
    return loss_of(kind, [threshold], here, there)[0] / float(plan.budget.total)


@pytest.fixture
def halved_sensitivity(monkeypatch):
    for block in (Indicator, Table):  # the condition, and the number of rows

        def halved(self, unit, real=block.sensitivity):
            claimed = real(self, unit)
            return Sensitivity(claimed.l1 / 2, claimed.l2_squared / 4)

        monkeypatch.setattr(block, "sensitivity", halved)


@pytest.fixture
def doubled_budget(monkeypatch):
    for kind in (dps.PureDP, dps.ZCDP):
        halved = lambda *args, real=kind.multiplier: real(*args) / 2  # noqa: E731
        monkeypatch.setattr(kind, "multiplier", halved)
    for check in ("check", "check_kept"):  # they would see the cost
        monkeypatch.setattr(dps.Plan, check, lambda *arguments, **options: None)


@ALL
def test_p62_noisy_sums_show_no_more_than_the_budget(kind, unit):
    """9000 sums on each table prove .9 and .8 of epsilon, .7 and .55 of rho: an audit of one
    bit is exact for epsilon and not for rho."""
    assert 0.4 < audit(kind, unit, batches, 9000) <= 1


@ALL
def test_p61_the_audit_sees_planted_halved_sensitivity(kind, unit, halved_sensitivity):
    assert audit(kind, unit, batches, 5000) > 1


@ALL
def test_p62_the_audit_sees_a_planted_doubled_budget(kind, unit, doubled_budget):
    assert audit(kind, unit, batches, 5000) > 1


@SOME
def test_p62_whole_releases_show_no_more_than_the_budget(kind, unit):
    assert 0 < audit(kind, unit, whole_releases, 400) <= 1


@SOME
def test_p61_whole_releases_show_planted_halved_sensitivity(kind, unit, halved_sensitivity):
    assert audit(kind, unit, whole_releases, 400) > 1


@pytest.mark.slow
@ALL
def test_p62_ten_thousand_whole_releases_show_no_more_than_the_budget(kind, unit):
    assert 0.2 < audit(kind, unit, whole_releases, 2500) <= 1


@pytest.mark.slow
@ALL
def test_p61_ten_thousand_whole_releases_show_halved_sensitivity(kind, unit, halved_sensitivity):
    assert audit(kind, unit, whole_releases, 2500) > 1
