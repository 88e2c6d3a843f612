"""Blocks of test functions and the families they form.

A block serves three times: it sums the private rows, it evaluates candidate points, and it names
the analyst's estimates. Functions take integer values g_f in [-B_f, B_f] on coded rows; in the
paper's scale f = g_f / B_f lies in [-1, 1]. Sensitivities cite equations of
``docs/explanation/privacy/sensitivity.md``.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from dpstats.arrays import Codes, Floats
from dpstats.caching import Cached
from dpstats.errors import RequestError
from dpstats.privacy.budget import Budget
from dpstats.privacy.laws import POWERS
from dpstats.privacy.neighbours import Neighbours, Sensitivity, Unit
from dpstats.schema import Column, Number, Schema

if TYPE_CHECKING:
    from scipy.sparse import csr_array


@dataclass(frozen=True)
class Derivation:
    """How a block follows from a measured one: each sum is offset n + sign (sum of some)."""

    # (D,): for each measured function, the wanted function it is added to, or -1. A wanted function
    # without a member does not follow
    member: Codes
    size: int  # number of wanted functions, d
    # sign, offset: 1 and 0, or -1 and 1 for a complement
    sign: int = 1
    offset: int = 0

    @cached_property
    def terms(self) -> Codes:
        """(d,) int64, number of measured functions in each wanted one."""
        return np.bincount(self.member[self.member >= 0], minlength=self.size)

    def apply(self, sums: Codes, n: int) -> Codes:
        """Wanted sums (d,) int64 from measured sums (D,) int64, exactly."""
        total = np.zeros(self.size, dtype=np.int64)
        used = self.member >= 0
        np.add.at(total, self.member[used], sums[used])
        return self.offset * n + self.sign * total


class Values(Protocol):
    """The d functions of a block at m points, as a linear map; integer units."""

    @property
    def size(self) -> int:
        """Number of functions, d."""

    def average(self, weights: Floats) -> Floats:
        """(d,) weighted sums over points, weights (m,)."""

    def combine(self, coefficients: Floats) -> Floats:
        """(m,) linear combinations of the functions at each point, coefficients (d,)."""

    def matrix(self) -> csr_array[Any]:
        """The (d, m) sparse matrix itself."""

    def at(self, points: NDArray[np.intp]) -> Values:
        """The functions at some of the points."""


class Block(Cached, ABC):
    """Test functions that are measured together; a frozen dataclass."""

    kind: ClassVar[str]  # name of the class in files
    # whether values depend on codes themselves, not only on levels and bins
    needs_codes: ClassVar[bool] = True
    # whether every function depends on all columns, so that none follows from fewer
    joint: ClassVar[bool] = False
    # sums over a person of k equal rows are k^degree times those over one row
    degree: ClassVar[int] = 1
    # keys, scope: what each function is, among blocks of one kind and scope; () if it follows from
    # none
    keys: Sequence[Hashable] = ()
    scope: Hashable = None

    if TYPE_CHECKING:  # a field of some blocks, a property of others

        @property
        def columns(self) -> tuple[Column, ...]:
            """Columns that the functions depend on."""

    @property
    def coded(self) -> tuple[Column, ...]:
        """Columns of which the codes matter, not only the levels or bins."""
        return self.columns if self.needs_codes else ()

    @property
    @abstractmethod
    def size(self) -> int:
        """Number of functions, d."""

    @property
    def asked(self) -> int:
        """Number of the first functions that are asked for, usually all."""
        return self.size

    @property
    @abstractmethod
    def ranges(self) -> tuple[Codes, Codes]:
        """Smallest and largest possible values, two (d,) int64 arrays."""

    @property
    @abstractmethod
    def names(self) -> list[str]:
        """One short name per function."""

    @abstractmethod
    def functions(self, codes: Mapping[str, Codes]) -> NDArray[Any]:
        """Values (d, n) of the functions, whole numbers, of rows: column name -> (n,) codes."""

    def sums(self, codes: Mapping[str, Codes]) -> Codes:
        """Exact sums (d,) int64 over rows, given as column name -> (n,) codes."""
        return np.asarray(self.functions(codes).sum(axis=1, dtype=np.int64))

    def evaluate(self, codes: Mapping[str, Codes]) -> Values:
        """The functions at m points, given as column name -> (m,) codes; in integer units."""
        return DenseValues(self.functions(codes).astype(np.float64, copy=False))

    @abstractmethod
    def sensitivity(self, unit: Unit) -> Sensitivity:
        """Sensitivity of sums to a row under a neighbour relation (eq. sensitivity-of-block)."""

    def derive(self, wanted: Block, *, complements: bool = True) -> Derivation | None:
        """How functions of `wanted` follow from this block's sums, if any do.

        By default those follow that both blocks hold. Without `complements`, only as sums: never as
        n minus a sum.
        """
        if wanted == self:
            return Derivation(np.arange(self.size), self.size)
        if type(wanted) is not type(self) or wanted.scope != self.scope:
            return None
        at = {key: f for f, key in enumerate(wanted.keys)}
        member = np.array([at.get(key, -1) for key in self.keys], dtype=np.int64)
        return Derivation(member, wanted.size) if np.any(member >= 0) else None

    def terms_of(self, wanted: Block, *, complements: bool = True) -> Codes | None:
        """(d,) number of this block's functions in each of `wanted`, as `derive` adds them."""
        derivation = self.derive(wanted, complements=complements)
        return None if derivation is None else derivation.terms

    def settles(self, wanted: Block) -> bool:
        """True if this was measured in place of `wanted`, in another basis or at a pilot."""
        return False

    def restrict(self, kept: NDArray[np.bool_]) -> Block:
        """A block with at least the functions marked in `kept`, (d,) bool.

        The block itself, unless fewer functions are known to have a smaller sensitivity.
        """
        return self

    def to_dict(self) -> dict[str, Any]:
        """Plain data from which `from_dict` builds the block again."""
        return {"kind": self.kind, "columns": [column.name for column in self.columns]}

    @classmethod
    @abstractmethod
    def from_dict(cls, plain: Mapping[str, Any], schema: Schema) -> Block:
        """Inverse of `to_dict`."""

    @cached_property
    def bounds(self) -> Codes:
        """B_f, the largest absolute value of each function, (d,) int64."""
        low, high = self.ranges
        return np.maximum(np.abs(low), np.abs(high))

    @property
    def pending(self) -> bool:
        """True if the functions are still to come from a first stage."""
        return False

    @property
    def calibrates(self) -> bool:
        """True if the functions only serve to estimate the sampling variances of others."""
        return False

    def noise_factor(self, budget: Budget, unit: Unit) -> int:
        """Ratio of the noise on these functions to that on others, in an equal split."""
        return 1

    def moved_by(self, neighbours: Neighbours) -> Sensitivity:
        """Sensitivity of the sums to one person: all that the block spends follows from it.

        The weights of replaced rows may change too. A norm of u g(x) - u' g(x') is convex in both
        weights, so it is largest where each is zero or the largest (eq. weighted-sensitivity).
        """
        of_row = self.sensitivity(neighbours.unit)
        if neighbours.copies > 1 and neighbours.unit == "replace":
            added = self.sensitivity("add_remove")
            l1, l2_squared = max(of_row.l1, added.l1), max(of_row.l2_squared, added.l2_squared)
            of_row = Sensitivity(l1, l2_squared)
        return neighbours.of_person(of_row, self.degree)

    def price(self, budget: Budget, neighbours: Neighbours) -> Fraction:
        """Exact amount that the block spends at a multiplier of one."""
        return budget.price(self.moved_by(neighbours))

    def relative_price(self, budget: Budget, neighbours: Neighbours) -> Fraction:
        """Price at noise `noise_factor` times as large: the part of the block in an equal split.

        Products of person totals, of degree 2, are priced at noise k times larger still, k the
        rows of a person.
        """

        def compute() -> Fraction:
            scale = neighbours.rows_per_person ** (self.degree - 1)
            scale *= self.noise_factor(budget, neighbours.unit)
            cheaper: int = scale ** POWERS[budget.noise]
            return self.price(budget, neighbours) / cheaper

        # A plan asks again for every way to split the budget.
        return self._once((budget.kind, neighbours), compute)

    def cost(self, budget: Budget, neighbours: Neighbours, multiplier: Fraction) -> Fraction:
        """Exact amount that the block spends with noise of this multiplier."""
        return budget.cost(self.moved_by(neighbours), multiplier)

    def multiplier(self, budget: Budget, neighbours: Neighbours, amount: Fraction) -> Fraction:
        """Multiplier of the noise at which the block spends `amount`."""
        return budget.multiplier(self.moved_by(neighbours), amount)

    def overflow(self, most: int) -> str:
        """Which function can exceed `most` in absolute value, and what to declare instead."""
        columns, cure = self._cure(int(self.bounds.argmax()), most)
        name = self.names[int(self.bounds.argmax())]
        return f"the grids of {columns} are too fine for sums of {name!r}: {cure}"

    def _cure(self, f: int, most: int) -> tuple[list[str], str]:
        """Columns that a function depends on, and how to keep it within `most`.

        Its bound is taken for a power of the steps of the numbers.
        """
        numbers = [column for column in self.columns if isinstance(column, Number)]
        if not numbers:
            return [column.name for column in self.columns], "use fewer columns in it"
        degree = math.log(int(self.bounds[f])) / sum(math.log(2 * n.half_points) for n in numbers)
        half = math.floor(most ** (1 / (degree * len(numbers))) * (0.5 - 1e-9))
        points = 2 * half + 1  # an even number would need twice as fine a grid
        return [n.name for n in numbers], f"declare them with at most points={points}"


@dataclass(frozen=True)
class Family:
    """Blocks in a fixed order; the test functions F of a release.

    Parameters
    ----------
    blocks : sequence of Block

    Raises
    ------
    RequestError
        For a family without functions.

    Examples
    --------
    >>> import dpstats as dps
    >>> schema = dps.Schema([dps.Boolean("smoker"), dps.Category("region", ["north", "south"])])
    >>> tables = dps.Cells.table(schema, ["smoker"]), dps.Cells.table(schema, ["region"])
    >>> family = dps.Family(tables)
    >>> family.names
    ['smoker=False', 'smoker=True', 'region=north', 'region=south']
    >>> family.sensitivity("replace").l1  # a row leaves one cell of each table and enters another
    Fraction(4, 1)
    """

    blocks: tuple[Block, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "blocks", tuple(self.blocks))
        if not self.blocks:
            raise RequestError("the family of test functions is empty; ask for an analysis")

    @property
    def size(self) -> int:
        """Number of test functions, |F|."""
        return sum(block.size for block in self.blocks)

    @property
    def names(self) -> list[str]:
        """Names of all functions, block by block."""
        return [name for block in self.blocks for name in block.names]

    @cached_property
    def bounds(self) -> Codes:
        """B_f of all functions, (|F|,) int64."""
        return np.concatenate([block.bounds for block in self.blocks])

    @property
    def column_names(self) -> frozenset[str]:
        """Names of the columns that some function depends on."""
        return frozenset(column.name for block in self.blocks for column in block.columns)

    @property
    def coded_columns(self) -> frozenset[str]:
        """Names of the columns whose codes matter, not only their levels or bins."""
        return frozenset(column.name for block in self.blocks for column in block.coded)

    def sensitivity(self, unit: Unit) -> Sensitivity:
        """Sum over blocks; a bound for the whole vector."""
        total = Sensitivity(Fraction(0), Fraction(0))
        for block in self.blocks:
            total = total + block.sensitivity(unit)
        return total

    @property
    def answering(self) -> Family:
        """The functions that answer: all but those that calibrate, unless there are no others."""
        kept = [block for block in self.blocks if not block.calibrates]
        return Family(tuple(kept)) if kept else self

    def sums(self, codes: Mapping[str, Codes]) -> list[Codes]:
        """Exact sums over rows, one (d,) int64 array per block."""
        return [block.sums(codes) for block in self.blocks]

    def evaluate(self, codes: Mapping[str, Codes]) -> FamilyValues:
        """All functions at m points, in the paper's scale."""
        return FamilyValues(tuple(block.evaluate(codes) for block in self.blocks), self.bounds)

    def signature(self, codes: Mapping[str, Codes]) -> list[Codes]:
        """Codes (m,) int64 per column: points that agree in all have equal function values."""
        coded = self.coded_columns
        columns = {c.name: c for block in self.blocks for c in block.columns}
        return [
            codes[name] if name in coded else columns[name].bins_of(codes[name])
            for name in sorted(columns)
        ]


@dataclass(frozen=True)
class DenseValues:
    """Function values at m points as a (d, m) float64 array."""

    array: Floats

    @property
    def size(self) -> int:
        """Number of functions."""
        return len(self.array)

    def at(self, points: NDArray[np.intp]) -> DenseValues:
        """Values at the chosen points."""
        return DenseValues(self.array[:, points])

    def average(self, weights: Floats) -> Floats:
        """(d,) weighted sums."""
        return self.array @ weights

    def combine(self, coefficients: Floats) -> Floats:
        """(m,) combinations."""
        return coefficients @ self.array

    def matrix(self) -> csr_array[Any]:
        """(d, m) sparse matrix."""
        from scipy import sparse

        return sparse.csr_array(self.array)


def of_weight_one(unit: Unit) -> Sensitivity:
    """Sensitivity of functions that are not negative and add up to one at most, as cells do.

    See eq. weight-of-one.
    """
    times = Fraction(2 if unit == "replace" else 1)
    return Sensitivity(times, times)


def noise_ratio(price: Fraction, allowed: Fraction, budget: Budget) -> int:
    """Smallest ratio of noise scales at which functions of this price cost at most `allowed`."""
    ratio = math.ceil(price / allowed)
    return math.isqrt(ratio - 1) + 1 if POWERS[budget.noise] == 2 else ratio


@dataclass(frozen=True)
class FamilyValues:
    """All functions of a family at m points, in the paper's scale f = g / B."""

    parts: tuple[Values, ...]
    bounds: Codes

    def average(self, weights: Floats) -> Floats:
        """A h: the (|F|,) weighted means of the functions, for weights (m,) that sum to one."""
        return np.concatenate([part.average(weights) for part in self.parts]) / self.bounds

    def combine(self, coefficients: Floats) -> Floats:
        """A' y: the (m,) combinations of the functions at each point."""
        scaled = coefficients / self.bounds
        total: Floats | None = None
        start = 0
        for part in self.parts:
            piece = part.combine(scaled[start : start + part.size])
            total = piece if total is None else total + piece
            start += part.size
        assert total is not None  # a family has at least one block
        return total

    def at(self, points: NDArray[np.intp]) -> FamilyValues:
        """The functions at some of the points."""
        return FamilyValues(tuple(part.at(points) for part in self.parts), self.bounds)

    def matrix(self) -> csr_array[Any]:
        """A: the (|F|, m) sparse matrix of function values."""
        from scipy import sparse

        stacked = sparse.vstack([part.matrix() for part in self.parts], format="csr")
        scaled: csr_array[Any] = sparse.diags_array(1.0 / self.bounds) @ stacked
        return scaled
