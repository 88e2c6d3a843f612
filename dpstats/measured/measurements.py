"""What was measured: the noisy sums, the law of their noise, and what may be said about them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dpstats import files
from dpstats.arrays import Codes, Floats
from dpstats.errors import FileFormatError, RequestError
from dpstats.families import block_from_dict
from dpstats.families.block import Block, Family
from dpstats.families.cells import ROWS
from dpstats.measured.row_count import RowCount
from dpstats.privacy.budget import Budget, budget_from_dict
from dpstats.privacy.neighbours import Unit, check_unit
from dpstats.privacy.noise import scale_for
from dpstats.schema import Schema

if TYPE_CHECKING:
    from dpstats.privacy.laws import LatticeLaw, Noise

ANSWERS_HEADER = ("block", "function", "name", "noisy_sum", "uniform")
REFERENCE, COUNT = -1, -2  # block numbers of the reference's own measurement, and of the rows


@dataclass(frozen=True)
class NoisyBlock:
    """A block with its noisy sums.

    Attributes
    ----------
    block : Block
        d test functions.
    multiplier : Fraction
        Scale of Laplace noise, squared scale of Gaussian noise, in natural units (those of f, in
        [-1, 1]); see `noise_scales`.
    sums : (d,) int64
        S_f + Z_f, unclipped.
    uniforms : (d,) float64
        Drawn once with the noise, uniform on (-1/2, 1/2); they make tests and intervals exact.
    noise : {"laplace", "gaussian"}
    """

    block: Block
    multiplier: Fraction
    sums: Codes
    uniforms: Floats
    noise: Noise = "laplace"

    @cached_property
    def scales(self) -> Floats:
        """Scale of the noise on each sum, (d,) float64."""
        return noise_scales(self.block, self.multiplier, self.noise)


def noise_scales(block: Block, multiplier: Fraction, noise: Noise = "laplace") -> Floats:
    """Scale of the noise on each function's sum, (d,) float64.

    It is multiplier * B_f for Laplace noise and sqrt(multiplier) * B_f for Gaussian, rounded up.
    """
    bounds, which = np.unique(block.bounds, return_inverse=True)
    return np.array([scale_for(multiplier, int(bound), noise) for bound in bounds])[which]


@dataclass(frozen=True)
class Measurements:
    """The one private step's result; everything later is computed from it.

    Attributes
    ----------
    schema : Schema
        All that the custodian declared; `columns` are the ones in use.
    measured : tuple of NoisyBlock
        The family F.
    reference : NoisyBlock or None
        The reference density's own measurement, paid by its own share; never part of F.
    reference_spec : mapping
        Which reference density the candidates come from.
    n : int
        Number of private rows, public under the replace-one relation; else the noisy one, at
        least 1.
    budget : PureDP or ZCDP
        The whole budget that was spent.
    unit : {"replace", "add_remove"}
        Neighbour relation.
    count : NoisyBlock or None
        The measured number of rows, where neighbours add or remove one.
    requests : mapping of name to plain data
        The analyses that were asked for.
    not_private : bool
        True if the noise came from a test's own source; such a file must not be published.

    Examples
    --------
    >>> import dpstats as dps
    >>> import pandas as pd
    >>> schema = dps.Schema([dps.Boolean("smoker")])
    >>> plan = dps.plan(schema, {"smoking": dps.Proportion("smoker")}, budget=dps.PureDP(1))
    >>> rows = pd.DataFrame({"smoker": [True] * 3_000 + [False] * 7_000})
    >>> measurements = dps.measure(plan, rows)
    >>> print(measurements.means.round(2), measurements.scales)
    [0.3] [1.]
    >>> measurements.save("measurements.zip")
    >>> dps.Measurements.load("measurements.zip").family.names
    ['smoker']
    """

    schema: Schema
    measured: tuple[NoisyBlock, ...]
    n: int
    budget: Budget
    unit: Unit
    count: NoisyBlock | None = None
    reference: NoisyBlock | None = None
    reference_spec: Mapping[str, Any] = field(default_factory=dict)
    requests: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    not_private: bool = False

    def __post_init__(self) -> None:
        own = (noisy for noisy in (self.reference, self.count) if noisy is not None)
        for noisy in (*self.measured, *own):
            if noisy.noise != self.budget.noise:
                raise RequestError(
                    f"a budget of kind {self.budget.kind!r} is spent on {self.budget.noise} noise, "
                    f"and a block holds {noisy.noise} noise"
                )

        if (self.count is not None) != (self.unit == "add_remove"):
            raise RequestError("the number of rows is measured exactly under unit='add_remove'")

    @cached_property
    def rows(self) -> RowCount:
        """The number of private rows, with the law of its noise if it was measured."""
        if self.count is None:
            return RowCount(float(self.n))
        law = self.budget.law(float(self.count.scales[0]))
        return RowCount(float(self.count.sums[0]), law)

    @property
    def sources(self) -> tuple[NoisyBlock, ...]:
        """What answers are combined from: the family, and the count of rows if it was measured."""
        return self.measured + (() if self.count is None else (self.count,))

    @cached_property
    def family(self) -> Family:
        """The test functions F that were measured."""
        return Family(tuple(noisy.block for noisy in self.measured))

    @property
    def columns(self) -> Schema:
        """The columns that the family touches: the only ones that were read."""
        return self.schema.select(self.family.column_names)

    @cached_property
    def sums(self) -> Codes:
        """Noisy sums T_f, (|F|,) int64, unclipped."""
        return np.concatenate([noisy.sums for noisy in self.measured])

    @cached_property
    def means(self) -> Floats:
        """Noisy means b_f = T_f / (n B_f) in unit scale, (|F|,) float64, unclipped."""
        return self.sums / (self.n * self.family.bounds)

    @cached_property
    def scales(self) -> Floats:
        """Noise scales on the sums, (|F|,) float64."""
        return np.concatenate([noisy.scales for noisy in self.measured])

    @cached_property
    def laws(self) -> tuple[list[LatticeLaw], NDArray[np.intp]]:
        """The distinct noise laws, and which of them each function has, (|F|,)."""
        distinct, which = np.unique(self.scales, return_inverse=True)
        return [self.budget.law(float(scale)) for scale in distinct], which

    @cached_property
    def standard_deviations(self) -> Floats:
        """Noise standard deviation of the means, unit scale, (|F|,) float64."""
        laws, which = self.laws
        return np.sqrt([law.variance for law in laws])[which] / (self.n * self.family.bounds)

    def save(self, path: str | Path) -> None:
        """Write a zip archive of JSON and CSV, so that a paid measurement is never lost."""
        files.save_archive(path, self.to_members())

    @classmethod
    def load(cls, path: str | Path) -> Measurements:
        """Read what `save` wrote (a release file holds its measurements too)."""
        return cls.from_members(files.load_archive(path, ("measurements.json", "answers.csv")))

    def to_members(self) -> dict[str, str]:
        """The texts of the archive, by member name."""
        blocks = [
            {"multiplier": str(noisy.multiplier), **noisy.block.to_dict()}
            for noisy in self.measured
        ]
        document: dict[str, Any] = {
            "dpstats": "measurements",
            "version": files.VERSION,
            "rows": self.n,
            "unit": self.unit,
            "person": f"one row per person; {self.budget.rows_of_one}",
            "budget": self.budget.to_dict(),
            "not_private": self.not_private,
            "assumes": "a sound system random source; timing and memory side channels are out of "
            "scope; batch use only",
            "schema": self.schema.to_dict(),
            "blocks": blocks,
            "reference": dict(self.reference_spec),
            "analyses": {name: dict(plain) for name, plain in self.requests.items()},
        }
        numbered = list(enumerate(self.measured))
        if self.count is not None:
            document["count"] = str(self.count.multiplier)
            numbered.append((COUNT, self.count))
        if self.reference is not None:
            document["reference_block"] = {
                "multiplier": str(self.reference.multiplier),
                **self.reference.block.to_dict(),
            }
            numbered.append((REFERENCE, self.reference))
        rows = [
            (number, f, name, int(noisy.sums[f]), repr(float(noisy.uniforms[f])))
            for number, noisy in numbered
            for f, name in enumerate(noisy.block.names)
        ]
        return {
            "measurements.json": files.to_json(document),
            "answers.csv": files.to_csv(ANSWERS_HEADER, rows),
        }

    @classmethod
    def from_members(cls, members: Mapping[str, str]) -> Measurements:
        """Inverse of `to_members`.

        Raises
        ------
        FileFormatError
            For anything that `to_members` would not have written.
        """
        document = files.from_json(members["measurements.json"], "measurements", "the file")
        rows = files.from_csv(members["answers.csv"], ANSWERS_HEADER, "answers.csv")
        try:
            schema = Schema.from_dict(document["schema"])
            budget = budget_from_dict(document["budget"])
            answers: dict[int, list[tuple[int, float]]] = {}
            for number, _, _, noisy_sum, uniform in rows:
                answers.setdefault(int(number), []).append((int(noisy_sum), float(uniform)))
            measured = tuple(
                _noisy_block(
                    block_from_dict(plain, schema), plain, answers.get(number, []), budget.noise
                )
                for number, plain in enumerate(document["blocks"])
            )
            count = None
            if "count" in document:
                plain = {"multiplier": document["count"]}
                count = _noisy_block(ROWS, plain, answers.get(COUNT, []), budget.noise)
            reference = None
            if "reference_block" in document:
                plain = document["reference_block"]
                block = block_from_dict(plain, schema)
                reference = _noisy_block(block, plain, answers.get(REFERENCE, []), budget.noise)
            if not measured or type(document["rows"]) is not int or document["rows"] < 1:
                raise ValueError("it needs blocks and a positive number of rows")
            if not all(isinstance(document[key], dict) for key in ("reference", "analyses")):
                raise TypeError("reference and analyses must be mappings")
            return cls(
                schema=schema,
                measured=measured,
                n=document["rows"],
                budget=budget,
                unit=check_unit(document["unit"]),
                count=count,
                reference=reference,
                reference_spec=document["reference"],
                requests=document["analyses"],
                not_private=bool(document["not_private"]),
            )
        except (AttributeError, KeyError, OverflowError, TypeError, ValueError) as error:
            raise FileFormatError(f"the measurements cannot be read: {error}") from None


def _noisy_block(
    block: Block, plain: Mapping[str, Any], answers: list[tuple[int, float]], noise: Noise
) -> NoisyBlock:
    if len(answers) != block.size:
        raise FileFormatError(f"answers.csv holds {len(answers)} of {block.size} functions")
    sums = np.array([total for total, _ in answers], dtype=np.int64)
    uniforms = np.array([uniform for _, uniform in answers], dtype=np.float64)
    if not np.all(np.abs(uniforms) <= 0.5):
        raise FileFormatError("answers.csv holds a uniform outside [-1/2, 1/2]")
    return NoisyBlock(block, Fraction(plain["multiplier"]), sums, uniforms, noise)
