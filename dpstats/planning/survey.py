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
from dpstats.analyses.survey.estimand import (
    Estimand,
    basis_of,
    estimands_of,
    require_estimands,
)
from dpstats.arrays import Floats
from dpstats.checks import counted
from dpstats.errors import RequestError
from dpstats.families.block import Block
from dpstats.families.contrasts import Contrasts
from dpstats.families.group_moments import GroupMoments, PairMoments
from dpstats.families.pilot_score import PilotScore
from dpstats.families.tables.cells import Partition
from dpstats.measured.strategy import PlannedBlock, Strategy
from dpstats.privacy.budget import Budget
from dpstats.privacy.neighbours import Neighbours
from dpstats.results.base import Result
from dpstats.schema import Design, Schema
from dpstats.schema.design import STEPS, Pairs

USUAL_ROWS = 10_000  # that a plan without a number of rows is made for
USUAL_DEFF = 2.0  # design effect of clusters that contrasts are planned for
_SHARE = 0.3  # that a cap is chosen for
_RARER = 0.15  # that contrasts are planned for: common ones lose 1% of width, rare ones win 20%
_BIAS = 0.3  # of the share of weights above the cap, in standard deviations of what is estimated
_RESIDUAL = 0.25  # standard deviation of residuals in unit scale, that contrasts are planned for
_FARTHER = 1.5  # factor by which a declared design effect may be wrong
_MOST_CONTRASTS = 300
_FEWEST_UNITS = 20  # that contrasts are planned for where it is not known how many there are
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
    if design.has_contrasts and not design.pairs.count and design.deff is None:
        raise RequestError(
            "no stratum of the design has two units, so no sampling error can be estimated; "
            "declare lonely='collapse' or 'adjust', or deff=, a public design effect"
        )
    for name, analysis in analyses.items():
        require_estimands(name, analysis)
    if twice := second_stages(analyses, schema):
        raise RequestError(
            f"analysis {next(iter(twice))!r}: stages=2 is not available with a survey design; "
            "leave it out"
        )
    for name, given in others.items():
        if given:
            raise RequestError(f"{name}= is not available with a survey design; leave it out")
    if any(total.of == "table" for total in schema.totals):
        raise RequestError(
            "public totals of the table count rows, and a survey design weights them: declare what "
            "weights add up to, of='population', or leave these totals out"
        )
    if schema.totals and not design.is_uncut:
        highest = "no high=" if design.high is None else f"high={design.high:.10g}"
        cap = "none" if design.cap is None else f"{design.cap:.10g}"
        raise RequestError(
            "public totals of the population are used where no weight is above the cap, and the "
            f"design has {highest} and cap={cap}: declare high=, the largest weight, and a cap of "
            "at least that, or leave the totals out"
        )


def check_totals_of_persons(schema: Schema, person: str | None) -> None:
    """Refuse public totals to which weights do not add up, since those of persons are scaled.

    After a cap is chosen, on which it depends whether they are used.

    Raises
    ------
    RequestError
    """
    design = schema.design
    if design is None or person is None:
        return
    if design.total is not None or (schema.totals and design.is_uncut):
        raise RequestError(
            f"weights of a person in {person!r} may be scaled down, so that they do not add up to "
            "public totals: leave out the totals of the schema and of the design"
        )


def with_cap(
    schema: Schema, budget: Budget, neighbours: Neighbours, n: int | None, analyses: int
) -> Schema:
    """Schema whose design has a cap, the one of least planned error if none is declared."""
    design = schema.design
    if design is None or design.cap is not None:
        return schema
    return replace(
        schema, design=replace(design, cap=best_cap(design, budget, neighbours, n, analyses))
    )


def cap_errors(
    design: Design, caps: Floats, budget: Budget, neighbours: Neighbours, n: int | None,
    analyses: int,
) -> Floats:  # fmt: skip
    """Planned errors of a share for some caps: sampling, noise and bias (eq. cap-rule).

    Root mean squares, where those of sampling and noise are the half width of an interval over the
    normal quantile. Weights are taken to be lognormal with the declared mean and coefficient of
    variation.
    """
    amount, neighbours = budget.total / analyses, replace(neighbours, copies=STEPS)
    errors = []
    for cap in caps:
        capped = replace(design, cap=float(cap))
        guess = Guess.of(_TWO, amount, capped, budget, neighbours, n, share=_SHARE)
        planned = guess.plan(capped, 1)
        doubt = _FARTHER - 1 if design.has_contrasts and not planned.count else 0.0
        variance = (planned.width**2 + doubt) * guess.sampling**2
        bias = _BIAS * guess.cut * np.sqrt(_SHARE * (1 - _SHARE))
        errors.append(np.sqrt(variance + bias**2))
    return np.array(errors)


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
    x: float, ratio: float, power: int, pairs: int, most: int, *, declared: bool = False
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
    declared : bool
        Whether there is a design effect instead, which may be wrong by a factor of `_FARTHER`.
    """
    if min(pairs, most) < 1:
        return ContrastPlan(0, 0.0, float(np.sqrt(1 + x)), np.inf)
    counts = np.unique(np.geomspace(1, min(pairs, most), 60).astype(int))[:, np.newaxis]
    shares = np.arange(0.1, 0.96, 0.05)
    noise, spread = x / (1 - shares) ** power, counts * ratio * x / shares**power
    widths, df = _widths(noise, spread, counts)
    j, s = np.unravel_index(np.argmin(widths), widths.shape)
    width = float(widths[j, s])
    if declared and np.sqrt(_FARTHER + x) < width:
        return ContrastPlan(0, 0.0, float(np.sqrt(1 + x)), np.inf)
    return ContrastPlan(int(counts[j, 0]), float(round(shares[s], 2)), width, float(df[j, s]))


def _widths(
    noise: Floats | float, spread: Floats | float, counts: Floats | float
) -> tuple[Floats, Floats]:
    """Planned widths, and their degrees of freedom (eq. planned-width), for x_1, x_2 and J."""
    from scipy import stats

    df = np.clip(counts * ((1 + noise) / (1 + spread)) ** 2, 1, counts)
    return stats.t.ppf(_LEVEL, df) * np.sqrt(1 + noise) / stats.norm.ppf(_LEVEL), df


def with_contrasts(
    planned: list[PlannedBlock], analyses: Mapping[str, Analysis[Result]], schema: Schema,
    budget: Budget, neighbours: Neighbours, n: int | None,
) -> tuple[list[PlannedBlock], list[PlannedBlock]]:  # fmt: skip
    """Blocks with a part of what they get, and contrasts of their functions with the rest.

    Contrasts of scores at a pilot, in equal parts, where these serve what a block is for.
    """
    design = schema.design
    assert design is not None
    kept, contrasts, mains = [], [], [p.block for p in planned]
    for p in planned:
        amount = p.block.cost(budget, neighbours, p.multiplier)
        bases, by_units = _contrasted(p.block, mains, analyses, schema)
        guess = Guess.of(p.block, amount, design, budget, neighbours, n, bases, by_units=by_units)
        found = guess.plan(design, max(base.size for base in bases), by_units=by_units)
        share = Fraction(found.share).limit_denominator(100)
        block = _in_better_basis(p.block, budget, neighbours)
        rest = block.multiplier(budget, neighbours, amount * (1 - share))
        kept.append(replace(p, block=block, multiplier=rest))
        for base in bases if found.count else ():
            dealt = contrasts_of(base, design.pairs, found.count)
            multiplier = dealt.multiplier(budget, neighbours, amount * share / len(bases))
            contrasts.append(PlannedBlock(dealt, multiplier, "contrasts"))
    return kept, contrasts


def divide_again(strategy: Strategy, analyses: Mapping[str, Analysis[Result]]) -> Strategy:
    """The strategy with the contrasts that are planned for its budget and number of rows."""
    schema, budget, neighbours = strategy.schema, strategy.budget, strategy.neighbours
    if schema.design is None:
        return strategy
    before, whole = list(strategy.contrasts), []
    mains = [_in_cells(p.block) for p in strategy.measured]
    for p, block in zip(strategy.measured, mains, strict=True):
        bases, _ = _contrasted(block, mains, analyses, schema)
        own = [c for c in before if isinstance(c.block, Contrasts) and c.block.base in bases]
        before = [c for c in before if c not in own]
        costs = (one.block.cost(budget, neighbours, one.multiplier) for one in (p, *own))
        multiplier = block.multiplier(budget, neighbours, sum(costs, Fraction(0)))
        whole.append(replace(p, block=block, multiplier=multiplier))
    kept, contrasts = with_contrasts(whole, analyses, schema, budget, neighbours, strategy.n)
    others = [p for p in strategy.blocks if p.role not in ("family", "contrasts")]
    return replace(strategy, blocks=(*kept, *contrasts, *others))


def _contrasted(
    block: Block, mains: Sequence[Block], analyses: Mapping[str, Analysis[Result]], schema: Schema
) -> tuple[list[Block], bool]:
    """Functions whose contrasts are measured for a block, and whether only units serve it.

    Scores at a pilot of what it serves, and sums of its functions if these serve all others.
    """
    every = [estimand for a in analyses.values() for estimand in estimands_of(a, schema)]
    served = _served(block, mains, every)
    scores = [e.contrasted for e in served if isinstance(e.contrasted, PilotScore)]
    others = [e for e in served if not isinstance(e.contrasted, PilotScore)]
    bases: list[Block] = list(dict.fromkeys(scores))
    if others or not bases:
        coarser = {e.contrasted for e in others if e.block == block and e.contrasted is not None}
        serving = (
            base for base in coarser if all(_follows(base, e.contrasted or e.block) for e in others)
        )
        bases.append(next(serving, block))
    return bases, any(estimand.by_units for estimand in served)


def _served(block: Block, mains: Sequence[Block], estimands: Sequence[Estimand]) -> list[Estimand]:
    """Estimands that a measured block serves: of its functions, or that follow from it alone."""
    return [
        one
        for one in estimands
        if one.block == block or (one.block not in mains and _follows(block, one.block))
    ]


def _follows(block: Block, wanted: Block) -> bool:
    return basis_of(block, wanted) is not None


def contrasts_of(block: Block, pairs: Pairs, count: int) -> Contrasts:
    """Contrasts of a block; pairs that stand for three units are dealt to some of their own."""
    count = min(count, pairs.count)
    triples = 0
    if pairs.triples:
        triples = min(max(round(count * pairs.triples / pairs.count), 1), pairs.triples)
    plain = min(max(count - triples, 1), pairs.plain)
    return Contrasts(block, (pairs.plain, plain), (pairs.triples, triples))


@dataclass(frozen=True)
class Guess:
    """Noise and sampling errors of a share that a plan expects, from public numbers alone.

    Attributes
    ----------
    x, ratio : float
        See `plan_contrasts`.
    power : int
    sampling : float
        Standard deviation of the sampling error.
    cut : float
        Share of the weight that is above the cap.
    """

    x: float
    ratio: float
    power: int
    sampling: float
    cut: float

    @classmethod
    def of(
        cls, block: Block, amount: Fraction, design: Design, budget: Budget,
        neighbours: Neighbours, n: int | None, bases: Sequence[Block] = (), *,
        by_units: bool = False, share: float = _RARER,
    ) -> Guess:  # fmt: skip
        """For functions of a block with contrasts of them, which get an amount together.

        For shares of one of them; where these are not what is estimated (`by_units`) for the
        coefficient of a trait on their cells; for the mean of a number; or for a score on numbers
        that vary over half of their range. Contrasts are in equal parts of `bases`, if these are
        other functions.
        """
        cut, total, squares = _capped_weights(design)
        base = bases[0] if bases else block
        deff = USUAL_DEFF * squares / total**2
        if design.deff is not None and not by_units:
            deff = design.deff
        rows = n or USUAL_ROWS
        main = _in_better_basis(block, budget, neighbours)
        noise, signed = (
            max(budget.law(budget.natural_scale(scale)).variance, 1e-9)
            for one in (main, Contrasts(base, (1, 1)))
            for scale in (one.multiplier(budget, neighbours, amount),)
        )
        of_totals, of_contrasts, spread = _factors(block, main, base, share, by_units=by_units)
        power = 2 if budget.noise == "laplace" else 1
        of_estimate = noise * (design.unit_weight / (design.mean * total * rows)) ** 2 * of_totals
        return cls(
            x=of_estimate * rows / (deff * spread),
            ratio=of_contrasts / of_totals * signed / noise * max(len(bases), 1) ** power,
            power=power,
            sampling=float(np.sqrt(deff * spread / rows)),
            cut=cut,
        )

    def plan(self, design: Design, functions: int, *, by_units: bool = False) -> ContrastPlan:
        """The contrasts of a block of some functions; none without units to compare.

        Raises
        ------
        RequestError
            Then, where a design effect of shares does not serve.
        """
        pairs = design.pairs.count if design.has_contrasts else 0
        if by_units and not pairs:
            raise RequestError(
                "regressions need units with which to compare others: a design effect of shares "
                "says nothing about coefficients; declare unit= in the design, with units of "
                "which two are in one stratum, or leave the regressions out"
            )
        if pairs and not design.listed_units:
            pairs = (design.number_of_units or _FEWEST_UNITS) // 2
        most = max(min(_MOST_CONTRASTS, _MOST_FUNCTIONS // functions), 1)
        declared = design.deff is not None and not by_units
        return plan_contrasts(self.x, self.ratio, self.power, pairs, most, declared=declared)


def _factors(
    block: Block, main: Block, base: Block, share: float, *, by_units: bool
) -> tuple[float, float, float]:
    """Factors of noise in the variance of an estimate and of a contrast, and variance of a row."""
    if isinstance(base, PilotScore) and base.link == "logit":
        of_outcome = _SHARE**2 + (1 - _SHARE) ** 2
        return of_outcome * block.size / 4, 1.0, _SHARE * (1 - _SHARE) / 2
    if isinstance(base, PilotScore) and base.link == "log":  # in units of the largest response
        return block.size / 4, 1.0, (_RESIDUAL / 2) ** 2 / 2
    if isinstance(base, PilotScore):
        return 1.2, (3 * _RESIDUAL) ** 2, 0.5 * _RESIDUAL**2
    if isinstance(base, GroupMoments):
        return 2.0, 2.0, _RESIDUAL**2 / len(base.groups)
    if isinstance(base, PairMoments):  # of y - r x with both of like spread: nine parts
        return 9.0, 9.0, _RESIDUAL**2 / len(base.groups)
    if by_units:
        of_trait = (_SHARE**2 + (1 - _SHARE) ** 2) * base.size / 2
        return of_trait, of_trait, _SHARE * (1 - _SHARE)
    cells = max(block.size, 2)
    share = min(share, 1 / cells)
    per_row = (1 - share) ** 2 + (cells - 1) * share**2  # noise on cells in that on a share
    halved = 0.25 + (0.5 - share) ** 2 if main != block else per_row
    return halved, per_row * base.size / block.size, share * (1 - share)


def _in_better_basis(block: Block, budget: Budget, neighbours: Neighbours) -> Block:
    """Two sets of cells as their union and difference, where a share has half the noise then."""
    halved = neighbours.unit == "replace" and budget.noise == "laplace"
    two = isinstance(block, Partition) and block.size == 2 and not block.rotated
    return block.rotate() if halved and two else block  # type: ignore[attr-defined]


def _in_cells(block: Block) -> Block:
    """Inverse of `_in_better_basis`."""
    return block.plain if isinstance(block, Partition) else block


def _capped_weights(design: Design) -> tuple[float, float, float]:
    """Weight above the cap, capped weights and their squares, as means over lognormal weights.

    All over the mean weight (or its square).
    """
    from scipy import stats

    assert design.cap is not None
    sigma = max(np.sqrt(np.log1p((0.5 if design.cv is None else design.cv) ** 2)), 1e-9)
    u = design.cap / design.mean
    if design.high is not None and design.cap >= design.high:
        return 0.0, 1.0, float(np.exp(sigma**2))
    # parts of the zeroth, first and second moment that are of weights above the cap
    above = [stats.norm.sf((np.log(u) - (k - 0.5) * sigma**2) / sigma) for k in range(3)]
    cut = float(max(above[1] - u * above[0], 0))
    return cut, 1 - cut, float(np.exp(sigma**2) * (1 - above[2]) + u**2 * above[0])


def capped_mean(design: Design) -> float:
    """Mean of capped weights that is expected, in steps."""
    return _capped_weights(design)[1] * design.mean / design.unit_weight


def expected_sampling(strategy: Strategy) -> list[tuple[Block, Floats]]:
    """Blocks that have contrasts, with root mean squares (J,) of these in a survey of one row.

    They are of a function of variance one over rows. Squares times what they count add up to the
    sampling variance of its total that a plan expects.
    """
    return [
        (p.block.base, _deviations(p.block, strategy.schema.design))
        for p in strategy.contrasts
        if isinstance(p.block, Contrasts) and strategy.schema.design is not None
    ]


def _deviations(contrasts: Contrasts, design: Design) -> Floats:
    several = (contrasts.pairs, contrasts.triples)
    units = 2 * contrasts.pairs[0] + 3 * contrasts.triples[0]
    rows = [2 * pairs / units / max(count, 1) for pairs, count in several]
    _, mean, squares = _capped_weights(design)
    variance = squares * USUAL_DEFF if design.deff is None else design.deff * mean**2
    variances = np.repeat(rows, [count for _, count in several]) * variance
    return np.asarray(np.sqrt(variances) * design.mean / design.unit_weight)


def contrast_plans(
    strategy: Strategy, analyses: Mapping[str, Analysis[Result]], n: int | None
) -> dict[str, ContrastPlan]:
    """Plans of every analysis of a survey at n rows; of its widest estimand, if of several."""
    design, budget, neighbours = strategy.schema.design, strategy.budget, strategy.neighbours
    assert design is not None
    found: dict[str, ContrastPlan] = {}
    estimands = [
        (name, e) for name, a in analyses.items() for e in estimands_of(a, strategy.schema)
    ]

    def guess(block: Block, base: Block, planned: PlannedBlock, by_units: bool) -> Guess:
        amount = planned.block.cost(budget, neighbours, planned.multiplier)
        return Guess.of(block, amount, design, budget, neighbours, n, [base], by_units=by_units)

    for name, e in estimands:
        main = _serving(strategy.measured, e.block, budget, neighbours)
        assert main is not None
        block = (
            e.block if _in_better_basis(e.block, budget, neighbours) == main.block else main.block
        )
        p = _serving(strategy.contrasts, e.contrasted or e.block, budget, neighbours)
        if p is None:
            x = guess(block, block, main, e.by_units).x
            planned = ContrastPlan(0, 0.0, float(np.sqrt(1 + x)), np.inf)
        else:
            assert isinstance(p.block, Contrasts)
            of_contrasts = guess(block, p.block.base, p, e.by_units)
            spread = p.block.count * of_contrasts.ratio * of_contrasts.x
            x = guess(block, p.block.base, main, e.by_units).x
            width, df = _widths(x, spread, p.block.count)
            costs = [one.block.cost(budget, neighbours, one.multiplier) for one in (main, p)]
            share = float(costs[1] / sum(costs))
            planned = ContrastPlan(p.block.count, share, float(width), float(df))
        if name not in found or planned.width > found[name].width:
            found[name] = planned
    return found


def _serving(
    planned: Sequence[PlannedBlock], wanted: Block, budget: Budget, neighbours: Neighbours
) -> PlannedBlock | None:
    """The first that measures a block, or contrasts of it, or what it follows from."""
    for one in planned:
        block = one.block.base if isinstance(one.block, Contrasts) else one.block
        if _follows(block, wanted):
            return one
    return None


def survey_lines(strategy: Strategy, analyses: Mapping[str, Analysis[Result]], n: int) -> list[str]:
    """Lines of a preview: planned error against cap, and what contrasts get by analysis."""
    design = strategy.schema.design
    if design is None:
        return []
    assert design.cap is not None
    neighbours = strategy.neighbours
    caps = np.array([design.cap, max(design.cap / 2, design.mean / 4), 2 * design.cap])
    errors = cap_errors(design, caps, strategy.budget, neighbours, n, len(analyses))
    at, half, twice = (f"{error:.2g}" for error in errors)
    lines = [
        f"Cap of the weights {design.cap:.4g}: planned error of a share {at} from sampling, "
        f"noise and capping; at half this cap {half}, at twice {twice}"
    ]
    named: dict[str, list[str]] = {}
    for name, planned in contrast_plans(strategy, analyses, n).items():
        if not planned.count:
            source = f"the declared design effect {design.deff:.10g}"
        else:
            source = (f"{counted(planned.count, 'contrast')} of {design.unit} with "
                      f"{planned.share:.0%} of its share")  # fmt: skip
        text = f"{source}, intervals planned {planned.width:.2f} times as wide as without noise"
        named.setdefault(text, []).append(name)
    return lines + [f"{', '.join(names)}: {text}" for text, names in named.items()]


_TWO = Partition((), (b"\x01",), ("one set",))
