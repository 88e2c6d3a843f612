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
    "Boolean": "schema",
    "Category": "schema",
    "Number": "schema",
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
    "GoodnessOfFit": "analyses.tables.goodness_of_fit",
    "Independence": "analyses.tables.independence",
    "Correlation": "analyses.moments.correlation",
    "Difference": "analyses.counts.difference",
    "Marginals": "analyses.counts.marginals",
    "Mean": "analyses.moments.mean",
    "MeanDifference": "analyses.moments.mean_difference",
    "Covariance": "analyses.moments.covariance",
    "PCA": "analyses.moments.pca",
    "OLS": "analyses.regression.ols",
    "Proportion": "analyses.counts.proportion",
    "Quantile": "analyses.counts.quantile",
    "ChiSquareResult": "results.chi_square",
    "ContrastResult": "results.contrasts",
    "CorrelationResult": "analyses.moments.correlation",
    "CovarianceResult": "analyses.moments.covariance",
    "DifferenceResult": "analyses.counts.difference",
    "EstimateResult": "results.estimates",
    "FTestResult": "results.contrasts",
    "HypothesisResult": "results.hypothesis",
    "LinearResult": "results.contrasts",
    "MeanDifferenceResult": "analyses.moments.mean_difference",
    "MeanResult": "analyses.moments.mean",
    "OLSResult": "results.least_squares",
    "PCAResult": "analyses.moments.pca",
    "Prediction": "results.contrasts",
    "QuantileResult": "analyses.counts.quantile",
    "Result": "results.base",
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
    "BernsteinKDE",
    "Boolean",
    "BudgetError",
    "Category",
    "Cells",
    "ChiSquareResult",
    "ConditionError",
    "ContrastResult",
    "Correlation",
    "CorrelationResult",
    "Covariance",
    "CovarianceResult",
    "DataError",
    "Difference",
    "DifferenceResult",
    "DpstatsError",
    "EstimateResult",
    "FTestResult",
    "Family",
    "FileFormatError",
    "GoodnessOfFit",
    "HypothesisResult",
    "Independence",
    "Ledger",
    "LinearResult",
    "LogLinear",
    "Marginals",
    "Mean",
    "MeanDifference",
    "MeanDifferenceResult",
    "MeanResult",
    "Measurements",
    "Moments",
    "NoiseError",
    "NotMeasuredError",
    "Number",
    "OLSResult",
    "PCAResult",
    "PerturbedHistogram",
    "Plan",
    "Prediction",
    "Proportion",
    "PureDP",
    "Quantile",
    "QuantileResult",
    "Release",
    "RequestError",
    "Result",
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
    from dpstats import corrected, plots, testing
    from dpstats.analyses.counts.difference import Difference, DifferenceResult
    from dpstats.analyses.counts.marginals import Marginals
    from dpstats.analyses.counts.proportion import Proportion
    from dpstats.analyses.counts.quantile import Quantile, QuantileResult
    from dpstats.analyses.moments.correlation import Correlation, CorrelationResult
    from dpstats.analyses.moments.covariance import Covariance, CovarianceResult
    from dpstats.analyses.moments.mean import Mean, MeanResult
    from dpstats.analyses.moments.mean_difference import MeanDifference, MeanDifferenceResult
    from dpstats.analyses.moments.pca import PCA, PCAResult
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
    from dpstats.families.block import Family
    from dpstats.families.cells import Cells
    from dpstats.families.moments import Moments
    from dpstats.measured.measurements import Measurements
    from dpstats.planning.plan import Plan, plan
    from dpstats.privacy.budget import ZCDP, PureDP
    from dpstats.privacy.ledger import Ledger
    from dpstats.private.measure import measure
    from dpstats.references.bernstein import BernsteinKDE
    from dpstats.references.histogram import PerturbedHistogram
    from dpstats.references.loglinear import LogLinear
    from dpstats.references.uniform import Uniform
    from dpstats.releases import Release, load
    from dpstats.results.base import Result
    from dpstats.results.chi_square import ChiSquareResult
    from dpstats.results.contrasts import ContrastResult, FTestResult, LinearResult, Prediction
    from dpstats.results.estimates import EstimateResult
    from dpstats.results.hypothesis import HypothesisResult
    from dpstats.results.least_squares import OLSResult
    from dpstats.schema import Boolean, Category, Number, Schema
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
