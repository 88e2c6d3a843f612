"""Delimited text as record batches: no type is guessed, and no cell decides what another means.

The delimiter follows from the first line and the declared names. Cells are bytes, which
`dpstats.schema.arrow` reads as the schema declares. Declared numbers may be parsed with the lines,
in a third of the time, as long as all are spelled plainly.
"""

from __future__ import annotations

import csv
import gzip
import io
import os
import sys
from collections import deque
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from dpstats.errors import DataError
from dpstats.private.sources import Source, one_by_one

CSV_BLOCK = 2**23
MAX_CSV_BLOCK = 2**31 - 1
_FIRST_LINE = 2**20  # characters in which the first line must end
_LARGEST_RATIO = 1032  # of the lengths of text and its deflated form
_DELIMITERS = {",": "commas", ";": "semicolons", "\t": "tabs"}
# Texts that spell no number, as usual as empty cells: a number's cell is missing without one.
_NO_NUMBER = ["", "NA", "NaN", "nan", "NULL", "null"]
_GZIP = b"\x1f\x8b"
_NOT_TEXT = {  # first bytes, what has them, and what to do
    _GZIP: ("a gzip file", "add .gz to its name, or decompress it"),
    b"PK\x03\x04": ("a zip file or an Excel workbook", "save its table as CSV"),
    b"PAR1": ("a Parquet file", "name it .parquet"),
    b"\xff\xfe": ("text in UTF-16", "save it as UTF-8"),
    b"\xfe\xff": ("text in UTF-16", "save it as UTF-8"),
    b"\0\0\xfe\xff": ("text in UTF-32", "save it as UTF-8"),
}
SUFFIXES = (".csv", ".tsv", ".csv.gz", ".tsv.gz")


def is_delimited(path: Path) -> bool:
    """Whether a name is that of a file that `delimited` reads."""
    return path.name.lower().endswith(SUFFIXES)


def delimited(path: Path, names: Sequence[str], numbers: Collection[str] = ()) -> Source:
    """A CSV or TSV file, perhaps gzipped, whose first line holds some columns of given names.

    Cells of the columns in `numbers` are float64, null where they spell no number, up to the first
    block in which a cell does not convert; from there on, and in other columns, they are bytes.
    """
    zipped = path.suffix.lower() == ".gz"
    _check_kind(path, zipped)
    header = _read_header(path, names, zipped)
    size = path.stat().st_size
    position = [0]

    def batches(wanted: Sequence[str]) -> Iterator[pa.RecordBatch]:
        if header.alone:
            return
        longest = min(size * (_LARGEST_RATIO if zipped else 1), MAX_CSV_BLOCK)
        block, done, parsed = CSV_BLOCK, 0, bool(set(wanted) & set(numbers))
        while True:
            try:
                for batch in read(wanted, block, done, parsed):
                    yield batch
                    done += batch.num_rows
                _check_quotes(path, header.delimiter, done, zipped=zipped)
                return
            except pa.ArrowInvalid:  # a row longer than a block, or a damaged file
                if not parsed and block >= longest:
                    raise
            if parsed:  # or a cell that is no plain number
                parsed = False
            else:
                block = min(16 * block, MAX_CSV_BLOCK)

    def read(
        wanted: Sequence[str], block: int, skip: int, parsed: bool
    ) -> Iterator[pa.RecordBatch]:
        import pyarrow.csv as pacsv

        with pa.OSFile(os.fsencode(path)) as raw:  # of any name
            reader = pacsv.open_csv(
                pa.CompressedInputStream(raw, "gzip") if zipped else raw,
                read_options=pacsv.ReadOptions(block_size=block, use_threads=False),
                parse_options=pacsv.ParseOptions(
                    delimiter=header.delimiter,
                    newlines_in_values=True,
                    ignore_empty_lines=len(header.fields) > 1,
                ),
                convert_options=pacsv.ConvertOptions(
                    include_columns=list(wanted),
                    column_types={
                        name: pa.float64() if parsed and name in numbers else pa.large_binary()
                        for name in wanted
                    },
                    null_values=_NO_NUMBER if parsed else [""],
                    strings_can_be_null=not parsed,
                ),
            )
            for whole in reader:
                position[0] = raw.tell()
                batch = whole.slice(min(skip, whole.num_rows))
                skip -= whole.num_rows - batch.num_rows
                yield batch

    return Source(
        fields=header.fields,
        parts=lambda wanted: one_by_one(batches(wanted)),
        share_read=lambda: position[0] / max(size, 1),
        first_line=f"the first line of {path.name!r} {header.described}",
    )


def _check_kind(path: Path, zipped: bool) -> None:
    """Refuse a file whose first bytes are those of something else than delimited text."""
    with path.open("rb") as raw:
        start = raw.read(4)
    if zipped and start and not start.startswith(_GZIP):
        raise DataError(f"{path.name!r} is not a gzip file; take .gz off its name")
    if zipped and start:
        with gzip.open(path, "rb") as text:
            start = text.read(4)
    for first, (kind, remedy) in _NOT_TEXT.items():
        if start.startswith(first):
            within = "holds" if zipped else "seems to be"
            raise DataError(f"{path.name!r} {within} {kind}, not delimited text; {remedy}")


def _check_quotes(path: Path, delimiter: str, rows: int, *, zipped: bool) -> None:
    """Refuse a file whose last cell opens a quote and swallows the lines up to the end.

    Only where there are more lines than rows: blank ones, or line breaks within cells.
    """
    read = gzip.open if zipped else open
    with read(path, "rb") as raw:
        lines, end = 0, b""
        while block := raw.read(_FIRST_LINE):
            lines += block.count(b"\n")
            end = block.rstrip(b"\r\n")[-1:] or end
    if lines <= rows + 1 or end == b'"':
        return
    usual = csv.field_size_limit(sys.maxsize)  # of the process
    try:
        with read(path, "rt", encoding="utf-8-sig", errors="replace", newline="") as text:
            last = deque(csv.reader(text, delimiter=delimiter), maxlen=1)
    finally:
        csv.field_size_limit(usual)
    if last and last[0] and "\n" in last[0][-1]:
        raise pa.ArrowInvalid("CSV parse error: Expected 1 columns, got 0")  # see `sources.unread`


@dataclass(frozen=True)
class _Header:
    delimiter: str
    fields: list[str]
    alone: bool  # nothing follows it

    @property
    def described(self) -> str:
        """What may be said of a first line that could be a person's data."""
        if len(self.fields) < 2:
            return f"has {len(self.fields)} fields" if not self.fields else "has 1 field"
        return f"has {len(self.fields)} fields, separated by {_DELIMITERS[self.delimiter]}"


def _read_header(path: Path, names: Sequence[str], zipped: bool) -> _Header:
    """The first line, split by the delimiter that gives most of the names, then most fields."""
    read = gzip.open if zipped else open
    with read(path, "rt", encoding="utf-8-sig", errors="replace", newline="") as text:
        start = text.read(_FIRST_LINE)
    first = "\t" if ".tsv" in path.suffixes else ","

    def fit(header: _Header) -> tuple[int, int, bool]:
        return (len(set(names) & set(header.fields)), len(header.fields), header.delimiter == first)

    return max((_split(start, delimiter) for delimiter in _DELIMITERS), key=fit)


def _split(start: str, delimiter: str) -> _Header:
    lines = io.StringIO(start, newline="")
    fields = next(csv.reader(lines, delimiter=delimiter), [])
    return _Header(delimiter, fields, alone=not lines.read(1))
