"""Poisson regression of a count, from moments and two-way tables."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from dpstats.analyses.regression.design_moments import DesignMoments
from dpstats.analyses.regression.generalised import Generalised, PoissonResult, density_result
from dpstats.analyses.regression.glm_models import DensityModel
from dpstats.analyses.regression.link import Log
from dpstats.errors import RequestError
from dpstats.schema import Number

if TYPE_CHECKING:
    from dpstats.measured.view import ReleaseView
    from dpstats.schema import Schema

ROBUST = (
    "standard errors and intervals allow counts to vary more or less than a Poisson law does "
    "(HC0): they are of the coefficients of the mean, whatever the law of the counts"
)


@dataclass(frozen=True)
class Poisson(Generalised):
    """Log-linear regression of a mean that is not negative, such as a count.

    The functions of `dps.OLS` with the same formula are measured, and two-way tables of all
    columns; a number without `edges=` in the schema gets eight even bins. Sampling variances are
    HC0: they do not assume that counts have a Poisson law, and so allow for overdispersion.

    Parameters
    ----------
    formula : str
        Such as ``"visits ~ age + C(region)"``; the response a number with bounds from 0.
    given : str, optional
        Regression in the rows with this condition.
    stages : {1, 2}
        With 2, half of the budget measures the score at a pilot, see `dps.Logistic`. The residual
        is divided by the upper bound of the response, and fitted means above it count as the bound.

    Examples
    --------
    >>> import dpstats as dps
    >>> dps.Poisson("visits ~ age + C(region)")
    Poisson(formula='visits ~ age + C(region)', given=None, stages=1)
    """

    kind: ClassVar[str] = "poisson"

    def infer(self, release: ReleaseView) -> PoissonResult:
        """Coefficients in original units with noise-aware intervals."""
        model = self._density(release.schema)
        title = self._title("Poisson", model.moments)
        return density_result(PoissonResult, title, release, self, model, [ROBUST])

    def _density(self, schema: Schema) -> DensityModel:
        return DensityModel(self._moments(schema), Log(), robust=True)

    def _moments(self, schema: Schema) -> DesignMoments:
        moments = DesignMoments.of(schema, self.formula, self.given)
        name, level = moments.design.response
        column = schema[name]
        if level is not None or not isinstance(column, Number) or not _countable(column):
            raise RequestError(
                f"the response of a Poisson regression must be a number of at least 0, or log(a) "
                f"of one with low= at least 1, and {name!r} is not declared as one"
            )
        return moments


def _countable(column: Number) -> bool:
    """Whether no value is negative, of its logarithm if that is the scale."""
    return bool(column.grid[0] >= (1 if column.scale == "log" else 0))
