"""Promises of the theorems: sizes for an accuracy, the accuracy that n affords, consequences.

`UniformSampling`, `HistogramSampling` and `KernelSampling` are the theorems of Bojkovic & Loh
(2024), `ReferenceSampling` that of Boedihardjo, Strohmer & Vershynin (2022) on which they rest. A
promise is made before any row is read, and is loose; `release.accuracy()` bounds the error of one
release, and is what to quote. The functions bound statistics, given either of the two.

Derivations: docs/explanation/synthetic-rows/theory.md.
"""

from dpstats.theory.consequences import (
    chi_square_error,
    covariance_error,
    excess_risk,
    grid_size,
    least_squares_error,
    precision_error,
    principal_component_sines,
    proportion_margin,
)
from dpstats.theory.sampling import (
    HistogramSampling,
    KernelSampling,
    ReferenceSampling,
    Sizes,
    UniformSampling,
)

__all__ = [
    "HistogramSampling",
    "KernelSampling",
    "ReferenceSampling",
    "Sizes",
    "UniformSampling",
    "chi_square_error",
    "covariance_error",
    "excess_risk",
    "grid_size",
    "least_squares_error",
    "precision_error",
    "principal_component_sines",
    "proportion_margin",
]


def __dir__() -> list[str]:
    return sorted(__all__)  # not the modules beside this file
