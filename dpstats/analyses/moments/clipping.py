"""Options of analyses that may shrink rows to a public norm before their moments are measured."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from dpstats.checks import as_float, short
from dpstats.error_rates import bonferroni
from dpstats.errors import RequestError
from dpstats.families.ball_moments import BallMoments, refuse_unknown
from dpstats.families.block import Family
from dpstats.families.coarse_moments import third_and_fourth_powers
from dpstats.families.moments import Moments
from dpstats.families.subgroups import Subgroup
from dpstats.inference.moment_matrix import MomentMatrix
from dpstats.schema import Schema

Values = Mapping[str, float]


class Clipping(Protocol):
    """An analysis with these options."""

    @property
    def clip_norm(self) -> float | None:
        """The largest norm of a row; None: rows are not shrunk."""

    @property
    def center(self) -> Values | None:
        """Centre, subtracted before clipping; original units."""

    @property
    def scale(self) -> Values | None:
        """Scale, by which centred columns are divided."""


class ClippingColumns(Clipping, Protocol):
    """One whose parameters name the numbers."""

    @property
    def columns(self) -> Sequence[str]:
        """Names of numbers."""


def check_clipping(analysis: Clipping, columns: Sequence[str] | None = None) -> None:
    """Convert the three options to plain numbers, or raise RequestError.

    A centre or a scale without a norm is refused: clamped to declared bounds, every number has
    noise in proportion to its own width already, and a centre would only increase it. With
    `columns`, each must be of one of these.
    """
    given = {"center": analysis.center, "scale": analysis.scale}
    if analysis.clip_norm is None:
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


def hash_of(analysis: ClippingColumns) -> int:
    """Hash of the options and the columns."""
    sets = (frozenset((values or {}).items()) for values in (analysis.center, analysis.scale))
    return hash((analysis.columns, analysis.clip_norm, *sets))


def ball_of(schema: Schema, analysis: ClippingColumns) -> BallMoments | None:
    """The moments of clipped rows, if the analysis asks for them."""
    if analysis.clip_norm is None:
        return None
    return BallMoments.of(
        schema, analysis.columns, analysis.clip_norm, analysis.center, analysis.scale
    )


def complete_cases(schema: Schema, analysis: ClippingColumns) -> Subgroup | None:
    """The rows with a value of all columns; None where every row has one, or rows are clipped."""
    return None if analysis.clip_norm is not None else Subgroup.of(schema, None, analysis.columns)


def family_of(schema: Schema, analysis: ClippingColumns) -> Family:
    """First moments, squares and products of the columns, or of clipped rows.

    Without clipping also coarse third and fourth powers, which give the sampling variances.
    """
    ball = ball_of(schema, analysis)
    if ball is not None:
        return Family((ball,))
    powers = third_and_fourth_powers(schema, analysis.columns, complete_cases(schema, analysis))
    moments = Moments.of(schema, analysis.columns)
    return Family((moments,) if powers is None else (moments, powers))


def clipping_notes(moments: MomentMatrix, lost: str = "the variance lost by it") -> list[str]:
    """Notes on the shrunk rows and their share; `lost` is what was not measured."""
    ball = moments.ball
    if ball is None:
        return []
    pairs = zip(ball.numbers, ball.center, ball.scale, strict=True)
    scaled = ", ".join(f"({c.name} - {float(m):g}) / {float(s):g}" for c, m, s in pairs)
    low, high = clipped_share(moments, 0.05)
    return [
        f"all results are for rows shrunk to norm {float(ball.clip_norm):g} at most, in columns "
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
