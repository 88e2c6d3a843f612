import numpy as np
import pandas as pd
import pytest
import statsmodels.formula.api as smf

import dpstats as dps
from dpstats.families.formula import Design

SCHEMA = dps.Schema([
    dps.Number("a", 0, 10, missing=5), dps.Number("b", -1, 1, missing=0),
    dps.Number("y", -5, 5, missing=0), dps.Category("g", ["n", "s", "w"]),
    dps.Category("h h", ["1", "2"]), dps.Boolean("t"),
    dps.Number("age", 0, 100, points=11, edges=[18, 65], closed="right"), dps.Number("u", 0, 1),
    dps.Number("size", values=[0, 17.5, 40]),
])  # fmt: skip


def frame(n=60):
    rng = np.random.default_rng(0)
    return pd.DataFrame({
        "a": rng.uniform(0, 10, n), "b": rng.uniform(-1, 1, n), "y": rng.normal(size=n),
        "g": rng.choice(["n", "s", "w"], n), "t": rng.random(n) < 0.5,
    })  # fmt: skip


@pytest.mark.parametrize("formula", [
    "y ~ a + C(g) + a:b", "y ~ a*C(g) - 1", "y ~ 0 + a + g + t", "y ~ C(g)*t", "y ~ a:C(g)",
    "y ~ (a + b + g)**2", "y ~ a + a:b - 1", "y ~ a + I(a**2) + C(g)", "y ~ I(a**2) + a:C(g)",
])  # fmt: skip
def test_regressors_are_those_of_statsmodels(formula):
    data, design = frame(), Design.of(formula, SCHEMA)
    model = smf.ols(formula, data)
    assert sorted(design.names) == sorted(model.exog_names)
    order = [model.exog_names.index(name) for name in design.names]
    np.testing.assert_allclose(design.matrix(data, SCHEMA), model.exog[:, order])


def test_names_in_backticks_bins_values_and_booleans():
    design = Design.of("t ~ C(age)*`h h` + C(size)", SCHEMA)
    assert design.response == ("t", 1)
    assert design.names == [
        "Intercept", "C(age)[T.(18, 65]]", "C(age)[T.(65, 100]]", "h h[T.2]", "C(size)[T.17.5]",
        "C(size)[T.40]", "C(age)[T.(18, 65]]:h h[T.2]", "C(age)[T.(65, 100]]:h h[T.2]",
    ]  # fmt: skip
    given = {"age": [18, 18.5, 65, 66], "h h": ["1", "2", "2", "1"], "size": [0, 17.5, 40, 40]}
    np.testing.assert_array_equal(
        design.matrix(given, SCHEMA)[:, 1:6],
        [[0, 0, 0, 0, 0], [1, 0, 1, 1, 0], [1, 0, 1, 0, 1], [0, 1, 0, 0, 1]],
    )


@pytest.mark.parametrize(("formula", "words"), [
    ("y ~ a +", "cannot be read"), ("y", "cannot be read"), ("y ~ .", "cannot be read"),
    ("~ a", "cannot be read"), ("a ~ b ~ g", "cannot be read"), (3, "must be a string"),
    ("y + b ~ a", "one column on the left"), ("g ~ a", "a number or a Boolean"),
    ("y ~ 1", "no regressor"), ("y ~ a + y", "both sides"), ("y ~ np.log(a)", "not a column"),
    ("y ~ {a + 1}", "nothing here is evaluated"), ("y ~ 2:a", "not a column"),
    ("y ~ z", "not a column"),
    ("y ~ C(g, Treatment('s'))", "not a column"), ("y ~ __import__('os')", "not a column"),
    ("y ~ a**2", "I\\(a\\*\\*2\\)"), ("y ~ b + a^2", "I\\(a\\*\\*2\\)"), ("y ~ a:a", "by itself"),
    ("y ~ a*a", "by itself"), ("y ~ (a + b):(a + t)", "by itself"), ("y ~ {a}", "braces"),
    ("y ~ b + C(a**2)", "not a column"),
    ("y ~ I(a**3)", "not a column"), ("y ~ I(g**2)", "not a number"), ("y ~ I(a**2):b", "twice"),
    ("I(y**2) ~ a", "must be a column"), ("y ~ I(u**2)", "missing="), ("y ~ I(y**2)", "both sides"),
    ("y ~ a*b*g", "3 columns"), ("y ~ g:t", "write a\\*b"), ("y ~ C(u)", "single bin"),
    ("y ~ u", "missing="), ("u ~ a", "missing="), ("y ~ size + C(size)", "number and levels"),
])  # fmt: skip
def test_anything_else_is_refused_with_a_sentence(formula, words):
    with pytest.raises(dps.RequestError, match=words):
        Design.of(formula, dps.Schema([
            dps.Number("size", values=[0, 17.5, 40], missing=0) if c.name == "size" else c
            for c in SCHEMA
        ]))  # fmt: skip


@pytest.mark.parametrize(
    "formula",
    ["y ~ " + "b" * 5_000, "y ~ a" * 900, "y ~ {" + "a" * 5_000, "y ~ a +" + "a" * 5_000 + "(",
     "y ~ __import__ os", "y ~ __import__('os', 1"],
    ids=range(6),
)  # fmt: skip
def test_a_refusal_prints_no_long_formula_and_no_position_in_code(formula):
    with pytest.raises(dps.RequestError) as refused:
        Design.of(formula, SCHEMA)
    assert len(str(refused.value)) < 700
    assert "<unknown>" not in str(refused.value)


@pytest.mark.parametrize(("given", "words"), [
    ({"a": [1]}, "need values of"), ({"a": [1], "g": ["x"]}, "level"),
    ({"a": [11], "g": ["n"]}, "between 0 and 10"), ({"a": [1, 2], "g": ["n"]}, "as many"),
    ({"a": [np.nan], "g": ["n"]}, "between 0 and 10"),
])  # fmt: skip
def test_predictions_need_declared_values(given, words):
    with pytest.raises(dps.RequestError, match=words):
        Design.of("y ~ a + g", SCHEMA).matrix(given, SCHEMA)
