"""What else a release can answer: every example is answered, and what is not listed is refused."""

import numpy as np
import pandas as pd
import pytest

import dpstats as dps
from dpstats.reports.answerable import answerable


@pytest.fixture(scope="module")
def release():
    schema = dps.Schema([dps.Boolean("a b"), dps.Boolean("c"),
                         dps.Number("x", 0, 9, edges=[5], missing=0),
                         dps.Number("y", 0, 9, missing=0)])  # fmt: skip
    asked = {"link": dps.Independence("a b", "c"), "line": dps.OLS("y ~ x")}
    plan = dps.plan(schema, asked, budget=dps.PureDP(9))
    numbers = np.arange(600)
    rows = pd.DataFrame({"a b": numbers % 2 == 0, "c": numbers % 3 == 0, "x": numbers % 10,
                         "y": numbers % 7})  # fmt: skip
    return dps.release(plan, rows, m=200, k=200, rng=0)


def test_every_example_is_answered(release):
    found = answerable(release)
    about = {what: columns for what, columns, _ in found}
    assert about == {
        "shares of all levels of one column, and any condition on it": "a b; c",
        "mean and variance": "x; y",
        "table of two columns, and any condition on both": "a b and c",
        "test of independence": "a b and c",
        "correlation": "x and y",
        "least squares of one number on another": "x and y",
    }
    for _, _, example in found:
        assert isinstance(eval(example, {"release": release, "dps": dps}), dps.Result)


def test_what_is_not_listed_cannot_be_answered(release):
    for other in (dps.Quantile("x"), dps.Correlation(["a b", "x"]), dps.Independence("a b", "x")):
        with pytest.raises(dps.DpstatsError):
            release.infer(other)
