"""Keys of persons and of sampling units: what cells say of whom a row is of."""

from __future__ import annotations

import math
from datetime import date, time
from decimal import Decimal
from fractions import Fraction
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dpstats.arrays import Codes
from dpstats.schema.arrow import holds_text, plain, unwrapped

_INTEGERS = {32: pa.int32(), 64: pa.int64()}  # by bits
_MOST_DIGITS = 400  # of a number that is a key


def codes_of_keys(keys: pa.Array) -> tuple[Codes, list[bytes]]:
    """Number of each row's key (n,), -1 without one, and the distinct keys."""
    keys = unwrapped(keys)
    if pa.types.is_dictionary(keys.type):
        of_entry, texts = codes_of_keys(keys.dictionary)
    else:
        if pa.types.is_temporal(keys.type) and keys.type.bit_width in _INTEGERS:
            keys = keys.view(_INTEGERS[keys.type.bit_width])
        elif pa.types.is_nested(keys.type) or pa.types.is_temporal(keys.type):
            return np.full(len(keys), -1), []
        elif pa.types.is_float16(keys.type):  # Arrow 25 has no dictionary of halves
            keys = keys.cast(pa.float32())
        keys = (plain(keys) if holds_text(keys.type) else keys).dictionary_encode()
        numbers: dict[bytes, int] = {}
        of_entry = np.array([
            -1 if text is None else numbers.setdefault(text, len(numbers))
            for text in map(key_of, keys.dictionary.to_pylist())
        ], dtype=np.int64)  # fmt: skip
        texts = list(numbers)
    entries = pc.fill_null(keys.indices.cast(pa.int64()), len(of_entry))
    return np.append(of_entry, -1)[entries.to_numpy()], texts  # the last is of null


def key_of(cell: object) -> bytes | None:
    """The key of a cell; None where it says nothing.

    Text is compared exactly, numbers by value and without rounding; a whole number is the same as
    the text that spells it, as in a file. Empty and missing cells, numbers that are not finite, and
    objects that are no text, number, truth value, date, time, period or UUID, are no keys.
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
        return str(cell).encode() if isinstance(cell, UUID | time) or is_period(cell) else None
    except Exception:  # a cell may be any object
        return None


def is_period(cell: object) -> bool:
    """True if a cell is a period of pandas, which need not be installed; NaT is none."""
    return type(cell).__name__ == "Period" and type(cell).__module__.split(".")[0] == "pandas"


def _of_number(cell: float | np.floating | Decimal | Fraction) -> bytes | None:
    if isinstance(cell, Decimal):
        if not cell.is_finite() or abs(cell.adjusted()) > _MOST_DIGITS:
            return None
    elif not isinstance(cell, Fraction) and not math.isfinite(cell):
        return None
    return str(Fraction(float(cell) if isinstance(cell, np.floating) else cell)).encode()
