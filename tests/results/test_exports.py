"""Tables of results for other software: levels and cross tables, LaTeX, Arrow."""

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import dpstats as dps
from dpstats.results.rendering import escaped

SCHEMA = dps.Schema([
    dps.Category("a&b", ["x_1", "y%"], allow_missing=True), dps.Boolean("c"),
    dps.Number("term", 0, 100, edges=[50]),
])  # fmt: skip
ASKED = {
    "pairs": dps.Marginals(["a&b", "c", "term"], degree=2),
    "strata": dps.Independence("c", "a&b", given="term", simulations=99),
    "fit": dps.GoodnessOfFit("c", [0.5, 0.5], simulations=99),
    "share": dps.Proportion("c"),
}


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(1)
    return pd.DataFrame({
        "a&b": rng.choice(["x_1", "y%", None], 900, p=[0.6, 0.3, 0.1]), "c": rng.random(900) < 0.3,
        "term": rng.integers(0, 100, 900),
    })  # fmt: skip


@pytest.fixture(scope="module")
def release(rows):
    return dps.release(dps.plan(SCHEMA, ASKED, budget=dps.PureDP(10_000)), rows, m=200)


def test_frames_hold_the_level_of_every_column(release):
    frame = release.infer("pairs").to_frame()
    assert list(frame.columns[:5]) == ["term", "a&b", "c", "term (level)", "estimate"]
    first = frame[frame["term"] == "a&b=x_1, c=False"].iloc[0]
    assert (first["a&b"], first["c"]) == ("x_1", "False")
    counts = release.infer("strata").to_frame()
    for name in ("c", "a&b"):
        assert (counts[name] == counts["cell"].str.extract(f"{name}=([^,]*)")[0]).all()


def test_cross_tables_are_those_of_the_rows(release, rows):
    pairs, levels = release.infer("pairs"), ["x_1", "y%", "(missing)"]
    shares = pairs.crosstab("c", "a&b")
    own = rows.assign(**{"a&b": rows["a&b"].fillna("(missing)"), "c": rows["c"].astype(str)})
    exact = pd.crosstab(own["c"], own["a&b"], normalize=True)[levels]
    assert (shares.index.name, shares.columns.tolist()) == ("c", levels)
    np.testing.assert_allclose(shares, exact, atol=0.002)
    assert shares.equals(pairs.crosstab("a&b", "c").T)
    counts = release.infer("strata").crosstab("term", "c", "a&b")
    of_rows = pd.crosstab([own["term"] >= 50, own["c"]], own["a&b"])[levels]
    np.testing.assert_allclose(counts, of_rows, atol=2)
    assert release.infer("fit").crosstab("c").shape == (1, 2)
    ends = np.asarray(pairs.conf_int(alpha=0.1, method="certified"))
    low = pairs.crosstab("a&b", "c", values="conf_low", alpha=0.1, method="certified")
    np.testing.assert_array_equal(low.to_numpy().ravel(), ends[: low.size, 0])


@pytest.mark.parametrize(("name", "columns", "options", "words"), [
    ("pairs", ["c"], {}, r"for a margin infer dps.Marginals\(\['c'\]"),
    ("pairs", [["c", "a&b"]], {}, r"a list of length 2\).*, as in crosstab\('"),
    ("pairs", [], {}, "name each column"),
    ("fit", [["c"]], {}, r"as in crosstab\('c'\)"),
    ("pairs", [2019, "c"], {}, r"crosstab\(2019, 'c'\): .* name each column"),
    ("share", ["c"], {}, "no table of exactly these columns"),
    ("pairs", ["c", "a&b"], {"values": "p"}, "values must be"),
])  # fmt: skip
def test_cross_tables_that_are_not_there(release, name, columns, options, words):
    with pytest.raises(dps.RequestError, match=words):
        release.infer(name).crosstab(*columns, **options)


def test_latex_escapes_labels(release):
    result = release.infer("pairs")
    text = result.to_latex(most=2)
    assert text == result.summary(most=2).as_latex()
    assert r"a\&b=x\_1, c=False & " in text
    assert text.count(r"\\") == 3  # rows, the header among them
    assert "\n[" not in text  # it would be an option of the row before
    assert escaped("[0, 18)") == "{[}0, 18)"  # an option, at the start of a row
    assert escaped("~^\\{}$#") == (r"\textasciitilde{}\textasciicircum{}\textbackslash{}\{\}\$\#")


@pytest.mark.parametrize("read", [pa.table, pl.DataFrame])
def test_rows_and_results_through_arrow(release, read):
    for name in ("pairs", "strata", "share"):
        frame, found = release.infer(name).to_frame(), read(release.infer(name))
        names = found.column_names if isinstance(found, pa.Table) else list(found.columns)
        assert names == list(frame.columns)
        assert len(found) == len(frame)
    assert len(read(release)) == release.k
