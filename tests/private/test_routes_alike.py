"""One survey, on every route: the same sums, and accepted or refused alike whatever a cell holds.

What a table is accepted for are the names of its columns. Its types are not looked at, since one
cell can decide them.
"""

import gzip

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa

import dpstats as dps
from dpstats.errors import DataError
from dpstats.families.tables.cells import Cells
from dpstats.private.tables import exact_sums, open_source
from dpstats.schema import Boolean, Category, Number, Schema

SCHEMA = Schema([
    Category("word", ["no", "yes"], allow_missing=True),
    Category("digit", ["1", "2"], allow_missing=True),
    Category("grade", [0, 1, 2.5], missing=0, other=1),
    Boolean("flag", allow_missing=True),
    Number("x", 0, 8, points=9, edges=[1.5, 5], missing=5),
    Category("day", ["2024-05-01", "2024-05-02"], allow_missing=True),
    Number("pay", 1, 1000, points=4, edges=[20], scale="log", missing=20),
    Number("seen", "2024-01-01", "2024-12-31", edges=["2024-05-02"], missing="2024-06-01"),
    Number("trust", 1, 5, points=5, edges=[3], allow_missing=True, missing_values=[8, 9]),
    Number("years", 0, 120, edges=[60], missing=70, missing_values=[0, 99]),
    Number("wage", 1, 1000, points=4, edges=[20], scale="log", allow_missing=True,
           missing_values=[0, -9.5]),
    Number("score", values=[17.5, 22, 27], allow_missing=True, missing_values=[-1]),
    Number("left", "2020-01-01", "2024-12-31", edges=["2022-01-01"], allow_missing=True,
           missing_values=["9999-12-31", "2020-01-01"]),
    Category("party", ["1", "2", "else"], other="else", allow_missing=True,
             missing_values=["9", "refused"]),
    Category("vote", [1, 2, 3], other=3, missing=2, missing_values=[9]),
    Boolean("asked", allow_missing=True, missing_values=[9]),
    Number("short x", 0, 4, points=5, edges=[2], source="x"),  # views: the survey has none
    Number("low trust", 1, 2, points=2, edges=[2], source="trust"),
    Number("wait", 0, 3000, points=3001, edges=[1], allow_missing=True, source="left - seen"),
    Number("gap", -50, 50, points=101, edges=[0], missing=5, source="years - x"),
    Number("odd", -50, 50, points=101, allow_missing=True, source="day - x"),
])  # fmt: skip
# As a CSV file writes them; an empty text is a missing cell.
SURVEY = {
    "word": ["no", "yes", "Yes", "", "no"],
    "digit": ["1", "2", "3", "", "1"],
    "grade": ["0", "1", "2.5", "", "7"],
    "flag": ["true", "false", "true", "", "false"],
    "x": ["0", "1.5", "-3", "", "1e9"],
    "day": ["2024-05-01", "2024-05-02", "2024-05-03", "", "2024-05-01"],
    "pay": ["0", "19.5", "-3", "", "32"],
    "seen": ["2024-05-01", "2024-05-02", "1999-05-03", "", "2024-05-01"],
    "trust": ["1", "9", "3", "", "8"],
    "years": ["0", "99", "100", "", "20"],
    "wage": ["0", "-9.5", "32", "", "2"],
    "score": ["17.5", "-1", "22", "", "30"],
    "left": ["2020-01-01", "9999-12-31", "2023-05-01", "", "2021-01-01"],
    "party": ["1", "9", "refused", "", "7"],
    "vote": ["1", "9", "7", "", "1"],
    "asked": ["1", "9", "0", "", "1"],
}
EXPECTED = [[2, 1, 2], [2, 1, 2], [2, 2, 1], [2, 2, 1], [2, 1, 2], [2, 1, 2], [3, 2], [3, 2],
            [1, 1, 3], [1, 4], [1, 1, 3], [1, 1, 1, 2], [1, 1, 3], [1, 0, 1, 3], [2, 2, 1],
            [1, 2, 2], [2, 3], [1, 1, 3], [2, 2, 1], [1, 4], [0, 5]]  # fmt: skip
NATIVE = {"digit": int, "grade": float, "flag": lambda text: text == "true", "x": float,
          "pay": float, "trust": int, "years": float, "wage": float, "score": float, "party": int,
          "vote": int, "asked": int, "left": np.datetime64,
          "day": np.datetime64, "seen": np.datetime64}  # fmt: skip


def texts(survey):
    return {name: [cell or None for cell in cells] for name, cells in survey.items()}


def natives(survey):
    """Cells as numbers, bools and dates where they spell them."""

    def read(name, cell):
        try:
            return NATIVE.get(name, str)(cell) if cell else None
        except ValueError:
            return cell

    return {name: [read(name, cell) for cell in cells] for name, cells in survey.items()}


def typed(survey):
    """A data frame with the types that pandas gives to the native cells."""
    return pd.DataFrame({name: pd.Series(cells) for name, cells in natives(survey).items()})


def arrow(survey):
    frame = typed(survey)
    return pa.table({
        name: pa.array(frame[name].astype(str).where(frame[name].notna(), None), pa.string())
        if frame[name].dtype == object else pa.array(frame[name], from_pandas=True)
        for name in frame
    })  # fmt: skip


def read_back(survey, folder):
    """As people come to a table: by what other libraries read of a file."""
    path = str(folder / "survey.csv")
    pd.DataFrame(survey).to_csv(path, index=False)
    return [
        pd.read_csv(path),
        pd.read_csv(path, dtype=str, keep_default_na=False),
        pl.read_csv(path, try_parse_dates=True, infer_schema_length=None),
        duckdb.read_csv(path, dtype={"word": "VARCHAR"}),  # else no and yes are bools
    ]


def outcome(data, *names):
    """The sums and the number of rows, or the sentence of a refusal."""
    schema = SCHEMA.select(names or SCHEMA.names)
    blocks = [Cells.table(SCHEMA, [name]) for name in schema.names]
    try:
        sums, rows = exact_sums(open_source(data, schema), schema, blocks)
    except DataError as error:
        return str(error)
    return [block.tolist() for block in sums], rows


def test_one_survey_has_the_same_sums(route, every_route, tmp_path):
    """Its cells as text, as pandas types them, and one by one."""
    plan = dps.plan(SCHEMA, {"m": dps.Marginals(list(SCHEMA.names), 1)}, budget=dps.PureDP(1))
    typed = arrow(SURVEY), pd.DataFrame(natives(SURVEY), dtype=object)
    spelled = pa.table(texts(SURVEY)), pd.DataFrame(texts(SURVEY), dtype=object)
    for table, objects in (typed, spelled):
        data = every_route[route](table, objects, tmp_path)
        assert outcome(data) == (EXPECTED, 5)
        assert dps.check(plan, every_route[route](table, objects, tmp_path)).rows == 5


def test_what_others_read_of_a_file_has_the_same_sums(tmp_path):
    for data in read_back(SURVEY, tmp_path):
        assert outcome(data) == (EXPECTED, 5)


def test_columns_without_a_single_cell_are_alike():
    schema = Schema([Category("x", ["a", "b"], allow_missing=True)])
    for cell, expected in (("a", [1, 0, 1]), (None, [0, 0, 2])):
        frame = pd.DataFrame({"x": [cell, None]}, dtype=object)
        routes = [frame, frame.fillna(np.nan), frame.infer_objects(), frame.convert_dtypes(),
                  frame.astype("category"), pl.DataFrame({"x": [cell, None]}),
                  pa.table({"x": [cell, None]})]  # fmt: skip
        if cell is None:
            routes += [frame.astype(float), frame.astype("datetime64[s]"), frame.astype("Int8")]
        for data in routes:
            (sums,), _ = exact_sums(open_source(data, schema), schema, [Cells.table(schema, ["x"])])
            assert sums.tolist() == expected


DAYS = ["2024-05-01", "2024-05-02"]
MISSING = {"allow_missing": True}
# A declaration, the cells of a data frame with their type, and the sums.
SAVED = {
    "a missing cell makes floats": (
        Category("x", ["0", "1"], **MISSING), [0, 1, 1, None], float, [1, 2, 1]),
    "levels with zeros before": (
        Category("x", ["01", "02"], **MISSING), [1, 2, 2, 3], int, [1, 2, 1]),
    "levels with a point": (
        Category("x", ["0.0", "1.0"], **MISSING), [0, 1, 1, 0], int, [2, 2, 0]),
    "bools": (Category("x", ["false", "true"], **MISSING), [False, True, True], bool, [1, 2, 0]),
    "bools as a file has them": (
        Category("x", ["False", "True"], **MISSING), [False, True, True], bool, [1, 2, 0]),
    "bools with a missing cell": (
        Category("x", ["FALSE", "TRUE"], **MISSING), [False, True, None], object, [1, 1, 1]),
    "bools are not 0 and 1": (
        Category("x", ["0", "1"], **MISSING), [False, True, True], bool, [0, 0, 3]),
    "float32 levels": (
        Category("x", [0.1, 0.2, 0.3, 0.7]), [0.1, 0.2, 0.3, 0.7], "float32", [1, 1, 1, 1]),
    "float32 text levels": (
        Category("x", ["0.1", "0.7"], **MISSING), [0.1, 0.7, None], "float32", [1, 1, 1]),
    "float32 at an edge": (Number("x", 0, 1, edges=[0.7]), [0.7, 0.6999999], "float32", [1, 1]),
    "float32 values": (Number("x", values=[0.1, 0.7, 0.8]), [0.1, 0.7], "float32", [1, 1, 0]),
    "times": (
        Category("x", DAYS, **MISSING),
        ["2024-05-01", "2024-05-02 08:30", "2024-05-03", None], "datetime64[ns]", [1, 1, 2]),
    "times in a zone": (
        Category("x", DAYS, **MISSING),
        ["2024-05-01 23:30+02:00", "2024-05-02 00:30+02:00"], "datetime64[ns, UTC+02:00]",
        [1, 1, 0]),
}  # fmt: skip


def test_a_frame_has_the_same_sums_as_the_files_it_writes(tmp_path):
    for case in SAVED:
        column, cells, dtype, expected = SAVED[case]
        series = pd.Series(cells, dtype=dtype if "datetime" not in str(dtype) else None)
        if "datetime" in str(dtype):
            series = pd.to_datetime(series, format="ISO8601").astype(dtype)
        frame = pd.DataFrame({"x": series})
        frame.to_csv(tmp_path / "rows.csv", index=False)
        frame.to_parquet(tmp_path / "rows.parquet")
        table = pa.table({"x": pa.array(series, from_pandas=True)})
        pl.from_arrow(table).write_csv(tmp_path / "polars.csv")
        scalars = series.to_numpy() if series.dtype == np.float32 else series
        objects = pd.DataFrame({"x": pd.Series(list(scalars), dtype=object)})
        routes = [frame, objects, frame.astype("category"), table, pl.from_arrow(table),
                  tmp_path / "rows.csv", tmp_path / "rows.parquet", tmp_path / "polars.csv",
                  pd.read_csv(tmp_path / "rows.csv")]  # fmt: skip
        schema = Schema([column])
        for data in routes:
            (sums,), _ = exact_sums(open_source(data, schema), schema, [Cells.table(schema, ["x"])])
            assert sums.tolist() == expected


# Files


def test_a_header_alone_is_a_table_without_rows(tmp_path):
    for end in ["", "\n", "\r\n", "\n\n"]:
        for suffix, opened in [(".csv", open), (".csv.gz", gzip.open)]:
            with opened(tmp_path / f"rows{suffix}", "wb") as file:
                file.write((",".join(SURVEY) + end).encode())
            found = outcome(tmp_path / f"rows{suffix}")
            assert found == ([[0] * len(block) for block in EXPECTED], 0)


def test_a_first_line_that_is_no_header_is_described_and_not_quoted(tmp_path):
    for first_line, found in [
        ("Ann Smith;44;yes", "has 3 fields, separated by semicolons"),
        ("Ann Smith,44", "has 2 fields, separated by commas"),
        ("word\tgrade\tAnn Smith", "has 3 fields, separated by tabs"),
        ("Ann Smith", "has 1 field"),
        ("", "has 0 fields"),
    ]:
        (tmp_path / "rows.csv").write_text(first_line + "\n1,2,3\n")
        said = outcome(tmp_path / "rows.csv")
        assert said.startswith(
            f"the first line of 'rows.csv' {found}; the plan needs a header with"
        )
        assert said.endswith("'dpstats check' shows the fields of a header")
        assert "Ann" not in said
        assert "44" not in said


def test_a_damaged_archive_is_refused_without_a_cell(tmp_path):
    path = tmp_path / "survey.csv.gz"
    path.write_bytes(gzip.compress(",".join(SURVEY).encode() + b"\nword,digit")[:-12])
    assert "opened" in outcome(path) or "reading the rows failed" in outcome(path)
    path.write_bytes(b"\x1f\x8bword,digit")
    said = "the table cannot be opened (OSError) and may be damaged or in use; nothing was"
    assert outcome(path) == f"{said} released or spent"
