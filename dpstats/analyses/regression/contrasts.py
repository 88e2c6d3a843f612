"""Combinations of the coefficients of a regression: contrasts, F tests and predictions."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike

from dpstats.analyses.regression.least_squares import LinearIntervals
from dpstats.analyses.regression.score import LOG, LOGIT, Link
from dpstats.arrays import Floats
from dpstats.checks import (
    Alternative,
    Method,
    Target,
    check_alpha,
    check_finite,
    check_possible,
    check_target,
    excerpt,
)
from dpstats.error_rates import percent
from dpstats.errors import RequestError
from dpstats.inference.intervals import Ends, Intervals
from dpstats.results.base import Result, footer
from dpstats.results.estimates import ALLOWING, METHODS, EstimateResult
from dpstats.results.hypothesis import HypothesisResult
from dpstats.results.named import Named
from dpstats.results.rendering import Numerals, Page, significant

if TYPE_CHECKING:
    import pandas as pd

    from dpstats.analyses.regression.design_moments import DesignMoments

Constraints = str | ArrayLike | tuple[ArrayLike, ArrayLike]

_NUMBER = r"(?<![\w.])(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?"
_REDUNDANT = 1e-9  # of a combination: it follows from others, up to rounding
_LEVEL = re.compile(r"C\((?:[^()]|\([^()]*\))*\)(?:\[[^\]]*\])?")  # such as C(region)[T.north]


def read_constraints(wanted: Constraints, terms: Sequence[str]) -> tuple[Floats, Floats, list[str]]:
    """Combinations (k, d) of coefficients, the values (k,) they should equal, and their names.

    `wanted` is text such as ``"age = 0.5, C(region)[T.south] - C(region)[T.east]"``, read by
    formulaic; or one row per combination, tested against 0; or such rows and values. What is in
    backticks is a name.
    """
    if isinstance(wanted, str):
        matrix, values = _read(wanted, terms)
    else:
        rows, given = _pair(wanted)
        matrix = np.atleast_2d(check_finite("r_matrix", rows))
        if matrix.ndim != 2 or matrix.shape[1] != len(terms):
            raise RequestError(
                f"r_matrix has shape {matrix.shape}; it needs a row per combination, with one "
                f"number per coefficient, {len(terms)}: {terms}"
            )
        values = check_finite("the values to test against", given, (len(matrix),))
    if not len(matrix) or not np.all(np.any(matrix != 0, axis=1)):
        raise RequestError(
            "a combination without any coefficient has nothing to test; give every row of r_matrix "
            f"a number that is not 0, or write '{terms[-1]} = 0'"
        )
    return matrix, values, [_text(row, terms) for row in matrix]


def _without_redundant(matrix: Floats, values: Floats) -> tuple[Floats, Floats]:
    """Combinations that do not follow from those before them, and what they should equal.

    Columns, and then rows, are divided by their sizes first: units do not decide what is zero.
    """
    rows = matrix / np.maximum(np.abs(matrix).max(axis=0), 1e-300)
    lengths = np.linalg.norm(rows, axis=1)
    rows, ends = rows / lengths[:, np.newaxis], values / lengths
    chosen: list[int] = []
    for i in range(len(rows)):
        if np.linalg.matrix_rank(rows[[*chosen, i]], tol=_REDUNDANT) > len(chosen):
            chosen.append(i)
    others = [i for i in range(len(rows)) if i not in chosen]
    implied = rows[others] @ np.linalg.pinv(rows[chosen]) @ ends[chosen]
    if np.any(np.abs(ends[others] - implied) > _REDUNDANT * np.abs(ends).max()):
        raise RequestError(
            "the combinations contradict each other: no coefficients give all of them these "
            "values; test fewer of them together"
        )
    return matrix[chosen], values[chosen]


def _pair(wanted: Any) -> tuple[ArrayLike, ArrayLike]:
    """Rows and values, as statsmodels takes a tuple; two rows in a tuple are rows."""
    if isinstance(wanted, tuple) and len(wanted) == 2:
        first, second = (check_finite("r_matrix", part) for part in wanted)
        if second.shape in ((), (1,), np.atleast_2d(first).shape[:1]):
            return first, second
    return wanted, 0.0


def _text(row: Floats, terms: Sequence[str]) -> str:
    parts = [(v, t) for v, t in zip(row.tolist(), terms, strict=True) if v != 0]
    named = [(v, f"`{t}`" if _reads_otherwise(t, terms) else t) for v, t in parts]
    text = " + ".join(t if v == 1 else f"{v:.10g} {t}" for v, t in named)
    return text.replace("+ -1 ", "- ").replace("+ -", "- ") or "0"


def _read(text: str, terms: Sequence[str]) -> tuple[Floats, Floats]:
    from formulaic.errors import FormulaicError
    from formulaic.utils.constraints import LinearConstraints

    stand_ins = {name: f"v{i}_" for i, name in enumerate(terms)}

    def stand_in(match: re.Match[str]) -> str:
        """Text that formulaic reads in place of a name, or a number without an exponent."""
        if match["number"]:
            return f"{Decimal(match[0]):f}"
        name = match["quoted"] or match["bare"]
        if name is None:
            level = _LEVEL.match(text, match.start())
            unknown = match["unknown"] or (level or match)[0]
            raise RequestError(f"{unknown!r} is not a coefficient; coefficients: {terms}")
        if match["bare"] and _reads_otherwise(name, terms):
            raise RequestError(
                f"{name} in {excerpt(text)} is a coefficient and also a combination of others; put "
                "the names in backticks, as in `a` - `b` or `a - b`"
            )
        return stand_ins[name]

    if not text.strip():
        raise RequestError(f"there is nothing to test; coefficients: {terms}")
    written = _tokens(tuple(terms)).sub(stand_in, text).replace("==", "=")
    written = re.sub(r"=\s*-", "= 0 - ", written)  # formulaic reads no sign after =
    try:
        read = LinearConstraints.from_spec(written, list(stand_ins.values()))
        matrix = np.asarray(read.constraint_matrix, dtype=np.float64)
        values = np.asarray(read.constraint_values, dtype=np.float64) + 0.0  # no -0
    except (FormulaicError, RuntimeError, ValueError, TypeError, KeyError) as error:
        raise RequestError(
            f"{text!r} cannot be read; write combinations such as '{terms[-1]} = 0', with "
            f"commas between, of: {terms}"
        ) from error
    return matrix, values


@lru_cache(maxsize=64)
def _tokens(terms: tuple[str, ...]) -> re.Pattern[str]:
    """Names in backticks and by themselves, the longest first, numbers, and other words."""
    names = sorted(terms, key=len, reverse=True)
    quoted, whole = "|".join(map(re.escape, names)), "|".join(map(_whole, names))
    return re.compile(
        f"`(?P<quoted>{quoted})`|`(?P<unknown>[^`]*)`|(?P<number>{_NUMBER})(?!\\w)|(?P<bare>{whole})"
        r"|[^\W\d][\w.]*"
    )


def _whole(name: str) -> str:
    """A pattern for a name that is no part of a longer word."""
    word = re.compile(r"\w")
    before = r"(?<![\w.])" if word.match(name[0]) else ""
    return before + re.escape(name) + (r"(?!\w)" if word.match(name[-1]) else "")


def _reads_otherwise(name: str, terms: Sequence[str]) -> bool:
    """True if a name without backticks reads as a number or a combination of other coefficients."""
    others = [term for term in terms if term != name]
    if name.isidentifier() or not others:
        return False
    try:
        _read(name, others)
    except RequestError:
        return False
    return True


@dataclass(frozen=True, repr=False, eq=False)
class LinearResult(EstimateResult):
    """Linear combinations of coefficients, each with a test of whether it equals `null`.

    Attributes
    ----------
    null : (d,) float64
        The values tested; 0 by default.

    Examples
    --------
    >>> import dpstats as dps
    >>> import pandas as pd
    >>> schema = dps.Schema([dps.Number(name, 0, 99, missing=0) for name in ("age", "score")])
    >>> line = dps.OLS("score ~ age")
    >>> plan = dps.plan(schema, {"line": line}, budget=dps.PureDP(10))
    >>> numbers = pd.Series(range(10_000))
    >>> rows = pd.DataFrame({"age": numbers % 100, "score": numbers % 100 // 2 + numbers % 7})
    >>> fitted = dps.release(plan, rows, m=2_000).infer(line)
    >>> predicted = fitted.get_prediction({"age": [20, 60]}).mean
    >>> isinstance(predicted, dps.LinearResult), predicted.tvalues.shape
    (True, (2,))
    """

    null: Floats = field(default_factory=lambda: np.zeros(1))

    @property
    def _privacy(self) -> str:
        law = self.intervals
        measured = isinstance(law, LinearIntervals) and law.model.sampling.noisy
        return ALLOWING if measured else super()._privacy

    @property
    def interval_of(self) -> str:
        """The first coefficient other than the intercept; units differ."""
        return f"coefficient of {self.main_terms[0]}, in original units"

    @property
    def main_terms(self) -> list[str]:
        """The first coefficient other than the intercept."""
        first = int(self.terms[0] == "Intercept" and len(self.terms) > 1)
        return self.terms[first : first + 1]

    @property
    def _law(self) -> LinearIntervals:
        assert isinstance(self.intervals, LinearIntervals)
        return self.intervals

    @property
    def tvalues(self) -> Named:
        """(d,) estimate less `null` over the standard error."""
        errors, distance = self.bse, self.params - self.null
        certain = np.where(distance == 0, 0.0, np.copysign(np.inf, distance))
        ratios = np.divide(distance, errors, out=certain, where=errors > 0) + 0.0  # no -0
        return Named(ratios, self.terms)

    @cached_property
    def pvalues(self) -> Named:
        """(d,) two-sided noise-aware p-values of the hypothesis that each equals `null`."""
        law: Any = self.intervals  # which takes a value for each of them
        return Named(law.pvalues(self.null, "two-sided"), self.terms)

    def to_frame(  # noqa: D102, inherited
        self, *, alpha: float = 0.05, method: Method = "noise_aware", target: Target = "population"
    ) -> pd.DataFrame:
        frame = super().to_frame(alpha=alpha, method=method, target=target)
        if target == "table":
            return frame
        return frame.assign(statistic=np.asarray(self.tvalues), p_value=np.asarray(self.pvalues))

    def _first(self, count: int) -> Self:
        null = np.broadcast_to(self.null, self.params.shape)[:count]
        return replace(super()._first(count), null=null)


_PART = (
    "only combinations that the rows determine are tested; levels without rows leave the others "
    "open"
)


@dataclass(frozen=True, repr=False, eq=False)
class RegressionResult(LinearResult, ABC):
    """Coefficients of a regression, of which other combinations can be asked for.

    Attributes
    ----------
    moments : DesignMoments
        The design, and how coefficients in original units follow from those in its basis.
    """

    null_value = 0.0

    moments: DesignMoments = field(kw_only=True, compare=False)

    @property
    def df_model(self) -> float:
        """Number of coefficients, not counting the constant."""
        return float(len(self.params) - (self.moments.constant is not None))

    @property
    @abstractmethod
    def df_resid(self) -> float:
        """Rows less coefficients."""

    @abstractmethod
    def _along(self, matrix: Floats) -> Any:
        """The intervals of combinations (k, d) of the coefficients."""

    def _in_basis(self, matrix: Floats) -> Floats:
        """Combinations (k, d) of the coefficients as combinations (k, p) in the basis."""
        return np.asarray(matrix @ self.moments.to_basis)

    def t_test(self, r_matrix: Constraints) -> ContrastResult:
        """Linear combinations of the coefficients, each with interval and test.

        Rows are named by the combination, with the value tested unless it is 0: ``age = 0.5``.

        Parameters
        ----------
        r_matrix : str, (k, d) array_like, or a pair
            Such as ``"age = 0.5"``, ``"C(region)[T.south] - C(region)[T.east]"``, several
            separated by commas; or one row per combination, tested against 0; or such rows and the
            k values to test against. A name in backticks is that of one coefficient: a name such as
            ``x - y`` or ``1`` needs them.

        Returns
        -------
        ContrastResult

        Raises
        ------
        RequestError
            For a combination that cannot be read.
        """
        matrix, values, names = read_constraints(r_matrix, self.terms)
        pairs = zip(names, values.tolist(), strict=True)
        names = [f"{name} = {value:.15g}" if value else name for name, value in pairs]
        combined = self._combined(f"Contrasts of {self.title}", names, self._along(matrix))
        return self._contrasts(combined | {"null": values})

    def _contrasts(self, fields: dict[str, Any]) -> ContrastResult:
        """Result on combinations of the coefficients."""
        return ContrastResult(**fields)

    def f_test(self, r_matrix: Constraints) -> FTestResult:
        """Test that all of some linear combinations of the coefficients equal given values.

        Parameters
        ----------
        r_matrix : str, (k, d) array_like, or a pair
            As in `t_test`. What depends on levels without rows is not tested.

        Returns
        -------
        FTestResult

        Raises
        ------
        RequestError
            For a combination that cannot be read, and for combinations that contradict each other.
        """
        matrix, values, names = read_constraints(r_matrix, self.terms)
        hypothesis = " and ".join(f"{n} = {v:.15g}" for n, v in zip(names, values, strict=True))
        matrix, values = _without_redundant(matrix, values)
        asked, part = len(matrix), self._along(matrix).determined_part()
        matrix, values = part @ matrix, part @ values  # what the rows decide
        statistic, pvalue, df_num, df_denom = 0.0, 1.0, 0.0, self.df_resid
        if len(matrix):
            statistic, pvalue, df_num, df_denom = self._along(matrix).wald(values)
        return FTestResult(
            f"F test, {self.title}",
            hypothesis, statistic, pvalue, "two-sided", self._footer("noise_aware", "population"),
            df_num=df_num, df_denom=df_denom,
            notes=() if len(matrix) == asked else (_PART,),
        )  # fmt: skip

    def wald_test(
        self, r_matrix: Constraints, *, use_f: bool = True, scalar: bool = True
    ) -> FTestResult:
        """`f_test` by the name it also has in statsmodels.

        Parameters
        ----------
        r_matrix : str, (k, d) array_like, or a pair
            As in `t_test`.
        use_f, scalar : bool
            True.

        Returns
        -------
        FTestResult

        Raises
        ------
        RequestError
            For other options: with noise, the statistic has no chi-square distribution.
        """
        if use_f is not True or scalar is not True:
            raise RequestError(
                "wald_test gives the F statistic as one number, with a p-value that allows for "
                "the noise; there is no chi-square form: use the defaults of use_f and scalar"
            )
        return self.f_test(r_matrix)

    def _combined(
        self, title: str, names: list[str], intervals: Any, notes: Sequence[str] = ()
    ) -> dict[str, Any]:
        """Fields of a result on other parameters of the same fit."""
        return {
            **estimated(names, intervals), "title": title, "rows": self.rows,
            "budget": self.budget, "notes": [*notes, *self.notes],
        }  # fmt: skip

    def _ratios(self, name: str, alpha: float, method: Method, target: Target) -> pd.DataFrame:
        import pandas as pd

        low, high = np.asarray(self.conf_int(alpha=alpha, method=method, target=target)).T
        with np.errstate(over="ignore"):
            columns = (np.exp(np.asarray(self.params)), np.exp(low), np.exp(high))
        names = (name, "conf_low", "conf_high")
        return pd.DataFrame(dict(zip(names, columns, strict=True)), index=self.terms)

    @property
    @abstractmethod
    def _covariance(self) -> Floats:
        """Covariance (d, d) of the coefficients' errors, infinite where `bse` is."""

    def cov_params(self) -> pd.DataFrame:
        """Covariance of the coefficients' errors, sampling and privacy together.

        Returns
        -------
        DataFrame
            (d, d), with the terms as index and columns. The diagonal holds the squares of `bse`;
            infinite if those are.
        """
        import pandas as pd

        return pd.DataFrame(self._covariance, index=self.terms, columns=self.terms)


@dataclass(frozen=True, eq=False)
class PredictedMeanIntervals(Intervals):
    """Intervals of predicted means: those of the linear predictor, transformed."""

    predictors: Any
    link: Link

    def __len__(self) -> int:
        return len(self.predictors)

    @property
    def estimates(self) -> Floats:
        """(k,) nan where there is none."""
        return self.link.mean(self.predictors.estimates)

    @property
    def variances(self) -> Floats:
        """(2, k) from sampling and from privacy, to first order."""
        slopes = self.link.slope(self.predictors.estimates) ** 2
        return np.asarray(self.predictors.variances * np.where(np.isnan(slopes), np.inf, slopes))

    def noise_aware(self, alpha: float, target: Target) -> Ends:
        """Limits (k,)."""
        low, high = self.predictors.noise_aware(alpha, target)
        return self.link.mean(low), self.link.mean(high)

    def certified(self, alpha: float, target: Target) -> Ends:
        """All means."""
        low, high = self.predictors.certified(alpha, target)
        return self.link.mean(low), self.link.mean(high)

    def subset(self, chosen: slice) -> PredictedMeanIntervals:
        """Intervals of some of the predictions."""
        return replace(self, predictors=self.predictors.subset(chosen))

    def pvalues(self, value: float | Floats, alternative: Alternative) -> Floats:
        """P-values (k,) that each mean equals `value`."""
        low, high = self.link.mean(np.array([-np.inf, np.inf])).tolist()
        values = np.asarray(value, float)
        check_possible(
            values, (low < values) & (values < high),
            f"predicted means are between {low:.10g} and {high:.10g}, and neither of them; test a "
            "value between them",
        )  # fmt: skip
        pvalues = self.predictors.pvalues(self.link.predictor(values), alternative)
        return np.asarray(pvalues)


@dataclass(frozen=True, repr=False, eq=False)
class LinkedResult(RegressionResult, ABC):
    """Coefficients of a linear predictor, of which means are a function.

    Attributes
    ----------
    link : Link
    """

    link: Link = field(kw_only=True, compare=False)

    @abstractmethod
    def _at(self, exog: pd.DataFrame | Mapping[str, Any] | None) -> Any:
        """Intervals of the linear predictor at given values."""

    def _predicted(self, fields: dict[str, Any]) -> EstimateResult:
        """Result on predicted means."""
        return EstimateResult(**fields)

    def get_prediction(
        self, exog: pd.DataFrame | Mapping[str, Any] | None = None
    ) -> EstimateResult:
        """Predicted means for given values of the columns of the formula, with intervals.

        Parameters
        ----------
        exog : DataFrame or mapping of column name to values
            Of pandas, polars or Arrow. In original units; numbers within the schema's bounds,
            levels by their labels or as the table stores them. A single value is repeated.

        Returns
        -------
        EstimateResult
            With terms "0", "1", ...

        Raises
        ------
        RequestError
            For a missing column, or a value that the schema does not declare.
        """
        intervals = self._at(exog)
        names = [str(i) for i in range(len(intervals))]
        predicted = PredictedMeanIntervals(intervals, self.link)
        return self._predicted(self._combined(f"Predicted means, {self.title}", names, predicted))

    def predict(self, exog: pd.DataFrame | Mapping[str, Any] | None = None) -> Floats:
        """Predicted means alone; `get_prediction` has their intervals.

        Parameters
        ----------
        exog : DataFrame or mapping of column name to values
            As in `get_prediction`, which raises the same errors.

        Returns
        -------
        (m,) float64
        """
        return np.asarray(self.link.mean(self._at(exog).estimates))

    def odds_ratios(
        self, *, alpha: float = 0.05, method: Method = "noise_aware", target: Target = "population"
    ) -> pd.DataFrame:
        """Exponentials of the coefficients of `Logistic` and of their intervals.

        Parameters
        ----------
        alpha, method, target :
            As in `conf_int`.

        Returns
        -------
        DataFrame
            Columns odds_ratio, conf_low and conf_high, with the terms as index.

        Raises
        ------
        RequestError
            For another regression.
        """
        self._require(LOGIT, "odds_ratios", "dps.Logistic")
        return self._ratios("odds_ratio", alpha, method, target)

    def rate_ratios(
        self, *, alpha: float = 0.05, method: Method = "noise_aware", target: Target = "population"
    ) -> pd.DataFrame:
        """Exponentials of the coefficients of `Poisson` and of their intervals.

        Parameters
        ----------
        alpha, method, target :
            As in `conf_int`.

        Returns
        -------
        DataFrame
            Columns rate_ratio, conf_low and conf_high, with the terms as index.

        Raises
        ------
        RequestError
            For another regression.
        """
        self._require(LOG, "rate_ratios", "dps.Poisson")
        return self._ratios("rate_ratio", alpha, method, target)

    def _require(self, link: Link, name: str, analysis: str) -> None:
        if self.link is not link:
            other = {LOGIT: "odds_ratios", LOG: "rate_ratios"}.get(self.link, "params")
            raise RequestError(f"{name} are of {analysis}, and this is {self.title}; use {other}")


def estimated(names: list[str], intervals: Any) -> dict[str, Any]:
    """Fields of a result that intervals with estimates and variances give."""
    sampling, privacy = intervals.variances
    return {
        "terms": names, "params": Named(intervals.estimates, names),
        "sampling_variance": sampling, "privacy_variance": privacy, "intervals": intervals,
    }  # fmt: skip


@dataclass(frozen=True, repr=False, eq=False)
class ContrastResult(LinearResult):
    """Contrasts, with the names of statsmodels; single numbers where there is one contrast.

    Examples
    --------
    >>> import dpstats as dps
    >>> import pandas as pd
    >>> schema = dps.Schema([dps.Number(name, 0, 99, missing=0) for name in ("age", "score")])
    >>> line = dps.OLS("score ~ age")
    >>> plan = dps.plan(schema, {"line": line}, budget=dps.PureDP(10))
    >>> numbers = pd.Series(range(10_000))
    >>> rows = pd.DataFrame({"age": numbers % 100, "score": numbers % 100 // 2 + numbers % 7})
    >>> fitted = dps.release(plan, rows, m=2_000).infer(line)
    >>> slope = fitted.t_test("age = 0.5")
    >>> abs(slope.effect - 0.5) < 0.05
    True
    """

    @property
    def effect(self) -> Floats | float:
        """Estimates."""
        return self._single(self.params)

    @property
    def sd(self) -> Floats | float:
        """Standard errors."""
        return self._single(self.bse)

    @property
    def tvalue(self) -> Floats | float:
        """Estimates less the values tested, over the standard errors."""
        return self._single(self.tvalues)

    statistic = tvalue

    @property
    def pvalue(self) -> Floats | float:
        """Two-sided p-values."""
        return self._single(self.pvalues)

    def _single(self, values: Floats) -> Floats | float:
        return values if len(values) > 1 else float(values[0])


@dataclass(frozen=True, repr=False, eq=False)
class FTestResult(HypothesisResult):
    """An F test of several contrasts together.

    Attributes
    ----------
    df_num, df_denom : float
        Degrees of freedom of the p-value: independent contrasts, and those of the sampling
        variance: rows less coefficients, fewer where a person may have several rows or the variance
        is itself noisy; of a survey those of its design, less contrasts but one.

    Examples
    --------
    >>> import dpstats as dps
    >>> import pandas as pd
    >>> schema = dps.Schema([dps.Number(name, 0, 99, missing=0) for name in ("age", "score")])
    >>> line = dps.OLS("score ~ age")
    >>> plan = dps.plan(schema, {"line": line}, budget=dps.PureDP(10))
    >>> numbers = pd.Series(range(10_000))
    >>> rows = pd.DataFrame({"age": numbers % 100, "score": numbers % 100 // 2 + numbers % 7})
    >>> fitted = dps.release(plan, rows, m=2_000).infer(line)
    >>> test = fitted.f_test("age = 0")
    >>> print(test.pvalue < 0.001, test.df_num)
    True 1.0
    """

    df_num: float = field(default=np.nan, kw_only=True)
    df_denom: float = field(default=np.nan, kw_only=True)

    @property
    def fvalue(self) -> float:
        """The statistic, by statsmodels' name."""
        return self.statistic

    @property
    def _shown_df(self) -> str:
        return f"{self.df_num:g} and {round(self.df_denom, 1):.12g}"

    def to_frame(self) -> pd.DataFrame:  # noqa: D102, inherited
        return super().to_frame().assign(df_num=self.df_num, df_denom=self.df_denom)

    def _evidence(self) -> str:
        if np.isnan(self.statistic):
            return ""
        return f"F = {significant(self.statistic)} on {self._shown_df} df, "


@dataclass(frozen=True, repr=False, eq=False)
class Prediction(Result):
    """Predicted means, and new responses with their own error.

    Attributes
    ----------
    mean, new : LinearResult

    Examples
    --------
    >>> import dpstats as dps
    >>> import pandas as pd
    >>> schema = dps.Schema([dps.Number(name, 0, 99, missing=0) for name in ("age", "score")])
    >>> line = dps.OLS("score ~ age")
    >>> plan = dps.plan(schema, {"line": line}, budget=dps.PureDP(10))
    >>> numbers = pd.Series(range(10_000))
    >>> rows = pd.DataFrame({"age": numbers % 100, "score": numbers % 100 // 2 + numbers % 7})
    >>> fitted = dps.release(plan, rows, m=2_000).infer(line)
    >>> predicted = fitted.get_prediction({"age": [20, 60]})
    >>> predicted.predicted_mean.round().tolist(), predicted.conf_int(obs=True).shape
    ([13.0, 33.0], (2, 2))
    >>> list(predicted.summary_frame())[:2]
    ['mean', 'mean_se']
    """

    has_intervals: ClassVar[bool] = True

    mean: LinearResult
    new: LinearResult

    @property
    def predicted_mean(self) -> Floats:
        """(m,)."""
        return np.asarray(self.mean.params)

    @property
    def se_mean(self) -> Floats:
        """(m,) sampling and privacy together."""
        return np.asarray(self.mean.bse)

    @property
    def headline(self) -> str:
        """The first predicted means with their 95% intervals."""
        return self.mean.headline

    def intervals_frame(  # noqa: D102, inherited
        self,
        *,
        alpha: float = 0.05,
        method: Method = "noise_aware",
        target: Target = "population",
        simultaneous: bool = False,
    ) -> pd.DataFrame:
        return self.mean.intervals_frame(
            alpha=alpha, method=method, target=target, simultaneous=simultaneous
        )

    def conf_int(
        self,
        *,
        obs: bool = False,
        alpha: float = 0.05,
        method: Method = "noise_aware",
        target: Target = "population",
    ) -> Floats:
        """Intervals of the means, or of new responses.

        Parameters
        ----------
        obs : bool
            Predict a new response with normal errors instead of its mean.
        alpha : float
            Error probability of each interval.
        method : {"noise_aware", "certified"}
        target : {"population", "table"}
            The table's target is what the private table's own coefficients predict.

        Returns
        -------
        (m, 2) float64

        Raises
        ------
        RequestError
            With `obs` for the private table, which holds no new response.
        """
        of = self.new if obs else self.mean
        return np.asarray(of.conf_int(alpha=alpha, method=method, target=target))

    def to_frame(
        self, *, alpha: float = 0.05, method: Method = "noise_aware", target: Target = "population"
    ) -> pd.DataFrame:
        """One row per prediction, with the columns of statsmodels.

        Parameters
        ----------
        alpha, method, target :
            As in `conf_int`.

        Returns
        -------
        DataFrame
            Columns mean, mean_se, mean_ci_lower, mean_ci_upper, obs_ci_lower and obs_ci_upper. For
            the private table the first four, and noise is the only error.
        """
        import pandas as pd

        check_alpha(alpha)
        check_target(target)
        means = self.mean.to_frame(alpha=alpha, method=method, target=target)
        frame = means[["estimate", "std_error", "conf_low", "conf_high"]]
        frame.columns = pd.Index(["mean", "mean_se", "mean_ci_lower", "mean_ci_upper"])
        if target == "table":
            return frame
        new = self.conf_int(obs=True, alpha=alpha, method=method)
        return frame.assign(obs_ci_lower=new[:, 0], obs_ci_upper=new[:, 1])

    def summary_frame(self, *, alpha: float = 0.05, method: Method = "noise_aware") -> pd.DataFrame:
        """`to_frame` for the population, by statsmodels' name.

        Parameters
        ----------
        alpha, method :
            As in `conf_int`.

        Returns
        -------
        DataFrame
        """
        return self.to_frame(alpha=alpha, method=method)

    def summary(self, *, alpha: float = 0.05, target: Target = "population") -> str:  # noqa: D102, inherited
        return self._page(alpha, target).text()

    def _page(self, alpha: float, target: Target) -> Page:
        frame = self.to_frame(alpha=alpha, target=target)
        level = percent(alpha)
        header = ["", "mean", "std err", f"{level} of the mean"]
        header += [f"{level} of a new response"] if target == "population" else []
        rows = []
        for i, row in enumerate(frame.to_numpy(dtype=np.float64).tolist()):
            mean, error, *ends = row
            show = Numerals.of(row, error)
            pairs = [show.interval(*ends[j : j + 2]) for j in range(0, len(ends), 2)]
            rows.append([str(i), show(mean), Numerals.of([error], error)(error), *pairs])
        foot = footer(self.mean.rows, self.mean.budget, METHODS["noise_aware"], target)
        return Page(self.title, [], header, rows, after=[foot])
