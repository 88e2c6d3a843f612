"""The uniform reference density (BL24, Appendix on uniform sampling)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from dpstats.arrays import Codes, Floats
from dpstats.checks import check_choice
from dpstats.rows.base import Density, Unmeasured
from dpstats.schema import Number, Schema

if TYPE_CHECKING:
    from dpstats.measured.measurements import NoisyBlock


@dataclass(frozen=True)
class Uniform(Unmeasured, Density):
    """Uniform over the domain; spends nothing.

    Parameters
    ----------
    over : {"cells", "grid"}
        ``"cells"``: uniform over declared levels and bins, then over the grid inside the bin; far
        better where bins are uneven. ``"grid"``: uniform over all grid points, as in the paper.

    Examples
    --------
    >>> import dpstats as dps
    >>> schema = dps.Schema([dps.Number("age", 0, 100, edges=[18, 65], missing=40)])
    >>> asked, budget = {"age": dps.Mean("age")}, dps.PureDP(1)
    >>> plan = dps.plan(schema, asked, budget=budget, reference=dps.Uniform(over="grid"))
    >>> plan.reference.share  # the whole budget is left to the analyses
    Fraction(0, 1)
    """

    over: Literal["cells", "grid"] = "cells"

    def __post_init__(self) -> None:
        check_choice("Uniform(over=...)", self.over, ("cells", "grid"))

    def cells(self, schema: Schema, measured: NoisyBlock | None) -> tuple[int, Floats | None]:
        """All cells, equally likely, for ``over="cells"``."""
        if self.over == "grid":
            return 0, None
        return math.prod(column.bins for column in schema), None

    def draw(
        self, m: int, schema: Schema, measured: NoisyBlock | None, rng: np.random.Generator
    ) -> dict[str, Codes]:
        """M independent points, column name -> (m,) codes."""
        points = {}
        for column in schema:
            if self.over == "grid" and isinstance(column, Number) and column.values is None:
                codes = column.all_codes
                points[column.name] = codes[rng.integers(len(codes), size=m)]
            else:
                points[column.name] = column.draw_inside(rng.integers(column.bins, size=m), rng)
        return points

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {"kind": "uniform", "over": self.over}
