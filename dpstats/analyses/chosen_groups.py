"""Which two levels or bins of a column to compare, as the user names them."""

from __future__ import annotations

from collections.abc import Sequence

from dpstats.columns import MISSING_LABEL, Boolean, Category, Column
from dpstats.errors import RequestError, SchemaError

Groups = Sequence[str | int | float | bool]


def as_pair(groups: Groups | None) -> Groups | None:
    """A tuple of what was given as a list or tuple; its levels are checked with the schema."""
    if groups is None:
        return None
    if isinstance(groups, str) or not isinstance(groups, Sequence):
        raise RequestError(f"groups must be a pair of levels, got {groups!r}")
    return tuple(groups)


def chosen_groups(column: Column, groups: Groups | None) -> tuple[int, int]:
    """Indices of the two bins of a column to compare, in order.

    Parameters
    ----------
    column : column
    groups : pair of levels, optional
        A bin of a number goes by its label. Default: the two levels there are (a level for missing
        cells aside), true before false.

    Raises
    ------
    RequestError
    """
    labels = column.bin_labels
    if groups is None:
        known = [i for i, label in enumerate(labels) if label != MISSING_LABEL]
        if len(known) != 2:
            raise RequestError(
                f"{column.name!r} has {len(known)} levels or bins, {list(labels)}; give two of "
                "them, as in groups=(first, second)"
            )
        return (known[1], known[0]) if isinstance(column, Boolean) else (known[0], known[1])
    found = [_bin_of(column, level) for level in groups]
    if len(found) != 2 or found[0] == found[1]:
        raise RequestError(f"groups must be two different levels, got {list(groups)}")
    return found[0], found[1]


def _bin_of(column: Column, level: object) -> int:
    if isinstance(column, Category):
        try:
            return column.index(level)
        except SchemaError as error:
            raise RequestError(f"groups: {error}") from None
    if column.values and not column.edges and level in column.values:
        return column.values.index(level)
    if level in column.bin_labels:
        return column.bin_labels.index(level)
    raise RequestError(
        f"groups: {level!r} is not a bin of {column.name!r}; bins: {list(column.bin_labels)}"
    )
