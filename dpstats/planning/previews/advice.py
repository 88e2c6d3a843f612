"""Changes to a plan whose intervals may tell nothing, each with its computed effect."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from dpstats.analyses.base import Analysis
from dpstats.checks import Progress
from dpstats.errors import DpstatsError
from dpstats.measured.strategy import Strategy
from dpstats.planning.previews import simulated
from dpstats.planning.previews.invented import generator
from dpstats.planning.previews.likeness import Likeness
from dpstats.planning.previews.pretended import pretend_rows, seen_by_analyses
from dpstats.planning.previews.simulated import PreviewedWidths, Simulation
from dpstats.results.rendering import significant
from dpstats.schema import Number, Schema

if TYPE_CHECKING:
    from dpstats.results.base import Result

LISTED = 8  # terms that a line names
_NORMS = 2.0  # root mean squares at which rows are clipped: a bias below .5% of a coefficient
_HOPELESS = 2  # releases in which no interval tells anything: the change does not help


class Change(NamedTuple):
    """A change to a plan, what it measures then, and the analysis that is asked of it."""

    text: str
    strategy: Strategy
    analysis: Analysis[Result]


@dataclass(frozen=True)
class Remedy:
    """A change to a plan, and its effect on the intervals of an analysis that need one.

    Attributes
    ----------
    change : str
        What to change.
    widths : mapping of term to float
        Median widths of the 95% intervals afterwards; infinite where they still tell nothing.
    lost : mapping of term to int
        In how many simulated releases they tell nothing afterwards, where that is not rare.
    releases : int
        Number of simulated releases.
    alike : bool
        Whether the widths have one unit, as those of cells: many are summed up.
    """

    change: str
    widths: Mapping[str, float]
    lost: Mapping[str, int]
    releases: int
    alike: bool = False

    def __str__(self) -> str:
        finite = {term: width for term, width in self.widths.items() if np.isfinite(width)}
        if self.alike and len(self.widths) > LISTED:
            median = significant(float(np.median(list(finite.values()))))
            rest = f"; {len(self.lost)} still tell nothing" if self.lost else ""
            return f"{self.change}: {len(finite)} intervals of median width {median}{rest}"
        shown = [f"{significant(width)} of {term}" for term, width in finite.items()]
        still = [f"{term} ({k} of {self.releases} releases)" for term, k in self.lost.items()]
        rest = f"; still without a useful interval: {listed(still)}" if still else ""
        return f"{self.change}: width {listed(shown)}{rest}"


def listed(texts: Sequence[str]) -> str:
    """The first texts on terms, with semicolons between them where one has a comma."""
    more = f" and {len(texts) - LISTED} more" if len(texts) > LISTED else ""
    return ("; " if any(", " in text for text in texts) else ", ").join(texts[:LISTED]) + more


def remedies(
    kinds: Iterable[Iterable[Change]],
    terms: Sequence[str],
    like: Likeness,
    n: int,
    progress: Progress | None,
) -> tuple[Remedy, ...]:
    """Of each kind of change, the first that leaves fewest intervals that tell nothing."""
    chosen = []
    for changes in kinds:
        helping: list[Remedy] = []
        for change in changes:
            if progress is not None:
                progress("trying changes", 0, None)
            if (remedy := _remedy(change, terms, like, n)) is not None:
                helping.append(remedy)
                if not remedy.lost:
                    break
        chosen += sorted(helping, key=lambda remedy: len(remedy.lost))[:1]
    return tuple(chosen)


def _remedy(change: Change, terms: Sequence[str], like: Likeness, n: int) -> Remedy | None:
    """The effect of a change; None if it does not help."""
    seen = seen_by_analyses(change.strategy, n)
    try:
        rows = pretend_rows(seen, like, simulated.PRETEND_RELEASES)
        simulation = Simulation(seen, n, rows)
        first = simulation.few(change.analysis, most=_HOPELESS)
        after = PreviewedWidths.of(first)
        if set(terms) & set(after.terms) <= set(after.always_lost):
            return None
        after = PreviewedWidths.of(simulation.results(change.analysis, known=first))
    except DpstatsError:  # such as a column that the frame lacks
        return None
    widths = {term: after.medians[term] for term in terms if term in after.terms}
    lost = {term: after.lost[term] for term in widths if term in after.lost}
    if len(lost) == len(widths):
        return None
    return Remedy(change.text, widths, lost, len(after.widths), after.alike)


def clipped(analysis: Any, schema: Schema, like: Likeness) -> Iterator[tuple[str, Any]]:
    """The analysis of clipped rows, around the middle and spread of the simulated ones.

    For one that has ``clip_norm=``, of numbers without missing cells, where rows are not even.
    """
    if getattr(analysis, "clip_norm", 0) is not None or like.source == "even":
        return
    try:
        used = schema.select(analysis.family(schema).column_names)
        codes, shares = like.points(used, generator(0))
        center, scale = {}, {}
        for number in (column for column in used if isinstance(column, Number)):
            values = number.grid[codes[number.name] + number.half_points]
            mean = float(shares @ values)
            center[number.name] = _rounded(mean)
            scale[number.name] = _rounded(float(np.sqrt(shares @ (values - mean) ** 2)))
        norm = _rounded(_NORMS * float(np.sqrt(len(center))))
        changed = replace(analysis, clip_norm=norm, center=center, scale=scale)
        changed.family(schema)
    except (DpstatsError, IndexError):  # one with a regressor that is no number, or missing cells
        return
    yield f"clip_norm={norm:g} with center={center}, scale={scale}", changed


def _rounded(value: float) -> float:
    """To two digits, as a guess is stated."""
    return float(f"{value:.2g}")
