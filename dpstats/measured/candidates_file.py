"""The candidates of a release as files: their codes, weights and counts, and the rows they make."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from dpstats import files
from dpstats.arrays import Codes, Floats
from dpstats.schema import Schema

WEIGHT, COUNT = "_weight", "_count"
MOST_ROWS = 10_000_000  # synthetic rows; a release writes each of them


def candidates_to_members(
    columns: Schema,
    candidates: Mapping[str, Codes],
    weights: Floats,
    counts: Codes,
    order: Codes,
) -> dict[str, str]:
    """The texts of ``candidates.csv`` and, for use in other programs, ``rows.csv``.

    Parameters
    ----------
    columns : Schema
        The columns of the candidates.
    candidates : mapping of column name to (m,) int64
    weights : (m,) float64
    counts : (m,) int64
        How many synthetic rows are copies of each candidate.
    order : (k,) int64
        Which candidate each row is a copy of, row by row.
    """
    names = columns.names
    coded = [candidates[name].tolist() for name in names]
    lines = zip(*coded, map(repr, weights.tolist()), counts, strict=True)
    decoded = columns.decode(candidates)
    cells = list(zip(*(decoded[name].tolist() for name in names), strict=True))
    rows = (cells[i] for i in order.tolist())
    return {
        "candidates.csv": files.to_csv((*names, WEIGHT, COUNT), lines),
        "rows.csv": files.to_csv(names, rows),
    }


def candidates_from_members(
    members: Mapping[str, str], columns: Schema
) -> tuple[dict[str, Codes], Floats, Codes]:
    """Candidates, weights and counts from ``candidates.csv``.

    Raises
    ------
    FileFormatError
        If the table has other columns.
    ValueError, IndexError, OverflowError
        If its cells are not what `candidates_to_members` writes.
    """
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
