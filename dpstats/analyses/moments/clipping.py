"""Analyses of moments of columns that may shrink rows to a public norm first."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dpstats.analyses.moments.certified_radii import CertifiedRadii
from dpstats.analyses.moments.noisy_covariance import NoisyCovariance
from dpstats.arrays import Floats
from dpstats.checks import as_float, listed, short
from dpstats.error_rates import bonferroni
from dpstats.errors import RequestError
from dpstats.families.ball_moments import BallMoments, refuse_unknown
from dpstats.families.block import Family
from dpstats.families.moments import Moments, third_and_fourth_powers
from dpstats.families.subgroups import Subgroup
from dpstats.inference.moment_matrix import MomentMatrix
from dpstats.measured.radius import SpectralRadius
from dpstats.schema import Schema

if TYPE_CHECKING:
    from dpstats.measured.view import ReleaseView

Values = Mapping[str, float]


class ClippedColumns:
    """An analysis of the moments of some columns, whose rows a public norm may shrink."""

    columns: Sequence[str]
    clip_norm: float | None
    center: Values | None
    scale: Values | None
    given: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "columns", checked_columns(self.columns))
        check_clipping(self, self.columns)

    def ball(self, schema: Schema) -> BallMoments | None:
        """The moments of clipped rows, if these are asked for."""
        if self.clip_norm is None:
            return None
        return BallMoments.of(schema, self.columns, self.clip_norm, self.center, self.scale)

    def complete_cases(self, schema: Schema) -> Subgroup | None:
        """The rows meant, with a value of all columns; None for all rows and for clipped ones."""
        if self.clip_norm is not None:
            return None
        return Subgroup.of(schema, self.given, self.columns)

    def family(self, schema: Schema) -> Family:
        """First moments, squares and products; coarse third and fourth powers."""
        ball = self.ball(schema)
        if ball is not None:
            return Family((ball,))
        powers = third_and_fourth_powers(schema, self.columns, self.complete_cases(schema))
        moments = Moments.of(schema, self.columns)
        return Family((moments,) if powers is None else (moments, powers))

    def noisy_covariance(
        self, release: ReleaseView, *, standardize: bool = False
    ) -> NoisyCovariance:
        """The noisy covariance or correlation matrix of the columns."""
        ball, given = self.ball(release.schema), self.complete_cases(release.schema)
        return NoisyCovariance.of(
            release, tuple(self.columns), standardize=standardize, ball=ball, given=given
        )

    def radius_of_rows(
        self, release: ReleaseView, shares: Floats, alpha: float
    ) -> SpectralRadius | None:
        """Distance of the covariance matrix of synthetic rows from the private one, as a whole."""
        if self.complete_cases(release.schema) is not None:
            return None  # its divisor is the number of these rows, which has an error too
        return CertifiedRadii(self.noisy_covariance(release)).of_rows(shares, alpha)


def checked_columns(columns: Sequence[str]) -> tuple[str, ...]:
    """Column names as a tuple, or a RequestError, which quotes none: they may be cells."""
    columns = listed(columns)
    if not isinstance(columns, Sequence) or isinstance(columns, str):
        raise RequestError(f"columns must be a list of names, got {short(columns)}")
    if odd := [i for i, name in enumerate(columns) if not isinstance(name, str)]:
        raise RequestError(
            f"columns must be a list of names, and entry {odd[0] + 1} is of type "
            f"{type(columns[odd[0]]).__name__}"
        )
    first = {name: i for i, name in reversed(list(enumerate(columns)))}
    if twice := [i for i, name in enumerate(columns) if first[name] != i]:
        raise RequestError(
            "columns must be different names, and entries "
            f"{first[columns[twice[0]]] + 1} and {twice[0] + 1} are the same"
        )
    if len(columns) < 2:
        raise RequestError(f"give at least two different columns, got {len(columns)}")
    return tuple(columns)


def check_clipping(analysis: Any, columns: Sequence[str] | None = None) -> None:
    """Convert the three options, of some `columns`, to plain numbers, or raise RequestError."""
    given = {"center": analysis.center, "scale": analysis.scale}
    if analysis.clip_norm is None:  # noise of clamped numbers is in proportion to their bounds
        if any(values is not None for values in given.values()):
            raise RequestError(
                "center and scale define the units in which rows are clipped: give clip_norm too. "
                "Without it numbers are clamped to their declared bounds; for less noise, declare "
                "tighter bounds in the schema"
            )
        return
    object.__setattr__(analysis, "clip_norm", _number(analysis.clip_norm, "clip_norm", True))
    if getattr(analysis, "given", None) is not None:
        raise RequestError(
            "clip_norm shrinks all rows, and given= names some of them: give one of the two"
        )
    example = columns[0] if columns else "age"
    for what, values in given.items():
        if values is None:
            continue
        if not isinstance(values, Mapping):
            raise RequestError(
                f"{what}= must give a number by the name of its column, such as "
                f"{{{example!r}: 45}}, got {short(values)}"
            )
        if columns is not None:
            refuse_unknown(what, values, columns)
        positive = what == "scale"
        plain = {n: _number(value, f"{what} of {n!r}", positive) for n, value in values.items()}
        object.__setattr__(analysis, what, plain)


def _number(value: Any, what: str, positive: bool) -> float:
    try:
        number = math.nan if isinstance(value, bool | str) else as_float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number) or (positive and number <= 0):
        raise RequestError(f"{what} must be a {'positive ' * positive}number, got {short(value)}")
    return number


def clipping_notes(moments: MomentMatrix, lost: str = "the variance lost by it") -> list[str]:
    """Notes on the shrunk rows and their share; `lost` is what was not measured."""
    ball = moments.ball
    if ball is None:
        return []
    pairs = zip(ball.numbers, ball.center, ball.scale, strict=True)
    scaled = ", ".join(f"({c.name} - {float(m):.10g}) / {float(s):.10g}" for c, m, s in pairs)
    low, high = clipped_share(moments, 0.05)
    return [
        f"all results are for rows shrunk to norm {float(ball.clip_norm):.10g} at most, in columns "
        f"{scaled}",
        f"{low:.1%} to {high:.1%} of the private rows were shrunk (certified at 95%); {lost} was "
        "not measured",
    ]


def clipped_share(moments: MomentMatrix, alpha: float) -> tuple[float, float]:
    """Certified interval at level 1 - alpha for the share of private rows that were shrunk.

    Where the number of rows is measured, it and the number shrunk get half of alpha each.
    """
    assert moments.ball is not None
    answers, f = moments.answers, moments.ball.size - 1
    public = answers.rows.public
    q = answers.law(f).quantile(alpha if public else bonferroni(alpha, 2))
    of_rows = 0.0 if public else answers.law(f + 1).quantile(bonferroni(alpha, 2))
    rows = float(answers.n) if public else float(answers.sums[f + 1])
    seen = float(answers.sums[f])
    low = max(seen - q, 0) / max(rows + of_rows, 1)
    high = max(seen + q, 0) / max(rows - of_rows, 1)
    return min(low, 1.0), min(high, 1.0)


def noise_ratio(
    schema: Schema, columns: Sequence[str], clip_norm: float, *, gaussian: bool
) -> float:
    """Noise on products of two columns of clipped rows over that of clamped ones, at one price.

    The noise is in proportion to the root of the squared L2 sensitivity if it is Gaussian, else to
    the L1 sensitivity, and to the largest product: 1 in the box, R^2 / sqrt(2) in the ball.
    """
    box, ball = Moments.of(schema, columns), BallMoments.of(schema, columns, clip_norm)
    one, other = (block.sensitivity("replace") for block in (box, ball))
    ratio = other.l2_squared / one.l2_squared if gaussian else other.l1 / one.l1
    return (math.sqrt(ratio) if gaussian else float(ratio)) * clip_norm**2 / math.sqrt(2)
