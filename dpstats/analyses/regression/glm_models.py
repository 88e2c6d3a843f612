"""From a release to a generalised linear model: which functions it needs, and its score."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dpstats.analyses.regression.calibrated_score import CalibratedScore
from dpstats.analyses.regression.cell_score import CellScore
from dpstats.analyses.regression.design_moments import DesignMoments
from dpstats.analyses.regression.glm_empty_levels import EnteringLevels, Scored, span
from dpstats.analyses.regression.marginal_effects import corners
from dpstats.arrays import Floats
from dpstats.caching import Cached
from dpstats.errors import RequestError
from dpstats.families.block import Block, Family
from dpstats.families.conditions import CellSet
from dpstats.families.pilot_score import UNIT, PilotScore
from dpstats.families.tables.bin_offsets import BinOffsets
from dpstats.families.tables.cells import Cells, Indicator, Table
from dpstats.inference.simulation import calibration_seed
from dpstats.measured.view import density_of
from dpstats.schema import Column, Number

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dpstats.analyses.regression.link import Link
    from dpstats.measured.answers import Answers
    from dpstats.measured.row_count import RowCount
    from dpstats.measured.view import ReleaseView

MOST_CELLS = 512  # of the regressors, that a model of cells may have
_MOST_COLUMNS = 2


def regressor_columns(moments: DesignMoments) -> tuple[Column, ...]:
    """The columns of the regressors, in the order of the schema."""
    names = {name for regressor in moments.design.regressors for name, _ in regressor.factors}
    return tuple(column for column in moments.schema if column.name in names)


@dataclass(frozen=True, eq=False)
class BinnedModel(Cached):
    """Of one or two columns: the table of their cells by the outcome, and bin offsets."""

    moments: DesignMoments

    @staticmethod
    def serves(moments: DesignMoments) -> bool:
        """Whether the columns are few enough."""
        columns = regressor_columns(moments)
        cells = math.prod(column.bins for column in columns)
        return len(columns) <= _MOST_COLUMNS and cells <= MOST_CELLS and _of_all(moments)

    @cached_property
    def columns(self) -> tuple[Column, ...]:
        """Those of the regressors."""
        return regressor_columns(self.moments)

    @cached_property
    def numbers(self) -> tuple[Number, ...]:
        """Regressors that are numbers, not groups."""
        return tuple(self.moments.schema[name] for name in _numbers(self.moments))  # type: ignore[misc]

    @cached_property
    def blocks(self) -> list[Block]:
        """The table, and the offsets of every number with bins of several grid points."""
        check_binned(self.columns)
        names = [column.name for column in self.columns]
        table = Cells.table(self.moments.schema, [*names, self.moments.design.response[0]])
        return [table, *(BinOffsets(self.columns, c.name) for c in self._wide)]

    @property
    def _wide(self) -> list[Number]:
        return [c for c in self.numbers if np.any(c.bin_codes[0] < c.bin_codes[1])]

    def _values(self, shifts: Mapping[str, float]) -> dict[str, Floats]:
        """Regressor columns at the middle of every cell, some moved by so many half bins."""
        index = np.indices([column.bins for column in self.columns])
        values = {}
        for column, bins in zip(self.columns, index, strict=True):
            flat = bins.ravel()
            values[column.name] = flat.astype(np.float64)
            if column in self.numbers:
                assert isinstance(column, Number)
                first, last = column.bin_codes
                moved = shifts.get(column.name, 0.0)
                codes = (first + last + moved * (last - first))[flat] / 2
                values[column.name] = codes / column.half_points
        return values

    def _points(self, kept: NDArray[np.bool_]) -> dict[str, Floats]:
        """Values of the columns at the `corners` of the cells that the score has."""
        names = [column.name for column in self._wide]
        moved = [
            self._values(dict(zip(names, signs, strict=True)))
            for signs in corners(len(names)).tolist()
        ]
        return {n: np.concatenate([values[n][kept] for values in moved]) for n in moved[0]}

    def score(self, release: ReleaseView) -> Scored[CellScore]:
        """The score of the noisy cells."""
        table, *offsets = self.blocks
        assert isinstance(table, Table)
        answers = release.answers(self.blocks)
        response, event = self.moments.design.response
        assert event is not None
        outcome = [c.name for c in table.columns].index(response)
        size = math.prod(column.bins for column in self.columns)
        sums = np.asarray(answers.sums, dtype=np.float64)
        place = np.arange(table.size).reshape(table.shape)
        pair = [np.take(place, level, axis=outcome).ravel() for level in (1 - event, event)]
        parts = [table.size + size * j + np.arange(size) for j in range(len(offsets))]
        levels = EnteringLevels.of(release, self.moments)
        kept = self._kept(levels)
        order = np.concatenate([part[kept] for part in (*pair, *parts)])
        unit = np.where(order < table.size, 1.0, np.asarray(answers.bounds)[order])
        noise = answers.noise_covariance[np.ix_(order, order)] / np.outer(unit, unit)
        found = (sums[order] / unit).reshape(-1, int(kept.sum()))
        x = self.moments.regressors_at(self._values({}))[kept]
        slopes, remainder = self._expansion(x, kept)
        if (basis := span(x)) is not None:
            bounded = np.abs(basis)
            x, slopes, remainder = x @ basis, slopes @ basis, remainder @ bounded
        every = kept.all() and self.moments.schema[response].bins == 2
        n = release.n if every else max(round(float(found[:2].sum())), 1)
        groups = [(w, law) for w, law in answers.noise_groups if not law.gaussian]
        laplace = np.array([w[order] / unit * law.variance**0.5 for w, law in groups])
        score = CellScore(
            x, slopes, remainder, found[:2], found[2:], noise, n,
            laplace.reshape(-1, len(order)), np.array([float(law.terms) for _, law in groups]),
            calibration_seed(answers), float(answers.rows.rows_per_person),
        )  # fmt: skip
        rows = self._rows(release, answers)
        return Scored(score, basis, self._points(kept), rows, levels.left_out)

    def _rows(self, release: ReleaseView, answers: Answers) -> RowCount:
        """The number of rows with a value of all columns that need one."""
        given = self.moments.given
        if given is None:
            return answers.rows
        cells = CellSet(given.columns, given.over(given.columns).tobytes())
        return release.answers(Indicator(cells, given.name)).of_counted_rows().rows

    def _kept(self, levels: EnteringLevels) -> NDArray[np.bool_]:
        """(C,) cells in which every number has a value, and every level has rows."""
        index = np.indices([column.bins for column in self.columns])
        flat = {c.name: bins.ravel() for c, bins in zip(self.columns, index, strict=True)}
        kept = levels.hold(flat)
        for column in self.numbers:
            kept &= flat[column.name] < column.value_bins
        return kept

    def _expansion(self, x: Floats, kept: NDArray[np.bool_]) -> tuple[Floats, Floats]:
        """Slopes (J, C, p) over half a bin, and bounds (C, p) on the rest, at all corners."""
        wide = [column.name for column in self._wide]
        moved = {
            (name, sign): self.moments.regressors_at(self._values({name: sign}))[kept]
            for name in wide
            for sign in (-1.0, 1.0)
        }
        slopes = np.array([(moved[n, 1.0] - moved[n, -1.0]) / 2 for n in wide])
        slopes = slopes.reshape(len(wide), *x.shape)
        remainder = np.zeros_like(x)
        for signs in itertools.product((-1.0, 1.0), repeat=len(wide)):
            values = self._values(dict(zip(wide, signs, strict=True)))
            corner = self.moments.regressors_at(values)[kept]
            linear = x + sum((s * d for s, d in zip(signs, slopes, strict=True)), np.zeros(1))
            remainder = np.maximum(remainder, np.abs(corner - linear))
        return slopes, remainder


@dataclass(frozen=True, eq=False)
class DensityModel(Cached):
    """Of any columns: moments as for least squares, and two-way tables of all columns.

    Attributes
    ----------
    moments : DesignMoments
    link : Link
    robust : bool
        Whether sampling variances hold for any law of the response (HC0).
    """

    moments: DesignMoments
    link: Link
    robust: bool = False

    @cached_property
    def blocks(self) -> list[Block]:
        """Mean products of regressors and response, and tables of pairs of columns."""
        check_binned(self.counted)
        names = self.moments.schema.names
        ordered = sorted(self.counted, key=lambda column: names.index(column.name))
        pairs = itertools.combinations(ordered, 2)
        return [*self.moments.blocks, *(Table(pair) for pair in pairs)]

    @property
    def counted(self) -> list[Column]:
        """Columns whose rows are counted: those of the regressors, and the response."""
        response = self.moments.schema[self.moments.design.response[0]]
        return [*regressor_columns(self.moments), response]

    @cached_property
    def second_stage(self) -> PilotScore:
        """The score itself, at a pilot that is not known yet."""
        terms, _ = self.moments.regressor_terms
        design, given = self.moments.design, self.moments.given
        return PilotScore.of(self.moments.schema, terms, design.response, self.link.name, given)

    def at_pilot(self, release: ReleaseView) -> PilotScore:
        """The same at the estimate of a release of the first stage; at zero if there is none."""
        params = self.score(release, []).model.params
        _, basis = self.moments.regressor_terms
        return self.second_stage.at((np.zeros(len(basis)) if params is None else params) @ basis)

    def score(self, release: ReleaseView, more: Sequence[Block]) -> Scored[CalibratedScore]:
        """The calibrated score of the fitted density.

        `more` are functions that were measured besides.
        """
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
        levels = EnteringLevels.of(release, moments)
        inside = levels.hold({c.name: c.bins_of(codes[c.name]) for c in self._columns})
        if moments.given is not None:
            inside &= moments.given.holds(codes)
        x, coarse = x * inside[:, np.newaxis], coarse * inside[:, np.newaxis]
        pilot = self._pilot(answers.blocks)
        if (basis := span(x)) is not None:
            x, coarse = x @ basis, coarse @ basis
            pilot = None if pilot is None else pilot @ basis
        score = CalibratedScore(
            x, coarse, y, density, functions, answers, self.link, self.robust, pilot
        )
        rows = answers.rows if moments.given is None else moments.matrix(release).answers.rows
        return Scored(score, basis, values, rows, levels.left_out)

    def _pilot(self, blocks: Sequence[Block]) -> Floats | None:
        """(p,) coefficients at which a score was measured, if one was."""
        _, basis = self.moments.regressor_terms
        for block in blocks:
            if isinstance(block, PilotScore) and block.pilot is not None:
                found = np.linalg.lstsq(basis.T, np.array(block.pilot) / UNIT, rcond=None)[0]
                return np.asarray(found)
        return None

    def _bin_means(
        self, codes: dict[str, NDArray[np.int64]], values: dict[str, Floats], density: Floats
    ) -> dict[str, Floats]:
        """The values with those of every number replaced by their mean in its bin."""
        found = dict(values)
        for name in _numbers(self.moments):
            bins = self.moments.schema[name].bins_of(codes[name])
            mass = np.bincount(bins, density)
            total = np.bincount(bins, density * values[name])
            found[name] = (total / np.where(mass > 0, mass, 1.0))[bins]
        return found

    @property
    def columns(self) -> tuple[Column, ...]:
        """Those of the regressors."""
        return regressor_columns(self.moments)

    @property
    def _columns(self) -> tuple[Column, ...]:
        given = () if self.moments.given is None else self.moments.given.columns
        own = {column for block in self.blocks for column in block.columns}
        return tuple(c for c in self.moments.schema if c in own or c in given)

    def _points(self, codes: dict[str, NDArray[np.int64]]) -> dict[str, Floats]:
        """Values of the columns as `DesignMoments.regressors_at` takes them."""
        numbers = _numbers(self.moments)
        values = {}
        for column in regressor_columns(self.moments):
            of = codes[column.name]
            if column.name in numbers:
                assert isinstance(column, Number)
                values[column.name] = column.units_of(of)
            else:
                values[column.name] = column.bins_of(of).astype(np.float64)
        return values


def check_binned(columns: tuple[Column, ...] | list[Column]) -> None:
    """Refuse columns without bins to count.

    Raises
    ------
    RequestError
    """
    for column in columns:
        if column.bins < 2:
            raise RequestError(
                f"{column.name!r} has a single bin; a logistic or Poisson regression counts rows "
                "in bins too: plan it, which chooses eight even bins, or add edges=[...] to the "
                "schema"
            )


def _numbers(moments: DesignMoments) -> list[str]:
    """Names of the regressors' columns that enter as numbers."""
    factors = (f for regressor in moments.design.regressors for f in regressor.factors)
    return list(dict.fromkeys(name for name, level in factors if level is None))


def _of_all(moments: DesignMoments) -> bool:
    """Whether the rows are all those with a value, without another condition."""
    return moments.given is None or not moments.given.label
