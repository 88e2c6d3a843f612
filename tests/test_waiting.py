"""Calls that answers take. Limits are about three times what was measured."""

from collections import Counter

import numpy as np
import pandas as pd

import dpstats as dps
from dpstats.families.tables.cells import Table
from dpstats.measured import overlapping_tables
from dpstats.measured.answers import answer


def test_answers_do_not_try_every_pair_of_tables(monkeypatch):
    """28 tables, of which there are 378 pairs; a table has its own columns and meets 12 others."""
    columns = 8
    names = [f"c{i}" for i in range(columns)]
    schema = dps.Schema([dps.Category(name, [0, 1, 2]) for name in names])
    rows = pd.DataFrame(np.zeros((20, columns), int), columns=names)
    asked = dps.Marginals(names)
    plan = dps.plan(schema, {"t": asked}, budget=dps.PureDP(1), unit="add_remove")
    measured, calls = dps.measure(plan, rows), Counter()

    def counted(owner, name):
        original = getattr(owner, name)

        def call(*arguments, **options):
            calls[name] += 1
            return original(*arguments, **options)

        monkeypatch.setattr(owner, name, call)

    counted(Table, "derive")
    counted(overlapping_tables, "_spread")
    tables = len(answer(measured, asked.family(schema)).sums) // 9
    assert tables == columns * (columns - 1) // 2
    assert calls["derive"] <= 3 * tables
    assert calls["_spread"] <= 3 * columns * tables
