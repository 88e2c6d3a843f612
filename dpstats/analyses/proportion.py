"""One proportion, in the population or within a group.

Overall: the noisy count is Binomial(n, p) plus noise of a known law; both intervals come from that
law alone. Within a group, two disjoint conditions are measured (inside the group with and without
the trait), because the size of the group is private too.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from dpstats.analyses.base import Answering
from dpstats.answers import Answers
from dpstats.errors import RequestError
from dpstats.families.block import Family, Floats
from dpstats.families.cells import Cells
from dpstats.inference.binomial import (
    certificate_split,
    many_proportion_intervals,
    proportion_pvalue,
)
from dpstats.inference.checks import Alternative
from dpstats.inference.conditional import (
    conditional_certified,
    conditional_interval,
    conditional_pvalue,
)
from dpstats.inference.corrected import proportion_confint
from dpstats.inference.simultaneous import joint_level, joint_noise_quantiles
from dpstats.results import EstimateResult, Method, Target
from dpstats.schema import Schema


@dataclass(frozen=True)
class Proportion:
    """Proportion of rows for which a condition holds.

    Parameters
    ----------
    condition : str
        Such as ``"smoker == 'yes' and age >= 65"``.
    given : str, optional
        Prevalence within a group: the proportion of rows with `condition` among those with
        `given`.

    Examples
    --------
    >>> Proportion("smoker == 'yes'", given="age >= 65")
    Proportion(condition="smoker == 'yes'", given='age >= 65')
    """

    kind: ClassVar[str] = "proportion"

    condition: str
    given: str | None = None

    def family(self, schema: Schema) -> Family:
        """One condition; two disjoint ones within a group."""
        if self.given is None:
            return Family((Cells.condition(schema, self.condition),))
        texts = (
            f"({self.condition}) and ({self.given})",
            f"not ({self.condition}) and ({self.given})",
        )
        for text in (self.condition, self.given):
            Cells.condition(schema, text)  # so that an error names the text the user wrote
        with_trait, without = (Cells.condition(schema, text) for text in texts)
        if with_trait.columns == without.columns and not np.any(
            with_trait.cells.array != without.cells.array
        ):
            raise RequestError(f"{self.condition!r} says nothing within {self.given!r}")
        return Family((with_trait, without))

    def infer(self, release: Answering) -> EstimateResult:
        """Estimate with exact noise-aware and certified intervals."""
        family = self.family(release.schema)
        if self.given is None:
            return proportions_result(
                f"Proportion: {self.condition}",
                [self.condition],
                release.answers(family),
                str(release.budget),
                scalar=True,
            )
        answers = release.answers(family, disjoint=True)
        return _group_result(self, answers, str(release.budget))


def proportions_result(
    title: str,
    terms: list[str],
    answers: Answers,
    budget: str,
    *,
    scalar: bool = False,
    tables: tuple[slice, ...] = (),
) -> EstimateResult:
    """Result for the proportions of some measured conditions or cells.

    `tables` tells which terms are all cells of one table, for simultaneous intervals.
    """
    estimate = np.clip(answers.means, 0, 1)
    return EstimateResult(
        title=title,
        terms=terms,
        params=estimate,
        sampling_variance=estimate * (1 - estimate) / answers.n,
        privacy_variance=answers.noise_variances,
        intervals=ProportionIntervals(answers, tables),
        nobs=answers.n,
        budget=budget,
        scalar=scalar,
    )


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
                ends = many_proportion_intervals(smoothed, n, law, alpha)
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


def _group_result(analysis: Proportion, answers: Answers, budget: str) -> EstimateResult:
    with_trait, without = (float(total) for total in answers.sums)
    size = with_trait + without
    sd_noise = float(np.sqrt(answers.law(0).variance + answers.law(1).variance))
    drowned = size <= 2 * sd_noise
    estimate = float(np.clip(with_trait / size, 0, 1)) if size > 0 else 0.5
    size = min(max(size, 1.0), float(answers.n))
    noise = (1 - estimate) ** 2 * answers.law(0).variance + estimate**2 * answers.law(1).variance
    notes = [
        f"the group holds about {size:.0f} rows (noise sd {sd_noise:.0f} rows)",
        "a p-value is never below 0.001, the error allowed for the unknown size of the group",
    ]
    if drowned:
        notes.append("the group is small against the privacy noise: trust the interval only")
    return EstimateResult(
        title=f"Proportion: {analysis.condition}, given {analysis.given}",
        terms=[f"{analysis.condition} | {analysis.given}"],
        params=np.array([estimate]),
        sampling_variance=np.array([estimate * (1 - estimate) / size]),
        privacy_variance=np.array([noise / size**2]),
        intervals=GroupIntervals(answers),
        nobs=answers.n,
        budget=budget,
        scalar=True,
        notes=notes,
    )


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
    def _counts(self) -> tuple[float, float, float, float]:
        sums, uniforms = self.answers.sums, self.answers.uniforms
        return float(sums[0]), float(sums[1]), float(uniforms[0]), float(uniforms[1])

    def conf_int(self, alpha: float, method: Method, target: Target) -> tuple[Floats, Floats]:
        """Lower and upper end, two (1,) arrays in [0, 1]."""
        t_a, t_c, u_a, u_c = self._counts
        laws, n = (self.answers.law(0), self.answers.law(1)), self.answers.n
        if method == "certified" or target == "table":
            low, high = conditional_certified(t_a, t_c, *laws, alpha, n=n, target=target)
        else:
            low, high = conditional_interval(t_a, t_c, u_a, u_c, *laws, alpha, n=n)  # type: ignore[assignment]
        return np.atleast_1d(low), np.atleast_1d(high)

    def first(self, count: int) -> GroupIntervals:
        """The same: there is one parameter."""
        return self

    def pvalues(self, value: float, alternative: Alternative) -> Floats:
        """P-value (1,) of: the prevalence equals `value`."""
        laws, n = (self.answers.law(0), self.answers.law(1)), self.answers.n
        return np.array([conditional_pvalue(*self._counts, *laws, value, alternative, n=n)])
