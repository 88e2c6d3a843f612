"""Arrow arrays to numpy, by total functions: every cell maps to a code, a float or NaN."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray


def _is_any(arrow_type: pa.DataType, *tests: Callable[[pa.DataType], bool]) -> bool:
    """Whether a type, or that of a dictionary's values, passes one of some tests."""
    plain = arrow_type.value_type if pa.types.is_dictionary(arrow_type) else arrow_type
    return any(test(plain) for test in tests)


def is_text(arrow_type: pa.DataType) -> bool:
    """Whether an Arrow type holds text; dictionaries by their values, all-null columns too."""
    types = pa.types
    return _is_any(
        arrow_type, types.is_string, types.is_large_string, types.is_string_view,
        types.is_binary, types.is_large_binary, types.is_null,
    )  # fmt: skip


def is_number(arrow_type: pa.DataType) -> bool:
    """Whether an Arrow type holds numbers or bool (text is never read as a number)."""
    types = pa.types
    return _is_any(
        arrow_type, types.is_integer, types.is_floating, types.is_boolean, types.is_decimal,
        types.is_null,
    )  # fmt: skip


def _undictionary(values: pa.Array) -> pa.Array:
    return values.dictionary_decode() if pa.types.is_dictionary(values.type) else values


def floats(values: pa.Array) -> NDArray[np.float64]:
    """Numbers (n,) float64 of an Arrow array; null becomes NaN."""
    values = _undictionary(values)
    if pa.types.is_boolean(values.type):
        values = values.cast(pa.int8())
    if pa.types.is_float16(values.type):
        values = values.cast(pa.float32())
    if pa.types.is_decimal(values.type):  # by way of text, which is read correctly rounded
        values = values.cast(pa.large_string())
    array = values.cast(pa.float64(), safe=False).fill_null(np.nan)
    return np.asarray(array.to_numpy(zero_copy_only=False), dtype=np.float64)


def level_codes(
    values: pa.Array, stored: Sequence[Any], missing: int, other: int
) -> NDArray[np.int64]:
    """Index of each cell among the stored values.

    Parameters
    ----------
    values : pyarrow.Array of length n
        Text, numbers, bool, or a dictionary of them in any order.
    stored : sequence
        The declared values; numbers match by value, text exactly.
    missing, other : int
        Codes of null (and NaN) cells, and of cells with an undeclared value.

    Returns
    -------
    (n,) int64
    """
    if pa.types.is_dictionary(values.type):  # code the dictionary once, then look up
        coded = level_codes(values.dictionary, stored, missing, other)
        indices = values.indices.cast(pa.int64()).fill_null(len(coded))
        return np.asarray(np.append(coded, missing)[indices.to_numpy(zero_copy_only=False)])
    null = np.asarray(pc.is_null(values, nan_is_null=True).to_numpy(zero_copy_only=False), bool)
    codes = np.full(len(values), other, dtype=np.int64)
    comparable = _comparable(values, stored)
    if comparable is not None:
        cells, declared, where = comparable
        found = pc.index_in(cells, value_set=declared).fill_null(-1)
        found = found.to_numpy(zero_copy_only=False)
        codes = np.where(found >= 0, np.append(where, 0)[found], codes)
    codes[null] = missing
    return codes


def _comparable(
    values: pa.Array, stored: Sequence[Any]
) -> tuple[pa.Array, pa.Array, NDArray[np.int64]] | None:
    """Cells and declared values in one Arrow type in which equality is exact."""
    kind = values.type
    if pa.types.is_null(kind):
        return None
    if isinstance(stored[0], str):  # as bytes, so that cells with broken text compare too
        if pa.types.is_string_view(kind):
            values = values.cast(pa.large_string())
        declared = pa.array([level.encode() for level in stored], pa.large_binary())
        return values.cast(pa.large_binary()), declared, np.arange(len(stored))
    if pa.types.is_boolean(kind):
        values, kind = values.cast(pa.int8()), pa.int8()
    if pa.types.is_integer(kind):
        limits = np.iinfo(kind.to_pandas_dtype())
        fits = [i for i, v in enumerate(stored) if v == int(v) and limits.min <= v <= limits.max]
        declared = pa.array([int(stored[i]) for i in fits], kind)
    else:
        # Adding zero turns -0.0 into 0.0: index_in distinguishes the two.
        values = pa.array(floats(values) + 0.0)
        fits = [i for i, v in enumerate(stored) if _is_exact_float(v)]
        declared = pa.array([float(stored[i]) + 0.0 for i in fits], pa.float64())
    return values, declared, np.array(fits, dtype=np.int64)


def _is_exact_float(value: float) -> bool:
    try:
        return float(value) == value
    except OverflowError:
        return False
