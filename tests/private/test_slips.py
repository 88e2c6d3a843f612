"""A table, or a list of its cells, in the place of another argument: no message quotes a cell."""

import re

import pandas as pd
import pytest

import dpstats as dps

SCHEMA = dps.Schema([dps.Category("c", ["a", "b"]), dps.Number("x", 0, 9, missing=0)])
ASKED = {"t": dps.Proportion("c == 'b'")}
ONE = dps.PureDP(1)
PLAN = dps.plan(SCHEMA, ASKED, budget=ONE)
FRAME = pd.DataFrame({"c": ["Ann Smith", "Bob Jones"] * 50, "x": [4321.25] * 100})
CELLS = FRAME["c"].tolist()
GIVEN = [FRAME, FRAME["c"], FRAME["x"], CELLS, FRAME["x"].tolist(), tuple(CELLS), {"k": CELLS}]
XY = ["x", "y"]

# What makes the analysis, the plan or the release from what was given by mistake.
ANALYSES = [
    dps.Proportion,
    dps.OLS,
    lambda given: dps.Proportion("c == 'b'", given=given),
    lambda given: dps.GoodnessOfFit("c", given),
    lambda given: dps.Marginals(given, 1),
    lambda given: dps.Quantile("x", given),
    lambda given: dps.Difference("x >= 3", by="c", groups=given),
    lambda given: dps.OLS("x ~ c", ridge=given),
    lambda given: dps.PCA(XY, clip_norm=1, center=given),
    lambda given: dps.PCA(XY, n_components=given),
    lambda given: dps.GraphicalModel(XY, given=given),
    lambda given: given,
]
PLANS = ["unit", "n", "shares", "allocation", "reference", "budget"]
RELEASES = ["m", "fit", "ledger", "rng"]
CALLS = [
    dps.Mean, dps.Covariance, dps.Correlation, dps.PureDP, dps.Plan.load, dps.Schema, dps.load,
    dps.Schema.load, dps.synthesize, SCHEMA.__getitem__,
    lambda given: dps.corrected.infer(given, FRAME, radius=0.1, n=100, schema=SCHEMA),
    lambda given: dps.corrected.infer(ASKED["t"], given, radius=0.1, n=100, schema=SCHEMA),
    lambda given: dps.corrected.chisquare([0.5, 0.5], 0.1, given, [0.5, 0.5]),
    lambda given: dps.GraphicalModel(XY, separators=given),
    lambda given: dps.GraphicalModel(XY, tolerance=given),
    lambda given: dps.GraphicalModel(XY, estimator="clime", penalties=given),
    lambda given: dps.plan(SCHEMA, given, budget=ONE),
    lambda given: dps.plan(given, ASKED, budget=ONE),
    lambda given: dps.release(given, PLAN),
    lambda given: dps.measure(given, PLAN),
    lambda given: dps.check(given, PLAN),
    lambda given: dps.Category("c", ["a", "b"], missing=given),
    lambda given: dps.Category("c", ["a", "b"], missing="a", missing_values=[given]),
    lambda given: dps.Boolean("c", allow_missing=given),
    lambda given: dps.Number("x", given, 3),
    lambda given: dps.Number("x", 3, 5, missing=4, missing_values=[given]),
    lambda given: dps.Number("x", 0, 9, edges=given),
    lambda given: dps.Number("x", values=given),
    lambda given: dps.Number("x", 0, 9, points=given),
    lambda given: dps.Schema(SCHEMA.columns, file=given),
    lambda given: dps.Schema(SCHEMA.columns, file={"encoding": given}),
    lambda given: dps.Schema(SCHEMA.columns, file={"delimiter": given}),
    lambda given: dps.BernsteinKDE(columns=given),
    lambda given: dps.Uniform(over=given),
    *(lambda given, make=make: dps.plan(SCHEMA, {"t": make(given)}, budget=ONE)
      for make in ANALYSES),
    *(lambda given, name=name: dps.plan(SCHEMA, ASKED, **{"budget": ONE, name: given})
      for name in PLANS),
    *(lambda given, name=name: dps.release(PLAN, FRAME, **{name: given}) for name in RELEASES),
]  # fmt: skip


def test_no_message_quotes_what_may_be_a_private_cell():
    made = dps.release(PLAN, FRAME, m=10, k=10)
    of_release = [made.infer, made.answers, lambda given: made.accuracy(alpha=given)]
    for call in [*CALLS, *of_release]:
        for given in GIVEN:
            with pytest.raises((dps.DpstatsError, TypeError)) as refused:
                call(given)
            assert not re.search(r"Ann|Bob|Smith|Jones|4321|4\.321", str(refused.value))
            assert not isinstance(refused.value, TypeError) or "unhashable" in str(refused.value)
