"""From a design to the second moments that least squares needs, in a basis of good scale."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from dpstats.analyses.regression.least_squares import FourthMoments, PersonScores
from dpstats.arrays import Floats
from dpstats.errors import NotMeasuredError, RequestError
from dpstats.families.ball_moments import BallMoments
from dpstats.families.block import Block
from dpstats.families.features import Feature, Term, is_level, product
from dpstats.families.formula import Design
from dpstats.families.moments import COARSE_STEPS, Moments
from dpstats.families.persons import PersonMoments
from dpstats.families.subgroups import Subgroup
from dpstats.inference.moment_matrix import (
    ZERO,
    MomentMatrix,
    NoisyMatrix,
    moments_block,
    places_of,
)
from dpstats.inference.person_forms import measured_totals
from dpstats.schema import Number, Schema

if TYPE_CHECKING:
    import pandas as pd

    from dpstats.measured.answers import Answers
    from dpstats.measured.view import ReleaseView

_MOST_NUMBERS = 4
_MOST_PRODUCTS = 2_000

V = TypeVar("V", float, Fraction)
Expansion = dict[Any, Fraction]  # a sum of products of features, by term


@dataclass(frozen=True)
class DesignMoments:
    """Regressors and response as combinations of features in unit scale.

    The basis is a reduced echelon form of the regressors in products of unit values and levels,
    found in exact arithmetic (eq. 1 of docs/explanation/regression/ols.md); the products themselves
    where as many occur as there are regressors, which keeps worst-case bounds narrow.
    """

    schema: Schema
    design: Design
    # The rows that the moments are of. Their number is one of the measured functions.
    given: Subgroup | None = None
    # Whether coefficients are penalised: the basis then has the baselines of the formula, and is
    # the products, or else the regressors over the sum of their coefficients.
    penalty: bool = False
    # Regressors and response are of rows shrunk to a norm; the unit of a number is then its scale
    # times that norm.
    ball: BallMoments | None = None

    @classmethod
    def of(
        cls, schema: Schema, formula: str, condition: str | None = None, *, penalty: bool = False
    ) -> DesignMoments:
        """Moments of the rows with a condition, a response and all numbers of a formula."""
        design = Design.of(formula, schema)
        factors = [f for regressor in design.regressors for f in regressor.factors]
        numbers = [name for name, level in factors if level is None]
        given = Subgroup.of(schema, condition, [*numbers, design.response[0]])
        return cls(schema, design, given, penalty)

    def in_ball(
        self,
        clip_norm: float,
        center: Mapping[str, float] | None = None,
        scale: Mapping[str, float] | None = None,
    ) -> DesignMoments:
        """Moments of rows of regressors and response that are shrunk together to a norm."""
        factors = [(self.design.response,), *(r.factors for r in self.design.regressors)]
        for used in factors:
            if len(used) > 1 or (used and used[0][1] is not None):
                names = sorted({name for name, _ in used})
                raise RequestError(
                    "clip_norm shrinks rows of numbers, and this formula has "
                    + (f"a product of {names}" if len(used) > 1 else f"levels of {names[0]!r}")
                    + ": leave that out, or clip_norm="
                )
        names = [factor[0][0] for factor in factors if factor]
        ball = BallMoments.of(self.schema, names, clip_norm, center, scale)
        return replace(self, given=None, ball=ball)

    def _origin_and_spread(self, feature: Feature) -> tuple[float, float]:
        """Value at unit value zero, and of one unit; 0 and 1 for a level."""
        name, level = feature
        if self.ball is not None:
            return self.ball.origin_and_spread(name)
        if level is not None:
            return 0.0, 1.0
        column = self.schema[name]
        assert isinstance(column, Number)  # see `Design.of`
        return column.middle, column.half_range

    def _size(self, factors: Term) -> float:
        """Divisor of a product with which `_expanded` has small whole coefficients."""
        ends = map(self._origin_and_spread, factors)
        return math.prod(abs(origin) or spread for origin, spread in ends)

    def _step(self, term: Term) -> float:
        """Factor of such a coefficient of a product of unit values."""
        ends = map(self._origin_and_spread, term)
        return math.prod(spread / (abs(origin) or spread) for origin, spread in ends)

    @cached_property
    def _regressors(self) -> list[Expansion]:
        """Regressors over their `_size`, each coefficient to be multiplied by its `_step`."""
        expansions = [
            self._expanded(regressor.factors, () if self.penalty else regressor.first)
            for regressor in self.design.regressors
        ]
        return expansions if self.penalty else self._without_redundant(expansions)

    def _expanded(self, factors: Term, first: Term = ()) -> Expansion:
        """A product of features; a first level in `first` is one minus the other levels."""
        expanded: Expansion = {(): Fraction(1)}
        for factor in factors:
            parts: Expansion = {(factor,): Fraction(1)}
            if factor in first:
                others = range(1, self.schema[factor[0]].bins)
                parts = {(): Fraction(1)} | {((factor[0], k),): Fraction(-1) for k in others}
            elif origin := self._origin_and_spread(factor)[0]:
                parts = {(): Fraction(1 if origin > 0 else -1), **parts}
            expanded = multiplied(expanded, parts)
        return expanded

    def _without_redundant(self, expansions: list[Expansion]) -> list[Expansion]:
        """Expansions without first levels, in products of which all levels and their sum occur."""
        used = {term for expansion in expansions for term in expansion}
        firsts = {f for term in used for f in term if is_level(f) and f[1] == 0}
        for first in sorted(firsts, key=str):
            others = [(first[0], level) for level in range(1, self.schema[first[0]].bins)]
            for term in sorted((t for t in used if first in t), key=len):
                rest = tuple(f for f in term if f != first)
                terms = [product(rest, (other,)) for other in others]
                if rest not in used or not used.issuperset(terms):
                    continue
                for expansion in expansions:
                    if by := expansion.pop(term, None):
                        _add(expansion, by, {rest: Fraction(1)})
                        _add(expansion, -by, dict.fromkeys(terms, Fraction(1)))
                used.remove(term)
        return expansions

    @cached_property
    def _echelon(self) -> tuple[list[Expansion], list[Expansion], int | None]:
        """The basis, how it is made of the regressors, and which member is about constant."""
        order = sorted(range(len(self._regressors)), key=lambda i: len(self._factors[i]))
        terms = {term for expansion in self._regressors for term in expansion}
        reduced = _reduced(self._regressors, order, {term: self._step(term) for term in terms})
        members = [{t: v for t, v in row.items() if not isinstance(t, int)} for _, row in reduced]
        made = [{t: v for t, v in row.items() if isinstance(t, int)} for _, row in reduced]
        if self.penalty and any(len(member) > 1 for member in members):
            members = self._regressors
            made = [{i: Fraction(1)} for i in range(len(members))]
            constants = [i for i, member in enumerate(members) if member.keys() == {()}]
        else:
            constants = [i for i, (pivot, _) in enumerate(reduced) if pivot == ()]
        return members, made, (constants[0] if constants else None)

    @property
    def _factors(self) -> list[Term]:
        return [regressor.factors for regressor in self.design.regressors]

    @cached_property
    def _response(self) -> dict[Term, float]:
        """The response over its half range, without what the constant of the basis absorbs."""
        response = self.design.response
        origin, spread = self._origin_and_spread(response)
        parts: dict[Term, float] = {(response,): 1.0}
        if origin:
            parts[()] = origin / spread
            members, _, constant = self._echelon
            if constant is not None:
                by = parts[()]
                for term, value in members[constant].items():
                    parts[term] = parts.get(term, 0.0) - by * float(value) * self._step(term)
                del parts[()]
        return parts

    @property
    def half_range(self) -> float:
        """Half the range of the response, 1 if it is an indicator; its unit in the ball."""
        return self._origin_and_spread(self.design.response)[1]

    @cached_property
    def features(self) -> list[Term]:
        """The q products of features that occur; the constant, if there, is ()."""
        every: dict[Term, None] = dict.fromkeys(t for e in self._regressors for t in e)
        every |= dict.fromkeys(self._response)
        if self.ball is not None:
            every[()] = None  # the first of every `MomentMatrix`
        return sorted(every, key=len)

    def _coefficients(self, expansions: Iterable[Mapping[Term, Any]]) -> Floats:
        """(k, q) of expansions in the features, from coefficients times steps."""
        at = {term: i for i, term in enumerate(self.features)}
        rows = [[(at[term], float(value)) for term, value in e.items()] for e in expansions]
        matrix = np.zeros((len(rows), len(at)))
        for row, entries in zip(matrix, rows, strict=True):
            for i, value in entries:
                row[i] = value
        return matrix

    @cached_property
    def _steps(self) -> Floats:
        """(q,) of the features."""
        return np.array([self._step(term) for term in self.features])

    @cached_property
    def _basis(self) -> tuple[Floats, Floats]:
        """The basis (p, q) as features, and as the regressors (p, p)."""
        members, made, _ = self._echelon
        basis = self._coefficients(members) * self._steps
        of_regressors = np.zeros((len(made), len(made)))
        for row, expansion in zip(of_regressors, made, strict=True):
            row[list(expansion)] = [float(value) for value in expansion.values()]
        of_regressors /= [self._size(factors) for factors in self._factors]
        lengths = np.abs(basis).sum(axis=1, keepdims=True)
        return basis / lengths, of_regressors / lengths

    @property
    def regressor_terms(self) -> tuple[list[Term], Floats]:
        """The products of features in the regressors, and the basis (p, t) in them."""
        basis = self._basis[0]
        used = np.flatnonzero(np.any(basis != 0, axis=0))
        return [self.features[i] for i in used], basis[:, used]

    @cached_property
    def constant(self) -> Floats | None:
        """The constant one as a combination (q,) of the features, if the regressors span it."""
        if self.design.constant is None:
            return None
        own = self._regressors[self.design.constant]  # levels, or the constant
        return np.asarray(self._coefficients(own).sum(axis=0))

    @cached_property
    def rows(self) -> Floats:
        """(p + 1, q): the basis, then the response in unit scale, as combinations of features."""
        return np.vstack([self._basis[0], self._coefficients([self._response])])

    def regressors_at(self, values: Mapping[str, Floats]) -> Floats:
        """(m, p) the basis at m points by column: numbers in unit scale, others by their bins."""
        return np.asarray(self.terms_at(values) @ self.regressor_terms[1].T)

    def terms_at(self, values: Mapping[str, Floats]) -> Floats:
        """(m, t) products of features at the same points."""
        used = dict.fromkeys(feature for term in self.regressor_terms[0] for feature in term)
        of = {f: values[f[0]] if f[1] is None else values[f[0]] == f[1] for f in used}
        return self._products_of(of, len(next(iter(values.values()))))

    def _products_of(self, values: Mapping[Any, Any], size: int) -> Floats:
        """(m, t) products of m values of each feature."""
        terms = self.regressor_terms[0]
        columns = [math.prod((values[f] for f in term), start=np.ones(size)) for term in terms]
        return np.stack(columns, axis=1)

    def at(self, exog: pd.DataFrame | Mapping[str, Any] | None) -> Floats:
        """(m, p) the basis at values of the columns in original units."""
        features = dict.fromkeys(f for term in self.regressor_terms[0] for f in term)
        values = self.design.values(exog, self.schema, features)
        for feature in features:
            origin, spread = self._origin_and_spread(feature)
            values[feature] = (values[feature] - origin) / spread
        products = self._products_of(values, len(next(iter(values.values()))))
        return np.asarray(products @ self.regressor_terms[1].T)

    @cached_property
    def to_basis(self) -> Floats:
        """(p, p) by which to multiply combinations of coefficients in original units."""
        # beta' x = b' B x over the half range, B the basis as the regressors: beta = B' b.
        return np.asarray(self.half_range * self._basis[1].T, dtype=np.float64)

    @cached_property
    def absorbed(self) -> Floats:
        """(p,) coefficients in the basis of what was subtracted from the response."""
        absorbed, constant = np.zeros(len(self.rows) - 1), self._echelon[2]
        origin, spread = self._origin_and_spread(self.design.response)
        if origin and constant is not None:
            length = np.abs(self._coefficients([self._echelon[0][constant]]) * self._steps).sum()
            absorbed[constant] = origin / spread * length
        return absorbed

    @cached_property
    def shift(self) -> Floats:
        """(p,) contribution of the middle of the response to coefficients in original units."""
        return np.asarray(self.to_basis @ self.absorbed)

    @cached_property
    def penalised(self) -> Floats:
        """(p,) 1 for every member of the basis but the constant."""
        basis = self._basis[0]
        constant = [term == () for term in self.features]
        return np.where(np.any(basis[:, ~np.array(constant)] != 0, axis=1), 1.0, 0.0)

    @cached_property
    def _products(self) -> list[list[Term | None]]:
        return [[product(a, b) for b in self.features] for a in self.features]

    @property
    def blocks(self) -> list[Block]:
        """The test functions: products of at most two features, and of more."""
        if self.ball is not None:
            return [self.ball]
        terms = dict.fromkeys(t for row in self._products for t in row if t)
        short = [term for term in terms if len(term) <= 2]
        used = list(dict.fromkeys(feature for term in short for feature in term))
        blocks: list[Block] = [moments_block(self.schema, used, short, self.given)]
        if longer := [term for term in terms if len(term) > 2]:
            blocks.append(Moments.of_terms(self.schema, longer, given=self.given))
        return blocks

    @cached_property
    def totals_block(self) -> tuple[Moments, NDArray[np.intp]]:
        """All products of the rows given, their number among them, in one block; and their places.

        Which function (q, q) each product of two features is, -1 for those that are zero.
        """
        terms = dict.fromkeys([*_terms(self.blocks), ()])
        block = Moments.of_terms(self.schema, terms, given=self.given)
        at: dict[Term | None, int] = {term: i for i, term in enumerate(block.terms)}
        place = [[at.get(term, -1) for term in row] for row in self._products]
        return block, np.array(place, dtype=np.intp)

    @property
    def origin_of_response(self) -> float:
        """Offset added to the response in unit scale, unless the constant absorbs it."""
        return self._response.get((), 0.0)

    def matrix(self, release: ReleaseView) -> NoisyMatrix:
        """The noisy mean products (q, q) of the features."""
        if self.ball is not None:
            numbers = [feature for term in self.features for feature in term]
            return MomentMatrix.of(release, numbers, self.ball)
        answers, at = self.asked(release, self.blocks)
        place = np.array([[at[term] for term in row] for row in self._products], dtype=np.int64)
        return NoisyMatrix(answers, place)

    @cached_property
    def _pairs(self) -> tuple[list[Term], list[bool]]:
        """Distinct products of two features, and whether both may be regressors'."""
        used = self._of_regressors
        own = {product(a, b) for a in used for b in used}
        every = dict.fromkeys(term for row in self._products for term in row if term is not None)
        return list(every), [term in own for term in every]

    @cached_property
    def _of_regressors(self) -> list[Term]:
        """The features of the regressors, in the order of all."""
        used = {term for expansion in self._regressors for term in expansion}
        return [feature for feature in self.features if feature in used]

    def fourth_blocks(self) -> list[Block]:
        """The test functions that the mean of xx'(y - x'b)^2 needs at any b.

        The coarse block rounds finer grids, and then holds all products: the residual is that of
        rounded numbers throughout.
        """
        pairs, own = self._pairs
        needed = dict.fromkeys(
            term
            for left in itertools.compress(pairs, own)
            for right in pairs
            if (term := product(left, right))
        )
        robust = "robust errors of this formula need {} mean products"
        _check_few(robust, len(needed), needed, _MOST_NUMBERS, "cov_type='nonrobust'")
        columns = {self.schema[name] for term in needed for name, level in term if level is None}
        fine = any(isinstance(c, Number) and c.half_points > COARSE_STEPS for c in columns)
        measured = [] if fine else self.blocks
        known = {product(term, ()) for term in _terms(measured)}
        more = [term for term in needed if term not in known]
        if not more:
            return measured
        return [*measured, Moments.of_terms(self.schema, more, True, self.given, robust=True)]

    def fourth(self, release: ReleaseView) -> FourthMoments:
        """The noisy mean products of four features."""
        try:
            answers, at = self.asked(release, self.fourth_blocks())
        except NotMeasuredError as error:
            raise NotMeasuredError(
                "this release has no measurement of the fourth moments that robust errors need; "
                "the plan must ask for them with dps.OLS(..., cov_type='HC1'). It may answer "
                "cov_type='nonrobust'"
            ) from error
        pairs, own = self._pairs
        index: dict[Term | None, int] = {term: i for i, term in enumerate(pairs)}
        index[None] = ZERO
        pair = np.array([[index[term] for term in row] for row in self._products], dtype=np.int64)
        place = np.full((len(pairs), len(pairs)), ZERO, dtype=np.int64)
        for i in np.flatnonzero(own):
            place[i] = [at[product(pairs[i], right)] for right in pairs]
        return FourthMoments(answers, pair, place)

    def person_totals(self) -> PersonMoments:
        """Products of person totals, of the products that scores x (y - x'b) are made of."""
        needed = list(dict.fromkeys(
            term for a in self._of_regressors for b in self.features
            if (term := product(a, b)) is not None
        ))  # fmt: skip
        size = len(needed) * (len(needed) + 1) // 2
        totals = "person totals of this formula need {} products of totals"
        _check_few(totals, size, needed, 2, "leave the analysis out of person_totals=")
        return PersonMoments.of(self.schema, needed, self.given)

    def person_scores(self, release: ReleaseView, n: float) -> PersonScores | None:
        """The noisy products of person totals; None where the plan did not ask for them."""
        if self.ball is not None:
            return None
        try:
            block = self.person_totals()
        except RequestError:
            return None
        answers = measured_totals(release, block)
        if answers is None:
            return None
        at: dict[Term | None, int] = {term: i for i, term in enumerate(block.terms)}
        total = [[at.get(term, ZERO) for term in row] for row in self._products]
        return PersonScores(answers, np.array(total, dtype=np.int64), n)

    def asked(
        self, release: ReleaseView, blocks: Sequence[Block]
    ) -> tuple[Answers, dict[Term | None, int]]:
        """Answers to the functions of some blocks, the rows last, and which one each term is."""
        if self.given is None:
            answers = release.answers(blocks, with_count=True)
        else:
            first = self.blocks[0]  # the number of rows is its last function
            last = first if first in blocks else first.restrict(np.arange(first.size)[::-1] == 0)
            blocks = [*(block for block in blocks if block != first), last]
            answers = release.answers(blocks).of_counted_rows()
        return answers, places_of(_terms(blocks), answers)


def _terms(blocks: Sequence[Block]) -> list[Term]:
    return [term for block in blocks for term in block.terms]  # type: ignore[attr-defined]


def _check_few(text: str, size: int, terms: Iterable[Term], most: int, instead: str) -> None:
    """Refuse products that are too many, or of too many numbers, to be measured well."""
    numbers = max(sum(level is None for _, level in term) for term in terms)
    if numbers > most or size > _MOST_PRODUCTS:
        raise RequestError(
            f"{text.format(size)} of up to {numbers} numbers; at most {_MOST_PRODUCTS} of {most} "
            "can be measured well: take fewer columns, no products of two numbers (C(a):b has the "
            f"bins of one of them), or {instead}"
        )


def multiplied(first: Mapping[Term, V], second: Mapping[Term, V]) -> dict[Term, V]:
    """Product of two sums of products of features."""
    total: dict[Term, V] = {}
    for (a, x), (b, y) in itertools.product(first.items(), second.items()):
        if (term := product(a, b)) is not None:
            total[term] = total[term] + x * y if term in total else x * y
    return total


def _add(total: Expansion, by: Fraction, more: Expansion) -> None:
    """Add a multiple of an expansion, without what cancels."""
    for term, value in more.items():
        value_of_sum = total.pop(term, Fraction(0)) + by * value
        if value_of_sum:
            total[term] = value_of_sum


def _reduced(
    rows: Sequence[Expansion], order: Iterable[int], weights: Mapping[Term, float]
) -> list[tuple[Term, Expansion]]:
    """Pivots of the largest weight and rows of the reduced echelon form, with how each is made."""
    reduced: dict[int, tuple[Term, Expansion]] = {}
    for i in order:
        row = {**rows[i], i: Fraction(1)}
        for pivot, other in reduced.values():
            if by := row.get(pivot):
                _add(row, -by, other)
        sizes = {t: abs(float(v)) * weights[t] for t, v in row.items() if not isinstance(t, int)}
        if not sizes:
            raise RequestError("a regressor of the formula is a combination of the others")
        own = max(sizes, key=lambda term: sizes[term])
        row = {term: value / row[own] for term, value in row.items()}
        for _, other in reduced.values():
            if by := other.get(own):
                _add(other, -by, row)
        reduced[i] = own, row
    return [reduced[i] for i in sorted(reduced)]
