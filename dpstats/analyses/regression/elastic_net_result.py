"""Results of penalised least squares: coefficients, certain support, and the path."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from dpstats.arrays import Floats
from dpstats.caching import Cached
from dpstats.checks import Target, check_alpha, check_target, check_whole, counted
from dpstats.results.base import Result
from dpstats.results.named import Named
from dpstats.results.rendering import Page, significant

if TYPE_CHECKING:
    import pandas as pd

    from dpstats.analyses.regression.design_moments import DesignMoments
    from dpstats.analyses.regression.penalised import PenalisedMoments
    from dpstats.measured.row_count import RowCount

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
