import numpy as np
import pytest

from dpstats.analyses.regression.contrasts import read_constraints
from dpstats.errors import RequestError

TERMS = ["Intercept", "age", "age2", "C(g)[T.s]"]
ONE, TWO = [0.0, 1.0, 0.0, 0.0], [0.0, 0.0, 1.0, -1.0]
ODD = ["Intercept", "x", "y", "x - y", "1", "0", "v1_", "C(`h h`)[T.1e3 == 2]", "e1", "h h"]


@pytest.mark.parametrize(("wanted", "rows", "values"), [
    ("age", [ONE], [0]), ("age == 0.5", [ONE], [0.5]), ("age = -2.5E+1", [ONE], [-25]),
    ("1e2*age2 = 1e-05", [[0, 0, 100, 0]], [1e-5]),
    ("age = .5e0, age2 - C(g)[T.s] = 2", [ONE, TWO], [0.5, 2]),
    ((ONE, 0.5), [ONE], [0.5]), (([ONE, TWO], 3), [ONE, TWO], [3, 3]),
    ((ONE, TWO), [ONE, TWO], [0, 0]), (np.array([ONE, TWO]), [ONE, TWO], [0, 0]),
])  # fmt: skip
def test_what_can_be_asked(wanted, rows, values):
    matrix, found, names = read_constraints(wanted, TERMS)
    np.testing.assert_array_equal(matrix, rows)
    np.testing.assert_array_equal(found, values)
    assert len(names) == len(rows)


@pytest.mark.parametrize(("wanted", "tested", "name"), [
    ("`x - y` = 0", {"x - y": 1}, "`x - y`"), ("`x` - `y` = 0", {"x": 1, "y": -1}, "x - y"),
    ("`1` - 2*`0`", {"1": 1, "0": -2}, "`1` - 2 `0`"), ("1*x = 0", {"x": 1}, "x"),
    ("`C(`h h`)[T.1e3 == 2]` - e1", {"C(`h h`)[T.1e3 == 2]": 1, "e1": -1},
     "C(`h h`)[T.1e3 == 2] - e1"),
    ("2*h h - `e1`", {"h h": 2, "e1": -1}, "-1 e1 + 2 h h"),
])  # fmt: skip
def test_what_is_in_backticks_is_a_name(wanted, tested, name):
    matrix, values, names = read_constraints(wanted, ODD)
    assert {ODD[i]: v for i, v in enumerate(matrix[0].tolist()) if v} == tested
    assert (values.tolist(), names) == ([0.0], [name])


@pytest.mark.parametrize(("wanted", "terms", "words"), [
    ("x - y = 0", ODD, "also a combination of others; put the names in backticks"),
    ("`x-y` = 0", ODD, "'x-y' is not"), ("`` = 0", ODD, "is not a coef"),
    ("x y", ODD, "cannot be read"), ("age + b3 = 0", TERMS, "'b3' is not a coefficient"),
    ("age = ", TERMS, "cannot be read"), ("age - age = 0", TERMS, "without any coefficient"),
    ([ONE, [0] * 4], TERMS, "without any coefficient"), ([[1, 2], [3]], TERMS, "regular"),
    ([1, 2], TERMS, "shape"), ([], TERMS, "shape"),
    ("age - C(g, Treatment('s'))[T.n]", TERMS, r"\"C\(g, Treatment\('s'\)\)\[T.n\]\" is not"),
    (None, TERMS, "finite"), ((ONE, [1, 2, 3]), TERMS, "regular"),
    ("age = nan", TERMS, "'nan' is not a coefficient"),
])  # fmt: skip
def test_what_cannot_is_refused_with_a_sentence(wanted, terms, words):
    with pytest.raises(RequestError, match=words):
        read_constraints(wanted, terms)
