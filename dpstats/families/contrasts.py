"""Signed sums of other functions over paired units, from which sampling variances follow.

Within strata the units of a survey are paired by the declaration alone, and pairs are dealt to J
contrasts. A contrast is the sum of a function over the rows of first units less that over the rows
of second ones. See docs/explanation/inference/survey.md for what its square estimates, and for the
sensitivities.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from dpstats.arrays import Codes, Floats
from dpstats.errors import FileFormatError, RequestError
from dpstats.families.block import Block
from dpstats.privacy.neighbours import Sensitivity, Unit
from dpstats.schema import Column, Schema
from dpstats.schema.design import UNPAIRED

UNIT = "(unit)"
"""Name of the codes of units among the codes of columns: no column is named so."""


@dataclass(frozen=True)
class Contrasts(Block):
    """Contrasts between paired units of all functions of another block.

    A row is in one contrast, with one sign. So the number of contrasts does not enter the
    sensitivity. A replaced row may change its sign: then it moves one contrast by twice its values.

    Attributes
    ----------
    base : Block
        The d functions.
    pairs, triples : (int, int)
        Number of pairs, and of contrasts that they are dealt to; of pairs that stand for three
        units likewise. Without triples (0, 0).
    """

    base: Block
    pairs: tuple[int, int]
    triples: tuple[int, int] = (0, 0)

    kind: ClassVar[str] = "contrasts"
    joint: ClassVar[bool] = True

    def __post_init__(self) -> None:
        for several, contrasts in (self.pairs, self.triples):
            if not (1 <= contrasts <= several or several == contrasts == 0):
                raise RequestError(f"{several} pairs cannot be dealt to {contrasts} contrasts")
        if self.count < 1:
            raise RequestError("a design without a pair of units has no contrasts")

    @property
    def columns(self) -> tuple[Column, ...]:
        """Columns that the functions depend on, beside the unit."""
        return self.base.columns

    @property
    def coded(self) -> tuple[Column, ...]:
        """Columns of which the functions need the codes."""
        return self.base.coded

    @property
    def count(self) -> int:
        """Number of contrasts, J."""
        return self.pairs[1] + self.triples[1]

    @property
    def factors(self) -> Floats:
        """(J,) what the squares of contrasts are multiplied by, once noise is in them."""
        return np.repeat([1.0, 1.5], [self.pairs[1], self.triples[1]])

    @property
    def size(self) -> int:
        """J d."""
        return self.count * self.base.size

    @property
    def ranges(self) -> tuple[Codes, Codes]:
        """Minus B and B."""
        bounds = np.tile(self.base.bounds, self.count)
        return -bounds, bounds

    @property
    def names(self) -> list[str]:
        """Such as ``contrast 3 of smoker``."""
        return [f"contrast {j} of {name}" for j in range(1, self.count + 1)
                for name in self.base.names]  # fmt: skip

    @property
    def pending(self) -> bool:
        """True if the functions are not known yet."""
        return self.base.pending

    @property
    def calibrates(self) -> bool:
        """They only estimate sampling variances."""
        return True

    def contrast_of(self, units: Codes) -> tuple[Codes, Codes]:
        """Number of the contrast of each row (n,), and its sign 1, -1 or 0."""
        pair, sign = units // 2, np.where(units == UNPAIRED, 0, 1 - 2 * (units % 2))
        plain, dealt = self.pairs
        of_triples = dealt + (pair - plain) % max(self.triples[1], 1)
        contrast = np.where(pair < plain, pair % max(dealt, 1), of_triples)
        return np.where(sign == 0, 0, contrast), sign

    def sums(self, codes: Mapping[str, Codes]) -> Codes:
        """Exact sums (J d,) int64 over rows."""
        contrast, sign = self.contrast_of(codes[UNIT])
        total = np.zeros((self.count, self.base.size), dtype=np.int64)
        for signed in (1, -1):
            for j in np.unique(contrast[sign == signed]).tolist():
                rows = np.flatnonzero((sign == signed) & (contrast == j))
                total[j] += signed * self.base.sums({name: c[rows] for name, c in codes.items()})
        return total.ravel()

    def functions(self, codes: Mapping[str, Codes]) -> Codes:
        """Values (J d, n) int64 of rows."""
        contrast, sign = self.contrast_of(codes[UNIT])
        at = (contrast == np.arange(self.count)[:, np.newaxis]) * sign
        values = at[:, np.newaxis] * self.base.functions(codes).astype(np.int64)
        return np.asarray(values.reshape(self.size, -1))

    def sensitivity(self, unit: Unit) -> Sensitivity:
        """That of an added row; replaced, twice that in L1 and in L2 (eq. contrast-sensitivity)."""
        return self.base.sensitivity("add_remove").of_rows(1 if unit == "add_remove" else 2)

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {"kind": self.kind, "pairs": list(self.pairs), "triples": list(self.triples),
                "base": self.base.to_dict()}  # fmt: skip

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any], schema: Schema) -> Contrasts:
        """Inverse of `to_dict` with the base as a block, for the pairs of the schema's design."""
        design = schema.design
        block = cls(plain["base"], _two(plain["pairs"]), _two(plain["triples"]))
        if design is None or not design.has_contrasts:
            raise FileFormatError("the file holds contrasts of units, and its schema no design")
        if (block.pairs[0], block.triples[0]) != (design.pairs.plain, design.pairs.triples):
            raise FileFormatError("the contrasts of the file are not those of its design's units")
        return block


def _two(numbers: Sequence[Any]) -> tuple[int, int]:
    first, second = map(int, numbers)
    return first, second
