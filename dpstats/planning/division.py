"""What a plan measures: the blocks of all analyses, merged, with their parts of the budget."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import cast, get_args

from dpstats.analyses.base import Analysis, combines
from dpstats.families.block import Block, Family
from dpstats.families.merging import merge
from dpstats.families.tables.cells import ROWS, Table
from dpstats.measured.strategy import PlannedBlock
from dpstats.planning.allocation import Allocation, Split, relative_price
from dpstats.planning.table_split import TableSplit, Weights
from dpstats.results.base import Result
from dpstats.schema import Schema

_SAME = Fraction(1, 1_000)  # relative, of two searches for the least noise


@dataclass(frozen=True)
class Division:
    """What is measured for the family, and how much the number of rows costs.

    Attributes
    ----------
    blocks : list of PlannedBlock
    tables : tuple of Table
        Published tables that follow from residuals among the blocks.
    count : Fraction
        Amount for the number of rows; zero where it is public.
    """

    blocks: list[PlannedBlock]
    tables: tuple[Table, ...]
    count: Fraction


def divide(
    rule: Split, analyses: Mapping[str, Analysis[Result]], schema: Schema, weights: Weights
) -> Division:
    """Merge what the analyses need, and divide the rule's amount.

    Overlapping tables get together what they would get by the rule, and share it for the least
    noise in their combined answers. A table that some analysis needs as it was measured is left
    out of this.
    """
    family = _merged(rule)
    combined = {name for name, one in analyses.items() if combines(one, schema)}
    together = _combined_tables(rule, combined, family) if weights != "equal" else []
    multipliers = _beside_the_count(rule, family.blocks)
    planned = list(map(PlannedBlock, family.blocks, multipliers))
    count = _paid_for_count(rule, family.blocks)
    if not together:
        return Division(planned, (), count)
    others = [one for one in planned if one.block not in together]
    spent = (one.block.cost(rule.budget, rule.unit, one.multiplier) for one in others)
    amount = rule.amount - count - sum(spent, Fraction(0))
    if not others:  # the number of rows serves the tables alone
        amount, count = rule.amount, Fraction(0)
    split = TableSplit(together, rule.unit, weights)
    if rule.budget.noise == "laplace" or split.whole_is_better:
        tables, shares, part = split.measured_tables(rule.budget.noise)
        made = [
            PlannedBlock(table, table.multiplier(rule.budget, rule.unit, amount * share))
            for table, share in zip(tables, shares, strict=True)
        ]
        return Division([*made, *others], (), count + amount * part)
    residuals, multipliers, part = split.measured_residuals()
    made = [
        PlannedBlock(residual, multiplier / amount)
        for residual, multiplier in zip(residuals, multipliers, strict=True)
    ]
    return Division([*made, *others], tuple(together), count + amount * part)


def weights_of(
    planned: Sequence[PlannedBlock], rule: Split, analyses: Mapping[str, Analysis[Result]],
    schema: Schema,
) -> Weights | None:  # fmt: skip
    """The weights under which `divide` gives this noise; None where all give the same.

    A plan keeps its noise, which is all that weights decide. With shares, or another release of the
    search for the least noise, it may be the noise of none.
    """
    for allocation in get_args(Allocation):
        some = replace(rule, allocation=allocation)
        equal = divide(some, analyses, schema, "equal").blocks
        for weights in get_args(Weights):
            made = divide(some, analyses, schema, weights).blocks
            if weights != "equal" and made == equal:
                return None  # no tables share
            if _alike(made, planned):
                return cast("Weights", weights)
    return None


def _alike(one: Sequence[PlannedBlock], other: Sequence[PlannedBlock]) -> bool:
    """Whether the same blocks have the same noise, up to the accuracy of a search."""
    if [p.block for p in one] != [p.block for p in other]:
        return False
    pairs = zip(one, other, strict=True)
    return all(abs(p.multiplier / q.multiplier - 1) <= _SAME for p, q in pairs)


def _combined_tables(rule: Split, combined: Container[str], family: Family) -> list[Table]:
    """Tables that overlap another one, of which only combined answers are used."""
    asked = ((name, block) for name, blocks in rule.asked.items() for block in blocks)
    whole = [block for name, block in asked if name not in combined]
    complements = rule.unit == "replace"
    tables = [
        block
        for block in family.blocks
        if isinstance(block, Table)
        and all(block.derive(wanted, complements=complements) is None for wanted in whole)
    ]
    return [one for one in tables if _overlaps(one, tables)]


def _overlaps(one: Table, tables: Iterable[Table]) -> bool:
    return any(other != one and set(other.columns) & set(one.columns) for other in tables)


def _merged(rule: Split) -> Family:
    """The blocks of all analyses, merged under the noise that the rule would give."""

    def variances(blocks: Sequence[Block], chosen: Sequence[int]) -> list[float]:
        scales = map(rule.budget.natural_scale, _beside_the_count(rule, blocks, chosen))
        return [rule.budget.law(scale).variance for scale in scales]

    wanted = [block for blocks in rule.asked.values() for block in blocks]
    return merge(wanted, variances, complements=rule.unit == "replace")


def _beside_the_count(
    rule: Split, blocks: Sequence[Block], chosen: Sequence[int] | None = None
) -> list[Fraction]:
    """Multipliers of the blocks (or of some) that leave the count of rows its part."""
    return replace(rule, amount=rule.amount - _paid_for_count(rule, blocks))(blocks, chosen)


def _paid_for_count(rule: Split, blocks: Sequence[Block]) -> Fraction:
    """Part of the budget for the number of rows: what it would get in an equal split."""
    if rule.unit == "replace":
        return Fraction(0)
    one = ROWS.price(rule.budget, rule.unit)
    others = relative_price(blocks, rule.budget, rule.unit)
    return rule.amount * one / (one + others)
