"""The lasso: least squares with a penalty on the sum of absolute coefficients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from dpstats.analyses.regression.elastic_net import ElasticNet, check_penalty
from dpstats.analyses.regression.elastic_net_result import ElasticNetResult
from dpstats.families.block import Family
from dpstats.measured.view import ReleaseView
from dpstats.schema import Schema


@dataclass(frozen=True)
class Lasso:
    """`dps.ElasticNet` with ``l1_ratio=1``: half the mean squared residual plus alpha |b|_1.

    Parameters
    ----------
    formula : str
        As for `dps.OLS`.
    alpha : float, optional
        The penalty; by default one that keeps coefficients that are not there out with probability
        .95, from the noise.
    given : str, optional
        Regression in the rows with this condition.

    Examples
    --------
    >>> import dpstats as dps
    >>> dps.Lasso("income ~ age + C(region)", alpha=0.01)
    Lasso(formula='income ~ age + C(region)', alpha=0.01, given=None)
    """

    kind: ClassVar[str] = "lasso"

    formula: str
    alpha: float | None = None
    given: str | None = None

    def __post_init__(self) -> None:
        check_penalty(self)

    @property
    def _net(self) -> ElasticNet:
        return ElasticNet(self.formula, self.alpha, 1.0, self.given)

    def family(self, schema: Schema) -> Family:
        """Mean products of the regressors and the response."""
        return self._net.family(schema)

    def infer(self, release: ReleaseView) -> ElasticNetResult:
        """Coefficients in original units, and which are certain to be zero, or not to be."""
        return self._net.infer(release)
