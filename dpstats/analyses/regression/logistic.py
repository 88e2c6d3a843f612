"""Logistic regression from the cells of few columns, or from moments and tables of several."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from dpstats.analyses.notes import subgroup_notes
from dpstats.analyses.regression.generalised import density_result, result_of
from dpstats.errors import RequestError
from dpstats.families.block import Family
from dpstats.inference.regression.design_moments import DesignMoments
from dpstats.inference.regression.glm_models import BinnedModel, DensityModel
from dpstats.inference.regression.link import Logit
from dpstats.results.generalised import LogisticResult

if TYPE_CHECKING:
    from dpstats.measured.view import ReleaseView
    from dpstats.schema import Schema

BINNED = (
    "from the noisy counts of all cells of the regressors by the outcome; the error of placing "
    "rows in the middle of a bin is corrected, and a bound on the rest is in the intervals"
)


@dataclass(frozen=True)
class Logistic:
    """Logistic regression of a Boolean on numbers and categories.

    With one or two columns on the right, the counts of their cells by the outcome are measured, and
    for numbers how far rows lie from the middle of their bin; numbers need `edges=` in the schema
    (8 to 16 bins serve most). With more columns, the functions of `dps.OLS` with the same formula
    are measured, and two-way tables of all columns; see
    `inference.regression.calibrated_score` for what intervals rest on then.

    Parameters
    ----------
    formula : str
        Such as ``"ill ~ age + C(region)"``, as for `dps.OLS`.
    given : str, optional
        Regression in the rows with this condition. Rows without a value of the response, or of a
        number in the formula, are left out in any case.

    Examples
    --------
    >>> import dpstats as dps
    >>> dps.Logistic("ill ~ age + C(region)")
    Logistic(formula='ill ~ age + C(region)', given=None)
    """

    kind: ClassVar[str] = "logistic"

    formula: str
    given: str | None = None

    def family(self, schema: Schema) -> Family:
        """The cells by the outcome; or mean products and two-way tables."""
        moments = self._moments(schema)
        if BinnedModel.serves(moments):
            return Family(tuple(BinnedModel(moments).blocks))
        return Family(tuple(dict.fromkeys(DensityModel(moments).blocks)))

    def combines(self, schema: Schema) -> bool:
        """Its answers may be combined from several measurements."""
        return True

    def infer(self, release: ReleaseView) -> LogisticResult:
        """Coefficients in original units with noise-aware intervals."""
        moments = self._moments(release.schema)
        if not BinnedModel.serves(moments):
            return density_result(
                LogisticResult, self._title(), release, self, moments, Logit(), robust=False
            )
        binned = BinnedModel(moments)
        score = binned.score(release)
        answers = release.answers(binned.blocks)
        return result_of(
            LogisticResult,
            self._title(),
            release,
            self,
            (score, moments, Logit()),
            (binned.columns, binned.middles),
            np.zeros(len(moments.design.names)),
            answers.rows,
            [*subgroup_notes(moments.given, answers.rows), BINNED],
        )

    def _title(self) -> str:
        return f"Logistic regression: {self.formula}" + (
            "" if self.given is None else f" (given {self.given})"
        )

    def _moments(self, schema: Schema) -> DesignMoments:
        moments = DesignMoments.of(schema, self.formula, self.given)
        name, level = moments.design.response
        if level is None:
            raise RequestError(
                f"the response of a logistic regression must be a Boolean, and {name!r} is a "
                "number; declare it as dps.Boolean, or use dps.OLS or dps.Poisson"
            )
        return moments
