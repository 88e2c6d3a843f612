"""What else a release can answer: every example is answered, and what is not listed is refused."""

import numpy as np
import pandas as pd
import pytest

import dpstats as dps
from dpstats.reports.analysts import answerable


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
        "shares of all levels of one column": "a b; c",
        "conditions on one column": "a b; c",
        "mean and variance": "x; y",
        "table of two columns": "a b and c",
        "conditions on two columns": "a b and c",
        "test of independence": "a b and c",
        "correlation": "x and y",
        "least squares of one column on another": "x and y",
    }
    for _, _, example in found:
        assert isinstance(eval(example, {"release": release, "dps": dps}), dps.Result)


def test_the_response_of_an_example_is_a_number():
    """Whichever column comes first, and of which only the logarithm may have moments."""
    schema = dps.Schema([dps.Category("place", ["u", "v", "w"]),
                         dps.Number("pay", 1, 100, scale="log", missing=5)])  # fmt: skip
    plan = dps.plan(schema, {"line": dps.OLS("log(pay) ~ place")}, budget=dps.PureDP(9))
    rows = pd.DataFrame({"place": np.resize(["u", "v", "w"], 600), "pay": np.arange(600) % 99 + 1})
    release = dps.release(plan, rows, m=200, k=200, rng=0)
    examples = {what: (about, example) for what, about, example in answerable(release)}
    about, example = examples["least squares of one column on another"]
    assert (about, example) == ("place and log(pay)", "release.infer(dps.OLS('log(pay) ~ place'))")
    assert isinstance(eval(example, {"release": release, "dps": dps}), dps.Result)
