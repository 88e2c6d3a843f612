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

import numpy as np
from numpy.typing import NDArray

from dpstats.analyses.base import Analysis
from dpstats.arrays import Floats
from dpstats.checks import Progress
from dpstats.measured.strategy import Strategy
from dpstats.planning.previews.pretended import PretendRelease, PretendRows
from dpstats.results.base import Result

PRETEND_RELEASES = 3  # at least
_FEWEST, _MOST = 6, 30  # of an analysis whose intervals may lack ends
_OFTEN = 5  # releases without ends, which give their share well enough
_ENOUGH = 12  # releases, where one interval lacks ends in a third of them
_WORK = 300.0  # of all releases together; one takes the root of functions times terms
_STEADY = 1.35  # largest by smallest width, of fewer than _FEWEST releases
_SURE = 0.12  # relative standard error of a median width, of more
_OF_MEDIAN = 1.25  # its standard error by that of a mean, for normal logarithms
RARE = 0.1  # share of releases without ends that is not worth a word
_NOISE = "simulating more releases"


@dataclass(frozen=True)
class Simulation:
    """Simulated releases of n rows.

    Attributes
    ----------
    strategy : Strategy
        See `seen_by_analyses`.
    n : int
    rows : sequence of PretendRows
        Each gives a table to one of the first releases, and its further ones to later releases.
    base : int or None
        As in `PretendRows.table`.
    """

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
    """Whether more than these widths (r, d) would say little: finite and known, or often not."""
    releases = len(widths)
    lost = np.isinf(widths).sum(axis=0)
    often = lost >= _OFTEN
    if releases >= _ENOUGH and 3 * lost.max(initial=0) >= releases:
        return True
    return bool(np.all(((lost == 0) & _known(widths)) | often))


def _known(widths: Floats) -> NDArray[np.bool_]:
    """Whether the medians of finite widths (r, d) are: (d,)."""
    found: NDArray[np.bool_] = widths.min(axis=0) == widths.max(axis=0)
    varying = np.isfinite(widths).all(axis=0) & (widths.min(axis=0) > 0)
    logs, releases = np.log(widths[:, varying]), len(widths)
    if releases < _FEWEST:
        found[varying] = np.ptp(logs, axis=0) <= np.log(_STEADY)
    else:
        error = _OF_MEDIAN * logs.std(axis=0, ddof=1) / math.sqrt(releases)
        found[varying] = error <= _SURE
    return found


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
