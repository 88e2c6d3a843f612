"""Residuals of contingency tables: what tables over a set of columns share, measured once."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpstats.arrays import Codes, Floats
from dpstats.errors import RequestError
from dpstats.families.block import Block
from dpstats.families.tables.cells import Table, TableValues
from dpstats.privacy.neighbours import Sensitivity, Unit
from dpstats.schema import Column, Schema

if TYPE_CHECKING:
    from scipy.sparse import csr_array

MOST_COLUMNS = 16  # whose subsets are enumerated


@dataclass(frozen=True)
class Residual(Block):
    """The residual of a table: prod_a (n_a 1{x_a = i_a} - 1) for every cell i.

    n_a is the number of bins of column a (eq. residual-functions of
    docs/explanation/inference/overlapping-tables.md). Over rows these sums are prod_a n_a times the
    table's interaction: its sums along any column vanish, so residuals of different sets of columns
    are orthogonal and together hold every table over these columns. ResidualPlanner [1]_ measures
    them with noise in their own space; here every integer function gets a noise of its own, and the
    part outside that space is dropped afterwards, which leaves the same law.

    A row's function values r(x) have |r(x)|^2 = prod_a n_a (n_a - 1), and the product of those of
    two rows is the same with -n_a for every column in which they differ (eq. residual-norms of
    ``docs/explanation/privacy/sensitivity.md``).

    References
    ----------
    .. [1] Y. Xiao, G. He, D. Zhang and D. Kifer (2023), An optimal and scalable matrix mechanism
       for noisy marginals under convex loss functions, NeurIPS 36.
    """

    columns: tuple[Column, ...]

    kind: ClassVar[str] = "residual"
    needs_codes: ClassVar[bool] = False
    joint: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not self.columns:
            raise RequestError("a residual is over one column or more")

    @cached_property
    def table(self) -> Table:
        """The table whose interaction it is."""
        return Table(self.columns)

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of bins of each column."""
        return self.table.shape

    @property
    def size(self) -> int:
        """Number of cells."""
        return self.table.size

    @property
    def ranges(self) -> tuple[Codes, Codes]:
        """Largest product of n_a - 1, and the same with one factor -1."""
        largest = int(self.bounds[0])
        least = -largest // (min(self.shape) - 1)
        return np.full(self.size, least, np.int64), np.full(self.size, largest, np.int64)

    @cached_property
    def bounds(self) -> Codes:
        """prod_a (n_a - 1) of every cell, (d,) int64, in the memory of a single number."""
        return np.broadcast_to(np.int64(math.prod(bins - 1 for bins in self.shape)), self.size)

    @property
    def names(self) -> list[str]:
        """One name per cell."""
        return [f"residual of {name}" for name in self.table.names]

    def functions(self, codes: Mapping[str, Codes]) -> NDArray[Any]:
        """Values (d, n) int64."""
        return self.potential(self.table.functions(codes).astype(np.int64))

    def sums(self, codes: Mapping[str, Codes]) -> Codes:
        """Exact sums (d,) int64."""
        return self.potential(self.table.sums(codes))

    def evaluate(self, codes: Mapping[str, Codes]) -> ResidualValues:
        """The functions at m points."""
        return ResidualValues(self, self.table.evaluate(codes))

    def potential(self, coefficients: NDArray[Any]) -> NDArray[Any]:
        """Sum at every cell of the functions times coefficients, both (d, ...).

        Along a column the functions are the symmetric matrix n I - J: so this also turns weights of
        cells, or counts, into sums of the functions.
        """
        table = coefficients.reshape(*self.shape, *coefficients.shape[1:])
        return np.asarray(_centred(table, len(self.shape)).reshape(coefficients.shape))

    @property
    def squared_length(self) -> int:
        """Squared L2 change of the sums when any row is added or removed (eq. residual-norms)."""
        return math.prod(bins * (bins - 1) for bins in self.shape)

    def sensitivity(self, unit: Unit) -> Sensitivity:
        """Exact in L2; in L1 exact for adding or removing a row, and at most twice that else.

        See eq. residual-norms and residual-replaced.
        """
        largest = int(self.bounds[0])
        l1 = math.prod(2 * (bins - 1) for bins in self.shape)
        times = 1 if unit == "add_remove" else 2
        l2_squared = Fraction(self.squared_length)
        if unit == "replace":  # rows that differ in the column with the fewest bins alone
            fewest = min(self.shape)
            l2_squared *= Fraction(2 * fewest, fewest - 1)
        return Sensitivity(Fraction(times * l1, largest), l2_squared / largest**2)

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any], schema: Schema) -> Residual:
        """Inverse of `to_dict`."""
        return Residual(Table.from_dict(plain, schema).columns)


def residuals_of(tables: Iterable[Table]) -> list[Residual]:
    """The residuals of some tables and of all their margins, small ones first."""
    found: dict[tuple[Column, ...], None] = {}
    for table in tables:
        for size in range(1, len(table.columns) + 1):
            found.update(dict.fromkeys(itertools.combinations(table.columns, size)))
    return [Residual(columns) for columns in sorted(found, key=len)]


def joint_l2_squared(
    residuals: Sequence[Residual], precisions: Sequence[Fraction], unit: Unit
) -> Fraction:
    """Largest sum over residuals of precision times squared L2 change, for one row; exact.

    Replacing a row, no single change is the worst for every residual: the sum depends on the set of
    columns in which the rows differ, and is maximised over all of them (eq. residuals-together).
    With more than `MOST_COLUMNS` columns it is bounded by the sum of the maxima.

    Parameters
    ----------
    residuals : sequence of d Residual
    precisions : sequence of d Fraction
        One over the squared noise scale of each.
    unit : {"replace", "add_remove"}
    """
    columns = tuple(dict.fromkeys(c for residual in residuals for c in residual.columns))
    if unit == "add_remove":
        changes = [residual.squared_length for residual in residuals]
    elif len(columns) > MOST_COLUMNS:
        changes = [
            int(residual.sensitivity(unit).l2_squared * int(residual.bounds[0]) ** 2)
            for residual in residuals
        ]
    else:
        return _largest_joint_change(residuals, precisions, columns)
    return sum((p * c for p, c in zip(precisions, changes, strict=True)), Fraction(0))


def _largest_joint_change(
    residuals: Sequence[Residual], precisions: Sequence[Fraction], columns: tuple[Column, ...]
) -> Fraction:
    """The maximum over sets of columns, in integers: precisions as multiples of one fraction."""
    common = math.lcm(*(p.denominator for p in precisions))
    whole = [int(p * common) for p in precisions]
    divisor = math.gcd(*whole)
    whole = [number // divisor for number in whole]
    lengths = [residual.squared_length for residual in residuals]
    fits = sum(w * q for w, q in zip(whole, lengths, strict=True)) < 2**61
    differs = differing_sets(len(columns))
    total = np.zeros(len(differs), dtype=np.int64 if fits else object)
    at = {column: i for i, column in enumerate(columns)}
    for residual, number, length in zip(residuals, whole, lengths, strict=True):
        same = np.ones(len(differs), dtype=total.dtype)
        for column in residual.columns:
            n = column.bins
            same *= np.where(differs[:, at[column]], -n, n * (n - 1))
        total += number * (length - same)
    return 2 * int(total.max()) * Fraction(divisor, common)


def differing_sets(columns: int) -> NDArray[np.bool_]:
    """(2^p - 1, p) all sets of columns in which two rows can differ."""
    numbers = np.arange(1, 2**columns)
    return ((numbers[:, np.newaxis] >> np.arange(columns)) & 1).astype(np.bool_)


@dataclass(frozen=True)
class ResidualValues:
    """The functions of a residual at m points, stored as the cell of each point."""

    residual: Residual
    cells: TableValues

    @property
    def size(self) -> int:
        """Number of functions."""
        return self.cells.size

    def at(self, points: NDArray[np.intp]) -> ResidualValues:
        """Values at the chosen points alone."""
        return ResidualValues(self.residual, self.cells.at(points))

    def average(self, weights: Floats) -> Floats:
        """(d,) weighted sums."""
        return self.residual.potential(self.cells.average(weights))

    def combine(self, coefficients: Floats) -> Floats:
        """(m,) combinations."""
        return self.cells.combine(self.residual.potential(coefficients))

    def matrix(self) -> csr_array[Any]:
        """(d, m) sparse matrix; every entry differs from zero."""
        from scipy import sparse

        every = self.residual.potential(np.eye(self.size))
        return sparse.csr_array(every[:, self.cells.index])


def _centred(table: NDArray[Any], axes: int) -> NDArray[Any]:
    """Along each of the first axes: n times the entries minus their sum."""
    for axis in range(axes):
        table = table.shape[axis] * table - table.sum(axis=axis, keepdims=True)
    return table
