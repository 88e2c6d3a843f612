"""Section F: audits. Real noise on two neighbouring tables shows no more than the budget."""

import os

import numpy as np
import pyarrow as pa
import pytest

import dpstats as dps
from dpstats.auditing.noise_source import Event, epsilon_of, log_ratios, loss_of
from dpstats.families.tables.cells import Indicator, Table
from dpstats.privacy.neighbours import Sensitivity
from dpstats.privacy.noise import add_noise


def planned(budget, unit):
    schema = dps.Schema([dps.Boolean("b")])
    return dps.plan(schema, {"p": dps.Proportion("b")}, budget=budget, unit=unit)


def proved_of(plan, runs=2000):
    """The part of the budget that noisy sums prove, of tables of which a row changes each by 1."""
    scales, family = np.concatenate(plan.strategy.block_scales), plan.budget.noise
    here, there = np.full(len(scales), 2), np.full(len(scales), 1)

    def ratios():
        for true in (here, there):
            pairs = zip(true.tolist(), scales.tolist(), strict=True)
            drawn = [add_noise(np.full(runs, total), scale, family) for total, scale in pairs]
            yield log_ratios(np.stack(drawn, axis=1), here, there, scales, family)

    loss = loss_of(family)
    proved = Event.choose(loss, *ratios()).proves(loss, *ratios())
    return proved / float(plan.budget.total)


@pytest.mark.parametrize(
    ("budget", "unit"), [(dps.PureDP(1), "replace"), (dps.ZCDP(2), "add_remove")]
)
def test_p61_p62_noisy_sums_show_no_more_than_the_budget(budget, unit, monkeypatch):
    """And of a halved sensitivity, more: some .8 of epsilon and .5 of rho (halved, 1.7 and 2.3)."""
    assert 0.1 < proved_of(planned(budget, unit)) <= 1
    for block in (Indicator, Table):  # the condition, and the number of rows

        def halved(self, unit, real=block.sensitivity):
            claimed = real(self, unit)
            return Sensitivity(claimed.l1 / 2, claimed.l2_squared / 4)

        monkeypatch.setattr(block, "sensitivity", halved)
    assert proved_of(planned(budget, unit)) > 1


def test_p62_whole_releases_show_no_more_than_the_budget(monkeypatch):
    """At epsilon = 3, where 100 releases on each table prove a loss; 50 others choose the event."""
    monkeypatch.setattr(os, "cpu_count", lambda: 1)
    plan, ratios = planned(dps.PureDP(3), "replace"), []
    (scales,) = plan.strategy.block_scales
    for cells in ([True, True], [True, False]):
        noisy = [dps.measure(plan, pa.table({"b": cells})).noisy_sums for _ in range(150)]
        ratios.append(log_ratios(np.array(noisy), np.array([2]), np.array([1]), scales, "laplace"))
    event = Event.choose(epsilon_of(), *(one[:50] for one in ratios))
    assert 0 < event.proves(epsilon_of(), *(one[50:] for one in ratios)) <= 3
