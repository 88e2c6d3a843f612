"""Plans of weighted releases: the cap of weights, and what contrasts between units get.

All from public numbers, before any row is read; equations of docs/explanation/inference/survey.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from dpstats.analyses.base import Analysis
from dpstats.analyses.second_stage import second_stages
from dpstats.analyses.survey.estimand import Estimand, estimands_of, require_estimands
from dpstats.arrays import Floats
from dpstats.errors import RequestError
from dpstats.families.block import Block
from dpstats.families.contrasts import Contrasts
from dpstats.families.group_moments import GroupMoments
from dpstats.families.pilot_score import PilotScore
from dpstats.families.tables.partition import Partition
from dpstats.measured.strategy import PlannedBlock
from dpstats.privacy.budget import Budget
from dpstats.privacy.neighbours import Neighbours
from dpstats.results.base import Result
from dpstats.schema import Design, Schema
from dpstats.schema.design import Pairs

USUAL_ROWS = 10_000  # that a plan without a number of rows is made for
USUAL_DEFF = 2.0  # design effect of clusters that contrasts are planned for
_SHARE = 0.3  # that a cap is chosen for
_BIAS = 0.2  # of the share of weights above the cap, in standard deviations of what is estimated
_RESIDUAL = 0.25  # standard deviation of residuals in unit scale, that contrasts are planned for
_FARTHER = 1.5  # factor by which a declared design effect may be wrong
_MOST_CONTRASTS = 300
_MOST_FUNCTIONS = 50_000
_LEVEL = 0.975


def check_design(
    schema: Schema, analyses: Mapping[str, Analysis[Result]], **others: object
) -> None:
    """Refuse what a plan with a survey design cannot have.

    Raises
    ------
    RequestError, SchemaError
    """
    design = schema.design
    if design is None:
        return
    design.check_lonely()
    for name, analysis in analyses.items():
        require_estimands(name, analysis)
    if second_stages(analyses, schema):
        raise RequestError("stages=2 is not available with a survey design; leave it out")
    for name, given in others.items():
        if given:
            raise RequestError(f"{name}= is not available with a survey design; leave it out")
    if schema.totals:
        raise RequestError(
            "public totals count rows, and a survey design weights them: leave the totals out"
        )


def with_cap(
    schema: Schema, budget: Budget, neighbours: Neighbours, n: int | None, analyses: int
) -> Schema:
    """Schema whose design has a cap, the one of least planned error if none is declared."""
    design = schema.design
    if design is None or design.cap is not None:
        return schema
    return replace(
        schema, design=design.with_cap(best_cap(design, budget, neighbours, n, analyses))
    )


def cap_errors(
    design: Design, caps: Floats, budget: Budget, neighbours: Neighbours, n: int | None,
    analyses: int,
) -> Floats:  # fmt: skip
    """Planned errors of a share for some caps, as root mean squares of noise and capping.

    Weights are taken to be lognormal with the declared mean and coefficient of variation (eq.
    cap-rule);
    sampling error, which hardly depends on the cap, is left out.
    """
    from scipy import stats

    rows = n or USUAL_ROWS
    cv = design.cv or 0.0
    sigma = max(np.sqrt(np.log1p(cv**2)), 1e-9)
    u = caps / design.mean
    # shares of the total weight and of rows above a cap
    heavy = stats.norm.sf((np.log(u) - sigma**2 / 2) / sigma)
    many = stats.norm.sf((np.log(u) + sigma**2 / 2) / sigma)
    cut = np.maximum(heavy - u * many, 0)
    one = replace(neighbours, copies=1)
    law = budget.law(budget.natural_scale(_TWO.multiplier(budget, one, budget.total / analyses)))
    noise = law.variance * u**2 * (_SHARE**2 + (1 - _SHARE) ** 2) / (rows * (1 - cut)) ** 2
    bias = _BIAS * cut * np.sqrt(_SHARE * (1 - _SHARE))
    return np.asarray(np.sqrt(noise + bias**2))


def best_cap(
    design: Design, budget: Budget, neighbours: Neighbours, n: int | None, analyses: int
) -> float:
    """The cap of the least planned error, in steps of 5% from the mean weight to the largest."""
    highest = design.high or 50 * design.mean
    steps = int(np.ceil(np.log(highest / design.mean) / np.log(1.05)))
    caps = np.minimum(design.mean * 1.05 ** np.arange(max(steps, 0) + 1), highest)
    errors = cap_errors(design, caps, budget, neighbours, n, analyses)
    return float(f"{caps[int(np.argmin(errors))]:.4g}")


@dataclass(frozen=True)
class ContrastPlan:
    """Division of what a block gets between its totals and its contrasts.

    Attributes
    ----------
    count : int
        Number of contrasts; 0 where a declared design effect serves better.
    share : float
        Part of the amount for the contrasts.
    width : float
        Planned width of an interval, over that of one without noise whose variance is known.
    degrees_of_freedom : float
    """

    count: int
    share: float
    width: float
    degrees_of_freedom: float


def plan_contrasts(
    x: float, ratio: float, power: int, pairs: int, most: int, deff_width: float | None = None
) -> ContrastPlan:
    """Number of contrasts and their share, for the shortest planned interval (eq. planned-width).

    Parameters
    ----------
    x : float
        Variance of the noise on an estimate over its sampling variance, if its totals get all.
    ratio : float
        Variance of the noise on a linearised contrast that gets all, over that on the estimate.
    power : int
        Of a share of the amount in the noise variance: 2 for Laplace noise, 1 for Gaussian.
    pairs, most : int
        Number of pairs of units, and the largest number of contrasts.
    deff_width : float, optional
        Planned width with a declared design effect.
    """
    from scipy import stats

    counts = np.unique(np.geomspace(1, max(min(pairs, most), 1), 60).astype(int))[:, np.newaxis]
    shares = np.arange(0.1, 0.96, 0.05)
    noise = x / (1 - shares) ** power
    spread = counts * ratio * x / shares**power
    df = np.maximum(counts * ((1 + noise) / (1 + spread)) ** 2, 1)
    widths = stats.t.ppf(_LEVEL, df) * np.sqrt(1 + noise) / stats.norm.ppf(_LEVEL)
    j, s = np.unravel_index(np.argmin(widths), widths.shape)
    width = float(widths[j, s])
    if deff_width is not None and deff_width < width:
        return ContrastPlan(0, 0.0, deff_width, np.inf)
    return ContrastPlan(int(counts[j, 0]), float(round(shares[s], 2)), width, float(df[j, s]))


def with_contrasts(
    planned: list[PlannedBlock], analyses: Mapping[str, Analysis[Result]], schema: Schema,
    budget: Budget, neighbours: Neighbours, n: int | None,
) -> tuple[list[PlannedBlock], list[PlannedBlock]]:  # fmt: skip
    """Blocks with a part of what they get, and contrasts of their functions with the rest.

    Contrasts of scores at a pilot, in equal parts, where these serve what a block is for.
    """
    design = schema.design
    assert design is not None
    estimands = [one for analysis in analyses.values() for one in estimands_of(analysis, schema)]
    kept, contrasts = [], []
    for p in planned:
        served = [one for one in estimands if _follows(p.block, one.block)]
        scores = [e.contrasted for e in served if isinstance(e.contrasted, PilotScore)]
        others = [one for one in served if not isinstance(one.contrasted, PilotScore)]
        bases: list[Block] = list(dict.fromkeys(scores))
        bases += [contrasted(p.block, others)] if others or not bases else []
        amount = p.block.cost(budget, neighbours, p.multiplier)
        measured = _in_better_basis(p.block, budget, neighbours)
        by_units = any(one.by_units for one in served)
        variances = _noise_and_sampling(
            p.block, measured, bases[0], design, budget, neighbours, amount, n, by_units=by_units
        )
        found = _planned(variances, bases, design, budget, by_units=by_units)
        share = Fraction(0) if found is None else Fraction(found.share).limit_denominator(100)
        multiplier = measured.multiplier(budget, neighbours, amount * (1 - share))
        kept.append(replace(p, block=measured, multiplier=multiplier))
        for base in bases if found is not None and found.count else ():
            assert found is not None
            dealt = contrasts_of(base, design.pairs, found.count)
            multiplier = dealt.multiplier(budget, neighbours, amount * share / len(bases))
            contrasts.append(PlannedBlock(dealt, multiplier, "contrasts"))
    return kept, contrasts


def contrasted(block: Block, estimands: Sequence[Estimand]) -> Block:
    """What contrasts of a measured block are of: sums of its functions, if these serve all."""
    served = [e for e in estimands if _follows(block, e.block)]
    bases = {e.contrasted for e in served if e.block == block and e.contrasted is not None}
    for base in bases:
        if all(_follows(base, e.contrasted or e.block) for e in served):
            return base
    return block


def _follows(block: Block, wanted: Block) -> bool:
    terms = block.terms_of(wanted, complements=False)
    return terms is not None and bool(np.all(terms))


def _in_better_basis(block: Block, budget: Budget, neighbours: Neighbours) -> Block:
    """Two sets of cells as their union and difference, where a share has half the noise then."""
    halved = neighbours.unit == "replace" and budget.noise == "laplace"
    two = isinstance(block, Partition) and block.size == 2 and not block.rotated
    return block.rotate() if halved and two else block  # type: ignore[attr-defined]


def contrasts_of(block: Block, pairs: Pairs, count: int) -> Contrasts:
    """Contrasts of a block; pairs that stand for three units are dealt to some of their own."""
    count = min(count, pairs.count)
    triples = 0
    if pairs.triples:
        triples = min(max(round(count * pairs.triples / pairs.count), 1), pairs.triples)
    plain = min(max(count - triples, 1), pairs.plain)
    return Contrasts(block, (pairs.plain, plain), (pairs.triples, triples))


def _noise_and_sampling(
    block: Block, measured: Block, base: Block, design: Design, budget: Budget,
    neighbours: Neighbours, amount: Fraction, n: int | None, *, by_units: bool,
) -> tuple[float, float, float]:  # fmt: skip
    """Planned variances of an estimate: its noise, that of a contrast, and the sampling error.

    Of a share of one of the functions, between which rows are even, or of the coefficient of a
    trait on their cells; of the mean of a number; or of a score on numbers that vary over half of
    their range, with a residual of a quarter.
    """
    scale = budget.natural_scale(measured.multiplier(budget, neighbours, amount))
    signed = budget.natural_scale(Contrasts(base, (1, 1)).multiplier(budget, neighbours, amount))
    noise, of_contrast = (max(budget.law(each).variance, 1e-9) for each in (scale, signed))
    rows = (n or USUAL_ROWS) * USUAL_DEFF * (1 + (design.cv or 0.5) ** 2) * design.coded_mean**2
    if isinstance(base, PilotScore):
        clip = 3 * _RESIDUAL
        return 1.2 * noise, of_contrast * clip**2, rows * 0.5 * _RESIDUAL**2
    if isinstance(base, GroupMoments):
        return 2 * noise, 2 * of_contrast, rows / len(base.groups) * _RESIDUAL**2
    if by_units:
        of_trait = (_SHARE**2 + (1 - _SHARE) ** 2) * base.size / 2
        return of_trait * noise, of_trait * of_contrast, rows * _SHARE * (1 - _SHARE)
    cells = max(block.size, 2)
    share = 1 / cells
    factor = (1 - share) ** 2 + (cells - 1) * share**2
    halved = factor if measured == block else factor / 2
    coarser = base.size / block.size
    return halved * noise, factor * of_contrast * coarser, rows * share * (1 - share)


def _planned(
    variances: tuple[float, float, float], bases: Sequence[Block], design: Design, budget: Budget,
    *, by_units: bool,
) -> ContrastPlan | None:  # fmt: skip
    """What contrasts of some blocks are planned to get; None without units to compare."""
    if not design.has_contrasts or not design.pairs.count:
        if by_units:
            raise RequestError(
                "regressions need units with which to compare others: a design effect of shares "
                "says nothing about coefficients; declare unit= in the design, with units of "
                "which two are in one stratum, or leave the regressions out"
            )
        return None
    noise, of_contrast, sampling = variances
    power = 2 if budget.noise == "laplace" else 1
    x, ratio = noise / sampling, of_contrast / noise * len(bases) ** power
    units = design.number_of_units
    pairs = design.pairs.count if design.listed_units else (units or 2 * _MOST_CONTRASTS) // 2
    largest = max(base.size for base in bases)
    most = max(min(_MOST_CONTRASTS, _MOST_FUNCTIONS // largest), 1)
    deff_width = None if design.deff is None or by_units else float(np.sqrt(_FARTHER + x))
    return plan_contrasts(x, ratio, power, pairs, most, deff_width)


_TWO = Partition((), (b"\x01",), ("one set",))
