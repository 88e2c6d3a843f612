"""Expected results of a plan, computed on a simulated release from public numbers alone."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, get_args

import numpy as np

from dpstats.analyses.second_stage import at_pilots
from dpstats.checks import (
    Method,
    Progress,
    Target,
    check_alpha,
    check_method,
    check_target,
)
from dpstats.display import as_html, html_table
from dpstats.measured.strategy import Strategy
from dpstats.measured.view import ReleaseView
from dpstats.planning.previews.expected_accuracy import ExpectedAccuracy, expected_accuracy
from dpstats.planning.previews.likeness import Likeness, likeness
from dpstats.planning.previews.pretended import PretendRelease, pretend_rows, seen_by_analyses
from dpstats.planning.previews.remedies import Remedy, Replannable, remedies, unbounded_terms
from dpstats.results.base import Result
from dpstats.results.rendering import significant

if TYPE_CHECKING:
    import pandas as pd

    from dpstats.analyses.base import Analysis

PRETEND_RELEASES = 3
_LISTED = 8  # terms that a line names
_LINE = 100
_HEADER = ("analysis", "functions", "noise sd", "95% width", "certified", "of")
_INVENT = (
    "For better widths, state guesses in the schema, or give rows that resemble the real ones as "
    "like=."
)


def preview_strategy(
    strategy: Strategy,
    analyses: Mapping[str, Analysis[Result]],
    n: int,
    like: Any = None,
    *,
    fixed: bool,
    heading: str = "",
    progress: Progress | None = None,
) -> Preview:
    """Run analyses on simulated releases: n rows, and noise of the strategy's laws.

    `like` says where rows come from, see `likeness`; noise is a public simulation with a fixed
    seed. Both decide the width of intervals. `fixed` is whether candidates come from a density that
    is fixed beforehand.
    """
    like = likeness(like, strategy)
    strategy = with_pilots(strategy, analyses, like, n)
    seen = seen_by_analyses(strategy, n)
    pretended = [
        PretendRelease(seen, n, *rows.table(0, n), seed)
        for seed, rows in enumerate(pretend_rows(strategy, like, PRETEND_RELEASES))
    ]
    results, total = {}, len(analyses)
    for done, (name, analysis) in enumerate(analyses.items()):
        if progress is not None:
            progress("previewing", done, total)
        results[name] = tuple(analysis.infer(pretend) for pretend in pretended)
    if progress is not None:
        progress("done", total, total)
    accuracy = expected_accuracy(pretended[0].measurements, fixed=fixed)
    said = like.said(strategy.columns)
    return Preview(heading, analyses, n, results, tuple(pretended), accuracy, like, said)


def with_pilots(
    strategy: Strategy, analyses: Mapping[str, Analysis[Result]], like: Likeness, n: int
) -> Strategy:
    """The strategy with second stages at the pilots of its rows; even rows have the pilot zero."""
    if like.source == "even" or not any(planned.pending for planned in strategy.blocks):
        return strategy
    release: ReleaseView | None = like.release
    if release is None:
        first = tuple(planned for planned in strategy.blocks if not planned.pending)
        seen = seen_by_analyses(replace(strategy, blocks=first), n)
        release = PretendRelease(seen, n, *pretend_rows(seen, like, 1)[0].table(0, n), 0)
    return replace(strategy, blocks=at_pilots(strategy.blocks, analyses, release))


@dataclass(frozen=True)
class Outlook:
    """What one analysis can expect.

    Attributes
    ----------
    name, analysis : str
    functions : int
    noise : float
        Median standard deviation of the noise on a measured mean.
    width, certified_width : float
        Median width of its 95% intervals; nan for a result without intervals.
    of : str
        What the intervals estimate, whose unit the widths have.
    certified_target : {"population", "table"}
        What the certified intervals are for: the private table only, for the effect of a test.
    """

    name: str
    analysis: str
    functions: int
    noise: float
    width: float
    certified_width: float
    of: str
    certified_target: Target


def previewed_width(result: Result, method: Method, alpha: float = 0.05) -> float:
    """Median width of the previewed intervals; nan without intervals."""
    widths = result.preview_widths(method, alpha)[result.previewed]
    return float(np.median(widths)) if len(widths) else np.nan


@dataclass(frozen=True, repr=False)
class Preview:
    """Expected results of a plan at n rows, before any row is read.

    Attributes
    ----------
    heading : str
        A summary of the plan, printed first.
    analyses : mapping of name to Analysis
    n : int
    results : mapping of name to tuple of results
        Of every analysis on each simulated release; widths are medians over them.
    pretended : tuple of simulated releases
    accuracy : ExpectedAccuracy
        Of the synthetic rows, beside what a theorem promises.
    like : Likeness
        What the rows were made from; `said` has it in words.
    plan : Plan or None
        What is previewed, for advice on changes.
    """

    heading: str
    analyses: Mapping[str, Analysis[Result]]
    n: int
    results: Mapping[str, tuple[Result, ...]]
    pretended: tuple[ReleaseView, ...]
    accuracy: ExpectedAccuracy
    like: Likeness = field(default_factory=Likeness)
    said: str = ""
    plan: Replannable | None = None

    @cached_property
    def outlooks(self) -> tuple[Outlook, ...]:
        """One per analysis."""
        return tuple(self._outlook(name) for name in self.analyses)

    def _outlook(self, name: str) -> Outlook:
        analysis, results = self.analyses[name], self.results[name]
        family = analysis.family(self.pretended[0].schema)
        noise = float(np.sqrt(np.median(self.pretended[0].answers(family).noise_variances)))
        aware, certified = (
            float(np.median([previewed_width(result, method) for result in results]))
            for method in get_args(Method)
        )
        first = results[0]
        return Outlook(
            name, analysis.kind, family.size, noise, aware, certified, first.interval_of,
            first.certified_target,
        )  # fmt: skip

    def to_frame(self) -> pd.DataFrame:
        """One row per analysis: functions, noise sd, median 95% widths and what they are of."""
        import pandas as pd

        return pd.DataFrame([vars(outlook) for outlook in self.outlooks])

    def widths(
        self,
        *,
        alpha: float = 0.05,
        method: Method = "noise_aware",
        target: Target = "population",
    ) -> pd.DataFrame:
        """Expected widths of the intervals of every single parameter.

        Parameters
        ----------
        alpha : float
            Error probability of each interval.
        method : {"noise_aware", "certified"}
        target : {"population", "table"}

        Returns
        -------
        DataFrame with columns analysis, term, width
            Tests have no intervals and are not listed.
        """
        import pandas as pd

        check_alpha(alpha)
        check_method(method)
        check_target(target)
        frames = [pd.DataFrame(columns=["analysis", "term", "width"])]
        for name, results in self.results.items():
            if results[0].has_intervals:
                found = [
                    r.intervals_frame(alpha=alpha, method=method, target=target) for r in results
                ]
                width = np.median([f["conf_high"] - f["conf_low"] for f in found], axis=0)
                columns = {"analysis": name, "term": found[0]["term"], "width": width}
                frames.append(pd.DataFrame(columns))
        return pd.concat(frames[1:] or frames, ignore_index=True)

    @property
    def _before(self) -> list[str]:
        """Lines above the table."""
        even = self.like.source == "even"
        remarks = dict.fromkeys(results[0].preview_remark for results in self.results.values())
        made = f"Preview at n = {self.n} {self.said}, with simulated noise (no data were read)."
        return [
            *textwrap.wrap(made, _LINE),
            *([_INVENT] if even else []),
            *(line for r in remarks if even for line in r.splitlines()),
        ]

    @cached_property
    def _rows(self) -> list[tuple[str, ...]]:
        """The cells of the table: an analysis, and its other parameters where units differ."""
        rows: list[tuple[str, ...]] = []
        for o in self.outlooks:
            widths = _text(o.width), _certified_text(o)
            rows.append((o.name, str(o.functions), significant(o.noise), *widths, o.of))
            rows += [
                ("", "", "", _text(one), _text(other), term)
                for term, one, other in self._further(o.name)
            ]
        return rows

    @property
    def _after(self) -> list[str]:
        """Lines below it."""
        lines = []
        for name, results in self.results.items():
            lines += self._warning(name)
            condition = results[0].preview_condition if self.like.source == "even" else ""
            lines += [f"{name}: {condition}"] if condition else []
        if any(o.width == 0 for o in self.outlooks):
            lines.append("A width of 0: the interval is a single declared value.")
        return [*lines, *str(self.accuracy).splitlines()]

    def __str__(self) -> str:
        cells = [_HEADER, *self._rows]
        first, *middle, _ = (max(map(len, column)) for column in zip(*cells, strict=True))
        table = [
            "  ".join([name.ljust(first), *map(str.rjust, numbers, middle), of])
            for name, *numbers, of in cells
        ]
        return "\n".join([self.heading, "", *self._before, *table, *self._after])

    def _repr_html_(self) -> str:
        before = [*self.heading.splitlines(), *self._before]
        table = html_table(_HEADER, self._rows)
        return as_html("dpstats preview", before, table, self._after)

    @cached_property
    def unbounded(self) -> dict[str, tuple[str, ...]]:
        """Terms whose intervals have no ends in most of the simulated releases, by analysis."""
        found = {name: unbounded_terms(results) for name, results in self.results.items()}
        return {name: terms for name, terms in found.items() if terms}

    @cached_property
    def advice(self) -> dict[str, tuple[Remedy, ...]]:
        """For analyses with unbounded intervals: changes that would help, the cheapest first.

        Each was planned and previewed again, on the same rows and noise.
        """
        if self.plan is None:
            return {}
        return {
            name: remedies(self.plan, name, terms, self.like, self.n, len(self.pretended))
            for name, terms in self.unbounded.items()
        }

    def _warning(self, name: str) -> list[str]:
        """Lines on intervals without ends."""
        terms = self.unbounded.get(name, ())
        if not terms:
            return []
        more = f" and {len(terms) - _LISTED} more" if len(terms) > _LISTED else ""
        said = f"{name}: likely unbounded intervals of {', '.join(terms[:_LISTED])}{more}"
        found = self.advice.get(name, ())
        if not found:
            return [
                f"{said}; use more rows or budget, fewer or wider columns, ridge= or clip_norm="
            ]
        return [f"{said}. What would help, the cheapest first:", *(f"  {one}" for one in found)]

    def _further(self, name: str) -> list[tuple[str, float, float]]:
        """Terms and both widths of the other parameters, where units differ."""
        results = self.results[name]
        if not results[0].preview_itemised:
            return []
        aware, certified = (
            np.median([r.preview_widths(method) for r in results], axis=0)
            for method in get_args(Method)
        )
        terms = results[0].intervals_frame()["term"].tolist()
        rows = list(zip(terms, aware.tolist(), certified.tolist(), strict=True))
        del rows[results[0].previewed]
        return rows

    def __repr__(self) -> str:
        return str(self)


def _certified_text(outlook: Outlook) -> str:
    """The certified width, and that it is for the private table where it is for nothing else."""
    only = outlook.certified_target == "table" and not np.isnan(outlook.certified_width)
    return _text(outlook.certified_width) + only * " (table)"


def _text(width: float) -> str:
    if np.isinf(width):
        return "unbounded"
    return "none" if np.isnan(width) else significant(width)
