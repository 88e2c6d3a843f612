"""What a plan would give, computed on a pretend release from public numbers alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from dpstats.analyses.base import Analysis
from dpstats.answers import Answers, answer
from dpstats.combining import Sources
from dpstats.families.block import Block, Family, Floats
from dpstats.inference.simulation import draw_from
from dpstats.measurements import Measurements, NoisyBlock, noise_scales
from dpstats.references.uniform import Uniform

if TYPE_CHECKING:
    import pandas as pd

    from dpstats.planning import Plan, PlannedBlock

PRETEND_POINTS = 20_000
PRETEND_RELEASES = 3


def preview_plan(plan: Plan, n: int) -> Preview:
    """Run every analysis of a plan on pretend releases: n even rows, and noise of the plan's law.

    Rows are drawn evenly over levels and bins, and noise by a public simulation with a fixed seed,
    as both decide the width of intervals; widths are medians over three such releases.
    """
    pretended = [_PretendRelease(plan, n, seed) for seed in range(PRETEND_RELEASES)]
    outlooks = (_outlook(name, analysis, pretended) for name, analysis in plan.analyses.items())
    return Preview(plan, n, tuple(outlooks))


class _PretendRelease:
    """What analyses would see of n rows drawn evenly over the cells."""

    def __init__(self, plan: Plan, n: int, seed: int) -> None:
        rng = np.random.default_rng(seed)
        codes = Uniform().draw(PRETEND_POINTS, plan.columns, None, rng)
        rows = rng.multinomial(n, np.full(PRETEND_POINTS, 1 / PRETEND_POINTS)).astype(np.float64)
        measured = tuple(
            _pretended(planned, planned.block.evaluate(codes).average(rows), plan, rng)
            for planned in plan.blocks
        )
        count = None
        if plan.count is not None:
            count = _pretended(plan.count, np.array([float(n)]), plan, rng)
        measurements = Measurements(
            schema=plan.schema,
            measured=measured,
            n=n if count is None else max(1, int(count.sums[0])),
            budget=plan.budget,
            unit=plan.unit,
            count=count,
        )
        self.candidates, self.weights = codes, rows / n
        self.schema, self.n, self.budget = plan.schema, measurements.n, plan.budget
        self._sources = Sources(measurements)

    def answers(
        self, wanted: Family | Block | Sequence[Block], *, disjoint: bool = False
    ) -> Answers:
        """Answers with the plan's noise laws and the pretend values."""
        return answer(self._sources, wanted, disjoint=disjoint)


def _pretended(
    planned: PlannedBlock, sums: Floats, plan: Plan, rng: np.random.Generator
) -> NoisyBlock:
    """A block with pretend sums (d,) and simulated noise of the law that it would get."""
    noisy = np.rint(sums)
    scales = noise_scales(planned.block, planned.multiplier, plan.budget.noise)
    for scale in np.unique(scales):
        same = np.flatnonzero(scales == scale)
        noisy[same] += draw_from(plan.budget.law(float(scale)), len(same), rng)
    return NoisyBlock(
        planned.block,
        planned.multiplier,
        noisy.astype(np.int64),
        rng.uniform(-0.5, 0.5, len(noisy)),
        plan.budget.noise,
    )


@dataclass(frozen=True)
class Outlook:
    """What one analysis can expect.

    Attributes
    ----------
    name, analysis : str
    functions : int
    noise : float
        Median standard deviation of the noise on a measured mean.
    width, certified_width : float
        Median width of its 95% intervals; nan for a result without intervals.
    of : str
        What the intervals are of, whose unit the widths have.
    """

    name: str
    analysis: str
    functions: int
    noise: float
    width: float
    certified_width: float
    of: str


def _outlook(name: str, analysis: Analysis, pretended: Sequence[_PretendRelease]) -> Outlook:
    family = analysis.family(pretended[0].schema)
    noise = float(np.sqrt(np.median(pretended[0].answers(family).noise_variances)))
    results = [analysis.infer(pretend) for pretend in pretended]
    widths = [
        float(np.median([_width(result, method) for result in results]))
        for method in ("noise_aware", "certified")
    ]
    what = getattr(results[0], "interval_of", "")
    return Outlook(name, analysis.kind, family.size, noise, widths[0], widths[1], what)


def _width(result: Any, method: str) -> float:
    """Median width of the intervals of the first kind of parameter."""
    if not hasattr(result, "conf_int"):
        return np.nan
    ends = np.atleast_2d(result.conf_int(method=method))
    return float(np.median(np.diff(ends[: getattr(result, "alike", len(ends))])))


@dataclass(frozen=True, repr=False)
class Preview:
    """What a plan would give at n rows, before any row is read."""

    plan: Plan
    n: int
    outlooks: tuple[Outlook, ...]

    def to_frame(self) -> pd.DataFrame:
        """One row per analysis: functions, noise sd, median 95% widths and what they are of."""
        import pandas as pd

        return pd.DataFrame([vars(outlook) for outlook in self.outlooks])

    def __str__(self) -> str:
        width = max(len("analysis"), *(len(o.name) for o in self.outlooks))
        lines = [
            str(self.plan),
            "",
            f"Preview at n = {self.n} rows drawn evenly over the cells, with simulated noise "
            "(no data were read).",
            "Small groups and uneven columns have wider intervals: a group with a share g of the",
            "rows instead of an even part e has about sqrt(e / g) times the width, or more.",
            f"{'analysis':<{width}}  {'functions':>9}  {'noise sd':>8}  "
            f"{'95% width':>9}  {'certified':>9}  of",
        ]
        lines += [
            f"{o.name:<{width}}  {o.functions:>9}  {o.noise:>8.4f}  {_text(o.width):>9}  "
            f"{_text(o.certified_width):>9}  {o.of}"
            for o in self.outlooks
        ]
        if any(o.width == 0 for o in self.outlooks):
            lines.append("A width of 0: a single declared value is left.")
        return "\n".join(lines)

    def __repr__(self) -> str:
        return str(self)


def _text(width: float) -> str:
    return "none" if np.isnan(width) else f"{width:.4f}"
