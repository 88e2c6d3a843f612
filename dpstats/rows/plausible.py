"""Plausible private tables: between draws only the privacy noise varies.

With a flat prior the true sums, given the noisy ones, are these less a noise of the known law. A
draw adds such a noise, which is symmetric, to every measured sum, combines the sums as the answers
are combined, and fits a density to all of them as closely as rows can.

Sums below zero cannot be fitted. In a table of many empty cells their rows would come from all
other cells alike, so that a large count would be too low in every draw. Counts that noise hides are
therefore fitted loosely: their errors stay among themselves, within the margins, which are fitted
as closely as large counts.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dpstats.arrays import Codes, Floats, Integers, one_blas_thread
from dpstats.caching import Cached
from dpstats.errors import RequestError
from dpstats.families.block import Block, Family
from dpstats.families.tables.cells import Indicator, Table
from dpstats.inference.simulation import Seed, with_more_noise
from dpstats.measured.answers import answer
from dpstats.measured.candidates_file import MOST_ROWS
from dpstats.measured.combining import Sources
from dpstats.rows.candidates import Candidates, Seen, obeying, seen_by
from dpstats.rows.drawing import draw_counts
from dpstats.rows.entropy import fit_with_penalty, usable_deviations
from dpstats.rows.generator import check_options, inference_reference
from dpstats.rows.loglinear import LogLinear, edits, independent

HIDDEN = 3.0  # noise standard deviations below which a count is fitted loosely,
LOOSE = 10.0  # by a factor that reaches this one standard deviation lower
PENALTY = 0.02  # of the fit, times the noise standard deviation; the rows' own fit starts with 4
EVEN = 0.1  # weight of other points, so that a draw may differ from the release
OTHER_POINTS, REDRAWN = 20_000, 2  # such points of edited rows, and their columns that differ
MOST_FITS = 6  # with penalties that rise until a fit converges
_MOST_SUBSETS = 3  # columns of a measured table of which all margins are fitted


def seeds_of(rng: Seed, count: int) -> Integers:
    """Seeds (count,) of independent draws."""
    return check_options("entropy", "systematic", None, None, rng).integers(2**62, size=count)


@dataclass(frozen=True, eq=False)
class PlausibleTables(Cached):
    """How plausible private tables are drawn from a release.

    Parameters
    ----------
    sources : Sources
    candidates : mapping of column name to (m,) int64
    weights : (m,) float64
        Points that draws consist of, and the density that is fitted to each: see `near`.
    """

    sources: Sources
    candidates: Mapping[str, Codes]
    weights: Floats

    def __post_init__(self) -> None:
        if self.sources.rows.value > MOST_ROWS:
            raise RequestError(
                f"the table has {self.sources.rows.value} rows; draws have as many, and at most "
                f"{MOST_ROWS}"
            )

    @classmethod
    def near(
        cls, sources: Sources, candidates: Mapping[str, Codes], weights: Floats
    ) -> PlausibleTables:
        """Draws near a fitted density, which may differ from it by a share `EVEN` of other points.

        Where its points are edited rows, every cell of the tables that no row is in would be empty
        in all draws: other points are such rows with a few columns as independent columns have
        them. Otherwise they are its points, all alike.
        """
        measurements = sources.measurements
        density = (1 - EVEN) * weights / weights.sum()
        edited = isinstance(inference_reference(measurements), LogLinear) and edits(measurements)
        if not edited or density.min() == 0:
            return cls(sources, candidates, density + EVEN / len(weights))
        schema, rng = measurements.columns, np.random.default_rng(0)
        base = independent(measurements, OTHER_POINTS, rng)
        rows = rng.choice(len(weights), OTHER_POINTS, p=density / density.sum())
        redrawn = rng.random((len(schema.names), OTHER_POINTS)).argsort(axis=0) < REDRAWN
        points = {
            name: np.concatenate(
                [candidates[name], np.where(own, base[name], candidates[name][rows])]
            )
            for name, own in zip(schema.names, redrawn, strict=True)
        }
        shares = np.append(density, np.full(OTHER_POINTS, EVEN / OTHER_POINTS))
        every = obeying(schema, points, shares)
        return cls(sources, every.codes, every.weights)

    def counts(self, seed: int) -> Codes:
        """How many rows of a plausible table are copies of each candidate, (m,) int64.

        Kept, since each is a fit of its own.
        """
        return self._once(seed, lambda: self._drawn(seed))

    def _drawn(self, seed: int) -> Codes:
        rng = np.random.default_rng(seed)
        drawn = Sources(with_more_noise(self.sources.measurements, rng))
        n = min(drawn.rows.value, MOST_ROWS)
        means = answer(drawn, self._family).sums / (drawn.rows.value * self._family.bounds)
        penalty = np.full(len(means), PENALTY / float(np.median(self._deviations)))
        with one_blas_thread():
            for _ in range(MOST_FITS):
                fit = fit_with_penalty(
                    self._seen.values, self._seen.reference, means, self._deviations, penalty
                )
                if fit.converged:
                    break
                penalty = 4 * penalty
            values = self._family.evaluate(self.candidates)
            return draw_counts(self._seen.spread(fit.density), n, "systematic", values, rng)

    @cached_property
    def _family(self) -> Family:
        """The published functions, and the margins of the tables among them."""
        blocks: dict[Block, None] = dict.fromkeys(self.sources.measurements.published.blocks)
        for block in list(blocks):
            own = block.columns if isinstance(block, Table) else ()
            sizes = range(1, len(own)) if len(own) <= _MOST_SUBSETS else (1, 2)
            for size in sizes:
                margins = itertools.combinations([c for c in own if c.bins > 1], size)
                blocks |= dict.fromkeys(Table(columns) for columns in margins)
        return Family(tuple(blocks))

    @cached_property
    def _deviations(self) -> Floats:
        """How closely each function is fitted: its noise, and loosely what that hides.

        The same for all draws.
        """
        answers = answer(self.sources, self._family)
        own = usable_deviations(self.sources.measurements, np.sqrt(answers.noise_variances))
        below = np.clip(HIDDEN - answers.means / own, 0, 1)
        count = [
            np.full(block.size, isinstance(block, Table | Indicator))
            for block in self._family.blocks
        ]
        return np.asarray(own * np.where(np.concatenate(count), LOOSE**below, 1))

    @cached_property
    def _seen(self) -> Seen:
        return seen_by(self._family, Candidates(self.candidates, self.weights))
