"""Changes to a plan whose intervals may tell nothing, each with its computed effect."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from dpstats.analyses.base import Analysis
from dpstats.checks import Progress
from dpstats.errors import DpstatsError
from dpstats.measured.strategy import Strategy
from dpstats.planning.previews import bins, simulated
from dpstats.planning.previews.invented import generator
from dpstats.planning.previews.likeness import Likeness
from dpstats.planning.previews.pretended import pretend_rows, seen_by_analyses
from dpstats.planning.previews.simulated import PreviewedWidths, Simulation
from dpstats.planning.solution import text_of
from dpstats.results.base import Result
from dpstats.results.rendering import significant
from dpstats.schema import Number, Schema

if TYPE_CHECKING:
    from dpstats.privacy.budget import Budget

_MOST_DROPPED = 8  # columns that are left out one by one
_TIMES = (2, 4, 8, 16)  # the budget
_SHORTER = 0.75  # of the widths of a quantile, with more bins
_NORMS = 2.0  # root mean squares at which rows are clipped: a bias below .5% of a coefficient
_HOPELESS = 2  # releases in which no interval tells anything: the change does not help
_TERM = re.compile(r"[^+()]*(?:\([^()]*(?:\([^()]*\)[^()]*)*\)[^+()]*)*")


class Replannable(Protocol):
    """What is used of a plan."""

    @property
    def strategy(self) -> Strategy:
        """The blocks with their noise."""

    @property
    def analyses(self) -> Mapping[str, Analysis[Result]]:
        """By name."""

    def asking(self, analyses: Mapping[str, Analysis[Result]]) -> Replannable:
        """The same for other analyses."""

    def declaring(self, schema: Schema) -> Replannable:
        """The same for another schema."""

    def costing(self, budget: Budget) -> Replannable:
        """The same at another budget."""


class Change(NamedTuple):
    """What to change, the plan that it gives, and the columns of its rows if not the plan's."""

    text: str
    plan: Replannable
    columns: Schema | None = None


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
    before : mapping of term to float
        Median widths without the change, where they are finite.
    alike : bool
        Whether the widths have one unit, as those of cells: many are summed up.
    """

    change: str
    widths: Mapping[str, float]
    lost: Mapping[str, int]
    releases: int
    before: Mapping[str, float]
    alike: bool = False

    @property
    def left(self) -> int:
        """How many intervals tell nothing in more than a tenth of the releases."""
        return len(self.lost)

    def __str__(self) -> str:
        finite = {term: w for term, w in self.widths.items() if np.isfinite(w)}
        if self.alike and len(self.widths) > _MOST_DROPPED:
            text = f"{len(finite)} intervals of median width {_median(finite.values())}"
            rest = f"; {self.left} still tell nothing" if self.left else ""
            return f"{self.change}: {text}{rest}"
        shown = list(finite.items())[:_MOST_DROPPED]
        more = f" and {len(finite) - len(shown)} more" if len(finite) > len(shown) else ""
        text = joined([f"{significant(w)} of {term}{self._now(term)}" for term, w in shown], finite)
        still = [f"{term} ({k} of {self.releases} releases)" for term, k in self.lost.items()]
        named = joined(still[:_MOST_DROPPED], self.lost)
        rest = f"; still without a useful interval: {named}" if still else ""
        return f"{self.change}: width {text}{more}{rest}"

    def _now(self, term: str) -> str:
        return f" (now {significant(self.before[term])})" if term in self.before else ""


def joined(texts: Sequence[str], terms: Iterable[str]) -> str:
    """Texts on terms, with semicolons between them where a term has a comma."""
    return ("; " if any(", " in term for term in terms) else ", ").join(texts)


def _median(widths: Iterable[float]) -> str:
    return significant(float(np.median(list(widths))))


def remedies(
    plan: Replannable,
    name: str,
    terms: Sequence[str],
    like: Likeness,
    n: int,
    progress: Progress | None = None,
) -> tuple[Remedy, ...]:
    """Changes after which the intervals of an analysis tell something, the cheapest first.

    In this order: rows are clipped, which costs a small bias; numbers get more bins; a column is
    left out, the one that helps most; the other analyses are; the budget grows, to 16 times. The
    first that leaves fewest intervals that tell nothing is named, and how much more budget would.
    """
    seeing = partial(_tried, name=name, terms=terms, like=like, n=n, progress=progress)
    kinds = (changes(plan, name, like) for changes in (_clipped, _finer, _dropped, _alone))
    dearer = ([change] for change in _dearer(plan))
    found = (_first_that_helps(changes, seeing) for changes in (kinds, dearer))
    return tuple(remedy for remedy in found if remedy is not None)


def _first_that_helps(
    changes: Iterable[Iterable[Change]], seeing: Callable[..., Remedy | None]
) -> Remedy | None:
    """The first change that leaves no interval that tells nothing, or the one that leaves fewest.

    Of each list of alternatives the best in one simulated release; as many releases as a preview
    has are simulated only where none is left in that one, and for the result.
    """
    tried: list[tuple[Remedy, Change]] = []
    for alternatives in changes:
        rough = [(seeing(change, releases=1), change) for change in alternatives]
        helping = [(remedy, change) for remedy, change in rough if remedy is not None]
        if helping:
            first, change = min(helping, key=lambda pair: _badness(pair[0]))
            remedy = first if first.left else seeing(change)
            tried += [] if remedy is None else [(remedy, change)]
            if remedy is not None and not remedy.left:
                break
    for remedy, change in sorted(tried, key=lambda pair: pair[0].left):
        whole = seeing(change) if remedy.releases == 1 else remedy
        if whole is not None:
            return whole
    return None


def _badness(remedy: Remedy) -> tuple[int, int, float]:
    finite = [width for width in remedy.widths.values() if np.isfinite(width)]
    logs = float(np.sum(np.log(np.maximum(finite, 1e-300))))
    return remedy.left, len(remedy.widths) - len(finite), logs


def _tried(
    change: Change, *, name: str, terms: Sequence[str], like: Likeness, n: int,
    releases: int | None = None, progress: Progress | None = None,
) -> Remedy | None:  # fmt: skip
    """The effect of a change; None if it does not help."""
    if progress is not None:
        progress("trying changes", 0, None)
    try:
        simulation, analysis = _simulation(change, like, n, releases), change.plan.analyses[name]
        tables = min(_HOPELESS, len(simulation.rows))
        results = tuple(analysis.infer(simulation.release(seed)) for seed in range(tables))
        found = PreviewedWidths.of(results)
        if not set(terms) & set(found.terms) <= set(found.always_lost):
            found = PreviewedWidths.of(simulation.results(analysis, known=results))
        widths, lost = found.medians, found.lost
    except DpstatsError:  # such as a column that the frame lacks, or no regressor that is left
        return None
    kept = {term: widths[term] for term in terms if term in widths}
    left = {term: lost[term] for term in kept if term in lost}
    made = Remedy(change.text, kept, left, len(found.widths), {}, alike=found.alike)
    return made if len(left) < len(kept) else None


def _simulation(change: Change, like: Likeness, n: int, releases: int | None = None) -> Simulation:
    """So many simulated releases first, or as many as a preview has."""
    seen = seen_by_analyses(change.plan.strategy, n)
    tables = simulated.PRETEND_RELEASES if releases is None else releases
    rows = pretend_rows(seen, like, tables, change.columns)
    return Simulation(seen, n, rows)


def finer_quantiles(
    plan: Replannable, name: str, results: Sequence[Result], like: Likeness, n: int
) -> tuple[Remedy, ...]:
    """The fewest further bins that make intervals of quantiles a quarter shorter, none longer."""
    before = PreviewedWidths.of(results).medians
    for change in _declaring(plan, bins.finer_edges(plan.analyses[name], *_of(plan), like)):
        with suppress(DpstatsError):
            results = _simulation(change, like, n).results(change.plan.analyses[name])
            widths = PreviewedWidths.of(results).medians
            ratios = [widths[term] / before[term] for term in before if before[term] > 0]
            if ratios and np.median(ratios) <= _SHORTER and max(ratios) <= 1:
                return (Remedy(change.text, widths, {}, len(results), before),)
    return ()


def _of(plan: Replannable) -> tuple[Schema, Schema]:
    """The schema, and the columns that simulated rows have."""
    return plan.strategy.schema, plan.strategy.columns


def _declaring(plan: Replannable, finer: Iterable[bins.Finer]) -> Iterator[Change]:
    """The plan for other schemas, on the same rows."""
    for change, schema in finer:
        with suppress(DpstatsError):
            yield Change(change, plan.declaring(schema), plan.strategy.columns)


def _finer(plan: Replannable, name: str, like: Likeness) -> Iterator[Change]:
    """The plan with more bins of the numbers of the analysis."""
    yield from _declaring(plan, bins.finer_bins(plan.analyses[name], *_of(plan), like))


def _alone(plan: Replannable, name: str, like: Likeness) -> Iterator[Change]:
    """The plan without the other analyses."""
    others = [other for other in plan.analyses if other != name]
    if others:
        change = "alone in its plan" if len(others) > 1 else f"without {others[0]!r}"
        yield Change(change, plan.asking({name: plan.analyses[name]}))


def _dearer(plan: Replannable) -> Iterator[Change]:
    """More budget."""
    budget = plan.strategy.budget
    for times in _TIMES:
        more = budget.of_total(budget.total * times)
        yield Change(text_of(more), plan.costing(more))


def _planned(plan: Replannable, name: str, changed: Iterable[tuple[str, Any]]) -> Iterator[Change]:
    """The plan with another analysis under a name, where it can be planned."""
    for change, analysis in changed:
        with suppress(DpstatsError):
            yield Change(change, plan.asking({**plan.analyses, name: analysis}))


def _clipped(plan: Replannable, name: str, like: Likeness) -> Iterator[Change]:
    """The analysis of clipped rows, around the middle and spread of the simulated ones."""
    analysis: Any = plan.analyses[name]
    if getattr(analysis, "clip_norm", 0) is not None or like.source == "even":
        return
    schema = plan.strategy.schema
    try:
        used = schema.select(analysis.family(schema).column_names)
        numbers = [column for column in used if isinstance(column, Number)]
        codes, shares = like.points(used, generator(0))
        center, scale = {}, {}
        for number in numbers:
            values = number.grid[codes[number.name] + number.half_points]
            mean = float(shares @ values)
            center[number.name] = _rounded(mean)
            scale[number.name] = _rounded(float(np.sqrt(shares @ (values - mean) ** 2)))
        norm = _rounded(_NORMS * float(np.sqrt(len(numbers))))
        changed = replace(analysis, clip_norm=norm, center=center, scale=scale)
        changed.family(schema)
    except (DpstatsError, IndexError):  # one with a regressor that is no number, or missing cells
        return
    change = f"clip_norm={norm:g} with center={center}, scale={scale}"
    yield from _planned(plan, name, [(change, changed)])


def _rounded(value: float) -> float:
    """To two digits, as a guess is stated."""
    return float(f"{value:.2g}")


def _dropped(plan: Replannable, name: str, like: Likeness) -> Iterator[Change]:
    """The analysis without one of its columns or terms."""
    yield from _planned(plan, name, _smaller(plan.analyses[name]))


def _smaller(analysis: Any) -> Iterator[tuple[str, Any]]:
    """Analyses with a column or term less."""
    formula, columns = getattr(analysis, "formula", None), getattr(analysis, "columns", None)
    try:
        if isinstance(formula, str) and not re.search(r"[*\-]", formula):
            response, _, right = formula.partition("~")
            terms = [term.strip() for term in re.findall(_TERM, right) if term.strip()]
            for term in terms[:_MOST_DROPPED] if len(terms) > 1 else ():
                left = " + ".join(other for other in terms if other != term)
                yield f"without {term}", replace(analysis, formula=f"{response.strip()} ~ {left}")
        elif isinstance(columns, tuple | list) and len(columns) > 2:
            for column in columns[:_MOST_DROPPED]:
                kept = [other for other in columns if other != column]
                yield f"without {column}", replace(analysis, columns=kept)
    except DpstatsError:
        return
