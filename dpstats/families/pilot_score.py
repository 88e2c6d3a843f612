"""The score of a generalised linear model at a pilot: the second stage of a regression.

A score E x (y - mean(x'b)) is no polynomial, so that moments and tables determine it in part only.
Once noisy answers give a pilot b0, its p functions at b0 can be measured themselves (eq. 9 of
docs/explanation/regression/logistic-regression.md).
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpstats.arrays import Codes, Floats
from dpstats.errors import RequestError
from dpstats.families.block import Block
from dpstats.families.features import (
    Feature,
    Term,
    alternatives,
    feature_name,
    is_level,
    known_features,
)
from dpstats.families.moments import TermBlock, terms_and_given, used_columns
from dpstats.families.subgroups import Subgroup, plain_given, require_answered, suffix_of
from dpstats.privacy.neighbours import Sensitivity, Unit
from dpstats.schema import Column, Number, Schema

UNIT = 2**16  # steps of the residual, and of the coefficients of a pilot
LARGEST = 2**8  # coefficient of a pilot, in unit scale
_STEPS, _FURTHEST = 2**10, 2**5  # of the predictor: steps in one, and where the mean is cut off
_MOST = 2**38  # product of grids: times a coefficient it stays below 2^62
_LINKS = ("logit", "log", "identity")
_WIDEST = 2**3  # at which residuals are cut off, in unit scale


@dataclass(frozen=True)
class PilotScore(TermBlock):
    """Products of features times the residual of a response at a pilot.

    Notes
    -----
    With t a term in [-1, 1], y the response and s = min(mean(x'b0), M), each over M, the functions
    are t (y - s), rounded towards zero to 1/65536. Predictor, mean and product are whole numbers
    from codes and one table of means, so that a row adds the same whatever rows are beside it.

    With the identity link y - s is cut off at c and divided by c, so it is at most one in size too.
    """

    columns: tuple[Column, ...]  # those of the terms, of the response and of the condition
    # products of features as in `Moments`, the constant () among them if there is one
    terms: tuple[Term, ...]
    # the indicator of a level, or a number of at least 0, in units of its upper bound M; with the
    # identity link a number in unit scale
    response: Feature
    link: str  # {"logit", "log", "identity"}
    given: Subgroup | None = None  # the rows that the sums are over
    # coefficients of the terms in units of 1 / 65536, for a response in original units, or with the
    # identity link in unit scale. None while they are not known; then they count as zero
    pilot: tuple[int, ...] | None = None
    # where residuals are cut off with the identity link, in units of 1 / 65536 of the unit scale
    clip: int | None = None

    kind: ClassVar[str] = "pilot_score"

    def __post_init__(self) -> None:
        by_name = {column.name: column for column in self.columns}
        name, level = self.response
        column = by_name.get(name)
        features = set(itertools.chain.from_iterable(self.terms))
        pilot = self.pilot if self.pilot is not None else (0,) * len(self.terms)
        if (
            not self.has_terms()
            or self.response not in known_features(self.columns)
            or name in {used for used, _ in features}
            or self.link not in _LINKS
            or (level is None and not isinstance(column, Number))
            or (self.link != "identity" and (self.link == "logit") != (level is not None))
            or (self.link == "log" and column is not None and _values(column)[0] < 0)
            or (self.clip is not None) != (self.link == "identity" and self.pilot is not None)
            or not (self.clip is None or type(self.clip) is int)
            or not (self.clip is None or 1 <= self.clip <= _WIDEST * UNIT)
            or len(pilot) != len(self.terms)
            or not all(type(c) is int and abs(c) <= LARGEST * UNIT for c in pilot)
        ):
            raise RequestError(
                "a second stage needs distinct terms, each a product of numbers and of levels of "
                "other columns than the response, a link that fits the response, and as many "
                "coefficients of the pilot as terms, none beyond its limit"
            )
        if max(self._grids) > _MOST:
            raise RequestError("the grids are too fine for these products; use fewer points")
        require_answered([c for c in self.columns if (c.name, None) in features], self.given)
        require_answered([by_name[name]], self.given)

    @staticmethod
    def of(
        schema: Schema,
        terms: Sequence[Term],
        response: Feature,
        link: str,
        given: Subgroup | None = None,
    ) -> PilotScore:
        """Score whose pilot is not known yet; its columns are in the order of the schema."""
        columns = used_columns(schema, [*terms, (response,)], given)
        return PilotScore(columns, tuple(terms), response, link, given)

    def at(self, coefficients: Floats, clip: float = 1.0) -> PilotScore:
        """Score at a pilot: coefficients (d,) of the terms, clipped where they are too large.

        With the identity link residuals are cut off at `clip`, in unit scale.
        """
        inside = np.clip(np.nan_to_num(coefficients), -LARGEST, LARGEST)
        pilot = tuple(np.rint(inside * UNIT).astype(np.int64).tolist())
        steps = round(float(np.clip(np.nan_to_num(clip), 1 / UNIT, _WIDEST)) * UNIT)
        return replace(self, pilot=pilot, clip=steps if self.link == "identity" else None)

    @property
    def pending(self) -> bool:
        """True if the pilot is not known yet."""
        return self.pilot is None

    @property
    def unit(self) -> float:
        """Residual at which the functions are one: of a line in unit scale, else as measured."""
        if self.link == "log":
            return float(_values(self._response)[-1])
        return 1.0 if self.clip is None else self.clip / UNIT

    @property
    def _response(self) -> Column:
        return next(column for column in self.columns if column.name == self.response[0])

    @property
    def coded(self) -> tuple[Column, ...]:
        """The numbers among terms and response."""
        used = {number.name for number in self.numbers}
        used |= {self.response[0]} if self.response[1] is None else set()
        return tuple(column for column in self.columns if column.name in used)

    @property
    def ranges(self) -> tuple[Codes, Codes]:
        """From -65536 to 65536."""
        high = np.full(self.size, UNIT, dtype=np.int64)
        return -high, high

    @property
    def names(self) -> list[str]:
        """Such as ``score of age*region=north``; files hold them, a square as ``age*age``."""
        labels = {column.name: column.bin_labels for column in self.columns}
        return [
            "score of "
            + ("*".join(feature_name(f, labels[f[0]]) for f in term) or "1")
            + suffix_of(self.given)
            for term in self.terms
        ]

    @cached_property
    def _grids(self) -> list[int]:
        """Largest value of each term, in integer units."""
        return self.largest_of(self.terms)

    @cached_property
    def _responses(self) -> Codes:
        """Response in steps by its code (shifted to start at 0), or by its bin."""
        level, column = self.response[1], self._response
        if level is not None:
            return np.asarray(UNIT * np.equal(np.arange(column.bins), level), dtype=np.int64)
        values = _values(column)
        if self.link == "identity":
            assert isinstance(column, Number)
            values = np.arange(-column.half_points, column.half_points + 1, dtype=np.float64)
        return np.asarray(np.rint(values / values[-1] * UNIT), dtype=np.int64)

    @cached_property
    def _means(self) -> Codes:
        """Mean in steps at every step of the predictor."""
        predictor = np.arange(-_FURTHEST * _STEPS, _FURTHEST * _STEPS + 1) / _STEPS
        top = 1.0
        if self.response[1] is None:
            top = float(_values(self._response)[-1])
        odds = np.exp(predictor)
        means = odds / (1 + odds) if self.link == "logit" else np.minimum(odds / top, 1.0)
        return np.asarray(np.rint(means * UNIT), dtype=np.int64)

    def functions(self, codes: Mapping[str, Codes]) -> NDArray[np.int64]:
        """Values (d, n) in integer units; every step is exact in 64 bits."""
        terms = self.values(codes, np.int64)
        predictor = np.zeros(terms.shape[1], dtype=np.int64)
        pilot = self.pilot if self.pilot is not None else (0,) * self.size
        for row, coefficient, grid in zip(terms, pilot, self._grids, strict=True):
            predictor += row * coefficient // grid
        column, own = self._response, codes[self.response[0]]
        place = column.bins_of(own)
        if self.response[1] is None:
            assert isinstance(column, Number)
            place = np.clip(own + column.half_points, 0, 2 * column.half_points)
        if self.link == "identity":
            clip = UNIT if self.clip is None else self.clip
            residual = np.clip(self._responses[place] - predictor, -clip, clip)
            residual = np.sign(residual) * (np.abs(residual) * UNIT // clip)
        else:
            step = np.clip(predictor // (UNIT // _STEPS), -_FURTHEST * _STEPS, _FURTHEST * _STEPS)
            residual = self._responses[place] - self._means[step + _FURTHEST * _STEPS]
        terms *= residual
        found = np.sign(terms) * (np.abs(terms) // np.array(self._grids)[:, np.newaxis])
        return np.asarray(np.clip(found, -UNIT, UNIT))

    def sensitivity(self, unit: Unit) -> Sensitivity:
        """Sensitivity at any pilot; less without numbers (eq. score-without-numbers).

        Then rows with the same levels change every set of alternatives by at most one, but for the
        identity link; rows with other levels of a column move two terms of the sets with it. See
        ``docs/explanation/privacy/sensitivity.md``, "Score at a pilot".
        """
        sets = alternatives(self.terms)
        k = len(sets)
        if unit == "add_remove":
            return Sensitivity(Fraction(k), Fraction(k))
        l1, l2_squared = 2 * k, 4 * k
        levels = all(is_level(feature) for term in self.terms for feature in term)
        if levels and self.link != "identity":
            groups = {name for _, names in sets for name in names}
            touched = [
                [min(2, count) for (_, names), count in sets.items() if group in names]
                for group in groups
            ]
            l1 = max([k, *(2 * (k - len(some)) + sum(some) for some in touched)])
            l2_squared = max([k, *(4 * (k - len(some)) + sum(some) for some in touched)])
        return Sensitivity(Fraction(l1), Fraction(l2_squared))

    def settles(self, wanted: Block) -> bool:
        """True if this block is `wanted` once its pilot is known."""
        return self.pilot is not None and wanted == replace(self, pilot=None, clip=None)

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "kind": self.kind,
            "terms": self.plain_terms,
            "response": list(self.response),
            "link": self.link,
            "pilot": None if self.pilot is None else list(self.pilot),
            **({} if self.clip is None else {"clip": self.clip}),
            **plain_given(self.given),
        }

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any], schema: Schema) -> PilotScore:
        """Inverse of `to_dict`."""
        terms, given = terms_and_given(plain, schema)
        name, level = plain["response"]
        block = cls.of(schema, terms, (str(name), level), str(plain["link"]), given)
        if plain["pilot"] is None:
            return block
        return replace(block, pilot=tuple(plain["pilot"]), clip=plain.get("clip"))


def _values(column: Column) -> Floats:
    """Values of a number at every code, as regressions take them."""
    assert isinstance(column, Number)
    codes = np.arange(-column.half_points, column.half_points + 1)
    return np.asarray(column.middle + column.half_range * codes / column.half_points)
