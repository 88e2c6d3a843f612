"""Conditions: the grammar, what two spellings share, and what is refused with which words."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpstats.errors import ConditionError, FileFormatError
from dpstats.families.tables.cells import Cells
from dpstats.private.tables import exact_sums, open_source
from dpstats.schema import Boolean, Category, Number, Schema
from dpstats.schema.conditions import CellSet, read_condition

FAR = 'it\'s & or | "far"'
SCHEMA = Schema([
    Category("smoker", ["no", "yes"]), Category("region", ["north", FAR, "e~st"]),
    Category("class", [1, 2.5, 4]), Boolean("retired"),
    Number("age", 0, 100, points=1001, edges=[18, 40.5, 65]),
    Number("body mass", 10, 50, points=401, edges=[18.5, 25], closed="right"),
    Number("score", values=[17.5, 22, 27]),
    Number("trust", 0, 10, points=11, edges=[2, 6], allow_missing=True),
    Number("mark", values=[17.5, 22, 27], allow_missing=True),
])  # fmt: skip


def read(text):
    return Cells.condition(SCHEMA, text)


# Raw values, many of them exactly on edges
VALUES = {
    "smoker": ["no", "yes"], "region": ["north", FAR, "e~st"], "class": [1, 2.5, 4],
    "retired": [False, True], "score": [17.5, 22, 27],
    "age": [0, 17.99, 18, 18.01, 40.4999, 40.5, 64, 65, 65.0001, 100],
    "body mass": [10, 18.4999, 18.5, 18.50001, 24.9, 25, 25.0001, 50],
    "trust": [np.nan, 0, 1.99, 2, 5, 6, 10], "mark": [np.nan, 17.5, 22, 27],
}  # fmt: skip


# Against pandas


EQUAL, LEFT, RIGHT = ("==", "!="), ("<", ">="), ("<=", ">")
COMPARISONS = [
    f"{name} {comparison} {value}"
    for name, comparisons, values in [
        ("smoker", EQUAL, ["'no'", "'yes'"]),
        ("region", EQUAL, ["'north'", "'e~st'"]),
        ("region", ("in", "not in"), [["north"], [FAR, "e~st"], ["e~st", FAR, "north"]]),
        ("`class`", EQUAL, ["1", "1.0", "2.5", "4"]),
        ("retired", EQUAL, ["True"]),
        ("age", LEFT, ["18", "40.5", "65", "65.0"]),
        ("`body mass`", RIGHT, ["18.5", "25"]),
        ("score", EQUAL + LEFT + RIGHT, ["17.5", "22", "27.0"]),
        ("trust", LEFT, ["2", "6"]),
        ("trust", EQUAL, ["'(missing)'"]),
        ("mark", EQUAL + LEFT + RIGHT, ["22"]),
        ("mark", ("in", "not in"), [[22]]),
    ]
    for comparison in comparisons
    for value in values
]


def longer(inner):
    words = st.sampled_from(["{} and {}", "{} or {}", "({} and {})", "({} or {})", "not ({})"])
    return st.tuples(words, inner, inner).map(lambda c: c[0].format(*c[1:]))


texts = st.recursive(st.sampled_from([*COMPARISONS, "retired"]), longer, max_leaves=6)


@given(text=texts, seed=st.integers(0, 2**32))
@settings(max_examples=25)
def test_any_condition_counts_the_rows_of_pandas_query(text, seed):
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame({name: rng.choice(values, 60) for name, values in VALUES.items()})
    asked = text.replace("trust == '(missing)'", "trust != trust")  # as NaN does
    asked = asked.replace("trust != '(missing)'", "trust == trust")
    wanted = len(frame.query(asked, engine="python"))
    try:
        condition = read(text)
    except ConditionError as error:
        assert f"is always {wanted == 60}" in str(error)  # noqa: PT017
        assert wanted in (0, 60)
        return
    sums, _ = exact_sums(open_source(frame, SCHEMA), SCHEMA, [condition])
    assert sums[0].tolist() == [wanted]


# Spellings


def test_two_spellings_are_one_function_of_the_columns_that_matter():
    for one, other in [
        ("age >= 18 | smoker == 'yes' & retired", "age >= 18 or (smoker == 'yes' and retired)"),
        ("~retired & smoker == 'yes'", "(not retired) and smoker == 'yes'"),
        ("not (retired or age < 65)", "not retired and age >= 65"),
        ("region not in ['north', 'e~st']", f"region == {FAR!r}"),
        ("`class` in [1, 2.5]", "`class` != 4"),
        ("retired", "retired == 1"),
        ("`body mass` <= 18.5", "not `body mass` > 18.5"),
        ("score <= 22", "score < 27"),
        ("mark in [22, '(missing)']", "mark == '(missing)' or mark == 22"),
        ("retired and age >= 18 or not retired and age >= 18", "age >= 18"),
        ("  age\n>= 18\t", "age >= 18"),
    ]:
        assert read(one) == read(other)
        assert hash(read(one)) == hash(read(other))
    assert [c.name for c in read("retired and (age < 18 or age >= 18)").columns] == ["retired"]
    assert [c.name for c in read("age >= 18 and smoker == 'yes'").columns] == ["smoker", "age"]


def test_names_in_backticks_hold_anything():
    schema = Schema([Boolean("a & b"), Boolean("x"), Boolean("_quoted_0_"), Boolean("it's")])
    assert [c.name for c in Cells.condition(schema, "`a & b` & x").columns] == ["a & b", "x"]
    read_together = Cells.condition(schema, "`it's` and _quoted_0_").columns
    assert [c.name for c in read_together] == ["_quoted_0_", "it's"]


def test_a_name_is_the_one_that_was_written_letter_for_letter():
    """Python reads a ligature as two letters, and é of two characters as one."""
    schema = Schema([Boolean("\ufb01t"), Boolean("fit"), Boolean("e\u0301"), Boolean("é")])
    for text in ("\ufb01t", "`\ufb01t`", "fit", "e\u0301", "`é`", "é"):
        assert [c.name for c in Cells.condition(schema, text).columns] == [text.strip("`")]
    assert Cells.condition(Schema([Boolean("é")]), "e\u0301").columns[0].name == "é"


# Refusals: every message says what is wrong and what would be right


def test_what_is_no_condition_is_refused():
    for text in [
        "  ", None, "age >= 18 and", "smoker == 'yes", "`body mass <= 25", "18 <= age < 65",
        "smoker.upper() == 'YES'", "age + 1 >= 18", "age >= 18 >= 5", "abs(age)", "(x := retired)",
        "True", "age == score", "smoker == None", "smoker == b'yes'", "age >= 10 + 8",
        "age >= -True", "smoker is 'yes'", "smoker in 'yes'", "smoker in []", "smoker in [*region]",
        "smoker == 'yes' # and age >= 65", "smoker == 'yes'; age >= 65", "smoker", "age",
        "`class ` == 1", "smoker == 'Yes'", "smoker in ['yes', 'maybe']", "smoker == 1",
        f"smoker == {hex(10**5_000)}", "`class` == '1'", "smoker < 'yes'", "retired == 'yes'",
        "retired > False", "age >= 21", "age <= 18", "age == 18", "age in [18, 65]",
        "`body mass` < 25", "score == 20",
        "age >= '18'", "age >= True", "age >= 1e999", "age < 18 or age >= 18",
        "smoker == 'no' and smoker == 'yes'", "not " * 4_900 + "retired",
        "not " * 5_000 + "retired", "(" * 500 + "retired" + ")" * 500, "\x00",
    ]:  # fmt: skip
        with pytest.raises(ConditionError):
            read_condition(text, SCHEMA)
    schema = Schema([Category(f"c{i}", list(range(100))) for i in range(4)])
    text = " and ".join(f"c{i} == 1" for i in range(4))
    with pytest.raises(ConditionError, match="100000000 cells over 4 columns, more than 4194304"):
        read_condition(text, schema)
    plain = {"columns": ["age", "age"], "cells": [1]}  # of another table
    with pytest.raises(FileFormatError, match="names a column twice"):
        CellSet.from_dict(plain, SCHEMA)
