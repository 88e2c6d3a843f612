"""Correlations of pairs of numbers."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from dpstats.analyses.moments.clipping import ball_of, check_clipping, clipping_notes, hash_of
from dpstats.analyses.moments.correlation_intervals import NoisyPair
from dpstats.analyses.moments.mean import middle_and_half
from dpstats.analyses.moments.noisy_covariance import NoisyCovariance
from dpstats.analyses.notes import cell_rules, subgroup_notes
from dpstats.checks import listed, short
from dpstats.errors import RequestError
from dpstats.families.block import Block, Family
from dpstats.families.coarse_moments import fourth_moments_of_pairs
from dpstats.families.moments import Moments
from dpstats.families.subgroups import Subgroup
from dpstats.inference.confidence_law import BEYOND_DRAWS
from dpstats.inference.intervals import Several
from dpstats.measured.view import ReleaseView
from dpstats.results.estimates import ALLOWING, EstimateResult
from dpstats.results.named import Named
from dpstats.schema import Schema

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Correlation:
    """Pearson's correlation of every pair of some numbers.

    Parameters
    ----------
    columns : sequence of str
        Two or more numbers, each with `missing=` or ``allow_missing=True`` in the schema. Rows
        without a value of one of these are left out.
    given : str, optional
        Correlations in the rows with this condition, such as ``"age >= 65"``.
    clip_norm : float, optional
        Shrink every row to at most this Euclidean norm, after centring and scaling: less noise
        where most rows are far shorter than the corners of their bounds. All results are then for
        the shrunk rows. Public: never chosen by looking at the data.
    center, scale : mapping of column names to numbers, optional
        With `clip_norm`: public guesses of the location and spread of columns, in original units;
        by default the middle and half the width of the declared bounds.

    Examples
    --------
    >>> import dpstats as dps
    >>> dps.Correlation(["age", "income"])
    Correlation(columns=('age', 'income'), given=None, clip_norm=None, center=None, scale=None)
    """

    kind: ClassVar[str] = "correlation"
    preview_remark: ClassVar[str] = (
        "Correlations of columns that vary less within their bounds than even ones, whose sd "
        "is about .6 of half the width, have wider intervals: noise on a variance counts "
        "1/s^2 times at an sd of s times that. Preview with like= rows that resemble yours, "
        "tighten the bounds, or use clip_norm=."
    )

    columns: Sequence[str]
    given: str | None = None
    clip_norm: float | None = None
    center: Mapping[str, float] | None = None
    scale: Mapping[str, float] | None = None

    def __post_init__(self) -> None:
        given = listed(self.columns)
        several = isinstance(given, Sequence) and not isinstance(given, str)
        if not several or len(given) < 2 or not all(isinstance(name, str) for name in given):
            raise RequestError(
                "a correlation needs a list of two or more names of numbers, such as "
                f"['age', 'income'], got {short(given)}"
            )
        if len(set(given)) < len(given):
            raise RequestError(f"a correlation needs different numbers, got {short(given)}")
        object.__setattr__(self, "columns", tuple(given))
        check_clipping(self, self.columns)

    def __hash__(self) -> int:
        return hash((hash_of(self), self.given))

    def family(self, schema: Schema) -> Family:
        """First and second moments and all products; coarse third and fourth ones of pairs."""
        for name in self.columns:
            middle_and_half(schema, name)
        if (ball := ball_of(schema, self)) is not None:
            return Family((ball,))
        blocks: list[Block] = [Moments.of(schema, self.columns, given=self.given)]
        group = Subgroup.of(schema, self.given, self.columns)
        if (fourths := fourth_moments_of_pairs(schema, self.columns, group)) is not None:
            blocks.append(fourths)
        return Family(tuple(blocks))

    def infer(self, release: ReleaseView) -> CorrelationResult:
        """Estimates with noise-aware and certified intervals."""
        ball = ball_of(release.schema, self)
        group = None if ball else Subgroup.of(release.schema, self.given, self.columns)
        covariance = NoisyCovariance.of(release, tuple(self.columns), ball=ball, given=group)
        places = list(itertools.combinations(range(len(self.columns)), 2))
        pairs = NoisyPair.of_pairs(release, covariance, places)
        terms = [f"{self.columns[i]}, {self.columns[j]}" for i, j in places]
        notes = [
            *subgroup_notes(group, covariance.moments.answers.rows),
            "sampling variances are Fisher's for normal numbers, widened by "
            + ("measured fourth moments" if ball is None else "those of the fitted density")
            + ": with few rows or heavy tails use the certified interval",
            BEYOND_DRAWS,
            *clipping_notes(covariance.moments),
        ]
        notes += [
            f"the noise exceeds a variance in {term}: no estimate"
            for term, pair in zip(terms, pairs, strict=True)
            if not pair.seen
        ]
        return CorrelationResult(
            title="Correlation"
            + ("s" if len(pairs) > 1 else "")
            + ("" if self.given is None else f", given {self.given}"),
            terms=terms,
            params=Named([pair.estimate for pair in pairs], terms),
            sampling_variance=np.array([pair.sampling_variance for pair in pairs]),
            privacy_variance=np.array([pair.privacy_variance for pair in pairs]),
            intervals=Several(pairs),
            rows=covariance.moments.answers.rows,
            budget=str(release.budget),
            scalar=len(pairs) == 1,
            notes=[*notes, cell_rules(release.schema, self)],
            columns=tuple(self.columns),
        )


@dataclass(frozen=True, repr=False, eq=False)
class CorrelationResult(EstimateResult):
    """Correlations of pairs, and their matrix.

    Attributes
    ----------
    columns : tuple of str

    Examples
    --------
    >>> import dpstats as dps
    >>> import pandas as pd
    >>> schema = dps.Schema([dps.Number(name, 0, 99, missing=0) for name in ("math", "physics")])
    >>> pair = dps.Correlation(["math", "physics"])
    >>> plan = dps.plan(schema, {"pair": pair}, budget=dps.PureDP(1))
    >>> numbers = pd.Series(range(10_000))
    >>> rows = pd.DataFrame({"math": numbers % 100, "physics": numbers % 100 // 2})
    >>> result = dps.release(plan, rows, m=2_000).infer(pair)
    >>> print(result.params["math, physics"] > 0.9, result.matrix.shape)
    True (2, 2)
    """

    null_value = 0.0
    measure: ClassVar[str] = "correlation"  # of a pair, as `dps.plots.matrix` names it

    columns: tuple[str, ...] = ()

    @property
    def _privacy(self) -> str:
        return ALLOWING

    @property
    def interval_of(self) -> str:
        """Correlations, without a unit."""
        return "correlation" if self.scalar else "correlations"

    @property
    def matrix(self) -> pd.DataFrame:
        """Estimates as a symmetric frame with ones on the diagonal.

        Every pair is estimated by itself, so it need not be positive semi-definite.
        """
        import pandas as pd

        values = np.eye(len(self.columns))
        upper = np.triu_indices(len(self.columns), 1)
        values[upper] = values.T[upper] = self.params
        return pd.DataFrame(values, index=self.columns, columns=self.columns)
