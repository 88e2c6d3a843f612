"""Results on simulated releases, as many as show whether an interval may have no ends.

An interval that lacks ends in a third of all releases has them in three of three every third time.
Where three widths of a term differ much, the noise is large beside what it is divided by, and more
noise is drawn over the same rows.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from dpstats.analyses.base import Analysis
from dpstats.arrays import Codes, Floats
from dpstats.checks import Progress
from dpstats.measured.strategy import Strategy
from dpstats.planning.previews.pretended import PretendRelease, PretendRows
from dpstats.results.base import Result

PRETEND_RELEASES = 3  # at least, each of rows of its own
_FEWEST, _MOST = 6, 30  # of an analysis whose intervals may lack ends
_ENOUGH = 12  # releases that all have ends
_OFTEN = 5  # releases without ends, which give their share well enough
_WORK = 400.0  # of all releases together; one takes the root of functions times terms
_STEADY, _STEADIER = 1.5, 2.5  # largest by smallest width, of few releases and from _FEWEST on
RARE = 0.1  # share of releases without ends that is not worth a word
_NOISE = "simulating more noise"


@dataclass(frozen=True)
class Simulation:
    """Simulated releases of n rows; those beyond the first few have rows of these and other noise.

    Attributes
    ----------
    strategy : Strategy
        See `seen_by_analyses`.
    n : int
    tables : sequence of (codes, weights, sums)
        As `PretendRows.table` has them.
    """

    strategy: Strategy
    n: int
    tables: Sequence[tuple[Mapping[str, Codes], Floats, Floats]]
    _made: dict[int, PretendRelease] = field(default_factory=dict, repr=False)

    @classmethod
    def of(
        cls, strategy: Strategy, rows: Sequence[PretendRows], n: int, base: int | None = None
    ) -> Simulation:
        """Of one table from each; `base` as in `PretendRows.table`."""
        return cls(strategy, n, [one.table(0, n, base) for one in rows])

    def release(self, seed: int) -> PretendRelease:
        """The release with this noise."""
        if seed not in self._made:
            table = self.tables[seed % len(self.tables)]
            self._made[seed] = PretendRelease(self.strategy, self.n, *table, seed)
        return self._made[seed]

    @property
    def first(self) -> tuple[PretendRelease, ...]:
        """One of each table."""
        return tuple(self.release(seed) for seed in range(len(self.tables)))

    def few(self, analysis: Analysis[Result]) -> tuple[Result, ...]:
        """Results of an analysis on these."""
        return tuple(analysis.infer(release) for release in self.first)

    def results(
        self, analysis: Analysis[Result], progress: Progress | None = None
    ) -> tuple[Result, ...]:
        """Results on as many releases as show whether an interval may have no ends.

        No clock decides: the number follows from the widths and from the size of the analysis.
        """
        results = list(self.few(analysis))
        if len(results) == 1 or not results[0].may_be_unbounded:
            return tuple(results)
        widths = [result.preview_widths("noise_aware") for result in results]
        functions = analysis.family(self.strategy.schema).size
        work = math.sqrt(functions * max(1, len(widths[0])))
        most = int(np.clip(_WORK / work, _FEWEST, _MOST))
        while len(results) < most and not _settled(np.array(widths)):
            if progress is not None:
                progress(_NOISE, len(results), most)
            results.append(analysis.infer(self.release(len(results))))
            widths.append(results[-1].preview_widths("noise_aware"))
        return tuple(results)


def _settled(widths: Floats) -> bool:
    """Whether more than these widths (r, d) would say little: alike, always finite, often not."""
    releases = len(widths)
    steady = _STEADY if releases < _FEWEST else _STEADIER
    lost = np.isinf(widths).sum(axis=0)
    least, largest = widths.min(axis=0), widths.max(axis=0)
    alike = (lost == 0) & ((releases >= _ENOUGH) | (largest <= steady * least))
    return bool(np.all(alike | (lost >= _OFTEN)))


def widths_by_term(results: Sequence[Result]) -> dict[str, float]:
    """Median widths of noise-aware 95% intervals."""
    terms, widths = _widths(results)
    return dict(zip(terms, np.median(widths, axis=0).tolist(), strict=True))


def lost_by_term(results: Sequence[Result]) -> dict[str, int]:
    """In how many releases an interval has no ends, for terms where that is not rare."""
    if not any(np.isinf(one.preview_widths("noise_aware")).any() for one in results):
        return {}
    terms, widths = _widths(results)
    lost = np.isinf(widths).sum(axis=0).tolist()
    return {term: k for term, k in zip(terms, lost, strict=True) if k > RARE * len(results)}


def _widths(results: Sequence[Result]) -> tuple[list[str], Floats]:
    """Terms (d,), and widths (r, d) of noise-aware 95% intervals."""
    frames = [result.intervals_frame() for result in results]
    widths = np.array([frame["conf_high"] - frame["conf_low"] for frame in frames])
    return frames[0]["term"].tolist(), widths
