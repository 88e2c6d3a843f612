"""Simulated power of the test of an analysis, and rows that follow an alternative."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from dpstats.analyses.base import Analysis, answered
from dpstats.analyses.counts.difference import Difference, DifferenceResult
from dpstats.analyses.counts.proportion import Proportion
from dpstats.analyses.graphs.graphical_model import GraphicalModel
from dpstats.analyses.moments.correlation import CorrelationResult
from dpstats.analyses.moments.group_means_result import GroupMeansResult
from dpstats.analyses.moments.mean_difference import MeanDifferenceResult
from dpstats.analyses.registry import spelled
from dpstats.analyses.tables.goodness_of_fit import GoodnessOfFit
from dpstats.arrays import Codes, Floats
from dpstats.checks import check_finite, short
from dpstats.errors import RequestError
from dpstats.measured.view import ReleaseView
from dpstats.results.base import Result
from dpstats.results.estimates import EstimateResult
from dpstats.results.hypothesis import HypothesisResult
from dpstats.schema import Schema

Effect = float | Sequence[float] | Mapping[str, float]
"""An effect size: see `under_alternative`."""


def under_alternative(
    analysis: Analysis[Result],
    schema: Schema,
    codes: Mapping[str, Codes],
    density: Floats,
    effect: Effect,
) -> Floats:
    """Probabilities (m,) of points under an alternative; as before within each condition.

    Parameters
    ----------
    analysis : Proportion, Difference or GoodnessOfFit
    schema : Schema
    codes, density :
        Points and their probabilities (m,).
    effect : number or numbers
        The proportion; both risks, or their difference around one half; probabilities of levels.

    Raises
    ------
    RequestError
        For another analysis, an effect that is not possible, or a condition at no point.
    """
    family = answered(analysis, schema)
    groups: list[tuple[list[int], Floats]]
    if isinstance(analysis, Proportion):
        p = _number("the alternative", effect)
        if not 0 <= p <= 1:
            raise RequestError(f"the alternative of a Proportion is in [0, 1]; got {p:g}")
        groups = [([0, 1], np.array([p, 1 - p]))]
    elif isinstance(analysis, Difference):
        groups = [([2 * i, 2 * i + 1], np.array([risk, 1 - risk]))
                  for i, risk in enumerate(_risks(effect))]  # fmt: skip
    elif isinstance(analysis, GoodnessOfFit):
        shares = replace(analysis, probabilities=effect).expected_shares(schema)  # type: ignore[arg-type]
        groups = [(list(range(len(shares))), shares)]
    else:
        raise RequestError(
            "alternative= is for a Proportion, a Difference or a GoodnessOfFit; for "
            f"{spelled(analysis)} give like=, a release of rows that follow the alternative"
        )
    values = family.evaluate(codes)
    holds = np.array([values.combine(one) for one in np.eye(family.size)])
    if len(holds) == 1:  # a proportion of all rows
        holds = np.vstack([holds, 1 - holds])
    within = [i for members, _ in groups for i in members]
    tilted = density * (1 - holds[within].sum(axis=0))
    for members, shares in groups:
        weights = holds[members] * density
        masses = weights.sum(axis=1)
        if np.any(masses == 0):
            raise RequestError(
                f"no simulated row is in one of the conditions of {spelled(analysis)}, so its "
                "alternative cannot be simulated; give like=, a release with such rows"
            )
        tilted += masses.sum() * (shares / masses) @ weights
    return np.asarray(tilted / tilted.sum())


def refuse_null(
    analysis: Analysis[Result], schema: Schema, effect: Effect, null: float | None
) -> None:
    """Refuse an effect that is the null hypothesis itself.

    Raises
    ------
    RequestError
    """
    one: Any = np.nan  # another analysis, or no null: refused elsewhere
    other: Any = np.nan if null is None else _number("null", null)
    if isinstance(analysis, Proportion):
        one = _number("the alternative", effect)
    elif isinstance(analysis, Difference):
        first, second = _risks(effect)
        one, other = first - second, 0.0 if null is None else other
    elif isinstance(analysis, GoodnessOfFit):
        one = replace(analysis, probabilities=effect).expected_shares(schema)  # type: ignore[arg-type]
        other = analysis.expected_shares(schema)
        if len(one) != len(other):
            raise RequestError(
                f"alternative={short(effect)} must be about the same levels as the probabilities "
                "of the test: both with a level for missing cells, or both without"
            )
    if np.allclose(one, other, rtol=0, atol=1e-12):
        raise RequestError(
            f"alternative={short(effect)} is the null hypothesis itself, which the test rejects "
            "with probability alpha at any budget and n; give another alternative"
        )


def _number(name: str, value: object) -> float:
    array = check_finite(name, value)  # type: ignore[arg-type]
    if array.ndim:
        raise RequestError(f"{name} must be one number, got {short(value)}")
    return float(array)


def _risks(effect: Effect) -> tuple[float, float]:
    """Both risks of a difference."""
    array: Any = check_finite("alternative", effect)  # type: ignore[arg-type]
    risks = (0.5 + array / 2, 0.5 - array / 2) if array.ndim == 0 else tuple(array)
    if len(risks) != 2 or not all(0 <= risk <= 1 for risk in risks):
        raise RequestError(
            "the alternative of a Difference is a difference in [-1, 1], around one half, or both "
            f"risks; got {short(effect)}"
        )
    return float(risks[0]), float(risks[1])


def pvalue_in(
    analysis: Analysis[Result],
    release: ReleaseView,
    name: str,
    null: float | None,
    term: str | None,
) -> float:
    """`pvalue_of` the result on a release, without the rest of the result where that takes long."""
    if isinstance(analysis, GraphicalModel):
        several = analysis.pvalues(release)
        if several is not None:
            return _of_term(np.asarray(several), list(several.names), name, null, term)
    return pvalue_of(analysis.infer(release), name, null, term)


def _of_term(
    pvalues: Floats, terms: list[str], name: str, null: float | None, term: str | None
) -> float:
    """One of several p-values."""
    _no_null(name, null)
    if term not in terms:
        asked = "" if term is None else f", not {term!r}"
        raise RequestError(f"{name!r} tests several terms; give term=, one of {terms}{asked}")
    return float(pvalues[terms.index(term)])


def pvalue_of(result: Result, name: str, null: float | None, term: str | None) -> float:
    """The two-sided noise-aware p-value of the test of an analysis.

    Raises
    ------
    RequestError
        If it has no test, or several; or if the hypothesis is not clear.
    """
    if isinstance(result, HypothesisResult):
        _no_null(name, null)
        _no_term(name, term)
        return float(result.pvalue)
    several = np.asarray(result.pvalues)
    if len(several):
        terms = list(result.terms) if isinstance(result, EstimateResult) else []
        return _of_term(several, terms, name, null, term)
    _no_term(name, term)
    if isinstance(result, DifferenceResult):
        return result.test(null).pvalue
    if isinstance(result, GroupMeansResult):
        _no_null(name, null)
        return result.anova().pvalue
    if not isinstance(result, EstimateResult) or not result.testable:
        raise RequestError(
            f"{name!r} has no single test whose power could be asked for; ask for an analysis of "
            "one parameter, or for width= or delta="
        )
    if null is None and not isinstance(result, MeanDifferenceResult | CorrelationResult):
        raise RequestError(f"the test of {name!r} needs null=, the value of the null hypothesis")
    return result.test(0.0 if null is None else _number("null", null)).pvalue


def _no_null(name: str, null: float | None) -> None:
    if null is not None:
        raise RequestError(f"{name!r} has its own hypothesis; drop null=")


def _no_term(name: str, term: str | None) -> None:
    if term is not None:
        raise RequestError(f"{name!r} has a single test; drop term={term!r}")
