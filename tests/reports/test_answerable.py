"""What else a release can answer: every example is answered, and what is not listed is refused."""

import numpy as np
import pandas as pd

import dpstats as dps
from dpstats.reports.analysts import answerable


def found(columns, asked, rows):
    """What a release of 600 rows can answer, all of whose examples have been answered."""
    plan = dps.plan(dps.Schema(columns), asked, budget=dps.PureDP(9))
    release = dps.release(plan, pd.DataFrame(rows), m=50, k=20, rng=0)
    listed = answerable(release)
    for _, _, example in listed:
        assert isinstance(eval(example, {"release": release, "dps": dps}), dps.Result)
    return {what: (about, example) for what, about, example in listed}


def test_every_example_is_answered():
    i = np.arange(600)
    columns = [dps.Boolean("a b"), dps.Boolean("c"), dps.Number("x", 0, 9, edges=[5], missing=0),
               dps.Number("y", 0, 9, missing=0)]  # fmt: skip
    asked = {"link": dps.Independence("a b", "c"), "line": dps.OLS("y ~ x")}
    rows = {"a b": i % 2 == 0, "c": i % 3 == 0, "x": i % 10, "y": i % 7}
    assert {what: about for what, (about, _) in found(columns, asked, rows).items()} == {
        "shares of all levels of one column": "a b; c",
        "conditions on one column": "a b; c",
        "mean and variance": "x; y",
        "table of two columns": "a b and c",
        "conditions on two columns": "a b and c",
        "test of independence": "a b and c",
        "correlation": "x and y",
        "least squares of one column on another": "x and y",
    }


def test_the_response_of_an_example_is_a_number():
    """Whichever column comes first, and of which only the logarithm may have moments."""
    levels = ["u", "v", "w"]
    columns = [dps.Category("place", levels), dps.Number("pay", 1, 100, scale="log", missing=5)]
    rows = {"place": np.resize(levels, 600), "pay": np.arange(600) % 99 + 1}
    examples = found(columns, {"line": dps.OLS("log(pay) ~ place")}, rows)
    about, example = examples["least squares of one column on another"]
    assert (about, example) == ("place and log(pay)", "release.infer(dps.OLS('log(pay) ~ place'))")
