"""Means of numbers, from their first and second moments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dpstats.checks import listed
from dpstats.errors import RequestError
from dpstats.families.block import Block, Family
from dpstats.families.cells import ROWS
from dpstats.families.moments import Moments
from dpstats.inference.confidence_law import LEAST_PVALUE
from dpstats.inference.moments.mean_intervals import Contrast, MeanIntervals
from dpstats.inference.moments.noisy_mean import NoisyMean
from dpstats.measured.view import ReleaseView
from dpstats.results.base import EstimateResult
from dpstats.schema import Number, Schema

NOTES = (
    "the sampling part is that of the t interval: with few rows or a very skewed number trust the "
    "certified interval",
    f"a p-value is never below {LEAST_PVALUE:g}",
)


@dataclass(frozen=True)
class Mean:
    """Means of numbers, in their own units.

    They are means of the values as the schema codes them: clamped to the bounds, rounded to the
    grid. The squares are measured as well, for the standard error: a number costs 2.25 where its
    mean alone would cost 2.

    Parameters
    ----------
    columns : str or sequence of str
        One number, or several; each with `missing=` in the schema.

    Examples
    --------
    >>> import dpstats as dps
    >>> dps.Mean(["age", "income"])
    Mean(columns=('age', 'income'))
    """

    kind: ClassVar[str] = "mean"

    columns: str | Sequence[str]

    def __post_init__(self) -> None:
        given = listed(self.columns)
        if isinstance(given, str):
            return
        names = isinstance(given, Sequence) and all(isinstance(name, str) for name in given)
        if not names or not given or len(set(given)) < len(given):
            raise RequestError(f"give one number, or a list of different ones; got {given!r}")
        object.__setattr__(self, "columns", tuple(given))

    def family(self, schema: Schema) -> Family:
        """First and second moment of every column, one block each."""
        for name in self._names:
            centre_of(schema, name)
        return Family(tuple(Moments.of(schema, [name]) for name in self._names))

    def infer(self, release: ReleaseView) -> MeanResult:
        """Estimates with noise-aware and certified intervals."""
        wanted: list[Block] = list(self.family(release.schema).blocks)
        answers = release.answers(wanted)
        if not answers.rows.public:
            answers = release.answers([*wanted, ROWS])
        contrasts = tuple(
            Contrast((NoisyMean.of_column(answers, 2 * i),), *centre_of(release.schema, name))
            for i, name in enumerate(self._names)
        )
        notes = [*NOTES]
        for name, contrast in zip(self._names, contrasts, strict=True):
            notes += _remarks(name, contrast)
        return MeanResult(
            title="Mean" + ("" if isinstance(self.columns, str) else "s"),
            terms=[f"mean of {name}" for name in self._names],
            params=np.array([contrast.estimate for contrast in contrasts]),
            sampling_variance=np.array([contrast.sampling_variance for contrast in contrasts]),
            privacy_variance=np.array([contrast.privacy_variance for contrast in contrasts]),
            intervals=MeanIntervals(contrasts),
            rows=answers.rows,
            budget=str(release.budget),
            scalar=isinstance(self.columns, str),
            notes=notes,
        )

    @property
    def _names(self) -> tuple[str, ...]:
        return (self.columns,) if isinstance(self.columns, str) else tuple(self.columns)


def centre_of(schema: Schema, name: str) -> tuple[float, float]:
    """Middle and half of the range of a number."""
    column = schema[name]
    if not isinstance(column, Number):
        raise RequestError(f"{name!r} is not a number; it has no mean")
    low, high = float(column.grid[0]), float(column.grid[-1])
    return (low + high) / 2, (high - low) / 2


def _remarks(name: str, contrast: Contrast) -> list[str]:
    (group,) = contrast.groups
    if group.drowned:
        return [f"the privacy noise drowns {name}: trust the intervals only"]
    if group.variance <= 2 * group.variance_noise:
        return [
            f"the variance of {name} is small against its noise (sd "
            f"{contrast.half**2 * group.variance_noise:.3g}); intervals allow for that"
        ]
    return []


@dataclass(frozen=True, repr=False)
class MeanResult(EstimateResult):
    """Means with a test of each."""

    @property
    def interval_of(self) -> str:
        """What the widths are of."""
        return f"{self.terms[0]}, in its own unit"

    @property
    def alike(self) -> int:
        """One: other columns have other units."""
        return 1
