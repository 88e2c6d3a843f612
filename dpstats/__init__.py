"""Statistics on private data: releases under differential privacy, and inference that is right.

A custodian plans analyses and measures them once; an analyst opens the release. See
``help(dpstats.plan)`` and ``help(dpstats.load)``.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

# Public name -> module. Modules load on first use, so that `import dpstats` stays quick.
_HOMES = {
    "Boolean": "columns",
    "Category": "columns",
    "Number": "columns",
    "Schema": "schema",
    "Cells": "families.cells",
    "Family": "families.block",
    "Moments": "families.moments",
    "PureDP": "privacy.budget",
    "ZCDP": "privacy.budget",
    "Ledger": "privacy.ledger",
    "BernsteinKDE": "references.bernstein",
    "Uniform": "references.uniform",
    "LogLinear": "references.loglinear",
    "PerturbedHistogram": "references.histogram",
    "GoodnessOfFit": "analyses.goodness_of_fit",
    "Independence": "analyses.independence",
    "Correlation": "analyses.correlation",
    "Difference": "analyses.difference",
    "Marginals": "analyses.marginals",
    "Mean": "analyses.mean",
    "MeanDifference": "analyses.mean_difference",
    "Covariance": "analyses.covariance",
    "PCA": "analyses.pca",
    "OLS": "analyses.ols",
    "Proportion": "analyses.proportion",
    "Quantile": "analyses.quantile",
    "Plan": "planning",
    "plan": "planning",
    "Measurements": "measurements",
    "measure": "measuring",
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
_MODULES = {"corrected": "inference.corrected", "plots": "plots", "testing": "testing"}

__all__ = [
    "OLS",
    "PCA",
    "ZCDP",
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
    "Family",
    "FileFormatError",
    "GoodnessOfFit",
    "Independence",
    "Ledger",
    "LogLinear",
    "Marginals",
    "Mean",
    "MeanDifference",
    "Measurements",
    "Moments",
    "NoiseError",
    "NotMeasuredError",
    "Number",
    "PerturbedHistogram",
    "Plan",
    "Proportion",
    "PureDP",
    "Quantile",
    "Release",
    "RequestError",
    "Schema",
    "SchemaError",
    "Uniform",
    "corrected",
    "load",
    "measure",
    "plan",
    "plots",
    "release",
    "synthesize",
    "testing",
]

if TYPE_CHECKING:
    from dpstats import plots, testing
    from dpstats.analyses.correlation import Correlation
    from dpstats.analyses.covariance import Covariance
    from dpstats.analyses.difference import Difference
    from dpstats.analyses.goodness_of_fit import GoodnessOfFit
    from dpstats.analyses.independence import Independence
    from dpstats.analyses.marginals import Marginals
    from dpstats.analyses.mean import Mean
    from dpstats.analyses.mean_difference import MeanDifference
    from dpstats.analyses.ols import OLS
    from dpstats.analyses.pca import PCA
    from dpstats.analyses.proportion import Proportion
    from dpstats.analyses.quantile import Quantile
    from dpstats.columns import Boolean, Category, Number
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
    from dpstats.families.block import Family
    from dpstats.families.cells import Cells
    from dpstats.families.moments import Moments
    from dpstats.inference import corrected
    from dpstats.measurements import Measurements
    from dpstats.measuring import measure
    from dpstats.planning import Plan, plan
    from dpstats.privacy.budget import ZCDP, PureDP
    from dpstats.privacy.ledger import Ledger
    from dpstats.references.bernstein import BernsteinKDE
    from dpstats.references.histogram import PerturbedHistogram
    from dpstats.references.loglinear import LogLinear
    from dpstats.references.uniform import Uniform
    from dpstats.releases import Release, load
    from dpstats.schema import Schema
    from dpstats.synthesis import release, synthesize


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"dpstats.{_MODULES[name]}")
    if name not in _HOMES:
        raise AttributeError(f"module 'dpstats' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"dpstats.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
