"""What a reference density must offer, and how it is read from a file."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from dpstats.columns import Codes
from dpstats.errors import FileFormatError
from dpstats.families.block import Block, Floats
from dpstats.schema import Schema

if TYPE_CHECKING:
    from dpstats.measurements import NoisyBlock
    from dpstats.privacy.laws import DiscreteLaplace


class Reference(Protocol):
    """A density on the coded domain that candidates are drawn from; public or paid for."""

    @property
    def share(self) -> Fraction:
        """Share of the whole budget it spends; zero for public densities."""

    def block(self, schema: Schema) -> Block | None:
        """What it measures, on the columns of `schema`."""

    def check(self, block: Block, n: int, law: DiscreteLaplace) -> None:
        """Refuse, from public numbers, a measurement that would be mostly noise."""

    def cells(self, schema: Schema, measured: NoisyBlock | None) -> tuple[int, Floats | None]:
        """Number of cells (levels and bins) of the domain, and their probabilities.

        None stands for equal probabilities; ``(0, None)`` for a density not on cells.
        """

    def draw(
        self, m: int, schema: Schema, measured: NoisyBlock | None, rng: np.random.Generator
    ) -> dict[str, Codes]:
        """M independent points, column name -> (m,) codes."""

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""


def codes_in_cells(cells: Codes, schema: Schema, rng: np.random.Generator) -> dict[str, Codes]:
    """Points inside given cells (flat indices, C order), uniform on the grid inside each."""
    bins = np.unravel_index(cells, [column.bins for column in schema])
    return {
        column.name: column.draw_inside(np.asarray(index, dtype=np.int64), rng)
        for column, index in zip(schema, bins, strict=True)
    }


def reference_from_dict(plain: Mapping[str, Any]) -> Reference:
    """Build a reference density again from plain data, such as ``{"kind": "uniform"}``."""
    from dpstats.references.histogram import PerturbedHistogram
    from dpstats.references.uniform import Uniform

    parameters = {key: value for key, value in plain.items() if key != "kind"}
    kinds = {"uniform": Uniform, "perturbed_histogram": PerturbedHistogram}
    kind = plain.get("kind")
    if kind not in kinds:
        raise FileFormatError(f"unknown reference density {kind!r}; known: {sorted(kinds)}")
    try:
        reference: Reference = kinds[kind](**parameters)
    except TypeError:
        raise FileFormatError(f"reference {kind!r} has unknown keys {sorted(parameters)}") from None
    return reference
