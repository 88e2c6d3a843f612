"""Delimited text as record batches: no type is guessed, and no cell decides what another means.

The delimiter is declared, or follows from the first line and the declared names. Cells are bytes,
which `dpstats.schema.arrow` reads as the schema declares.
"""

from __future__ import annotations

import codecs
import csv
import io
import os
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from dpstats.errors import DataError
from dpstats.private.sources import Source, one_by_one
from dpstats.schema import RawColumns, TextFile
from dpstats.schema.text_files import CONVERT

CSV_BLOCK = 2**23
MAX_CSV_BLOCK = 2**31 - 1
_FIRST_LINE = 2**20  # characters in which the first line must end
_LARGEST_RATIO = 1032  # of the lengths of text and its deflated form
_DELIMITERS = {",": "commas", ";": "semicolons", "\t": "tabs"}
_QUOTE = ord('"')
_GZIP = b"\x1f\x8b"
_UTF8 = ("utf-8", "utf-8-sig")
_BLOCK = 2**20  # bytes that are decoded at a time
_EXCHANGED = bytes.maketrans(b".,", b",.")
_NOT_TEXT = {  # first bytes, what has them, and what to do
    _GZIP: ("a gzip file", "add .gz to its name, or decompress it"),
    b"PK\x03\x04": ("a zip file or an Excel workbook", "save its table as CSV"),
    b"PAR1": ("a Parquet file", "name it .parquet"),
    b"\xff\xfe": ("text in UTF-16", CONVERT),
    b"\xfe\xff": ("text in UTF-16", CONVERT),
    b"\0\0\xfe\xff": ("text in UTF-32", CONVERT.replace("16", "32")),
}
SUFFIXES = (".csv", ".tsv", ".csv.gz", ".tsv.gz")


def is_delimited(path: Path) -> bool:
    """True if `delimited` reads files of this name."""
    return path.name.lower().endswith(SUFFIXES)


def delimited(path: Path, raw: RawColumns) -> Source:
    """A CSV or TSV file, perhaps gzipped, whose first line holds names of columns.

    Cells are bytes. Where the decimal mark of the file is a comma, points and commas are exchanged
    in those that have it.
    """
    written = raw.written
    zipped = path.suffix.lower() == ".gz"
    header = _read_header(path, raw.with_keys, written)
    marked = raw.decimals if written.decimal == "," else ()
    size = path.stat().st_size
    position = [0]

    def batches(wanted: Sequence[str]) -> Iterator[pa.RecordBatch]:
        if header.alone:
            return
        longest = min(size * (_LARGEST_RATIO if zipped else 1), MAX_CSV_BLOCK)
        block, done = CSV_BLOCK, 0
        while True:
            try:
                for batch in read(wanted, block, done):
                    yield batch
                    done += batch.num_rows
                _check_quotes(path, header.delimiter, zipped, written)
                return
            except pa.ArrowInvalid:  # a row longer than a block, or a damaged file
                if block >= longest:
                    raise
            block = min(16 * block, MAX_CSV_BLOCK)

    def read(wanted: Sequence[str], block: int, skip: int) -> Iterator[pa.RecordBatch]:
        import pyarrow.csv as pacsv

        with pa.OSFile(os.fsencode(path)) as file:  # of any name
            reader = pacsv.open_csv(
                in_utf8(file, zipped, written),
                read_options=pacsv.ReadOptions(block_size=block, use_threads=False),
                parse_options=pacsv.ParseOptions(
                    delimiter=header.delimiter,
                    newlines_in_values=True,
                    ignore_empty_lines=len(header.fields) > 1,
                ),
                convert_options=pacsv.ConvertOptions(
                    include_columns=list(wanted),
                    column_types=dict.fromkeys(wanted, pa.large_binary()),
                    null_values=[""],
                    strings_can_be_null=True,
                ),
            )
            for whole in reader:
                position[0] = file.tell()
                batch = whole.slice(min(skip, whole.num_rows))
                skip -= whole.num_rows - batch.num_rows
                yield with_marks_exchanged(batch, marked) if marked else batch

    return Source(
        fields=header.fields,
        parts=lambda wanted: one_by_one(batches(wanted)),
        share_read=lambda: position[0] / max(size, 1),
        first_line=f"the first line of {path.name!r} {header.described}",
        decimal=written.decimal,
    )


def with_marks_exchanged(batch: pa.RecordBatch, names: Collection[str]) -> pa.RecordBatch:
    """Exchange commas and points in the texts of some columns."""
    columns = []
    for name, cells in zip(batch.schema.names, batch.columns, strict=True):
        if name in names and cells.type == pa.large_binary() and cells.buffers()[2] is not None:
            kept, starts, text = cells.buffers()
            buffers = [kept, starts, pa.py_buffer(text.to_pybytes().translate(_EXCHANGED))]
            cells = pa.Array.from_buffers(cells.type, len(cells), buffers, offset=cells.offset)
        columns.append(cells)
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


def in_utf8(raw: pa.NativeFile, zipped: bool, written: TextFile) -> pa.NativeFile:
    """Text of a file as bytes in UTF-8; bytes that its encoding does not have become U+FFFD.

    The decoder of Arrow ends at such a byte with an error, which would tell of a cell.
    """
    text = pa.CompressedInputStream(raw, "gzip") if zipped else raw
    if written.encoding in _UTF8:
        return text
    decoder = codecs.getincrementaldecoder(written.encoding)(errors="replace")

    def recoded(block: pa.Buffer) -> bytes:
        return decoder.decode(block, final=not len(block)).encode("utf-8", "replace")

    return pa.TransformInputStream(text, recoded)


def _check_kind(path: Path, zipped: bool) -> None:
    """Refuse a file whose first bytes are those of something else than delimited text."""
    with pa.OSFile(os.fsencode(path)) as raw:
        start = raw.read(4)
        if zipped and start and not start.startswith(_GZIP):
            raise DataError(f"{path.name!r} is not a gzip file; take .gz off its name")
        if zipped and start:
            raw.seek(0)
            start = pa.CompressedInputStream(raw, "gzip").read(4)
    for first, (kind, remedy) in _NOT_TEXT.items():
        if start.startswith(first):
            within = "holds" if zipped else "seems to be"
            raise DataError(f"{path.name!r} {within} {kind}, not delimited text; {remedy}")


def _check_quotes(path: Path, delimiter: str, zipped: bool, written: TextFile) -> None:
    """Refuse a file in which a quoted cell does not end where a cell ends, or not at all.

    Its quote was never closed: the lines up to the next quote, or the last, would be its text.
    """
    ends, inside, waiting = f"{delimiter}\r\n".encode(), False, b"\n"
    with pa.OSFile(os.fsencode(path)) as raw:
        stream = in_utf8(raw, zipped, written)
        if (start := stream.read(len(codecs.BOM_UTF8))) != codecs.BOM_UTF8:
            waiting += start
        while True:
            block = stream.read(_BLOCK)
            text = waiting + (block or b"\n")
            kept = text.rstrip(b'"') if block else text  # what follows decides what quotes mean
            if (after := _inside(kept, ends, inside)) is None or (after and not block):
                raise pa.ArrowInvalid("CSV parse error: Expected 1 columns, got 0")  # see `unread`
            if not block:
                return
            inside, waiting = after, text[len(kept) - 1 :]


def _inside(text: bytes, ends: bytes, inside: bool) -> bool | None:
    """True if a text ends within quotes; None if a quote is where none can be.

    Its first byte was seen before, and its last one is no quote.
    """
    if text.find(b'"', 1) < 0:
        return inside
    characters = np.frombuffer(text, np.uint8)
    places = np.flatnonzero(characters[1:] == _QUOTE) + 1
    marks = np.isin(np.arange(256), [*ends, _QUOTE])
    opening, closing = places[int(inside) :: 2], places[1 - int(inside) :: 2]
    if marks[characters[opening - 1]].all() and marks[characters[closing + 1]].all():
        return inside ^ bool(len(places) % 2)
    doubled = -1
    for place in places.tolist():  # some quotes are within a cell that has none around it
        if place == doubled:
            continue
        if not inside:
            inside = text[place - 1] in ends
        elif text[place + 1] == _QUOTE:
            doubled = place + 1
        elif text[place + 1] in ends:
            inside = False
        else:
            return None
    return inside


@dataclass(frozen=True)
class _Header:
    delimiter: str
    fields: list[str]
    alone: bool  # nothing follows it

    @property
    def described(self) -> str:
        """Description of a first line that repeats no field, as it may be a person's data."""
        if len(self.fields) < 2:
            return f"has {len(self.fields)} fields" if not self.fields else "has 1 field"
        mark = _DELIMITERS.get(self.delimiter, repr(self.delimiter))
        return f"has {len(self.fields)} fields, separated by {mark}"


def first_line(path: Path, written: TextFile) -> list[str]:
    """Fields of the first line; U+FFFD stands for what the encoding does not have."""
    return _read_header(path, (), written).fields


def _read_header(path: Path, names: Sequence[str], written: TextFile) -> _Header:
    """The first line, split by the delimiter that gives most of the names, then most fields."""
    zipped = path.suffix.lower() == ".gz"
    _check_kind(path, zipped)
    with pa.OSFile(os.fsencode(path)) as raw:
        stream = in_utf8(raw, zipped, written)
        text = io.TextIOWrapper(stream, encoding="utf-8-sig", errors="replace", newline="")
        start = text.read(_FIRST_LINE)
    if written.delimiter is not None:
        return _split(start, written.delimiter)
    first = "\t" if ".tsv" in path.suffixes else ","

    def fit(header: _Header) -> tuple[int, int, bool]:
        return (len(set(names) & set(header.fields)), len(header.fields), header.delimiter == first)

    return max((_split(start, delimiter) for delimiter in _DELIMITERS), key=fit)


def _split(start: str, delimiter: str) -> _Header:
    lines = io.StringIO(start, newline="")
    fields = next(csv.reader(lines, delimiter=delimiter), [])
    return _Header(delimiter, fields, alone=not lines.read(1))
