"""What people wait for, as multiples of CPU seconds of known work in the same run, or in calls.

Limits are about three times what was measured.
"""

from collections import Counter

import numpy as np
import pandas as pd
import pytest

import dpstats as dps
from dpstats.families.tables.cells import Table
from dpstats.measured import overlapping_tables
from dpstats.measured.answers import answer


@pytest.mark.parametrize("columns", [8, 16])  # 28 and 120 tables
def test_answers_do_not_try_every_pair_of_tables(columns, monkeypatch):
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
    assert calls["_spread"] <= 3 * columns * tables  # a table meets 2 (columns - 2) others
