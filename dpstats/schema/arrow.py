"""Arrow arrays to numpy, by total functions: every cell maps to a code, a number or NaN.

A column of any type is read. Which type a table gives a column can depend on a single cell, such as
the one text among numbers, so that refusing a type would disclose that cell. A number, a bool or a
date is one value with the text that spells it, as in a CSV file, which has no types.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dpstats.schema.dates import day_of

if TYPE_CHECKING:
    import pandas as pd

_NUMBER = r"(?i)^\s*([+-]?((\d+\.?\d*|\.\d+)(e[+-]?\d+)?|inf(inity)?)|true|false)\s*$"
_NAN = r"(?i)^\s*nan\s*$"
_TRUTH = r"(?i)^\s*(true|false)\s*$"
_DATE = r"^\s*\d{4}-\d{2}-\d{2}([T ]\d[ -~]*)?\s*$"  # ASCII: text that is no UTF-8 must not fail
_TEXT = frozenset(
    kind.id for kind in (pa.string(), pa.large_string(), pa.string_view(), pa.binary(),
                         pa.large_binary(), pa.binary_view())
)  # fmt: skip
_NUMBER_STARTS = np.isin(np.arange(256), np.frombuffer(b"0123456789.-", np.uint8))
_PER_DAY = {"s": 86_400, "ms": 86_400_000, "us": 86_400 * 10**6, "ns": 86_400 * 10**9}


def holds_text(arrow_type: pa.DataType) -> bool:
    """True for an Arrow type of text, or of bytes, in which files may store text."""
    return arrow_type.id in _TEXT


def holds_dates(arrow_type: pa.DataType) -> bool:
    """True for an Arrow type of dates or of points in time."""
    return any(test(arrow_type) for test in (pa.types.is_date, pa.types.is_timestamp))


def public_table(frame: pd.DataFrame) -> pa.Table:
    """A public data frame; categories of text and other values, such as "(missing)", as text."""
    mixed = {
        str(name): column.cat.rename_categories(str)
        for name, column in frame.select_dtypes("category").items()
        if any(isinstance(category, str) for category in column.cat.categories)
    }
    return pa.Table.from_pandas(frame.assign(**mixed), preserve_index=False)


def plain(values: pa.Array) -> pa.Array:
    """Cells without a dictionary; text as bytes, where an empty one is missing as in a file."""
    values = unwrapped(values)
    if pa.types.is_dictionary(values.type):  # Arrow cannot decode every kind of text
        return plain(values.dictionary).take(values.indices)
    if not holds_text(values.type):
        return values
    values = values.cast(pa.large_binary())
    empty = pc.equal(values, _EMPTY[0])
    return _without(values, empty) if pc.any(empty).as_py() else values


def unwrapped(values: pa.Array) -> pa.Array:
    """Cells in a form of which Arrow can choose some.

    An extension is its storage, which is what a process without the extension reads; a bool of 8
    bits is a bool, and JSON is the text, number or truth value that it spells. Runs are written
    out. Cells of a union, of which each has a type of its own, are texts as in a file.
    """
    kind, types = values.type, pa.types
    if isinstance(kind, pa.BaseExtensionType):
        storage = unwrapped(values.storage)
        read = _OF_EXTENSION.get(kind.extension_name)
        return storage if read is None else read(storage)
    if types.is_run_end_encoded(kind):
        ends = np.from_dlpack(values.run_ends)
        rows = np.arange(values.offset, values.offset + len(values))
        return unwrapped(values.values).take(_cells(np.searchsorted(ends, rows, side="right")))
    if types.is_union(kind):
        return _of_union(values)
    if types.is_string_view(kind):
        return values.cast(pa.large_string())
    if types.is_binary_view(kind) or types.is_fixed_size_binary(kind):
        return values.cast(pa.large_binary())
    return values


def _of_union(values: pa.UnionArray) -> pa.Array:
    """Cells of a union as texts."""
    kind = values.type
    parts = [_as_text(plain(values.field(i))) for i in range(kind.num_fields)]
    starts = np.cumsum([0, *map(len, parts)])
    part_of = np.zeros(128, np.int64)
    part_of[kind.type_codes] = np.arange(kind.num_fields)
    rows = slice(values.offset, values.offset + len(values))  # type_codes and offsets ignore it
    _, codes, *rest = values.buffers()
    dense = kind.mode == "dense"
    at = np.frombuffer(rest[0], np.int32)[rows] if dense else np.arange(len(values))
    places = starts[part_of[np.frombuffer(codes, np.int8)[rows]]] + at
    return pa.concat_arrays([*parts, pa.nulls(0, pa.large_binary())]).take(_cells(places))


def _as_text(values: pa.Array) -> pa.Array:
    """Plain cells as texts that spell them; of lists and the like, a text that is no level."""
    missing = _cells(_absent(values, numbers=False))
    try:
        texts = values.cast(pa.large_string())
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid):  # of bytes, which may be no UTF-8
        texts = values if holds_text(values.type) else pa.repeat(_NO_TEXT[0], len(values))
    return _without(texts.cast(pa.large_binary()), missing)


def _of_json(texts: pa.Array) -> pa.Array:
    """JSON, of which each text is read once."""
    encoded = plain(texts).dictionary_encode()
    cells = [_json_cell(text) for text in encoded.dictionary.to_pylist()]
    return pa.array(cells, pa.large_binary()).take(encoded.indices)


def _json_cell(text: bytes | None) -> bytes | None:
    """A text without its quotes, null as missing, and all else as it is written."""
    if text is None or text.strip() == b"null":
        return None
    if not text.lstrip().startswith(b'"'):
        return text
    try:
        return str(json.loads(text)).encode("utf-8", "surrogatepass")
    except (ValueError, RecursionError):
        return text


_OF_EXTENSION: dict[str, Callable[[pa.Array], pa.Array]] = {
    "arrow.bool8": lambda bits: bits.cast(pa.bool_()),
    "arrow.json": _of_json,
}


# pa.array, pa.scalar and to_numpy import pandas, which takes longer than a small table; these do
# not.


def _cells(values: NDArray[Any]) -> pa.Array:
    """Floats or integers of 64 bits, or bools, as an Arrow array without a null."""
    if values.dtype == np.bool_:
        bits = np.packbits(values, bitorder="little")
        return pa.Array.from_buffers(pa.bool_(), len(values), [None, pa.py_buffer(bits)])
    kind = pa.float64() if values.dtype == np.float64 else pa.int64()
    contiguous = np.ascontiguousarray(values)
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(contiguous)])


def _texts(texts: Sequence[bytes], kind: pa.DataType) -> pa.Array:
    """Texts as an Arrow array without a null."""
    starts = np.cumsum([0, *map(len, texts)], dtype=np.int64)
    buffers = [None, pa.py_buffer(starts), pa.py_buffer(b"".join(texts))]
    array = pa.Array.from_buffers(pa.large_binary(), len(texts), buffers)
    return array if array.type == kind else array.cast(kind)


def _without(values: pa.Array, dropped: pa.Array) -> pa.Array:
    """Cells with null where marked, or where the mark is null."""
    return pc.if_else(dropped, pa.nulls(1, values.type)[0], values)


def _filled(values: pa.Array, value: pa.Array) -> pa.Array:
    """Cells with the only value of an array for null; the same array if there is none."""
    return values.fill_null(value.cast(values.type)[0]) if values.null_count else values


def _numpy(values: pa.Array, dtype: type[np.generic]) -> NDArray[Any]:
    """Numbers or bools without a null as numpy has them; they may be the cells themselves."""
    if pa.types.is_boolean(values.type):
        values = values.cast(pa.uint8())
    array = np.from_dlpack(values)
    array.flags.writeable = False
    return np.asarray(array, dtype=dtype)


_NAN_CELL, _ZERO_CELL, _NOWHERE = (_cells(np.array([value])) for value in (np.nan, 0, -1))
_EMPTY, _NO_TEXT = (_texts([text], pa.large_binary()) for text in (b"", b"\xff"))


@lru_cache(maxsize=256)
def _declared(stored: tuple[str, ...], kind: pa.DataType) -> pa.Array:
    """Declared levels as bytes: broken text is undeclared."""
    return _texts([level.encode() for level in stored], kind)


def floats(values: pa.Array) -> NDArray[np.float64]:
    """Numbers (n,) float64 of an Arrow array; NaN for every other cell."""
    return _floats(plain(values))


def _floats(values: pa.Array) -> NDArray[np.float64]:
    types, kind = pa.types, values.type
    if holds_text(kind):
        return numbers_from_text(values)
    if types.is_boolean(kind):
        values = values.cast(pa.int8())
    elif types.is_float16(kind) or types.is_float32(kind):
        return _shortest_decimals(values)
    elif types.is_decimal(kind):  # by way of text, which is read correctly rounded
        values = values.cast(pa.large_string())
    elif not (types.is_integer(kind) or types.is_floating(kind)):
        return np.full(len(values), np.nan)
    return _numpy(_filled(values.cast(pa.float64(), safe=False), _NAN_CELL), np.float64)


def _shortest_decimals(values: pa.Array) -> NDArray[np.float64]:
    """Short floats as the shortest decimals that they are read from, which a file would hold."""
    # Each is read once; as floats, since Arrow 25 has no dictionary of halves.
    encoded = _filled(values, _NAN_CELL).cast(pa.float32()).dictionary_encode()
    distinct = encoded.dictionary
    if pa.types.is_float16(values.type):  # which Arrow writes with more digits
        halves = np.from_dlpack(distinct).astype(np.float16)
        texts = pa.array(halves.astype(str), pa.large_string())
    else:
        texts = distinct.cast(pa.large_string())
    return _numpy(texts.cast(pa.float64()).take(encoded.indices), np.float64)


def numbers_from_text(texts: pa.Array) -> NDArray[np.float64]:
    """Numbers (n,) that texts, as `plain` gives them, spell; NaN for other cells.

    Correctly rounded; true is 1 and false 0. Most texts start with a digit and are read at once;
    the rules for the others, which take ten times as long, are `_numbers_by_pattern`.
    """
    likely = _starts_as_number(texts)
    try:
        numbers = _parsed(texts if likely.all() else _without(texts, _cells(~likely)))
    except pa.ArrowInvalid:  # a text only starts as a number does
        numbers = None
    if numbers is None:
        return _numbers_by_pattern(texts)
    if not likely.all():
        numbers = numbers.copy()
        numbers[~likely] = _numbers_by_pattern(texts.filter(_cells(~likely)))
    return numbers


def _parsed(texts: pa.Array) -> NDArray[np.float64]:
    """Numbers (n,) of bytes that spell one; NaN for null.

    What is no UTF-8 spells none: to check for it first takes a sixth of the time.
    """
    parts = texts.buffers(), texts.null_count, texts.offset
    numbers = pa.Array.from_buffers(pa.large_string(), len(texts), *parts).cast(pa.float64())
    return _numpy(_filled(numbers, _NAN_CELL), np.float64)


def _starts_as_number(texts: pa.Array) -> NDArray[np.bool_]:
    """(n,) True for texts that start with a digit, a point or a minus, and for null."""
    _, starts, characters = texts.buffers()
    if characters is None or not characters.size:  # all are null
        return np.ones(len(texts), dtype=np.bool_)
    first = np.frombuffer(starts, np.int64)[texts.offset : texts.offset + len(texts)]
    read = np.frombuffer(characters, np.uint8)
    likely = _NUMBER_STARTS[read.take(first, mode="clip")]
    return likely | _numpy(texts.is_null(), np.bool_) if texts.null_count else likely


def _numbers_by_pattern(texts: pa.Array) -> NDArray[np.float64]:
    kept = _matching(texts, _NUMBER)
    plain = pc.ascii_lower(pc.ascii_ltrim(pc.ascii_trim_whitespace(kept), "+"))
    for word, digit in ((b"true", b"1"), (b"false", b"0")):
        spelling, digits = _texts([word, digit], plain.type)
        plain = pc.if_else(pc.equal(plain, spelling), digits, plain)
    return _numpy(_filled(plain.cast(pa.float64()), _NAN_CELL), np.float64)


def days(values: pa.Array) -> NDArray[np.float64]:
    """Days since 1970-01-01 (n,) of dates, times and text as 2024-05-01; NaN for other cells.

    A time counts as its day: in its own time zone, or as it is written.
    """
    return _days(plain(values))


def _days(values: pa.Array) -> NDArray[np.float64]:
    if holds_text(values.type):
        return _days_from_text(values)
    if not holds_dates(values.type):
        return np.full(len(values), np.nan)
    if pa.types.is_date32(values.type):
        units, per_day = values.cast(pa.int32()), 1
    elif pa.types.is_date64(values.type):
        units, per_day = values.cast(pa.int64()), _PER_DAY["ms"]
    else:
        local = values if values.type.tz is None else pc.local_timestamp(values)
        units, per_day = local.cast(pa.int64()), _PER_DAY[values.type.unit]
    days_since = _numpy(_filled(units, _ZERO_CELL), np.int64) // per_day
    return np.where(_numpy(values.is_null(), np.bool_), np.nan, days_since)


def _days_from_text(texts: pa.Array) -> NDArray[np.float64]:
    never = _texts([b"0000-00-00"], pa.large_string())
    kept = pc.ascii_ltrim_whitespace(_filled(_matching(texts, _DATE), never))
    year, month, day = (
        _numpy(pc.utf8_slice_codeunits(kept, start, stop).cast(pa.int32()), np.int64)
        for start, stop in ((0, 4), (5, 7), (8, 10))
    )
    months = 12 * (year - 1970) + month - 1
    first, following = (
        (months + later).astype("datetime64[M]").astype("datetime64[D]").astype(np.int64)
        for later in (0, 1)
    )
    exists = (month >= 1) & (month <= 12) & (day >= 1) & (day <= following - first)
    return np.where(exists, first + day - 1, np.nan)


def differences(first: pa.Array, second: pa.Array) -> pa.Array:
    """First minus second cell of each row, float64: days of two dates, or units of two numbers.

    NaN where the cells are neither, or one is not finite; a difference of two finite numbers may be
    infinite. No cell is both a number and a date, so that no row depends on another.
    """
    cells = plain(first), plain(second)
    of_text = all(holds_text(values.type) for values in cells)
    at_once, rest = (_days, _floats) if of_text else (_floats, _days)  # texts are likely dates
    found = _finite_difference(*map(at_once, cells))
    left = np.flatnonzero(np.isnan(found))
    if len(left) and all(holds_text(v.type) or holds_dates(v.type) for v in cells):
        rows = _cells(left)
        found[left] = _finite_difference(*(rest(values.take(rows)) for values in cells))
    return _cells(found)


@np.errstate(over="ignore", invalid="ignore")
def _finite_difference(
    first: NDArray[np.float64], second: NDArray[np.float64]
) -> NDArray[np.float64]:
    finite = np.isfinite(first) & np.isfinite(second)
    return np.where(finite, first - second, np.nan)


def _matching(texts: pa.Array, pattern: str) -> pa.Array:
    """Cells that match a pattern of ASCII characters, as text; null for the others."""
    fails = pc.invert(pc.match_substring_regex(texts, pattern))
    return _without(texts, fails).cast(pa.large_string())


def absent(values: pa.Array, *, numbers: bool) -> NDArray[np.bool_]:
    """Which cells (n,) are missing: null, NaN, empty; among `numbers` also the text nan."""
    return _absent(plain(values), numbers=numbers)


def _absent(values: pa.Array, *, numbers: bool) -> NDArray[np.bool_]:
    if numbers and holds_text(values.type):
        matches = pc.match_substring_regex(values, _NAN)
        return _numpy(_filled(matches, _cells(np.array([True]))), np.bool_)
    if pa.types.is_floating(values.type):
        return _numpy(pc.is_null(values, nan_is_null=True), np.bool_)
    if not values.null_count:
        return np.zeros(len(values), np.bool_)
    return _numpy(values.is_null(), np.bool_)


def level_codes(
    values: pa.Array,
    stored: Sequence[Any],
    missing: int,
    other: int,
    missing_values: Sequence[Any] = (),
) -> NDArray[np.int64]:
    """Index (n,) of each cell among the stored values; codes `missing` and `other` elsewhere.

    Numbers match by value, text exactly. Text that is no declared level matches the one that spells
    the same number, truth value or day, and so does a number, a bool or a date; of several such
    levels, the one in the shortest form or none. Missing values match as levels do.
    """
    if pa.types.is_dictionary(values.type):  # code the dictionary once, then look up
        coded = level_codes(values.dictionary, stored, missing, other, missing_values)
        return _looked_up(np.append(coded, missing), values.indices)
    values = plain(values)
    index = _index_of_level(values, (*stored, *missing_values))
    codes = np.where(index >= 0, index, other)
    codes[index >= len(stored)] = missing
    codes[_absent(values, numbers=not isinstance(stored[0], str))] = missing
    return codes


def _looked_up(codes: NDArray[np.int64], indices: pa.Array) -> NDArray[np.int64]:
    """The code (n,) at each index; the last one for null."""
    last = _cells(np.array([len(codes) - 1]))
    at = _numpy(_filled(indices.cast(pa.int64(), safe=False), last), np.int64)
    return codes.take(at, mode="clip")  # Arrow need not have checked an index


def _index_of_level(values: pa.Array, stored: Sequence[Any]) -> NDArray[np.int64]:
    """Index of each cell (n,) among the stored values; -1 where it is none of them."""
    if not isinstance(stored[0], str):
        return _index_in(_floats(values), [float(level) for level in stored])
    if holds_text(values.type):
        return _index_of_text(values, stored)
    numbers, truths, dates = _meanings(stored)
    if holds_dates(values.type):
        return _index_in(_days(values), dates)
    return _index_in(_floats(values), truths if pa.types.is_boolean(values.type) else numbers)


def _index_of_text(texts: pa.Array, stored: Sequence[str]) -> NDArray[np.int64]:
    """Index of each text (n,) among levels: the same text, else the one of the same meaning."""
    index = _index(texts, _declared(tuple(stored), texts.type))
    unknown = index < 0
    if not unknown.any():
        return index
    readers = (_numbers, _truths, _days_from_text)
    meanings = [
        (read, levels)
        for read, levels in zip(readers, _meanings(stored), strict=True)
        if not np.isnan(levels).all()
    ]
    unknown &= _numpy(texts.is_valid(), np.bool_)
    if meanings and unknown.any():
        rest = texts.filter(_cells(unknown)).dictionary_encode()  # each text is read once
        meant = np.full(len(rest.dictionary), -1)
        for read, levels in meanings:  # a text is at most one of the three
            meant = np.maximum(meant, _index_in(read(rest.dictionary), levels))
        index[unknown] = meant[_numpy(rest.indices, np.int64)]
    return index


def _index_in(cells: NDArray[np.float64], levels: Sequence[float]) -> NDArray[np.int64]:
    """Index of each cell (n,) among the levels; -1 where it is none of them, or NaN."""
    # Adding zero turns -0.0 into 0.0: index_in distinguishes the two.
    index = _index(_cells(cells + 0.0), _cells(np.asarray(levels, np.float64) + 0.0))
    index[np.isnan(cells)] = -1
    return index


def _index(cells: pa.Array, declared: pa.Array) -> NDArray[np.int64]:
    """Index of each cell (n,) among an array; -1 where it is none of them."""
    index = pc.index_in(cells, value_set=declared)
    return _numpy(_filled(index, _NOWHERE), np.int64)


def _numbers(texts: pa.Array) -> NDArray[np.float64]:
    """Numbers that texts spell; NaN for the others, and for truth values."""
    return np.where(np.isnan(_truths(texts)), numbers_from_text(texts), np.nan)


def _truths(texts: pa.Array) -> NDArray[np.float64]:
    """1 for true and 0 for false, in any case; NaN for other texts."""
    return _numbers_by_pattern(_matching(texts, _TRUTH))


def _meanings(levels: Sequence[str]) -> tuple[list[float], list[float], list[float]]:
    """The numbers, truth values and days that levels spell; NaN where they spell none.

    Where several spell one value, as 1 and 01, it is the one in its shortest form, or none.
    """
    texts = _texts([level.encode() for level in levels], pa.large_binary())
    numbers = [
        # Beyond 2**53 a float is several whole numbers.
        number if abs(number) < 2**53 or spelled(number) == level else np.nan
        for level, number in zip(levels, _numbers(texts).tolist(), strict=True)
    ]
    shortest = [number == number and spelled(number) == level
                for level, number in zip(levels, numbers, strict=True)]  # fmt: skip
    truths = _truths(texts).tolist()
    return (
        _of_one_level(numbers, shortest),
        _of_one_level(truths, [level in ("true", "false") for level in levels]),
        [np.nan if (day := day_of(level)) is None else float(day) for level in levels],
    )


def _of_one_level(values: list[float], shortest: list[bool]) -> list[float]:
    """Values of levels; NaN for those that share theirs and are not in its shortest form."""
    count = Counter(values)
    return [
        value if short or count[value] == 1 else np.nan
        for value, short in zip(values, shortest, strict=True)
    ]


def spelled(number: float) -> str:
    """The shortest text of a number; whole ones without a decimal point."""
    whole = abs(number) < 2**53 and number == int(number)
    return str(int(number)) if whole else repr(float(number))
