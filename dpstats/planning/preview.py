"""What a plan would give, computed on a pretend release from public numbers alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, get_args

import numpy as np

from dpstats.arrays import Codes, Floats
from dpstats.checks import Method, Target, check_alpha, check_choice
from dpstats.errors import RequestError
from dpstats.families.block import Block, Family
from dpstats.inference.simulation import draw_from
from dpstats.measured.answers import Answers, answer
from dpstats.measured.combining import Sources
from dpstats.measured.measurements import Measurements, NoisyBlock, noise_scales
from dpstats.measured.view import ReleaseView
from dpstats.references.uniform import Uniform
from dpstats.results.base import EstimateResult
from dpstats.results.contrasts import LinearResult
from dpstats.results.rendering import significant

if TYPE_CHECKING:
    import pandas as pd

    from dpstats.planning.plan import Plan, PlannedBlock
    from dpstats.schema import Schema

PRETEND_POINTS = 20_000
PRETEND_RELEASES = 3
EVEN = """\
Preview at n = {} rows drawn evenly over the cells, with simulated noise (no data were read).
Small groups and uneven columns have wider intervals: a group with a share g of the
rows instead of an even part e has about sqrt(e / g) times the width, or more. like= takes a
release of rows that resemble the real ones."""
NARROW = """\
Coefficients need columns that vary: one that varies over a tenth of its bounds has 10 (sampling) to
100 (noise) times this width, or none that is finite where noise hides how the column varies."""
RESEMBLING = """\
Preview at n = {} rows drawn from the density of another release, with simulated noise (no data
were read)."""


def preview_plan(plan: Plan, n: int, like: ReleaseView | None = None) -> Preview:
    """Run every analysis of a plan on pretend releases: n rows, and noise of the plan's law.

    Rows are drawn evenly over levels and bins, or from the fitted density of the release `like`,
    and noise by a public simulation with a fixed seed, as both decide the width of intervals.
    """
    if like is not None:
        _check_columns(plan.columns, like)
    pretended = [_PretendRelease(plan, n, seed, like) for seed in range(PRETEND_RELEASES)]
    results = {
        name: tuple(analysis.infer(pretend) for pretend in pretended)
        for name, analysis in plan.analyses.items()
    }
    return Preview(plan, n, results, tuple(pretended), like is not None)


def _check_columns(wanted: Schema, like: ReleaseView) -> None:
    """Refuse a release whose points are not coded as the plan's columns."""
    if not all(hasattr(like, name) for name in ("schema", "candidates", "weights")):
        raise RequestError(f"like must be a release, got {type(like).__name__}")
    for column in wanted:
        if column.name not in like.candidates or like.schema[column.name] != column:
            raise RequestError(
                f"the release given as like= holds no column {column.name!r} declared as in the "
                f"plan; it holds {list(like.candidates)}"
            )


class _PretendRelease:
    """What analyses would see of n rows, drawn evenly over the cells or from a density."""

    def __init__(self, plan: Plan, n: int, seed: int, like: ReleaseView | None) -> None:
        rng = np.random.default_rng(seed)
        codes: dict[str, Codes] = {}
        if like is None:
            codes = Uniform().draw(PRETEND_POINTS, plan.columns, None, rng)
            density = np.full(PRETEND_POINTS, 1 / PRETEND_POINTS)
        else:
            codes = {name: like.candidates[name] for name in plan.columns.names}
            density = like.weights / like.weights.sum()
        rows = rng.multinomial(n, density).astype(np.float64)
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


def _width(result: Any, method: str) -> float:
    """Median width of the intervals of the first kind of parameter."""
    if not hasattr(result, "conf_int"):
        return np.nan
    ends = np.atleast_2d(result.conf_int(method=method))
    return float(np.median(np.diff(ends[getattr(result, "previewed", slice(None))])))


@dataclass(frozen=True, repr=False)
class Preview:
    """What a plan would give at n rows, before any row is read.

    Attributes
    ----------
    plan : Plan
    n : int
    results : mapping of name to tuple of results
        What every analysis says of each pretend release; widths are medians over them.
    pretended : tuple of pretend releases
    resembling : bool
        Whether rows were drawn from the density of a release rather than evenly.
    """

    plan: Plan
    n: int
    results: Mapping[str, tuple[Any, ...]]
    pretended: tuple[ReleaseView, ...]
    resembling: bool = False

    @cached_property
    def outlooks(self) -> tuple[Outlook, ...]:
        """One per analysis."""
        return tuple(self._outlook(name) for name in self.plan.analyses)

    def _outlook(self, name: str) -> Outlook:
        analysis, results = self.plan.analyses[name], self.results[name]
        family = analysis.family(self.plan.schema)
        noise = float(np.sqrt(np.median(self.pretended[0].answers(family).noise_variances)))
        widths = [
            float(np.median([_width(result, method) for result in results]))
            for method in get_args(Method)
        ]
        what = getattr(results[0], "interval_of", "")
        return Outlook(name, analysis.kind, family.size, noise, widths[0], widths[1], what)

    def to_frame(self) -> pd.DataFrame:
        """One row per analysis: functions, noise sd, median 95% widths and what they are of."""
        import pandas as pd

        return pd.DataFrame([vars(outlook) for outlook in self.outlooks])

    def widths(
        self,
        *,
        alpha: float = 0.05,
        method: Method = "noise_aware",
        target: Target = "population",
    ) -> pd.DataFrame:
        """Expected widths of the intervals of every single parameter.

        Parameters
        ----------
        alpha : float
            Error probability of each interval.
        method : {"noise_aware", "certified"}
        target : {"population", "table"}

        Returns
        -------
        DataFrame with columns analysis, term, width
            Tests have no intervals and are left out.
        """
        import pandas as pd

        check_alpha(alpha)
        check_choice("method", method, get_args(Method))
        check_choice("target", target, get_args(Target))
        frames = [pd.DataFrame(columns=["analysis", "term", "width"])]
        for name, results in self.results.items():
            if isinstance(results[0], EstimateResult):
                ends = [r.conf_int(alpha=alpha, method=method, target=target) for r in results]
                width = np.median(np.diff(ends, axis=-1), axis=0).ravel()
                terms = list(results[0].terms)
                frames.append(pd.DataFrame({"analysis": name, "term": terms, "width": width}))
        return pd.concat(frames[1:] or frames, ignore_index=True)

    def __str__(self) -> str:
        width = max(len("analysis"), *(len(o.name) for o in self.outlooks))
        linear = any(isinstance(results[0], LinearResult) for results in self.results.values())
        lines = [
            str(self.plan),
            "",
            *(RESEMBLING if self.resembling else EVEN).format(self.n).splitlines(),
            *(NARROW.splitlines() if linear and not self.resembling else ()),
            f"{'analysis':<{width}}  {'functions':>9}  {'noise sd':>8}  "
            f"{'95% width':>9}  {'certified':>9}  of",
        ]
        for o in self.outlooks:
            lines.append(
                f"{o.name:<{width}}  {o.functions:>9}  {significant(o.noise):>8}  "
                f"{_text(o.width):>9}  {_text(o.certified_width):>9}  {o.of}"
            )
            lines += [
                f"{'':<{width + 23}}{_text(one):>9}  {_text(other):>9}  {term}"
                for term, one, other in self._further(o.name)
            ]
        if any(o.width == 0 for o in self.outlooks):
            lines.append("A width of 0: a single declared value is left.")
        return "\n".join(lines)

    def _further(self, name: str) -> list[tuple[str, float, float]]:
        """Terms and both widths of the coefficients, each in its unit, but for the first shown."""
        results = self.results[name]
        if not isinstance(results[0], LinearResult):
            return []
        aware, certified = (
            np.median([np.diff(r.conf_int(method=method))[:, 0] for r in results], axis=0)
            for method in get_args(Method)
        )
        rows = list(zip(results[0].terms, aware.tolist(), certified.tolist(), strict=True))
        del rows[results[0].previewed]
        return rows

    def __repr__(self) -> str:
        return str(self)


def _text(width: float) -> str:
    return "none" if np.isnan(width) else significant(width)
