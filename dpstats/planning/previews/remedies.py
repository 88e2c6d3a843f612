"""Changes to a plan whose intervals are likely unbounded, each with its computed effect."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from dpstats.analyses.base import Analysis
from dpstats.errors import DpstatsError
from dpstats.measured.strategy import Strategy
from dpstats.planning.previews.invented import generator
from dpstats.planning.previews.likeness import Likeness
from dpstats.planning.previews.pretended import PretendRelease, pretend_rows, seen_by_analyses
from dpstats.results.base import Result
from dpstats.results.rendering import significant
from dpstats.schema import Number

if TYPE_CHECKING:
    from dpstats.privacy.budget import Budget

_MOST_DROPPED = 8  # columns that are left out one by one
_TIMES = (2, 4, 8, 16)  # the budget
_NORMS = 2.0  # root mean squares at which rows are clipped: a bias below .5% of a coefficient
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

    def costing(self, budget: Budget) -> Replannable:
        """The same at another budget."""


Change = tuple[str, Replannable]
"""What to change, and the plan that it gives."""


@dataclass(frozen=True)
class Remedy:
    """A change to a plan, and its effect on the intervals of an analysis that were unbounded.

    Attributes
    ----------
    change : str
        What to change.
    widths : mapping of term to float
        Median widths of the 95% intervals afterwards, of the terms that were unbounded.
    """

    change: str
    widths: Mapping[str, float]

    @property
    def left(self) -> int:
        """How many of them are still unbounded."""
        return sum(np.isinf(width) for width in self.widths.values())

    def __str__(self) -> str:
        finite = {term: w for term, w in self.widths.items() if np.isfinite(w)}
        shown = list(finite.items())[:_MOST_DROPPED]
        more = f" and {len(finite) - len(shown)} more" if len(finite) > len(shown) else ""
        text = ", ".join(f"{significant(width)} of {term}" for term, width in shown)
        still = [term for term in self.widths if term not in finite]
        rest = f"; still unbounded: {', '.join(still)}" if still else ""
        return f"{self.change}: width {text}{more}{rest}"


def unbounded_terms(results: Sequence[Result]) -> tuple[str, ...]:
    """Terms whose intervals have no ends in most of some simulated releases."""
    found = np.median([r.preview_widths("noise_aware") for r in results], axis=0)
    if not np.isinf(found).any():
        return ()
    widths = _widths(results)
    return tuple(term for term, width in widths.items() if np.isinf(width))


def _widths(results: Sequence[Result]) -> dict[str, float]:
    """Median widths of noise-aware 95% intervals by term."""
    frames = [result.intervals_frame() for result in results]
    widths = np.median([frame["conf_high"] - frame["conf_low"] for frame in frames], axis=0)
    return dict(zip(frames[0]["term"].tolist(), widths.tolist(), strict=True))


def remedies(
    plan: Replannable, name: str, terms: Sequence[str], like: Likeness, n: int, releases: int
) -> tuple[Remedy, ...]:
    """Changes that make unbounded intervals of an analysis finite, the cheapest first.

    In this order: rows are clipped, which costs a small bias; a column is left out, the one that
    helps most; the other analyses are; the budget grows, to 16 times. The first that makes most
    intervals finite is named, and how much more budget would.
    """
    seeing = partial(_tried, name=name, terms=terms, like=like, n=n, releases=releases)
    best: list[Remedy] = []
    for changes in (_clipped, _dropped, _alone):
        changed = list(changes(plan, name, like))
        if len(changed) > 1:  # one simulated release tells which of them helps most
            rough = [(seeing(*one, releases=1), one) for one in changed]
            tried = [(remedy, one) for remedy, one in rough if remedy is not None]
            changed = [min(tried, key=lambda pair: _badness(pair[0]))[1]] if tried else []
        best += [remedy for one in changed if (remedy := seeing(*one)) is not None]
        if best and not best[-1].left:
            break
    budgets: list[Remedy] = []
    for change, costing in _dearer(plan):
        remedy = seeing(change, costing)
        budgets += [] if remedy is None else [remedy]
        if remedy is not None and not remedy.left:
            break
    best = [one for one in best if one.left == min(other.left for other in best)][:1]
    return (*best, *sorted(budgets, key=_badness)[:1])


def _badness(remedy: Remedy) -> tuple[int, float]:
    finite = [width for width in remedy.widths.values() if np.isfinite(width)]
    return remedy.left, float(np.sum(np.log(np.maximum(finite, 1e-300))))


def _tried(
    change: str, plan: Replannable, *, name: str, terms: Sequence[str], like: Likeness, n: int,
    releases: int,
) -> Remedy | None:  # fmt: skip
    """The effect of a change; None if it does not help."""
    analysis = plan.analyses[name]
    try:
        seen = seen_by_analyses(plan.strategy, n)
        rows = pretend_rows(seen, like, releases)
        results = [
            analysis.infer(PretendRelease(seen, n, *one.table(0, n), seed))
            for seed, one in enumerate(rows)
        ]
        widths = _widths(results)
    except DpstatsError:  # such as a column that the frame lacks, or no regressor that is left
        return None
    kept = {term: widths[term] for term in terms if term in widths}
    remedy = Remedy(change, kept)
    return remedy if kept and remedy.left < len(kept) else None


def _alone(plan: Replannable, name: str, like: Likeness) -> Iterator[Change]:
    """The plan without the other analyses."""
    others = [other for other in plan.analyses if other != name]
    if others:
        named = ", ".join(map(repr, others[:3])) + (", ..." if len(others) > 3 else "")
        yield f"without {named}", plan.asking({name: plan.analyses[name]})


def _dearer(plan: Replannable) -> Iterator[Change]:
    """More budget."""
    budget = plan.strategy.budget
    for times in _TIMES:
        more = budget.of_total(budget.total * times)
        yield f"{more.parameter} = {float(more.total):g}", plan.costing(more)


def _planned(plan: Replannable, name: str, changed: Iterable[tuple[str, Any]]) -> Iterator[Change]:
    """The plan with another analysis under a name, where it can be planned."""
    for change, analysis in changed:
        with suppress(DpstatsError):
            yield change, plan.asking({**plan.analyses, name: analysis})


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
