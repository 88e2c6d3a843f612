"""Division of a plan: the blocks of all analyses, merged, with their parts of the budget."""

from __future__ import annotations

import operator
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from typing import Any, Literal, get_args

from dpstats.analyses.base import Analysis, combines
from dpstats.analyses.second_stage import at_pilots, second_stages
from dpstats.checks import check_choice, did_you_mean, first_few, short
from dpstats.errors import RequestError
from dpstats.families.block import Block, Family
from dpstats.families.merging import BlockIndex, merge, with_other_rows
from dpstats.families.persons import PersonProducts
from dpstats.families.pilot_score import PilotScore
from dpstats.families.tables.cells import ROWS, Indicator, Partition, Table
from dpstats.measured.contents import lacking
from dpstats.measured.measurements import Measurements
from dpstats.measured.strategy import PlannedBlock, Strategy
from dpstats.planning.table_split import TableSplit, Weights
from dpstats.privacy.budget import Budget
from dpstats.privacy.laws import POWERS
from dpstats.privacy.neighbours import Neighbours, Sensitivity
from dpstats.privacy.rationals import read_rational, total_of
from dpstats.results.base import Result
from dpstats.schema import Schema

Allocation = Literal["equal", "optimal"]
_WIDER = Fraction(103, 100)  # the most by which noise may grow where all rows are of one kind


@dataclass(frozen=True)
class Split:
    """A rule for the noise multiplier of every block.

    Equal noise in natural units, as in BL24 (eq. equal-split of
    docs/explanation/privacy/privacy.md), times r for blocks that tolerate more noise
    (`noise_factor`); or the least sum of the noise variances over r^2 over all functions.
    Without r that is sum_b d_b v_b for blocks of d_b functions, where block b spends e_b and
    v_b = 2 (D1_b / e_b)^2 (Laplace) or v_b = D2_b / (2 e_b) (Gaussian); by Lagrange's rule
    e_b is proportional to (d_b D1_b^2)^(1/3) or (d_b D2_b)^(1/2): large tables get more.
    Noise r times as large is the same as a sensitivity D1_b / r, D2_b / r^2. A share of an
    analysis is spread over its blocks in proportion to their cost; a block that several
    analyses need takes its largest part.
    """

    asked: Mapping[str, Sequence[Block]]  # by the name of the analysis
    budget: Budget
    amount: Fraction  # of the budget, to spend on the blocks exactly
    neighbours: Neighbours
    allocation: Allocation = "equal"
    shares: Mapping[str, Fraction] | None = None

    def __post_init__(self) -> None:
        check_choice("allocation", self.allocation, get_args(Allocation))
        if self.shares is not None and self.allocation != "equal":
            raise RequestError(
                "give shares or allocation='optimal', not both: each decides the split"
            )

    @property
    def complements(self) -> bool:
        """True if conditions follow from their complements: the number of rows is public."""
        return self.neighbours.unit == "replace" and self.neighbours.copies == 1

    def __call__(
        self, blocks: Sequence[Block], chosen: Iterable[int] | None = None
    ) -> list[Fraction]:
        """Noise multipliers of all blocks, which spend the amount exactly, or of some by number."""
        numbers = range(len(blocks)) if chosen is None else list(chosen)
        if self.shares is None and self.allocation == "equal":
            # Then every multiplier is the total over the amount, times the factor.
            prices = [relative_price([blocks[i]], self.budget, self.neighbours) for i in numbers]
            total = relative_price(blocks, self.budget, self.neighbours)
        else:
            optimal = self.shares is None
            parts = [self._optimal(b) for b in blocks] if optimal else self._by_shares(blocks)
            prices, total = [parts[i] for i in numbers], total_of(parts)
        return [
            blocks[i].multiplier(self.budget, self.neighbours, self.amount * part / total)
            for i, part in zip(numbers, prices, strict=True)
        ]

    def leave_rest(
        self, blocks: Sequence[Block], weights: Sequence[float], variances: float
    ) -> list[Fraction]:
        """Multipliers of blocks that leave a part of the amount, for the least sum of variances.

        `variances` is the weighted sum for what gets the rest, if it spends one (eq. part-of-tables
        of docs/explanation/inference/overlapping-tables.md).
        """
        parts = [self._optimal(each, weight) for each, weight in zip(blocks, weights, strict=True)]
        rest = self._least(Fraction(variances / (1 if self.budget.noise == "gaussian" else 2)))
        total = total_of([*parts, rest])
        return [
            block.multiplier(self.budget, self.neighbours, self.amount * part / total)
            for block, part in zip(blocks, parts, strict=True)
        ]

    def _optimal(self, block: Block, weight: float = 1) -> Fraction:
        price = relative_price([block], self.budget, self.neighbours)
        squared = price if self.budget.noise == "gaussian" else price**2
        return self._least(Fraction(weight) * block.asked * squared)

    def _least(self, squared: Fraction) -> Fraction:
        """Part that a block spends, up to a factor, by its weighted squared sensitivities."""
        return _root(squared, 2 if self.budget.noise == "gaussian" else 3)

    def _by_shares(self, blocks: Sequence[Block]) -> list[Fraction]:
        assert self.shares is not None
        prices = [relative_price([block], self.budget, self.neighbours) for block in blocks]
        number = {block: i for i, block in reversed(list(enumerate(blocks)))}
        sources = BlockIndex(blocks)
        parts = [Fraction(0)] * len(blocks)
        for name, wanted in self.asked.items():
            serving = dict.fromkeys(
                i for block in wanted for i in self._serving(block, blocks, number, sources)
            )
            whole = total_of([prices[i] for i in serving])
            for i in serving:
                parts[i] = max(parts[i], self.shares[name] * prices[i] / whole)
        return parts

    def _serving(
        self,
        wanted: Block,
        blocks: Sequence[Block],
        number: Mapping[Block, int],
        sources: BlockIndex,
    ) -> list[int]:
        """Numbers of the measured blocks that answer a block: itself, or those it follows from."""
        if wanted in number:
            return [number[wanted]]
        complements = self.complements
        if isinstance(wanted, Indicator) and not complements:  # one of the sets of a block
            for i in sources.of(wanted):
                terms = blocks[i].terms_of(wanted, complements=False)
                if blocks[i].columns == wanted.columns and terms is not None and terms[0] == 1:
                    return [i]
        return [
            i
            for i in sources.of(wanted)
            if blocks[i].terms_of(wanted, complements=complements) is not None
        ]


def relative_price(blocks: Sequence[Block], budget: Budget, neighbours: Neighbours) -> Fraction:
    """Sum of the blocks' relative prices: what they spend in an equal split with unit scale."""
    return total_of([block.relative_price(budget, neighbours) for block in blocks])


@lru_cache(maxsize=4096)
def _root(value: Fraction, power: int) -> Fraction:
    """A root, rounded: any positive parts are private; rounding them costs nothing."""
    return Fraction(float(value) ** (1 / power)).limit_denominator(10**6)


def read_shares(shares: Mapping[str, Any], names: list[str]) -> dict[str, Fraction]:
    """Positive rational shares of all analyses."""
    if not isinstance(shares, Mapping):
        raise RequestError(f"shares must name every analysis: {names}; got {short(shares)}")
    without = [name for name in names if name not in shares]
    unknown = [n if isinstance(n, str) else short(n) for n in shares if n not in names]
    if without or unknown:
        raise RequestError(
            f"shares must name every analysis: {names}"
            + (f"; there is no share of {first_few(without)}" if without else "")
            + (f"; got {first_few(unknown)}{did_you_mean(unknown, names)}" if unknown else "")
        )
    return {name: read_rational(share, f"share of {name!r}") for name, share in shares.items()}


@dataclass(frozen=True)
class Division:
    """Blocks of the family, tables that follow from residuals, and the amount for a private n."""

    blocks: list[PlannedBlock]
    tables: tuple[Table, ...]
    count: Fraction


def divide(
    rule: Split, analyses: Mapping[str, Analysis[Result]], schema: Schema, weights: Weights
) -> Division:
    """Merge what the analyses need, and divide the rule's amount.

    Overlapping tables get together what they would get by the rule, or with an optimal allocation
    what their combined answers make best, and share it for the least noise in these. A table that
    some analysis needs as it was measured is left out of this.
    """
    every = (block for blocks in rule.asked.values() for block in blocks)
    wanted = sorted(every, key=lambda block: isinstance(block, PersonProducts))  # these last
    family = _merged(rule, wanted, whole=schema.design is not None)
    combined = {name for name, analysis in analyses.items() if combines(analysis, schema)}
    together = _combined_tables(rule, combined, family) if weights != "equal" else []
    hidden = rule.neighbours.unit == "add_remove" and schema.design is None
    if hidden and not together:  # overlapping tables know the number of rows well
        family = _merged(rule, with_other_rows(family.blocks))
    multipliers = _beside_the_count(rule, family.blocks)
    planned = list(map(PlannedBlock, family.blocks, multipliers))
    count = _paid_for_count(rule, family.blocks)
    if not together:
        least = _least_count(rule, planned, count)
        rest = (rule.amount - count) / (rule.amount - least)
        planned_tables = [replace(p, multiplier=p.multiplier * rest) for p in planned]
        return Division(planned_tables, (), least)
    others = [p for p in planned if p.block not in together]
    split = TableSplit(together, rule.neighbours.unit, weights)
    times = rule.neighbours.of_person(Sensitivity(Fraction(1), Fraction(1))).l2_squared
    if rule.allocation == "optimal":
        beside = split.least(rule.budget.noise) * times
        blocks = [p.block for p in others]
        left = replace(rule, amount=rule.amount - count)
        multipliers = left.leave_rest(blocks, list(map(split.weight, blocks)), beside)
        others = list(map(PlannedBlock, blocks, multipliers))
    spent = (p.block.cost(rule.budget, rule.neighbours, p.multiplier) for p in others)
    amount = rule.amount - count - sum(spent, Fraction(0))
    if not others:  # the number of rows serves the tables alone
        amount, count = rule.amount, Fraction(0)
    if rule.budget.noise == "laplace" or split.whole_is_better:
        tables, shares, part = split.measured_tables(rule.budget.noise)
        planned_tables = [
            PlannedBlock(table, table.multiplier(rule.budget, rule.neighbours, amount * share))
            for table, share in zip(tables, shares, strict=True)
        ]
        return Division([*planned_tables, *others], (), count + amount * part)
    residuals, multipliers, part = split.measured_residuals()  # for one row
    planned_tables = [
        PlannedBlock(residual, multiplier * times / amount)
        for residual, multiplier in zip(residuals, multipliers, strict=True)
    ]
    return Division([*planned_tables, *others], tuple(together), count + amount * part)


def _combined_tables(rule: Split, combined: Container[str], family: Family) -> list[Table]:
    """Tables that overlap another one, of which only combined answers are used."""
    asked = ((name, block) for name, blocks in rule.asked.items() for block in blocks)
    whole = [block for name, block in asked if name not in combined]
    complements = rule.complements
    tables = [
        block
        for block in family.blocks
        if isinstance(block, Table)
        and all(block.derive(wanted, complements=complements) is None for wanted in whole)
    ]
    return [
        table
        for table in tables
        if any(other != table and set(other.columns) & set(table.columns) for other in tables)
    ]


def _merged(rule: Split, wanted: Iterable[Block], *, whole: bool = False) -> Family:
    """Blocks merged under the noise that the rule would give; see `merge`."""

    def variances(blocks: Sequence[Block], chosen: Sequence[int]) -> list[float]:
        scales = map(rule.budget.natural_scale, _beside_the_count(rule, blocks, chosen))
        return [rule.budget.law(scale).variance for scale in scales]

    return merge(wanted, variances, complements=rule.complements, whole=whole)


def _beside_the_count(
    rule: Split, blocks: Sequence[Block], chosen: Sequence[int] | None = None
) -> list[Fraction]:
    """Multipliers of the blocks (or of some) that leave the count of rows its part."""
    return replace(rule, amount=rule.amount - _paid_for_count(rule, blocks))(blocks, chosen)


def _paid_for_count(rule: Split, blocks: Sequence[Block]) -> Fraction:
    """Fair part for the number of rows: what it would get in an equal split (eq. part-of-count)."""
    if rule.neighbours.copies > 1:
        has_count = any(block.derive(ROWS, complements=False) is not None for block in blocks)
        return rule.amount / (100 if has_count else 20)
    if rule.neighbours.unit == "replace":
        return Fraction(0)
    price = ROWS.price(rule.budget, rule.neighbours)
    others = relative_price(blocks, rule.budget, rule.neighbours)
    return rule.amount * price / (price + others)


def _least_count(rule: Split, planned: Sequence[PlannedBlock], fair: Fraction) -> Fraction:
    """Least part for the number of rows, where it is also the total of tables or sets of rows.

    With less than the `fair` part all blocks get more. A share p of the rows has the noise of its
    sum less p times that of the number of rows: from independent measurements, of variance v + p^2
    V. A cell among C is its difference from the mean cell, v (1 - 1/C), and the number of rows over
    C: v (1 - 1/C) + (1/C - p)^2 V (eq. share-beside-count of privacy.md). Both are linear in a
    function of p, so if neither end grows, at which V counts not at all or most (p = 1), none does.
    The first never grows; the second grows by at most `_WIDER` here. Variances are those of
    continuous noise, whose ratios hold at any budget.
    """
    sets = [p for p in planned if isinstance(p.block, Table | Partition)]
    tables = [p for p in sets if p.block.derive(ROWS, complements=False) is not None]
    if not tables or not fair or rule.neighbours.copies > 1:
        return fair
    power = 2 // POWERS[rule.budget.noise]  # of multipliers in variances
    precision = 1 / ROWS.multiplier(rule.budget, rule.neighbours, fair) ** power  # precisions
    total = sum((1 / (p.block.size * p.multiplier**power) for p in tables), Fraction(0))
    answering = Family(tuple(p.block for p in planned)).answering.blocks

    def largest(count: Fraction) -> list[Fraction]:
        """Noise of a share of one in every block, in variances."""
        more = ((rule.amount - count) / (rule.amount - fair)) ** power
        of_number = 1 / (total * more + precision * (count / fair) ** power)
        noise = []
        for p in planned:
            centred = 1 - Fraction(1, p.block.size) if p in tables else Fraction(1)
            if p.block in answering:
                noise.append(centred * p.multiplier**power / more + centred**2 * of_number)
        return noise

    allowed = [_WIDER**2 * noise for noise in largest(fair)]
    for percent in range(1, 100):
        part = rule.amount * Fraction(percent, 100)
        if part >= fair:
            break
        if all(map(operator.le, largest(part), allowed)):
            return part
    return fair


def split_stages(
    rule: Split, stages: Mapping[str, PilotScore]
) -> tuple[Split, tuple[PlannedBlock, ...]]:
    """Rule for what is measured first, and the second stages with their noise.

    A second stage gets half of its analysis' share, or as much as its functions would cost by
    themselves in an equal split of what all analyses ask for.
    """
    if not stages:
        return rule, ()
    first, total = rule, Fraction(1)
    if rule.shares is not None:
        whole = sum(rule.shares.values(), Fraction(0))
        parts = {name: rule.shares[name] / whole / 2 for name in stages}
        left = {name: share / whole - parts.get(name, 0) for name, share in rule.shares.items()}
        first = replace(rule, shares=left)
    else:
        every = (block for blocks in rule.asked.values() for block in blocks)
        price = _price_of_distinct(every, rule)
        parts = {name: _price_of_distinct(rule.asked[name], rule) / price for name in stages}
        total += sum(parts.values(), Fraction(0))
    amounts = {name: rule.amount * part / total for name, part in parts.items()}
    left_over = rule.amount - sum(amounts.values(), Fraction(0))
    return replace(first, amount=left_over), _scores(stages, amounts, rule.budget, rule.neighbours)


def _price_of_distinct(blocks: Iterable[Block], rule: Split) -> Fraction:
    return relative_price(list(dict.fromkeys(blocks)), rule.budget, rule.neighbours)


def _scores(
    stages: Mapping[str, PilotScore], amounts: Mapping[str, Fraction], budget: Budget,
    neighbours: Neighbours,
) -> tuple[PlannedBlock, ...]:  # fmt: skip
    """Second stages with their noise; two analyses of one formula share theirs."""
    spent: dict[PilotScore, Fraction] = {}
    for name, block in stages.items():
        spent[block] = spent.get(block, Fraction(0)) + amounts[name]
    return tuple(
        PlannedBlock(block, block.multiplier(budget, neighbours, amount), "score")
        for block, amount in spent.items()
    )


def continued(
    schema: Schema,
    analyses: Mapping[str, Analysis[Result]],
    budget: Budget,
    neighbours: Neighbours,
    start: Any,
    shares: Mapping[str, Fraction] | None,
) -> Strategy:
    """Strategy of a release and of second stages at its pilots, with both budgets together."""
    measured = getattr(start, "measurements", None)
    if not isinstance(measured, Measurements) or not hasattr(start, "candidates"):
        raise RequestError(f"start must be a dps.Release, got {short(start)}")
    old = measured.strategy
    if neighbours not in (Neighbours(), old.neighbours):
        raise RequestError(
            f"the release given as start= was made under unit={old.unit!r} with "
            f"{old.neighbours.persons}, and what is added to it has the same neighbour relation: "
            "leave out unit=, rows_per_person= and person="
        )
    if schema != old.schema:
        raise RequestError(
            "the release given as start= declares other columns; plan with its own: start.schema"
        )
    deltas = {getattr(one, "delta", None) for one in (budget, old.budget)}
    if budget.kind != old.budget.kind or len(deltas) > 1:
        raise RequestError(
            f"the release given as start= spent {old.budget}; give a budget of the same kind (and "
            "delta), which is added to it"
        )
    stages = second_stages(analyses, schema)
    for name, analysis in analyses.items():
        if name not in stages:
            raise RequestError(
                f"start= adds the second stage of regressions, and {name!r} has none: give it "
                "stages=2, or plan it without start="
            )
        if missing := lacking(measured, start.answers, analysis.family(schema)):
            raise RequestError(
                f"the release given as start= lacks the first stage of {name!r}: {missing}; plan "
                "it without start="
            )
        if any(planned.block.settles(stages[name]) for planned in old.scores):
            raise RequestError(
                f"the release given as start= has measured the second stage of {name!r} already"
            )
    parts = dict.fromkeys(stages, Fraction(1)) if shares is None else shares
    whole = sum(parts.values(), Fraction(0))
    amounts = {name: budget.total * parts[name] / whole for name in stages}
    new = at_pilots(_scores(stages, amounts, budget, old.neighbours), analyses, start)
    others = tuple(planned for planned in old.blocks if planned.role in ("reference", "count"))
    together = budget.of_total(old.budget.total + budget.total)
    blocks = (*old.measured, *old.scores, *new, *old.of_persons, *others)
    return replace(old, schema=schema, blocks=blocks, budget=together)
