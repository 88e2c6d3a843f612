"""The candidates of a release as files: their codes, weights and counts, and the rows they make."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from dpstats import files
from dpstats.arrays import Codes, Floats
from dpstats.schema import Category, Column, Schema
from dpstats.schema.column_fields import COUNT, WEIGHT

MOST_ROWS = 10_000_000  # synthetic rows; a release writes each of them
_WIDEST_NUMBER = 32  # bytes, of a date too
_MOST_BYTES = 2**30  # of rows.csv: half of what a file that is read may hold


def candidates_to_members(
    columns: Schema, candidates: Mapping[str, Codes], weights: Floats, counts: Codes, order: Codes
) -> dict[str, str]:
    """Texts of ``candidates.csv`` and ``rows.csv``; `order` (k,) has the candidate of each row."""
    names = columns.names
    coded = [candidates[name].tolist() for name in names]
    lines = zip(*coded, map(repr, weights.tolist()), counts, strict=True)
    header = files.to_csv(names, [])
    texts = lines_of_rows(columns, candidates)
    return {
        "candidates.csv": files.to_csv((*names, WEIGHT, COUNT), lines),
        "rows.csv": header + "".join(map(texts.__getitem__, order.tolist())),
    }


def lines_of_rows(columns: Schema, candidates: Mapping[str, Codes]) -> list[str]:
    """The line of ``rows.csv`` for each candidate, (m,); levels as they are declared."""
    cells = zip(*(_cells(column, candidates[column.name]) for column in columns), strict=True)
    return [files.csv_line(row) for row in cells]


def _cells(column: Column, codes: Codes) -> list[Any]:
    if isinstance(column, Category):  # `decode` makes floats of 0 beside 0.5
        return list(map(column.bin_labels.__getitem__, codes.tolist()))
    decoded: list[Any] = column.decode(codes).tolist()
    return decoded


def most_rows(columns: Schema, candidates: Mapping[str, Codes], wanted: int) -> int:
    """As many rows as wanted, or as ``rows.csv`` can hold: a file that is larger is not read."""
    widest = sum(_widest(column) for column in columns)
    if wanted * widest <= _MOST_BYTES:
        return wanted
    longest = max(len(line.encode()) for line in lines_of_rows(columns, candidates))
    return min(wanted, _MOST_BYTES // longest)


def _widest(column: Column) -> int:
    """Bytes of the widest cell of a column, quoted, with what follows it."""
    if not isinstance(column, Category):
        return _WIDEST_NUMBER
    return max(2 * len(label.encode()) + 3 for label in column.bin_labels)


def candidates_from_members(
    members: Mapping[str, str], columns: Schema
) -> tuple[dict[str, Codes], Floats, Codes]:
    """Candidates, weights and counts from ``candidates.csv``."""
    names = columns.names
    rows = files.from_csv(members["candidates.csv"], (*names, WEIGHT, COUNT), "candidates.csv")
    *coded, shares, copies = zip(*rows, strict=True)
    candidates = {
        name: np.array(cells, dtype=np.int64) for name, cells in zip(names, coded, strict=True)
    }
    weights, counts = np.array(shares, dtype=np.float64), np.array(copies, dtype=np.int64)
    for column in columns:
        low, high = column.code_range
        codes = candidates[column.name]
        if codes.min() < low or codes.max() > high:
            raise ValueError(f"codes of {column.name!r} are out of range")
    if not (np.all(weights >= 0) and abs(weights.sum() - 1) < 1e-6):
        raise ValueError("the weights are not a density")
    if counts.min() < 0 or not 1 <= sum(counts.tolist()) <= MOST_ROWS:
        raise ValueError("counts of rows are not valid")
    return candidates, weights, counts
