"""The view of a release that an analysis gets: noisy answers and a density, never rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np

from dpstats.arrays import Codes, Floats
from dpstats.families.block import Block, Family
from dpstats.families.contrasts import Contrasts
from dpstats.measured.answers import Answers, answer
from dpstats.measured.combining import Sources
from dpstats.privacy.budget import Budget
from dpstats.schema import Schema


class ReleaseView(Protocol):
    """View that `infer` of an analysis gets, of a release or of a simulated one.

    Examples
    --------
    >>> import dpstats as dps
    >>> import pandas as pd
    >>> def share_of_smokers(view: dps.ReleaseView) -> float:
    ...     smokers = dps.Cells.condition(view.schema, "smoker")
    ...     return float(view.answers(smokers).means[0])
    >>> schema = dps.Schema([dps.Boolean("smoker")])
    >>> plan = dps.plan(schema, {"smoking": dps.Proportion("smoker")}, budget=dps.PureDP(1))
    >>> rows = pd.DataFrame({"smoker": [True] * 3_000 + [False] * 7_000})
    >>> print(f"{share_of_smokers(dps.release(plan, rows)):.1f}")
    0.3
    """

    @property
    def schema(self) -> Schema:
        """The public schema."""

    @property
    def n(self) -> int:
        """Number of private rows."""

    @property
    def budget(self) -> Budget:
        """The budget that was spent."""

    @property
    def contrasts(self) -> Sequence[Contrasts]:
        """Contrasts between units of a survey that were measured."""

    @property
    def candidates(self) -> Mapping[str, Codes]:
        """Points of a density fitted to the answers alone, (m,) codes per column."""

    @property
    def weights(self) -> Floats:
        """Their weights (m,); use them only for what was not measured."""

    def answers(
        self,
        wanted: Family | Block | Sequence[Block],
        *,
        disjoint: bool = False,
        with_count: bool = False,
    ) -> Answers:
        """Noisy sums of functions, with the exact law of their noise; see `Release.answers`."""


class View:
    """Answers of some sources, and points of a density with their weights (m,)."""

    candidates: Mapping[str, Codes]
    weights: Floats

    def __init__(self, sources: Sources, n: int) -> None:
        measurements = sources.measurements
        self.schema, self.n, self.budget = measurements.schema, n, measurements.budget
        self.sources = sources

    @property
    def contrasts(self) -> Sequence[Contrasts]:
        """Contrasts between units of a survey that were measured."""
        blocks = (noisy.block for noisy in self.sources.measurements.contrasts)
        return [block for block in blocks if isinstance(block, Contrasts)]

    def answers(
        self,
        wanted: Family | Block | Sequence[Block],
        *,
        disjoint: bool = False,
        with_count: bool = False,
    ) -> Answers:
        """Noisy sums of functions; see `Release.answers`."""
        return answer(self.sources, wanted, disjoint=disjoint, with_count=with_count)


def density_of(release: ReleaseView) -> tuple[Mapping[str, Codes], Floats]:
    """Points, codes (m,) per column, and weights (m,) of a density fitted to the answers alone.

    Published candidates of a `Release` need not be that, so its view has them.
    """
    view: ReleaseView = getattr(release, "_view", release)
    return view.candidates, np.asarray(view.weights)
