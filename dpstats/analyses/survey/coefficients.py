"""Weighted coefficients of regressions, as functions of totals of cells or of products.

Estimating equations U(b) = 0 are linear in the totals, so that derivatives of the coefficients
follow from those of U (implicit function theorem; docs/explanation/inference/survey.md).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from dpstats.analyses.notes import cell_rules
from dpstats.analyses.regression.contrasts import ContrastResult, LinkedResult, read_constraints
from dpstats.analyses.regression.design_moments import DesignMoments
from dpstats.analyses.regression.glm_models import (
    number_names,
    regressor_columns,
    span,
    value_in_bins,
    values_in_bins,
)
from dpstats.analyses.regression.score import IDENTITY, LOG, Link, find_root
from dpstats.analyses.survey.estimand import Estimand, squares_of_cells, squares_of_parts
from dpstats.analyses.survey.weighted import (
    ByDesign,
    DesignIntervals,
    SurveyResult,
    Totals,
    estimates_of,
    result_of,
)
from dpstats.arrays import Codes, Floats
from dpstats.caching import Cached
from dpstats.checks import first_few
from dpstats.errors import RequestError
from dpstats.families.block import Block
from dpstats.families.features import Term
from dpstats.families.group_moments import TO_MOMENTS, GroupMoments
from dpstats.families.pilot_score import PilotScore
from dpstats.families.subgroups import EVERY_CELL, Subgroup
from dpstats.families.tables.cells import Partition, Table
from dpstats.families.tables.inside_bins import SplineTable, knots_of
from dpstats.results.estimates import EstimateResult
from dpstats.schema import Column, Number
from dpstats.schema.conditions import cell_set

if TYPE_CHECKING:
    import pandas as pd

    from dpstats.analyses.regression.contrasts import Constraints, FTestResult
    from dpstats.measured.view import ReleaseView

_ONE = (
    "there are too few degrees of freedom to test these together: the statistic is that of the "
    "one that differs most, and the p-value is its own times their number"
)
_MOST_CELLS = 512  # of the regressors
_FEW_CELLS = 32  # up to which contrasts of cells have less noise than those of scores
_POINTS = 4  # an even number in a bin, over which rows are spread evenly
_CHECKED = 8  # steps from one end of a bin to the other, at which what is beyond splines is known
_ROUNDING = 1e-9
_FEW_ROWS = 0.01  # of the weights, which a level may have that is left out
_CLIP = 3.0  # standard deviations of the residual, at which scores are cut off
_NO_FIT = (
    "there are no estimates: the noise does not rule out that regressors are collinear, or that a "
    "baseline level has no rows, or bins are too wide for numbers at their edges; use more rows, "
    "more budget, fewer regressors or more edges, or name another baseline, as in "
    "C(h, Treatment('x'))"
)
_NO_ROWS = (
    "a condition leaves no rows that determine them, or noise hides whether a level has rows, so "
    "that it is left out"
)
_NO_ENDS = (
    "some intervals have no ends: the noise does not rule out collinear regressors; use more rows, "
    "more budget or fewer regressors"
)
_SCORES = "sampling variances from scores at a first estimate"
_CLIPPED = (
    f"{_SCORES}, whose residuals are cut off at three standard deviations or more: they are too "
    "small where more than a few residuals are beyond"
)
_LEAST_HIDDEN = 0.1  # of a standard error, that is worth a note
_HIDDEN = (
    "numbers are measured by splines that change between their bins; what these leave out of a "
    "score is bounded, by up to {:.2f} standard errors of a coefficient, and is part of the "
    "privacy variance: narrower bins reduce it"
)


class Fitted(NamedTuple):
    """Solution of U(b) = 0 in the basis of a design, with derivatives there."""

    b: Floats  # (p,)
    inverse: Floats  # (p, p) of minus the derivative of U
    by_totals: Floats  # (p, d) of U, by the totals
    used: NDArray[np.bool_]  # cells or features, without those of levels that are left out
    span: Floats | None  # (p, r) orthonormal basis of what is determined; None of all


class Equations(Cached, ABC):
    """Estimating equations U(b) = 0 of p coefficients, linear in d totals."""

    moments: DesignMoments
    link: Link

    @property
    @abstractmethod
    def block(self) -> Block:
        """The functions of which the totals are."""

    @abstractmethod
    def solve(self, totals: Floats) -> Fitted | None:
        """The solution; None where noise leaves none."""

    @abstractmethod
    def moving(self, fitted: Fitted, along: Floats) -> Floats:
        """Derivatives (q, d) of g'U by totals where b moves along g; directions g (q, p)."""

    @abstractmethod
    def squares(self, totals: Floats, slopes: Floats) -> Floats:
        """See `Estimand.squares`."""

    @property
    def score(self) -> PilotScore | None:
        """Functions that contrasts between units are measured of, if not those of the block."""
        return None

    def _of_terms(self) -> PilotScore:
        """Terms of the regressors times the residual, at a pilot that is not known yet."""
        design, given = self.moments.design, self.moments.given
        terms, _ = self.moments.regressor_terms
        return PilotScore.of(self.moments.schema, terms, design.response, self.link.name, given)

    def hidden(self, totals: Floats, along: Floats) -> Floats:
        """Bounds (q,) on what the totals do not say of the score, along directions (q, p)."""
        return np.zeros(len(along))

    def _fitted(self, totals: Floats) -> Fitted | None:
        return self._once(totals.tobytes(), lambda: self.solve(totals))

    def estimand(self, terms: Sequence[str], combinations: Floats) -> Estimand:
        """Combinations (q, k) of the coefficients in original units."""
        matrix = combinations @ self.moments.to_basis
        shift = np.zeros(len(matrix))
        if self.link is IDENTITY:
            shift = combinations @ self.moments.shift
        else:
            matrix = matrix / self.moments.half_range
        return Estimand(
            self.block, terms, partial(self._value, matrix, shift), partial(self._slopes, matrix),
            self.squares, by_units=True, moving=partial(self._moving, matrix),
            hidden=partial(self._hidden, matrix), contrasted=self.score,
            contrast_slopes=None if self.score is None else partial(self._by_score, matrix),
            along=partial(self._combined, combinations),
        )  # fmt: skip

    def _combined(self, combinations: Floats, terms: Sequence[str], of: Floats) -> Estimand:
        return self.estimand(terms, of @ combinations)

    def _along(self, matrix: Floats, totals: Floats) -> tuple[Fitted, Floats] | None:
        """The solution, with combinations (q, p): NaN for those that it does not determine."""
        fitted = self._fitted(totals)
        if fitted is None or fitted.span is None:
            return None if fitted is None else (fitted, matrix)
        outside = np.abs(matrix - matrix @ fitted.span @ fitted.span.T).max(axis=1)
        unknown = outside > _ROUNDING * np.abs(matrix).max(axis=1)
        return fitted, np.where(unknown[:, np.newaxis], np.nan, matrix)

    def _value(self, matrix: Floats, shift: Floats, totals: Floats) -> Floats:
        if (along := self._along(matrix, totals)) is None:
            return np.full(len(matrix), np.nan)
        fitted, known = along
        return np.asarray(known @ fitted.b + shift)

    def _slopes(self, matrix: Floats, totals: Floats) -> Floats:
        if (along := self._along(matrix, totals)) is None:
            return np.full((len(matrix), len(totals)), np.nan)
        fitted, known = along
        return np.asarray(known @ fitted.inverse @ fitted.by_totals)

    def _moving(self, matrix: Floats, totals: Floats) -> Floats:
        if (along := self._along(matrix, totals)) is None:
            return np.full((len(matrix), len(totals)), np.nan)
        fitted, known = along
        directions = known @ fitted.inverse
        length = np.einsum("ij,ij->i", directions, known)
        return np.asarray(self.moving(fitted, directions) / length[:, np.newaxis])

    def _hidden(self, matrix: Floats, totals: Floats) -> Floats:
        if (along := self._along(matrix, totals)) is None:
            return np.zeros(len(matrix))
        fitted, known = along
        return self.hidden(totals, known @ fitted.inverse)

    def _by_score(self, matrix: Floats, totals: Floats) -> Floats:
        basis = self.moments.regressor_terms[1]
        if (along := self._along(matrix, totals)) is None:
            return np.full((len(matrix), basis.shape[1]), np.nan)
        fitted, known = along
        return np.asarray(known @ fitted.inverse @ basis)

    def _hardly_seen(self, counts: Floats) -> Iterator[list[Term]]:
        """Levels (and cells of several) to leave out, by the counts of all terms: more each time.

        First those without rows, then the next with few ones.
        """
        most = _FEW_ROWS * counts.max()
        levels = [
            (count, term)
            for term, count in zip(self.moments.regressor_terms[0], counts.tolist(), strict=True)
            if term and all(level is not None for _, level in term) and count < most
        ]
        levels.sort(key=lambda level: level[0])
        empty = sum(count <= 0 for count, _ in levels)
        for size in range(max(empty, 1), len(levels) + 1):
            yield [term for _, term in levels[:size]]


@dataclass(frozen=True, eq=False)
class CellEquations(Equations):
    """X'(S - N mean(X b)) = 0, with numbers of rows N and sums of the response S of C cells."""

    moments: DesignMoments
    link: Link

    @staticmethod
    def serves(moments: DesignMoments) -> bool:
        """True if the regressors have few cells, in each of which they have one value."""
        columns = regressor_columns(moments)
        few = math.prod(column.bins for column in columns) <= _FEW_CELLS
        return few and not _of_many_values(moments)

    @cached_property
    def _columns(self) -> tuple[Column, ...]:
        return regressor_columns(self.moments)

    @cached_property
    def _bins(self) -> Codes:
        """(c, C) bins of the columns in all cells that rows with values can be in."""
        bins = np.indices([column.bins for column in self._columns]).reshape(len(self._columns), -1)
        names = number_names(self.moments)
        kept = np.ones(bins.shape[1], dtype=np.bool_)
        for column, of in zip(self._columns, bins, strict=True):
            kept &= (of < _value_bins(column)) | (column.name not in names)
        if (given := self.moments.given) is not None:
            every = tuple(c for c in self.moments.schema if c in (*self._columns, *given.columns))
            others = tuple(i for i, column in enumerate(every) if column not in self._columns)
            kept &= np.asarray(given.over(every).any(axis=others))[tuple(bins)]
        return bins[:, kept]

    @cached_property
    def _terms(self) -> Floats:
        """(C, t) products of features in the cells."""
        return self.moments.terms_at(self._values)

    @cached_property
    def _x(self) -> Floats:
        """(C, p) the basis in the cells."""
        return np.asarray(self._terms @ self.moments.regressor_terms[1].T)

    @cached_property
    def _values(self) -> dict[str, Floats]:
        """Values (C,) of every regressor's column in the cells."""
        names = [column.name for column in self._columns]
        return values_in_bins(self.moments, dict(zip(names, self._bins, strict=True)))

    def _inside(self, columns: tuple[Column, ...]) -> NDArray[np.bool_]:
        """Cells of columns that the regression is of, whether a number has a value or not."""
        given = self.moments.given
        if given is None:
            return np.ones(tuple(column.bins for column in columns), np.bool_)
        answered = tuple(column for column in given.answered if column in columns)
        return replace(given, answered=answered).over(columns)

    def _cell(self, columns: tuple[Column, ...], bins: Codes) -> NDArray[np.bool_]:
        """Cells of columns whose regressors have these bins (c,), inside the condition."""
        mask = self._inside(columns).copy()
        for column, own in zip(self._columns, bins.tolist(), strict=True):
            other = np.arange(column.bins) != own
            np.moveaxis(mask, columns.index(column), 0)[other] = False
        return mask

    @cached_property
    def block(self) -> Block:
        """A table of the cells by the outcome, in a condition its cells; or sums of a number."""
        given, (name, level) = self.moments.given, self.moments.design.response
        schema = self.moments.schema
        more = () if given is None else given.cells.columns
        used = {c.name for c in (*self._columns, *more)} | ({name} if level is not None else set())
        columns = tuple(column for column in schema if column.name in used)
        if level is None:
            number = schema[name]
            assert isinstance(number, Number)
            answered = () if given is None else given.answered
            groups = tuple(
                Subgroup(cell_set(columns, self._cell(columns, bins)), answered, label)
                for bins, label in zip(self._bins.T, self._labels, strict=True)
            )
            return GroupMoments(number, groups)
        if given is None or not given.label:
            return Table(columns)
        at = columns.index(schema[name])
        sets = {}
        for bins, label in zip(self._bins.T, self._labels, strict=True):
            mask = self._cell(columns, bins)
            for outcome in range(_value_bins(schema[name])):
                own = mask.copy()
                np.moveaxis(own, at, 0)[np.arange(schema[name].bins) != outcome] = False
                sets[f"{name}={schema[name].bin_labels[outcome]}, {label}"] = own
        return Partition.of(columns, sets)

    @cached_property
    def _labels(self) -> list[str]:
        names = [c.name for c in self._columns]
        labels = [c.bin_labels for c in self._columns]
        return [
            ", ".join(f"{n}={of[b]}" for n, of, b in zip(names, labels, bins, strict=True)) or "all"
            for bins in self._bins.T.tolist()
        ]

    @cached_property
    def _maps(self) -> tuple[Floats, Floats]:
        """Numbers of rows (C, d), and sums of the response (C, d), as sums of the totals."""
        block, (name, level) = self.block, self.moments.design.response
        cells = len(self._x)
        if level is None:
            column = self.moments.schema[name]
            assert isinstance(column, Number)
            middle, half = column.middle, column.half_range
            if self.link is IDENTITY:  # in the unit of the moments
                middle, half = self.moments.origin_of_response, 1.0
            size, of_x = TO_MOMENTS[:2]
            by_cell = np.eye(cells)[:, :, np.newaxis]  # by the parts of a cell
            of_response = middle * size + half * of_x
            return (by_cell * size).reshape(cells, -1), (by_cell * of_response).reshape(cells, -1)
        column = self.moments.schema[name]
        if isinstance(block, Partition):
            pairs = np.eye(block.size).reshape(cells, _value_bins(column), block.size)
            return pairs.sum(axis=1), pairs[:, level]
        place = np.arange(block.size).reshape([c.bins for c in block.columns])
        inside = self._inside(block.columns)
        at = block.columns.index(column)
        sizes = np.zeros((cells, block.size), dtype=np.float64)
        sums = np.zeros_like(sizes)
        for c, bins in enumerate(self._bins.T):
            mask = self._cell(block.columns, bins) & inside
            sizes[c, place[mask]] = 1.0
            sums[c, np.moveaxis(place, at, 0)[level][np.moveaxis(mask, at, 0)[level]]] = 1.0
        return sizes, sums

    def _positive(self, totals: Floats) -> Floats:
        """Numbers of rows (C,) for the steps of Newton's method, which must not be negative."""
        return np.maximum(self._maps[0] @ totals, 0.0)

    def solve(self, totals: Floats) -> Fitted | None:
        """By Newton's method; None where the derivative is not definite.

        Without cells of levels whose rows noise hides, where it is not definite with them.
        """
        sizes, sums = (of @ totals for of in self._maps)
        used = np.ones(len(sizes), dtype=np.bool_)
        if (fitted := self._solve(totals, sizes, sums, used)) is not None:
            return fitted
        terms, of = self.moments.regressor_terms[0], np.abs(self._terms) > 0.5
        for empty in self._hardly_seen(of.T @ sizes):
            inside = of[:, [terms.index(term) for term in empty]]
            used = np.asarray(~inside.any(axis=1), dtype=np.bool_)
            if used.any() and (fitted := self._solve(totals, sizes, sums, used)) is not None:
                return fitted
        return None

    def _solve(
        self, totals: Floats, sizes: Floats, sums: Floats, used: NDArray[np.bool_]
    ) -> Fitted | None:
        link, whole, basis = self.link, self._x[used], span(self._x[used])
        x = whole if basis is None else whole @ basis
        counts, of_response, rows = sizes[used], sums[used], self._positive(totals)[used]

        def score(b: Floats) -> Floats:
            return np.asarray(x.T @ (of_response - counts * link.mean(x @ b)))

        def derivative(b: Floats, rows: Floats) -> Floats:
            return np.asarray((x.T * (rows * link.slope(x @ b))) @ x)

        b: Floats | None = np.zeros(x.shape[1])
        if link is not IDENTITY:
            if link is LOG and of_response.sum() > 0 < counts.sum():  # near the overall mean
                start = np.full(len(x), np.log(of_response.sum() / counts.sum()))
                b = np.linalg.lstsq(x, start, rcond=None)[0]
            assert b is not None
            b = find_root(score, lambda b: derivative(b, rows), x, b)
        if b is None:
            return None
        inverse = _inverse(derivative(b, counts))
        if inverse is None:
            return None
        if link is IDENTITY:
            b = inverse @ score(b)
        mean = link.mean(x @ b)[:, np.newaxis]
        by_totals = whole.T @ (self._maps[1][used] - mean * self._maps[0][used])
        if basis is not None:
            b, inverse = basis @ b, basis @ inverse @ basis.T
        return Fitted(b, inverse, by_totals, used, basis)

    def moving(self, fitted: Fitted, along: Floats) -> Floats:
        """See `Equations.moving`."""
        x = self._x[fitted.used]
        change = (along @ x.T) ** 2 * self.link.slope(x @ fitted.b)
        return np.asarray(change @ self._maps[0][fitted.used])

    def squares(self, totals: Floats, slopes: Floats) -> Floats:
        """Sums (q,) of u z^2 over rows."""
        of_parts = isinstance(self.block, GroupMoments)
        return (squares_of_parts if of_parts else squares_of_cells)(totals, slopes)


@dataclass(frozen=True, eq=False)
class SplineEquations(CellEquations):
    """Regressions on many cells, or on numbers with several values in a bin: by B-splines.

    In every bin rows are as even as the totals T allow: points of a fine grid have the weights F+ T
    of the regression estimator, with F the splines there (d, C). What a score has beyond splines is
    bounded by `hidden`. Contrasts between units are of the scores at a pilot.
    """

    @cached_property
    def score(self) -> PilotScore:
        """The score, whose residuals are at most the largest response."""
        return self._of_terms()

    @cached_property
    def _table(self) -> SplineTable | None:
        """Splines and bins of the regressors by the response; None without splines."""
        name, level = self.moments.design.response
        response, many = self.moments.schema[name], _of_many_values(self.moments)
        ends = None
        if level is None:
            assert isinstance(response, Number)
            ends = (-response.half_points, response.half_points)
        if not many and ends is None:
            return None
        knots = [
            knots_of(column) if isinstance(column, Number) and column.name in many else None
            for column in self._columns
        ]
        return SplineTable((*self._columns, response), (*knots, ends), self.moments.given)

    @cached_property
    def block(self) -> Block:
        """A table, of splines where there are some."""
        return self._table or super().block

    def _possible(self, column: Column) -> NDArray[np.bool_]:
        """Bins of a column that the condition does not exclude."""
        given = self.moments.given
        if given is None or column not in given.columns:
            return np.ones(column.bins, dtype=np.bool_)
        cells = np.moveaxis(given.over(given.columns), given.columns.index(column), 0)
        return np.asarray(cells.reshape(column.bins, -1).any(axis=1))

    def _spread(self, steps: int, shift: int) -> list[tuple[Floats, Floats]]:
        """Values (C,) of every regressor's column at points, and splines or bins (d, C) there.

        Points are `shift` of so many steps from the ends of a bin, and whole ones more.
        """
        assert self._table is not None
        axes, numbers = [], number_names(self.moments)
        for axis, column in enumerate(self._columns):
            by_value = column.name in numbers
            possible = self._possible(column)
            bins = np.flatnonzero(possible[: _value_bins(column)] if by_value else possible)
            if self._table.knots[axis] is None:
                values = value_in_bins(column, bins) if by_value else bins.astype(np.float64)  # type: ignore[arg-type]
                axes.append((values, np.eye(column.bins)[:, bins]))
                continue
            assert isinstance(column, Number)
            first, last = (ends[bins, np.newaxis] for ends in column.bin_codes)
            inside = (last - first + shift) * np.arange(shift, steps // 2 + 1, 1 + shift) // steps
            codes = np.unique([first + inside, last - inside])
            start, parts = self._table.splines(axis, codes)
            splines = np.zeros((self._table.shape[axis], len(codes)))
            splines[start + np.arange(len(parts))[:, np.newaxis], np.arange(len(codes))] = parts
            axes.append((column.units_of(codes), splines / self._table.units[axis]))
        return axes

    @cached_property
    def _axes(self) -> list[tuple[Floats, Floats]]:
        """See `_spread`: an even number of points in a bin."""
        return self._spread(2 * _POINTS, 1)

    @cached_property
    def _checked(self) -> tuple[Floats, list[Floats]]:
        """The basis (C, p) at points among which are the ends of bins, and splines by column."""
        axes = self._spread(_CHECKED, 0)
        return self.moments.regressors_at(self._grid(axes)), [splines for _, splines in axes]

    def _grid(self, axes: Sequence[tuple[Floats, Floats]]) -> dict[str, Floats]:
        """Values (C,) of every regressor's column at a grid of points."""
        grid = np.meshgrid(*(values for values, _ in axes), indexing="ij")
        names = [column.name for column in self._columns]
        flat = [np.broadcast_to(values, grid[0].shape).ravel() for values in grid]
        return dict(zip(names, flat, strict=True))

    @cached_property
    def _values(self) -> dict[str, Floats]:
        """Values (C,) of every regressor's column at the points."""
        return super()._values if self._table is None else self._grid(self._axes)

    @cached_property
    def _splines(self) -> tuple[Floats, Floats]:
        """Splines (d, C) at the points, and (C, d) weights of the points by totals."""
        splines: Floats = np.ones((1, 1))
        weights: Floats = np.ones((1, 1))
        for _, own in self._axes:
            splines = np.asarray(np.kron(splines, own), dtype=np.float64)
            weights = np.asarray(np.kron(weights, np.linalg.pinv(own)), dtype=np.float64)
        return splines, weights

    @cached_property
    def _responses(self) -> Floats:
        """(2, r) one and the response as sums of its r functions."""
        name, level = self.moments.design.response
        column = self.moments.schema[name]
        if level is None:
            assert isinstance(column, Number)
            ends = column.middle + column.half_range * np.array([-1.0, 1.0])
            return np.array([[1.0, 1.0], ends])
        own = np.arange(column.bins)
        return np.array([own < _value_bins(column), own == level], np.float64)

    @cached_property
    def _maps(self) -> tuple[Floats, Floats]:
        """See `CellEquations`."""
        if self._table is None:
            return super()._maps
        sizes, sums = (np.kron(self._splines[1], row) for row in self._responses)
        return sizes, sums

    def _positive(self, totals: Floats) -> Floats:
        """Numbers of rows (C,) where those of every spline are spread over its points."""
        if self._table is None:
            return super()._positive(totals)
        splines = self._splines[0]
        points = np.maximum(splines.sum(axis=1, keepdims=True), 1e-300)  # none of some levels
        return np.asarray(self._rows(totals) @ (splines / points))

    def _rows(self, totals: Floats) -> Floats:
        """Numbers of rows (d,) of the splines, not negative."""
        by_response = totals.reshape(-1, self._responses.shape[1])
        return np.asarray(np.maximum(by_response @ self._responses[0], 0.0))

    def hidden(self, totals: Floats, along: Floats) -> Floats:
        """See `Equations.hidden`: totals of splines times the largest remainder in their ranges.

        That is often at an end of a bin, where all rows may be. The rounding of splines, and of a
        response with more steps than the units of its functions, is added.
        """
        fitted = self._fitted(totals)
        if self._table is None or fitted is None:
            return np.zeros(len(along))
        points, splines = self._checked

        def beyond(response: float) -> Floats:
            here, there = (
                (along @ x.T) * (response - self.link.mean(x @ fitted.b)) for x in (self._x, points)
            )
            return np.abs(there - _at_points(here @ self._splines[1], splines))

        ends = self._responses[1]
        most = np.maximum(beyond(ends.min()), beyond(ends.max()))
        most += np.abs(along @ points.T) * self._rounding
        return np.asarray(_largest(most, splines) @ self._rows(totals))

    @property
    def _rounding(self) -> float:
        """Largest error of a response by rounding; 0 where units are its steps."""
        assert self._table is not None
        ends, unit = self._table.knots[-1], self._table.units[-1]
        exact = ends is None or ends[-1] - ends[0] == unit
        return 0.0 if exact else float(np.ptp(self._responses[1])) / unit / 2

    def squares(self, totals: Floats, slopes: Floats) -> Floats:
        """Sums (q,) of u z^2 by the variances of the model, z by slopes (q, e) of the score."""
        fitted = self._fitted(totals)
        if fitted is None:
            return np.full(len(slopes), np.nan)
        variances = (self._maps[0] @ totals) * self.link.slope(self._x @ fitted.b) * fitted.used
        return np.asarray(np.maximum((slopes @ self._terms.T) ** 2 @ variances, 0.0))

    def at_pilot(self, release: ReleaseView) -> PilotScore:
        """The score at the estimate of a release; at zero if it has none."""
        fitted = self._fitted(Totals.of(release, self.block, needed=False).values)
        basis = self.moments.regressor_terms[1]
        return self.score.at(np.zeros(basis.shape[1]) if fitted is None else fitted.b @ basis)


@dataclass(frozen=True, eq=False)
class ProductEquations(Equations):
    """Normal equations A b = c from totals of products of regressors and response.

    Contrasts between units are of the scores at a pilot: of the products they would have many times
    the noise.
    """

    moments: DesignMoments
    link: Link = IDENTITY

    def __post_init__(self) -> None:
        if self.moments.constant is None:
            raise RequestError(
                "a weighted regression on numbers needs an intercept: leave out '- 1'"
            )

    @cached_property
    def _places(self) -> tuple[Block, NDArray[np.intp]]:
        return self.moments.totals_block

    @property
    def block(self) -> Block:
        """Products, and the number of rows."""
        return self._places[0]

    @cached_property
    def score(self) -> PilotScore:
        """The score, whose residuals are cut off."""
        return self._of_terms()

    def _products(self, totals: Floats) -> Floats:
        """(q, q) totals of products of two features."""
        place = self._places[1]
        return np.where(place >= 0, totals[place], 0.0)

    def _weights(self, left: Floats, right: Floats) -> Floats:
        """(k, d) derivatives by totals of left_i'E right_i, E the products; left, right (k, q)."""
        place = self._places[1].ravel()
        used = place >= 0
        found = np.zeros((len(left), self.block.size))
        for row, one, other in zip(found, left, right, strict=True):
            row += np.bincount(
                place[used], np.outer(one, other).ravel()[used], minlength=self.block.size
            )
        return found

    def solve(self, totals: Floats) -> Fitted | None:
        """None where the matrix is not definite, even without levels whose rows noise hides."""
        products, terms = self._products(totals), self.moments.regressor_terms[0]
        used = np.ones(len(products), dtype=np.bool_)
        if (fitted := self._solve(products, used)) is not None:
            return fitted
        at = [self.moments.features.index(term) for term in terms]
        for empty in self._hardly_seen(products[at, at]):
            used[at] = [not any(set(level) <= set(term) for level in empty) for term in terms]
            if (fitted := self._solve(products, used)) is not None:
                return fitted
        return None

    def _solve(self, products: Floats, used: NDArray[np.bool_]) -> Fitted | None:
        rows = self.moments.rows * used
        basis, second = span(rows[:-1].T), rows @ products @ rows.T
        directions = np.eye(len(rows) - 1) if basis is None else basis
        inverse = _inverse(directions.T @ second[:-1, :-1] @ directions)
        if inverse is None:
            return None
        inverse = directions @ inverse @ directions.T
        b = inverse @ second[:-1, -1]
        residual = np.broadcast_to(rows.T @ np.append(-b, 1.0), (len(b), rows.shape[1]))
        return Fitted(b, inverse, self._weights(rows[:-1], residual), used, basis)

    def _residual(self, fitted: Fitted) -> Floats:
        """The residual as a combination (q,) of features."""
        return np.asarray((self.moments.rows * fitted.used).T @ np.append(-fitted.b, 1.0))

    def moving(self, fitted: Fitted, along: Floats) -> Floats:
        """See `Equations.moving`."""
        features = along @ (self.moments.rows[:-1] * fitted.used)
        return self._weights(features, features)

    def residual_square(self, totals: Floats) -> float:
        """Mean square of the residuals in unit scale; noise may make it negative."""
        fitted = self._fitted(totals)
        assert fitted is not None
        residual = self._residual(fitted)
        return float(residual @ self._products(totals) @ residual) / self._rows(totals)

    def _rows(self, totals: Floats) -> float:
        return max(float(totals[self.block.terms.index(())]), 1.0)  # type: ignore[attr-defined]

    def squares(self, totals: Floats, slopes: Floats) -> Floats:
        """Sums (q,) of u z^2 for errors of equal variance, z by slopes (q, e) of the score."""
        if self._fitted(totals) is None:
            return np.full(len(slopes), np.nan)
        terms, _ = self.moments.regressor_terms
        at = [self.moments.features.index(term) for term in terms]
        gram = self._products(totals)[np.ix_(at, at)]
        lengths = np.maximum(np.einsum("ij,jk,ik->i", slopes, gram, slopes), 0.0)
        return np.asarray(max(self.residual_square(totals), 0.0) * lengths)

    def at_pilot(self, release: ReleaseView) -> PilotScore:
        """The score at the estimate of a release, cut off at `_CLIP` deviations of the residual.

        One standard deviation of the noise is added to the mean square of residuals.
        """
        totals = Totals.of(release, self.block, needed=False)
        fitted = self._fitted(totals.values)
        if fitted is None:
            return self.score.at(np.zeros(self.score.size))
        residual = self._residual(fitted)
        weights = self._weights(residual[np.newaxis], residual[np.newaxis])[0]
        noise = float(np.sqrt(totals.noise(weights[np.newaxis])[0, 0])) / self._rows(totals.values)
        square = max(self.residual_square(totals.values), 0.0) + noise
        basis = self.moments.regressor_terms[1]
        return self.score.at(fitted.b @ basis, _CLIP * float(np.sqrt(square)))


def _at_points(sums: Floats, splines: Sequence[Floats]) -> Floats:
    """Sums (q, d) of products of splines of columns, at points: (q, C)."""
    found = sums.reshape(len(sums), *(len(own) for own in splines))
    for own in splines:  # the axis of a column becomes the last one
        found = np.tensordot(found, own, axes=(1, 0))
    return found.reshape(len(sums), -1)


def _largest(values: Floats, splines: Sequence[Floats]) -> Floats:
    """Largest values (q, d) where products of splines are not zero, of those (q, C) at points."""
    found = values.reshape(len(values), *(own.shape[1] for own in splines))
    for own in splines:
        found = np.stack([found[:, in_one].max(axis=1, initial=0.0) for in_one in own > 0], -1)
    return found.reshape(len(values), -1)


def _value_bins(column: Column) -> int:
    """Number of levels or bins of values, without that of missing cells."""
    return column.bins - column.allow_missing


def _inverse(matrix: Floats) -> Floats | None:
    """Inverse of a positive definite matrix; None of another."""
    try:
        root = linalg.cholesky(matrix, lower=True)
    except (np.linalg.LinAlgError, ValueError):
        return None
    return np.asarray(linalg.cho_solve((root, True), np.eye(len(matrix))))


def _of_many_values(moments: DesignMoments) -> list[str]:
    """Regressors that are numbers with several values in a bin."""
    columns = (moments.schema[name] for name in number_names(moments))
    return [
        c.name for c in columns
        if isinstance(c, Number) and np.any(c.bin_codes[0] < c.bin_codes[1])
    ]  # fmt: skip


def equations_of(moments: DesignMoments, link: Link) -> Equations:
    """Estimating equations of a formula for the rows of a survey.

    Raises
    ------
    RequestError
        If neither cells nor products determine them.
    """
    if CellEquations.serves(moments):
        return CellEquations(moments, link)
    if link is IDENTITY:
        given = moments.given or Subgroup(EVERY_CELL)
        return ProductEquations(replace(moments, given=given))
    many = _of_many_values(moments)
    cells = math.prod(
        column.bins + 2 * (column.name in many) for column in regressor_columns(moments)
    )
    if cells > _MOST_CELLS:
        extra = ", two more than its bins for a number" if many else ""
        raise RequestError(
            f"a weighted regression of this kind is fitted to at most {_MOST_CELLS} cells of its "
            f"regressors{extra}; this one has {cells:,}: use fewer edges, levels or columns"
        )
    return SplineEquations(moments, link)


@dataclass(frozen=True, repr=False, eq=False)
class WeightedRegression(SurveyResult, LinkedResult):
    """Coefficients of a regression from a survey with a `Design`.

    The F test is Hotelling's, with the degrees of freedom of the design.

    Examples
    --------
    >>> import dpstats as dps
    >>> import pandas as pd
    >>> design = dps.Design("weight", mean=2, cap=3, unit="school", units=list(range(40)))
    >>> columns = [dps.Boolean("smoker"), dps.Category("sex", ["f", "m"])]
    >>> schema, risk = dps.Schema(columns, design=design), dps.Logistic("smoker ~ sex")
    >>> plan = dps.plan(schema, {"risk": risk}, budget=dps.PureDP(2), n=8_000)
    >>> rows = pd.DataFrame({"smoker": [True, False, True, *[False] * 4, True] * 1_000})
    >>> rows["weight"], rows["sex"] = 2, ["f", "m"] * 4_000
    >>> rows["school"] = rows.index // 200
    >>> fitted = dps.release(plan, rows).infer(risk)
    >>> fitted.terms, fitted.conf_int().shape
    (['Intercept', 'sex[T.m]'], (2, 2))
    >>> fitted.f_test("sex[T.m] = 0").pvalue < 0.05
    True
    >>> predicted = fitted.predict({"sex": ["f", "m"]})
    >>> print(fitted.odds_ratios().shape, abs(predicted - [0.5, 0.25]).max() < 0.2)
    (2, 3) True
    """

    @property
    def interval_of(self) -> str:
        """The first coefficient other than the intercept; units differ."""
        return super(SurveyResult, self).interval_of

    def f_test(self, r_matrix: Constraints) -> FTestResult:  # noqa: D102, inherited
        test = super().f_test(r_matrix)
        asked = np.linalg.matrix_rank(read_constraints(r_matrix, self.terms)[0])
        return replace(test, notes=(*test.notes, _ONE)) if 0 < test.df_num < asked else test

    @property
    def df_resid(self) -> float:
        """Degrees of freedom of the design, the fewest of a coefficient."""
        return float(np.min(np.asarray(self.degrees_of_freedom)))

    @property
    def _covariance(self) -> Floats:
        return np.where(np.isnan(self.covariance), np.inf, self.covariance)

    def _at(self, exog: pd.DataFrame | Mapping[str, Any] | None) -> DesignIntervals:
        moments = self.moments  # whose basis times these combinations is the predictor
        rows = np.linalg.solve(moments.to_basis.T, moments.half_range * moments.at(exog).T)
        return self._along(np.asarray(rows.T, np.float64))

    def _predicted(self, fields: dict[str, Any]) -> EstimateResult:
        return ByDesign(**fields)

    def _along(self, matrix: Floats) -> DesignIntervals:
        (part,), names = self.parts, [str(i) for i in range(len(matrix))]
        return DesignIntervals((part.along(names, matrix),))

    def _combined(
        self, title: str, names: list[str], intervals: Any, notes: Sequence[str] = ()
    ) -> dict[str, Any]:
        return super()._combined(title, names, intervals, notes) | {"design": self.design}

    def _contrasts(self, fields: dict[str, Any]) -> ContrastResult:
        return WeightedContrasts(**fields)


@dataclass(frozen=True, repr=False, eq=False)
class WeightedContrasts(SurveyResult, ContrastResult):
    """Contrasts of coefficients from a survey, see `WeightedRegression`.

    Examples
    --------
    >>> import dpstats as dps
    >>> import pandas as pd
    >>> design = dps.Design("weight", mean=2, cap=3, unit="school", units=list(range(40)))
    >>> columns = [dps.Boolean("smoker"), dps.Category("sex", ["f", "m"])]
    >>> schema, risk = dps.Schema(columns, design=design), dps.Logistic("smoker ~ sex")
    >>> plan = dps.plan(schema, {"risk": risk}, budget=dps.PureDP(2), n=8_000)
    >>> rows = pd.DataFrame({"smoker": [True, False, True, *[False] * 4, True] * 1_000})
    >>> rows["weight"], rows["sex"] = 2, ["f", "m"] * 4_000
    >>> rows["school"] = rows.index // 200
    >>> men = dps.release(plan, rows).infer(risk).t_test("sex[T.m] = 1")
    >>> men.effect < 0, men.pvalue < 0.05
    (True, True)
    """


def weighted_regression(
    analysis: Any, title: str, equations: Equations, release: ReleaseView
) -> WeightedRegression:
    """Weighted coefficients of an analysis whose estimand is that of some equations."""
    (part,) = parts = estimates_of(analysis, release)
    terms = part.estimand.terms
    notes = []
    if equations.solve(part.totals.values) is None:
        notes.append(_NO_FIT)
    elif unknown := [t for t, b in zip(terms, part.params.tolist(), strict=True) if np.isnan(b)]:
        notes.append(f"no estimates of {first_few(unknown)}: {_NO_ROWS}")
    elif any(
        np.isinf(end).any() for end in DesignIntervals((part,)).noise_aware(0.05, "population")
    ):
        notes.append(_NO_ENDS)
    if part.estimand.contrasted is not None:
        notes.append(_CLIPPED if equations.link is IDENTITY else _SCORES)
    errors = np.sqrt(np.diag(part.sampling_covariance + part.noise_covariance))
    if (part.hidden > _LEAST_HIDDEN * errors).any():
        notes.append(_HIDDEN.format(float(np.nanmax(part.hidden / errors))))
    notes.append(cell_rules(release.schema, analysis))
    return result_of(
        title, parts, part.totals.answers.rows, str(release.budget), notes, WeightedRegression,
        moments=equations.moments, link=equations.link, null=np.zeros(len(terms)),
    )  # fmt: skip
