"""The perturbed histogram (BL24, Algorithm 2, after Wasserman & Zhou 2010)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from dpstats.columns import Codes
from dpstats.errors import RequestError
from dpstats.families.block import Block, Floats
from dpstats.families.cells import Table
from dpstats.privacy.budget import parse_fraction, read_rational
from dpstats.schema import Schema

if TYPE_CHECKING:
    from dpstats.measurements import NoisyBlock
    from dpstats.privacy.laws import DiscreteLaplace

MAX_CELLS = 2**20


@dataclass(frozen=True)
class PerturbedHistogram:
    """Noisy counts of all cells of the domain, clipped at zero and normalised.

    The counts have L1 sensitivity 2 under the replace-one relation, so Laplace noise of scale
    2 / eps_reference keeps them private; clipping and normalising are post-processing. They serve
    only to place candidates and never answer a question.

    Parameters
    ----------
    share : rational in (0, 1)
        Share of the whole budget; one half as in the paper (eps + eps = 2 eps).
    """

    share: Fraction = Fraction(1, 2)

    def __post_init__(self) -> None:
        given = parse_fraction(self.share) or self.share  # text in files
        share = read_rational(given, "PerturbedHistogram(share=...)")
        if share >= 1:
            raise RequestError(
                f"PerturbedHistogram(share={share}) leaves nothing for the analyses; "
                "give a share below 1"
            )
        object.__setattr__(self, "share", share)

    def block(self, schema: Schema) -> Block | None:
        """The table of all columns."""
        cells = math.prod(column.bins for column in schema)
        if cells > MAX_CELLS:
            raise RequestError(
                f"a perturbed histogram over {list(schema.names)} has {cells} cells, more than "
                f"{MAX_CELLS}; use reference=dps.Uniform() or fewer or coarser columns"
            )
        return Table(tuple(schema.columns))

    def check(self, block: Block, n: int, law: DiscreteLaplace) -> None:
        """Refuse a histogram whose expected positive noise exceeds the n rows themselves."""
        a = math.exp(-1 / law.scale)
        positive_noise = block.size * a / (1 - a * a)  # sum over cells of E max(Z, 0)
        if positive_noise > n:
            raise RequestError(
                f"a perturbed histogram of {block.size} cells would hold about "
                f"{positive_noise:.0f} rows of pure noise against n = {n}; use "
                "reference=dps.Uniform(), a larger share or budget, or fewer or coarser columns"
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

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {"kind": "perturbed_histogram", "share": str(self.share)}
