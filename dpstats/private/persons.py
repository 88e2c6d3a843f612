"""At most k rows of one person: the first in the table's order, by a column of keys.

Which rows of a person are used follows from that person's rows alone, so what one person adds,
removes or changes never decides which rows of others are used. A random choice from a stream that
persons share would. A row without a key is not used: it could be anyone's, and to count it would
give a person more rows than k. Keys reach no output, message or file.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import date
from decimal import Decimal
from fractions import Fraction
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dpstats.arrays import Codes
from dpstats.private.sources import Part, Source, one_by_one
from dpstats.schema.arrow import holds_text, plain

_INTEGERS = {32: pa.int32(), 64: pa.int64()}  # by bits
_BYTES = pa.large_binary()
_MOST_DIGITS = 400  # of a number that is a key


def of_persons(source: Source, person: str, most: int) -> Source:
    """The same table with the first `most` rows of each person.

    It is read in its order, whatever the number of threads. In memory is a number for each key.

    Parameters
    ----------
    source : Source
    person : str
        The column of keys; see `key_of`.
    most : int
        Positive.
    """

    def parts(names: Sequence[str]) -> Iterator[Part]:
        return one_by_one(_first_rows(source.batches([*names, person]), list(names), person, most))

    return replace(source, parts=parts, rows=None)


def _first_rows(
    batches: Iterable[pa.RecordBatch], names: list[str], person: str, most: int
) -> Iterator[pa.RecordBatch]:
    """The batches without the column of keys, and without later rows of a person."""
    used: dict[bytes, int] = {}
    for batch in batches:
        kept = _kept(batch.column(person), used, most)
        held = batch.select(names)
        yield held if kept.all() else _in_place(held).filter(pa.array(kept))


def _in_place(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The same with texts in one piece: Arrow does not choose among views."""
    columns = [
        values.cast(pa.large_string() if pa.types.is_string_view(values.type) else _BYTES)
        if pa.types.is_string_view(values.type) or pa.types.is_binary_view(values.type)
        else values
        for values in batch.columns
    ]
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


def _kept(keys: pa.Array, used: dict[bytes, int], most: int) -> NDArray[np.bool_]:
    """Which rows (n,) are among the first of their person; counts them in `used`."""
    codes, distinct = _codes(keys)
    before = np.array([used.get(key, 0) for key in distinct], dtype=np.int64)
    known = codes >= 0
    kept = known.copy()
    found = codes[known]
    kept[known] = _ranks(found) + before[found] < most
    counts = np.minimum(before + np.bincount(found, minlength=len(distinct)), most)
    used.update(zip(distinct, counts.tolist(), strict=True))
    return kept


def _codes(keys: pa.Array) -> tuple[Codes, list[bytes]]:
    """Number of each row's key (n,), -1 without one, and the distinct keys."""
    if isinstance(keys.type, pa.BaseExtensionType):
        keys = keys.storage
    if not pa.types.is_dictionary(keys.type):
        if pa.types.is_temporal(keys.type) and keys.type.bit_width in _INTEGERS:
            keys = keys.view(_INTEGERS[keys.type.bit_width])
        elif pa.types.is_nested(keys.type) or pa.types.is_temporal(keys.type):
            return np.full(len(keys), -1), []
        keys = (plain(keys) if holds_text(keys.type) else keys).dictionary_encode()
    numbers: dict[bytes, int] = {}
    texts = map(key_of, keys.dictionary.to_pylist())
    of_entry = [-1 if text is None else numbers.setdefault(text, len(numbers)) for text in texts]
    entries = pc.fill_null(keys.indices.cast(pa.int64()), len(of_entry))
    # The last is of null.
    return np.array([*of_entry, -1], dtype=np.int64)[entries.to_numpy()], list(numbers)


def _ranks(codes: Codes) -> Codes:
    """How many earlier rows have the same code, (n,)."""
    order = np.argsort(codes, kind="stable")
    first = np.flatnonzero(np.diff(codes[order], prepend=-1))
    ranks = np.empty(len(codes), dtype=np.int64)
    ranks[order] = np.arange(len(codes)) - np.repeat(first, np.diff(first, append=len(codes)))
    return ranks


def key_of(cell: object) -> bytes | None:
    """What a cell says of its person; None where it says nothing.

    Text is compared exactly, numbers by value and without rounding; a whole number is the same as
    the text that spells it, as in a file. Empty and missing cells, numbers that are not finite, and
    objects that are no text, number, truth value, date or UUID, are no keys.
    """
    try:
        if isinstance(cell, str):
            return cell.encode("utf-8", "surrogatepass") or None
        if isinstance(cell, bytes):
            return cell or None
        if isinstance(cell, bool | np.bool_):
            return str(bool(cell)).lower().encode()
        if isinstance(cell, np.timedelta64):  # an integer to numpy
            return None
        if isinstance(cell, int | np.integer):
            return str(int(cell)).encode()
        if isinstance(cell, float | np.floating | Decimal | Fraction):
            return _of_number(cell)
        if isinstance(cell, date) and cell == cell:  # a datetime too, but NaT
            return cell.isoformat().encode()
        if isinstance(cell, np.datetime64) and cell == cell:
            return str(cell).encode()
        return str(cell).encode() if isinstance(cell, UUID) else None
    except Exception:  # a cell may be any object
        return None


def _of_number(cell: float | np.floating | Decimal | Fraction) -> bytes | None:
    if isinstance(cell, Decimal):
        if not cell.is_finite() or abs(cell.adjusted()) > _MOST_DIGITS:
            return None
    elif not isinstance(cell, Fraction) and not math.isfinite(cell):
        return None
    return str(Fraction(float(cell) if isinstance(cell, np.floating) else cell)).encode()
