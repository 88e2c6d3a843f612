"""Section D: choices that would read the data. Each is refused, or has no spelling at all."""

import inspect
import math

import numpy as np
import pandas as pd
import pytest

import dpstats as dps
from dpstats.cli import main
from dpstats.families.tables.cells import Indicator, Table

FRAME = pd.DataFrame({"c": ["a", "b", "a", "a"], "b": [True, False, True, True],
                      "x": [0.0, 2.5, 4.0, 1.0]})  # fmt: skip
INSIDE = {"low": 0, "high": 4}


def test_p41_bounds_bins_and_values_from_the_data():
    for options in [
        {}, {"low": 0}, {"low": "auto", "high": "auto"}, {"low": None, "high": None},
        {"low": FRAME["x"].min, "high": FRAME["x"].max}, INSIDE | {"edges": "quantile"},
        INSIDE | {"edges": 10}, INSIDE | {"edges": ["q25", "q75"]}, INSIDE | {"points": "auto"},
        {"values": "auto"}, {"values": FRAME["x"]}, {"values": FRAME["x"].unique()},
    ]:  # fmt: skip
        with pytest.raises(dps.SchemaError, match="column 'x'"):
            dps.Number("x", **options)


def test_p42_inferred_categories(tmp_path):
    for levels in ["auto", None, [], FRAME["c"], FRAME["c"].unique(), FRAME["c"].unique, 3,
                   {"a", "b"}]:  # fmt: skip
        with pytest.raises(dps.SchemaError, match="levels"):
            dps.Category("c", levels)
    for data in (FRAME, "auto", FRAME["c"].astype("category")):
        with pytest.raises(dps.SchemaError):
            dps.Schema(data)
        with pytest.raises(dps.RequestError, match=r"dps\.Schema"):
            dps.plan(data, {"p": dps.Proportion("b")}, budget=dps.PureDP(1))
    made = {name for name in dir(dps.Schema) if name.startswith(("from_", "infer", "of", "load"))}
    # Nothing that takes data: these read what somebody declared, in three formats.
    assert made == {"from_dict", "load", "from_frictionless", "from_smartnoise"}
    rows = tmp_path / "rows.csv"
    FRAME.to_csv(rows, index=False)
    for read in (dps.Schema.from_frictionless, dps.Schema.from_smartnoise):
        for data in (FRAME, rows, None):
            with pytest.raises((dps.SchemaError, dps.RequestError)) as refused:
                read(data)
            assert not any(cell in str(refused.value) for cell in ("True", "2.5"))


def test_p42_a_template_of_a_schema_depends_on_the_header_alone(tmp_path):
    templates = set()
    for frame in (FRAME, FRAME.iloc[::-1].assign(c="zz", x=1e9), FRAME[:0]):
        frame.to_csv(tmp_path / "rows.csv", index=False)
        rows, schema = str(tmp_path / "rows.csv"), str(tmp_path / "s.toml")
        assert main(["init", rows, "-o", schema, "--overwrite"]) == 0
        templates.add((tmp_path / "s.toml").read_text())
    assert len(templates) == 1


def test_p43_the_bernstein_density_takes_public_numbers_only():
    for rule in ["auto", "silverman", "cv", FRAME, max]:
        for key in ["C", "k", "order"]:
            with pytest.raises(dps.RequestError, match=rf"BernsteinKDE\({key}=...\) must be a"):
                dps.BernsteinKDE(**{key: rule})


def test_p44_functions_chosen_by_observed_correlation(attempt, simple_plan, tmp_path):
    for columns in ["auto", "all", "top10", None, FRAME.corr, FRAME, {}]:
        with pytest.raises(dps.RequestError, match="columns must be a"):
            attempt(analyses={"m": dps.Marginals(columns)})
        for degree in ("auto", 0.5, FRAME):
            with pytest.raises(dps.RequestError, match="degree for 2 columns must be"):
                attempt(analyses={"m": dps.Marginals(["c", "b"], degree)})
    FRAME.to_csv(tmp_path / "rows.csv", index=False)
    for path in (tmp_path / "rows.csv", str(tmp_path / "rows.csv")):
        with pytest.raises(dps.RequestError, match="no path: a preview must never read"):
            simple_plan().preview(4, like=path)


def test_p45_missing_numbers_imputed_from_the_data():
    for missing in ["mean", "median", "auto", FRAME["x"].mean, math.nan, True, 9]:
        with pytest.raises(dps.SchemaError, match="missing"):
            dps.Number("x", 0, 4, missing=missing)


REQUESTS = {
    dps.Proportion: {"condition": "x < 1"}, dps.Marginals: {"columns": ["c", "b"]},
    dps.Quantile: {"column": "x"},
    dps.GroupMeans: {"column": "x", "by": "c"}, dps.OLS: {"formula": "x ~ w"},
    dps.PCA: {"columns": ["x", "w"], "clip_norm": 1}, dps.Logistic: {"formula": "b ~ x"},
    dps.Huber: {"formula": "x ~ w", "k": 1.0}, dps.Ratio: {"numerator": "x", "denominator": "w"},
    dps.LossGrid: {"loss": "logistic", "formula": "b ~ 1", "grid": {"Intercept": (-1, 1, 3)}},
}  # fmt: skip


def test_p47_no_analysis_takes_a_function_that_could_be_out_of_range(attempt, small_schema):
    """Losses of your own are tables of integers, see `dps.TabulatedLoss`."""

    def function(*args):
        pytest.fail("a function was called")

    columns = [*small_schema, dps.Number("w", 0, 4, points=5, missing=2)]
    for kind, options in REQUESTS.items():
        dps.plan(dps.Schema(columns), {"f": kind(**options)}, budget=dps.PureDP(1), n=10)
        for name in inspect.signature(kind).parameters:
            with pytest.raises(dps.DpstatsError):
                attempt(columns=columns, analyses={"f": kind(**options | {name: function})}, n=10)


def test_p48_functions_see_coded_rows_only(monkeypatch, asking, exact, small_schema):
    schema = dps.Schema([*small_schema, dps.Category("unused", ["a", "b"])])
    blocks = [dps.Moments.of(schema, ["x"], ["c"]), dps.Cells.condition(schema, "b")]
    plan = dps.plan(schema, {"all": asking(*blocks)}, budget=dps.PureDP(1))
    seen = []
    for kind in (Table, Indicator, dps.Moments):

        def sums(block, codes, real=kind.sums):
            seen.extend(codes.items())
            return real(block, codes)

        monkeypatch.setattr(kind, "sums", sums)
    cells = {"c": ["a", "secret", None, "b"], "x": 1e300, "unused": "a", "undeclared": "secret"}
    exact(plan, FRAME.assign(**cells))
    assert {name for name, _ in seen} == {"c", "b", "x"}
    for name, codes in seen:
        assert codes.dtype == np.int64
        low, high = schema[name].code_range
        assert low <= codes.min() <= codes.max() <= high
