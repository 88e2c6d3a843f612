"""Combinations of levels that rules between columns allow: the proof of repairs, possible cells.

That no row ends with a broken rule is proved when the rules are declared, by enumeration over the
columns involved (`check_rules`; section "Proof" of docs/explanation/privacy/rules.md).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from numpy.typing import NDArray

from dpstats.arrays import Codes
from dpstats.checks import first_few
from dpstats.errors import SchemaError
from dpstats.schema.column_fields import MISSING_LABEL
from dpstats.schema.conditions import Column, cell_index
from dpstats.schema.number import Number
from dpstats.schema.repairs import (
    ANY,
    CompiledRule,
    CompiledView,
    DeterminedColumn,
    Mask,
    OnColumns,
    OrderedNumbers,
    codes_of_bins,
    compile_rules,
    empty_cells,
    repaired,
    views_by_source,
    with_views,
)

if TYPE_CHECKING:
    from dpstats.schema.schema import Schema

MOST_COMBINATIONS = 2**24  # that a proof goes through
_MOST_PROJECTED = 2**20  # for cells that are possible
_PART = 2**20  # at a time
_Rule = TypeVar("_Rule", bound=OnColumns)


def impossible_pairs(schema: Schema) -> list[tuple[str, str, Mask]]:
    """Pairs of columns, with the cells (bins, bins) that a rule on these two does not allow.

    Two views of one number are such a pair as well.
    """
    pairs = [
        (rule.columns[0].name, rule.columns[1].name, rule.cells())
        for rule in compile_rules(schema)
        if len(rule.columns) == 2
    ]
    for views in views_by_source(schema):
        for two in itertools.combinations(views, 2):
            codes = with_views(two, {two[0].source.name: two[0].source.all_codes})
            first, second = (view.view for view in two)
            pairs.append((first.name, second.name, empty_cells((first, second), codes)))
    return pairs


def determined_bins(schema: Schema) -> list[tuple[Column, Column, Codes]]:
    """Columns that follow from another in every row: the other, the column, its bins (bins,)."""
    return [
        (by, column, rule.repaired({by.name: codes_of_bins(by)})[column.name])
        for rule in compile_rules(schema)
        if type(rule) is DeterminedColumn and not (rule.codes == ANY).any()
        for by, column in [rule.columns]
    ]


@lru_cache(maxsize=64)
def check_rules(schema: Schema) -> None:
    """Prove that no repaired row breaks a rule, and that every level remains possible.

    Rules that share columns are taken together, directly or through others. Bins between which none
    of them distinguishes count as one.
    """
    for together in linked_rules(compile_rules(schema)):
        if len(together) == 1 and isinstance(together[0], OrderedNumbers):
            impossible = together[0].cells()  # its repair is proved by how it is made
            for axis, column in enumerate(together[0].columns):
                _check_possible(column, ~np.all(impossible, axis=1 - axis), together)
            continue
        every = Combinations.of(schema, together)
        possible = [np.zeros(size, np.bool_) for size in every.shape]
        for places, codes in every.parts():
            allowed = allowed_by(together, codes)
            for seen, at in zip(possible, places, strict=True):
                seen[at[allowed]] = True
            after = repaired(codes, together)
            for rule in together:
                rows = np.flatnonzero(rule.broken(after))
                if len(rows):
                    cells = {name: int(code[rows[0]]) for name, code in codes.items()}
                    raise SchemaError(_unrepaired(rule, together, every.columns, cells))
        for column, of_column, seen in zip(every.columns, every.classes, possible, strict=True):
            _check_possible(column, np.any(of_column.of_bin & seen, axis=1), together)


def allowed_by(rules: Sequence[CompiledRule], codes: Mapping[str, Codes]) -> Mask:
    """Which rows break none of some rules, (n,)."""
    return np.asarray(~np.any([rule.broken(codes) for rule in rules], axis=0))


def possible_cells(schema: Schema, columns: Sequence[Column]) -> Mask | None:
    """Cells of the table over some columns in which a row can be; None if all are possible.

    If too many combinations decide about a cell it counts as possible.
    """
    return _possible_cells(schema, tuple(columns)) if schema.is_linked else None


@lru_cache(maxsize=4096)
def _possible_cells(schema: Schema, columns: tuple[Column, ...]) -> Mask | None:
    possible: Mask | None = None
    for together in linked_rules(compile_rules(schema)):
        involved = [c for c in columns if any(c.name in rule.names for rule in together)]
        if len(involved) < 2:  # every level is possible
            continue
        every = Combinations.of(schema, together, limited=False)
        if every.size > _MOST_PROJECTED:
            together = [rule for rule in together if rule.names <= {c.name for c in involved}]
            if not together:
                continue
            every = Combinations.of(schema, together, limited=False)
            involved = [c for c in involved if c in every.columns]
            if every.size > MOST_COMBINATIONS:
                continue
        axes = [every.columns.index(c) for c in involved]
        seen = np.zeros([every.shape[axis] for axis in axes], np.bool_)
        for places, codes in every.parts():
            allowed = allowed_by(together, codes)
            seen[tuple(places[axis][allowed] for axis in axes)] = True
        for axis, at in enumerate(axes):  # from classes of a column to its bins
            of_bin = every.classes[at].of_bin.astype(np.int64)
            seen = np.moveaxis(np.tensordot(of_bin, seen, axes=(1, axis)), 0, axis) > 0
        order = np.argsort([columns.index(c) for c in involved])
        spread = seen.transpose(order).reshape([c.bins if c in involved else 1 for c in columns])
        possible = spread if possible is None else possible & spread
    if possible is None or possible.all():
        return None
    whole: Mask = np.broadcast_to(possible, [c.bins for c in columns])
    return whole


def _unrepaired(
    rule: CompiledRule,
    together: Sequence[CompiledRule],
    involved: Sequence[Column],
    cells: Mapping[str, int],
) -> str:
    """A message on a rule that some row breaks after all repairs."""
    row = ", ".join(
        f"{column.name} {column.bin_labels[int(column.bins_of(np.array([cells[column.name]]))[0])]}"
        for column in involved
    )
    others = [
        other.text
        for other in together
        if other is not rule and not isinstance(other, CompiledView)
    ]
    why = f"and {first_few(others)} contradict each other" if others else "is not met by its repair"
    return (
        f"rule {rule.text!r} {why}: a row with {row} still breaks the first after all "
        "repairs; change what they set, or their order"
    )


def _check_possible(column: Column, possible: Mask, together: Sequence[CompiledRule]) -> None:
    labels = [label for label, seen in zip(column.bin_labels, possible, strict=True)
              if not seen and label != MISSING_LABEL]  # fmt: skip
    if labels and not (isinstance(column, Number) and column.even_edges):  # nobody declared those
        texts = [rule.text for rule in together if column.name in rule.names]
        raise SchemaError(
            f"no row with {column.name} {labels[0]} is allowed by the rules {first_few(texts)}: "
            "declare the column without it, or change a rule"
        )


def linked_rules(rules: Sequence[_Rule]) -> list[list[_Rule]]:
    """Rules and totals in groups that have no column in common, each in declared order.

    Views are taken in bins: if another rule needs codes, all codes in the bin that follows are gone
    through.
    """
    rules = [
        replace(rule, in_bins=True) if isinstance(rule, CompiledView) else rule for rule in rules
    ]
    groups: list[tuple[set[str], list[int]]] = []
    for place, rule in enumerate(rules):
        joined = [group for group in groups if group[0] & rule.names]
        groups = [group for group in groups if not group[0] & rule.names]
        names = rule.names.union(*(group[0] for group in joined))
        places = sorted([place, *itertools.chain.from_iterable(group[1] for group in joined)])
        groups.append((names, places))
    return [[rules[place] for place in places] for _, places in groups]


@dataclass(frozen=True)
class _Classes:
    """Classes of codes of a column that no rule or total distinguishes."""

    codes: Codes  # (c,): one code of each class
    of_bin: Mask  # (bins, c) bool: which classes have codes in each bin

    @classmethod
    def of(cls, column: Column, rules: Sequence[OnColumns]) -> _Classes:
        """Classes of bins; of codes where a rule depends on these.

        The codes of a number with views form a class for each combination of its bins and theirs.
        """
        rules = [rule for rule in rules if column.name in rule.names]
        views = [rule for rule in rules if isinstance(rule, CompiledView)]
        in_bins = all(rule.in_bins for rule in rules)
        if isinstance(column, Number) and (views or not in_bins):
            codes = column.all_codes
            if in_bins:
                views = [view for view in views if view.source == column]
                cells = cell_index(
                    [column, *(view.view for view in views)],
                    with_views(views, {column.name: codes}),
                )
                codes = codes[np.unique(cells, return_index=True)[1]]
            return cls(codes, column.bins_of(codes) == np.arange(column.bins)[:, np.newaxis])
        slices = [
            np.moveaxis(rule.cells(), rule.columns.index(column), 0).reshape(column.bins, -1)
            for rule in rules
        ]
        _, first, of_bin = np.unique(
            np.hstack(slices), axis=0, return_index=True, return_inverse=True
        )
        classes = of_bin.ravel()[:, np.newaxis] == np.arange(len(first))
        return cls(codes_of_bins(column)[first], classes)


@dataclass(frozen=True)
class Combinations:
    """All combinations of classes of the columns of some rules and totals."""

    columns: list[Column]
    classes: list[_Classes]

    @classmethod
    def of(
        cls, schema: Schema, rules: Sequence[OnColumns], *, limited: bool = True
    ) -> Combinations:
        """Combinations for some rules and totals."""
        names = set[str]().union(*(rule.names for rule in rules))
        columns = [column for column in schema if column.name in names]
        every = cls(columns, [_Classes.of(column, rules) for column in columns])
        if limited and every.size > MOST_COMBINATIONS:
            raise SchemaError(
                f"the rules and totals on {first_few(sorted(names))} distinguish {every.size:,} "
                f"combinations, more than {MOST_COMBINATIONS:,}: declare fewer levels, bins or "
                "points of these columns"
            )
        return every

    @property
    def shape(self) -> list[int]:
        """Number of classes of each column."""
        return [len(of_column.codes) for of_column in self.classes]

    @property
    def size(self) -> int:
        """Number of combinations."""
        return math.prod(self.shape)

    def parts(self) -> Iterator[tuple[tuple[NDArray[np.intp], ...], dict[str, Codes]]]:
        """Places of all combinations among the classes, and their codes, some at a time."""
        for first in range(0, self.size, _PART):
            some = np.arange(first, min(first + _PART, self.size))
            places = np.unravel_index(some, self.shape)
            each = zip(self.columns, self.classes, places, strict=True)
            yield places, {column.name: classes.codes[at] for column, classes, at in each}
