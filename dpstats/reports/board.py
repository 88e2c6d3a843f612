"""The report for the custodian and the disclosure board: what leaves the building, and why it may.

Each step of the proof is recomputed from the release when the page is written: the sensitivities,
the noise and the sum of what it spends.
"""

from __future__ import annotations

from dpstats.analyses.registry import spelled
from dpstats.families.tables.residuals import Residual
from dpstats.measured.contents import kind_of
from dpstats.measured.measurements import Measurements
from dpstats.measured.strategy import residuals_cost
from dpstats.privacy.rationals import amount_text
from dpstats.releases.release import Release
from dpstats.reports.page import render
from dpstats.results.rendering import MOST, significant


def board_report(release: Release, title: str) -> str:
    """The page."""
    measurements, used = release.measurements, release.columns.names
    measurements.strategy.check()
    asked = [[name, spelled(analysis)] for name, analysis in release.analyses.items()]
    numbers = _numbers(measurements)
    return render(
        "board.html",
        release,
        title,
        laplace=measurements.budget.noise == "laplace",
        declared=[
            [column.name, column.described, column.missing_rule(), column.note,
             "measured" if column.name in used else "named only"]
            for column in release.schema
        ],
        between=[[line] for line in release.schema.rule_lines],
        asked=[*asked, *map(list, release.unread.items())],
        spent=amount_text(measurements.strategy.cost()),
        total=amount_text(measurements.budget.total),
        blocks=_blocks(measurements),
        numbers=numbers,
        more=len(measurements.noisy_sums) - len(numbers),
    )  # fmt: skip


def _blocks(measurements: Measurements) -> list[list[str]]:
    """Each block with its sensitivity, its noise and what it spends; then what all spend."""
    strategy, budget = measurements.strategy, measurements.budget
    laplace = budget.noise == "laplace"
    rows = []
    for planned in strategy.blocks:
        block = planned.block
        moved = block.moved_by(strategy.neighbours)
        cost = "jointly"
        if laplace or not isinstance(block, Residual):
            cost = f"{float(block.cost(budget, strategy.neighbours, planned.multiplier)):.6g}"
        rows.append([
            kind_of(block),
            ", ".join(column.name for column in block.columns) or "(all rows)",
            f"{block.size:,}",
            f"{float(moved.l1 if laplace else moved.l2_squared):.6g}",
            significant(budget.natural_scale(planned.multiplier)),
            cost,
        ])  # fmt: skip
    if together := residuals_cost(strategy.blocks, budget, strategy.neighbours):
        rows.append(["all residuals together", "", "", "", "", f"{float(together):.6g}"])
    size = f"{len(measurements.noisy_sums):,}"
    return [*rows, ["all blocks", "", size, "", "", amount_text(strategy.cost())]]


def _numbers(measurements: Measurements) -> list[list[str]]:
    """The first noisy answers, with their noise and the most that one person can add."""
    rows: list[list[str]] = []
    for noisy in measurements.every:
        times = measurements.neighbours.copies * measurements.rows_per_person
        most = noisy.block.bounds * times**noisy.block.degree
        columns = noisy.block.names, noisy.sums.tolist(), noisy.scales.tolist(), most.tolist()
        for name, noisy_sum, scale, largest in zip(*columns, strict=True):
            if len(rows) == MOST:
                return rows
            sd = measurements.budget.law(scale).variance ** 0.5
            rows.append([name, f"{noisy_sum:,}", significant(sd), f"{largest:,}"])
    return rows
