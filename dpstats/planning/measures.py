"""Targets for one analysis of a plan: a width, an accuracy, the power of its test."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from dpstats.analyses.base import AlternativeShares, Analysis, answered
from dpstats.analyses.registry import inferred, spelled
from dpstats.arrays import Codes, Floats
from dpstats.checks import Method, check_method, did_you_mean, first_few, short
from dpstats.errors import RequestError
from dpstats.inference.simulation import make_generator
from dpstats.measured.certificate import certify_answers
from dpstats.measured.strategy import Strategy
from dpstats.measured.view import ReleaseView
from dpstats.planning.previews import preview, simulated
from dpstats.planning.previews.likeness import Likeness
from dpstats.planning.previews.pretended import (
    PretendRelease,
    PretendRows,
    pretend_rows,
    seen_by_analyses,
)
from dpstats.planning.previews.simulated import Simulation
from dpstats.results.named import place_of
from dpstats.schema import Schema

if TYPE_CHECKING:
    from dpstats.results.base import Result

FEW_RELEASES, RELEASES = 40, 400  # whose tests give a power: to begin with, and at the end
_TINY = 1e-300
_ROUNDING = 1e-9  # relative, of a width or delta that rounding may move above its target

Effect = float | Sequence[float] | Mapping[str, float]
"""An effect size: see `under_alternative`."""


@dataclass(frozen=True)
class Subject:
    """One analysis of a plan, by name, and the rows that it is previewed on."""

    strategy: Strategy
    analysis: Analysis[Result]
    name: str
    like: Likeness
    alpha: float

    def seen(self, strategy: Strategy, n: int) -> Strategy:
        """The strategy as it sees it at n rows: second stages are at pilots, as in previews."""
        at_n = strategy if strategy.n is None else replace(strategy, n=n)
        at_pilots = preview.with_pilots(at_n, {self.name: self.analysis}, self.like, n)
        return seen_by_analyses(at_pilots, n)


class Measure(ABC):
    """A quantity of one analysis, from simulated releases of a strategy that it sees."""

    subject: Subject
    slope: float = 0.7  # of the shortfall in log v: widths fall with v^(1/2) to v
    close: float = 1.02  # a value that reaches the target is at most this times one that does not
    details: str  # what it is
    advice: str  # what to ask for where the target is out of reach
    chosen: str = ""  # which of several parameters it is of, and how to ask for another

    @abstractmethod
    def __call__(self, strategy: Strategy, n: int, base: int) -> float:
        """The quantity at n rows; `base` as in `PretendRows.table`."""

    def shortfall(self, measured: float, target: float) -> float:
        """How far a measured width or delta is above the target, as a logarithm."""
        if target < measured <= target * (1 + _ROUNDING):
            return 0.0
        return math.log(max(measured, _TINY) / target)


class Width(Measure):
    """Median width of the intervals, as a preview shows it, or the width of one of them."""

    def __init__(
        self, subject: Subject, method: Method, term: str | None = None, *, few: bool = True
    ) -> None:
        check_method(method)
        self.subject, self.method, self.term, self.few = subject, method, term, few
        self.rows = pretend_rows(subject.strategy, subject.like, simulated.PRETEND_RELEASES)
        edges = preview.edges_of_quantile(subject.analysis, subject.strategy.schema)
        self.interval = f"{method.replace('_', '-')} {1 - subject.alpha:.6g} interval"
        self.details = self.interval
        self.advice = f"{edges and edges + ', or '}ask for a larger width"

    def __call__(self, strategy: Strategy, n: int, base: int) -> float:
        """Median width, over as many releases as a preview has or the first few of a search."""
        rows = [rows.under(strategy) for rows in self.rows]
        simulation = Simulation(strategy, n, rows, base)
        infer = simulation.few if self.few else simulation.results
        results = infer(self.subject.analysis)
        self._describe(results[0])
        width = float(np.median([self._width(result) for result in results]))
        if math.isnan(width):
            raise RequestError(
                f"{self.subject.name!r} has no {self.method} interval whose width could be asked "
                "for; ask for delta= or power="
            )
        return width

    def _width(self, result: Result) -> float:
        alpha, term = self.subject.alpha, self.term
        if term is None:
            return preview.previewed_width(result, self.method, alpha)
        frame = result.intervals_frame(alpha=alpha, method=self.method)
        terms = frame["term"].tolist()
        if term not in terms:
            which = f"its terms: {first_few(terms)}" if terms else "drop term="
            raise RequestError(
                f"{self.subject.name!r} has no interval of a term {short(term)}"
                f"{did_you_mean(term, terms)}; {which}"
            )
        ends = frame[["conf_low", "conf_high"]].to_numpy()[place_of(term, terms)]
        return float(ends[1] - ends[0])

    def _describe(self, result: Result) -> None:
        """Say whose width it is, and how to ask for that of another term."""
        terms = [term for unit in result.terms_by_unit for term in unit]
        several = len(terms) > 1
        shown = result.main_terms if several else ()
        self.whose, of = result.interval_of, ""
        if len(shown) == 1:
            self.whose, of = shown[0], f" of {shown[0]!r}"
        elif several:
            self.whose = f"median of {len(shown)} terms"
            of = f", {self.whose}"
        if self.term is not None:
            of = f" of {self.term!r}"
        elif len(shown) == 1:
            self.chosen = (
                f"the width is that of {shown[0]!r}; for another give term=, one of "
                f"{first_few(terms)}"
            )
        if self.method == "certified" and result.certified_target == "table":
            of = " for the private table"
        self.details = f"{self.interval}{of}"


class Delta(Measure):
    """Largest joint bound on the noise of the analysis' functions, as `Release.radius` states."""

    advice = "ask for a larger delta"

    def __init__(self, subject: Subject) -> None:
        self.subject, self.alpha, schema = subject, subject.alpha, subject.strategy.schema
        self.family = answered(subject.analysis, schema)
        self.rows = pretend_rows(subject.strategy, subject.like, 1)[0]
        self.details = (
            f"bound on the error of rows that match the noisy answers, at level {1 - self.alpha:g}"
        )

    def __call__(self, strategy: Strategy, n: int, base: int) -> float:
        """The bound, in unit scale."""
        rows = self.rows.under(strategy)
        pretended = PretendRelease(strategy, n, *rows.table(0, n, base), 0)
        answers = pretended.answers(self.family, with_count=True)
        means = answers.means[: self.family.size]
        certificate = certify_answers(answers, self.family, means, alpha=self.alpha, target="")
        return float(certificate.joint_radius.max())


class Power(Measure):
    """Share of simulated releases whose p-value is at most alpha."""

    slope = 1.5  # of the quantile of the power in log v: 2.8 standard errors at 80%, times a half
    close = 1.05  # what the releases tell apart
    rough = 1.25  # what few releases do
    advice = "ask for a lower power"

    def __init__(
        self, subject: Subject, alternative: Effect | None, null: float | None, term: str | None
    ) -> None:
        self.subject, self.null, self.term = subject, null, term
        self.analysis, strategy, like = subject.analysis, subject.strategy, subject.like
        if alternative is None and not like.given:
            of_size = "alternative=, an effect size, or " * hasattr(subject.analysis, "alternative")
            raise RequestError(
                f"power= needs {of_size}like=, a release, guesses or invented rows that follow the "
                "alternative"
            )
        tables = getattr(self.analysis, "simulations", 0)
        enough = max(999, math.ceil(50 / subject.alpha))
        if isinstance(tables, int) and enough < tables:
            # The power hardly depends on how many tables a p-value is simulated from.
            self.analysis = replace(self.analysis, simulations=enough)  # type: ignore[type-var]
        codes, density = like.points(strategy.columns, make_generator(0), strategy.n)
        if alternative is not None:
            density = under_alternative(
                self.analysis, strategy.schema, codes, density, alternative, null
            )
        generators = [make_generator((seed, 2)) for seed in range(RELEASES)]
        self.rows = PretendRows(strategy, codes, density, generators)
        self.details = f"of the test at level {subject.alpha:g}, {RELEASES} simulated releases"
        self.releases = RELEASES

    def __call__(self, strategy: Strategy, n: int, base: int) -> float:
        """The share, among the first `releases`."""
        name, alpha, rejections = self.subject.name, self.subject.alpha, 0
        rows = self.rows.under(strategy)
        for i in range(self.releases):
            pretended = PretendRelease(strategy, n, *rows.table(i, n, base), i)
            rejections += pvalue_in(self.analysis, pretended, name, self.null, self.term) <= alpha
        return rejections / self.releases

    def shortfall(self, measured: float, target: float) -> float:
        """How far a power is below the target, as normal quantiles."""
        from scipy.special import ndtri

        inside = np.clip(measured, 0.5 / RELEASES, 1 - 0.5 / RELEASES)
        gap = float(ndtri(target) - ndtri(inside))
        return min(gap, 0.0) if measured >= target else max(gap, _TINY)


def under_alternative(
    analysis: Analysis[Result],
    schema: Schema,
    codes: Mapping[str, Codes],
    density: Floats,
    effect: Effect,
    null: float | None = None,
) -> Floats:
    """Probabilities (m,) of points under an alternative; as before within each condition.

    What the effect is, the method ``alternative(schema, effect)`` of the analysis says.
    """
    if not hasattr(analysis, "alternative"):
        raise RequestError(
            "alternative= is for a Proportion, a Difference or a GoodnessOfFit; for "
            f"{spelled(analysis)} give like=, a release, guesses or "
            "invented rows that follow the alternative"
        )
    wanted: AlternativeShares = analysis.alternative(schema, effect)
    tested = wanted.null if null is None else null
    if tested is not None and np.allclose(wanted.value, tested, rtol=0, atol=1e-12):
        raise RequestError(
            f"alternative={short(effect)} is the null hypothesis itself, which the test rejects "
            "with probability alpha at any budget and n; give another alternative"
        )
    family = answered(analysis, schema)
    values = family.evaluate(codes)
    holds = np.array([values.combine(unit) for unit in np.eye(family.size)])
    if len(holds) == 1:  # a proportion of all rows
        holds = np.vstack([holds, 1 - holds])
    within = [i for members, _ in wanted.groups for i in members]
    tilted = density * (1 - holds[within].sum(axis=0))
    for members, shares in wanted.groups:
        weights = holds[members] * density
        masses = weights.sum(axis=1)
        if np.any(masses == 0):
            raise RequestError(
                f"no simulated row is in one of the conditions of {spelled(analysis)}, so its "
                "alternative cannot be simulated; give like=, a release with such rows"
            )
        tilted += masses.sum() * (shares / masses) @ weights
    return np.asarray(tilted / tilted.sum())


def pvalue_in(
    analysis: Analysis[Result],
    release: ReleaseView,
    name: str,
    null: float | None,
    term: str | None,
) -> float:
    """`pvalue_of` the result on a release, without the rest of the result where that takes long."""
    alone = getattr(analysis, "pvalues", None)
    if alone is not None and (several := alone(release)) is not None:
        return _pvalue_of_term(several, list(several.names), name, null, term)
    return pvalue_of(inferred(analysis, release, "on a simulated release"), name, null, term)


def pvalue_of(result: Result, name: str, null: float | None, term: str | None) -> float:
    """Two-sided noise-aware p-value of the one test of an analysis."""
    if len(result.pvalues) and (terms := list(getattr(result, "terms", ()))):
        return _pvalue_of_term(result.pvalues, terms, name, null, term)
    if term is not None:
        raise RequestError(f"{name!r} has a single test; drop term={term!r}")
    try:
        return float(result.single_test(null).pvalues[0])
    except RequestError as error:
        raise RequestError(f"the power of {name!r}: {error}") from error


def _pvalue_of_term(
    pvalues: Any, terms: list[str], name: str, null: float | None, term: str | None
) -> float:
    if null is not None:
        raise RequestError(f"{name!r} has its own hypothesis; drop null=")
    if term is None or term not in terms:
        asked = "" if term is None else f", not {term!r}"
        raise RequestError(f"{name!r} tests several terms; give term=, one of {terms}{asked}")
    return float(np.asarray(pvalues)[place_of(term, terms)])
