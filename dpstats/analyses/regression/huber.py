"""Huber regression, by the mean loss on a grid of coefficients."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from dpstats.analyses.notes import cell_rules
from dpstats.analyses.regression.loss_grid import LossGridResult, fitted
from dpstats.checks import short
from dpstats.errors import RequestError
from dpstats.families.block import Family
from dpstats.families.losses.functions import HuberLoss
from dpstats.families.losses.grid import axes_of
from dpstats.families.losses.linear import LinearLosses, linear_design
from dpstats.measured.view import ReleaseView
from dpstats.schema import Number, Schema

_POINTS = (41, 11, 7)  # along each axis, of one to three coefficients: more points, more noise


@dataclass(frozen=True)
class Huber:
    """Robust linear regression: the coefficients with the least mean Huber loss.

    Outliers pull them with a bounded force. The loss is measured on a grid, see `LossGrid`, which
    gives a certified set for the coefficients.

    Parameters
    ----------
    formula : str
        Such as ``"income ~ age"``, without products, with at most three coefficients. Numbers among
        the regressors are taken from the middle of their bounds, so the intercept is the prediction
        where they are in the middle.
    k : float
        Residuals up to k have a quadratic loss, larger ones a linear one; in the unit of the
        response. It is public: 1.345 times the standard deviation that you expect of the errors.
    grid : mapping of coefficient to (low, high, points), optional
        Default: intercepts over the bounds of the response, slopes up to those at which the
        prediction crosses these bounds within those of the regressor, levels half as far; with 41,
        11 or 7 points each, of one to three coefficients. A tighter box has less noise and a finer
        grid.

    Examples
    --------
    >>> import dpstats as dps
    >>> dps.Huber("income ~ age", k=8)
    Huber(formula='income ~ age', k=8.0, grid=None)
    """

    kind: ClassVar[str] = "huber"

    formula: str
    k: float
    grid: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "k", HuberLoss(self.k).k)
        if self.grid is not None:
            axes = axes_of(self.grid)
            object.__setattr__(self, "grid", {a.name: [a.low, a.high, a.points] for a in axes})

    def __hash__(self) -> int:
        return hash((self.formula, self.k, tuple(self.grid or ())))

    def block(self, schema: Schema) -> LinearLosses:
        """The losses at the grid points."""
        grid = default_grid(schema, self.formula) if self.grid is None else self.grid
        return LinearLosses.of(schema, HuberLoss(self.k), self.formula, grid)

    def family(self, schema: Schema) -> Family:
        """The losses at the grid points."""
        return Family((self.block(schema),))

    def infer(self, release: ReleaseView) -> LossGridResult:
        """The estimate and the certified set."""
        rules = cell_rules(release.schema, self)
        title = f"Huber regression: {self.formula} (k = {self.k:g})"
        return fitted(release, self.block(release.schema), title, rules)


def default_grid(schema: Schema, formula: str) -> dict[str, tuple[float, float, int]]:
    """A box of coefficients from the bounds of the schema alone.

    Raises
    ------
    RequestError
        For more coefficients than a grid can have, or a response that is no number.
    """
    design = linear_design(schema, formula)
    response = schema[design.response[0]]
    if not isinstance(response, Number):
        raise RequestError(f"the response {response.name!r} must be a number")
    if len(design.regressors) > len(_POINTS):
        raise RequestError(
            f"{short(formula)} has {len(design.regressors)} coefficients, {design.names}, and a "
            f"grid at most {len(_POINTS)}; use fewer, or dps.OLS"
        )
    points = _POINTS[len(design.regressors) - 1]
    grid = {}
    for regressor in design.regressors:
        reach, middle = response.half_range, 0.0
        if not regressor.factors:
            middle = response.middle
        else:
            column = schema[regressor.factors[0][0]]
            if regressor.factors[0][1] is None:
                assert isinstance(column, Number)
                reach /= column.half_range
        grid[regressor.name] = (middle - reach, middle + reach, points)
    return grid
