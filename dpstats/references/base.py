"""What a reference density must offer."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Any, Protocol

from dpstats.columns import Codes
from dpstats.families.block import Block, Floats
from dpstats.schema import Schema

if TYPE_CHECKING:
    import numpy as np

    from dpstats.measurements import NoisyBlock
    from dpstats.privacy.laws import DiscreteLaplace


class Reference(Protocol):
    """Where candidates come from: public, paid for, or following the noisy answers."""

    @property
    def share(self) -> Fraction:
        """Share of the whole budget it spends; zero for public densities."""

    def block(self, schema: Schema) -> Block | None:
        """What it measures, on the columns of `schema`."""

    def check(self, block: Block, n: int, law: DiscreteLaplace) -> None:
        """Refuse, from public numbers, a measurement that would be mostly noise."""

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""


class Density(Reference, Protocol):
    """A reference that is a density on the coded domain, whatever the answers of the family."""

    def cells(self, schema: Schema, measured: NoisyBlock | None) -> tuple[int, Floats | None]:
        """Number of cells (levels and bins) of the domain, and their probabilities.

        None stands for equal probabilities; ``(0, None)`` for a density not on cells.
        """

    def draw(
        self, m: int, schema: Schema, measured: NoisyBlock | None, rng: np.random.Generator
    ) -> dict[str, Codes]:
        """M independent points, column name -> (m,) codes."""
