"""Certified intervals for anything that can be asked of a release, and how much is known of it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpstats.analyses.base import answered
from dpstats.analyses.counts.proportion import Proportion
from dpstats.analyses.counts.proportion_intervals import ProportionIntervals
from dpstats.analyses.questions import (
    Asked,
    Interval,
    Question,
    question_of_conditions,
    questions_of_family,
)
from dpstats.analyses.registry import checked_result, spelled
from dpstats.arrays import Codes, Floats, within
from dpstats.bounds.consistent import Consistent, TooManyStates, consistent, possible_range, touched
from dpstats.bounds.group_totals import UNKNOWN, known_from
from dpstats.bounds.programs import Contradiction
from dpstats.checks import Target, check_alpha, check_target, short
from dpstats.corrected.means import chernoff_confint
from dpstats.corrected.proportions import clopper_pearson
from dpstats.error_rates import bonferroni, for_noise, smaller_errors
from dpstats.errors import NotMeasuredError, RequestError
from dpstats.families.block import Block, Family
from dpstats.families.moments import Moments
from dpstats.families.tables.cells import Indicator, Table
from dpstats.measured.answers import Answers, answer
from dpstats.measured.certificate import certify, joint_with_count, places_in
from dpstats.measured.combining import Sources
from dpstats.results.bounds import Bounds
from dpstats.results.explanation import COMPARED, SHOWN, Explanation

if TYPE_CHECKING:
    from dpstats.measured.view import ReleaseView
    from dpstats.results.explanation import Verdict

MEASURED = "its own noise"
CONTRADICTION = (
    "the noisy answers contradict each other at this level, which happens with probability at most "
    "alpha: wider bounds on them were used"
)
UNBOUNDED = (
    "the certified interval has an infinite end: the noise is too large for it, or there is none; "
    "release.infer has a noise-aware one"
)
OF_FUNCTIONS = (
    "these are means of what {} is computed from{}; they are not its estimates, of which none is "
    "bounded"
)
CODED = ", with every number coded to [-1, 1] by its declared bounds"
_NOTHING = 1e-9
_LEAST_LEFT = 1e-3  # of alpha; with one function the certificate is its own interval
_ROUNDING = 1e-6  # of a count


@dataclass(frozen=True, eq=False)
class JointCertificate:
    """Intervals of the joint certificate for all test functions, to which their own are cut.

    At the same alpha it fails for one of them with a probability of about alpha over their number.
    The best combination of all answers at what is left of alpha, cut to it, is never wider than the
    certificate, and hardly wider than the combination alone.
    """

    ends: Floats  # (2, |F|) jointly with probability 1 - alpha, unit scale
    errors: Floats  # (|F|,) probability that each misses, by itself


def joint_certificate(sources: Sources, alpha: float) -> JointCertificate:
    """The intervals of `Accuracy.joint_ends`, with the error of each."""
    measured = sources.measurements
    whole = measured.published
    ends = certify(sources, np.zeros(whole.size), alpha=alpha, target="").joint_ends
    d, counted = ends.shape[1], measured.rows.law
    if measured.strategy.tables:
        each = bonferroni(alpha, d + (counted is not None))
        missed = each if counted is None else each + each  # its own, and that of n
        return JointCertificate(ends, np.full(d, missed))
    laws, which = measured.laws
    at = measured.strategy.places[places_in(whole, whole.answering)]
    own = [laws[i] for i in which[at]]
    every = own if counted is None else [*own, counted]
    q = joint_with_count(measured, own, alpha)
    tails = {
        pair: float(pair[0].tail(pair[1] + 1)) for pair in set(zip(every, q.tolist(), strict=True))
    }
    found = np.array([tails[pair] for pair in zip(every, q.tolist(), strict=True)])
    return JointCertificate(ends, found[:d] + (0.0 if counted is None else found[-1]))


def places_of(sources: Sources, wanted: Block) -> Codes:
    """Which test function each of a block's is, (d,); -1 where it is none."""
    places, start = np.full(wanted.size, -1, dtype=np.int64), 0
    for block in sources.measurements.published.answering.blocks:
        derivation = block.derive(wanted, complements=False)
        if derivation is not None:
            own = np.flatnonzero(derivation.member >= 0)
            wanted_of = derivation.member[own]
            alone = derivation.terms[wanted_of] == 1
            places[wanted_of[alone]] = start + own[alone]
        start += block.size
    return places


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
    totals: bool = False,
) -> Bounds:
    """See `Release.bound`."""
    return Asker(release, sources, alpha, target, totals=totals).of(query, given, minus, over)


class _Found(NamedTuple):
    ends: Interval
    says: bool
    known_from: str
    notes: list[str]


class Asker:
    """One way to ask: a release, an error probability and a target.

    Of the cells that need a program each, only the first `few` are answered, and on to the first
    that is limited; `left` counts the others.
    """

    def __init__(
        self,
        release: ReleaseView,
        sources: Sources,
        alpha: float,
        target: Target,
        few: float = np.inf,
        *,
        totals: bool = False,
    ) -> None:
        self.release = release
        self.sources = sources.with_constraints("totals" if totals else "rules")
        check_target(target)
        self.alpha, self.target = check_alpha(alpha), target
        self.few, self.left = few, 0
        self._last: tuple[Any, Any] = None, None

    def of(self, query: Any, given: str | None, minus: str | None, over: str | None) -> Bounds:
        """Bounds on anything that may be asked; see `Release.bound`."""
        if isinstance(query, str):
            if minus is None and over is None:
                return self.of_analysis(Proportion(query, given))
            Proportion(query, given).family(self.release.schema)  # refuses the same value in all
            return self.of_questions(
                [question_of_conditions(self.release.schema, query, given, minus, over)]
            )
        if given is not None or minus is not None or over is not None:
            raise RequestError("given=, minus= and over= go with a condition as text")
        if isinstance(query, Family | Block):
            blocks = query.blocks if isinstance(query, Family) else (query,)
            if not any(block.columns for block in blocks):
                raise RequestError("these functions count all rows: their number is release.n")
            return self.of_family(query)
        if hasattr(query, "family") and hasattr(query, "infer") and not isinstance(query, type):
            return self.of_analysis(query)
        raise RequestError(
            "bound and explain take a condition such as \"smoker == 'yes' & age >= 65\", an "
            f"analysis or the name of a planned one, or a family of functions; got {short(query)}"
        )

    def inferred(self, analysis: Any) -> Any:
        """The result of an analysis, None where it does not follow; the last one is kept."""
        if self._last[0] is not analysis:
            try:
                self._last = analysis, checked_result(analysis, self.release)
            except NotMeasuredError:
                self._last = analysis, None
        return self._last[1]

    def of_analysis(self, analysis: Any) -> Bounds:
        """Its own certified intervals where it can be inferred, else bounds on what it is about."""
        schema = self.release.schema
        family = analysis.family(schema)
        of_functions, own = (getattr(analysis, m, None) for m in ("is_of_functions", "asked"))
        if of_functions is not None and of_functions(schema):
            return self.of_family(family)
        result = self.inferred(analysis)
        asked: Asked | None = None if own is None else own(schema)
        # A result's own certified intervals use no totals.
        serves = asked is None or not self.sources.totals
        if result is not None and result.has_intervals and serves:
            frame = result.intervals_frame(alpha=self.alpha, method="certified", target=self.target)
            low, high = (frame[name].to_numpy(np.float64) for name in ("conf_low", "conf_high"))
            least, most = -np.inf, np.inf
            notes: tuple[str, ...] = ()
            if asked is not None and asked.compared is None:
                least, most = np.array([question.range for question in asked.questions]).T
                notes = tuple(note for question in asked.questions for note in question.notes)
            return self._measured(frame["term"].tolist(), low, high, least, most, notes)
        if asked is not None:
            return self._of_asked(asked)
        return self._of_functions(family.answering.blocks, type(analysis).__name__)

    def _of_functions(self, blocks: Sequence[Block], name: str) -> Bounds:
        """Means of what an analysis is computed from, in units of the columns where they have."""
        parts = [self._of_block(block) for block in blocks]
        if all(isinstance(block, Table | Indicator) for block in blocks):
            return self._joined(parts)
        coded = not have_units(blocks)
        if not coded:
            parts = [in_own_units(*pair) for pair in zip(blocks, parts, strict=True)]
        found = self._joined(parts)
        note = OF_FUNCTIONS.format(name, CODED if coded else "")
        return replace(
            found, terms=[f"mean of {term}" for term in found.terms], notes=(*found.notes, note)
        )

    def of_family(self, family: Family | Block) -> Bounds:
        """Means of functions, in unit scale; those of tables and conditions are shares."""
        blocks = family.blocks if isinstance(family, Family) else (family,)
        return self._joined([self._of_block(block) for block in blocks])

    def _joined(self, parts: Sequence[Bounds], order: Codes | None = None) -> Bounds:
        terms = [term for part in parts for term in part.terms]
        known = [text for part in parts for text in part.known_from]
        order = np.arange(len(terms)) if order is None else order
        return self._made(
            [terms[i] for i in order],
            np.concatenate([part.low for part in parts])[order],
            np.concatenate([part.high for part in parts])[order],
            [known[i] for i in order],
            [note for part in parts for note in part.notes],
            np.concatenate([part.informative for part in parts])[order],
        )

    def _of_block(self, block: Block) -> Bounds:
        try:
            answers = answer(self.sources, block, with_count=True)
        except NotMeasuredError:
            return self._of_some(block)
        own = answers.subset(slice(0, block.size))
        places = places_of(self.sources, block) if self.target == "table" else None
        if places is None or np.all(places < 0):
            low, high = self._own_ends(own, block, self.alpha)
        else:
            low, high = self._cut(own, block, places)
        least, most = (np.asarray(end / block.bounds) for end in block.ranges)
        return self._measured(block.names, low, high, least, most)

    def _of_some(self, block: Block) -> Bounds:
        """Functions of which not all follow: those that were measured by their own answers."""
        measured = places_of(self.sources, block) >= 0
        nothing = not measured.any() or measured.all()
        own, others = (block,) * 2 if nothing else map(block.restrict, (measured, ~measured))
        if (own.size, others.size) != (measured.sum(), (~measured).sum()):  # only as a whole
            few = self.few if isinstance(block, Table) else np.inf
            return self.of_questions(questions_of_family(block), few)
        order = np.argsort(np.concatenate([np.flatnonzero(measured), np.flatnonzero(~measured)]))
        parts = [self._of_block(own), self.of_questions(questions_of_family(others))]
        return self._joined(parts, order)

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
        low, high = np.where(empty, ends[0], low), np.where(empty, ends[1], high)
        point = low == high  # an answer that no rows can have: wider, so as valid as before
        if point.any():
            least, most = self._own_ends(own, block, self.alpha)
            low[point] = np.minimum(low, least)[point]
            high[point] = np.maximum(high, most)[point]
        return low, high

    @cached_property
    def _joint(self) -> JointCertificate:
        return joint_certificate(self.sources, self.alpha)

    def _own_ends(self, own: Answers, block: Block, alpha: float) -> tuple[Floats, Floats]:
        """Ends for functions that have an answer, each with error alpha."""
        if isinstance(block, Table | Indicator):
            return ProportionIntervals(own).from_bounds(alpha, self.target)
        return self._of_means(own, block, alpha)

    def _of_means(self, answers: Answers, block: Block, alpha: float) -> tuple[Floats, Floats]:
        """Means of functions that are no shares."""
        beta, rows = alpha if self.target == "table" else for_noise(alpha), answers.rows
        q, sizes = answers.quantiles(beta - rows.spent(beta)), rows.bounds(rows.spent(beta))
        sides = answers.sums - q, answers.sums + q
        ends = np.stack([end / (n * block.bounds) for end in sides for n in sizes])
        least, most = (np.asarray(end / block.bounds) for end in block.ranges)
        lows, highs = within(ends.min(axis=0), ends.max(axis=0), least, most)
        if self.target == "table":
            return lows, highs
        low, high = chernoff_confint((1 + lows) / 2, (1 + highs) / 2, sizes[0], alpha - beta)
        return np.maximum(2 * low - 1, least), np.minimum(2 * high - 1, most)

    def of_questions(self, questions: Sequence[Question], few: float = np.inf) -> Bounds:
        """By linear programs, each question at its own level; see the class for `few`."""
        found, done = list[_Found](), False
        for question in questions:
            if len(found) >= few and done:
                break
            found.append(self._of_question(question, self.alpha))
            done |= found[-1].says or not touched(self.sources, question.columns)
        self.left += len(questions) - len(found)
        low, high = np.array([one.ends for one in found], dtype=np.float64).reshape(-1, 2).T
        return self._made(
            [question.term for question in questions[: len(found)]],
            low,
            high,
            [one.known_from for one in found],
            [note for one in found for note in one.notes],
            np.array([one.says for one in found]),
        )

    def _of_asked(self, asked: Asked) -> Bounds:
        """Every parameter at its level; what is compared from two, each at half of alpha."""
        if asked.compared is None:
            return self.of_questions(asked.questions)
        each = bonferroni(self.alpha, 2)
        one, two = (self._of_question(question, each) for question in asked.questions)
        terms, low, high, least, most = asked.compared(one.ends, two.ends)
        known = [one.known_from if one.says else two.known_from] * len(terms)
        says = (low > least + _NOTHING) | (high < most - _NOTHING)
        return self._made(terms, low, high, known, [*one.notes, *two.notes], says)

    def _of_question(self, question: Question, alpha: float) -> _Found:
        """By linear programs, unless nothing that was measured concerns it."""
        question = replace(question, range=possible_range(self.sources, question))
        least, most = question.range
        if least == most:
            return _Found(question.range, True, "the rules between columns", [*question.notes])
        if not touched(self.sources, question.columns):
            return _Found(question.range, False, UNKNOWN, [*question.notes])
        own = set(question.columns)
        answering = self.sources.measurements.published.answering.blocks
        about = known_from(self.sources, (b for b in answering if own & set(b.columns)))
        nothing = _Found(question.range, False, f"no limit from {about}", [*question.notes])
        beta = alpha if self.target == "table" else for_noise(alpha)
        notes = [*question.notes]
        for error in (beta, *smaller_errors(beta)):
            try:
                tables = consistent(self.sources, question, error)
                low, high = Ends(question, tables).interval(alpha - beta)
            except TooManyStates as reason:
                return nothing._replace(notes=[*question.notes, str(reason)])
            except Contradiction:  # wider bounds on the sums agree with more tables
                notes = [*question.notes, CONTRADICTION]
                continue
            low, high = max(least, low), min(most, high)
            if np.isinf(most) and self.target == "table":  # all rows but one over that one
                most = (tables.program.rows[1] - 1) * (1 - _NOTHING)
            says = low > least + _NOTHING or high < most - _NOTHING
            return _Found(
                (low, high), says, tables.known_from if says else nothing.known_from, notes
            )
        return nothing._replace(notes=notes)

    def _measured(
        self,
        terms: list[str],
        low: Floats,
        high: Floats,
        least: Any,
        most: Any,
        about: Sequence[str] = (),
    ) -> Bounds:
        """Intervals from noise of their own; those as wide as what is possible say nothing."""
        says = (low > least + _NOTHING) | (high < most - _NOTHING)
        known = [MEASURED if some else UNKNOWN for some in says]
        notes = [] if np.all(np.isfinite(low) & np.isfinite(high)) else [UNBOUNDED]
        return self._made(terms, low, high, known, [*about, *notes], says)

    def _made(
        self,
        terms: list[str],
        low: Floats,
        high: Floats,
        known: list[str],
        notes: list[str],
        informative: NDArray[np.bool_],
    ) -> Bounds:
        return Bounds(
            terms=terms,
            low=low + 0.0,  # 0 for -0
            high=high + 0.0,
            known_from=known,
            informative=informative,
            alpha=self.alpha,
            target=self.target,
            rows=self.sources.rows,
            budget=str(self.release.budget),
            notes=tuple(dict.fromkeys([*notes, *self._contradicted])),
            totals=bool(self.sources.totals),
        )

    @property
    def _contradicted(self) -> list[str]:
        return self.sources.constraint_notes(()) if self.sources.totals else []


class Ends:
    """Ends of the interval of one question over the tables that agree with a release.

    Eq. question-as-ratio of docs/explanation/inference/what-a-release-can-answer.md.
    """

    def __init__(self, question: Question, tables: Consistent) -> None:
        self.question, self.program = question, tables.program
        self.above, self.below = tables.numerator, tables.denominator

    def interval(self, alpha: float) -> Interval:
        """Interval for the private table if alpha is 0, else for the population."""
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
        if size < 1 or least == most:
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
        low, high = _whole(*self._sums(values))
        return max(low, 0.0), high


def _of_population(yes: Interval, no: Interval, alpha: float) -> Interval:
    low_yes, high_yes, low_no, high_no = (np.array(end) for end in (*yes, *no))
    low, high = clopper_pearson(low_yes, high_yes, high_no, low_no, alpha)
    return float(low), float(high)


def _whole(low: float, high: float) -> Interval:
    """A count between two numbers."""
    low, high = np.ceil(low - _ROUNDING), np.floor(high + _ROUNDING)
    if low > high:
        raise Contradiction
    return float(low), float(high)


def have_units(blocks: Sequence[Block]) -> bool:
    """True if all functions are moments that can be written with the values of columns."""
    return all(
        isinstance(block, Moments)
        and not block.coarse
        and not any(number.dates for number in block.numbers)
        for block in blocks
    )


def in_own_units(block: Block, found: Bounds) -> Bounds:
    """The mean of a column, and else of products in which columns are centred at their middle.

    A value is middle + half range times its value in unit scale, so that a product of centred
    columns is a multiple of that in unit scale.
    """
    assert isinstance(block, Moments)
    halves = {number.name: number.half_range for number in block.numbers}
    middles = {number.name: number.middle for number in block.numbers}
    centred = {
        number.name: f"({number.measured_name} {'-' if number.middle > 0 else '+'} "
        f"{abs(number.middle):.6g})" if number.middle else number.measured_name
        for number in block.numbers
    }  # fmt: skip
    terms, scales, shifts = block.named(centred), np.ones(block.size), np.zeros(block.size)
    for f, term in enumerate(block.terms):
        scales[f] = math.prod(halves[name] for name, level in term if level is None)
        if block.given is None and len(term) == 1 and term[0][1] is None:
            terms[f], shifts[f] = block.names[f], middles[term[0][0]]
    low, high = (shifts + scales * ends for ends in (found.low, found.high))
    return replace(found, terms=terms, low=low, high=high)


def explain(
    release: ReleaseView,
    sources: Sources,
    query: Any,
    *,
    given: str | None = None,
    minus: str | None = None,
    over: str | None = None,
    alpha: float = 0.05,
    totals: bool = False,
) -> Explanation:
    """See `Release.explain`."""
    if isinstance(query, str) and minus is None and over is None:
        query, given = Proportion(query, given), None
    asker = Asker(release, sources, alpha, "table", SHOWN + 1, totals=totals)
    bounds = asker.of(query, given, minus, over)  # refuses what it cannot read
    if isinstance(query, str):
        texts = [text for text in (query, minus, over) if text is not None]
        analyses: list[Any] = [Proportion(text, given) for text in texts]
    else:
        analyses = [] if isinstance(query, Family | Block) else [query]
    if analyses:
        follows = all(asker.inferred(analysis) is not None for analysis in analyses)
        ask = ", ".join(map(spelled, analyses))
    else:
        blocks = query.blocks if isinstance(query, Family) else (query,)
        follows = _have_answers(sources, blocks)
        names = dict.fromkeys(c.name for block in blocks for c in block.columns)
        ask = f"an analysis of {', '.join(names)}"
    if len(analyses) > 1 and follows:
        bounds = replace(bounds, notes=(*bounds.notes, COMPARED))
    verdict: Verdict = "bounded" if bounds.informative.any() else "out of reach"
    if follows:
        needed = [blocks] if not analyses else []
        if len(analyses) == 1:  # what it measures, or what it uses; either may have been measured
            schema, (analysis,) = release.schema, analyses
            families = answered(analysis, schema), analysis.family(schema).answering
            needed = [family.blocks for family in families]
        every = (all((places_of(sources, b) >= 0).all() for b in blocks) for blocks in needed)
        verdict = "measured" if any(every) else "derivable"
    return Explanation(
        query=bounds.terms[0] if len(analyses) > 1 else getattr(query, "label", ask),
        verdict=verdict,
        bounds=bounds,
        ask=ask,
        left=asker.left,
        survey=release.schema.design is not None,
    )


def _have_answers(sources: Sources, blocks: tuple[Block, ...]) -> bool:
    try:
        answer(sources, list(blocks))
    except NotMeasuredError:
        return False
    return True
