"""Names of columns from the first line of a file: no row is read or taken for a header."""

import gzip
import re

import pandas as pd
import pytest

import dpstats as dps
from dpstats.private.header import read_header, read_names

NAMES = ["age", "sex", "blood pressure"]


def test_names_of_delimited_files(tmp_path):
    for name, delimiter in (("a.csv", ";"), ("a.tsv", "\t"), ("a.csv.gz", ","), ("A.CSV", "\t")):
        text = f"\ufeff{delimiter.join(NAMES)}\r\n{delimiter.join('1f2')}\r\n".encode()
        (tmp_path / name).write_bytes(gzip.compress(text) if name.endswith("gz") else text)
        assert read_header(tmp_path / name) == NAMES
    (tmp_path / "a.csv").write_text('"age, in years", sex \nx,y\n')
    assert read_header(tmp_path / "a.csv") == ["age, in years", "sex"]


def test_names_of_parquet_files(tmp_path):
    for year, names in ((2025, ["age", "sex"]), (2026, ["sex", "age", "new"])):
        place = tmp_path / f"year={year}"
        place.mkdir()
        pd.DataFrame({name: [1] for name in names}).to_parquet(place / "a.parquet")
    (place / "_SUCCESS").touch()
    for path in (tmp_path, tmp_path / "*" / "*.parquet"):
        assert read_header(path) == ["age", "sex", "year"]
    pd.DataFrame({"zz-sentinel": [1], "37": [2]}).to_parquet(place / "a.parquet")
    for path in (place, place / "a.parquet"):
        with pytest.raises(dps.DataError, match="names that its schema holds do not") as caught:
            read_header(path)
        assert not re.search("zz|37", str(caught.value))


FIELDS = [
    "", "x,x", "37,female", "1e5", "yes", "2024-05-01", "12:30", "$1,200", "NaN", "-inf", "NA",
    "1/2", "50 %", "a`b",
]  # fmt: skip
# A quote left open, and the next one, would make one name of rows.
ROWS = [",", '"zz-sentinel\nzz,x\nzz"', *(f"zz-sentinel,{fields}" for fields in FIELDS)]


def test_p72_a_row_is_refused_and_not_quoted(tmp_path, caplog, frames_of):
    """Nor is it in the frames of the traceback, or in a log."""
    caplog.set_level("DEBUG")
    for row in ROWS:
        (tmp_path / "a.csv").write_text(f"{row}\nb,c,d\n")
        with pytest.raises(dps.DataError, match="does not look like names of columns") as caught:
            read_header(tmp_path / "a.csv")
        said = str(caught.value).replace("such as yes", "")
        assert set(row.replace(",", " ").split()).isdisjoint(said.split()), row
        assert "zz-" not in said + repr(frames_of(caught)) + caplog.text
        assert caught.value.__cause__ is caught.value.__context__ is None


def test_files_that_hold_no_header_are_refused(tmp_path):
    for name, held, message in [
        ("a.csv", b"a,\x00b\n", "cannot be read"),
        ("a.csv.gz", b"\x1f\x8b", "cannot be read"),
        ("a.csv", "gr\u00f6\u00dfe\n".encode("latin-1"), "cannot be read.*--encoding"),
        ("a.parquet", b"PAR1xxxx", "'a.parquet' cannot be opened"),
        ("a.xlsx", b"PK", "not a .csv"),
        ("a.csv", b"x" * (2**20 + 5), "cannot be read"),
        ("a.csv", b"", "it is empty, or its first line is"),
    ]:
        (tmp_path / name).write_bytes(held)
        with pytest.raises(dps.DataError, match=message):
            read_header(tmp_path / name)


def test_names_that_a_person_gives():
    assert read_names("age, sex ,'x'") == ["age", "sex ", "'x'"]
    assert read_names('"a, b",c') == ["a, b", "c"]
    for text in ("", "a,a", "a,,b"):
        with pytest.raises(dps.SchemaError):
            read_names(text)
