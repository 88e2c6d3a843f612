"""Text files that are not UTF-8 with decimal points: read as declared, and never refused for it."""

import codecs
import csv
import encodings.aliases
import pkgutil
from contextlib import suppress

import pandas as pd
import pytest

import dpstats as dps
from dpstats.private import delimited
from dpstats.schema import TextFile
from dpstats.schema.text_files import _TWO_BYTES

COLUMNS = [
    dps.Number("pay", 0, 9, edges=[1.5, 5], allow_missing=True, missing_values=[7.5]),
    dps.Category("city", ["Z\u00fcrich", "Gen\u00e8ve"], other="Gen\u00e8ve", allow_missing=True),
    dps.Category("grade", [1, 1.5, 2], other=2, allow_missing=True),
    dps.Category("code", ["1,5", "1.5"], allow_missing=True),
    dps.Number("seen", "2024-01-01", "2024-12-31", edges=["2024-05-02"], allow_missing=True),
    dps.Number("gr\u00f6\u00dfe", 0, 300, edges=[150], allow_missing=True),
]
ROWS = [
    ["1.5", "Z\u00fcrich", "1.5", "1.5", "2024-05-01", "180.5"],
    ["7.5", "Gen\u00e8ve", "1.0", "1,5", "2024-05-02", "-3.25e1"],
    ["", "", "", "", "", ""],
    ["NaN", "Bern", "2", "1", "x", "2"],
    ["1,000.5", "Z\u00fcrich", "1.5.", "1.50", "2024.05.02", "1,5"],
    ["1", "Z\u00fcrich", "2", "1.5", "2024-01-01", "1"],
]


def write(path, encoding="utf-8", decimal=".", delimiter=";"):
    frame = pd.DataFrame(ROWS * 9, columns=[column.name for column in COLUMNS])
    if decimal == ",":
        for name in ("pay", "grade", "gr\u00f6\u00dfe"):
            frame[name] = frame[name].str.translate(str.maketrans(".,", ",."))
    frame.to_csv(path, sep=delimiter, encoding=encoding, index=False, quoting=csv.QUOTE_ALL)
    return path


def test_a_file_means_what_its_utf8_means(sums_of, tmp_path, monkeypatch):
    expected = sums_of(write(tmp_path / "plain.csv"), dps.Schema(COLUMNS))
    assert expected == ([[9, 9, 0, 36], [27, 18, 9], [9, 9, 27, 9], [9, 27, 18], [18, 9, 27],
                         [27, 9, 18]], 54)  # fmt: skip
    for name, file in (
        ("latin.csv", {"encoding": "latin-1"}),
        ("windows.csv.gz", {"encoding": "cp1252", "decimal": ","}),
        ("tabs.csv", {"encoding": "iso8859-15", "decimal": ",", "delimiter": "\t"}),
        ("bars.csv", {"encoding": "mac-roman", "delimiter": "|"}),
        ("commas.csv.gz", {"decimal": ",", "delimiter": ","}),
        ("mark.csv", {"encoding": "utf-8-sig", "delimiter": "^"}),
    ):
        odd = write(tmp_path / name, **file)
        for csv_block, block in ((2**20, 2**20), (700, 101)):  # these cut characters
            monkeypatch.setattr(delimited, "CSV_BLOCK", csv_block)
            monkeypatch.setattr(delimited, "_BLOCK", block)
            assert sums_of(odd, dps.Schema(COLUMNS, file=file)) == expected, name


def test_a_byte_that_is_lacking_is_undeclared_and_a_frame_is_no_file(sums_of, tmp_path):
    for encoding, bad in (("cp1252", b"\x81"), ("ascii", b"\xfc"), ("cp932", b"\x81")):
        schema = dps.Schema([dps.Category("c", ["a", "b"], other="b", allow_missing=True)],
                        file={"encoding": encoding})  # fmt: skip
        (tmp_path / "rows.csv").write_bytes(b"c\na\nx" + bad + b"\na\n")
        assert sums_of(tmp_path / "rows.csv", schema) == ([[2, 1, 0]], 3)
    schema = dps.Schema(COLUMNS[:1], file={"decimal": ",", "encoding": "latin-1"})
    assert sums_of(pd.DataFrame({"pay": ["1.5", "1,5"]}), schema) == ([[0, 1, 0, 1]], 2)


STRUCTURE = b'\t\n\r",;'


def unsafe(encoding, structure=STRUCTURE):
    """A start after which a byte that separates cells is not read so, "" if there is none.

    From every state of the decoder that some bytes lead to, as the reader decodes.
    """
    decoder = codecs.getincrementaldecoder(encoding)("replace")
    start = decoder.getstate()
    reached, waiting = {start: b""}, [start]
    while waiting:
        before = waiting.pop()
        for byte in range(256):
            decoder.setstate(before)
            text = decoder.decode(bytes([byte]))
            after, bytes_ = decoder.getstate(), reached[before] + bytes([byte])
            if byte in structure:
                whole = codecs.decode(bytes_ + b"0", encoding, "replace")
                if (text[-1:], after, whole[-2:]) != (chr(byte), start, chr(byte) + "0"):
                    return bytes_
            elif any(chr(mark) in text for mark in structure):
                return bytes_
            if after not in reached:
                reached[after] = bytes_
                waiting.append(after)
    return b""


def test_no_encoding_lets_a_cell_change_how_later_rows_are_read():
    """All text encodings of Python; UTF-8 is split at bytes and not decoded before that."""
    modules = {module.name for module in pkgutil.iter_modules(encodings.__path__)}
    allowed = set()
    for name in sorted(modules | set(encodings.aliases.aliases.values())):
        with suppress(dps.SchemaError):
            allowed.add(TextFile(name).encoding)
    assert {"utf-8", "iso8859-1", "cp1252", "mac-roman", *_TWO_BYTES} <= allowed
    one_byte = allowed - {"utf-8", "utf-8-sig"} - set(_TWO_BYTES)
    assert len(one_byte) > 50
    for name in one_byte:
        assert unsafe(name, bytes(range(128))) == b"", name
    for name in _TWO_BYTES:
        assert unsafe(name) == b"", name
    for name in ("gb18030", "euc_jp", "euc_kr", "iso2022_jp", "utf_16_le", "johab"):
        assert unsafe(name), name  # the search finds what is to be refused


def test_what_cannot_be_declared_of_a_file():
    for file in [
        *({"encoding": name} for name in ("utf-5", 1, "base64", "utf-16", "gb18030", "cp037")),
        {"encoding": "gbk", "delimiter": "|"},
        {"decimal": ";"}, {"delimiter": "||"}, {"delimiter": "a"}, {"delimiter": "\n"},
        {"delimiter": ["|"]}, {"delim": "|"}, "latin-1",
    ]:  # fmt: skip
        with pytest.raises(dps.SchemaError):
            dps.Schema(COLUMNS, file=file)


def test_every_schema_that_is_made_from_another_keeps_its_file():
    form = {"encoding": "cp1252", "decimal": ",", "delimiter": "|"}
    guesses = dps.Guesses(typical={"x": {"mean": 2, "sd": 1}})
    schema = dps.Schema([dps.Number("x", 0, 9, missing=0), dps.Boolean("y")], guesses, form)
    plan = dps.plan(schema, {"it": dps.Logistic("y ~ x")}, budget=dps.PureDP(1), n=900)
    assert plan.schema["x"].even_edges
    for made in (plan.schema, plan.schema.declared, plan.columns, schema.select(["x"]),
                 dps.Plan.from_dict(plan.to_dict()).schema):  # fmt: skip
        assert made.written.to_dict() == form
        assert made.guesses is not None
