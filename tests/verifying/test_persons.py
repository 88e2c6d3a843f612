"""The second opinion on files of persons with several rows."""

from fractions import Fraction

import pytest

import dpstats as dps
from dpstats.verifying.shapes import NotReadError

SCHEMA = dps.Schema([
    dps.Category("c", ["a", "b", "c"]), dps.Boolean("b"), dps.Boolean("d"),
    dps.Number("x", -1, 1, points=5, edges=[0], missing=0, source="late - early"),
    dps.Number("age", 0, 2, points=3, missing=0),
])  # fmt: skip
ASKED = {"m": dps.Marginals(["c", "b", "d"]), "x": dps.Mean("x")}


def test_both_agree_on_the_cost_of_a_person(judge, unit, budget):
    for person in (None, "id"):
        plan = dps.plan(SCHEMA, ASKED, budget=budget, unit=unit, rows_per_person=3, person=person)
        plain = plan.to_dict()
        verdict = judge(plain)
        assert verdict.agrees, verdict.wrong
        assert verdict.reached == verdict.bound == 2
        assert f"costs {3 if budget.kind == 'pure' else 9} times" in verdict.text
        assert ("found by the key 'id'" in verdict.text) == (person is not None)
        assert not judge({**plain, "rows_per_person": 4}).agrees
    for wrong in (1, True, "3", None):
        with pytest.raises(NotReadError):
            judge({**plain, "rows_per_person": wrong})
    for key in ("b", "early"):
        with pytest.raises(NotReadError, match="tells persons apart"):
            judge({**plain, "person_key": key})


TOTALS = {"r": dps.Ratio("x", "age", by="d"),
          "x": dps.Mean("x"), "p": dps.Proportion("b", given="d"),
          "d": dps.Difference("b", by="c", groups=("a", "c")), "l": dps.OLS("x ~ b + C(c)"),
          "g": dps.MeanDifference("x", by="d"), "i": dps.OLS("x ~ b - 1", given="d")}  # fmt: skip


def test_both_agree_on_person_totals(judge, differences, unit, budget):
    times = 3 if budget.kind == "pure" else 9
    for name, analysis in TOTALS.items():
        options = {"person": "id", "rows_per_person": 3, "person_totals": True}
        plan = dps.plan(SCHEMA, {name: analysis}, budget=budget, unit=unit, **options)
        plain, verdict = plan.to_dict(), judge(plan)
        assert differences(plan) == [], name
        assert verdict.agrees, (name, verdict.wrong)
        assert verdict.bound == 2, name
        assert verdict.reached > (1.6 if name in "li" else 1.999), name
        assert f"person totals {times**2} times" in verdict.text
        # as if products grew like sums
        (one,) = [block for block in plain["blocks"] if block["role"] == "persons"]
        one["multiplier"] = str(Fraction(one["multiplier"]) / times)
        assert not judge(plain).agrees, name
    with pytest.raises(NotReadError, match="of too many rows"):
        judge({**plain, "rows_per_person": 64})
    del plain["person_key"]
    with pytest.raises(NotReadError, match="without persons"):
        judge(plain)
