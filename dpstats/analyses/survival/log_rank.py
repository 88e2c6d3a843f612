"""Log-rank tests of noisy risk sets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from dpstats.analyses.survival.curves import fitted_hazards
from dpstats.analyses.survival.follow_up import RiskSets
from dpstats.arrays import Floats
from dpstats.inference.joint_coverage import joint_test
from dpstats.inference.simulation import calibration_generator
from dpstats.results.hypothesis import HypothesisResult
from dpstats.results.named import Named

if TYPE_CHECKING:
    import pandas as pd

_MANY = 1e12  # degrees of freedom of a normal law


@dataclass(frozen=True, repr=False, eq=False)
class LogRankResult(HypothesisResult):
    """A log-rank test, with the observed and expected events of each group.

    Attributes
    ----------
    df : int, or (float, float)
        Degrees of freedom of the statistic, a chi-square without noise; of a survey those of F.
    observed, expected : (k,) Named
        Noisy numbers of events, and those expected if all groups had the same hazards.

    Examples
    --------
    >>> import dpstats as dps
    >>> import pandas as pd
    >>> days = dps.Number("days", 0, 500, edges=range(50, 500, 50), missing=0)
    >>> schema = dps.Schema([days, dps.Boolean("died"), dps.Category("arm", ["new", "old"])])
    >>> curves = dps.Survival("days", "died", by="arm")
    >>> plan = dps.plan(schema, {"curves": curves}, budget=dps.PureDP(1))
    >>> rows = pd.DataFrame({"days": [220, 120] * 3_000, "arm": ["new", "old"] * 3_000})
    >>> rows["died"] = rows.index % 3 > 0
    >>> test = dps.release(plan, rows, m=2_000).infer("curves").logrank()
    >>> print(test.pvalue < 0.001, test.df, test.observed["arm=old"] > test.expected["arm=old"])
    True 1 True
    """

    df: int | tuple[float, float] = field(default=0, kw_only=True)
    observed: Named = field(kw_only=True)
    expected: Named = field(kw_only=True)

    def to_frame(self) -> pd.DataFrame:  # noqa: D102, inherited
        frame = super().to_frame()
        both = self.df if isinstance(self.df, tuple) else (self.df,)
        for place, (name, df) in enumerate(zip(("df", "df_denom"), both, strict=False), 3):
            frame.insert(place, name, df)
        return frame


class Scores(NamedTuple):
    """Scores of k groups, which add up to zero, with what they and their variance follow from."""

    scores: Floats  # (k,): observed less expected events
    slopes: Floats  # (k, d): their derivatives by the sums of all cells
    # observed, expected: (k,): noisy numbers of events
    observed: Floats
    expected: Floats


def scores_of(
    risk: RiskSets, strata: Sequence[Sequence[int]], variance: Floats | None = None
) -> Scores:
    """Scores of groups (eq. log-rank); adds to their variance (k, k) of independent rows."""
    k = len(strata[0])
    score, observed, expected = np.zeros((3, k))
    entries = np.zeros((len(risk.sums), k))
    for groups in strata:
        bins = risk.bins_with_rows(groups)
        if not bins:
            continue
        counts, maps = risk.observed, risk.maps
        events = counts.events[list(groups), :bins].sum(axis=-1)
        at_risk = counts.at_risk[list(groups), :bins]
        of_events = maps.events[:, list(groups), :bins].sum(axis=-1)
        of_risk = maps.at_risk[:, list(groups), :bins]
        total, rows = events.sum(axis=0), at_risk.sum(axis=0)
        share = np.clip(at_risk, 0, None)
        share = share / np.maximum(share.sum(axis=0), 1e-12)
        fitted = fitted_hazards((total / rows)[:, np.newaxis])[:, 0]
        observed += events.sum(axis=1)
        score += (events - share * total).sum(axis=1)
        expected += (share * total).sum(axis=1)
        if variance is not None:
            hypergeometric = fitted * rows * np.clip(rows - fitted * rows, 0, None)
            hypergeometric /= np.maximum(rows - 1, 1)
            variance += np.diag(share @ hypergeometric) - (share * hypergeometric) @ share.T
        entries += (of_events - share * of_events.sum(axis=1, keepdims=True)).sum(axis=-1)
        entries -= ((of_risk - share * of_risk.sum(axis=1, keepdims=True)) * fitted).sum(axis=-1)
    return Scores(score, entries.T, observed, expected)


def log_rank_test(
    risk: RiskSets, strata: Sequence[Sequence[int]], purpose: int
) -> tuple[float, float, Floats, Floats]:
    """Statistic, p-value, and observed and expected events (k,) of k groups (eq. log-rank).

    Parameters
    ----------
    risk : RiskSets
    strata : sequence of (k,) sequences of int
        Numbers of the groups to compare, in each stratum.
    purpose : int
        Of the draws of the noise.
    """
    persons = risk.of_persons
    k, factor = len(strata[0]), risk.answers.n / persons.answers.n
    variance = np.zeros((k, k))
    found = scores_of(persons, strata, variance)
    entries, free = found.slopes[:-1].T, slice(k - 1)  # the scores of all groups add up to zero
    rng = calibration_generator(persons.answers, (purpose, k))
    value, pvalue, *_ = joint_test(
        found.scores[free], _MANY, variance[free, free], persons.noise_covariance(entries),
        lambda: persons.noise(entries), rng,
    )  # fmt: skip
    return value * (k - 1), pvalue, found.observed * factor, found.expected * factor
