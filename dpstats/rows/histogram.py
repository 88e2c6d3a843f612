"""The perturbed histogram (BL24, Algorithm 2, after Wasserman & Zhou 2010)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from dpstats.arrays import Codes, Floats
from dpstats.errors import RequestError
from dpstats.families.block import Block
from dpstats.families.tables.cells import Table
from dpstats.rows.base import Density, read_share
from dpstats.schema import Schema

if TYPE_CHECKING:
    from dpstats.measured.measurements import NoisyBlock
    from dpstats.privacy.laws import LatticeLaw

MAX_CELLS = 2**20


@dataclass(frozen=True)
class PerturbedHistogram(Density):
    """Noisy counts of all cells of the domain, clipped at zero and normalised.

    The counts have L1 and squared L2 sensitivity 2 under the replace-one relation, so Laplace noise
    of scale 2 / eps_reference, or Gaussian noise of squared scale 1 / rho_reference, keeps them
    private; clipping and normalising are post-processing. They only place candidates and never
    answer an analysis.

    Parameters
    ----------
    share : rational in (0, 1)
        Share of the whole budget; one half as in the paper (eps + eps = 2 eps).

    Examples
    --------
    >>> import dpstats as dps
    >>> schema = dps.Schema([dps.Number("age", 0, 100, edges=[18, 65], missing=40)])
    >>> asked, budget = {"age": dps.Mean("age")}, dps.PureDP(1)
    >>> plan = dps.plan(schema, asked, budget=budget, reference=dps.PerturbedHistogram(0.25))
    >>> plan.reference_block.block.names  # on a quarter of the budget
    ['age=[0, 18)', 'age=[18, 65)', 'age=[65, 100]']
    """

    share: Fraction = Fraction(1, 2)

    def __post_init__(self) -> None:
        object.__setattr__(self, "share", read_share(self.share, "PerturbedHistogram"))

    def block(self, schema: Schema, n: int | None = None) -> Block | None:
        """The table of all columns."""
        cells = math.prod(column.bins for column in schema)
        if cells > MAX_CELLS:
            raise RequestError(
                f"a perturbed histogram over {list(schema.names)} has {cells} cells, more than "
                f"{MAX_CELLS}; use reference=dps.LogLinear(), or fewer or coarser columns"
            )
        return Table(tuple(schema.columns))

    def check(self, block: Block, n: int, law: LatticeLaw) -> None:
        """Refuse a histogram whose expected positive noise exceeds the n rows themselves."""
        positive_noise = block.size * law.positive_part()
        if positive_noise > n:
            raise RequestError(
                f"a perturbed histogram of {block.size} cells would hold about "
                f"{positive_noise:.0f} rows of pure noise, more than n = {n}; use "
                "reference=dps.LogLinear(), a larger share or budget, or fewer or coarser columns"
            )

    def _probabilities(self, measured: NoisyBlock | None) -> Floats | None:
        assert measured is not None  # it was paid for with the plan
        counts = np.clip(measured.sums, 0, None).astype(np.float64)
        total = counts.sum()
        return counts / total if total > 0 else None  # all noise negative: uniform

    def cells(self, schema: Schema, measured: NoisyBlock | None) -> tuple[int, Floats | None]:
        """All cells with their clipped, normalised noisy counts."""
        return math.prod(column.bins for column in schema), self._probabilities(measured)

    def draw(
        self, m: int, schema: Schema, measured: NoisyBlock | None, rng: np.random.Generator
    ) -> dict[str, Codes]:
        """M independent points, column name -> (m,) codes."""
        cells, probabilities = self.cells(schema, measured)
        return schema.draw_inside(rng.choice(cells, size=m, p=probabilities), rng)

    def note(self, measured: NoisyBlock | None) -> str | None:
        """A note where no noisy count is positive."""
        if self._probabilities(measured) is not None:
            return None
        return (
            "no noisy count of the histogram is positive: candidates were drawn uniformly "
            "instead. Intervals and tests do not use them and remain valid"
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {"kind": "perturbed_histogram", "share": str(self.share)}
