"""Measurements: the noisy sums and the law of their noise, in memory and in a file."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dpstats import files
from dpstats.arrays import Codes, Floats, freeze
from dpstats.checks import counted
from dpstats.errors import DpstatsError, RequestError
from dpstats.families.block import Block
from dpstats.families.tables.cells import ROWS, Partition, Table
from dpstats.measured.row_count import RowCount
from dpstats.measured.strategy import HasStrategy, Role, Strategy, plan_digest
from dpstats.privacy.neighbours import Neighbours

if TYPE_CHECKING:
    from dpstats.privacy.laws import LatticeLaw

_SPENT = "keep them until then, since the budget is spent"
_ARCHIVE, _ANSWER = 4_096, 48  # bytes of an archive beside its texts, and of two numbers
_FOR_READERS = ("person", "assumes")  # sentences, whose words have changed between versions
ANSWERS_HEADER = ("block", "function", "name", "noisy_sum", "uniform")


@dataclass(frozen=True)
class NoisyBlock:
    """A block of d test functions with its noisy sums."""

    block: Block
    scales: Floats  # (d,) of the noise on each sum
    sums: Codes  # (d,) S_f + Z_f, unclipped
    uniforms: Floats  # (d,) on (-1/2, 1/2), drawn once: they make tests and intervals exact


@dataclass(frozen=True, eq=False, repr=False)
class Measurements(HasStrategy):
    """The one private step's result; everything later is computed from it.

    Attributes
    ----------
    strategy : Strategy
        What was measured, with which noise; also as `schema`, `budget`, `unit`, `family` and
        `columns`.
    noisy_sums : (D,) int64
        S_f + Z_f of all functions of the strategy, in its order, unclipped; `sums` are those
        of the family.
    uniforms : (D,) float64
        Drawn once with the noise, uniform on (-1/2, 1/2); they make tests and intervals exact.
    reference_spec : mapping
        Which reference density the candidates come from.
    requests : mapping of name to plain data
        The analyses that were asked for.
    not_private : bool
        True if the noise came from a source for testing; such a file must not be published.

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

    strategy: Strategy
    noisy_sums: Codes
    uniforms: Floats
    reference_spec: Mapping[str, Any] = field(default_factory=dict)
    requests: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    not_private: bool = False

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Measurements):
            return NotImplemented
        return self.to_members() == other.to_members()

    def __hash__(self) -> int:
        return hash((self.noisy_sums.tobytes(), self.uniforms.tobytes()))

    def __repr__(self) -> str:
        names = ", ".join(self.requests)
        return f"<dpstats Measurements: {names}; {self._counted}, {self.budget}>"

    def __str__(self) -> str:
        lines = [
            f"Measurements: {self._counted} from "
            f"{'' if self.rows.rows_public else 'about '}{counted(self.n, 'private row')}",
            *self.summary_lines(),
            f"To finish: 'dpstats synthesize' or dps.synthesize makes a release of them; {_SPENT}",
        ]
        return "\n".join(lines)

    @property
    def _counted(self) -> str:
        return counted(len(self.noisy_sums), "noisy answer")

    def summary_lines(self) -> list[str]:
        """Lines on how the measurements were made, for their text and that of a release."""
        lines = [
            f"Budget: {self.budget}; {self.neighbours}; {self.neighbours.persons}",
            f"Columns: {', '.join(self.columns.names)} (only those the plan's analyses touch)",
            f"Analyses: {', '.join(map(repr, self.requests))}",
            f"Digest of the plan: {files.short_digest(self.plan_digest)}",
            *(
                f"Second stage: {counted(noisy.block.size, 'sum')} of the score at a pilot, of "
                f"{noisy.block.names[-1].removeprefix('score of ')} and others"
                for noisy in self.scores
            ),
            self.columns.missing_rules(),
        ]
        if self.not_private:
            lines.append("NOT PRIVATE: the noise came from a source for testing; do not publish")
        return lines

    def __post_init__(self) -> None:
        size = sum(planned.block.size for planned in self.strategy.blocks)
        for name in ("noisy_sums", "uniforms"):
            if len(getattr(self, name)) != size:
                raise RequestError(
                    f"a strategy of {size} functions needs as many {name}; got "
                    f"{len(getattr(self, name))}"
                )
        known = self.strategy.n is not None
        if known if self.strategy.unit == "add_remove" else self.strategy.count_is_public > known:
            raise RequestError(
                "measurements hold the public number of rows under unit='replace', and none but "
                "the noisy one under unit='add_remove'"
            )
        freeze(vars(self))

    @cached_property
    def _noisy(self) -> tuple[tuple[Role, NoisyBlock], ...]:
        ends = np.cumsum([planned.block.size for planned in self.strategy.blocks])[:-1]
        sums, uniforms = np.split(self.noisy_sums, ends), np.split(self.uniforms, ends)
        return tuple(
            (planned.role, NoisyBlock(planned.block, scales, s, u))
            for planned, scales, s, u in zip(
                self.strategy.blocks, self.strategy.block_scales, sums, uniforms, strict=True
            )
        )

    @property
    def every(self) -> tuple[NoisyBlock, ...]:
        """All blocks, in the strategy's order."""
        return tuple(noisy for _, noisy in self._noisy)

    @cached_property
    def measured(self) -> tuple[NoisyBlock, ...]:
        """The blocks of the family."""
        return tuple(noisy for role, noisy in self._noisy if role == "family")

    @cached_property
    def scores(self) -> tuple[NoisyBlock, ...]:
        """The second stages of regressions, each at its pilot."""
        return tuple(noisy for role, noisy in self._noisy if role == "score")

    @cached_property
    def of_persons(self) -> tuple[NoisyBlock, ...]:
        """The products of person totals."""
        return tuple(noisy for role, noisy in self._noisy if role == "persons")

    @cached_property
    def contrasts(self) -> tuple[NoisyBlock, ...]:
        """The contrasts between units of a survey."""
        return tuple(noisy for role, noisy in self._noisy if role == "contrasts")

    @property
    def reference(self) -> NoisyBlock | None:
        """The reference density's own measurement; never part of the family."""
        return dict(self._noisy).get("reference")

    @property
    def count(self) -> NoisyBlock | None:
        """The measured number of rows, where neighbours add or remove one."""
        return dict(self._noisy).get("count")

    @property
    def n(self) -> int:
        """Number of private rows: public under the replace-one relation, else noisy, at least 1."""
        return self.rows.in_rows

    @cached_property
    def rows(self) -> RowCount:
        """The number of private rows; where it is not public, the least noisy measurement of it.

        That is a whole number whose noise is a plain sum: `Sources.rows` combines all that know it.
        """
        if self.count is None:
            assert self.strategy.n is not None  # checked when made
            return RowCount(float(self.strategy.n), rows_per_person=self.rows_per_person)
        total, functions = self._total
        law = self.budget.law(float(total.scales[0]), len(functions))
        held, estimate = self.strategy, float(total.sums[functions].sum())
        return RowCount(
            estimate, law, self.rows_per_person, weight=held.row_weight, of_table=held.public_rows
        )

    @property
    def counted_alone(self) -> bool:
        """True if `rows` is the measured number of rows, whose noise no other answer shares."""
        return self._total[0] is self.count

    @cached_property
    def _total(self) -> tuple[NoisyBlock, NDArray[np.intp]]:
        """Block with the least noise in the number of rows, and its functions that add up to it."""
        assert self.count is not None
        adding_up = [(self.count, np.zeros(1, np.intp))]
        for noisy in self.measured:
            if isinstance(noisy.block, Table):
                adding_up.append((noisy, np.arange(noisy.block.size)))
            elif isinstance(noisy.block, Partition):
                derivation = noisy.block.derive(ROWS, complements=False)
                if derivation is not None:
                    adding_up.append((noisy, np.flatnonzero(derivation.member == 0)))
        return min(adding_up, key=lambda known: self._variance_of_total(*known))

    def _variance_of_total(self, noisy: NoisyBlock, functions: NDArray[np.intp]) -> float:
        return self.budget.law(float(noisy.scales[0])).variance * len(functions)

    @property
    def sources(self) -> tuple[NoisyBlock, ...]:
        """Blocks that answers are combined from: all but the reference's own measurement."""
        counted = () if self.count is None else (self.count,)
        return self.measured + self.scores + self.of_persons + self.contrasts + counted

    @property
    def sums(self) -> Codes:
        """Noisy sums T_f of the family, (|F|,) int64, unclipped."""
        return self.noisy_sums[: self.family.size]

    @cached_property
    def means(self) -> Floats:
        """Noisy means b_f = T_f / (n B_f) in unit scale, (|F|,) float64, unclipped."""
        return freeze(self.sums / (self.rows.value * self.family.bounds))

    @property
    def scales(self) -> Floats:
        """Noise scales on the sums, (|F|,) float64."""
        return self.strategy.scales

    @property
    def laws(self) -> tuple[list[LatticeLaw], NDArray[np.intp]]:
        """The distinct noise laws, and which of them each function has, (|F|,)."""
        return self.strategy.laws

    @cached_property
    def standard_deviations(self) -> Floats:
        """Noise standard deviation of the means, unit scale, (|F|,) float64."""
        sd = np.sqrt(self.strategy.variances)
        return freeze(sd / (self.rows.value * self.family.bounds))

    @property
    def plan_digest(self) -> str:
        """The `Plan.digest` of the plan that these were measured under."""
        return plan_digest(self.strategy, self.requests, self.reference_spec)

    def save(self, path: str | Path, *, overwrite: bool = False) -> None:
        """Write a zip archive of JSON and CSV. Keep it: the budget is spent.

        Parameters
        ----------
        path : str or Path
        overwrite : bool
            Replace an existing file, but never a ledger or measurements without their release.

        Raises
        ------
        RequestError
            If the file exists or cannot be written.
        """
        files.write_atomically(path, self.to_bytes(), overwrite=overwrite)

    def to_bytes(self) -> bytes:
        """The bytes that `save` writes."""
        return files.pack(self.to_members())

    @classmethod
    def load(cls, path: str | Path) -> Measurements:
        """Read measurements from a file.

        Parameters
        ----------
        path : str or Path
            File that `save` wrote, or a release, which holds its measurements.

        Returns
        -------
        Measurements

        Raises
        ------
        FileFormatError
        """
        return cls.from_members(files.load_archive(path, files.MEASUREMENTS))

    def check_kept(self) -> None:
        """Refuse measurements that a file cannot hold and give back.

        Raises
        ------
        RequestError
            To be raised before the budget is spent: with zeros for the noisy sums.
        """
        try:
            texts = files.unpack(io.BytesIO(self.to_bytes()), files.MEASUREMENTS, "the file")
            kept = Measurements.from_members(texts) == self
        except (DpstatsError, TypeError, ValueError, OverflowError) as error:
            raise RequestError(
                f"the measurements could not be kept in a file: {error}; change the plan"
            ) from None
        if not kept:
            raise RequestError(
                "the measurements would come back changed from a file; change the plan, its names "
                "and parameters first"
            )

    @property
    def _of_several_rows(self) -> str:
        if self.neighbours == Neighbours(self.unit):
            return self.budget.rows_of_one
        return "all rows of a person are protected together at the budget"

    @property
    def most_bytes(self) -> int:
        """Bound on the size of the file, whatever the noisy sums and uniforms are."""
        texts = self.to_members().values()
        return _ARCHIVE + sum(len(text.encode()) for text in texts) + _ANSWER * len(self.noisy_sums)

    def to_members(self) -> dict[str, str]:
        """The texts of the archive, by member name."""
        document: dict[str, Any] = {
            "dpstats": "measurements",
            "version": files.VERSION,
            "person": f"{self.neighbours.persons}; {self._of_several_rows}",
            "not_private": self.not_private,
            "assumes": "a sound system random source; timing and memory side channels are out of "
            "scope; batch use only",
            **self.strategy.to_dict(),
            "reference": dict(self.reference_spec),
            "analyses": {name: dict(plain) for name, plain in self.requests.items()},
            "plan": self.plan_digest,
        }
        functions = [
            (number, f, name)
            for number, planned in enumerate(self.strategy.blocks)
            for f, name in enumerate(planned.block.names)
        ]
        cells = zip(functions, self.noisy_sums.tolist(), self.uniforms.tolist(), strict=True)
        rows = [(*function, noisy_sum, repr(uniform)) for function, noisy_sum, uniform in cells]
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
        with files.reading("the measurements"):
            strategy = Strategy.from_dict(document)
            strategy.check()
            if any(planned.pending for planned in strategy.blocks):
                raise ValueError("a second stage lacks the pilot that it was measured at")
            size = sum(planned.block.size for planned in strategy.blocks)
            if len(rows) != size:
                raise ValueError(f"answers.csv holds {len(rows)} answers to {size} functions")
            uniforms = np.array([float(row[4]) for row in rows], dtype=np.float64)
            if not np.all(np.abs(uniforms) < 0.5):  # at an end a law has an infinite quantile
                raise ValueError("answers.csv holds a uniform outside (-1/2, 1/2)")
            if not isinstance(document["not_private"], bool):
                raise TypeError("not_private must be true or false")
            measurements = cls(
                strategy=strategy,
                noisy_sums=np.array([int(row[3]) for row in rows], dtype=np.int64),
                uniforms=uniforms,
                reference_spec=document["reference"],
                requests={name: dict(plain) for name, plain in document["analyses"].items()},
                not_private=document["not_private"],
            )
            if document["plan"] != measurements.plan_digest:
                raise ValueError(
                    "they are not those of the plan whose digest they carry; the file was edited "
                    "after it was written"
                )
            measurements._check_written(document, members["answers.csv"])
        return measurements

    def _check_written(self, document: Mapping[str, Any], answers: str) -> None:
        """Refuse texts other than those that these measurements are saved as."""
        again = self.to_members()
        written = json.loads(again["measurements.json"])
        told = {key: document[key] for key in _FOR_READERS}
        if not all(isinstance(text, str) for text in told.values()):
            raise TypeError(f"{' and '.join(_FOR_READERS)} must be text")
        changed = files.difference(document, written | told)
        if changed is None and answers != again["answers.csv"]:
            changed = "answers.csv"
        if changed is not None:
            raise ValueError(f"{changed.lstrip('.')} is not as dpstats writes it")
