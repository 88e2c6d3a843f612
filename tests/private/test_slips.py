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
CELLS, NUMBERS = FRAME["c"].tolist(), FRAME["x"].tolist()
KNOWN = {"radius": 0.1, "n": 100, "schema": SCHEMA}
GIVEN = [FRAME, FRAME["c"], FRAME["x"], CELLS, NUMBERS, tuple(CELLS), {"k": CELLS}]


def planned(analysis):
    return dps.plan(SCHEMA, {"t": analysis}, budget=ONE)


def test_no_message_quotes_what_may_be_a_private_cell():
    made = dps.release(PLAN, FRAME, m=10, k=10)
    for call in [
        dps.Mean,
        dps.Covariance,
        dps.PCA,
        dps.Correlation,
        dps.PureDP,
        dps.GraphicalModel,
        lambda given: dps.corrected.infer(given, FRAME, **KNOWN),
        lambda given: dps.corrected.infer(ASKED["t"], given, **KNOWN),
        lambda given: planned(dps.Proportion(given)),
        lambda given: planned(dps.Proportion("c == 'b'", given=given)),
        lambda given: planned(dps.GoodnessOfFit("c", given)),
        lambda given: planned(dps.Marginals(given, 1)),
        lambda given: planned(dps.Quantile("x", given)),
        lambda given: planned(dps.Difference("x >= 3", by="c", groups=given)),
        lambda given: planned(dps.OLS(given)),
        lambda given: planned(dps.OLS("x ~ c", ridge=given)),
        lambda given: planned(dps.PCA(["x", "y"], clip_norm=1, center=given)),
        lambda given: planned(dps.PCA(["x", "y"], n_components=given)),
        lambda given: dps.GraphicalModel(["x", "y"], separators=given),
        lambda given: dps.GraphicalModel(["x", "y"], tolerance=given),
        lambda given: dps.GraphicalModel(["x", "y"], estimator="clime", penalties=given),
        lambda given: planned(dps.GraphicalModel(["x", "y"], given=given)),
        lambda given: dps.plan(SCHEMA, ASKED, budget=ONE, unit=given),
        lambda given: dps.plan(SCHEMA, ASKED, budget=ONE, n=given),
        lambda given: dps.plan(SCHEMA, ASKED, budget=ONE, shares=given),
        lambda given: dps.plan(SCHEMA, ASKED, budget=ONE, allocation=given),
        lambda given: dps.plan(SCHEMA, ASKED, budget=ONE, reference=given),
        lambda given: dps.plan(SCHEMA, given, budget=ONE),
        lambda given: dps.plan(SCHEMA, {"t": given}, budget=ONE),
        lambda given: dps.release(PLAN, FRAME, m=given),
        lambda given: dps.release(PLAN, FRAME, fit=given),
        lambda given: dps.release(PLAN, FRAME, ledger=given),
        lambda given: dps.release(PLAN, FRAME, rng=given),
        lambda given: dps.release(given, PLAN),
        lambda given: dps.measure(given, PLAN),
        lambda given: dps.synthesize(given),
        lambda given: dps.plan(given, ASKED, budget=ONE),
        lambda given: dps.plan(SCHEMA, ASKED, budget=given),
        lambda given: made.accuracy(alpha=given),
        lambda given: made.infer(given),
        lambda given: made.answers(FRAME),
        lambda given: dps.Plan.load(given),
        lambda given: dps.Schema.load(given),
        lambda given: dps.check(given, PLAN),
        lambda given: dps.Schema(given),
        lambda given: SCHEMA[given],
        lambda given: dps.Category("c", ["a", "b"], missing=given),
        lambda given: dps.Boolean("c", allow_missing=given),
        lambda given: dps.Number("x", given, 3),
        lambda given: dps.Number("x", 3, 5, missing_values=given),
        lambda given: dps.Number("x", 3, 5, missing=4, missing_values=[given]),
        lambda given: dps.Category("c", ["a", "b"], missing_values=given),
        lambda given: dps.Category("c", ["a", "b"], missing="a", missing_values=[given]),
        lambda given: dps.Schema(SCHEMA.columns, file=given),
        lambda given: dps.Schema(SCHEMA.columns, file={"encoding": given}),
        lambda given: dps.Schema(SCHEMA.columns, file={"delimiter": given}),
        lambda given: dps.Number("x", 0, 9, edges=given),
        lambda given: dps.Number("x", values=given),
        lambda given: dps.Number("x", 0, 9, points=given),
        lambda given: dps.BernsteinKDE(columns=given),
        lambda given: dps.Uniform(over=given),
        lambda given: dps.corrected.chisquare([0.5, 0.5], 0.1, given, [0.5, 0.5]),
        lambda given: dps.load(given),
    ]:
        for given in GIVEN:
            with pytest.raises((dps.DpstatsError, TypeError)) as refused:
                call(given)
            assert not re.search(r"Ann|Bob|Smith|Jones|4321|4\.321", str(refused.value))
            assert not isinstance(refused.value, TypeError) or "unhashable" in str(refused.value)
