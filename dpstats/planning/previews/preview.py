"""Expected results of a plan, computed on a simulated release from public numbers alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, get_args

import numpy as np

from dpstats.analyses.second_stage import at_pilots
from dpstats.checks import Method, Progress, Target, check_interval, counted
from dpstats.display import as_html, fitted_table, html_table, wrapped
from dpstats.measured.certificate import block_of_largest, certify, published_answers
from dpstats.measured.measurements import Measurements
from dpstats.measured.strategy import Strategy
from dpstats.measured.view import ReleaseView
from dpstats.planning.previews import simulated
from dpstats.planning.previews.likeness import Likeness, likeness
from dpstats.planning.previews.pretended import PretendRelease, pretend_rows, seen_by_analyses
from dpstats.planning.previews.simulated import PreviewedWidths, Simulation, tells_nothing
from dpstats.planning.survey import survey_lines
from dpstats.results.base import OF_INDEPENDENT_ROWS, Result, preview_of_persons
from dpstats.results.rendering import NO_INTERVAL, UNCERTIFIED, significant
from dpstats.schema import Number, Schema

if TYPE_CHECKING:
    import pandas as pd

    from dpstats.analyses.base import Analysis

_USUAL = (
    "what helps: more rows or budget (plan.curve and plan.solve say how much), fewer analyses, "
    "fewer or wider columns, 8 to 16 bins of a number that a logistic regression sees by its bins, "
    "ridge= or clip_norm="
)
_USUAL_OF_RANGE = (
    "what helps: more rows or budget (plan.curve and plan.solve say how much), fewer analyses, "
    "tables or cells"
)
_HEADER = ("analysis", "functions", "noise sd", "95% width", "certified", "of")
_TABLE = " (table)"
_FEW_BINS = 3  # of an interval of a quantile that more of them would shorten
_MANY_BINS = 16  # of a column that has enough
_LISTED = 8  # terms that a line names
WITHOUT = "no intervals"
SCALED = "means of functions with values between -1 and 1: for a table, shares of the rows"
FOR_TABLE = 'certified "(table)": for the effect in the private table, not in the population'
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
    heading: str = "",
    progress: Progress | None = None,
) -> Preview:
    """Run analyses on simulated releases: n rows like `like`, and noise of the strategy's laws."""
    like = likeness(like, strategy)
    strategy = with_pilots(replace(strategy, n=n), analyses, like, n)
    rows = pretend_rows(strategy, like, simulated.PRETEND_RELEASES)
    simulation = Simulation(seen_by_analyses(strategy, n), n, rows)
    results, total = {}, len(analyses)
    for done, (name, analysis) in enumerate(analyses.items()):
        if progress is not None:
            progress("previewing", done, total)
        results[name] = simulation.results(analysis, progress)
    if progress is not None:
        progress("done", total, total)
    pretended = simulation.first
    accuracy = expected_accuracy(pretended[0].measurements)
    return Preview(heading, analyses, n, results, pretended, accuracy, like)


def with_pilots(
    strategy: Strategy, analyses: Mapping[str, Analysis[Result]], like: Likeness, n: int
) -> Strategy:
    """The strategy with second stages at the pilots of its rows; even rows have the pilot zero.

    But contrasts of scores need one.
    """
    of_contrasts = any(planned.pending for planned in strategy.contrasts)
    pending = of_contrasts or any(planned.pending for planned in strategy.scores)
    if not pending or (like.source == "even" and not of_contrasts):
        return strategy
    release: ReleaseView | None = like.release
    if release is None:
        blocks = tuple(planned for planned in strategy.blocks if not planned.pending)
        first = replace(strategy, blocks=blocks)
        table = pretend_rows(first, like, 1)[0].table(0, n)
        release = PretendRelease(seen_by_analyses(first, n), n, *table, 0)
    return replace(strategy, blocks=at_pilots(strategy.blocks, analyses, release))


@dataclass(frozen=True)
class Outlook:
    """Expectation of one analysis; widths are medians over simulated releases."""

    name: str
    analysis: str
    functions: int
    noise: float  # median standard deviation on a measured mean
    width: float  # of 95% intervals; nan for a result without any
    certified_width: float
    of: str  # what the intervals estimate, whose unit the widths have
    certified_target: Target  # the private table only, for the effect of a test
    whole: float  # width of all possible values; infinite where these have no ends


@dataclass(frozen=True)
class ExpectedAccuracy:
    """Expected error of synthetic rows, unit scale: the largest over all functions that answer.

    Attributes
    ----------
    delta : float
        The median of the largest noise on an answer, from the noise laws. Rows that are fitted to
        the answers end at a third of it (large noise) to 1.3 times it (few functions): a figure for
        planning, and no bound.
    functions : int
    whose : str
        Which block the largest error is that of, and the error of the tables alone.
    """

    delta: float
    functions: int
    whose: str = ""

    def __str__(self) -> str:
        return (
            f"Synthetic rows: expected error (delta) {significant(self.delta)}, the median of the "
            f"largest noise on {counted(self.functions, 'function')}"
            f"{self.whose and '; ' + self.whose}; {SCALED}."
        )


def expected_accuracy(measurements: Measurements) -> ExpectedAccuracy:
    """Expected error under a strategy, given simulated measurements at its n."""
    means = published_answers(measurements).means
    accuracy = certify(measurements, means, alpha=0.5, target="rows")
    functions = measurements.published.answering.size
    whose = block_of_largest(accuracy.block, accuracy.of_tables)
    return ExpectedAccuracy(accuracy.delta, functions, whose)


def previewed_width(result: Result, method: Method, alpha: float = 0.05) -> float:
    """Median width of the previewed intervals; nan without intervals."""
    return result.preview_widths(method, alpha).median(result.main_terms)[0]


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
        Of every analysis on each simulated release, more of them for one whose intervals may have
        no ends; widths are medians over them.
    pretended : tuple of simulated releases
    accuracy : ExpectedAccuracy
        Expected error of the synthetic rows.
    like : Likeness
        What the rows were made from.
    """

    heading: str
    analyses: Mapping[str, Analysis[Result]]
    n: int
    results: Mapping[str, tuple[Result, ...]]
    pretended: tuple[PretendRelease, ...]
    accuracy: ExpectedAccuracy
    like: Likeness = field(default_factory=Likeness)

    @property
    def _strategy(self) -> Strategy:
        return self.pretended[0].measurements.strategy

    @property
    def said(self) -> str:
        """Source of the rows, in words."""
        return self.like.said(self._strategy.columns, self.n)

    @cached_property
    def outlooks(self) -> tuple[Outlook, ...]:
        """One per analysis."""
        return tuple(self._outlook(name) for name in self.analyses)

    def _outlook(self, name: str) -> Outlook:
        analysis, results = self.analyses[name], self.results[name]
        family = analysis.family(self._strategy.schema)
        noise = float(np.sqrt(np.median(self.pretended[0].answers(family).noise_variances)))
        first, widths = results[0], []
        for method in get_args(Method):
            each = [result.preview_widths(method).median(first.main_terms) for result in results]
            widths.append(float(np.median([width for width, _ in each])))
        return Outlook(
            name, analysis.kind, family.size, noise, widths[0], widths[1], first.interval_of,
            first.certified_target, each[0][1],
        )  # fmt: skip

    def to_frame(self) -> pd.DataFrame:
        """One row per analysis: functions, noise sd, median 95% widths and what they are of."""
        import pandas as pd

        return pd.DataFrame([vars(outlook) for outlook in self.outlooks])

    def widths(
        self, *, alpha: float = 0.05, method: Method = "noise_aware", target: Target = "population"
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
        DataFrame with columns analysis, term, width, unbounded
            Median widths, and the share of simulated releases in which the interval has no ends.
            Tests have no intervals and are not listed.
        """
        import pandas as pd

        check_interval(alpha, method, target)
        frames = [pd.DataFrame(columns=["analysis", "term", "width", "unbounded"])]
        for name, results in self.results.items():
            if results[0].has_intervals:
                each = [
                    r.intervals_frame(alpha=alpha, method=method, target=target) for r in results
                ]
                width = np.array([frame["conf_high"] - frame["conf_low"] for frame in each])
                columns = {
                    "analysis": name,
                    "term": each[0]["term"],
                    "width": np.median(width, axis=0),
                    "unbounded": np.isinf(width).mean(axis=0),
                }
                frames.append(pd.DataFrame(columns))
        return pd.concat(frames[1:] or frames, ignore_index=True)

    @cached_property
    def lost(self) -> dict[str, dict[str, int]]:
        """In how many simulated releases an interval tells nothing, by analysis and term.

        It has no ends, in more than a tenth of the releases, or is as wide as the range of all
        values, in at least half. There are ``len(preview.results[name])`` releases; of an analysis
        with more than 500 parameters, every so many are looked at.
        """
        return {name: widths.lost for name, widths in self._widths.items() if widths.lost}

    @cached_property
    def _widths(self) -> dict[str, PreviewedWidths]:
        return {name: PreviewedWidths.of(results) for name, results in self.results.items()}

    @cached_property
    def unbounded(self) -> dict[str, tuple[str, ...]]:
        """Terms whose intervals have no ends in most of the simulated releases, by analysis."""
        return {name: widths.unbounded for name, widths in self._widths.items() if widths.unbounded}

    @property
    def _before(self) -> list[str]:
        heading = f"Preview at n = {self.n} {self.said}, with simulated noise (no data were read)."
        schema, even = self._strategy.schema, self.like.source == "even"
        remarks = dict.fromkeys(
            text
            for analysis in self.analyses.values()
            for text in (
                getattr(analysis, "preview_remark", "") if even else "",
                getattr(analysis, "advice", lambda schema: "")(schema),
            )
        )
        return list(filter(None, [heading, _INVENT if even else "", *remarks]))

    @cached_property
    def _rows(self) -> list[tuple[str, ...]]:
        rows: list[tuple[str, ...]] = []
        for o in self.outlooks:
            certified = certified_text(o.certified_width, o.whole, o.certified_target)
            noise, width = significant(o.noise), width_text(o.width, o.whole)
            rows.append((o.name, str(o.functions), noise, width, certified, o.of or WITHOUT))
            rows += self._further(self.results[o.name])
        return rows

    def _further(self, results: Sequence[Result]) -> list[tuple[str, ...]]:
        first = results[0].preview_widths("certified")
        if set(first.terms) <= set(results[0].main_terms):
            return []
        aware, certified = (
            np.median([r.preview_widths(method).widths for r in results], axis=0)
            for method in get_args(Method)
        )
        return [
            ("", "", "", width_text(aware[i], whole), certified_text(certified[i], whole), term)
            for i, (term, whole) in enumerate(zip(first.terms, first.ranges.tolist(), strict=True))
            if term not in results[0].main_terms
        ]

    @property
    def _after(self) -> list[str]:
        lines = []
        for name, results in self.results.items():
            lines += self._warning(name)
            condition = results[0].preview_condition if self.like.source == "even" else ""
            lines += [f"{name}: {condition}"] if condition else []
        if any(o.width == 0 for o in self.outlooks):
            lines.append("A width of 0: the interval is a single declared value.")
        if any(row[3] != NO_INTERVAL and row[4] == NO_INTERVAL for row in self._rows):
            lines.append(f"{UNCERTIFIED}; the 95% width is that of the noise-aware interval")
        if any(row[4].endswith(_TABLE) for row in self._rows):
            lines.append(FOR_TABLE)
        lines += survey_lines(self._strategy, self.analyses, self.n)
        k = self._strategy.rows_per_person
        lines += preview_of_persons({name: each[0] for name, each in self.results.items()}, k)
        if k > 1 and any(
            np.isfinite(o.certified_width) and o.certified_target == "population"
            for o in self.outlooks
        ):
            lines.append(OF_INDEPENDENT_ROWS.strip())
        return [*lines, str(self.accuracy)]

    def _warning(self, name: str) -> list[str]:
        """Lines on intervals that tell nothing, and on what helps."""
        lost, widths = self.lost.get(name, {}), self._widths[name]
        if not lost:
            analysis, results = self.analyses[name], self.results[name]
            finer = edges_of_quantile(analysis, self._strategy.schema, results)
            return [f"{name}: {finer}"] if finer else []
        lines = []
        if widths.unbounded:
            lines.append(f"{name}: likely unbounded intervals of {listed(widths.unbounded)}")
        without_ends = {term: k for term, k in lost.items() if term not in widths.of_whole_range}
        of_all = f" of {len(widths.widths)} simulated releases"
        texts: list[str] = []
        for k in sorted(set(without_ends.values()), reverse=True):
            terms = [term for term in without_ends if without_ends[term] == k]
            texts.append(f"in {k}{'' if texts else of_all}: {listed(terms)}")
        if texts:
            lines.append(f"{name}: unbounded {'; '.join(texts)}")
        if widths.of_whole_range:
            few = len(widths.terms) <= _LISTED
            share = f"{len(widths.of_whole_range)} of {len(widths.terms)} intervals"
            which = f"intervals of {listed(widths.of_whole_range)}" if few else share
            lines.append(f"{name}: {which} likely as wide as the whole range: tells nothing")
        return [*lines, f"{name}: {_USUAL if widths.unbounded else _USUAL_OF_RANGE}"]

    def __str__(self) -> str:
        table = fitted_table(_HEADER, self._rows, (0, len(_HEADER) - 1))
        above = [*self.heading.splitlines(), "", *self._before]
        lines = [line for text in above for line in wrapped(text)]
        below = [line for text in self._after for line in wrapped(text)]
        return "\n".join([*lines, *table, *below])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        before = [*self.heading.splitlines(), *self._before]
        table = html_table(_HEADER, self._rows)
        return as_html("dpstats preview", before, table, self._after)


def listed(terms: Sequence[str]) -> str:
    """The first terms, with semicolons between them where one has a comma."""
    more = f" and {len(terms) - _LISTED} more" if len(terms) > _LISTED else ""
    return ("; " if any(", " in term for term in terms) else ", ").join(terms[:_LISTED]) + more


def edges_of_quantile(
    analysis: Analysis[Result], schema: Schema, results: Sequence[Result] = ()
) -> str:
    """Advise edges for narrower intervals of a quantile; "" where nothing helps."""
    if not getattr(analysis, "ends_at_edges", False):
        return ""
    column = schema[analysis.column]  # type: ignore[attr-defined]
    if not isinstance(column, Number) or not column.edges:
        return ""
    cuts = np.unique([float(cut) for cut in (column.low, *column.edges, column.high)])
    if results:
        frames = [result.intervals_frame() for result in results]
        low, high = (np.searchsorted(cuts, [frame[end] for frame in frames])
                     for end in ("conf_low", "conf_high"))  # fmt: skip
        if column.value_bins > _MANY_BINS or np.all(np.median(high - low, axis=0) > _FEW_BINS):
            return ""
    gaps = sorted(set(np.diff(cuts).tolist()))
    apart = f"up to {gaps[-1]:g}" if len(gaps) > 1 else f"{gaps[0]:g}"
    return (
        f"intervals of a quantile end at declared edges, here {apart} apart: declare finer edges "
        f"of {column.name!r} in the schema"
    )


def width_text(width: float, whole: float = np.inf) -> str:
    """A width, or why it tells nothing beside that of all values."""
    return "unbounded" if np.isinf(width) else certified_text(width, whole)


def certified_text(width: float, whole: float = np.inf, target: Target = "population") -> str:
    """The width of a certified interval, of which one without ends says nothing."""
    if np.isinf(width):
        return NO_INTERVAL
    text = "whole range" if tells_nothing(width, whole) else significant(width)
    return f"{text}{_TABLE}" if target == "table" else text
