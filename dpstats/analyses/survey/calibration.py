"""Weighted totals that are known, since the office adjusted the weights to them.

Docs: docs/explanation/inference/survey.md, section on known totals.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from dpstats.analyses.survey.estimand import basis_of
from dpstats.arrays import Floats
from dpstats.families.block import Block
from dpstats.families.group_moments import GroupMoments, PairMoments
from dpstats.families.tables.cells import ROWS, Partition
from dpstats.schema import Column, Schema
from dpstats.schema.totals import CompiledTotal, compile_totals, fixed_rows

_ROUNDING = 1e-12
_RANK = 1e-9  # of the largest singular value, from which on totals follow from others


@dataclass(frozen=True)
class Calibration:
    """Sums of a block's functions that are known.

    Attributes
    ----------
    names : tuple of str
        The totals, as they are declared.
    sums : (m, d) float64
        Zeros and ones: each known total as a sum of functions, no two of which count one row.
    values : (m,) float64
        In steps of the coded weight.
    """

    names: tuple[str, ...]
    sums: Floats
    values: Floats

    @classmethod
    def of(cls, schema: Schema, block: Block) -> Calibration:
        """Known totals of the population, and of all weights, that the block can express."""
        design = schema.design
        assert design is not None
        found = []
        for name, value, condition in _known(schema, block) if design.is_uncut else ():
            sums = _of_functions(block, condition)
            if sums is not None:
                found.append((name, sums, value / design.unit_weight))
        if not found:
            return cls.without(block.size)
        names, rows, values = zip(*found, strict=True)
        return cls(names, np.array(rows), np.array(values))

    @classmethod
    def without(cls, size: int) -> Calibration:
        """No known totals, of a block with so many functions."""
        return cls((), np.zeros((0, size)), np.zeros(0))

    def coefficients(self, covariance: Floats) -> Floats:
        """Coefficients (d, m) of the regression of totals on the known ones (eq. calibrated)."""
        across = covariance @ self.sums.T
        within = self.sums @ across
        sd = np.sqrt(np.maximum(np.diag(within), 1e-300))
        inverse = np.linalg.pinv(within / np.outer(sd, sd), rcond=_RANK, hermitian=True)
        return np.asarray(across @ (inverse / np.outer(sd, sd)))

    def residual(self, slopes: Floats, coefficients: Floats) -> Floats:
        """Slopes (..., d) by totals of what the known ones do not explain; zero if they do."""
        if not self.names:
            return slopes
        rest = slopes - slopes @ coefficients @ self.sums
        largest = np.abs(slopes).max(axis=-1, keepdims=True)
        return np.where(np.abs(rest) <= _ROUNDING * largest, 0.0, rest)


def _known(schema: Schema, block: Block) -> Iterator[tuple[str, float, Block]]:
    """Text, value and condition of public totals, of which the block has the columns."""
    assert schema.design is not None
    everyone = schema.design.total or fixed_rows(schema, "population")
    if everyone is not None:
        yield f"the weights of all rows add up to {everyone:,.10g}", float(everyone), ROWS
    totals = compile_totals(schema, "population")
    for compiled in totals:
        if set(compiled.columns) <= set(block.columns):
            condition = Partition.of(compiled.columns, {compiled.total.condition: compiled.counted})
            yield str(compiled.total), float(compiled.total.count), condition
    for columns in dict.fromkeys(compiled.columns for compiled in totals):
        together = [compiled for compiled in totals if compiled.columns == columns]
        yield from _margins([c for c in columns if c in block.columns], together)


def _margins(
    shared: list[Column], totals: Sequence[CompiledTotal]
) -> Iterator[tuple[str, float, Block]]:
    """Totals of cells of some of the columns of others, where these add up to them."""
    columns = totals[0].columns
    if not 0 < len(shared) < len(columns):
        return
    axes = [columns.index(column) for column in shared]
    for bins in itertools.product(*(range(column.bins) for column in shared)):
        rows = np.zeros([column.bins for column in columns], dtype=np.bool_)
        np.moveaxis(rows, axes, range(len(axes)))[bins] = True
        parts = [total for total in totals if not np.any(total.counted & ~rows)]
        if parts and np.array_equal(sum(total.counted.astype(int) for total in parts), rows):
            label = ", ".join(
                f"{c.name}={c.bin_labels[b]}" for c, b in zip(shared, bins, strict=True)
            )
            cell = np.zeros([column.bins for column in shared], dtype=np.bool_)
            cell[bins] = True
            count = sum(total.total.count for total in parts)
            yield f"{count:,} of {label}", float(count), Partition.of(shared, {label: cell})


def _of_functions(block: Block, condition: Block) -> Floats | None:
    """Rows with a condition as a sum (d,) of functions; None if it is none."""
    if not isinstance(block, GroupMoments | PairMoments):
        found = basis_of(block, condition)
        return None if found is None else found[0]
    if any(group.answered for group in block.groups):
        return None
    columns = block.groups[0].columns
    if not set(condition.columns) <= set(columns):
        return None
    groups = {str(i): group.cells.over(columns) for i, group in enumerate(block.groups)}
    found = basis_of(Partition.of(columns, groups), condition)
    return None if found is None else np.repeat(found[0], block.size // len(groups))
