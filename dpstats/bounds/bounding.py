"""Certified intervals for anything that can be asked of a release, measured or not."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dpstats.analyses.counts.difference import Difference
from dpstats.analyses.counts.marginals import Marginals
from dpstats.analyses.counts.proportion import Proportion
from dpstats.analyses.moments.mean import Mean
from dpstats.arrays import Codes, Floats
from dpstats.bounds.consistent import Consistent, consistent
from dpstats.bounds.joint_certificate import JointCertificate, joint_certificate, places_of
from dpstats.bounds.programs import Contradiction
from dpstats.bounds.questions import (
    Question,
    question_of_conditions,
    questions_of_family,
    questions_of_mean,
    risks_of,
)
from dpstats.checks import Target, check_alpha, check_target, counted, short
from dpstats.corrected.means import chernoff_confint
from dpstats.corrected.proportions import clopper_pearson
from dpstats.errors import NotMeasuredError, RequestError
from dpstats.families.block import Block, Family
from dpstats.families.tables.cells import Indicator, Table
from dpstats.inference.counts.proportion_intervals import ProportionIntervals
from dpstats.inference.counts.risk_measures import MEASURES, measure_of
from dpstats.measured.answers import Answers, answer
from dpstats.measured.combining import Sources
from dpstats.results.bounds import Bounds
from dpstats.spending import bonferroni, for_noise, smaller_errors

if TYPE_CHECKING:
    from dpstats.measured.view import ReleaseView

Interval = tuple[float, float]
MEASURED = "its own noise"
UNKNOWN = "nothing that limits it"
CONTRADICTION = (
    "the noisy answers contradict each other at this level, which happens with probability at most "
    "alpha: wider bounds on them were used"
)
_ROUNDING = 1e-6  # of a count
_NOTHING = 1e-9
_LEAST_LEFT = 1e-3  # of alpha; with one function the certificate is its own interval


def bound(
    release: ReleaseView,
    sources: Sources,
    query: Any,
    *,
    given: str | None = None,
    minus: str | None = None,
    over: str | None = None,
    alpha: float = 0.05,
    target: Target = "table",
) -> Bounds:
    """See `Release.bound`."""
    check_alpha(alpha)
    check_target(target)
    asker = _Asker(release, sources, alpha, target)
    if isinstance(query, str):
        if minus is None and over is None:
            return asker.of_analysis(Proportion(query, given))
        return asker.of_questions(
            [question_of_conditions(release.schema, query, given, minus, over)]
        )
    if given is not None or minus is not None or over is not None:
        raise RequestError("given=, minus= and over= go with a condition as text")
    if isinstance(query, Family | Block):
        return asker.of_family(query)
    if hasattr(query, "family") and hasattr(query, "infer") and not isinstance(query, type):
        return asker.of_analysis(query)
    raise RequestError(
        "bound takes a condition such as \"smoker == 'yes' & age >= 65\", an analysis, or a family "
        f"of functions; got {short(query)}"
    )


class _Asker:
    """One way to ask: a release, an error probability and a target."""

    def __init__(
        self, release: ReleaseView, sources: Sources, alpha: float, target: Target
    ) -> None:
        self.release, self.sources = release, sources
        self.alpha, self.target = alpha, target

    def of_analysis(self, analysis: Any) -> Bounds:
        """Its own certified intervals where it can be inferred, else bounds on what it is about."""
        schema = self.release.schema
        family = analysis.family(schema)
        single = isinstance(analysis, Proportion) and family.size == 1
        if single or isinstance(analysis, Marginals):
            return self.of_family(family)
        try:
            result = analysis.infer(self.release)
        except NotMeasuredError:
            result = None
        if result is not None and result.has_intervals:
            frame = result.intervals_frame(alpha=self.alpha, method="certified", target=self.target)
            low, high = (frame[name].to_numpy(np.float64) for name in ("conf_low", "conf_high"))
            return self._made(frame["term"].tolist(), low, high, [MEASURED] * len(frame), [])
        if isinstance(analysis, Proportion):
            asked = [question_of_conditions(schema, analysis.condition, analysis.given)]
            return self.of_questions(asked)
        if isinstance(analysis, Mean):
            return self.of_questions(questions_of_mean(schema, analysis))
        if isinstance(analysis, Difference):
            return self._of_difference(analysis)
        return self.of_family(family.answering)

    def of_family(self, family: Family | Block) -> Bounds:
        """Means of functions, in unit scale; those of tables and conditions are shares."""
        blocks = family.blocks if isinstance(family, Family) else (family,)
        parts = [self._of_block(block) for block in blocks]
        return self._made(
            [term for part in parts for term in part.terms],
            np.concatenate([part.low for part in parts]),
            np.concatenate([part.high for part in parts]),
            [text for part in parts for text in part.known_from],
            [note for part in parts for note in part.notes],
            np.concatenate([part.informative for part in parts]),
        )

    def _of_block(self, block: Block) -> Bounds:
        try:
            answers = answer(self.sources, block, with_count=True)
        except NotMeasuredError:
            return self.of_questions(questions_of_family(block))
        own = answers.subset(slice(0, block.size))
        places = places_of(self.sources, block) if self.target == "table" else None
        if places is None or np.all(places < 0):
            low, high = self._own_ends(own, block, self.alpha)
        else:
            low, high = self._cut(own, block, places)
        return self._made(block.names, low, high, [MEASURED] * block.size, [])

    def _cut(self, own: Answers, block: Block, places: Codes) -> tuple[Floats, Floats]:
        """Ends at what is left of alpha, cut to those of the joint certificate."""
        joint = self._joint
        errors = np.where(places < 0, 0.0, joint.errors[places])
        ends = np.where(places < 0, np.array([[-np.inf], [np.inf]]), joint.ends[:, places])
        low, high = ends.copy()
        for error in np.unique(errors):
            if (left := self.alpha - error) > _LEAST_LEFT * self.alpha:
                same = np.flatnonzero(errors == error)
                found = self._own_ends(own, block, left)
                low[same] = np.maximum(low[same], found[0][same])
                high[same] = np.minimum(high[same], found[1][same])
        empty = low > high  # both intervals cannot hold, so alpha is spent already
        return np.where(empty, ends[0], low), np.where(empty, ends[1], high)

    @cached_property
    def _joint(self) -> JointCertificate:
        return joint_certificate(self.sources, self.alpha)

    def _own_ends(self, own: Answers, block: Block, alpha: float) -> tuple[Floats, Floats]:
        """Ends for functions that have an answer, each with error alpha."""
        if isinstance(block, Table | Indicator):
            return ProportionIntervals(own).conf_int(alpha, "certified", self.target)
        return self._of_means(own, block, alpha)

    def _of_means(self, answers: Answers, block: Block, alpha: float) -> tuple[Floats, Floats]:
        """Means of functions that are no shares."""
        beta = alpha if self.target == "table" else for_noise(alpha)
        d = block.size
        lows, highs = np.empty(d), np.empty(d)
        for f in range(d):
            rows = answers.rows
            q = answers.law(f).quantile(beta - rows.spent(beta))
            ends = [
                end / (n * block.bounds[f])
                for end in (answers.sums[f] - q, answers.sums[f] + q)
                for n in rows.bounds(rows.spent(beta))
            ]
            lows[f], highs[f] = min(ends), max(ends)
        least, most = (np.asarray(end / block.bounds) for end in block.ranges)
        lows, highs = np.clip(lows, least, most), np.clip(highs, least, most)
        if self.target == "table":
            return lows, highs
        n = answers.rows.bounds(answers.rows.spent(beta))[0]
        low, high = chernoff_confint((1 + lows) / 2, (1 + highs) / 2, n, alpha - beta)
        return np.maximum(2 * low - 1, least), np.minimum(2 * high - 1, most)

    def of_questions(self, questions: Sequence[Question]) -> Bounds:
        """By linear programs, each question at its own level."""
        ends, known, notes = [], [], []
        for question in questions:
            interval, text, note = self._of_question(question, self.alpha)
            ends.append(interval)
            known.append(text)
            notes += note
        low, high = np.array(ends, dtype=np.float64).reshape(-1, 2).T
        least, most = np.array([question.range for question in questions]).T
        says = (low > least + _NOTHING) | (high < most - _NOTHING)
        known = [text if some else UNKNOWN for text, some in zip(known, says, strict=True)]
        return self._made([q.term for q in questions], low, high, known, notes, says)

    def _of_difference(self, difference: Difference) -> Bounds:
        """Difference, ratio and odds ratio of two shares, each at half of alpha."""
        first, second = risks_of(self.release.schema, difference)
        each = bonferroni(self.alpha, 2)
        (p, text, one), (q, _, two) = (self._of_question(x, each) for x in (first, second))
        low = [float(measure_of(np.array(p[0]), np.array(q[1]), m)) for m in MEASURES]
        high = [float(measure_of(np.array(p[1]), np.array(q[0]), m)) for m in MEASURES]
        lowest = [-1.0, 0.0, 0.0]
        low = [a if a == a else b for a, b in zip(low, lowest, strict=True)]  # 0/0
        high = [a if a == a else np.inf for a in high]
        terms = [f"{m} of {first.term} and {second.term}" for m in MEASURES]
        says = np.array(low) > np.array(lowest) + _NOTHING
        says |= np.array(high) < np.array([1.0, np.inf, np.inf]) - _NOTHING
        ends = np.array(low), np.array(high)
        return self._made(terms, *ends, [text] * len(terms), [*one, *two], says)

    def _of_question(self, question: Question, alpha: float) -> tuple[Interval, str, list[str]]:
        """The interval, what it is from, and notes."""
        beta = alpha if self.target == "table" else for_noise(alpha)
        low, high = question.range
        notes: list[str] = []
        for error in (beta, *smaller_errors(beta)):
            tables = consistent(self.sources, question, error)
            try:
                interval = _Ends(question, tables).interval(alpha - beta)
            except Contradiction:  # wider bounds on the sums agree with more tables
                notes = [CONTRADICTION]
                continue
            return (max(low, interval[0]), min(high, interval[1])), _known_from(tables), notes
        return question.range, _known_from(tables), notes

    def _made(
        self,
        terms: list[str],
        low: Floats,
        high: Floats,
        known: list[str],
        notes: list[str],
        informative: NDArray[np.bool_] | None = None,
    ) -> Bounds:
        return Bounds(
            terms=terms,
            low=low,
            high=high,
            known_from=known,
            informative=np.ones(len(terms), np.bool_) if informative is None else informative,
            alpha=self.alpha,
            target=self.target,
            rows=self.sources.rows,
            budget=str(self.release.budget),
            notes=tuple(dict.fromkeys(notes)),
        )


def _known_from(tables: Consistent) -> str:
    names = ", ".join(column.name for column in tables.columns)
    return f"{counted(tables.functions, 'measured function')} of {names}"


class _Ends:
    """Ends of the interval of one question over the tables that agree with a release."""

    def __init__(self, question: Question, tables: Consistent) -> None:
        self.question, self.program = question, tables.program
        self.above, self.below = tables.numerator, tables.denominator

    def interval(self, alpha: float) -> Interval:
        """Of the private table where alpha is 0; else of the population, with error alpha."""
        if alpha == 0:
            return self._of_table()
        if self.question.share:
            yes = self._counts(self.above)
            public = self.question.of_all and self.program.rows[0] == self.program.rows[1]
            n = self.program.rows[1]
            no = (n - yes[1], n - yes[0]) if public else self._counts(self.below - self.above)
            return _of_population(yes, no, alpha)
        if not np.isfinite(self.question.range[1]):
            return self._of_ratio(alpha)
        least, most = self.question.range
        size = self._least_rows()
        if size < 1:
            return self.question.range
        ends = (np.array(self._of_table()) - least) / (most - least)
        low, high = chernoff_confint(ends[:1], ends[1:], size, alpha)
        return least + (most - least) * float(low[0]), least + (most - least) * float(high[0])

    def _of_table(self) -> Interval:
        rows = self.program.rows
        if self.question.of_all and rows[0] == rows[1]:
            low, high = self._sums(self.above)
            if self.question.share:
                low, high = _whole(low, high)
            return low / rows[0], high / rows[0]
        at_least = max(1.0, self._least_rows())
        low = self.program.least_ratio(self.above, self.below, at_least)
        high = -self.program.least_ratio(-self.above, self.below, at_least)
        return low, high

    def _of_ratio(self, alpha: float) -> Interval:
        """The ratio of two population shares: of the counts of either, and those of the others."""
        each, inside = bonferroni(alpha, 2), self.program.rows
        ends = []
        for part in (self.above, self.below):
            low, high = self._counts(part)
            others = max(inside[0] - high, 0.0), inside[1] - low
            ends.append(_of_population((low, high), others, each))
        (a, b), (c, d) = ends
        return a / d, b / c if c > 0 else np.inf

    def _least_rows(self) -> float:
        """The least number of rows that the denominator counts."""
        if self.question.of_all:
            return self.program.rows[0]
        return float(np.ceil(self.program.least_sum(self.below) - _ROUNDING))

    def _sums(self, values: Floats) -> Interval:
        return self.program.least_sum(values), -self.program.least_sum(-values)

    def _counts(self, values: Floats) -> Interval:
        """Bounds on a count."""
        low, high = _whole(*self._sums(values))
        return max(low, 0.0), high


def _of_population(yes: Interval, no: Interval, alpha: float) -> Interval:
    """A population share, for counts between bounds."""
    low_yes, high_yes, low_no, high_no = (np.array(end) for end in (*yes, *no))
    low, high = clopper_pearson(low_yes, high_yes, high_no, low_no, alpha)
    return float(low), float(high)


def _whole(low: float, high: float) -> Interval:
    """A count between two numbers."""
    low, high = np.ceil(low - _ROUNDING), np.floor(high + _ROUNDING)
    if low > high:
        raise Contradiction
    return float(low), float(high)
