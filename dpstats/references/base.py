"""What a reference density must offer."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Any, Protocol

from dpstats.arrays import Codes, Floats
from dpstats.errors import RequestError
from dpstats.families.block import Block
from dpstats.privacy.rationals import parse_fraction, read_rational
from dpstats.schema import Schema

if TYPE_CHECKING:
    import numpy as np

    from dpstats.measured.measurements import NoisyBlock
    from dpstats.privacy.laws import LatticeLaw


class Reference(Protocol):
    """Where candidates come from: public, paid for, or following the noisy answers."""

    @property
    def share(self) -> Fraction:
        """Share of the whole budget it spends; zero for public densities."""

    def block(self, schema: Schema, n: int | None = None) -> Block | None:
        """What it measures, on the columns of `schema`; n is the public number of rows or None."""

    def check(self, block: Block, n: int, law: LatticeLaw) -> None:
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

    def note(self, measured: NoisyBlock | None) -> str | None:
        """What a reader of the release must know of this density, such as a fallback."""


class Unmeasured:
    """What the references share that measure nothing beside the family."""

    @property
    def share(self) -> Fraction:
        """Zero: nothing is measured."""
        return Fraction(0)

    def block(self, schema: Schema, n: int | None = None) -> Block | None:
        """None: nothing is measured."""
        return None

    def check(self, block: Block, n: int, law: LatticeLaw) -> None:
        """Nothing to check."""


def read_share(share: object, name: str) -> Fraction:
    """Share of the budget that a reference spends, below one; text as it stands in files."""
    read = read_rational(parse_fraction(share) or share, f"{name}(share=...)")
    if read >= 1:
        raise RequestError(
            f"{name}(share={read}) leaves nothing for the analyses; give a share below 1"
        )
    return read
