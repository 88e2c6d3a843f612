"""What a plan would give, computed on a pretend release from public numbers alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dpstats.analyses.base import Analysis
from dpstats.answers import Answers, answer
from dpstats.families.block import Block, Family
from dpstats.families.cells import ROWS
from dpstats.measurements import Measurements, NoisyBlock
from dpstats.references.uniform import Uniform

if TYPE_CHECKING:
    import pandas as pd

    from dpstats.planning import Plan

PRETEND_POINTS = 20_000


def preview_plan(plan: Plan, n: int) -> Preview:
    """Run every analysis of a plan on n pretend rows, spread evenly over levels and bins."""
    pretend = _PretendRelease(plan, n)
    outlooks = (_outlook(name, analysis, pretend) for name, analysis in plan.analyses.items())
    return Preview(plan, n, tuple(outlooks))


class _PretendRelease:
    """What analyses would see if rows were spread evenly over cells and noise were zero."""

    def __init__(self, plan: Plan, n: int) -> None:
        codes = Uniform().draw(PRETEND_POINTS, plan.columns, None, np.random.default_rng(0))
        weights = np.full(PRETEND_POINTS, n / PRETEND_POINTS)
        measured = []
        for planned in plan.blocks:
            block = planned.block
            sums = np.rint(block.evaluate(codes).average(weights)).astype(np.int64)
            measured.append(
                NoisyBlock(block, planned.multiplier, sums, np.zeros(block.size), plan.budget.noise)
            )
        count = None
        if plan.count is not None:
            known = np.array([n], dtype=np.int64)
            count = NoisyBlock(ROWS, plan.count.multiplier, known, np.zeros(1), plan.budget.noise)
        self._measurements = Measurements(
            schema=plan.schema,
            measured=tuple(measured),
            n=n,
            budget=plan.budget,
            unit=plan.unit,
            count=count,
        )
        self.schema, self.n, self.budget = plan.schema, n, plan.budget

    def answers(
        self, wanted: Family | Block | Sequence[Block], *, disjoint: bool = False
    ) -> Answers:
        """Answers with the plan's noise laws and the pretend values."""
        return answer(self._measurements, wanted, disjoint=disjoint)


@dataclass(frozen=True)
class Outlook:
    """What one analysis can expect: functions, noise, and median interval widths."""

    name: str
    analysis: str
    functions: int
    noise: float
    width: float
    certified_width: float


def _outlook(name: str, analysis: Analysis, pretend: _PretendRelease) -> Outlook:
    family = analysis.family(pretend.schema)
    answers = pretend.answers(family)
    result = analysis.infer(pretend)
    widths = [
        float(np.median(np.diff(np.atleast_2d(result.conf_int(method=method)))))
        for method in ("noise_aware", "certified")
    ]
    noise = float(np.sqrt(np.median(answers.noise_variances)))
    return Outlook(name, analysis.kind, family.size, noise, widths[0], widths[1])


@dataclass(frozen=True, repr=False)
class Preview:
    """What a plan would give at n rows, before any row is read."""

    plan: Plan
    n: int
    outlooks: tuple[Outlook, ...]

    def to_frame(self) -> pd.DataFrame:
        """One row per analysis: functions, noise sd and median 95% widths, in proportions."""
        import pandas as pd

        return pd.DataFrame([vars(outlook) for outlook in self.outlooks])

    def __str__(self) -> str:
        width = max(len("analysis"), *(len(o.name) for o in self.outlooks))
        lines = [
            str(self.plan),
            "",
            f"Preview at n = {self.n} rows spread evenly over the cells (no data were read).",
            "Small groups and uneven columns have wider intervals: a group with a share g of the",
            "rows instead of an even part e has about sqrt(e / g) times the width, or more.",
            f"{'analysis':<{width}}  {'functions':>9}  {'noise sd':>8}  "
            f"{'95% width':>9}  {'certified':>9}",
        ]
        lines += [
            f"{o.name:<{width}}  {o.functions:>9}  {o.noise:>8.4f}  {o.width:>9.4f}  "
            f"{o.certified_width:>9.4f}"
            for o in self.outlooks
        ]
        return "\n".join(lines)

    def __repr__(self) -> str:
        return str(self)
