"""Section F: audits. Real noise on two neighbouring tables shows no more than the budget.

The event is chosen, and a loss proved, as `dpstats audit` does; the sums are those of `measure`.
"""

import os

import numpy as np
import pyarrow as pa
import pytest

import dpstats as dps
from dpstats.auditing.noise_source import Event, log_ratios, loss_of
from dpstats.families.tables.cells import Indicator, Table
from dpstats.privacy import noise
from dpstats.privacy.neighbours import Sensitivity
from dpstats.private import measure as measuring

SCHEMA = dps.Schema([dps.Boolean("b")])
TABLES = {
    # One function takes the whole budget and alone changes.
    "replace": ([True, True], [True, False]),
    # The sum and the number of rows change, and share the budget.
    "add_remove": ([True, True], [True]),
}


def joined(measured, what):
    count = () if measured.count is None else (measured.count,)
    return np.concatenate([getattr(block, what) for block in (*measured.measured, *count)])


def audit(budget, unit, runs, silent, whole=False):
    """Proved loss between two tables, in units of the budget.

    From `runs` draws on each, and at most 2000 more from which the event is chosen: of noise on the
    sums, one draw per function, or of whole calls of `measure`.
    """
    plan = dps.plan(SCHEMA, {"p": dps.Proportion("b")}, budget=budget, unit=unit)
    tables = [pa.table({"b": rows}) for rows in TABLES[unit]]
    with noise._noise_from(silent):
        exact = [dps.measure(plan, table) for table in tables]
    true, family = [joined(m, "sums") for m in exact], budget.noise
    scales = joined(exact[0], "scales")

    def ratios(runs, whole=False):
        for table, sums in zip(tables, true, strict=True):
            if whole:
                noisy = np.stack([joined(dps.measure(plan, table), "sums") for _ in range(runs)])
            else:
                pairs = zip(sums.tolist(), scales.tolist(), strict=True)
                noisy = [measuring.add_noise(np.full(runs, s), at, family) for s, at in pairs]
                noisy = np.stack(noisy, axis=1)
            yield log_ratios(noisy, *true, scales, family)

    loss = loss_of(family)
    event = Event.choose(loss, *ratios(min(runs, 2000)))
    return event.proves(loss, *ratios(runs, whole)) / float(budget.total)


@pytest.mark.parametrize(
    ("budget", "unit"), [(dps.PureDP(1), "replace"), (dps.ZCDP(2), "add_remove")]
)
def test_p61_p62_noisy_sums_show_no_more_than_the_budget(budget, unit, monkeypatch, silent_noise):
    """And of a halved sensitivity, more.

    3000 sums on each table prove some .8 of epsilon and .4 of rho (halved, 1.8 of epsilon and 3 of
    rho). One bit is exact for epsilon, and not for rho.
    """
    assert 0.1 < audit(budget, unit, 3000, silent_noise) <= 1
    for block in (Indicator, Table):  # the condition, and the number of rows

        def halved(self, unit, real=block.sensitivity):
            claimed = real(self, unit)
            return Sensitivity(claimed.l1 / 2, claimed.l2_squared / 4)

        monkeypatch.setattr(block, "sensitivity", halved)
    assert audit(budget, unit, 3000, silent_noise) > 1


def test_p62_whole_releases_show_no_more_than_the_budget(monkeypatch, silent_noise):
    """At epsilon = 3, where 100 releases on each table prove a loss."""
    monkeypatch.setattr(os, "cpu_count", lambda: 1)
    assert 0 < audit(dps.PureDP(3), "replace", 100, silent_noise, whole=True) <= 1
