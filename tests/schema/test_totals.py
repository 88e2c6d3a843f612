"""Public totals: what is refused, what files hold, and what the custodian sees."""

import pandas as pd
import pytest

import dpstats as dps
from dpstats.errors import DataError, RequestError, SchemaError

COLUMNS = [
    dps.Number("age", 0, 99, points=100, edges=[15, 65], missing=40),
    dps.Category("marital", ["never", "married"]), dps.Category("town", ["a", "b", "c"]),
    dps.Category("area", ["n", "s"]),
]  # fmt: skip
RULES = [
    dps.Never("age < 15 and marital != 'never'", set={"marital": "never"}),
    dps.Determines("area", by="town", mapping={"a": "n", "b": "n", "c": "s"}),
]


def total(condition, count, of="table"):
    return dps.Total(condition, count, of=of)


def schema(*totals):
    return dps.Schema(COLUMNS, rules=RULES, totals=totals)


def test_totals_that_no_table_has_are_refused():
    for totals, words in [
        ([total("age < 15", 100), total("age < 65", 50)], ["age < 65", "age < 15", "contradicts"]),
        ([total("age < 15 and marital == 'married'", 1)], ["married", "not possible"]),
        ([total("area == 'n'", 9), total("town == 'a'", 5), total("town == 'b'", 5)],
         ["town == 'b'", "town == 'a'", "area == 'n'"]),
        ([total("age < 15", 10**7), total("age >= 15", 10**7), total("area == 'n'", 2 * 10**7 + 1)],
         ["area == 'n'", "contradicts"]),
        ([total("ages < 15", 1)], ["ages", "did you mean 'age'"]),
        ([total("age < 20", 1)], ["age < 20", "edge"]),
        (["age < 15"], ["dps.Total"]),
    ]:  # fmt: skip
        with pytest.raises(SchemaError) as error:
            schema(*totals)
        assert all(word in str(error.value) for word in words), str(error.value)
    for parts in (("age < 15", -1, "table"), ("age < 15", 1.5, "table"), ("age < 15", 1, "rows"),
                  (15, 1, "table")):  # fmt: skip
        with pytest.raises(SchemaError):
            dps.Total(*parts)
    with pytest.raises(SchemaError, match="keys"):
        dps.Schema.from_dict(schema().to_dict(), totals=[{"condition": "age < 15", "count": 1}])


def test_totals_of_the_population_limit_no_table():
    declared = schema(total("age < 15", 100, "population"), total("age < 65", 50))
    assert [t.of for t in declared.totals] == ["population", "table"]


def test_totals_above_the_number_of_rows_are_refused_before_anything_is_spent(tmp_path):
    declared = schema(total("age < 65", 4), total("town == 'c'", 3))
    plan = dps.plan(declared, {"a": dps.Proportion("age < 65")}, budget=dps.PureDP(1))
    rows = pd.DataFrame({"age": [3] * 3, "marital": "never", "town": "c", "area": "s"})
    ledger = dps.Ledger.create(tmp_path / "ledger.json", dps.PureDP(2))
    with pytest.raises(DataError, match=r"4 rows of the table.*nothing was spent"):
        dps.release(plan, rows, ledger=ledger)
    assert ledger.spent == 0
    with pytest.raises(SchemaError, match="3 rows"):
        dps.plan(declared, {"a": dps.Proportion("age < 65")}, budget=dps.PureDP(1), n=3).check(3)


def test_totals_that_fix_the_number_of_rows_go_with_a_public_one():
    young, north, asked = (
        total("age < 65", 30),
        total("area == 'n'", 30),
        dps.Proportion("age < 65"),
    )
    for declared in (
        schema(north, total("town == 'c'", 20)),
        schema(young, total("age >= 65", 20)),
        schema(young, total("age >= 15", 20), total("area == 'n'", 50)),
    ):
        assert dps.plan(declared, {"a": asked}, budget=dps.PureDP(1)).unit == "replace"
        with pytest.raises(RequestError, match=r"50 rows.*add_remove"):
            dps.plan(declared, {"a": asked}, budget=dps.PureDP(1), unit="add_remove")
    for declared in (schema(young, total("age >= 15", 30)), schema(north)):  # of 30 to 60 rows
        assert dps.plan(
            declared, {"a": asked}, budget=dps.PureDP(1), unit="add_remove"
        ).schema.totals


def test_check_counts_rows_as_they_are_read():
    declared = schema(total("marital == 'never'", 5), total("area == 'n'", 1))
    plan = dps.plan(declared, {"a": dps.Marginals(["age", "marital"])}, budget=dps.PureDP(1))
    rows = pd.DataFrame({"age": [3, 30, 40], "marital": ["married", "never", "married"],
                         "town": "a", "area": "s"})  # fmt: skip
    fit = dps.check(plan, rows)
    assert fit.totals == (("5 rows of the table have marital == 'never'", 2),)
    assert "counted here: 2" in str(fit)
