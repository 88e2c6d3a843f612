"""Elastic nets from second moments: penalised least squares that sets coefficients to zero."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dpstats.analyses.notes import cell_rules, subgroup_notes
from dpstats.analyses.regression.design_moments import DesignMoments
from dpstats.analyses.regression.elastic_net_result import ElasticNetResult
from dpstats.analyses.regression.penalised import PenalisedMoments
from dpstats.checks import as_float, is_number, short
from dpstats.errors import RequestError
from dpstats.families.block import Family
from dpstats.measured.view import ReleaseView
from dpstats.schema import Schema


@dataclass(frozen=True)
class ElasticNet:
    """Least squares with a penalty on coefficients, which sets small ones to zero.

    Minimises half the mean squared residual plus alpha (l1_ratio |b|_1 + (1 - l1_ratio) |b|^2 / 2),
    as scikit-learn does, in unit scale: numbers over [-1, 1] between their bounds, levels 0 or 1,
    the intercept free. It needs what `dps.OLS` with the same formula measures (with ``ridge=``
    where the formula names a baseline), and can be inferred from a release that has that.

    Parameters
    ----------
    formula : str
        As for `dps.OLS`.
    alpha : float, optional
        The penalty; by default one that keeps coefficients that are not there out with probability
        .95, from the noise.
    l1_ratio : float
        In (0, 1]; 1 is the lasso.
    given : str, optional
        Regression in the rows with this condition.

    Examples
    --------
    >>> import dpstats as dps
    >>> dps.ElasticNet("income ~ age + C(region)", l1_ratio=0.5)
    ElasticNet(formula='income ~ age + C(region)', alpha=None, l1_ratio=0.5, given=None)
    """

    kind: ClassVar[str] = "elastic_net"

    formula: str
    alpha: float | None = None
    l1_ratio: float = 0.5
    given: str | None = None

    def __post_init__(self) -> None:
        check_penalty(self)
        if not is_number(self.l1_ratio) or not 0 < self.l1_ratio <= 1:
            raise RequestError(
                f"l1_ratio must be above 0 and at most 1, got {short(self.l1_ratio)}"
            )
        object.__setattr__(self, "l1_ratio", as_float(self.l1_ratio))

    def family(self, schema: Schema) -> Family:
        """Mean products of the regressors and the response."""
        return Family(tuple(self._design(schema).blocks))

    def _design(self, schema: Schema) -> DesignMoments:
        return DesignMoments.of(schema, self.formula, self.given, penalty=True)

    def infer(self, release: ReleaseView) -> ElasticNetResult:
        """Coefficients in original units, and which are certain to be zero, or not to be."""
        design = self._design(release.schema)
        matrix = design.matrix(release)
        moments = PenalisedMoments(matrix, design.rows, design.penalised)
        alpha = moments.usual_penalty if self.alpha is None else self.alpha
        title = "Lasso" if self.l1_ratio == 1 else f"Elastic net, l1_ratio = {self.l1_ratio:g}"
        return ElasticNetResult(
            title=f"{title}: {design.design.titled(self.formula, release.schema)}",
            terms=tuple(design.design.names),
            design=design,
            moments=moments,
            alpha=float(alpha),
            l1_ratio=self.l1_ratio,
            basis=moments.path(np.array([alpha]), self.l1_ratio)[0],
            rows=matrix.answers.rows,
            budget=str(release.budget),
            notes=(
                *subgroup_notes(design.given, matrix.answers.rows),
                "coefficients are shrunk and have no intervals; dps.OLS on the same release has "
                "them",
                cell_rules(release.schema, self),
            ),
        )


def check_penalty(analysis: object) -> None:
    """Convert `alpha` to a plain number, or raise RequestError."""
    alpha = analysis.alpha  # type: ignore[attr-defined]
    if alpha is None:
        return
    if not is_number(alpha) or not 0 < alpha < np.inf:
        raise RequestError(f"alpha must be a positive number, the penalty, got {short(alpha)}")
    object.__setattr__(analysis, "alpha", as_float(alpha))
