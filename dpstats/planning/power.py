"""Simulated power of the test of an analysis, and rows that follow an alternative."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from dpstats.analyses.base import AlternativeShares, Analysis, answered
from dpstats.analyses.registry import spelled
from dpstats.arrays import Codes, Floats
from dpstats.checks import short
from dpstats.errors import RequestError
from dpstats.measured.view import ReleaseView
from dpstats.results.base import Result
from dpstats.results.estimates import EstimateResult
from dpstats.schema import Schema

Effect = float | Sequence[float] | Mapping[str, float]
"""An effect size: see `under_alternative`."""


def under_alternative(
    analysis: Analysis[Result],
    schema: Schema,
    codes: Mapping[str, Codes],
    density: Floats,
    effect: Effect,
    null: float | None = None,
) -> Floats:
    """Probabilities (m,) of points under an alternative; as before within each condition.

    Parameters
    ----------
    analysis : Analysis
        With a method ``alternative(schema, effect)``, see `AlternativeShares`.
    schema : Schema
    codes, density :
        Points and their probabilities (m,).
    effect : number or numbers
        Of which the method says what it is.
    null : float, optional
        The value of the null hypothesis, where the analysis has none of its own.

    Raises
    ------
    RequestError
        For another analysis, an effect that is not possible or the null hypothesis itself, or a
        condition at no point.
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
    holds = np.array([values.combine(one) for one in np.eye(family.size)])
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
    several = np.asarray(result.pvalues)
    if len(several) and isinstance(result, EstimateResult):
        return _of_term(several, list(result.terms), name, null, term)
    if term is not None:
        raise RequestError(f"{name!r} has a single test; drop term={term!r}")
    try:
        return float(result.single_test(null).pvalues[0])
    except RequestError as error:
        raise RequestError(f"the power of {name!r}: {error}") from error


def _no_null(name: str, null: float | None) -> None:
    if null is not None:
        raise RequestError(f"{name!r} has its own hypothesis; drop null=")
