"""Logistic regression from the cells of few columns, or from moments and tables of several."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from dpstats.analyses.regression.design_moments import DesignMoments
from dpstats.analyses.regression.generalised import (
    Generalised,
    LogisticResult,
    density_result,
    result_of,
)
from dpstats.analyses.regression.glm_models import BinnedModel, DensityModel
from dpstats.analyses.regression.link import Logit
from dpstats.errors import NotMeasuredError, RequestError
from dpstats.families.block import Family

if TYPE_CHECKING:
    from dpstats.measured.view import ReleaseView
    from dpstats.schema import Column, Schema

BINNED = (
    "from the noisy counts of all cells of the regressors by the outcome; the error of placing "
    "rows in the middle of a bin is corrected, and a bound on the rest is in the intervals"
)

FEWER = (
    "this release has no cells of these columns with their offsets: the results are from its "
    "moments and two-way tables, as for more columns"
)


@dataclass(frozen=True)
class Logistic(Generalised):
    """Logistic regression of a column with two levels on numbers and categories.

    With one or two columns on the right and no `given`, the counts of their cells by the outcome
    are measured, and for numbers how far rows lie from the middle of their bin; a number without
    `edges=` in the schema gets eight even bins (8 to 16 serve most). Else the functions of
    `dps.OLS` with the same formula are measured, and two-way tables of all columns; see
    `analyses.regression.calibrated_density` for what intervals rest on then. A release
    that has these for more columns answers smaller models too. Levels whose noisy number of rows is
    within the noise are left out.

    Parameters
    ----------
    formula : str
        Such as ``"ill ~ age + C(region)"``, as for `dps.OLS`. Of a Boolean the odds of true are
        modelled; of another column with two levels those of the second, as in R. With
        ``"C(vote, Treatment('yes')) ~ age"`` they are those of the level that is not named. A level
        for missing cells does not count as one.
    given : str, optional
        Regression in the rows with this condition. Rows without a value of the response, or of a
        number in the formula, are left out in any case.
    stages : {1, 2}
        With 2, the moments and tables that several columns need are measured with half of the
        budget, and with the other half the score at the estimate that they give: the rows are read
        twice. It serves from about 100,000 rows, or from four columns on.

    Examples
    --------
    >>> import dpstats as dps
    >>> dps.Logistic("ill ~ age + C(region)")
    Logistic(formula='ill ~ age + C(region)', given=None, stages=1)
    """

    kind: ClassVar[str] = "logistic"

    def family(self, schema: Schema) -> Family:
        """The cells by the outcome; or mean products and two-way tables."""
        moments = self._moments(schema)
        if self._binned(moments):
            return Family(tuple(BinnedModel(moments).blocks))
        return super().family(schema)

    def _counted(self, schema: Schema) -> list[Column]:
        """Columns whose rows are counted."""
        moments = self._moments(schema)
        if self._binned(moments):
            return list(BinnedModel(moments).columns)
        return super()._counted(schema)

    def infer(self, release: ReleaseView) -> LogisticResult:
        """Coefficients in original units with noise-aware intervals."""
        moments = self._moments(release.schema)
        title = self._title("Logistic", moments)
        model = self._density(release.schema)
        if not self._binned(moments):
            return density_result(LogisticResult, title, release, self, model)
        binned = BinnedModel(moments)
        try:
            scored = binned.score(release)
        except NotMeasuredError as error:
            try:
                return density_result(LogisticResult, title, release, self, model, [FEWER])
            except NotMeasuredError:
                raise error from None
        return result_of(LogisticResult, title, release, self, moments, Logit(), scored, [BINNED])

    def _binned(self, moments: DesignMoments) -> bool:
        return self.stages == 1 and BinnedModel.serves(moments)

    def _density(self, schema: Schema) -> DensityModel:
        return DensityModel(self._moments(schema), Logit())

    def _moments(self, schema: Schema) -> DesignMoments:
        moments = DesignMoments.of(schema, self.formula, self.given)
        name, level = moments.design.response
        if level is None:
            raise RequestError(
                f"the response of a logistic regression must be a column with two levels, and "
                f"{name!r} is a number; declare it with two levels, such as levels = [0, 1], or as "
                "a Boolean, or use OLS or Poisson"
            )
        return moments
