"""pandas data frames as record batches; cells that are Python objects become text."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from datetime import date, datetime
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from dpstats.private.keys import is_period, key_of
from dpstats.private.sources import Source, source_of_stream
from dpstats.schema import RawColumns
from dpstats.schema.arrow import spelled

if TYPE_CHECKING:
    import pandas as pd

_NO_TEXT = b"\xff"  # a cell that is no text, number or date; no level is spelled with this byte


def data_frame(frame: pd.DataFrame, raw: RawColumns) -> Source:
    """A pandas data frame."""
    fields = list(frame.columns)
    arrays = {
        name: _array(frame[name], key_of if name == raw.person else text_of)
        for name in raw.with_keys
        if fields.count(name) == 1
    }

    def batches(wanted: Sequence[str]) -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_arrays([arrays[name] for name in wanted], names=list(wanted))

    return source_of_stream(fields, batches, len(frame))


def _array(series: pd.Series[Any], as_text: Callable[[object], bytes | None]) -> pa.Array:
    """Cells of a column; of objects the text that `as_text` gives."""
    dtype = series.dtype
    kind = getattr(getattr(dtype, "categories", None), "dtype", dtype)  # of a Categorical
    if kind == np.dtype(object):
        return _objects(series, as_text)
    array = series.to_numpy() if isinstance(dtype, np.dtype) else None
    if array is not None and array.dtype.kind in "iufb" and not array.dtype.isnative:
        return pa.array(array.astype(array.dtype.newbyteorder("=")), from_pandas=True)
    try:
        converted = pa.Array.from_pandas(series)
    except (pa.ArrowException, TypeError, ValueError):  # broken text, or a type of pandas alone
        converted = None
    of_arrow = hasattr(kind, "pyarrow_dtype")
    if converted is None or (_is_extension(converted.type) and not of_arrow):  # periods, intervals
        return _objects(series.astype(object), as_text)
    return converted.combine_chunks() if isinstance(converted, pa.ChunkedArray) else converted


def _is_extension(kind: pa.DataType) -> bool:
    """True of the type of a Categorical, too, whose levels have an extension of Arrow's types."""
    values = kind.value_type if pa.types.is_dictionary(kind) else kind
    return isinstance(values, pa.BaseExtensionType)


def _objects(series: pd.Series[Any], as_text: Callable[[object], bytes | None]) -> pa.Array:
    """Python objects cell by cell, as text."""
    return pa.array([as_text(cell) for cell in series], pa.large_binary())


def text_of(cell: object) -> bytes | None:
    """One cell as text; None if it is missing."""
    try:
        if type(cell) in (int, float) and abs(cell) < 2**53:  # type: ignore[arg-type]
            return spelled(cell).encode()  # type: ignore[arg-type]  # the usual cells, first
        if isinstance(cell, str):
            return cell.encode("utf-8", "surrogatepass")
        if isinstance(cell, bytes):
            return cell
        if _is_missing(cell):
            return None
        if isinstance(cell, bool | np.bool_):
            return str(bool(cell)).lower().encode()
        if isinstance(cell, np.datetime64):
            return str(cell.astype("datetime64[D]")).encode()
        if isinstance(cell, date):  # a datetime too
            return (cell.date() if isinstance(cell, datetime) else cell).isoformat().encode()
        if is_period(cell):  # its first day
            return str(cell.asfreq("D", "start")).encode()  # type: ignore[attr-defined]
        number = _real(cell)
        return _NO_TEXT if number is None else spelled(number).encode()
    except Exception:  # a cell may be any object
        return _NO_TEXT


def _is_missing(cell: object) -> bool:
    if cell is None:
        return True
    if isinstance(cell, list | np.ndarray):  # a value, though never a declared one
        return False
    try:
        return bool(cell != cell)
    except Exception:  # NA, signalling NaN
        return True


def _real(cell: object) -> float | None:
    real = int | float | np.integer | np.floating | Decimal | Fraction
    if isinstance(cell, np.timedelta64) or not isinstance(cell, real):  # numpy calls it an integer
        return None
    try:
        # A short float by way of text: its shortest decimal, as in a file.
        return float(str(cell) if isinstance(cell, np.floating) else cell)
    except OverflowError:
        return math.inf if cell > 0 else -math.inf
