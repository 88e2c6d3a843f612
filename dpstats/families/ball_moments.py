"""First and second moments of rows that are shrunk to a public Euclidean norm."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpstats.arrays import Codes, Floats
from dpstats.checks import columns_named, first_few, short, shortest_decimal
from dpstats.errors import FileFormatError, RequestError
from dpstats.families.block import Block
from dpstats.families.features import Term
from dpstats.families.moments import Moments
from dpstats.families.subgroups import require_answered
from dpstats.privacy.neighbours import Sensitivity, Unit
from dpstats.privacy.rationals import parse_fraction
from dpstats.schema import Number, Schema

RADIUS = 2**13
"""The radius of the ball in integer units: how finely rows are coded."""

_CROSS = math.isqrt(RADIUS**4 // 2) + 1  # at least RADIUS^2 / sqrt(2)
_MEAN = 2 * RADIUS
_SHRUNK = 4
_FARTHEST = 2**24  # of a coordinate before it is shrunk, so that no int64 overflows


@dataclass(frozen=True)
class BallMoments(Block):
    """Sums of w_i and w_i w_j, where w is a row of p numbers, shrunk into the unit ball.

    The number of shrunk rows is measured too, at little cost: it cannot be estimated otherwise.

    Each number is centred and divided, z = (x - center) / scale, and the row is shrunk to the
    norm R = `clip_norm`: w = z / max(R, |z|) (eq. shrunk-row of
    docs/explanation/inference/moments.md). Built by `BallMoments.of`.

    Rows are integers y, about w times `RADIUS`. Each z / R is rounded to the nearest such integer,
    by a table of the column's codes; a longer row is multiplied by RADIUS / |y|, with |y| rounded
    up and the quotient towards zero, in int64, so y'y <= RADIUS^2 always. Integers alone: the same
    sums on every engine.

    The noise of a function is in proportion to its bound B: 2 for a mean, 1 for a square and
    1/sqrt(2) for a product, in the unit of w. The noise on the matrix of second moments thus has
    twice the variance on the diagonal and the same law (to second order) in every basis; that of
    the means is twice as large, as they enter a covariance multiplied by the distance of the mean
    from the centre. B is 4 for the number of shrunk rows.

    Attributes
    ----------
    numbers : tuple of Number
        In the order of the schema, each with `missing=`.
    center, scale : tuple of Fraction
        Public; original units, one per number. Scales are positive.
    clip_norm : Fraction
        Positive; in units of the scales.

    Raises
    ------
    RequestError

    Examples
    --------
    >>> import dpstats as dps
    >>> schema = dps.Schema([dps.Number(name, 0, 100, missing=40) for name in ("age", "pay")])
    >>> dps.BallMoments.of(schema, ["age", "pay"], clip_norm=1).size
    6
    """

    numbers: tuple[Number, ...]
    center: tuple[Fraction, ...]
    scale: tuple[Fraction, ...]
    clip_norm: Fraction

    kind: ClassVar[str] = "ball_moments"

    def __post_init__(self) -> None:
        if self.clip_norm <= 0 or min(self.scale) <= 0:
            raise RequestError("clip_norm and all scales must be positive numbers")
        require_answered(self.numbers, None)
        for number, center, codes in zip(self.numbers, self.center, self._table, strict=True):
            middle, half = _middle_and_half(number)
            if abs(center - middle) > half:
                raise RequestError(
                    f"the center of {number.name!r} is {float(center):g}, outside its declared "
                    f"bounds {number.low:g} and {number.high:g}; give one between them"
                )
            if np.abs(codes).max() > _FARTHEST:
                raise RequestError(
                    f"clip_norm={float(self.clip_norm):g} is too small relative to the bounds of "
                    f"{number.name!r}; give a larger one, a larger scale or tighter bounds"
                )

    @staticmethod
    def of(
        schema: Schema,
        numbers: Sequence[str],
        clip_norm: float | Fraction,
        center: Mapping[str, float | Fraction] | None = None,
        scale: Mapping[str, float | Fraction] | None = None,
    ) -> BallMoments:
        """The moments of some numbers.

        Parameters
        ----------
        schema : Schema
        numbers : sequence of str
        clip_norm : float
        center, scale : mapping of names to numbers, optional
            Original units; by default the middle and half the width of the declared bounds. A
            float is read as its shortest decimal.
        """
        if missing := [name for name in numbers if schema[name].allow_missing]:
            raise RequestError(
                f"clip_norm= shrinks whole rows, and {columns_named(missing)} may be missing in "
                "some (allow_missing=True in the schema); declare missing= instead, the value that "
                "missing cells count as, or drop clip_norm= to use the rows that have all values"
            )
        columns = Moments.of(schema, numbers, degree=1).numbers  # checks the columns
        given = [dict(center or {}), dict(scale or {})]
        for what, values in zip(("center", "scale"), given, strict=True):
            refuse_unknown(what, values, [c.name for c in columns])
        centers, scales = [], []
        for column in columns:
            middle, half = _middle_and_half(column)
            centers.append(shortest_decimal(given[0].get(column.name, middle)))
            scales.append(shortest_decimal(given[1].get(column.name, half)))
        return BallMoments(columns, tuple(centers), tuple(scales), shortest_decimal(clip_norm))

    @property
    def columns(self) -> tuple[Number, ...]:
        """The numbers."""
        return self.numbers

    @property
    def squared_reach(self) -> Fraction:
        """The square of the largest norm of a row within the bounds, in units of the scales."""
        farthest = []
        for number, center, scale in zip(self.numbers, self.center, self.scale, strict=True):
            middle, half = _middle_and_half(number)
            farthest.append((abs(center - middle) + half) / scale)
        return sum((one**2 for one in farthest), Fraction(0))

    @cached_property
    def terms(self) -> tuple[Term, ...]:
        """Numbers, then products of two, squares too, as in `Moments`; () for a shrunk row."""
        features = [(c.name, None) for c in self.numbers]
        pairs = itertools.combinations_with_replacement(features, 2)
        return (*((feature,) for feature in features), *pairs, ())

    @property
    def size(self) -> int:
        """Number of functions, p + p (p + 1) / 2 + 1."""
        return len(self.terms)

    @property
    def names(self) -> list[str]:
        """Such as ``clipped age*income``."""
        names = ["*".join(name for name, _ in term) for term in self.terms]
        return [f"clipped {name or 'rows'}" for name in names]

    @cached_property
    def _kinds(self) -> Codes:
        """(d,) int64: 0 for a mean, 1 for a square, 2 for a product, 3 for a shrunk row."""
        return np.array([3 if not t else len(t) - 1 + (t[0] != t[-1]) for t in self.terms])

    @property
    def ranges(self) -> tuple[Codes, Codes]:
        """Plus and minus 2, 1 and 1/sqrt(2) in integer units, and 4; squares are not negative.

        Wider than what most functions reach: the share of the noise that each gets.
        """
        high = np.array([_MEAN, RADIUS**2, _CROSS, _SHRUNK])[self._kinds]
        return np.where(self._kinds % 2 == 1, 0, -high), high

    @cached_property
    def ones(self) -> Codes:
        """(d,) int64, one in the unit of w, in integer units."""
        return np.array([RADIUS, RADIUS**2, RADIUS**2, 1])[self._kinds]

    @cached_property
    def _table(self) -> list[Codes]:
        """Integer coordinates (points,) int64 of the codes -K..K of every number, not shrunk."""
        tables = []
        for column, center, scale in zip(self.numbers, self.center, self.scale, strict=True):
            middle, half = _middle_and_half(column)
            unit = RADIUS / (scale * self.clip_norm)
            slope, start = unit * half / column.half_points, unit * (middle - center)
            # floor(slope c + start + 1/2), exactly
            q = math.lcm(2, slope.denominator, start.denominator)
            a, b = int(slope * q), int(start * q) + q // 2
            codes = np.arange(-column.half_points, column.half_points + 1)
            if max(q, abs(a) * column.half_points + abs(b)) >= 2**62:
                codes = codes.astype(object)  # Python's integers, of any size
            limit = 2 * _FARTHEST  # beyond it the block is refused
            tables.append(np.clip((a * codes + b) // q, -limit, limit).astype(np.int64))
        return tables

    def origin_and_spread(self, name: str) -> tuple[float, float]:
        """The centre of a number, and its scale times R: the original units in w_i = 1."""
        i = [column.name for column in self.numbers].index(name)
        return float(self.center[i]), float(self.scale[i] * self.clip_norm)

    def coordinates(self, codes: Mapping[str, Codes]) -> Floats:
        """Rows z / R (p, n) before they are shrunk."""
        return np.asarray(self._integers(codes) / RADIUS)

    def _integers(self, codes: Mapping[str, Codes]) -> Codes:
        pairs = zip(self.numbers, self._table, strict=True)
        return np.stack([table[codes[c.name] + c.half_points] for c, table in pairs])

    def rows(self, codes: Mapping[str, Codes]) -> Codes:
        """The rows y, (p, n) int64, in the ball of radius `RADIUS`."""
        return self._shrunk(codes)[0]

    def _shrunk(self, codes: Mapping[str, Codes]) -> tuple[Codes, NDArray[np.bool_]]:
        """Rows y (p, n) in the ball, and (n,) True for those that were shrunk into it."""
        rows = self._integers(codes)
        squares = (rows * rows).sum(axis=0)
        outside = squares > RADIUS**2
        far, norm = rows[:, outside], _root_rounded_up(squares[outside])
        rows[:, outside] = np.sign(far) * (np.abs(far) * RADIUS // norm)
        return rows, outside

    def sums(self, codes: Mapping[str, Codes]) -> Codes:
        """Sums (d,) int64: a Gram matrix, exact in float64 as batches hold fewer than 2^27 rows."""
        rows, outside = self._shrunk(codes)
        floats = rows.astype(np.float64)
        products = (floats @ floats.T)[np.triu_indices(len(rows))].astype(np.int64)
        return np.concatenate([rows.sum(axis=1), products, [np.count_nonzero(outside)]])

    def functions(self, codes: Mapping[str, Codes]) -> Codes:
        """Values (d, n) int64."""
        rows, outside = self._shrunk(codes)
        i, j = np.triu_indices(len(rows))
        return np.vstack([rows, rows[i] * rows[j], outside])

    def sensitivity(self, unit: Unit) -> Sensitivity:
        """A rational bound; exact for squared L2 if p >= 2, but for rounding.

        See eq. ball-l1 and ball-l2, and ball-added for adding or removing a row, of
        ``docs/explanation/privacy/sensitivity.md``.
        """
        p = len(self.numbers)
        shrunk = Sensitivity(Fraction(1, _SHRUNK), Fraction(1, _SHRUNK**2))
        k = Fraction(RADIUS, _MEAN) ** 2
        if unit == "add_remove":
            product = Fraction(RADIUS**2, 2 * _CROSS)  # of w_i w_j with both orders counted
            l1 = Fraction(RADIUS, _MEAN) * _root(Fraction(p)) + 1 + (p - 1) * product
            return Sensitivity(l1, 1 + k) + shrunk
        weighted = (
            (p * k / part + Fraction(p * (p + 1), 2)) * (2 + part) ** 2 / 2
            for part in (Fraction(i, 64) for i in range(1, 129))  # t k
        )
        return Sensitivity(_root(min(weighted)), (2 + k) ** 2 / 2) + shrunk

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "kind": self.kind,
            "numbers": [column.name for column in self.numbers],
            "center": [str(value) for value in self.center],
            "scale": [str(value) for value in self.scale],
            "clip_norm": str(self.clip_norm),
        }

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any], schema: Schema) -> BallMoments:
        """Inverse of `to_dict`."""
        names = plain["numbers"]
        try:
            center, scale = (
                dict(zip(names, map(_fraction, plain[what]), strict=True))
                for what in ("center", "scale")
            )
            clip_norm = _fraction(plain["clip_norm"])
        except (AttributeError, TypeError, ValueError):
            raise FileFormatError(
                "centers, scales and the norm of clipped moments must be numbers, one per column"
            ) from None
        return BallMoments.of(schema, names, clip_norm, center, scale)


def _fraction(text: str) -> Fraction:
    """A rational as `to_dict` writes it; ValueError for other text, such as 1e99999999."""
    exact = parse_fraction(text.removeprefix("-"))
    if exact is None:
        raise ValueError(f"{short(text)} is not a fraction")
    return -exact if text.startswith("-") else exact


def refuse_unknown(what: str, values: Iterable[str], columns: Sequence[str]) -> None:
    """Raise RequestError if a centre or scale is of a column that the analysis does not have."""
    if unknown := [name for name in values if name not in columns]:
        raise RequestError(
            f"{what}= names {columns_named(unknown)}, not among the numbers of the analysis, "
            f"{first_few(columns)}; correct the name or leave it out"
        )


def _middle_and_half(column: Number) -> tuple[Fraction, Fraction]:
    low, high = (shortest_decimal(end) for end in (column.low, column.high))  # type: ignore[arg-type]
    return (low + high) / 2, (high - low) / 2


def _root(value: Fraction) -> Fraction:
    """Square root, rounded up to a multiple of 2^-20."""
    scaled = value * 2**40
    whole = -(-scaled.numerator // scaled.denominator)
    return Fraction(math.isqrt(whole - 1) + 1, 2**20)


def _root_rounded_up(squares: Codes) -> Codes:
    """Smallest integers (or one more) with at least these squares, (n,) int64 below 2^62."""
    root = np.ceil(np.sqrt(squares.astype(np.float64))).astype(np.int64)
    return root + (root * root < squares)
