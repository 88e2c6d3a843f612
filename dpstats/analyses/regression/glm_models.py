"""From a release to a generalised linear model: which functions it needs, and its score.

A level enters only if its noisy count of rows is above the noise of all levels, jointly with
probability .999. The rows of other levels, a few at most, leave the regression: with a coefficient
of its own, a level says nothing about the others.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpstats.analyses.regression.calibrated_score import CalibratedScore
from dpstats.analyses.regression.cell_score import CellScore, corners
from dpstats.analyses.regression.design_moments import DesignMoments
from dpstats.analyses.regression.left_out import find_absent
from dpstats.arrays import Codes, Floats
from dpstats.errors import NotMeasuredError, RequestError
from dpstats.families.block import Block, Family
from dpstats.families.pilot_score import UNIT, PilotScore
from dpstats.families.tables.cells import Cells, Indicator, Table
from dpstats.families.tables.inside_bins import BinOffsets
from dpstats.inference.simulation import calibration_seed
from dpstats.measured.answers import joint_noise_quantiles
from dpstats.measured.view import density_of
from dpstats.schema import Column, Number
from dpstats.schema.conditions import CellSet

if TYPE_CHECKING:
    from dpstats.analyses.regression.score import Link, Score
    from dpstats.measured.answers import Answers
    from dpstats.measured.row_count import RowCount
    from dpstats.measured.view import ReleaseView

_MOST_CELLS = 512  # of the regressors, that a model of cells may have
_MOST_COLUMNS = 2
_FEW_BINS = 16  # of a number; fewer hide slopes that are usual
_ROUNDING = 1e-8
_BETA = 0.001  # probability that the noise of some level without rows is above its quantile


class Scored(NamedTuple):
    """A model of a release; in the coordinates of the basis, if there is one."""

    score: Score
    basis: Floats | None  # (p, r) where the rows determine some combinations only, see `span`
    points: Mapping[str, Floats]  # of the regressors' columns, to average over
    rows: RowCount
    left_out: list[str]  # levels without rows, up to noise


# Columns whose levels occur in one product, with a Boolean for each of their cells.
Groups = list[tuple[tuple[Column, ...], NDArray[np.bool_]]]


def find_entering(release: ReleaseView, moments: DesignMoments) -> Groups:
    """Which cells of the groups in a formula have rows, by noisy counts that were measured."""
    if moments.given is not None and moments.given.label:
        return _counted_in_subgroup(release, moments)
    found = (_counted(release, moments, columns) for columns in grouped_columns(moments))
    return [group for groups in found for group in groups]


def grouped_columns(moments: DesignMoments) -> list[tuple[Column, ...]]:
    """Columns whose levels occur in one product, which is in no other."""
    used = {
        frozenset(name for name, level in regressor.factors if level is not None)
        for regressor in moments.design.regressors
    }
    return [
        tuple(column for column in moments.schema if column.name in names)
        for names in sorted(map(sorted, used))
        if names and not any(set(names) < other for other in used)
    ]


def have_entering_levels(
    groups: Groups, bins: Mapping[str, NDArray[np.int64]]
) -> NDArray[np.bool_]:
    """(m,) True for points whose levels all have rows; `bins` maps columns to (m,) bins."""
    kept = np.ones(len(next(iter(bins.values()))), dtype=np.bool_)
    for columns, enters in groups:
        kept &= enters[tuple(bins[column.name] for column in columns)]
    return kept


def left_out(groups: Groups) -> list[str]:
    """Names of the cells that do not enter."""
    return [
        name
        for columns, enters in groups
        for name, kept in zip(Table(columns).names, enters.ravel(), strict=True)
        if not kept
    ]


def _counted(release: ReleaseView, moments: DesignMoments, columns: tuple[Column, ...]) -> Groups:
    """The cells of some columns; of each column by itself where these were not measured."""
    try:
        answers = release.answers(Table(columns))
    except NotMeasuredError:
        if len(columns) == 1:
            raise
        return [part for column in columns for part in _counted(release, moments, (column,))]
    enters = np.asarray(answers.sums) > joint_noise_quantiles(answers, _BETA)
    enters |= not enters.any()  # the noise hides all of them: which one has rows is not known
    return [(columns, enters.reshape(Table(columns).shape))]


def _counted_in_subgroup(release: ReleaseView, moments: DesignMoments) -> Groups:
    """The levels, and cells of two columns, that the moments show to have rows there."""
    groups: dict[tuple[Column, ...], NDArray[np.bool_]] = {}
    for event in find_absent(moments, moments.matrix(release)):
        level = dict(event)
        columns = tuple(column for column in moments.schema if column.name in level)
        every = np.ones(Table(columns).shape, dtype=np.bool_)
        groups.setdefault(columns, every)[tuple(level[column.name] for column in columns)] = False
    return list(groups.items())


def value_in_bins(column: Number, bins: Codes, shift: float = 0.0) -> Floats:
    """Unit values (m,) at the middle of bins (m,) of a number, or `shift` half bins from it."""
    first, last = column.bin_codes
    return np.asarray((first + last + shift * (last - first))[bins] / 2 / column.half_points)


def values_in_bins(
    moments: DesignMoments, bins: Mapping[str, Codes], shifts: Mapping[str, float] | None = None
) -> dict[str, Floats]:
    """Columns (m,) as `DesignMoments.regressors_at` takes them; numbers as in `value_in_bins`."""
    values = {name: own.astype(np.float64) for name, own in bins.items()}
    for name in number_names(moments):
        column = moments.schema[name]
        assert isinstance(column, Number)
        values[name] = value_in_bins(column, bins[name], (shifts or {}).get(name, 0.0))
    return values


def regressor_columns(moments: DesignMoments) -> tuple[Column, ...]:
    """In the order of the schema."""
    names = {name for regressor in moments.design.regressors for name, _ in regressor.factors}
    return tuple(column for column in moments.schema if column.name in names)


@dataclass(frozen=True, eq=False)
class BinnedModel:
    """Model of one or two columns: the table of their cells by the outcome, and bin offsets."""

    moments: DesignMoments

    @staticmethod
    def applies_to(moments: DesignMoments) -> bool:
        """True if the design has few columns and cells, and is of all rows that have values."""
        columns = regressor_columns(moments)
        cells = math.prod(column.bins for column in columns)
        all_rows = moments.given is None or not moments.given.label  # of all rows with a value
        return len(columns) <= _MOST_COLUMNS and cells <= _MOST_CELLS and all_rows

    @cached_property
    def counted(self) -> tuple[Column, ...]:
        """Columns whose rows are counted: those of the regressors."""
        return regressor_columns(self.moments)

    @cached_property
    def numbers(self) -> tuple[Number, ...]:
        """Regressors that are numbers, not groups."""
        return tuple(self.moments.schema[name] for name in number_names(self.moments))  # type: ignore[misc]

    @cached_property
    def blocks(self) -> list[Block]:
        """The table, and the offsets of every number with bins of several grid points."""
        _check_binned(self.counted)
        names = [column.name for column in self.counted]
        table = Cells.table(self.moments.schema, [*names, self.moments.design.response[0]])
        return [table, *(BinOffsets(self.counted, c.name) for c in self._wide)]

    @property
    def _wide(self) -> list[Number]:
        return [c for c in self.numbers if np.any(c.bin_codes[0] < c.bin_codes[1])]

    @property
    def advice(self) -> str:
        """Warning of the bins, which hide steep slopes; empty without bins of several values."""
        bins = [f"{column.value_bins} bins of {column.name}" for column in self._wide]
        if not bins:
            return ""
        return (
            f"{' and '.join(bins)}: where the log odds change by more than about 1 across a cell, "
            "over all of its numbers, an interval has an end at infinity, however many rows there "
            "are and whatever the budget; more edges in the schema cure it"
        )

    @property
    def has_few_bins(self) -> bool:
        """True if a preview warns of the bins of some number."""
        return any(column.value_bins < _FEW_BINS for column in self._wide)

    @property
    def _bins(self) -> dict[str, Codes]:
        """Bins (C,) of the columns in every cell."""
        index = np.indices([column.bins for column in self.counted])
        return {c.name: bins.ravel() for c, bins in zip(self.counted, index, strict=True)}

    @cached_property
    def _at_corners(self) -> list[dict[str, Floats]]:
        """Values of the columns at the `corners` of all cells."""
        names = [column.name for column in self._wide]
        signs = corners(len(names)).tolist()
        shifts = [dict(zip(names, own, strict=True)) for own in signs]
        return [values_in_bins(self.moments, self._bins, own) for own in shifts]

    def score(self, release: ReleaseView) -> Scored:
        """The score of the noisy cells."""
        table, *offsets = self.blocks
        assert isinstance(table, Table)
        answers = release.answers(self.blocks)
        response, event = self.moments.design.response
        assert event is not None
        outcome = [c.name for c in table.columns].index(response)
        size = math.prod(column.bins for column in self.counted)
        sums = np.asarray(answers.sums, dtype=np.float64)
        place = np.arange(table.size).reshape(table.shape)
        pair = [np.take(place, level, axis=outcome).ravel() for level in (1 - event, event)]
        parts = [table.size + size * j + np.arange(size) for j in range(len(offsets))]
        groups = find_entering(release, self.moments)
        kept = self._kept(groups)
        order = np.concatenate([part[kept] for part in (*pair, *parts)])
        unit = np.where(order < table.size, 1.0, np.asarray(answers.bounds)[order])
        noise = answers.noise_covariance[np.ix_(order, order)] / np.outer(unit, unit)
        totals = (sums[order] / unit).reshape(-1, int(kept.sum()))
        x, slopes, remainder = self._expansion(kept)
        if (basis := span(x)) is not None:
            bounded = np.abs(basis)
            x, slopes, remainder = x @ basis, slopes @ basis, remainder @ bounded
        every = kept.all() and self.moments.schema[response].bins == 2
        n = release.n if every else max(round(float(totals[:2].sum())), 1)
        noises = [(w, law) for w, law in answers.noise_groups if not law.gaussian]
        laplace = np.array([w[order] / unit * law.variance**0.5 for w, law in noises])
        score = CellScore(
            x, slopes, remainder, totals[:2], totals[2:], n,
            float(answers.rows.rows_per_person), noise=noise,
            laplace=laplace.reshape(-1, len(order)),
            terms=np.array([float(law.terms) for _, law in noises]),
            seed=calibration_seed(answers),
        )  # fmt: skip
        rows, at = self._rows(release, answers), self._at_corners
        points = {name: np.concatenate([values[name][kept] for values in at]) for name in at[0]}
        return Scored(score, basis, points, rows, left_out(groups))

    def _rows(self, release: ReleaseView, answers: Answers) -> RowCount:
        """The number of rows with a value of all columns that need one."""
        given = self.moments.given
        if given is None:
            return answers.rows
        cells = CellSet(given.columns, given.over(given.columns).tobytes())
        return release.answers(Indicator(cells, given.name)).of_counted_rows().rows

    def _kept(self, groups: Groups) -> NDArray[np.bool_]:
        """(C,) cells in which every number has a value, and every level has rows."""
        bins = self._bins
        kept = have_entering_levels(groups, bins)
        for column in self.numbers:
            kept &= bins[column.name] < column.value_bins
        return kept

    def _expansion(self, kept: NDArray[np.bool_]) -> tuple[Floats, Floats, Floats]:
        """Regressors (C, p) in the middle, slopes (J, C, p), and bounds (C, p) on the rest."""
        size = len(self._wide)
        at = np.stack([self.moments.regressors_at(values)[kept] for values in self._at_corners])
        sides = at[1 : 1 + 2 * size].reshape(size, 2, *at[0].shape)
        slopes, last = (sides[:, 1] - sides[:, 0]) / 2, slice(-(2**size), None)
        linear = at[0] + np.tensordot(corners(size)[last], slopes, 1)
        return at[0], slopes, np.abs(at[last] - linear).max(axis=0)


@dataclass(frozen=True, eq=False)
class DensityModel:
    """Model of any columns: moments as for least squares, and two-way tables of all columns."""

    moments: DesignMoments
    link: Link
    robust: bool = False  # whether sampling variances hold for any law of the response (HC0)

    @cached_property
    def blocks(self) -> list[Block]:
        """Mean products of regressors and response, and tables of pairs of columns."""
        _check_binned(self.counted)
        names = self.moments.schema.names
        ordered = sorted(self.counted, key=lambda column: names.index(column.name))
        pairs = itertools.combinations(ordered, 2)
        return [*self.moments.blocks, *(Table(pair) for pair in pairs)]

    @property
    def counted(self) -> tuple[Column, ...]:
        """Columns whose rows are counted: those of the regressors, and the response."""
        response = self.moments.schema[self.moments.design.response[0]]
        return (*regressor_columns(self.moments), response)

    @cached_property
    def second_stage(self) -> PilotScore:
        """The score itself, at a pilot that is not known yet."""
        terms, _ = self.moments.regressor_terms
        design, given = self.moments.design, self.moments.given
        return PilotScore.of(self.moments.schema, terms, design.response, self.link.name, given)

    def at_pilot(self, release: ReleaseView) -> PilotScore:
        """The second stage at the estimate of a release of the first; at zero if it has none."""
        fit = self.score(release, [])
        _, basis = self.moments.regressor_terms
        params = np.zeros(len(basis))
        if fit.score.params is not None:  # the shortest, where they are not determined
            params = fit.score.params if fit.basis is None else fit.basis @ fit.score.params
        return self.second_stage.at(params @ basis)

    def score(self, release: ReleaseView, more: Sequence[Block]) -> Scored:
        """Calibrated score of the fitted density; functions `more` were measured besides."""
        moments, schema = self.moments, release.schema
        answers = release.answers([*self.blocks, *more])  # first: candidates may lack its columns
        candidates, weights = density_of(release)
        used = weights > 0
        codes = {c.name: np.asarray(candidates[c.name])[used] for c in self._columns}
        density = weights[used] / weights[used].sum()
        functions = Family(answers.blocks).evaluate(codes).matrix()
        response, level = moments.design.response
        column = schema[response]
        if level is None:
            assert isinstance(column, Number)
            y = column.middle + column.half_range * column.units_of(codes[response])
        else:
            y = np.equal(column.bins_of(codes[response]), level).astype(np.float64)
        values = self._points(codes)
        x = moments.regressors_at(values)
        coarse = moments.regressors_at(self._bin_means(codes, values, density))
        groups = find_entering(release, moments)
        bins = {c.name: c.bins_of(codes[c.name]) for c in self._columns}
        inside = have_entering_levels(groups, bins)
        if moments.given is not None:
            inside &= moments.given.holds(codes)
        x, coarse = x * inside[:, np.newaxis], coarse * inside[:, np.newaxis]
        pilot = self._pilot(answers.blocks)
        if (basis := span(x)) is not None:
            x, coarse = x @ basis, coarse @ basis
            pilot = None if pilot is None else pilot @ basis
        score = CalibratedScore(
            x, inside, coarse, y, density, functions, answers, self.link, self.robust, pilot
        )
        rows = answers.rows if moments.given is None else moments.matrix(release).answers.rows
        return Scored(score, basis, values, rows, left_out(groups))

    def _pilot(self, blocks: Sequence[Block]) -> Floats | None:
        """(p,) coefficients at which a score was measured, if one was."""
        _, basis = self.moments.regressor_terms
        for block in blocks:
            if isinstance(block, PilotScore) and block.pilot is not None:
                pilot = np.linalg.lstsq(basis.T, np.array(block.pilot) / UNIT, rcond=None)[0]
                return np.asarray(pilot)
        return None

    def _bin_means(
        self, codes: dict[str, NDArray[np.int64]], values: dict[str, Floats], density: Floats
    ) -> dict[str, Floats]:
        """The values with those of every number replaced by their mean in its bin."""
        means = dict(values)
        for name in number_names(self.moments):
            bins = self.moments.schema[name].bins_of(codes[name])
            mass = np.bincount(bins, density)
            total = np.bincount(bins, density * values[name])
            means[name] = (total / np.where(mass > 0, mass, 1.0))[bins]
        return means

    @property
    def _columns(self) -> tuple[Column, ...]:
        given = () if self.moments.given is None else self.moments.given.columns
        own = {column for block in self.blocks for column in block.columns}
        return tuple(c for c in self.moments.schema if c in own or c in given)

    def _points(self, codes: dict[str, NDArray[np.int64]]) -> dict[str, Floats]:
        """Values of the columns as `DesignMoments.regressors_at` takes them."""
        numbers = number_names(self.moments)
        values = {}
        for column in regressor_columns(self.moments):
            of = codes[column.name]
            if column.name in numbers:
                assert isinstance(column, Number)
                values[column.name] = column.units_of(of)
            else:
                values[column.name] = column.bins_of(of).astype(np.float64)
        return values


def span(x: Floats) -> Floats | None:
    """Orthonormal basis Q (p, r) of the span of the rows of x (m, p); None if r is p, or 0."""
    _, sizes, rows = np.linalg.svd(x, full_matrices=False)
    rank = int(np.sum(sizes > _ROUNDING * sizes.max(initial=0.0)))
    return np.asarray(rows[:rank].T) if 0 < rank < x.shape[1] else None


def _check_binned(columns: Sequence[Column]) -> None:
    """Refuse columns without bins to count."""
    for column in columns:
        if column.bins < 2:
            raise RequestError(
                f"{column.name!r} has a single bin; a logistic or Poisson regression counts rows "
                "in bins too: plan it, which chooses eight even bins, or add edges=[...] to the "
                "schema"
            )


def number_names(moments: DesignMoments) -> list[str]:
    """Names of the regressors' columns that enter as numbers."""
    factors = (f for regressor in moments.design.regressors for f in regressor.factors)
    return list(dict.fromkeys(name for name, level in factors if level is None))
