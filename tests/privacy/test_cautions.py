"""Cautions on budgets that protect little, in plans and previews."""

import dpstats as dps
from dpstats.privacy.cautions import cautions

SCHEMA = dps.Schema([dps.Boolean("smoker")])


def test_large_budgets_are_cautioned_against():
    for budget, n, wanted in [
        (dps.PureDP(10), 100, []),
        (dps.PureDP(10.5), 100, ["epsilon = 10.5"]),
        (dps.ZCDP(5), 100, ["epsilon = "]),
        (dps.ZCDP(0.1, delta=0.01), 1_000, []),
        (dps.ApproxDP(1, 1e-6), 1_000, []),
        (dps.ApproxDP(1, 0.001), 1_000, ["at least 1/n"]),
        (dps.ApproxDP(1, 0.002), None, ["delta = 0.002 is large"]),
        (dps.ApproxDP(11, 0.002), 100, ["epsilon = 11", "delta = 0.002 is large"]),
    ]:
        found = cautions(budget, n)
        assert len(found) == len(wanted)
        assert all(text in line for text, line in zip(wanted, found, strict=True))


def test_plans_and_previews_print_them():
    asked = {"it": dps.Proportion("smoker")}
    plan = dps.plan(SCHEMA, asked, budget=dps.PureDP(20), n=200)
    for text in (str(plan), str(plan.preview())):
        assert "Caution: epsilon = 20 is a large budget" in text
    assert "can learn about one row." in " ".join(str(plan).split())
    of_persons = dps.plan(SCHEMA, asked, budget=dps.PureDP(20), person="id", rows_per_person=2)
    assert "can learn about one person." in " ".join(str(of_persons).split())
    assert "Caution" not in str(dps.plan(SCHEMA, asked, budget=dps.PureDP(1)))
