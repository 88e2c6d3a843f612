"""Simulated releases: rows drawn from public numbers alone, with noise of a strategy's laws.

The seeds are fixed, so simulations at two budgets or two numbers of rows differ by these alone
(common random numbers): the noise is the same draw at another scale, and the tables resemble each
other as much as tables of different sizes can; see `PretendRows`.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from dpstats.arrays import Codes, Floats
from dpstats.families.block import Block
from dpstats.inference.simulation import draw_from, make_generator
from dpstats.measured.combining import Sources
from dpstats.measured.measurements import Measurements
from dpstats.measured.strategy import Strategy
from dpstats.measured.view import View
from dpstats.planning.previews.likeness import Likeness
from dpstats.planning.survey import capped_mean, expected_sampling

if TYPE_CHECKING:
    from dpstats.privacy.budget import Budget

POINTS_AT_A_TIME = 4_000
_NO_SUMS = ("reference", "count")  # roles of blocks that `PretendRows` has none of
_FURTHER = 9  # tables of the same points, beside the first one


class PretendRows:
    """Simulated tables of rows from one density: at every n, the sums of a strategy's blocks.

    A table of n rows is one multinomial draw S_n of sums. For another n near it, the mean of the
    table is moved towards the density's, mu + sqrt(base / n) (S_base / base - mu) with base <= n.
    That has the mean and covariance of n rows exactly, so a search over n sees a smooth curve.
    Where persons may have k rows, rows are those of n / k persons with k equal ones, and so are
    the totals of persons. In a survey every row has the mean weight, and contrasts are normal with
    the sampling variance that the plan assumes; see `expected_sampling`.
    """

    def __init__(
        self,
        strategy: Strategy,
        codes: Mapping[str, Codes],
        density: Floats,
        generators: Sequence[np.random.Generator],
        further: Sequence[np.random.Generator] = (),
    ) -> None:
        self.codes, self.density, self._strategy = codes, density, strategy
        seen = [p for p in strategy.blocks if p.role in ("family", "score", "persons")]
        k = strategy.rows_per_person
        self._alike = k if strategy.schema.design is None else 1
        self._blocks = [(p.block, k ** (p.block.degree - 1)) for p in seen]
        self._weight = (
            1.0 if strategy.schema.design is None else capped_mean(strategy.schema.design)
        )
        self._contrasts = expected_sampling(strategy)
        self._generators = generators
        self._drawn: dict[int, tuple[Codes, Floats]] = {}
        self._further = PretendRows(strategy, codes, density, further) if further else None

    def table(
        self, number: int, n: int, base: int | None = None
    ) -> tuple[Mapping[str, Codes], Floats, Floats]:
        """Points, their weights (m,) in one table of n rows, and sums (d,) of what is measured."""
        base = n if base is None else base
        number, first_tables = number % self.tables, len(self._generators)
        if self._further is not None and number >= first_tables:
            return self._further.table(number - first_tables, n, base)
        persons = max(base // self._alike, 1)
        if base not in self._drawn:
            draws = [copy.deepcopy(g).multinomial(persons, self.density) for g in self._generators]
            counts: Codes = np.array(draws, dtype=np.int64 if base >= 2**31 else np.int32)
            self._drawn = {base: (counts, self._sums(counts))}  # the last one only: they are large
        row, sums = (drawn[number] * (base / persons) for drawn in self._drawn[base])
        weights = row / n
        if base != n:
            pull = math.sqrt(base / n)
            weights = self.density + pull * (row / base - self.density)
            sums = n * (self._means + pull * (sums / base - self._means))
        drawn = [self._weight * sums, math.sqrt(n) * self._contrasts_of(number)]
        return self.codes, weights, np.rint(np.concatenate(drawn))

    def under(self, strategy: Strategy) -> PretendRows:
        """Replace the sums of the tables by those of what another strategy measures."""
        if _measured(strategy) == _measured(self._strategy):
            return self
        further = () if self._further is None else self._further._generators
        return PretendRows(strategy, self.codes, self.density, self._generators, further)

    @property
    def tables(self) -> int:
        """How many there are."""
        return len(self._generators) + (0 if self._further is None else self._further.tables)

    @cached_property
    def _means(self) -> Floats:
        return np.asarray(self._sums(self.density[None])[0])

    def _sums(self, rows: Codes | Floats) -> Floats:
        """Sums (tables, d) over points, rows (tables, m) at each."""
        return np.concatenate(
            [times * self._sums_of(block, rows) for block, times in self._blocks], axis=1
        )

    def _sums_of(self, block: Block, rows: Codes | Floats) -> Floats:
        """Sums of one block; some points at a time."""
        total = np.zeros((len(rows), block.size))
        for first in range(0, rows.shape[1], POINTS_AT_A_TIME):
            piece = slice(first, first + POINTS_AT_A_TIME)
            codes = {column.name: self.codes[column.name][piece] for column in block.columns}
            values = block.evaluate(codes)
            for table, weights in zip(total, rows[:, piece].astype(np.float64), strict=True):
                table += values.average(weights)
        return total

    def _contrasts_of(self, number: int) -> Floats:
        """Contrasts (J d,) of all blocks in one table of a single row."""
        rng, parts = copy.deepcopy(self._generators[number]), [np.zeros(0)]
        for base, deviations in self._contrasts:
            normal: Floats = rng.normal(size=(len(deviations), len(self.density)))
            values = self._sums_of(base, normal * np.sqrt(self.density))
            parts.append((deviations[:, np.newaxis] * values).ravel())
        return np.concatenate(parts)


def _measured(strategy: Strategy) -> list[Block]:
    return [planned.block for planned in strategy.blocks if planned.role not in _NO_SUMS]


def pretend_rows(strategy: Strategy, like: Likeness, count: int) -> list[PretendRows]:
    """Tables from so many sets of points; several of each but for rows of a release or a frame."""
    tables = []
    again = _FURTHER if like.source in ("even", "guesses") else 0
    for seed in range(count):
        rng = make_generator(seed)
        codes, density = like.points(strategy.columns, rng, strategy.n)
        further = [make_generator((seed * _FURTHER + other, 3)) for other in range(again)]
        tables.append(PretendRows(strategy, codes, density, [rng], further))
    return tables


def seen_by_analyses(strategy: Strategy, n: int) -> Strategy:
    """Strategy of n rows, without what the reference would measure to place candidates.

    Contrasts of scores without a pilot are at zero, and not clipped: of more noise.
    """
    seen = tuple(
        planned.at(0.0) if planned.role == "contrasts" else planned
        for planned in strategy.blocks
        if planned.role != "reference"
    )
    return replace(strategy, blocks=seen, n=n if strategy.unit == "replace" else None)


class PretendRelease(View):
    """Simulated release of n rows; a seed gives one draw of the noise, up to its scale."""

    def __init__(
        self,
        strategy: Strategy,
        n: int,
        codes: Mapping[str, Codes],
        weights: Floats,
        sums: Floats,
        seed: int,
    ) -> None:
        rng = make_generator((seed, 1))
        if not strategy.count_is_public:  # it is measured after all others
            design = strategy.schema.design
            sums = np.append(sums, round(n * (1.0 if design is None else capped_mean(design))))
        scales = np.concatenate(strategy.block_scales)
        noisy = _with_noise(sums, scales, strategy.budget, rng)
        measurements = Measurements(strategy, noisy, rng.uniform(-0.5, 0.5, len(noisy)))
        super().__init__(Sources(measurements), measurements.n)
        self.measurements, self.candidates, self.weights = measurements, codes, weights


def _with_noise(sums: Floats, scales: Floats, budget: Budget, rng: np.random.Generator) -> Codes:
    noisy = sums.copy()
    for scale in np.unique(scales):
        same = np.flatnonzero(scales == scale)
        noisy[same] += draw_from(budget.law(float(scale)), len(same), rng)
    return noisy.astype(np.int64)
