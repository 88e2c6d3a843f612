"""Values of numpy, pandas, polars and Arrow where a schema, an analysis or a plan takes lists."""

import itertools
import json

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import dpstats as dps
from dpstats.analyses.registry import analysis_to_dict

KINDS = {
    "array": np.array, "series": pd.Series, "index": pd.Index, "polars": pl.Series,
    "arrow": pa.array, "chunked": lambda v: pa.chunked_array([v]), "tuple": tuple,
    "nullable": lambda v: pd.Series(v, dtype="string" if isinstance(v[0], str) else None),
    "scalars": lambda v: [np.array(one)[()] for one in v],
}  # fmt: skip
SCHEMA = dps.Schema([dps.Boolean("a"), dps.Boolean("b"), dps.Number("y", 0, 1, missing=0)])


DECLARED = [
    (lambda v: dps.Category("g", v), ["n", "s"]),
    (lambda v: dps.Category("g", v), [1, 2]),
    (lambda v: dps.Category("g", v), [False, True]),
    (lambda v: dps.Number("x", 0, 99, edges=v), [18, 65]),
    (lambda v: dps.Number("x", values=v), [0.5, 65.0]),
    (lambda v: dps.GroupMeans("y", by="g", groups=v), [1, 2]),
    (lambda v: dps.Difference("a", by="g", groups=v), [True, False]),
    (dps.Marginals, ["a", "b"]),
    (dps.Mean, ["a", "b"]),
    (lambda v: dps.Quantile("y", v), [0.25, 0.5]),
    (lambda v: dps.Guesses(shares={"a": v}), [0.5, 0.5]),
    (lambda v: dps.GraphicalModel(["a", "b"], estimator="clime", penalties=v), [0.1, 0.2]),
]


def written(one):
    return json.dumps(one.to_dict() if hasattr(one, "to_dict") else analysis_to_dict(one))


def test_lists_of_any_kind_are_the_same_declaration():
    for kind, (declare, values) in itertools.product(KINDS, DECLARED):
        wanted = declare(values)
        if kind not in ("series", "nullable") or not isinstance(wanted, dps.Guesses):  # by labels
            assert written(declare(KINDS[kind](values))) == written(wanted)


def test_single_values_and_mappings_of_numpy():
    assert dps.Category("g", {"a": np.int64(1), "b": np.int64(2)}).to_dict()["levels"] == {
        "a": 1, "b": 2}  # fmt: skip
    assert type(dps.Category("g", [1, 2], missing=np.int64(2)).missing) is int
    number = dps.Number("x", np.int64(0), np.float32(0.1), points=np.int64(11))
    assert number == dps.Number("x", 0, 0.1, points=11)
    assert dps.Number("d", np.datetime64("2024-01-01"), pd.Timestamp("2024-12-31"),
                      edges=pd.to_datetime(["2024-07-01"])) == dps.Number(
        "d", "2024-01-01", "2024-12-31", edges=["2024-07-01"])  # fmt: skip
    assert dps.Guesses(typical={"y": {"mean": np.int64(3), "sd": np.float32(0.1)}}).typical == {
        "y": {"mean": 3, "sd": 0.1}}  # fmt: skip
    ordered = pd.Series([0.9, 0.1], index=["True", "False"])
    assert dps.Guesses(shares={"a": ordered}).shares == {"a": {"True": 0.9, "False": 0.1}}
    asked = {"pair": dps.Marginals(["a", "b"], np.int64(2))}
    plan = dps.plan(SCHEMA, asked, budget=dps.PureDP(1), n=np.int64(100))
    assert (plan.n, type(plan.n)) == (100, int)
    json.dumps(plan.to_dict())
    counts = pd.Series(["n", "s", "s"]).value_counts()
    with pytest.raises(dps.SchemaError, match="levels of 'g' are a Series with labels"):
        dps.Category("g", counts)
