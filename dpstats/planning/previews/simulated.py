"""Results on simulated releases, as many as show whether an interval may have no ends.

An interval that lacks ends in a third of all releases has them in three of three every third time.
Where three widths of a term differ much, the noise is large beside what it is divided by, and more
releases are simulated, each with a table and noise of its own: one table may hide intervals that
lack ends in most others.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import cast

import numpy as np
from numpy.typing import NDArray

from dpstats.analyses.base import Analysis
from dpstats.analyses.registry import inferred
from dpstats.arrays import Floats
from dpstats.checks import Method, Progress
from dpstats.measured.strategy import Strategy
from dpstats.planning.previews.pretended import PretendRelease, PretendRows
from dpstats.results.base import Result

PRETEND_RELEASES = 3  # at least
_FEWEST, _MOST = 6, 30  # of an analysis whose intervals may lack ends
_OFTEN = 5  # releases without ends, which give their share well enough
_ENOUGH = 12  # releases, where one interval lacks ends in a third of them
_WORK = 150.0  # of all releases together; one takes the root of functions times terms
_STEADY = 1.35  # largest by smallest width, of fewer than _FEWEST releases
_SURE = 0.12  # relative standard error of a median width, of more
_OF_MEDIAN = 1.25  # its standard error by that of a mean, for normal logarithms
RARE = 0.1  # share of releases with intervals that tell nothing, which is not worth a word
_ROUNDED = 1e-9  # relative error of a width


@dataclass(frozen=True)
class Simulation:
    """Simulated releases of n rows under a strategy, each with its table and noise."""

    strategy: Strategy
    n: int
    rows: Sequence[PretendRows]
    base: int | None = None
    _made: dict[int, PretendRelease] = field(default_factory=dict, repr=False)

    def release(self, seed: int) -> PretendRelease:
        """The release with this table and noise."""
        if seed not in self._made:
            number, which = divmod(seed, len(self.rows))
            table = self.rows[which].table(number, self.n, self.base)
            self._made[seed] = PretendRelease(self.strategy, self.n, *table, seed)
        return self._made[seed]

    @property
    def first(self) -> tuple[PretendRelease, ...]:
        """One from each set of points."""
        return tuple(self.release(seed) for seed in range(len(self.rows)))

    def few(self, analysis: Analysis[Result]) -> tuple[Result, ...]:
        """Results of an analysis on these."""
        return tuple(_infer(analysis, release) for release in self.first)

    def results(
        self, analysis: Analysis[Result], progress: Progress | None = None
    ) -> tuple[Result, ...]:
        """Results on as many releases as show whether an interval may have no ends."""
        results = list(self.few(analysis))
        widths = [result.preview_widths("noise_aware").widths for result in results]
        ranges = results[0].preview_widths("noise_aware").ranges
        if len(results) == 1 or not np.isinf(ranges).any():
            return tuple(results)
        functions = analysis.family(self.strategy.schema).size
        work = math.sqrt(functions * max(1, len(widths[0])))
        most = int(np.clip(_WORK / work, _FEWEST, _MOST))
        while len(results) < most and not _settled(np.array(widths)):
            if progress is not None:
                progress("simulating more releases", len(results), most)
            results.append(_infer(analysis, self.release(len(results))))
            widths.append(results[-1].preview_widths("noise_aware").widths)
        return tuple(results)


def _infer(analysis: Analysis[Result], release: PretendRelease) -> Result:
    return inferred(analysis, release, "on a simulated release of a preview")


def _settled(widths: Floats) -> bool:
    """True if more than these widths (r, d) would say little: all known, or often infinite."""
    releases = len(widths)
    lost = np.isinf(widths).sum(axis=0)
    if releases >= _FEWEST and lost.max(initial=0) == releases:
        return True
    if releases >= _ENOUGH and 3 * lost.max(initial=0) >= releases:
        return True
    return bool(np.all(((lost == 0) & _known(widths)) | (lost >= _OFTEN)))


def _known(widths: Floats) -> NDArray[np.bool_]:
    """Mask (d,) of the medians of widths (r, d) that more releases would hardly change."""
    known: NDArray[np.bool_] = widths.min(axis=0) == widths.max(axis=0)
    varying = np.isfinite(widths).all(axis=0) & (widths.min(axis=0) > 0)
    logs, releases = np.log(widths[:, varying]), len(widths)
    if releases < _FEWEST:
        known[varying] = np.ptp(logs, axis=0) <= np.log(_STEADY)
    else:
        error = _OF_MEDIAN * logs.std(axis=0, ddof=1) / math.sqrt(releases)
        known[varying] = error <= _SURE
    return known


@dataclass(frozen=True)
class PreviewedWidths:
    """Widths of 95% intervals of an analysis over simulated releases, by its first method."""

    terms: list[str]
    ranges: Floats
    widths: Floats

    @classmethod
    def of(cls, results: Sequence[Result]) -> PreviewedWidths:
        """The widths of the results of one analysis."""
        method = cast(Method, (*results[0].methods, "noise_aware")[0])
        each = [result.preview_widths(method) for result in results]
        return cls(each[0].terms, each[0].ranges, np.array([widths.widths for widths in each]))

    @cached_property
    def lost(self) -> dict[str, int]:
        """Number of releases in which an interval tells nothing, by term, unless that is rare."""
        counts = self._lost.sum(axis=0)
        worth = np.where(np.isinf(self.ranges), counts > RARE * len(self.widths), self._usual)
        return {self.terms[i]: int(counts[i]) for i in np.flatnonzero(worth)}

    @property
    def of_whole_range(self) -> tuple[str, ...]:
        """Terms whose intervals are usually as wide as a range that has ends."""
        return self._terms(self._usual & np.isfinite(self.ranges))

    @property
    def unbounded(self) -> tuple[str, ...]:
        """Terms whose intervals usually have no ends."""
        return self._terms(self._usual & np.isinf(self.ranges))

    def _terms(self, chosen: NDArray[np.bool_] | np.bool_) -> tuple[str, ...]:
        return tuple(self.terms[i] for i in np.flatnonzero(chosen))

    @property
    def _usual(self) -> NDArray[np.bool_]:
        usual: NDArray[np.bool_] = 2 * self._lost.sum(axis=0) >= max(1, len(self.widths))
        return usual

    @property
    def _lost(self) -> NDArray[np.bool_]:
        return tells_nothing(self.widths, self.ranges)


def tells_nothing(widths: Floats | float, ranges: Floats | float) -> NDArray[np.bool_]:
    """True if intervals have no ends, or are as wide as the range of all values."""
    return np.asarray(widths) >= np.multiply(ranges, 1 - _ROUNDED)
