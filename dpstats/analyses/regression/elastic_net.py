"""Elastic nets from second moments: penalised least squares that sets coefficients to zero.

Verdicts on the support of the private table's own solution follow from the radii of the noise, see
docs/explanation/regression/lasso.md. (Loh and Wainwright 2012, Ann. Statist. 40, 1637-1664, bound
the error of the population's coefficients under such noise.)
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpstats.analyses.notes import cell_rules, subgroup_notes
from dpstats.analyses.regression.design_moments import DesignMoments
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
from dpstats.corrected.least_squares import positive_definite
from dpstats.error_rates import USUAL_ALPHA, percent
from dpstats.errors import RequestError
from dpstats.families.block import Family
from dpstats.inference.confidence_law import DRAWS
from dpstats.inference.joint_coverage import root_of
from dpstats.inference.simulation import calibration_generator
from dpstats.measured.answers import joint_noise_quantiles
from dpstats.measured.view import ReleaseView
from dpstats.results.base import Result
from dpstats.results.named import Named
from dpstats.results.rendering import Page, significant
from dpstats.schema import Schema

if TYPE_CHECKING:
    import pandas as pd

    from dpstats.inference.moment_matrix import NoisyMatrix
    from dpstats.measured.row_count import RowCount

_SWEEPS, _TOLERANCE = 100_000, 1e-12
_LEAST_EIGENVALUE = 1e-9  # relative, of the matrix that is fitted
_BATCH = 500  # draws of the noise on all moments at a time
_LEAST_PENALTY = 1e-3  # of the largest penalty, at which a path ends


class Penalised:
    """Least squares with a penalty on absolute coefficients."""

    formula: str
    alpha: float | None
    l1_ratio: float
    given: str | None

    def __post_init__(self) -> None:
        if self.alpha is None:
            return
        if not is_number(self.alpha) or not 0 < as_float(self.alpha) < np.inf:
            raise RequestError(
                f"alpha must be a positive number, the penalty, got {short(self.alpha)}"
            )
        object.__setattr__(self, "alpha", as_float(self.alpha))

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
        alpha = moments.usual_penalty / self.l1_ratio if self.alpha is None else self.alpha
        title = "Lasso" if self.l1_ratio == 1 else f"Elastic net, l1_ratio = {self.l1_ratio:.10g}"
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


@dataclass(frozen=True)
class ElasticNet(Penalised):
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
        super().__post_init__()
        if not is_number(self.l1_ratio) or not 0 < self.l1_ratio <= 1:
            raise RequestError(
                f"l1_ratio must be above 0 and at most 1, got {short(self.l1_ratio)}"
            )
        object.__setattr__(self, "l1_ratio", as_float(self.l1_ratio))


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
    ['undecided', 'in', 'out']
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
        """Verdicts on which coefficients of the private table's own solution are zero.

        All verdicts hold together with probability 1 - alpha over the privacy noise, whatever the
        data.

        Parameters
        ----------
        alpha : float
            Error probability of all verdicts together; the penalty is the attribute of that name.

        Returns
        -------
        DataFrame
            Columns term, estimate and verdict. "in": the coefficient is not zero, and has the sign
            of the estimate; "out": it is zero; "undecided", as always where a coefficient in
            original units is not a multiple of one in unit scale: most intercepts, and ``a`` beside
            ``a:b`` or ``I(a**2)`` unless zero is the middle of the other factor's bounds.
        """
        import pandas as pd

        check_alpha(alpha)
        verdicts = self.moments.support(self.basis, self.alpha, self.l1_ratio, alpha)
        used = self.design.to_basis != 0
        place = used.argmax(axis=1)
        same = (used.sum(axis=1) == 1) & (self.design.absorbed[place] == 0)
        verdicts = np.where(same, np.array(verdicts)[place], "undecided").tolist()
        return pd.DataFrame(
            {"term": self.terms, "estimate": np.asarray(self.params), "verdict": verdicts}
        )

    def risk(self, *, alpha: float = 0.05) -> tuple[float, float, float]:
        """Mean squared residual over the private rows, in the response's unit squared.

        Parameters
        ----------
        alpha : float
            Error probability of the limits.

        Returns
        -------
        estimate, low, high : float
            Estimate and certified limits, all at least zero. `high` is infinite where the noise
            leaves the number of rows open.
        """
        check_alpha(alpha)
        estimate, low, high = self.moments.risk(self.basis, alpha)
        unit = self.design.half_range**2
        return unit * estimate, unit * low, unit * high

    def path(self, size: int = 50) -> pd.DataFrame:
        """Coefficients along the penalty, from that at which all are zero to a thousandth of it.

        Parameters
        ----------
        size : int
            Number of penalties, evenly spaced in logarithms.

        Returns
        -------
        DataFrame
            Columns alpha, term and estimate, in original units.
        """
        import pandas as pd

        alphas, path = self.path_in_units(size)
        estimates = np.array([self._original(basis) for basis in path])
        return pd.DataFrame(
            {
                "alpha": np.repeat(alphas, len(self.terms)),
                "term": list(self.terms) * size,
                "estimate": estimates.ravel(),
            }
        )

    def path_in_units(self, size: int = 50) -> tuple[Floats, Floats]:
        """`path` in unit scale, as arrays.

        Parameters
        ----------
        size : int
            Number of penalties, from 2 to 1,000.

        Returns
        -------
        penalties : (size,) float64
            Decreasing.
        coefficients : (size, d) float64
        """
        check_whole("size", size, 2, 1_000)
        largest = self.moments.largest_penalty / self.l1_ratio
        alphas = np.geomspace(largest, _LEAST_PENALTY * largest, size)
        return alphas, self.moments.path(alphas, self.l1_ratio)

    def predict(self, exog: pd.DataFrame | Mapping[str, Any] | None = None) -> Floats:
        """Predicted means for given values of the columns of the formula.

        Parameters
        ----------
        exog : DataFrame or mapping of name to values
            Values of every column of the formula, in original units.

        Returns
        -------
        (m,) float64

        Raises
        ------
        RequestError
            For a missing column, or a value that the schema does not declare.
        """
        predicted = self.design.at(exog) @ (self.basis + self.design.absorbed)
        return np.asarray(self.design.half_range * predicted)

    def to_frame(self) -> pd.DataFrame:
        """`support` at an alpha of 0.05.

        Returns
        -------
        DataFrame
        """
        return self.support()

    def summary(self, *, alpha: float = 0.05, target: Target = "population") -> str:
        """Text table of `support`.

        Parameters
        ----------
        alpha : float
            Error probability of all verdicts together.
        target : {"population", "table"}
            Without effect: verdicts are about the table.

        Returns
        -------
        str
        """
        check_target(target)
        return self._page(alpha).text()

    def _page(self, alpha: float) -> Page:
        risk, low, high = self.risk(alpha=alpha)
        rows = [
            [term, significant(estimate), verdict]
            for term, estimate, verdict in self.support(alpha=alpha).itertuples(index=False)
        ]
        lines = [
            f"penalty {significant(self.alpha)}, for columns scaled to run from -1 to 1 between "
            "their bounds",
            f"mean squared residual {significant(risk)}"
            + (" (negative by the noise, cut at zero)" if risk == 0 else "")
            + f"; over the private rows certified between {significant(low)} and "
            f"{significant(high)}",
        ]
        after = [
            f"{self.rows}; {self.budget}.",
            "Verdicts are on the solution that the private table has without noise, certified "
            f"together at {percent(alpha)}.",
            *(f"Note: {note}" for note in self.notes),
        ]
        return Page(self.title, lines, ["", "estimate", "support"], rows, after=after)


@dataclass(frozen=True)
class Lasso(Penalised):
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
    l1_ratio: ClassVar[float] = 1.0  # type: ignore[misc]

    formula: str
    alpha: float | None = None
    given: str | None = None


@dataclass(frozen=True, eq=False)
class PenalisedMoments(Cached):
    """Noisy moments of p regressors and a response."""

    matrix: NoisyMatrix  # mean products of q features
    rows: Floats  # (p + 1, q) regressors, then response, as combinations of the features
    penalised: Floats  # (p,) 1, or 0 for the constant

    @cached_property
    def moments(self) -> Floats:
        """(p + 1, p + 1) noisy mean products, as measured."""
        return np.asarray(self.rows @ self.matrix.matrix @ self.rows.T)

    @cached_property
    def _free(self) -> NDArray[np.intp]:
        """Numbers of the regressors without a penalty: none, or the constant."""
        return np.flatnonzero(self.penalised == 0)

    @cached_property
    def _centred(self) -> Floats:
        """(k + 1, k + 1) moments given the constant, moved to be positive definite."""
        kept = np.append(np.flatnonzero(self.penalised), len(self.penalised))
        moments = self.moments[np.ix_(kept, kept)]
        if len(self._free):
            across = self.moments[np.ix_(self._free, kept)]
            own = self.moments[np.ix_(self._free, self._free)]
            moments = moments - across.T @ np.linalg.solve(own, across)
        values, vectors = np.linalg.eigh(moments)
        least = _LEAST_EIGENVALUE * max(float(values[-1]), 1e-300)
        return np.asarray((vectors * np.maximum(values, least)) @ vectors.T)

    @cached_property
    def largest_penalty(self) -> float:
        """The least strength at which all penalised coefficients are zero, for l1 = 1."""
        return float(np.abs(self._centred[:-1, -1]).max())

    @cached_property
    def usual_penalty(self) -> float:
        """Strength at which no coefficient enters with probability .95 if none is there (l1 = 1).

        The quantile of the largest centred product with the response, from noise and sampling (eq.
        1a of docs/explanation/regression/lasso.md).
        """
        centred, kept, own = self.rows, np.flatnonzero(self.penalised), self._centred
        if len(self._free):
            means = self.moments[:, self._free] / self.moments[self._free, self._free]
            centred = centred - means * self.rows[self._free]
        rng = calibration_generator(self.matrix.answers)
        errors = np.concatenate([
            centred[kept] @ self.matrix.noise(_BATCH, rng) @ centred[-1]
            for _ in range(DRAWS // _BATCH)
        ])  # fmt: skip
        persons = max(self.matrix.n / self.matrix.answers.rows.rows_per_person, 1)
        sampling = own[:-1, :-1] * own[-1, -1] / persons
        errors += rng.standard_normal(errors.shape) @ root_of(sampling)
        return float(np.quantile(np.abs(errors).max(axis=1), 1 - USUAL_ALPHA))

    def path(self, alphas: Floats, l1_ratio: float) -> Floats:
        """(k, p) coefficients at k penalties, decreasing; needs scikit-learn."""
        try:
            from sklearn.exceptions import ConvergenceWarning
            from sklearn.linear_model import enet_path
        except ImportError:
            raise RequestError(
                "a lasso needs scikit-learn; install it with: pip install 'dpstats[graphs]'"
            ) from None
        values, vectors = np.linalg.eigh(self._centred)
        m = len(values)
        table = (np.sqrt(m * np.maximum(values, 0)) * vectors).T  # m rows with these moments
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # `_residue` is in the verdicts
            fitted = enet_path(
                np.asfortranarray(table[:, :-1]), table[:, -1], l1_ratio=l1_ratio, alphas=alphas,
                precompute=False, tol=_TOLERANCE, max_iter=_SWEEPS, check_input=False,
            )[1]  # fmt: skip
        coefficients = np.zeros((len(alphas), len(self.penalised)))
        fitted[np.abs(fitted) <= _TOLERANCE] = 0.0  # where a coefficient is about to enter
        coefficients[:, self.penalised == 1] = fitted.T
        if len(self._free):
            own = self.moments[np.ix_(self._free, self._free)]
            left = self.moments[self._free, -1] - coefficients @ self.moments[:-1, self._free]
            coefficients[:, self._free] = np.linalg.solve(own, left.T).T
        return coefficients

    def _radii(self, beta: float) -> Floats:
        """(p + 1, p + 1) bounds on the noise of the moments, with probability 1 - beta."""
        size = np.abs(self.rows)
        return np.asarray(size @ self.matrix.radius(beta) @ size.T)

    def _relative_error_of_rows(self, beta: float) -> float:
        """Bound on the error of the number of rows over that number, with those of `_radii`."""
        answers = self.matrix.answers
        if answers.rows.public:
            return 0.0
        away = abs(float(answers.sums[-1]) - self.matrix.n)  # rounded, or estimated otherwise too
        return (float(joint_noise_quantiles(answers, beta)[-1]) + away) / self.matrix.n

    def support(self, b: Floats, strength: float, l1_ratio: float, beta: float) -> list[str]:
        """Verdicts on the regressors, all right with probability 1 - beta (eqs. 2 and 3)."""
        p, radii, relative = len(b), self._radii(beta), self._relative_error_of_rows(beta)
        ridge = strength * (1 - l1_ratio) * self.penalised
        noisy = self.moments[:p, :p] + np.diag(ridge)
        spread = radii[:p, :p] + relative * np.diag(ridge)
        gradient = self.moments[:p, -1] - noisy @ b
        error = spread @ np.abs(b) + radii[:p, -1] + self._residue(gradient, b, strength, l1_ratio)
        error += relative * strength * l1_ratio * self.penalised
        reach = self._distances(noisy, spread, error)
        length = float(np.linalg.norm(reach)) if np.all(np.isfinite(reach)) else np.inf
        pull = np.linalg.norm(np.abs(noisy) + spread, axis=1)
        outside = np.abs(gradient) + error + pull * length < strength * l1_ratio * (1 - relative)
        out = np.where((self.penalised == 1) & outside, "out", "undecided")
        return [str(verdict) for verdict in np.where(np.abs(b) > reach, "in", out)]

    def _residue(self, gradient: Floats, b: Floats, strength: float, l1_ratio: float) -> Floats:
        """(p,) how far b is from solving the noisy problem, as where its matrix was moved."""
        penalty = strength * l1_ratio * self.penalised
        inside = np.maximum(np.abs(gradient) - penalty, 0.0)
        return np.asarray(np.where(b == 0, inside, np.abs(gradient - penalty * np.sign(b))))

    def _distances(self, noisy: Floats, spread: Floats, error: Floats) -> Floats:
        """(p,) bounds on |b^ - b*|; infinite where the noise does not exclude a singular matrix."""
        least = float(np.linalg.eigvalsh(noisy)[0])
        q = float(np.linalg.norm(spread, 2))
        if least <= q or not positive_definite(noisy):
            return np.full(len(error), np.inf)
        inverse = np.linalg.inv(noisy)
        plain = float(np.linalg.norm(error)) / (least - q)
        own = np.sqrt(float(error @ np.abs(inverse) @ error)) / (1 - q / least)
        return np.asarray(np.minimum(plain, np.sqrt(np.diag(inverse)) * own))

    def risk(self, b: Floats, beta: float) -> tuple[float, float, float]:
        """Mean squared residual of b over the table: from noisy moments, and certified bounds.

        Moments are sums over the noisy number of rows, of relative error r at most: the mean over
        the true number is within factors 1 / (1 + r) and 1 / (1 - r) of that over the noisy one.
        """
        residual = np.append(-b, 1.0)
        estimate = float(residual @ self.moments @ residual)
        reach = float(np.abs(residual) @ self._radii(beta) @ np.abs(residual))
        relative = self._relative_error_of_rows(beta)
        low = max(estimate - reach, 0.0) / (1 + relative)
        high = max(estimate + reach, 0.0) / (1 - relative) if relative < 1 else np.inf
        return max(estimate, 0.0), low, high
