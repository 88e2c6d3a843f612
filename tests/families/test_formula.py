"""Formulas: the regressors of statsmodels, names with backticks, and predictions."""

from datetime import datetime

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import statsmodels.formula.api as smf

import dpstats as dps
from dpstats.families.formula import Design, named_number

SCHEMA = dps.Schema([
    dps.Number("a", 0, 10, missing=5), dps.Number("b", -1, 1, missing=0),
    dps.Number("y", -5, 5, missing=0), dps.Category("g", ["n", "s", "w"]),
    dps.Category("h h", ["1", "2"]), dps.Boolean("t"),
    dps.Number("age", 0, 100, points=11, edges=[18, 65], closed="right"), dps.Number("u", 0, 1),
    dps.Number("size", values=[0, 17.5, 40], missing=0),
])  # fmt: skip


def frame(n=60):
    rng = np.random.default_rng(0)
    return pd.DataFrame({
        "a": rng.uniform(0, 10, n), "b": rng.uniform(-1, 1, n), "y": rng.normal(size=n),
        "g": rng.choice(["n", "s", "w"], n), "t": rng.random(n) < 0.5,
    })  # fmt: skip


@pytest.mark.parametrize("formula", [
    "y ~ a*C(g) - 1", "y ~ (a + b + g)**2", "y ~ I(a**2) + a:C(g)",
    'y ~ a*C( g,Treatment("w"))', "y ~ C(g, Treatment( reference = 's'))*C(t, Treatment(True))",
    "y ~ C(g):C(t) - 1", "y ~ 0 + t + g:t", "y ~ 0 + a + g:t",
    "y ~ C(t, Treatment(True)) + C(g, Treatment('w')):C(t, Treatment(True)) + "
    "C(g, Treatment('w'))",
])  # fmt: skip
def test_regressors_are_those_of_statsmodels(formula):
    compare(formula, frame(), SCHEMA)


def compare(formula, data, schema):
    design, model = Design.of(formula, schema), smf.ols(formula, data)
    assert sorted(design.names) == sorted(model.exog_names)
    order = [model.exog_names.index(name) for name in design.names]
    np.testing.assert_allclose(design.matrix(data, schema), model.exog[:, order])


def test_a_reference_is_a_level_a_value_or_the_label_of_a_bin():
    schema = dps.Schema([*SCHEMA, dps.Category("q", ["it's", 'a`") + b', "{x}"])])
    for text, names in [
        ('C(age, Treatment("(18, 65]"))', ["[0, 18]", "(65, 100]"]),
        ("C(size, Treatment(reference=17.5))", ["0", "40"]),
        ("C(`h h`, Treatment('2'))", ["1"]),
        ('C(q, Treatment("it\'s"))', ['a`") + b', "{x}"]),
        (r"""C(q, Treatment('a`") + b'))""", ["it's", "{x}"]),
    ]:
        design = Design.of(f"y ~ a*{text} + b", schema)
        assert design.names[2:4][: len(names)] == [f"{text}[T.{name}]" for name in names]
        assert design.terms[1][0] == text
    design = Design.of('y ~ a + C(age, Treatment("(18, 65]"))', SCHEMA)
    matrix = design.matrix({"a": [1, 2], "age": [65, 65.5]}, SCHEMA)
    np.testing.assert_array_equal(matrix, [[1, 1, 0, 0], [1, 2, 0, 1]])
    design = Design.of("t ~ C(age)*`h h` + C(size)", SCHEMA)
    assert design.response == ("t", 1)
    given = {"age": [18, 18.5, 65, 66], "h h": ["1", "2", "2", "1"], "size": [0, 17.5, 40, 40]}
    wanted = [[0, 0, 0, 0, 0], [1, 0, 1, 1, 0], [1, 0, 1, 0, 1], [0, 1, 0, 0, 1]]
    np.testing.assert_array_equal(design.matrix(given, SCHEMA)[:, 1:6], wanted)


NAMED = dps.Schema([
    *(dps.Number(name, 0, 4, points=5, missing=0)
      for name in ("y", "1", "0", "class", "and", "Intercept", "log(y)", "a:b", "a", "b", "x - y")),
    *(dps.Category(name, ["p", "q"]) for name in ("g", "C(g)", "in", "Intercept 2")),
    *(dps.Number(name, 1, 9, scale="log", missing=1) for name in ("is", "net pay", "pay")),
    dps.Number("log(pay)", 0, 3, missing=1),
])  # fmt: skip


def test_a_name_in_backticks_is_that_name_and_one_with_two_meanings_is_refused():
    for formula, factors, names in [
        ("y ~ a:`1`", ["a 1"], ["a:1"]), ("`1` ~ C(`C(g)`)", ["C(g)"], ["C(`C(g)`)[T.q]"]),
        ("y ~ I(`and`**2)", ["and and"], ["I(`and` ** 2)"]),
        ("y ~ log(`net pay`)", ["net pay"], ["log(`net pay`)"]),
        ("a ~ `log(y)`", ["log(y)"], ["log(y)"]),
        ("y ~ `a:b` + `x - y`", ["a:b", "x - y"], ["a:b", "x - y"]),
    ]:  # fmt: skip
        design = Design.of(formula, NAMED)
        found = [" ".join(name for name, _ in r.factors) for r in design.regressors]
        assert (found, design.names) == (["", *factors], ["Intercept", *names])
    for formula in [
        "y ~ Intercept - 1", "y ~ a*b + `a:b`", "y ~ `C(g)` + C(`g`)", "y ~ C(g)", "a ~ log(y)",
        "y ~ g + C(`g`)", "y ~ `g ` + a", "y ~ `` + a", "y ~ `1`:`1`", "y ~ C(`1`, Sum)",
    ]:  # fmt: skip
        with pytest.raises(dps.RequestError):
            Design.of(formula, NAMED)
    for text, column in [("`log(pay)`", "log(pay)"), ("log(`pay`)", "pay"), ("log(y)", "log(y)")]:
        assert named_number(NAMED, text).name == column
    with pytest.raises(dps.RequestError, match=r"'`log\(pay\)`' for the column or 'log\(`pay`\)'"):
        named_number(NAMED, "log(pay)")


def test_anything_else_is_refused():
    for formula in [
        "y ~ a +", "y", "~ a", "a ~ b ~ g", 3, "y + b ~ a", "g ~ a", "y ~ 1", "y ~ a + y",
        "y ~ sqrt(a)", "y ~ np.log(a)", "log(y) ~ a", "y ~ log(g)", "y ~ I(log(a)**2)", "y ~ {a}",
        "y ~ z", "y ~ C(g, Sum)", "y ~ C(g, Treatment(s))", "y ~ C(g, Treatment('e'))",
        "C(g, Treatment('s')) ~ a", "y ~ C(t, Treatment('yes'))", "y ~ C(age, Treatment(18))",
        "y ~ C(g) + a:C(g, Treatment('s'))", "y ~ a + C(a, Treatment(1))", "y ~ __import__('os')",
        "y ~ a**2", "y ~ b + a^2", "y ~ a:a", "y ~ (a + b):(a + t)", "y ~ I(a**3)", "y ~ I(g**2)",
        "y ~ I(a**2):b", "I(y**2) ~ a", "y ~ I(u**2)", "y ~ I(y**2)", "y ~ a*b*g", "y ~ g:t",
        "y ~ C(u)", "y ~ u", "u ~ a", "y ~ size + C(size)",
    ]:  # fmt: skip
        with pytest.raises(dps.RequestError):
            Design.of(formula, SCHEMA)
    for given in [
        {"a": [1]}, {"a": [1], "g": ["x"]}, {"a": [11], "g": ["n"]}, {"a": [1, 2], "g": ["n"]},
        {"a": [np.nan], "g": ["n"]},
    ]:  # fmt: skip
        with pytest.raises(dps.RequestError):
            Design.of("y ~ a + g", SCHEMA).matrix(given, SCHEMA)


@pytest.mark.parametrize("kind", [
    pl.DataFrame, pa.table, lambda v: {n: np.array(x) for n, x in v.items()},
    lambda v: pd.DataFrame(v).astype({"code": "category"}),
], ids=["polars", "table", "arrays", "category"])  # fmt: skip
def test_predictions_take_frames_and_labels_or_stored_codes(kind):
    day = dps.Number("d", "2024-01-01", "2024-12-31", missing="2024-01-01")
    schema = dps.Schema([*SCHEMA, dps.Category("code", {"no": 1, "yes": 7}), day])
    days, first = [datetime(2024, 1, 1), datetime(2024, 2, 1), datetime(2024, 12, 31)], 19_723
    for codes in [[1, 7, 7], ["no", "yes", "yes"]]:
        given = kind({"a": [1, 2, 3], "code": codes, "d": days, "z": [0, 0, 0]})
        matrix = Design.of("y ~ a + code + d", schema).matrix(given, schema)
        assert matrix.tolist() == [[1, 1, 0, first], [1, 2, 1, first + 31], [1, 3, 1, first + 365]]
    given = {"d": [np.datetime64(first, "s")]}  # of 1970, in seconds a day of 2024
    with pytest.raises(dps.RequestError, match="is no date"):
        Design.of("y ~ d", schema).matrix(given, schema)


def test_a_number_on_a_logarithmic_scale_enters_as_its_logarithm():
    pay = dps.Number("pay", 1, 1e4, edges=[100], scale="log", missing=10)
    schema = dps.Schema([*SCHEMA, pay, dps.Number("net pay", 1, 10, scale="log", missing=1)])
    data = frame().assign(pay=lambda d: np.exp(d["a"]).clip(1, 1e4))
    for formula in ("np.log(pay) ~ b*C(g)", "y ~ np.log(pay)*C(g) + I(np.log(pay)**2)"):
        compare(formula, data, schema)
    assert Design.of("log(`net pay`) ~ C(pay)", schema).names[1] == "C(pay)[T.[100, 10000]]"
    for formula in ("pay ~ a", "y ~ pay", "y ~ I(pay**2)", "y ~ a:pay"):
        with pytest.raises(dps.RequestError, match=r"write log\(pay\)"):
            Design.of(formula, schema)
