"""Intervals and tests of proportions: each from its own noisy count, or within one group."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from dpstats.families.block import Floats
from dpstats.inference.binomial import certificate_split, proportion_interval, proportion_pvalue
from dpstats.inference.checks import Alternative
from dpstats.inference.conditional import (
    conditional_certified,
    conditional_interval,
    conditional_pvalue,
)
from dpstats.inference.corrected import proportion_confint
from dpstats.inference.groups import GroupCounts
from dpstats.inference.simultaneous import joint_level, joint_noise_quantiles

if TYPE_CHECKING:
    from dpstats.answers import Answers
    from dpstats.results import Method, Target


@dataclass(frozen=True)
class ProportionIntervals:
    """Intervals and tests for d proportions, each from its own noisy count.

    Noise-aware: F_p(T + U) is continuous and decreases in p (Awan & Slavkovic 2018), so two
    root-finds have exact coverage. Certified: Clopper-Pearson at the ends of T +- q, q a quantile
    of the noise at a part of alpha fixed before looking.
    """

    answers: Answers
    tables: tuple[slice, ...] = ()

    def simultaneous(self, alpha: float, method: Method, target: Target) -> tuple[Floats, Floats]:
        """Ends that hold for all d proportions together; see `inference.simultaneous`."""
        answers, d = self.answers, len(self.answers.sums)
        if target == "table":
            q = joint_noise_quantiles(answers, alpha)
            ends = (answers.sums - q) / answers.n, (answers.sums + q) / answers.n
            return np.clip(ends[0], 0, 1), np.clip(ends[1], 0, 1)
        if method == "certified":
            beta = alpha / 2
            radius = joint_noise_quantiles(answers, beta) / answers.n
            single = beta + (alpha - beta) / d  # the sampling part by Bonferroni
            return proportion_confint(answers.means, radius, answers.n, alpha=single, beta=beta)
        low, high = np.zeros(d), np.ones(d)
        pieces = self.tables or tuple(slice(f, f + 1) for f in range(d))
        for piece in pieces:
            part = answers.part(piece)
            level = joint_level(part, alpha / len(pieces))
            low[piece], high[piece] = ProportionIntervals(part).conf_int(level, method, target)
        return low, high

    def conf_int(self, alpha: float, method: Method, target: Target) -> tuple[Floats, Floats]:
        """Lower and upper ends, two (d,) arrays in [0, 1]."""
        answers = self.answers
        low, high = np.zeros(len(answers.sums)), np.ones(len(answers.sums))
        for i, law in enumerate(answers.law_table):
            of_law = np.flatnonzero(answers.law_of == i)
            sums, n = answers.sums[of_law], answers.n
            if target == "table":  # the private count is T - Z, an integer from 0 to n
                q = law.quantile(alpha)
                ends = np.clip((sums - q) / n, 0, 1), np.clip((sums + q) / n, 0, 1)
            elif method == "certified":
                # For a sum of noises this scale only sets the split, which any beta may.
                beta = certificate_split(n, float(np.sqrt(law.variance / 2)), alpha)
                radius = law.quantile(beta) / n
                ends = proportion_confint(sums / n, radius, n, alpha=alpha, beta=beta)
            else:
                smoothed = sums + answers.uniforms[of_law]
                distinct, which = np.unique(smoothed, return_inverse=True)
                found = proportion_interval(distinct, n, law, alpha)
                ends = found[0][which], found[1][which]
            low[of_law], high[of_law] = ends
        return low, high

    def first(self, count: int) -> ProportionIntervals:
        """The same for the first few counts."""
        whole = tuple(piece for piece in self.tables if piece.stop <= count)
        exact = whole and whole[-1].stop == count
        return ProportionIntervals(self.answers.part(slice(0, count)), whole if exact else ())

    def pvalues(self, value: float, alternative: Alternative) -> Floats:
        """Exact p-values (d,) of: the proportion equals `value`."""
        answers = self.answers
        smoothed = answers.sums + answers.uniforms
        return np.array([
            proportion_pvalue(t, answers.n, value, answers.law(f), alternative).item()
            for f, t in enumerate(smoothed)
        ])  # fmt: skip


@dataclass(frozen=True)
class GroupIntervals:
    """Intervals and tests for the prevalence within a group; see `inference.conditional`.

    For the private table itself both methods give the same box, the certified one.
    """

    answers: Answers

    def simultaneous(self, alpha: float, method: Method, target: Target) -> tuple[Floats, Floats]:
        """The same as `conf_int`: there is one parameter."""
        return self.conf_int(alpha, method, target)

    @cached_property
    def group(self) -> GroupCounts:
        """The counts of the group."""
        return GroupCounts.of(self.answers)

    def conf_int(self, alpha: float, method: Method, target: Target) -> tuple[Floats, Floats]:
        """Lower and upper end, two (1,) arrays in [0, 1]."""
        group, n = self.group, self.answers.n
        if method == "certified" or target == "table":
            low, high = conditional_certified(
                group.yes, group.no, group.law_yes, group.law_no, alpha, n=n, target=target
            )
            return np.atleast_1d(low), np.atleast_1d(high)
        ends = conditional_interval(group, alpha, n=n)
        return np.array(ends[:1]), np.array(ends[1:])

    def first(self, count: int) -> GroupIntervals:
        """The same: there is one parameter."""
        return self

    def pvalues(self, value: float, alternative: Alternative) -> Floats:
        """P-value (1,) of: the prevalence equals `value`."""
        return np.array([conditional_pvalue(self.group, value, alternative, n=self.answers.n)])
