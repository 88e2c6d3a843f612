"""Persons of several rows: what they cost, and what plans, files and ledgers say of them.

The loss of whole plans is in cases/test_privacy_loss.py.
"""

import json
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest

import dpstats as dps
from dpstats.errors import BudgetError, FileFormatError, RequestError
from dpstats.privacy.ledger import Ledger

SCHEMA = dps.Schema([
    dps.Boolean("b"), dps.Boolean("d"),
    dps.Number("x", -1, 1, points=5, edges=[0], missing=0),
    dps.Number("y", 0, 2, points=3, edges=[1], missing=1),
])  # fmt: skip


ASKED = [
    dps.Proportion("b", given="d"), dps.OLS("y ~ x + b", cov_type="HC1"),
    dps.PCA(["x", "y"], clip_norm=0.8), dps.Logistic("b ~ x", stages=2),
]  # fmt: skip
KINDS = [
    (dps.PureDP, "replace"), (dps.ZCDP, "add_remove"),
    (lambda total: dps.ApproxDP(total, 1e-6), "replace"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "unit"), KINDS)
@pytest.mark.parametrize("asked", ASKED, ids=type)
def test_a_whole_plan_spends_its_budget_on_k_rows(asked, kind, unit):
    """At the scales that noise is drawn with, by what a single row changes, without `moved_by`."""
    for k in (1, 3):
        plan = dps.plan(SCHEMA, {"a": asked}, budget=kind(1), unit=unit, rows_per_person=k)
        strategy, spent = plan.strategy, 0
        for planned, scales in zip(strategy.blocks, strategy.block_scales, strict=True):
            row, bounds = planned.block.sensitivity(unit), planned.block.bounds.tolist()
            least = min(Fraction(s) / b for s, b in zip(scales.tolist(), bounds, strict=True))
            gaussian = plan.budget.noise == "gaussian"
            spent += k**2 * row.l2_squared / (2 * least**2) if gaussian else k * row.l1 / least
        assert 0.999 * plan.budget.total < spent <= plan.budget.total
        with pytest.raises(BudgetError):
            replace(strategy, rows_per_person=k + 1).check()


def planned(k, person=None):
    asked, budget = {"p": dps.Proportion("b")}, dps.PureDP(1)
    return dps.plan(SCHEMA, asked, budget=budget, rows_per_person=k, person=person)


def test_one_row_per_person_is_not_written_and_more_are(tmp_path):
    one, three = planned(1), planned(3)
    assert "rows_per_person" not in json.dumps(one.to_dict())
    assert one.digest != three.digest
    for plan in (three, planned(2, "id")):
        plan.save(tmp_path / "plan.json", overwrite=True)
        assert dps.Plan.load(tmp_path / "plan.json") == plan
    assert "replacing up to 3 rows of one person" in " ".join(str(three).split())
    plain = three.to_dict()
    assert plain["rows_per_person"] == 3
    for wrong in (2, 0, True, "3", None, 2**20 + 1):
        with pytest.raises((FileFormatError, BudgetError, RequestError)):
            dps.Plan.from_dict({**plain, "rows_per_person": wrong})
    del plain["rows_per_person"]
    with pytest.raises(BudgetError, match="spends 1/3 and"):
        dps.Plan.from_dict(plain)


def test_a_ledger_counts_one_relation(tmp_path):
    book = Ledger.create(tmp_path / "some.ledger", dps.PureDP(2), rows_per_person=3)
    assert Ledger.open(tmp_path / "some.ledger") == book
    assert "up to 3 rows of one person" in str(book)
    frame = pd.DataFrame({"b": [True, False] * 2, "id": [1, 1, 2, 3]})
    dps.measure(planned(3), frame, ledger=book)
    with pytest.raises(
        BudgetError, match="for up to 3 rows of one person, and this one is for one"
    ):
        dps.measure(planned(1), frame, ledger=book)
    of_persons = Ledger.create(tmp_path / "persons.ledger", dps.PureDP(3), person="id")
    for k in (2, 1):  # both protect all rows of a person
        dps.measure(planned(k, "id"), frame, ledger=of_persons)
    with pytest.raises(BudgetError, match="for all rows of one person by the key 'id', and"):
        dps.measure(planned(1), frame, ledger=of_persons)
    assert of_persons.spent == 2
    with pytest.raises(BudgetError, match="--rows-per-person 4"):
        book.spend(dps.PureDP(1), rows_per_person=4)
    assert book.spent == 1
    old = Ledger.create(tmp_path / "old.ledger", dps.PureDP(2))
    assert "rows_per_person" not in (tmp_path / "old.ledger").read_text()
    with pytest.raises(BudgetError, match="for one row, and this one is for up to 3 rows"):
        old.check(dps.PureDP(1), rows_per_person=3)


def test_a_second_release_keeps_the_rows_per_person():
    rng, budget, formula = np.random.default_rng(0), dps.ZCDP(1), "b ~ x + d + y"
    first = {"l": dps.Logistic(formula)}
    frame = pd.DataFrame({"b": rng.random(400) < 0.5, "x": rng.uniform(-1, 1, 400),
                          "d": rng.random(400) < 0.4, "y": rng.uniform(0, 2, 400)})  # fmt: skip
    plan = dps.plan(SCHEMA, first, budget=budget, rows_per_person=3)
    held = dps.release(plan, frame, m=60, k=40, rng=0)
    asked = {"l2": dps.Logistic(formula, stages=2)}
    added = dps.plan(SCHEMA, asked, budget=budget, start=held)
    assert (added.rows_per_person, added.cost()) == (3, 2)
    with pytest.raises(RequestError, match="with at most 3 rows per person"):
        dps.plan(SCHEMA, asked, budget=budget, start=held, rows_per_person=2)
