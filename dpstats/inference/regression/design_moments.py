"""From a design to the second moments that least squares needs, in a basis of good scale."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from dpstats.arrays import Floats
from dpstats.errors import NotMeasuredError, RequestError
from dpstats.families.ball_moments import BallMoments
from dpstats.families.block import Block
from dpstats.families.features import Term, product
from dpstats.families.formula import Design
from dpstats.families.moments import COARSE_STEPS, Moments
from dpstats.families.persons.moments import PersonMoments
from dpstats.families.subgroups import Subgroup
from dpstats.inference.moment_matrix import ONE, ZERO, MomentMatrix, NoisyMatrix, moments_block
from dpstats.inference.regression.fourth_moments import FourthMoments
from dpstats.inference.regression.person_scores import PersonScores
from dpstats.schema import Number, Schema

if TYPE_CHECKING:
    from dpstats.measured.answers import Answers
    from dpstats.measured.view import ReleaseView

_MOST_NUMBERS = 4
_MOST_PRODUCTS = 2_000

Expansion = dict[Term, float]  # a sum of products of features in unit scale


@dataclass(frozen=True)
class DesignMoments:
    """Regressors and response as combinations of features in unit scale.

    A number is its middle plus half its range times its unit value in [-1, 1], so a regressor is a
    sum of products of unit values, levels and the constant. Where as many products occur as there
    are regressors (always, if a product comes with the numbers in it), the products themselves are
    the basis: each of their moments is one measured number, which keeps worst-case bounds narrow.
    Otherwise the basis is the regressors over the sum of their coefficients.

    Attributes
    ----------
    schema : Schema
    design : Design
    given : Subgroup or None
        The rows that the moments are of. Their number is one of the measured functions.
    penalty : bool
        Whether coefficients are penalised: the basis then has the baselines of the formula.
    ball : BallMoments or None
        Regressors and response are of rows shrunk to a norm; the unit of a number is then its
        scale times that norm.
    """

    schema: Schema
    design: Design
    given: Subgroup | None = None
    penalty: bool = False
    ball: BallMoments | None = None

    @classmethod
    def of(
        cls, schema: Schema, formula: str, condition: str | None = None, *, penalty: bool = False
    ) -> DesignMoments:
        """Of the rows with a condition, a response and a value of all numbers in a formula.

        Raises
        ------
        RequestError
            For a formula or a condition that cannot be read.
        """
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
        """The same of rows of regressors and response that are shrunk together to a norm.

        Raises
        ------
        RequestError
            Where a regressor or the response is not a number by itself.
        """
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

    @cached_property
    def _regressors(self) -> list[Expansion]:
        return [
            self._expanded(regressor.factors, () if self.penalty else regressor.first)
            for regressor in self.design.regressors
        ]

    @cached_property
    def _response(self) -> Expansion:
        """The response over its half range; without its middle if an intercept absorbs it."""
        expanded = self._expanded((self.design.response,))
        if self.design.intercept:
            expanded.pop((), None)
        return {term: value / self.half_range for term, value in expanded.items()}

    @cached_property
    def half_range(self) -> float:
        """Half the range of the response, 1 if it is an indicator; its unit in the ball."""
        return self._expanded((self.design.response,))[(self.design.response,)]

    def _expanded(self, factors: Term, first: Term = ()) -> Expansion:
        """A product of features; a first level in `first` is one minus the other levels."""
        expanded: Expansion = {(): 1.0}
        for factor in factors:
            name, column = factor[0], self.schema[factor[0]]
            parts: list[tuple[Term, float]] = [((factor,), 1.0)]
            if self.ball is not None:
                middle, half = self.ball.origin_and_spread(name)
                parts = [((), middle), ((factor,), half)]
            elif factor[1] is None:
                assert isinstance(column, Number)  # see `Design.of`
                parts = [((), column.middle), ((factor,), column.half_range)]
            elif factor in first:
                parts = [((), 1.0), *((((name, level),), -1.0) for level in range(1, column.bins))]
            grown: Expansion = {}
            for term, value in expanded.items():
                for more, by in parts:
                    longer = product(term, more)
                    if by != 0 and longer is not None:
                        grown[longer] = grown.get(longer, 0.0) + value * by
            expanded = grown
        return expanded

    @cached_property
    def features(self) -> list[Term]:
        """The q products of features that occur; the constant, if there, is ()."""
        every = dict.fromkeys(t for e in (*self._regressors, self._response) for t in e)
        if self.ball is not None:
            every[()] = None  # the first of every `MomentMatrix`
        return sorted(every, key=len)

    def _coefficients(self, expansions: list[Expansion]) -> Floats:
        at = {term: i for i, term in enumerate(self.features)}
        matrix = np.zeros((len(expansions), len(at)))
        for row, expansion in zip(matrix, expansions, strict=True):
            for term, value in expansion.items():
                row[at[term]] = value
        return matrix

    @cached_property
    def _basis(self) -> tuple[Floats, Floats]:
        """The basis (p, q) as features, and the regressors (p, p) as the basis."""
        regressors = self._coefficients(self._regressors)
        used = np.flatnonzero(np.any(regressors != 0, axis=0))
        own = regressors[:, used]
        if len(used) == len(own) and np.linalg.matrix_rank(own) == len(own):
            return np.eye(regressors.shape[1])[used], own
        size = np.abs(regressors).sum(axis=1)
        return regressors / size[:, None], np.diag(size)

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
        regressors = self._coefficients(self._regressors)
        return np.asarray(regressors[self.design.constant].sum(axis=0))

    @cached_property
    def rows(self) -> Floats:
        """(p + 1, q): the basis, then the response in unit scale, as combinations of features."""
        return np.vstack([self._basis[0], self._coefficients([self._response])])

    def regressors_at(self, values: Mapping[str, Floats]) -> Floats:
        """(m, p) the basis at m points.

        Parameters
        ----------
        values : mapping of column name to (m,) float64
            Numbers in unit scale; other columns, and numbers in groups, by their bins.
        """
        rows = self.rows[:-1]
        found = np.zeros((len(next(iter(values.values()))), len(rows)))
        for term, by in zip(self.features, rows.T, strict=True):
            if np.any(by != 0):  # not the response
                factors = (
                    values[name] if level is None else values[name] == level for name, level in term
                )
                found += np.multiply.outer(math.prod(factors, start=np.ones(len(found))), by)
        return found

    @cached_property
    def to_basis(self) -> Floats:
        """(p, p): a combination h of coefficients in original units is h times this in the basis.

        Without the `shift` of the response.
        """
        # beta' x = beta' R w, so coefficients in the basis are R' beta over the half range.
        return np.asarray(self.half_range * np.linalg.inv(self._basis[1]).T, dtype=np.float64)

    @cached_property
    def shift(self) -> Floats:
        """(p,) contribution of the middle of the response to coefficients in original units."""
        shift = np.zeros(len(self.design.regressors))
        if self.design.intercept:
            shift[0] = self._expanded((self.design.response,)).get((), 0.0)
        return shift

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
        used = {term for expansion in self._regressors for term in expansion}
        own = dict.fromkeys(product(a, b) for a in self.features if a in used
                            for b in self.features if b in used)  # fmt: skip
        every = dict.fromkeys(term for row in self._products for term in row if term is not None)
        return list(every), [term in own for term in every]

    def fourth_blocks(self) -> list[Block]:
        """The test functions that the mean of xx'(y - x'b)^2 needs at any b.

        Products of two regressors and of two regressors or responses. The coarse block rounds grids
        that are finer than its own; then it holds all of them, so that the residual is that of
        rounded numbers throughout. Otherwise products that are measured anyway are used.

        Raises
        ------
        RequestError
            Where these are products of more than four numbers, or too many.
        """
        pairs, own = self._pairs
        needed = dict.fromkeys(
            term
            for left in itertools.compress(pairs, own)
            for right in pairs
            if (term := product(left, right))
        )
        numbers = max(sum(level is None for _, level in term) for term in needed)
        if numbers > _MOST_NUMBERS or len(needed) > _MOST_PRODUCTS:
            raise RequestError(
                f"robust errors of this formula need {len(needed)} mean products of up to "
                f"{numbers} numbers; at most {_MOST_PRODUCTS} of {_MOST_NUMBERS} can be measured "
                "well: take fewer columns, no products of two numbers (C(a):b has the bins of one "
                "of them), or cov_type='nonrobust'"
            )
        columns = {self.schema[name] for term in needed for name, level in term if level is None}
        fine = any(isinstance(c, Number) and c.half_points > COARSE_STEPS for c in columns)
        measured = [] if fine else self.blocks
        known = _terms(measured)
        more = [term for term in needed if term not in known]
        if not more:
            return measured
        return [*measured, Moments.of_terms(self.schema, more, True, self.given, robust=True)]

    def fourth(self, release: ReleaseView) -> FourthMoments:
        """The noisy mean products of four features.

        Raises
        ------
        NotMeasuredError
            Where the plan did not ask for them.
        """
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
        """Products of person totals, of the products that scores x (y - x'b) are made of.

        Raises
        ------
        RequestError
            Where these are products of more than two numbers, or too many.
        """
        used = {term for expansion in self._regressors for term in expansion}
        needed = list(dict.fromkeys(
            term for a in self.features if a in used for b in self.features
            if (term := product(a, b)) is not None
        ))  # fmt: skip
        size = len(needed) * (len(needed) + 1) // 2
        numbers = max(sum(level is None for _, level in term) for term in needed)
        if numbers > 2 or size > _MOST_PRODUCTS:
            raise RequestError(
                f"person totals of this formula need {size} products of totals of up to {numbers} "
                f"numbers; at most {_MOST_PRODUCTS} of 2 can be measured well: take fewer columns, "
                "no products of two numbers (C(a):b has the bins of one of them), or leave the "
                "analysis out of person_totals="
            )
        return PersonMoments.of(self.schema, needed, self.given)

    def person_scores(self, release: ReleaseView, n: float) -> PersonScores | None:
        """The noisy products of person totals; None where the plan did not ask for them."""
        if self.ball is not None:
            return None
        try:
            block = self.person_totals()
            answers = release.answers(block)
        except (NotMeasuredError, RequestError):
            return None
        at: dict[Term | None, int] = {term: i for i, term in enumerate(block.terms)}
        total = [[at.get(term, ZERO) for term in row] for row in self._products]
        k = answers.rows.rows_per_person
        return PersonScores(answers, np.array(total, dtype=np.int64), n, k)

    def asked(
        self, release: ReleaseView, blocks: Sequence[Block]
    ) -> tuple[Answers, dict[Term | None, int]]:
        """Answers to the functions of some blocks, and which one each product of features is.

        The number of rows is the last, where it is not public.
        """
        if self.given is None:
            answers = release.answers(blocks, with_count=True)
        else:
            first = self.blocks[0]  # the number of rows is its last function
            last = first if first in blocks else first.restrict(np.arange(first.size)[::-1] == 0)
            blocks = [*(block for block in blocks if block != first), last]
            answers = release.answers(blocks).of_counted_rows()
        at = _terms(blocks)
        at[None] = ZERO
        at[()] = ONE if answers.rows.public else len(answers.sums) - 1
        return answers, at


def _terms(blocks: Sequence[Block]) -> dict[Term | None, int]:
    """Which function each term is, as `product` writes it."""
    every = [product(term, ()) for block in blocks for term in block.terms]  # type: ignore[attr-defined]
    return {term: i for i, term in enumerate(every)}
