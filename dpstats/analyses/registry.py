"""The analyses: each one file, with what to measure and what to conclude."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from dpstats.errors import RequestError

if TYPE_CHECKING:
    from dpstats.analyses.base import Analysis
    from dpstats.results.base import Result


def registry() -> Mapping[str, type[Any]]:
    """The analyses of dpstats by the name they have in files."""
    from dpstats.analyses.counts.difference import Difference
    from dpstats.analyses.counts.marginals import Marginals
    from dpstats.analyses.counts.proportion import Proportion
    from dpstats.analyses.counts.quantile import Quantile
    from dpstats.analyses.moments.correlation import Correlation
    from dpstats.analyses.moments.covariance import Covariance
    from dpstats.analyses.moments.mean import Mean
    from dpstats.analyses.moments.mean_difference import MeanDifference
    from dpstats.analyses.moments.pca import PCA
    from dpstats.analyses.regression.ols import OLS
    from dpstats.analyses.tables.goodness_of_fit import GoodnessOfFit
    from dpstats.analyses.tables.independence import Independence

    return {
        analysis.kind: analysis
        for analysis in (
            Correlation,
            Covariance,
            Difference,
            GoodnessOfFit,
            Independence,
            Marginals,
            Mean,
            MeanDifference,
            PCA,
            OLS,
            Proportion,
            Quantile,
        )
    }


def analysis_to_dict(analysis: Analysis[Result]) -> dict[str, Any]:
    """Plain data of an analysis: its kind and the parameters that differ from their defaults."""
    plain: dict[str, Any] = {"kind": analysis.kind}
    for field in dataclasses.fields(analysis):  # type: ignore[arg-type]
        value = getattr(analysis, field.name)
        if value != field.default:
            plain[field.name] = list(value) if isinstance(value, tuple) else value
    return plain


def analysis_from_dict(plain: Mapping[str, Any]) -> Analysis[Result]:
    """Build an analysis from plain data, such as an ``[[analysis]]`` table of a request.

    Raises
    ------
    RequestError
        For an unknown kind or unknown parameters.
    """
    parameters = dict(plain)
    kind = parameters.pop("kind", None)
    known = registry()
    if kind not in known:
        raise RequestError(f"unknown kind of analysis {kind!r}; known: {sorted(known)}")
    fields = {field.name: field for field in dataclasses.fields(known[kind])}
    unknown = sorted(set(parameters) - set(fields))
    lacking = [
        name
        for name, field in fields.items()
        if name not in parameters and field.default is dataclasses.MISSING
    ]
    if unknown or lacking:
        raise RequestError(
            f"analysis of kind {kind!r}: "
            + (f"unknown keys {unknown}; " if unknown else "")
            + (f"missing keys {lacking}; " if lacking else "")
            + f"it takes {list(fields)}"
        )
    analysis: Analysis[Result] = known[kind](**parameters)
    return analysis
