"""Elastic nets from second moments: penalised least squares that sets coefficients to zero."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from dpstats.analyses.notes import cell_rules, subgroup_notes
from dpstats.analyses.regression.design_moments import DesignMoments
from dpstats.analyses.regression.penalised import PenalisedMoments
from dpstats.arrays import Floats
from dpstats.caching import Cached
from dpstats.checks import (
    Target,
    as_float,
    check_alpha,
    check_target,
    check_whole,
    counted,
    is_number,
    short,
)
from dpstats.errors import RequestError
from dpstats.families.block import Family
from dpstats.measured.view import ReleaseView
from dpstats.results.base import Result
from dpstats.results.named import Named
from dpstats.results.rendering import Page, significant
from dpstats.schema import Schema

if TYPE_CHECKING:
    import pandas as pd

    from dpstats.analyses.regression.design_moments import DesignMoments
    from dpstats.analyses.regression.penalised import PenalisedMoments
    from dpstats.measured.row_count import RowCount


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


_LEAST = 1e-3  # of the largest penalty, at which a path ends


@dataclass(frozen=True, repr=False, eq=False)
class ElasticNetResult(Cached, Result):
    """Penalised coefficients, and which are certain to be zero, or not to be, without noise.

    Attributes
    ----------
    terms : tuple of str
    design : DesignMoments
    moments : PenalisedMoments
    alpha, l1_ratio : float
        Of the penalty.
    basis : (d,) float64
        Coefficients in unit scale.
    rows : RowCount
    budget : str
    notes : tuple of str

    Examples
    --------
    >>> import dpstats as dps
    >>> import pandas as pd
    >>> schema = dps.Schema([dps.Number(name, 0, 99, missing=0) for name in ("age", "x", "score")])
    >>> line = dps.Lasso("score ~ age + x", alpha=0.05)
    >>> plan = dps.plan(schema, {"line": line}, budget=dps.PureDP(10))
    >>> numbers = pd.Series(range(20_000))
    >>> rows = pd.DataFrame({"age": numbers % 100, "x": numbers * 7 % 97,
    ...                      "score": numbers % 100 // 2 + numbers % 7})
    >>> fitted = dps.release(plan, rows, m=2_000).infer(line)
    >>> fitted.support()["verdict"].tolist()
    ['in', 'in', 'out']
    >>> fitted.path(5).shape
    (15, 3)
    >>> penalties, coefficients = fitted.path_in_units(5)
    >>> penalties.shape, coefficients.shape, fitted.predict({"age": [50], "x": [3]}).shape
    ((5,), (5, 3), (1,))
    >>> estimate, low, high = fitted.risk()
    >>> bool(low <= estimate <= high)
    True
    """

    of_population: ClassVar[bool] = False
    figures = ("path",)

    terms: tuple[str, ...]
    design: DesignMoments = field(compare=False)
    moments: PenalisedMoments = field(compare=False)
    alpha: float
    l1_ratio: float
    basis: Floats
    rows: RowCount
    budget: str
    notes: tuple[str, ...] = ()

    @cached_property
    def params(self) -> Named:
        """(d,) coefficients in original units."""
        return Named(self._original(self.basis), list(self.terms))

    def _original(self, basis: Floats) -> Floats:
        return np.asarray(self.design.to_basis @ (basis + self.design.absorbed))

    @property
    def nobs(self) -> int:
        """Number of private rows, or its estimate."""
        return self.rows.value

    @property
    def headline(self) -> str:
        """How many coefficients are not zero."""
        kept = int(np.count_nonzero(self.basis[self.design.penalised == 1]))
        return f"{counted(kept, 'coefficient')} at penalty {significant(self.alpha)}"

    def support(self, *, alpha: float = 0.05) -> pd.DataFrame:
        """Columns term, estimate, verdict: what is certain of the private table's own solution.

        "in": its coefficient is not zero, and has the sign of the estimate; "out": it is zero;
        "undecided". All verdicts hold together with probability 1 - alpha over the privacy noise,
        whatever the data.

        Parameters
        ----------
        alpha : float
            Error probability of all verdicts together; the penalty is the attribute of that name.
        """
        import pandas as pd

        check_alpha(alpha)
        verdicts = self.moments.support(self.basis, self.alpha, self.l1_ratio, alpha)
        return pd.DataFrame(
            {"term": self.terms, "estimate": np.asarray(self.params), "verdict": verdicts}
        )

    def risk(self, *, alpha: float = 0.05) -> tuple[float, float, float]:
        """Mean squared residual over the private rows: estimate, certified low and high.

        In the response's unit squared. None is below zero: an estimate that noise made negative is
        zero. `high` is infinite where the noise leaves the number of rows open.
        """
        check_alpha(alpha)
        found, low, high = self.moments.risk(self.basis, alpha)
        unit = self.design.half_range**2
        return unit * found, unit * low, unit * high

    def path(self, size: int = 50) -> pd.DataFrame:
        """Coefficients in original units along `size` penalties, evenly spaced in logarithms.

        From the penalty at which all are zero to a thousandth of it; columns alpha, term,
        estimate.
        """
        import pandas as pd

        alphas, found = self.path_in_units(size)
        estimates = np.array([self._original(one) for one in found])
        return pd.DataFrame(
            {
                "alpha": np.repeat(alphas, len(self.terms)),
                "term": list(self.terms) * size,
                "estimate": estimates.ravel(),
            }
        )

    def path_in_units(self, size: int = 50) -> tuple[Floats, Floats]:
        """The same penalties (size,), decreasing, and coefficients (size, d) in unit scale."""
        check_whole("size", size, 2, 1_000)
        largest = self.moments.largest_penalty / self.l1_ratio
        alphas = np.geomspace(largest, _LEAST * largest, size)
        return alphas, self.moments.path(alphas, self.l1_ratio)

    def predict(self, exog: pd.DataFrame | Mapping[str, Any] | None = None) -> Floats:
        """Predicted means (m,) for given values of the columns of the formula.

        Raises
        ------
        RequestError
            For a missing column, or a value that the schema does not declare.
        """
        predicted = self.design.at(exog) @ (self.basis + self.design.absorbed)
        return np.asarray(self.design.half_range * predicted)

    def to_frame(self) -> pd.DataFrame:
        """As `support`."""
        return self.support()

    def summary(self, *, alpha: float = 0.05, target: Target = "population") -> str:
        """Text table of `support`; `target` has no effect, as verdicts are on the table."""
        check_target(target)
        return self._page(alpha).text()

    def _repr_html_(self) -> str:
        return self._page(0.05).html()

    def _page(self, alpha: float) -> Page:
        found, low, high = self.risk(alpha=alpha)
        rows = [
            [term, significant(estimate), verdict]
            for term, estimate, verdict in self.support(alpha=alpha).itertuples(index=False)
        ]
        lines = [
            f"penalty {significant(self.alpha)}, for columns scaled to run from -1 to 1 between "
            "their bounds",
            f"mean squared residual {significant(found)}"
            + (" (negative by the noise, cut at zero)" if found == 0 else "")
            + f"; over the private rows certified between {significant(low)} and "
            f"{significant(high)}",
        ]
        after = [
            f"{self.rows}; {self.budget}.",
            "Verdicts are on the solution that the private table has without noise, certified "
            f"together at {1 - alpha:.0%}.",
            *(f"Note: {note}" for note in self.notes),
        ]
        return Page(self.title, lines, ["", "estimate", "support"], rows, after=after)


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
