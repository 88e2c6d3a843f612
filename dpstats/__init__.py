"""Statistics on private data: releases under differential privacy, and inference that is right.

A custodian plans analyses and measures them once; an analyst opens the release. See
``help(dpstats.plan)`` and ``help(dpstats.load)``.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

# Public name -> module. Modules load on first use, so that `import dpstats` is quick. The built-in
# analyses are not listed here: `analyses.registry` knows where each is.
_HOMES = {
    "Boolean": "schema",
    "Category": "schema",
    "Number": "schema",
    "Schema": "schema",
    "Cells": "families.cells",
    "Family": "families.block",
    "Moments": "families.moments",
    "BallMoments": "families.ball_moments",
    "GroupMoments": "families.group_moments",
    "Monomials": "families.monomials",
    "PureDP": "privacy.budget",
    "ZCDP": "privacy.budget",
    "Ledger": "privacy.ledger",
    "BernsteinKDE": "references.bernstein",
    "Uniform": "references.uniform",
    "LogLinear": "references.loglinear",
    "PerturbedHistogram": "references.histogram",
    "Analysis": "analyses.base",
    "register": "analyses.registry",
    "Answers": "measured.answers",
    "ReleaseView": "measured.view",
    "EstimateResult": "results.base",
    "Plan": "planning.plan",
    "plan": "planning.plan",
    "Measurements": "measured.measurements",
    "measure": "private.measure",
    "Release": "releases",
    "load": "releases",
    "release": "synthesis",
    "synthesize": "synthesis",
    "DpstatsError": "errors",
    "BudgetError": "errors",
    "ConditionError": "errors",
    "DataError": "errors",
    "FileFormatError": "errors",
    "NoiseError": "errors",
    "NotMeasuredError": "errors",
    "RequestError": "errors",
    "SchemaError": "errors",
}
_MODULES = {"corrected": "corrected", "plots": "plots", "testing": "testing"}

__all__ = [
    "OLS",
    "PCA",
    "ZCDP",
    "Analysis",
    "Answers",
    "BallMoments",
    "BernsteinKDE",
    "Boolean",
    "BudgetError",
    "Category",
    "Cells",
    "ConditionError",
    "Correlation",
    "Covariance",
    "DataError",
    "Difference",
    "DpstatsError",
    "EstimateResult",
    "Family",
    "FileFormatError",
    "GoodnessOfFit",
    "GroupMoments",
    "Independence",
    "Ledger",
    "LogLinear",
    "Marginals",
    "Mean",
    "MeanDifference",
    "Measurements",
    "Moments",
    "Monomials",
    "NoiseError",
    "NotMeasuredError",
    "Number",
    "PerturbedHistogram",
    "Plan",
    "Proportion",
    "PureDP",
    "Quantile",
    "Release",
    "ReleaseView",
    "RequestError",
    "Schema",
    "SchemaError",
    "Uniform",
    "corrected",
    "load",
    "measure",
    "plan",
    "plots",
    "register",
    "release",
    "synthesize",
    "testing",
]

if TYPE_CHECKING:
    from dpstats import corrected, plots, testing
    from dpstats.analyses.base import Analysis
    from dpstats.analyses.counts.difference import Difference
    from dpstats.analyses.counts.marginals import Marginals
    from dpstats.analyses.counts.proportion import Proportion
    from dpstats.analyses.counts.quantile import Quantile
    from dpstats.analyses.moments.correlation import Correlation
    from dpstats.analyses.moments.covariance import Covariance
    from dpstats.analyses.moments.mean import Mean
    from dpstats.analyses.moments.mean_difference import MeanDifference
    from dpstats.analyses.moments.pca import PCA
    from dpstats.analyses.registry import register
    from dpstats.analyses.regression.ols import OLS
    from dpstats.analyses.tables.goodness_of_fit import GoodnessOfFit
    from dpstats.analyses.tables.independence import Independence
    from dpstats.errors import (
        BudgetError,
        ConditionError,
        DataError,
        DpstatsError,
        FileFormatError,
        NoiseError,
        NotMeasuredError,
        RequestError,
        SchemaError,
    )
    from dpstats.families.ball_moments import BallMoments
    from dpstats.families.block import Family
    from dpstats.families.cells import Cells
    from dpstats.families.group_moments import GroupMoments
    from dpstats.families.moments import Moments
    from dpstats.families.monomials import Monomials
    from dpstats.measured.answers import Answers
    from dpstats.measured.measurements import Measurements
    from dpstats.measured.view import ReleaseView
    from dpstats.planning.plan import Plan, plan
    from dpstats.privacy.budget import ZCDP, PureDP
    from dpstats.privacy.ledger import Ledger
    from dpstats.private.measure import measure
    from dpstats.references.bernstein import BernsteinKDE
    from dpstats.references.histogram import PerturbedHistogram
    from dpstats.references.loglinear import LogLinear
    from dpstats.references.uniform import Uniform
    from dpstats.releases import Release, load
    from dpstats.results.base import EstimateResult
    from dpstats.schema import Boolean, Category, Number, Schema
    from dpstats.synthesis import release, synthesize


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"dpstats.{_MODULES[name]}")
    if name not in __all__:
        raise AttributeError(f"module 'dpstats' has no attribute {name!r}")
    home = _HOMES.get(name) or _home_of_analysis(name)
    value = getattr(importlib.import_module(f"dpstats.{home}"), name)
    globals()[name] = value
    return value


def _home_of_analysis(name: str) -> str:
    registry = importlib.import_module("dpstats.analyses.registry")
    return next(f"analyses.{home}" for home, known in registry.BUILT_IN.values() if known == name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
