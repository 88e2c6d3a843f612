"""Hazard ratios: Cox regression of grouped times, from noisy events and rows at risk.

Equations are those of docs/explanation/regression/hazard-regression.md [1]_.

References
----------
.. [1] R. L. Prentice and L. A. Gloeckler (1978), Regression analysis of grouped survival data with
   application to breast cancer data. Biometrics 34, 57-67.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import linalg, special

from dpstats.analyses.notes import cell_rules
from dpstats.analyses.regression.contrasts import estimated
from dpstats.analyses.regression.design_moments import DesignMoments
from dpstats.analyses.regression.glm import CoefficientIntervals, ScoreResult, notes_on_estimates
from dpstats.analyses.regression.glm_models import (
    Groups,
    grouped_columns,
    have_entering_levels,
    left_out,
    number_names,
    regressor_columns,
    span,
    values_in_bins,
)
from dpstats.analyses.regression.linear_score import LinearScore
from dpstats.analyses.survival.follow_up import (
    FollowUp,
    RiskSets,
    Ties,
    follow_up_of,
    shown_times,
    time_text,
)
from dpstats.arrays import Floats
from dpstats.checks import Alternative, Method, Target, check_possible, excerpt, first_few, short
from dpstats.errors import RequestError, SchemaError
from dpstats.families.block import Family
from dpstats.families.formula import Design
from dpstats.inference.intervals import Ends, Intervals
from dpstats.inference.simulation import calibration_seed
from dpstats.results.estimates import EstimateResult
from dpstats.schema import Number, Schema

if TYPE_CHECKING:
    import pandas as pd

    from dpstats.measured.view import ReleaseView

_GRAMMAR = (
    "a hazard regression reads 'time, event ~ age + C(arm)': a number and a Boolean column or a "
    "condition such as status == 'dead' on the left, and on the right what other regressions take"
)
_PART = r"(?:[^{end}'\"`]|'[^']*'|\"[^\"]*\"|`[^`]*`)*"
_FORMULA = re.compile(
    rf"(?P<time>{_PART.format(end=',~')}),(?P<event>{_PART.format(end='~')})~(?P<right>.*)", re.S
)
_STEPS = 50
_CLOSE = 1e-14  # change of a hazard, over the hazard, at which Newton's method ends
_MOST_CELLS = 1_500  # of time, event and patterns: memory is quadratic in them
_MOST_EVENTS = 0.9  # of the rows at risk in a bin, with which it still bounds a hazard
_ON_LOG_SCALE = 2.0  # standard errors from zero
_PROPORTIONAL = (
    "hazards are assumed to be proportional: a ratio is the same in every bin of time. Half of the "
    "rows that are censored in a bin count as at risk, which is accurate unless many of the rows "
    "at risk are censored in one bin"
)
_ALL_AT_RISK = "hazards are assumed to be proportional: a ratio is the same at every time"
_MIDDLES = (
    "numbers are at the middle of their bins: with wide bins a coefficient is that of the binned "
    "number, mostly nearer to zero by the share of its variance inside the bins"
)
_NO_ESTIMATE = (
    "there is no estimate: many cells of time, event and regressors have fewer rows than the "
    "noise, or nearly all events are on one side of a regressor; use fewer bins of time, fewer or "
    "wider bins of the regressors, or more budget"
)
_NOT_CERTIFIED = "there is no certified interval for these coefficients"


class _Fit(NamedTuple):
    """Hazards of J bins and P patterns at some coefficients."""

    baseline: Floats  # (J,) increments of the cumulative baseline hazard, which may be negative
    hazards: Floats  # (J, P) mu
    weights: Floats  # (J, P) w(mu)
    information: Floats  # (J, P) of fitted counts that are not negative
    means: Floats  # (J, p) of the regressors, weighted with it


@dataclass(frozen=True, eq=False)
class HazardScore(LinearScore):
    """Score of noisy events and rows at risk in J bins of time and P patterns x (P, p) (eq. 3).

    The noise is on `events` and `at_risk`, in this order.
    """

    events: Floats  # (J, P)
    at_risk: Floats  # (J, P) of positive sums over the patterns
    n: int  # number of rows

    def _fit(self, b: Floats) -> _Fit:
        """Hazards and information at b, kept until another b is asked for."""
        key, kept = b.tobytes(), self._computed.get("fit")
        if kept is None or kept[0] != key:
            baseline, mu, weights = self._profile(b)
            kept = key, _Fit(baseline, mu, weights, *self._information_of_cells(b, baseline))
            self._computed["fit"] = kept
        fit: _Fit = kept[1]
        return fit

    def _profile(self, b: Floats) -> tuple[Floats, Floats, Floats]:
        """Baseline that solves its own score at b (eq. 4), hazards, weights; nan without one."""
        ratio, d, at_risk = np.exp(self.x @ b), self.events, self.at_risk
        with np.errstate(all="ignore"):
            start = (at_risk - d / 2) @ ratio
            baseline = np.where(start > 0, d.sum(axis=1) / start, np.nan)
            for _ in range(_STEPS):
                mu = np.multiply.outer(baseline, ratio)
                w, slope = _weights(mu)
                step = (w * d - mu * at_risk).sum(axis=1) / ((at_risk - slope * d) @ ratio)
                baseline = baseline + step
                if not np.any(np.abs(step) > _CLOSE * np.abs(baseline)):
                    break
            mu = np.multiply.outer(baseline, ratio)
            return baseline, mu, _weights(mu)[0]

    def _information_of_cells(self, b: Floats, baseline: Floats) -> tuple[Floats, Floats]:
        """Information (J, P) of fitted counts that are not negative, and means (J, p) of x.

        Rows at risk keep their noisy sum in every bin, and the hazards the noisy sum of events.
        """
        ratio, rows = np.exp(self.x @ b), np.maximum(self.at_risk, 0)
        rows *= (self.at_risk.sum(axis=1) / rows.sum(axis=1))[:, np.newaxis]
        size, fitted = rows @ ratio, np.maximum(baseline, 0)
        events, wanted = float(fitted @ size), float(baseline @ size)
        fitted = fitted * max(wanted, 0.0) / events if events else fitted
        mu = np.multiply.outer(fitted, ratio)
        unit = rows * ratio * _weights(mu)[0] * np.exp(-mu)
        return fitted[:, np.newaxis] * unit, (unit @ self.x) / unit.sum(axis=1, keepdims=True)

    def information(self, b: Floats) -> Floats:
        """(p, p) efficient information (eq. 6), positive semidefinite."""
        fit = self._fit(b)
        return self._scatter(fit.information, fit.means)

    def _scatter(self, weights: Floats, means: Floats) -> Floats:
        """(p, p) sum of weights (J, P) times squares of x less its mean (J, p)."""
        apart = (self.x - means[:, np.newaxis]).reshape(-1, self.x.shape[1])
        return np.asarray((apart.T * weights.ravel()) @ apart)

    @property
    def _sums(self) -> Floats:
        return np.concatenate([self.events.ravel(), self.at_risk.ravel()])

    def _entries(self, b: Floats) -> Floats:
        """(2 J P, p): the efficient score as a combination of events and rows at risk (eq. 5)."""
        fit = self._fit(b)
        apart = self.x - fit.means[:, np.newaxis]
        parts = fit.weights[..., np.newaxis] * apart, -fit.hazards[..., np.newaxis] * apart
        return np.concatenate(parts).reshape(-1, self.x.shape[1])

    def score(self, b: Floats) -> Floats:
        """(p,) U(b) at the profile (eq. 3)."""
        fit = self._fit(b)
        return np.asarray((fit.weights * self.events - fit.hazards * self.at_risk).sum(0) @ self.x)

    def _sampling(self, b: Floats) -> Floats:
        return self.information(b)

    @property
    def df(self) -> int:
        """Rows less coefficients."""
        return max(self.n - int(self.x.shape[1]), 1)

    def _slopes(self, b: Floats) -> tuple[Floats, Floats]:
        """Minus the expected derivative of each bin's score by its baseline (J,), means (J, p).

        Of the noisy counts as they are.
        """
        fit = self._fit(b)
        unit = self.at_risk * np.exp(self.x @ b) * fit.weights * np.exp(-fit.hazards)
        total = unit.sum(axis=1)
        return total, (unit @ self.x) / total[:, np.newaxis]

    def _influences(self, combinations: Floats) -> Floats:
        b = self._estimate
        fit, (_, means) = self._fit(b), self._slopes(b)
        weights = self.at_risk * fit.hazards * fit.weights * np.exp(-fit.hazards)
        derivative = self._scatter(weights, means)
        linalg.cholesky(derivative)
        return np.asarray(np.linalg.solve(derivative, combinations.T))

    def cumulative(self, points: Floats, bins: NDArray[np.int64]) -> tuple[Floats, Floats, Floats]:
        """Cumulative hazards (k,) at points (k, p) after so many bins (k,) (eq. 8).

        With the variances (k,) of their errors by sampling and by noise.
        """
        if self.params is None:
            return np.full(len(bins), np.nan), *np.full((2, len(bins)), np.inf)
        b = self.params
        fit, (total, means) = self._fit(b), self._slopes(b)
        ratio = np.exp(points @ b)
        until = (np.arange(len(fit.baseline)) < bins[:, np.newaxis]) * ratio[:, np.newaxis]
        hazards = until @ fit.baseline
        change = hazards[:, np.newaxis] * points - (until * fit.baseline) @ means
        try:
            along = self._influences(change)
        except linalg.LinAlgError:
            return hazards, *np.full((2, len(bins)), np.inf)
        of_bins = until / total  # (k, J) influence of each bin's score on its baseline
        parts = np.stack([
            fit.weights * of_bins[..., np.newaxis], -fit.hazards * of_bins[..., np.newaxis]
        ], axis=1)  # fmt: skip
        weights = parts.reshape(len(bins), -1) + along.T @ self._entries(b).T
        own = of_bins**2 @ fit.information.sum(axis=1)
        sampling = own + np.einsum("pk,pq,qk->k", along, self._sampling(b), along)
        noise = np.asarray(((weights @ self.noise) * weights).sum(axis=1))
        return hazards, sampling, noise


def _weights(mu: Floats) -> tuple[Floats, Floats]:
    """w(mu) = mu / (1 - exp(-mu)) and its derivative, analytic through zero (eq. 2)."""
    w = 1 / special.exprel(-mu)
    small = np.abs(mu) < 1e-3
    safe = np.where(small, 1.0, mu)
    slope = (1 - w * np.exp(-mu)) / -np.expm1(-safe)
    return w, np.where(small, 0.5 + mu / 6, slope)


@dataclass(frozen=True, eq=False)
class SurvivalIntervals(Intervals):
    """Intervals of k survivals, from cumulative hazards with normal errors (eq. 9)."""

    hazards: Floats
    sampling: Floats  # variances of the hazards
    privacy: Floats

    def __len__(self) -> int:
        return len(self.hazards)

    @property
    def estimates(self) -> Floats:
        """(k,) nan where there is none."""
        return np.asarray(np.clip(np.exp(-self.hazards), 0, 1))

    @property
    def variances(self) -> Floats:
        """(2, k) from sampling and from privacy, to first order."""
        slopes = np.nan_to_num(np.exp(-self.hazards), nan=1.0) ** 2
        return np.asarray(np.stack([self.sampling, self.privacy]) * slopes)

    def noise_aware(self, alpha: float, target: Target) -> Ends:
        """Limits (k,): on the log-log scale where the hazard is clear of zero."""
        variance = self.privacy + (self.sampling if target == "population" else 0.0)
        reach = -special.ndtri(alpha / 2) * np.sqrt(variance)
        with np.errstate(all="ignore"):
            clear = self.hazards > _ON_LOG_SCALE * np.sqrt(variance)
            factor = np.exp(reach / self.hazards)
            low = np.where(clear, self.hazards / factor, self.hazards - reach)
            high = np.where(clear, self.hazards * factor, self.hazards + reach)
        low, high = np.nan_to_num(low, nan=0.0), np.nan_to_num(high, nan=np.inf)
        return np.exp(-np.maximum(high, 0)), np.exp(-np.maximum(low, 0))

    def certified(self, alpha: float, target: Target) -> Ends:
        """All survivals."""
        return np.zeros(len(self)), np.ones(len(self))

    def subset(self, chosen: slice) -> SurvivalIntervals:
        """Intervals of some of them."""
        return SurvivalIntervals(self.hazards[chosen], self.sampling[chosen], self.privacy[chosen])

    def pvalues(self, value: float | Floats, alternative: Alternative) -> Floats:
        """P-values (k,) that each survival equals `value`."""
        values = np.asarray(value, float)
        check_possible(
            values, (values > 0) & (values <= 1),
            "predicted survivals are above 0 and at most 1; test such a value",
        )  # fmt: skip
        with np.errstate(all="ignore"):
            wanted, sd = -np.log(values), np.sqrt(self.sampling + self.privacy)
            clear = (self.hazards > _ON_LOG_SCALE * sd) & (wanted > 0)
            logs = np.log(self.hazards / wanted) * self.hazards / sd
            z = -np.where(clear, logs, (self.hazards - wanted) / sd)
        sides = {"larger": special.ndtr(-z), "smaller": special.ndtr(z)}
        pvalues = sides.get(alternative, 2 * special.ndtr(-np.abs(z)))
        return np.where(np.isnan(z), 1.0, pvalues)


@dataclass(frozen=True, repr=False, eq=False)
class HazardResult(ScoreResult):
    """Log hazard ratios, named as in statsmodels: ``params, bse, tvalues, pvalues``.

    Attributes
    ----------
    edges : (T,) float64
        Times up to which the cumulative hazard is known: from the first bin to one left out.
    centre : (p,) float64
        Mean of the regressors' basis over the patterns, at which the model's own predictor is 0.

    Examples
    --------
    >>> import dpstats as dps
    >>> import pandas as pd
    >>> months = dps.Number("months", 0, 60, edges=[6, 12, 24, 36], missing=0)
    >>> schema = dps.Schema([months, dps.Boolean("died"), dps.Category("arm", ["old", "new"])])
    >>> hazard = dps.Hazard("months, died ~ arm")
    >>> plan = dps.plan(schema, {"hazard": hazard}, budget=dps.PureDP(2))
    >>> i = pd.Series(range(20_000))
    >>> arm = (i % 2).map({0: "old", 1: "new"})
    >>> rows = pd.DataFrame({"months": i * 7 % (50 + i % 2 * 10), "died": i % 3 > 0, "arm": arm})
    >>> fitted = dps.release(plan, rows, m=2_000).infer(hazard)
    >>> print(fitted.terms, fitted.params[0] < -0.1, fitted.hazard_ratios().shape)
    ['arm[T.new]'] True (1, 3)
    >>> print(fitted.joint_tests()["p_value"].iloc[0] < 0.001, fitted.baseline().shape)
    True (4, 2)
    >>> print(fitted.predict({"arm": ["old", "new"]}).round(1).loc[12.0].tolist())
    [0.8, 0.9]
    >>> fitted.get_prediction({"arm": "new"}).terms[1]
    '0 at 12'
    """

    edges: Floats = field(kw_only=True, compare=False)
    centre: Floats = field(kw_only=True, compare=False)

    @property
    def df_model(self) -> float:
        """Number of coefficients."""
        return float(len(self.params))

    @property
    def _model(self) -> HazardScore:
        assert isinstance(self._coefficients.model, HazardScore)
        return self._coefficients.model

    @property
    def _clock(self) -> Number:
        clock = self.moments.schema[self.moments.design.response[0]]
        assert isinstance(clock, Number)
        return clock

    @property
    def _times(self) -> pd.Index:
        import pandas as pd

        return pd.Index(shown_times(self._clock, self.edges), name="time")

    def _in_basis(self, matrix: Floats) -> Floats:
        return np.asarray(matrix @ self.moments.to_basis[1:])

    def hazard_ratios(
        self, *, alpha: float = 0.05, method: Method = "noise_aware", target: Target = "population"
    ) -> pd.DataFrame:
        """Hazard ratios: exponentials of the coefficients and of their intervals.

        Parameters
        ----------
        alpha, method, target :
            As in `conf_int`; certified intervals of ratios reach from 0 to infinity.

        Returns
        -------
        DataFrame
            A row per coefficient, columns ``hazard_ratio``, ``conf_low`` and ``conf_high``. Of a
            number the ratio is that of one unit more, of a level that to the reference.
        """
        return self._ratios("hazard_ratio", alpha, method, target)

    def joint_tests(self) -> pd.DataFrame:
        """Test of each term of the formula that all its coefficients are zero.

        Without noise this is the score test of the term; of a treatment alone it is the grouped
        log-rank test.

        Returns
        -------
        DataFrame
            A row per term, columns ``statistic`` (of F), ``df`` (the number of coefficients that
            are tested) and ``p_value``, which is 1 where there is no estimate.
        """
        import pandas as pd

        tests = {
            name: self.f_test(np.eye(len(self.terms))[place.start - 1 : place.stop - 1])
            for name, place in self.moments.design.terms
        }
        rows = [(t.statistic, t.df_num, t.pvalue) for t in tests.values()]
        return pd.DataFrame(rows, index=list(tests), columns=["statistic", "df", "p_value"])

    def baseline(self) -> pd.DataFrame:
        """Cumulative hazard and survival at the edges, with all regressors 0.

        Numbers are then 0, and categories at the first level or the reference of the formula. See
        `get_prediction` for intervals at other values.

        Returns
        -------
        DataFrame
            A row per edge in `edges`, columns ``cumulative_hazard``, which noise can make negative,
            and ``survival``.

        Raises
        ------
        RequestError
            If the first bin of time was left out.
        """
        import pandas as pd

        zero = self.moments.to_basis[:1] / self.moments.half_range
        hazards = self._cumulative(zero)[0]
        return pd.DataFrame(
            {"cumulative_hazard": hazards, "survival": np.exp(-np.maximum(hazards, 0))},
            index=self._times,
        )

    def predict(self, exog: pd.DataFrame | Mapping[str, Any]) -> pd.DataFrame:
        """Survival at the edges for given values of the columns, without intervals.

        Parameters
        ----------
        exog : DataFrame or mapping of column name to values
            As for `get_prediction`.

        Returns
        -------
        DataFrame
            A row per edge in `edges`, and a column per point, from 0 on.

        Raises
        ------
        RequestError
            For a missing column, or a value that the schema does not declare; or if the first bin
            of time was left out.
        """
        import pandas as pd

        points = self.moments.at(exog)
        survival = np.exp(-np.maximum(self._cumulative(points)[0], 0))
        return pd.DataFrame(survival.reshape(len(points), -1).T, index=self._times)

    def get_prediction(self, exog: pd.DataFrame | Mapping[str, Any]) -> EstimateResult:
        """Survival at the edges for given values of the columns, with intervals.

        Parameters
        ----------
        exog : DataFrame or mapping of column name to values
            In original units; numbers within the schema's bounds, levels by their labels or as the
            table stores them. A single value is repeated.

        Returns
        -------
        EstimateResult
            A parameter per point and edge: ``0 at 12`` is the survival of the first point at 12.

        Raises
        ------
        RequestError
            As `predict`.
        """
        points = self.moments.at(exog)
        shown = [time_text(self._clock, edge) for edge in self.edges.tolist()]
        names = [f"{i} at {time}" for i in range(len(points)) for time in shown]
        predicted = SurvivalIntervals(*self._cumulative(points))
        return EstimateResult(**self._combined(f"Survival, {self.title}", names, predicted))

    def _cumulative(self, points: Floats) -> tuple[Floats, Floats, Floats]:
        """Cumulative hazards (m T,) at points (m, p) in the basis, and their variances."""
        if not len(self.edges):
            clock = self._clock
            raise RequestError(
                f"the first bin of time, {clock.name}={clock.bin_labels[0]}, was left out, and a "
                "cumulative hazard starts there: make it wider with other edges in the schema, or "
                "let the bounds of the time start where rows are at risk, or use more budget"
            )
        at = replace(self._coefficients, combinations=points - self.centre)
        many = len(self.edges)
        bins = np.tile(np.arange(1, many + 1), len(points))
        points = np.repeat(at.reduced, many, axis=0)
        hazards, sampling, privacy = self._model.cumulative(points, bins)
        known = np.repeat(at.determined, many)
        hazards = np.where(known, hazards, np.nan)
        return hazards, np.where(known, sampling, np.inf), np.where(known, privacy, np.inf)


@dataclass(frozen=True)
class Hazard:
    """Hazard ratios of numbers and categories: Cox regression of times in bins.

    The table of time, event and the regressors' columns is measured, all at once: a row is in one
    of its cells. Risk sets are sums of noisy cells. Numbers of the formula are taken at the middle
    of their bins. The last bin of time, after the last edge, is not used. Levels whose noisy number
    of rows is within the noise are left out. Where many cells have fewer rows than the noise there
    may be no estimate: a note says so, coefficients are nan, and intervals are the whole line.

    Parameters
    ----------
    formula : str
        Such as ``"months, died ~ age + C(arm)"``: the time, a number with edges (or values); a
        Boolean column, or a condition such as ``status == 'dead'``, of the rows whose time is that
        of the event; and regressors as for `dps.OLS`.
    given : str, optional
        Regression in the rows with this condition.
    entry : str, optional
        A number on the scale of the time, with its edges: when a row came under observation.
    ties : {"half", "last"}, optional
        Whether half of the rows that are censored in a bin are at risk in it, or all; by default
        half for edges, and all for declared values.

    Raises
    ------
    RequestError
        If the formula cannot be read.

    References
    ----------
    Prentice, R. L. and Gloeckler, L. A. (1978). Regression analysis of grouped survival data with
    application to breast cancer data. Biometrics 34, 57-67.

    Examples
    --------
    >>> import dpstats as dps
    >>> dps.Hazard("months, died ~ age + C(arm)")
    Hazard(formula='months, died ~ age + C(arm)', given=None, entry=None, ties=None)
    """

    kind: ClassVar[str] = "hazard"

    formula: str
    given: str | None = None
    entry: str | None = None
    ties: Ties | None = None

    def __post_init__(self) -> None:
        self._parts  # noqa: B018
        follow_up_of("time", "event", None, self.given, self.entry, self.ties)

    @property
    def _parts(self) -> tuple[str, str, str]:
        """Time, event and right side of the formula."""
        match = _FORMULA.fullmatch(self.formula) if isinstance(self.formula, str) else None
        time, event, right = ("", "", "") if match is None else map(str.strip, match.groups())
        if not (time and event and right):
            raise RequestError(f"{short(self.formula)} cannot be read; {_GRAMMAR}")
        return time.strip("`"), event, right

    def _moments(self, schema: Schema) -> DesignMoments:
        time, _, right = self._parts
        try:
            schema[time]
        except SchemaError as error:
            raise SchemaError(f"{error}; {_GRAMMAR}") from None
        design = Design.of(f"`{time}` ~ {right}", schema, response=(time, None))
        if not design.intercept:
            raise RequestError(
                f"{excerpt(self.formula)} has no intercept, but the baseline hazard is one: leave "
                "out - 1"
            )
        return DesignMoments(schema, design)

    def _follow_up(self, schema: Schema) -> FollowUp:
        """The follow-up by pattern of the regressors' columns."""
        moments, (time, event, _) = self._moments(schema), self._parts
        numbers, columns = number_names(moments), regressor_columns(moments)
        for column in columns:
            if column.name in numbers and isinstance(column, Number) and column.value_bins < 2:
                raise RequestError(
                    f"{column.name!r} has a single bin, and a hazard regression counts rows in "
                    "bins: add edges=[...] to the schema"
                )
        levels = tuple(column.name for column in columns if column.name not in numbers)
        by = tuple(column.name for column in columns)
        asked = FollowUp(time, (event,), by, self.given, self.entry, self.ties, levels)
        cells = len(asked.groups(schema)) * asked.clock(schema).value_bins * 2
        if cells > _MOST_CELLS:
            raise RequestError(
                f"{excerpt(self.formula)} has {cells} cells of time, event and regressors, and at "
                f"most {_MOST_CELLS} are allowed: name fewer columns, or give the time or a number "
                "fewer edges in the schema"
            )
        return asked

    def family(self, schema: Schema) -> Family:
        """The table of time, event and regressors; with `entry` also that of entry."""
        return self._follow_up(schema).family(schema)

    def combines(self, schema: Schema) -> bool:
        """True: answers may be combined from several measurements."""
        return True

    def infer(self, release: ReleaseView) -> HazardResult:
        """Log hazard ratios in original units with noise-aware intervals."""
        schema, moments = release.schema, self._moments(release.schema)
        asked = self._follow_up(schema)
        of_rows = RiskSets.from_release(asked, release)
        risk = of_rows.of_persons
        patterns = dict(zip(asked.by, np.array(asked.groups(schema)).T, strict=True))
        groups = _entering(moments, patterns, risk)
        kept = have_entering_levels(groups, patterns)
        bins = self._bins(schema, asked, risk, kept)
        x = moments.regressors_at(values_in_bins(moments, patterns))[kept]
        centre = x.mean(axis=0)
        basis = span(x - centre)
        x = x - centre if basis is None else (x - centre) @ basis
        score = _score(risk, x, bins, kept)
        names = moments.design.names[1:]
        combinations = moments.to_basis[1:] / moments.half_range
        intervals = CoefficientIntervals(score, combinations, basis)
        cuts = asked.cuts(schema)[1:]
        known = np.flatnonzero(np.arange(len(bins)) == bins)  # an unbroken run from the first bin
        given = "" if self.given is None else f" (given {self.given})"
        return HazardResult(
            title=f"Hazard regression: {self.formula}{given}",
            **estimated(names, intervals),
            rows=of_rows.answers.rows.of_persons,
            budget=str(release.budget),
            notes=[
                *notes_on_estimates(intervals, names, left_out(groups), _NO_ESTIMATE),
                *_notes_on_bins(bins, cuts, asked, schema),
                _PROPORTIONAL if asked.halves_censored(schema) else _ALL_AT_RISK,
                *([_MIDDLES] if number_names(moments) else []),
                _NOT_CERTIFIED,
                *risk.answers.constraint_notes,
                cell_rules(schema, self),
            ],
            null=np.zeros(len(names)),
            moments=moments,
            edges=cuts[bins[known]],
            centre=centre,
        )

    def _bins(
        self, schema: Schema, asked: FollowUp, risk: RiskSets, kept: NDArray[np.bool_]
    ) -> NDArray[np.int64]:
        """Bins of time that surely have rows at risk, and some of them without an event."""
        totals = risk.maps.at_risk[:, kept].sum(axis=1)
        used = risk.are_positive(totals)
        events = risk.observed.events[kept].sum(axis=(0, 2))
        used &= events < _MOST_EVENTS * risk.observed.at_risk[kept].sum(axis=0)
        if asked.clock(schema).edges or asked.clock(schema).values is None:
            used[-1] = False
        return np.flatnonzero(used)


def _entering(
    moments: DesignMoments, patterns: dict[str, NDArray[np.int64]], risk: RiskSets
) -> Groups:
    """Which cells of the groups in the formula surely have rows, of those in a pattern."""
    size = risk.shape[1] * (risk.shape[2] + 1)
    groups: Groups = []
    for columns in grouped_columns(moments):
        enters = np.ones([column.bins for column in columns], dtype=np.bool_)
        place = np.ravel_multi_index([patterns[c.name] for c in columns], enters.shape)
        cells, which = np.unique(place, return_inverse=True)
        entries = np.zeros((len(risk.sums), len(cells)))
        for g, cell in enumerate(which.ravel().tolist()):
            entries[g * size : (g + 1) * size, cell] = 1
        positive = risk.are_positive(entries)
        positive |= not positive.any()  # the noise hides all: which have rows is not known
        enters.flat[cells] = positive
        groups.append((columns, enters))
    return groups


def _score(
    risk: RiskSets, x: Floats, bins: NDArray[np.int64], kept: NDArray[np.bool_]
) -> HazardScore:
    """The score of some bins of time and some patterns, whose regressors are x."""

    def chosen(counts: Floats) -> Floats:
        """(..., J, P) of counts (..., G, J)."""
        return np.asarray(np.swapaxes(counts[..., kept, :][..., bins], -1, -2))

    maps = chosen(risk.maps.events[..., 0]), chosen(risk.maps.at_risk)
    entries = np.concatenate([part.reshape(len(risk.sums), -1) for part in maps], axis=1)
    laplace, terms = risk.laplace(entries)
    return HazardScore(
        x, chosen(risk.observed.events[..., 0]), chosen(risk.observed.at_risk),
        risk.answers.n, noise=risk.noise_covariance(entries), laplace=laplace, terms=terms,
        seed=calibration_seed(risk.answers),
    )  # fmt: skip


def _notes_on_bins(
    bins: NDArray[np.int64], cuts: Floats, asked: FollowUp, schema: Schema
) -> list[str]:
    """A note on bins of time that are not used, but the one after the last edge."""
    clock = asked.clock(schema)
    many = len(cuts) - bool(clock.edges or clock.values is None)
    lacking = sorted(set(range(many)) - set(bins.tolist()))
    if not lacking:
        return []
    labels = [f"{asked.time}={clock.bin_labels[j]}" for j in lacking]
    return [
        "left out, since the noise leaves open whether rows are at risk, or nearly all of them "
        f"have the event: {first_few(labels)}"
    ]
