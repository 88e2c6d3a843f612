"""A strategy: the blocks that are measured, the noise on each, and the cost.

A plan, the measurements made under it and the files of both hold one strategy; all that follows
from it is computed here, from public numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from dpstats import files
from dpstats.arrays import Floats, freeze
from dpstats.caching import Cached
from dpstats.checks import check_whole, short
from dpstats.errors import BudgetError, FileFormatError, RequestError
from dpstats.families import block_from_dict
from dpstats.families.block import Block, Family
from dpstats.families.contrasts import Contrasts
from dpstats.families.persons import MOST_ROWS_OF_PERSON, PersonProducts
from dpstats.families.pilot_score import PilotScore
from dpstats.families.tables.cells import ROWS, Cells, Partition, Table
from dpstats.families.tables.residuals import Residual, joint_l2_squared, residuals_of
from dpstats.privacy.budget import Budget, budget_from_dict
from dpstats.privacy.neighbours import Neighbours, Sensitivity, Unit
from dpstats.privacy.noise import scale_for
from dpstats.privacy.rationals import parse_fraction
from dpstats.schema import Schema
from dpstats.schema.design import STEPS
from dpstats.schema.totals import fixed_rows

if TYPE_CHECKING:
    from dpstats.privacy.laws import LatticeLaw, Noise

Role = Literal["family", "score", "persons", "contrasts", "reference", "count"]
MOST_ROWS = 2**32  # of a table; up to it sums are exact where the number of rows is private
MOST_WEIGHTED_ROWS = 2**26
SAFE_TOTAL = 2**62


@dataclass(frozen=True)
class PlannedBlock:
    """A block, the noise on it and what it is measured for.

    The roles: to answer analyses; to be the second stage of a regression, products of person totals
    or contrasts between units, which no rows are fitted to; to place candidates, paid from the
    reference's own share; or to estimate the number of rows where neighbours add or remove one.
    """

    block: Block
    multiplier: Fraction  # scale of Laplace noise, squared scale of Gaussian, see `noise_scales`
    role: Role = "family"

    @property
    def pending(self) -> bool:
        """True if it can be measured only once others have given its pilot."""
        return self.block.pending

    def at(self, coefficient: float) -> PlannedBlock:
        """The block with this coefficient of every term of a pending pilot."""
        return self.at_pilot(lambda score: score.at(np.full(score.size, coefficient)))

    def at_pilot(self, pilot_of: Callable[[PilotScore], PilotScore]) -> PlannedBlock:
        """The block with the pilot that is given to a pending score, or contrasts of one."""
        block = self.block
        if not block.pending:
            return self
        if isinstance(block, Contrasts):
            assert isinstance(block.base, PilotScore)
            return replace(self, block=replace(block, base=pilot_of(block.base)))
        assert isinstance(block, PilotScore)
        return replace(self, block=pilot_of(block))

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {"role": self.role, "multiplier": str(self.multiplier), **self.block.to_dict()}

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any], schema: Schema) -> PlannedBlock:
        """Inverse of `to_dict`."""
        role, multiplier = plain["role"], parse_fraction(plain["multiplier"])
        if role not in get_args(Role):
            raise FileFormatError(f"the file holds a block of unknown role {short(role)}")
        if not multiplier:
            raise FileFormatError("the file holds a multiplier that is not a positive fraction")
        block = ROWS if role == "count" else block_from_dict(plain, schema)
        return cls(block, multiplier, role)


def noise_scales(block: Block, multiplier: Fraction, noise: Noise = "laplace") -> Floats:
    """Scale of the noise on each sum, (d,): B_f times the multiplier or its root, rounded up."""
    if np.ptp(block.bounds) == 0:
        return np.broadcast_to(scale_for(multiplier, int(block.bounds[0]), noise), block.size)
    bounds, which = np.unique(block.bounds, return_inverse=True)
    return np.array([scale_for(multiplier, int(bound), noise) for bound in bounds])[which]


def residuals_cost(
    blocks: Iterable[PlannedBlock], budget: Budget, neighbours: Neighbours
) -> Fraction:
    """Exact amount that all residuals together spend; zero for Laplace noise, whose blocks add up.

    The sum over residuals of D / (2 sigma^2), maximised over pairs of rows. It is the square of a
    norm of the change, so k rows of one person cost k^2 times as much, as of any block.
    """
    residuals, precisions = [], []
    for planned in blocks:
        if isinstance(planned.block, Residual):
            residuals.append(planned.block)
            precisions.append(1 / (planned.multiplier * int(planned.block.bounds[0]) ** 2))
    if not residuals or budget.noise == "laplace":
        return Fraction(0)
    joint = Sensitivity(Fraction(0), joint_l2_squared(residuals, precisions, neighbours.unit))
    return budget.cost(neighbours.of_person(joint), Fraction(1))


def with_conditions(blocks: Iterable[Block], schema: Schema) -> Iterator[Block]:
    """Blocks with the conditions that are asked for in place of sets of rows."""
    for block in blocks:
        if isinstance(block, Partition) and block.are_conditions(schema):
            yield from block.conditions[: block.asked]
        else:
            yield block


@dataclass(frozen=True)
class Strategy(Cached):
    """The blocks to measure, the noise on each and the budget that it spends.

    RequestError if the roles of the blocks do not fit together or to the neighbour relation, or a
    table does not follow from the residuals.
    """

    schema: Schema  # all that the custodian declared; `columns` are the ones in use
    blocks: tuple[PlannedBlock, ...]  # in the order of `Role`
    budget: Budget
    unit: Unit = "replace"
    n: int | None = None  # public; under "add_remove" a number that sizes are planned for
    tables: tuple[Table, ...] = ()  # published, from measured residuals
    rows_per_person: int = 1
    person: str | None = None  # the column of keys, which no block depends on

    def __post_init__(self) -> None:
        self.neighbours  # noqa: B018, refuses unknown relations
        if self.n is not None:
            check_rows(self.n)
        roles = [planned.role for planned in self.blocks]
        once = [role for role in ("reference", "count") if role in roles]
        many: tuple[Role, ...] = ("family", "score", "persons", "contrasts")
        several = [role for role in many for _ in range(roles.count(role))]
        if roles != [*several, *once]:
            raise RequestError(
                "blocks are measured in the order family, score, persons, contrasts, reference, "
                f"count, with at most one reference and one count; got {roles}"
            )
        if any(isinstance(p.block, PilotScore) != (p.role == "score") for p in self.blocks):
            raise RequestError("a second stage has the role score, and no other block has it")
        if any(isinstance(p.block, PersonProducts) != (p.role == "persons") for p in self.blocks):
            raise RequestError("products of person totals have the role persons, and no others")
        if self.of_persons:
            check_person_totals(self.neighbours)
        if any(isinstance(p.block, Contrasts) != (p.role == "contrasts") for p in self.blocks):
            raise RequestError("contrasts between units have the role contrasts, and no others")
        if ("count" in roles) == self.count_is_public:
            raise edited(
                "measures the number of rows under unit='replace', or not under unit='add_remove' "
                "or for a survey design"
            )
        self.family  # noqa: B018, refuses a strategy that answers nothing
        if self.person is not None and self.person in self._read_for_values:
            raise RequestError(
                f"{self.person!r} tells persons apart, and an analysis uses it too: what is "
                "published must not depend on the keys; name another column, or leave it out of "
                "the analyses"
            )
        if self.tables and self.schema.design is not None:
            raise edited("measures residuals of tables, whose sensitivity is that of equal weights")
        needed = residuals_of(self.tables)
        if set(needed) != {p.block for p in self.measured if isinstance(p.block, Residual)}:
            raise edited("does not measure the residuals of its tables")

    @cached_property
    def neighbours(self) -> Neighbours:
        """Which tables are neighbours: the relation for one row, and the rows of one person."""
        copies = 1 if self.schema.design is None else STEPS
        return Neighbours(self.unit, self.rows_per_person, self.person, copies)

    @property
    def _read_for_values(self) -> Collection[str]:
        """Columns of the table that analyses, rules and weights depend on.

        Not that of units: no result is of a unit by its key, which only decides the pair and the
        sign of a row. Both follow from that row and the declaration, so that one person moves
        contrasts by no more than any rows do, whether rows come and go or values change.
        """
        read: Schema = self.read_columns
        if read.design is None:
            return read.raw.names
        names = (*replace(read, design=None).raw.names, read.design.weights, read.design.strata)
        return [name for name in names if name is not None]

    @property
    def count_is_public(self) -> bool:
        """True if the number of rows, or the sum of their weights, is known without noise."""
        return self.unit == "replace" and self.schema.design is None

    @property
    def public_rows(self) -> int | None:
        """The number of rows, where it is public."""
        return self.n if self.unit == "replace" else None

    @property
    def row_weight(self) -> float:
        """Mean contribution of a row to sums: one, or the mean weight of a survey in steps."""
        return 1.0 if self.schema.design is None else self.schema.design.coded_mean

    @property
    def most_rows(self) -> int:
        """Most rows up to which sums must be exact where their number is private."""
        return MOST_ROWS if self.schema.design is None else MOST_WEIGHTED_ROWS

    @property
    def measured(self) -> tuple[PlannedBlock, ...]:
        """The blocks of the family."""
        return tuple(planned for planned in self.blocks if planned.role == "family")

    @property
    def scores(self) -> tuple[PlannedBlock, ...]:
        """The second stages."""
        return tuple(planned for planned in self.blocks if planned.role == "score")

    @property
    def of_persons(self) -> tuple[PlannedBlock, ...]:
        """The products of person totals."""
        return tuple(planned for planned in self.blocks if planned.role == "persons")

    @property
    def contrasts(self) -> tuple[PlannedBlock, ...]:
        """The contrasts between units of a survey."""
        return tuple(planned for planned in self.blocks if planned.role == "contrasts")

    def own_block(self, role: Role) -> PlannedBlock | None:
        """The block of the reference, or of the count of rows; None if nothing is measured."""
        return next((planned for planned in self.blocks if planned.role == role), None)

    @cached_property
    def family(self) -> Family:
        """The functions that are measured."""
        return Family(tuple(planned.block for planned in self.measured))

    @cached_property
    def published(self) -> Family:
        """The test functions F: the tables in place of their residuals, and all other blocks."""
        blocks = (block for block in self.family.blocks if not isinstance(block, Residual))
        return Family((*self.tables, *with_conditions(blocks, self.schema)))

    @cached_property
    def places(self) -> NDArray[np.intp]:
        """Numbers of the published functions in the family, if none follows from residuals."""
        asked = [np.arange(block.size) < block.asked for block in self.family.blocks]
        return np.flatnonzero(np.concatenate(asked))

    @property
    def columns(self) -> Schema:
        """The columns that the family touches: the only ones that are synthesised."""
        return self.schema.select(self.family.column_names)

    @property
    def read_columns(self) -> Schema:
        """The columns that are read: those of the family, and those that rules read them by."""
        schema: Schema = self.schema.repairs(self.family.column_names).schema
        return schema

    def cost(self) -> Fraction:
        """Exact amount of the budget that the noise spends, recomputed from sensitivities.

        Blocks add up, but residuals under Gaussian noise: one row cannot be the worst for all.
        """
        jointly = self.budget.noise == "gaussian"
        single = [p for p in self.blocks if not (jointly and isinstance(p.block, Residual))]
        spent = (p.block.cost(self.budget, self.neighbours, p.multiplier) for p in single)
        return sum(spent, residuals_cost(self.blocks, self.budget, self.neighbours))

    def check(self) -> None:
        """Refuse noise that does not spend the budget exactly, and sums that may not be exact."""
        if self.cost() != self.budget.total:
            raise BudgetError(
                f"the noise of the plan spends {self.cost()} and its budget is "
                f"{self.budget.total}; it was edited by hand: make it again with dps.plan"
            )
        for planned in self.blocks:
            largest = int(planned.block.bounds.max())
            largest_sum = largest * self.neighbours.copies * self.most_rows
            if not self.count_is_public and largest_sum >= SAFE_TOTAL:
                most = (SAFE_TOTAL - 1) // (self.neighbours.copies * self.most_rows)
                raise RequestError(
                    f"{planned.block.overflow(most)}; under unit='add_remove' or a survey design "
                    "sums must be exact whatever the number of rows, up to "
                    f"2^{self.most_rows.bit_length() - 1}"
                )
        _ = self.block_scales  # refuses impossible scales
        if self.person is not None and any(total.of == "table" for total in self.schema.totals):
            raise RequestError(
                f"with person={self.person!r} the rows of a person beyond the first "
                f"{self.rows_per_person}, and rows without a key, are not used, so that public "
                "totals of the table need not be those of the rows that are: leave out the totals "
                "of the schema, or person= (with rows_per_person= alone all rows are used)"
            )
        if self.unit == "add_remove" and (rows := fixed_rows(self.schema)) is not None:
            raise RequestError(
                f"the totals determine that the table has {rows:,} rows, which is not public under "
                "unit='add_remove': leave one out, or plan with unit='replace'"
            )

    def scales_of(self, planned: PlannedBlock) -> Floats:
        """Scale of the noise on each sum of one block, (d,) float64."""
        return noise_scales(planned.block, planned.multiplier, self.budget.noise)

    @cached_property
    def block_scales(self) -> tuple[Floats, ...]:
        """Scales of the noise of all blocks, in their order; the arrays are read-only."""
        return tuple(freeze(self.scales_of(planned)) for planned in self.blocks)

    @cached_property
    def scales(self) -> Floats:
        """Scale of the noise on each sum of the family, (|F|,) float64."""
        pairs = zip(self.blocks, self.block_scales, strict=True)
        family = [scales for planned, scales in pairs if planned.role == "family"]
        return freeze(np.concatenate(family))

    @cached_property
    def laws(self) -> tuple[list[LatticeLaw], NDArray[np.intp]]:
        """The distinct laws of the noise on the family's sums, and which each has, (|F|,)."""
        distinct, which = np.unique(self.scales, return_inverse=True)
        return [self.budget.law(float(scale)) for scale in distinct], which

    @property
    def variances(self) -> Floats:
        """Variance of the noise on each sum of the family, (|F|,) float64."""
        laws, which = self.laws
        return np.array([law.variance for law in laws])[which]

    def to_dict(self) -> dict[str, Any]:
        """Plain data, the same in the file of a plan and in that of its measurements."""
        return {
            "budget": self.budget.to_dict(),
            **self.neighbours.to_dict(),
            "rows": self.n,
            "schema": self.schema.to_dict(),
            **self.schema.between_columns,
            "blocks": [planned.to_dict() for planned in self.blocks],
            "tables": [[column.name for column in table.columns] for table in self.tables],
        }

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Strategy:
        """Inverse of `to_dict`; the blocks are those of the file, not merged again."""
        schema = Schema.from_dict(
            plain["schema"], rules=plain.get("rules", ()), totals=plain.get("totals", ()),
            design=plain.get("design"),
        )  # fmt: skip
        neighbours = Neighbours.from_dict(plain)
        return cls(
            schema=schema,
            blocks=tuple(PlannedBlock.from_dict(block, schema) for block in plain["blocks"]),
            budget=budget_from_dict(plain["budget"]),
            unit=neighbours.unit,
            n=plain["rows"],
            tables=tuple(Cells.table(schema, columns) for columns in plain["tables"]),
            rows_per_person=neighbours.rows_per_person,
            person=neighbours.person,
        )


class HasStrategy(Cached):
    """The properties of its strategy that a plan, or a set of measurements, exposes."""

    strategy: Strategy

    @property
    def schema(self) -> Schema:
        """All that the custodian declared."""
        return self.strategy.schema

    @property
    def columns(self) -> Schema:
        """The columns that the family touches: the only ones that are synthesised."""
        return self.strategy.columns

    @property
    def read_columns(self) -> Schema:
        """The columns that are read: those of the family, and those that rules read them by."""
        return self.strategy.read_columns

    @property
    def family(self) -> Family:
        """The functions that are measured."""
        return self.strategy.family

    @property
    def published(self) -> Family:
        """The test functions F, which rows and certificates are about."""
        return self.strategy.published

    @property
    def budget(self) -> Budget:
        """The budget for everything that is measured."""
        return self.strategy.budget

    @property
    def unit(self) -> Unit:
        """Neighbour relation, "replace" or "add_remove"."""
        return self.strategy.unit

    @property
    def rows_per_person(self) -> int:
        """The most rows of one person that the budget protects."""
        return self.strategy.rows_per_person

    @property
    def person(self) -> str | None:
        """The column of keys by which persons are known; None where rows are taken as they are."""
        return self.strategy.person

    @property
    def neighbours(self) -> Neighbours:
        """Which tables are neighbours: `unit` and `rows_per_person`."""
        return self.strategy.neighbours


def edited(what: str) -> RequestError:
    """Error for a plan that `dps.plan` would not make."""
    return RequestError(f"the plan {what}; it was edited by hand: make it again with dps.plan")


def check_rows(n: object) -> None:
    """Refuse what is not a number of rows."""
    check_whole("the number of rows n", n, 1, MOST_ROWS)


def check_person_totals(neighbours: Neighbours) -> None:
    """Refuse person totals where persons are not known, or have too many rows."""
    if neighbours.person is None:
        raise RequestError(
            "person_totals= needs a column that tells persons apart: name it with person=. Without "
            "one, intervals take the sampling variance as rows_per_person times that of "
            "independent rows"
        )
    if neighbours.rows_per_person > MOST_ROWS_OF_PERSON:
        raise RequestError(
            f"person_totals= is for rows_per_person of at most {MOST_ROWS_OF_PERSON}, got "
            f"{neighbours.rows_per_person}: exact sums of squares could pass 64 bits; use fewer "
            "rows of each person, or leave out person_totals="
        )


def plan_digest(
    strategy: Strategy, analyses: Mapping[str, Any], reference: Mapping[str, Any]
) -> str:
    """SHA-256 of all that decides what is measured; neither n nor pilots, which come later."""
    plain = {**strategy.to_dict(), "analyses": dict(analyses), "reference": dict(reference)}
    del plain["rows"]
    plain["blocks"] = list(map(_without_pilot, plain["blocks"]))
    return files.digest(plain)


def _without_pilot(block: Mapping[str, Any]) -> dict[str, Any]:
    """A block, or contrasts of one, as it was planned."""
    planned = {key: value for key, value in block.items() if key != "clip" or "pilot" not in block}
    if "pilot" in block:
        planned["pilot"] = None
    if "base" in block:
        planned["base"] = _without_pilot(block["base"])
    return planned
