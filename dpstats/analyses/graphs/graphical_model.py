"""Graphical models: which pairs of columns are correlated given all the others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dpstats.analyses.moments.clipping import (
    ball_of,
    check_clipping,
    clipping_notes,
    hash_of,
)
from dpstats.analyses.moments.covariance import checked_columns, notes_of
from dpstats.analyses.notes import cell_rules
from dpstats.checks import is_number, short
from dpstats.errors import RequestError
from dpstats.families.block import Block, Family
from dpstats.families.coarse_moments import third_and_fourth_powers
from dpstats.families.moments import Moments
from dpstats.families.subgroups import Subgroup
from dpstats.inference.graphs.noisy_precision import NoisyPrecision
from dpstats.inference.graphs.partial_intervals import PartialIntervals
from dpstats.inference.moments.noisy_covariance import NoisyCovariance
from dpstats.measured.view import ReleaseView
from dpstats.results.graph import GraphResult
from dpstats.results.named import Named
from dpstats.schema import Schema


@dataclass(frozen=True)
class GraphicalModel:
    """Partial correlations of all pairs of some columns given the others, and their edges.

    In a Gaussian graphical model two columns are joined by an edge unless their partial correlation
    is zero.

    Parameters
    ----------
    columns : sequence of str
        At least two numbers, each with `missing=` or ``allow_missing=True`` in the schema. Rows
        without a value of one of them are left out.
    tolerance : float, optional
        Partial correlations below it in absolute value count as absent in certified verdicts, which
        cannot say that one is exactly zero.
    given : str, optional
        The graph in the rows with this condition, such as ``"age >= 65"``.
    clip_norm, center, scale : optional
        Shrink every row to at most this Euclidean norm, as in `dpstats.Covariance`: from about
        five columns on there is less noise.

    Raises
    ------
    RequestError

    Examples
    --------
    >>> import dpstats as dps
    >>> dps.GraphicalModel(["age", "income", "bmi"], tolerance=0.1).tolerance
    0.1
    """

    kind: ClassVar[str] = "graphical_model"

    columns: Sequence[str]
    tolerance: float | None = None
    given: str | None = None
    clip_norm: float | None = None
    center: Mapping[str, float] | None = None
    scale: Mapping[str, float] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "columns", checked_columns(self.columns))
        check_clipping(self)
        if self.tolerance is not None:
            if not is_number(self.tolerance) or not 0 < self.tolerance < 1:
                raise RequestError(
                    "tolerance must be a partial correlation between 0 and 1, below which an edge "
                    f"counts as absent; got {short(self.tolerance)}"
                )
            object.__setattr__(self, "tolerance", float(self.tolerance))
        if self.given is not None and self.clip_norm is not None:
            raise RequestError(
                "clip_norm shrinks all rows, and given= names some of them: give one of the two"
            )

    def __hash__(self) -> int:
        return hash((hash_of(self), self.tolerance, self.given))

    def family(self, schema: Schema) -> Family:
        """First moments, squares and products; coarse third and fourth powers."""
        ball = ball_of(schema, self)
        if ball is not None:
            return Family((ball,))
        blocks: list[Block] = [Moments.of(schema, self.columns, given=self.given)]
        powers = third_and_fourth_powers(schema, self.columns, self._group(schema))
        return Family((*blocks, powers) if powers is not None else tuple(blocks))

    def _group(self, schema: Schema) -> Subgroup | None:
        """The rows that are meant; None for all, and for rows that are clipped."""
        return None if self.clip_norm is not None else Subgroup.of(schema, self.given, self.columns)

    def infer(self, release: ReleaseView) -> GraphResult:
        """Estimates with noise-aware and certified intervals."""
        columns = tuple(self.columns)
        covariance = NoisyCovariance.of(
            release, columns, ball=ball_of(release.schema, self), given=self._group(release.schema)
        )
        precision = NoisyPrecision(covariance)
        pairs = np.array(np.triu_indices(len(columns), 1))
        intervals = PartialIntervals(precision, pairs)
        sampling, privacy = intervals.variances
        terms = [f"{columns[i]}, {columns[j]}" for i, j in pairs.T]
        moments = covariance.moments
        units = moments.spread
        whole = precision.matrix / np.outer(units, units) / covariance.correction
        return GraphResult(
            title=f"Graphical model of {', '.join(columns)}"
            + ("" if self.given is None else f", given {self.given}"),
            terms=terms,
            params=Named(intervals.values, terms),
            sampling_variance=sampling,
            privacy_variance=privacy,
            intervals=intervals,
            rows=moments.answers.rows,
            budget=str(release.budget),
            notes=[
                *_singular_notes(precision),
                *notes_of(covariance),
                *clipping_notes(moments),
                cell_rules(release.schema, self),
            ],
            columns=columns,
            location_=moments.origin + units * covariance.mean,
            precision_=whole,
            units=units,
            tolerance=self.tolerance,
            tested=np.ones(len(terms), dtype=bool),
        )


def _singular_notes(precision: NoisyPrecision) -> list[str]:
    """Why nothing is estimated, and what would do."""
    if not precision.singular:
        return []
    return ["nearly singular"]
