"""Survival curves and what follows from them: the result of a `Survival`."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import numpy as np

from dpstats.analyses.moments.group_means import PairwiseResult, pairwise_fields
from dpstats.analyses.survival.curves import (
    CurveLimits,
    DrawnIntervals,
    GroupCurve,
    incidence,
    joined,
    survival,
)
from dpstats.analyses.survival.follow_up import (
    shown_times,
    time_of,
    time_text,
)
from dpstats.analyses.survival.log_rank import LogRankResult, log_rank_test
from dpstats.arrays import Floats
from dpstats.checks import (
    Method,
    Target,
    check_choice,
    check_interval,
    check_proportion,
    first_few,
    listed,
)
from dpstats.errors import RequestError
from dpstats.results.estimates import EstimateResult, estimated
from dpstats.results.hypothesis import ADJUSTED, Adjustment, adjusted
from dpstats.results.named import Named
from dpstats.results.rendering import shown_df, shown_pvalue, significant
from dpstats.schema import Number

if TYPE_CHECKING:
    import pandas as pd

R = TypeVar("R", bound=EstimateResult)

_OF_BINS = (
    "a cumulative hazard is the sum of the chances of an event in each bin; with many events in a "
    "bin it is smaller than -log S, which is nearer to that of continuous times"
)


@dataclass(frozen=True, repr=False, eq=False)
class SurvivalResult(EstimateResult):
    """Curves at the declared edges of time, with what follows from them.

    Attributes
    ----------
    curves : tuple of GroupCurve
        One for each group.
    labels, named : tuple of str, of tuples of str
        Of the groups, "" of all rows; and the same with a part for each column of `by`.
    by : tuple of dict
        Bin of each column of `by`, for every group.
    events, clock : tuple of str, Number
        Kinds of events, and the column of times.
    cuts : (J + 1,) float64
        Start of the first bin, and where each ends.

    Examples
    --------
    >>> import dpstats as dps
    >>> import pandas as pd
    >>> days = dps.Number("days", 0, 500, edges=range(50, 500, 50), missing=0)
    >>> schema = dps.Schema([days, dps.Boolean("died"), dps.Category("arm", ["new", "old"])])
    >>> curves = dps.Survival("days", "died", by="arm")
    >>> plan = dps.plan(schema, {"curves": curves}, budget=dps.PureDP(1))
    >>> numbers = pd.Series(range(6_000))
    >>> arm = numbers.mod(2).map({0: "new", 1: "old"})
    >>> days = numbers * 7 % 400 + 100 * (numbers % 2 == 0)
    >>> rows = pd.DataFrame({"days": days, "died": numbers % 3 > 0, "arm": arm})
    >>> result = dps.release(plan, rows, m=2_000).infer("curves")
    >>> print(result.survival_at(200).params.round(1))
    [0.8 0.6]
    >>> medians, means = result.quantile(0.5)["estimate"], result.restricted_mean(300).params
    >>> print(medians[0] > medians[1], means[0] > means[1])
    True True
    >>> print(result.differences(horizon=300).pvalues < 0.01, result.logrank().pvalue < 0.01)
    [ True] True
    >>> result.curve().columns.tolist()[:4], result.pairwise().columns.tolist()[:2]
    (['group', 'time', 'estimate', 'monotone'], ['groups', 'statistic'])
    >>> print(result.cumulative_hazard().terms[0])
    arm=new: H(50)
    """

    figures = ("survival",)
    certified_target: ClassVar[Target] = "table"

    curves: tuple[GroupCurve, ...] = field(kw_only=True, compare=False)
    labels: tuple[str, ...] = field(kw_only=True)
    named: tuple[tuple[str, ...], ...] = field(kw_only=True, compare=False)
    by: tuple[dict[str, int], ...] = field(kw_only=True, compare=False)
    events: tuple[str, ...] = field(kw_only=True)
    clock: Number = field(kw_only=True, compare=False)
    cuts: Floats = field(kw_only=True, compare=False)

    @property
    def interval_of(self) -> str:
        """Name of the estimated curves: survival, or cumulative incidence of several events."""
        return "survival" if len(self.events) == 1 else "cumulative incidence"

    def _numbers(self, group: int) -> list[int]:
        """Numbers of the parameters of a group, as far as its curve goes, kind after kind."""
        edges, kinds = len(self.cuts) - 2, len(self.events)
        first = [edges * (kinds * group + k) for k in range(kinds)]
        return [start + j for start in first for j in range(self.curves[group].bins)]

    def _check_one_event(self) -> None:
        if len(self.events) > 1:
            raise RequestError(
                "this needs one kind of event, and these are cumulative incidences; ask for a "
                "Survival of one event, or of any of them"
            )

    @property
    def _one_event(self) -> CurveLimits:
        self._check_one_event()
        return self._all_limits

    @property
    def _all_limits(self) -> CurveLimits:
        assert isinstance(self.intervals, DrawnIntervals)
        return self.intervals

    counted: ClassVar[str] = "rows"
    _unit: ClassVar[float] = 1.0  # of the numbers of rows in `curve`

    def curve(
        self, *, alpha: float = 0.05, method: Method = "noise_aware", target: Target = "population"
    ) -> pd.DataFrame:
        """The curves as a table, with the numbers at risk.

        Parameters
        ----------
        alpha, method, target :
            As in `conf_int`; alpha is also that of the band of each group as a whole.

        Returns
        -------
        DataFrame
            Columns group, event (of several kinds), time, estimate, monotone (the nearest curve
            that is one), low, high, band_low, band_high, and at_risk and events: noisy numbers of
            rows at risk in the bin that ends at the time, and of its events.

        Raises
        ------
        RequestError
            If an option is not known.
        """
        import pandas as pd

        check_interval(alpha, method, target)
        limits, frames = self._all_limits, []
        for label, curve in zip(self.labels, self.curves, strict=True):
            if not curve.bins:
                continue
            own = limits.subset(self._numbers(curve.group))
            low, high = own.conf_int(alpha, method, target)
            band = own.simultaneous(alpha, method, target)
            counts, kinds = curve.risk.observed, len(self.events)
            monotone = survival(curve.fitted) if kinds == 1 else incidence(curve.fitted).ravel()
            events = counts.events[curve.group, : curve.bins].T.ravel()
            times = np.tile(self.cuts[1 : curve.bins + 1], kinds)
            frame = pd.DataFrame({
                "group": label, "event": np.repeat(self.events, curve.bins),
                "time": shown_times(self.clock, times),
                "estimate": own.estimate, "monotone": monotone,
                "low": low, "high": high, "band_low": band[0], "band_high": band[1],
                "at_risk": np.tile(counts.at_risk[curve.group, : curve.bins], kinds) * self._unit,
                "events": events * self._unit,
            })  # fmt: skip
            frames.append(frame)
        if not frames:
            raise RequestError("no curve has a start; see the notes of the result")
        whole = pd.concat(frames, ignore_index=True)
        shown = {"event": len(self.events) > 1, "group": any(self.labels)}
        return whole.drop(columns=[name for name, used in shown.items() if not used])

    def cumulative_hazard(self) -> EstimateResult:
        """The cumulative hazards of Nelson and Aalen at the edges, all kinds of events together.

        It is the sum of the chances of an event in each bin, for rows at risk in it. Of continuous
        times with many events in a bin ``-np.log`` of the survival is nearer to the cumulative
        hazard: the sum is smaller.

        Returns
        -------
        EstimateResult
            A parameter for each edge that a curve reaches.

        Raises
        ------
        RequestError
            If no curve has a start.
        """
        used = [curve for curve in self.curves if curve.bins]
        if not used:
            raise RequestError("no curve has a start; see the notes of the result")
        terms = [
            (f"{label}: " if (label := self.labels[curve.group]) else "")
            + f"H({time_text(self.clock, cut)})"
            for curve in used for cut in self.cuts[1 : curve.bins + 1]
        ]  # fmt: skip
        parts = joined([curve.cumulative_hazard for curve in used])
        of_all = " of all events together" if len(self.events) > 1 else ""
        result = self._of(f"Cumulative hazard{of_all}, {self.title}", terms, parts)
        return replace(result, notes=[_OF_BINS, *result.notes])

    def _of(self, title: str, terms: list[str], parts: CurveLimits) -> EstimateResult:
        return self._made(
            EstimateResult, title=title, **estimated(terms, parts), rows=self.rows,
            budget=self.budget, notes=self.notes, scalar=len(terms) == 1,
        )  # fmt: skip

    def _made(self, kind: type[R], **fields: Any) -> R:
        """A result that follows from the curves."""
        return kind(**fields)

    def survival_at(self, times: float | Sequence[float]) -> EstimateResult:
        """Survival at some of the declared edges, in every group whose curve reaches them.

        Parameters
        ----------
        times : float or sequence of float

        Returns
        -------
        EstimateResult

        Raises
        ------
        RequestError
            If a time is no declared edge, or no curve reaches it.
        """
        chosen = [i for _, i in self._parameters_at(times)]
        return self._of(self.title, [self.terms[i] for i in chosen], self._one_event.subset(chosen))

    def _parameters_at(self, times: float | Sequence[float]) -> list[tuple[int, int]]:
        """Group and number of the parameters at some edges, group by group."""
        edges = self.cuts[1:-1]
        several: Any = listed(times)
        several = several if isinstance(several, list | tuple) else [several]
        wanted = [time_of(self.clock, time) for time in several]
        for time in wanted:
            if time not in edges:
                known = first_few([time_text(self.clock, edge) for edge in edges.tolist()])
                raise RequestError(
                    f"{time_text(self.clock, time)} is not one of the times of the curve, "
                    + known.replace("'", "")
                )
        bins = [int(np.searchsorted(edges, time)) for time in wanted]
        found = [
            (curve.group, len(edges) * curve.group + j)
            for curve in self.curves
            for j in bins
            if j < curve.bins
        ]
        if not found:
            raise RequestError(
                "no curve reaches these times; ask for earlier ones: the notes of the result say "
                "where each curve ends"
            )
        return found

    def quantile(
        self, probability: float = 0.5, *, alpha: float = 0.05, method: Method = "noise_aware",
        target: Target = "population",
    ) -> pd.DataFrame:  # fmt: skip
        """Time by which a share of the rows have had the event; by default the median.

        Its interval has all bins that the intervals of the curve do not exclude: it ends at
        declared edges, or at infinity where the curve may not reach the share. Its error is that of
        one interval of the curve: the right bin is excluded only by an error at one of its ends.

        Parameters
        ----------
        probability : float
            Between 0 and 1: of having had the event.
        alpha, method, target :
            As in `curve`.

        Returns
        -------
        DataFrame
            Columns group, estimate (on the line between two edges of the monotone curve; infinite
            where it does not come so far), low and high; dates where the times are, NaT for
            infinity.

        Raises
        ------
        RequestError
            With several kinds of events, or if an argument is out of its range.
        """
        import pandas as pd

        found = self._quantiles(check_proportion(probability, "probability"), alpha, method, target)
        frame = pd.DataFrame(found, columns=["estimate", "low", "high"])
        if self.clock.dates:
            days = frame.replace(np.inf, np.nan).round()
            frame = days.apply(pd.to_datetime, unit="D")
        if any(self.labels):
            frame.insert(0, "group", self.labels)
        return frame

    def _quantiles(
        self, probability: float, alpha: float, method: Method, target: Target
    ) -> list[tuple[float, float, float]]:
        """Estimate and ends of the interval of a quantile of each group."""
        level = 1 - probability
        check_interval(alpha, method, target)
        low, high = self._one_event.conf_int(alpha, method, target)
        found = []
        for curve in self.curves:
            own, cuts = self._numbers(curve.group), np.append(self.cuts[: curve.bins + 1], np.inf)
            # The curve surely crosses the level before a bin, or surely does so after it.
            before, after = np.append(1.0, high[own]) <= level, np.append(low[own], 0.0) > level
            bins = np.flatnonzero(~(before | after))
            first, last = (int(bins[0]), int(bins[-1])) if len(bins) else (0, curve.bins)
            points = np.append(1.0, survival(curve.fitted) if curve.bins else np.empty(0))
            estimate = np.inf
            if points[-1] <= level:
                reached = int(np.argmax(points <= level))
                on_line = np.interp(-level, -points, cuts[:-1])
                estimate = cuts[reached] if self.clock.discrete else on_line
            found.append((float(estimate), float(cuts[first]), float(cuts[last + 1])))
        return found

    def restricted_mean(self, horizon: float) -> EstimateResult:
        """Mean time until the event or the horizon, whichever is first, in every group.

        The area under the curve, on the line between edges (of declared values, the steps). Of
        dates it is in days from the start of the first bin.

        Parameters
        ----------
        horizon : float or date
            A declared edge that the curves reach.

        Returns
        -------
        EstimateResult
            One parameter per group whose curve reaches the horizon.

        Raises
        ------
        RequestError
            If it is no edge, or no curve reaches it.
        """
        groups, parts = self._restricted(horizon)
        at = time_text(self.clock, time_of(self.clock, horizon))
        terms = [f"{self.labels[g]}: mean to {at}" if self.labels[g] else f"mean to {at}"
                 for g in groups]  # fmt: skip
        return self._of(f"Restricted mean, {self.title}", terms, parts)

    def _restricted(self, horizon: float) -> tuple[list[int], CurveLimits]:
        self._check_one_event()
        groups = [g for g, _ in self._parameters_at(horizon)]
        last = int(np.searchsorted(self.cuts[1:-1], time_of(self.clock, horizon)))
        widths = np.diff(self.cuts[: last + 2])  # the first is 0 where values start at 0
        before, after = (widths, 0 * widths) if self.clock.discrete else (widths / 2, widths / 2)
        weights = after + np.append(before[1:], 0.0)  # of the curve at each edge
        start = 0.0 if self.clock.dates else float(self.cuts[0])
        ends = start, start + float(widths.sum())
        return groups, self._means(groups, weights, start + float(before[0]), ends)

    def _means(
        self, groups: list[int], weights: Floats, constant: float, ends: tuple[float, float]
    ) -> CurveLimits:
        """A constant plus combinations (T,) of the first points of the curves of some groups."""
        parts = []
        for g in groups:
            own = np.zeros(self.curves[g].bins)
            own[: len(weights)] = weights
            parts.append(self.curves[g].restricted_mean(own, constant, ends))
        return joined(parts)

    def differences(
        self, *, time: float | None = None, horizon: float | None = None,
        adjust: Adjustment = "holm",
    ) -> PairwiseResult:  # fmt: skip
        """Differences of all pairs of groups: of the survival at a time, or of restricted means.

        Parameters
        ----------
        time, horizon : float
            One of them: a declared edge, see `survival_at` and `restricted_mean`.
        adjust : {"holm", "fdr_bh", "none"}
            Of the p-values, for the number of pairs.

        Returns
        -------
        PairwiseResult

        Raises
        ------
        RequestError
            Unless there is one of the two, and two curves reach it.
        """
        check_choice("adjust", adjust, list(ADJUSTED))
        if (time is None) == (horizon is None):
            raise RequestError("differences need time= or horizon=, one of them")
        if time is not None:
            found = self._parameters_at(time)
            groups, parts = [g for g, _ in found], self._one_event.subset([i for _, i in found])
            what = f"survival at {time_text(self.clock, time_of(self.clock, time))}"
        else:
            assert horizon is not None
            groups, parts = self._restricted(horizon)
            what = f"mean to {time_text(self.clock, time_of(self.clock, horizon))}"
        pairs = list(itertools.combinations(range(len(groups)), 2))
        if not pairs:
            raise RequestError("differences need two groups whose curves reach the time")
        both = parts.differences([i for i, _ in pairs], [j for _, j in pairs])
        names, every = [self.labels[g] for g in groups], np.ones(len(pairs), dtype=np.bool_)
        what = f"Differences of {what}"
        fields = pairwise_fields(self, what, names, both, adjust, every)
        return self._made(PairwiseResult, **fields)

    def _strata(self, strata: str | Sequence[str] | None) -> tuple[list[str], list[list[int]]]:
        """Names of the groups to compare, and their numbers in each stratum."""
        columns = list(self.by[0])
        within = [] if strata is None else [strata] if isinstance(strata, str) else list(strata)
        compared = [name for name in columns if name not in within]
        if unknown := [name for name in within if name not in columns]:
            raise RequestError(f"strata must be of the columns of by, {columns}; got {unknown}")
        keys = [tuple(bins[name] for name in within) for bins in self.by]
        groups = [[g for g, key in enumerate(keys) if key == one] for one in dict.fromkeys(keys)]
        if columns and not compared:
            raise RequestError(f"strata must leave a column of by to compare; got all of {columns}")
        if len(groups[0]) < 2:
            raise RequestError("a log-rank test needs two groups: name their column with by=")
        kept = [columns.index(name) for name in compared]
        names = [", ".join(self.named[g][i] for i in kept) for g in groups[0]]
        return names, groups

    def logrank(self, *, strata: str | Sequence[str] | None = None) -> LogRankResult:
        """Log-rank test that the hazards of all groups are equal; it allows for the noise.

        Parameters
        ----------
        strata : str or sequence of str, optional
            Columns of `by` within whose levels the others are compared.

        Returns
        -------
        LogRankResult

        Raises
        ------
        RequestError
            Without two groups, or with several kinds of events: ask for a Survival of one of them.
        """
        self._check_one_event()
        names, groups = self._strata(strata)
        return self._once(("logrank", str(strata)), lambda: self._log_rank(names, groups))

    def _log_rank(self, names: list[str], groups: list[list[int]]) -> LogRankResult:
        statistic, pvalue, observed, expected, df = self._test_of(groups, 11)
        return LogRankResult(
            f"Log-rank test, {self.title}",
            f"the hazards of {', '.join(names)} are equal in the population",
            statistic, pvalue, "two-sided", self._footer("noise_aware", "population"),
            df=df, observed=Named(observed, names), expected=Named(expected, names),
            notes=(
                self._law_of_test(df),
                *(f"{name}: {o:.0f} events, {e:.0f} expected (noisy)"
                  for name, o, e in zip(names, observed.tolist(), expected.tolist(), strict=True)),
            ),
        )  # fmt: skip

    def _test_of(
        self, groups: list[list[int]], purpose: int
    ) -> tuple[float, float, Floats, Floats, Any]:
        """Statistic, p-value, observed and expected events of groups within strata, and df."""
        return *log_rank_test(self.curves[0].risk, groups, purpose), len(groups[0]) - 1

    def _law_of_test(self, df: Any) -> str:
        return f"chi-square with {df} df without noise"

    def pairwise(
        self, *, strata: str | Sequence[str] | None = None, adjust: Adjustment = "holm"
    ) -> pd.DataFrame:
        """Log-rank tests of all pairs of groups.

        Parameters
        ----------
        strata, adjust :
            As in `logrank` and in `differences`.

        Returns
        -------
        DataFrame
            Columns groups, statistic, p_unadjusted and p_value.

        Raises
        ------
        RequestError
            As `logrank`, or if `adjust` is not known.
        """
        import pandas as pd

        check_choice("adjust", adjust, list(ADJUSTED))
        self._check_one_event()
        names, groups = self._strata(strata)
        found = []
        for i, j in itertools.combinations(range(len(names)), 2):
            pair = [[own[i], own[j]] for own in groups]
            statistic, pvalue, *_ = self._test_of(pair, 12)
            found.append((f"{names[i]} vs {names[j]}", statistic, pvalue))
        frame = pd.DataFrame(found, columns=["groups", "statistic", "p_unadjusted"])
        return frame.assign(p_value=adjusted(frame["p_unadjusted"].to_numpy(), adjust))

    def single_test(self, value: float | None = None) -> LogRankResult:
        """The log-rank test of all groups.

        Raises
        ------
        RequestError
            For a value, as its hypothesis is fixed; without two groups.
        """
        test = self.logrank()
        test.single_test(value)
        return test

    @property
    def headline(self) -> str:
        """The medians of the first groups, and the log-rank test; of several kinds, shares."""
        if len(self.events) > 1:
            return super().headline
        texts = self._medians(0.05, "population")
        shown = "; ".join(texts[:3]) + ("; ..." if len(texts) > 3 else "")
        if len(self.labels) < 2:
            return f"median {shown}"
        return f"median {shown}; log-rank p {shown_pvalue(self.logrank().pvalue, digits=2)}"

    _name_of_statistic: ClassVar[str] = "chi-square"

    def _medians(self, alpha: float, target: Target) -> list[str]:
        """The median of each group with its interval."""
        found = self._quantiles(0.5, alpha, "noise_aware", target)
        return [
            (f"{label} " if label else "")
            + (
                "not known"
                if not curve.bins
                else "not reached"
                if np.isinf(estimate)
                else self._shown_time(estimate)
            )
            + f" [{self._shown_time(low)}, {self._shown_time(high)}]"
            for label, curve, (estimate, low, high) in zip(
                self.labels, self.curves, found, strict=True
            )
        ]

    def _shown_time(self, value: float) -> str:
        if np.isinf(value):
            return "inf"
        return time_text(self.clock, value if self.clock.dates else float(f"{value:.4g}"))

    def _head(self, alpha: float, target: Target) -> list[str]:
        if len(self.events) > 1:
            return [self.title]
        lines = [self.title, f"median time (its bins): {'; '.join(self._medians(alpha, target))}"]
        if len(self.labels) < 2 or target == "table":
            return lines
        test = self.logrank()
        return [
            *lines,
            f"log-rank test: {self._name_of_statistic} {significant(test.statistic)} on "
            f"{shown_df(test.df)} df, p-value {shown_pvalue(test.pvalue)} "
            "(allows for the noise)",
        ]
