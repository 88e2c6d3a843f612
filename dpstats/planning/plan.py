"""From analyses to a plan: families merged, the budget split, and a preview; reads no data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from dpstats import files
from dpstats.analyses.base import Analysis
from dpstats.analyses.registry import analysis_from_dict, check_readable
from dpstats.analyses.second_stage import second_stages
from dpstats.checks import listed
from dpstats.display import as_html
from dpstats.errors import FileFormatError, RequestError
from dpstats.families.block import Family
from dpstats.families.tables.cells import ROWS
from dpstats.measured.measurements import Measurements
from dpstats.measured.strategy import PlannedBlock, Strategy
from dpstats.measured.view import ReleaseView
from dpstats.planning.allocation import Allocation, Split, read_shares
from dpstats.planning.asked import (
    asked_by_name,
    check_arguments,
    check_asked,
    check_stages,
    check_start,
    refuse_needless_norms,
    with_even_edges,
)
from dpstats.planning.described import Described
from dpstats.planning.division import continued, divide, split_stages
from dpstats.planning.person_totals import (
    Asked,
    apart,
    asked_for,
    check_person_totals,
    planned_for,
)
from dpstats.planning.previewable import Previewable
from dpstats.planning.solve import Solvable, with_budget
from dpstats.planning.table_split import Weights, check_weights
from dpstats.privacy.budget import Budget
from dpstats.privacy.neighbours import Neighbours, Unit
from dpstats.references import default_reference, reference_from_dict
from dpstats.references.base import Reference
from dpstats.results.base import Result
from dpstats.schema import Guesses, Schema


@dataclass(frozen=True, repr=False)
class Plan(Described, Solvable, Previewable):
    """What will be measured, and how the budget is split; made before any row is read.

    Attributes
    ----------
    strategy : Strategy
        The blocks that are measured with their noise; also as `schema`, `budget`, `unit`, `n`,
        `family`, `columns` and `blocks`.
    analyses : mapping of name to Analysis
    reference : Reference
        The density that candidates are drawn from.
    start : Measurements or None
        What an earlier release measured, to which this plan adds: see ``start=`` of `dps.plan`.

    Examples
    --------
    >>> import dpstats as dps
    >>> schema = dps.Schema([dps.Boolean("smoker")])
    >>> plan = dps.plan(schema, {"smoking": dps.Proportion("smoker")}, budget=dps.PureDP(1))
    >>> plan.family.names, plan.cost()
    (['smoker'], Fraction(1, 1))
    >>> preview = plan.preview(n=10_000)  # print it for noise, sizes and advice
    >>> print(preview.widths().round(3))
      analysis    term  width  unbounded
    0  smoking  smoker   0.02        0.0
    >>> plan.save("plan.json")
    >>> dps.Plan.load("plan.json").digest == plan.digest
    True
    """

    strategy: Strategy
    analyses: Mapping[str, Analysis[Result]]
    reference: Reference
    start: Measurements | None = None

    @property
    def n(self) -> int | None:
        """The public number of rows; under add/remove a declared one that sizes are planned for."""
        return self.strategy.n

    @property
    def count(self) -> PlannedBlock | None:
        """The number of rows, which is measured where neighbours add or remove a row."""
        return self.strategy.own_block("count")

    @property
    def in_two_stages(self) -> bool:
        """Whether something is measured at a pilot that comes first: the rows are read twice."""
        return any(planned.pending for planned in self.strategy.blocks)

    def cost(self) -> Fraction:
        """Exact amount of the budget that the noise spends, recomputed from sensitivities."""
        return self.strategy.cost()

    def check(self, n: int | None = None) -> None:
        """Refuse a plan that overspends, or whose reference would be mostly noise at n rows.

        Also one that does not measure what its reference needs: the rows could not be drawn once
        the budget is spent.

        Raises
        ------
        BudgetError, RequestError
        """
        self.strategy.check()
        check_start(self.strategy, self.start)
        own = self.reference_block
        if self.reference.block(self.columns, self.n) != (None if own is None else own.block):
            raise RequestError(
                "the plan does not measure what its reference needs; it was edited by hand: make "
                "it again with dps.plan"
            )
        if n is not None:
            self.check_reference(n)

    def check_kept(self, *, not_private: bool = False) -> None:
        """Refuse a plan whose measurements a file could not hold and give back.

        Raises
        ------
        RequestError
        """
        self._once("kept", lambda: self._unmeasured(not_private).check_kept())

    @property
    def most_bytes(self) -> int:
        """Bound on the size of the file of its measurements."""
        return self._unmeasured(not_private=False).most_bytes

    def _unmeasured(self, not_private: bool) -> Measurements:
        """What will be kept, with zeros for the noisy sums."""
        n = (self.n or 1) if self.unit == "replace" else None
        size = sum(planned.block.size for planned in self.strategy.blocks)
        widest = tuple(planned.at(-np.inf) for planned in self.strategy.blocks)
        return Measurements(
            strategy=replace(self.strategy, blocks=widest, n=n),
            noisy_sums=np.zeros(size, dtype=np.int64),
            uniforms=np.zeros(size),
            reference_spec=self.reference.to_dict(),
            requests=self.requests,
            not_private=not_private,
        )

    def check_reference(self, n: int) -> None:
        """Refuse a reference whose own measurement would be mostly noise at n rows.

        Raises
        ------
        RequestError
        """
        own = self.reference_block
        if own is not None:
            law = self.budget.law(self.budget.natural_scale(own.multiplier))
            self.reference.check(own.block, n, law)

    def asking(self, analyses: Mapping[str, Analysis[Result]]) -> Plan:
        """A plan of other analyses with the same schema, budget, n, unit and reference."""
        return self._again(self.schema, analyses)

    def declaring(self, schema: Schema) -> Plan:
        """A plan of the same analyses for another schema."""
        return self._again(schema, self.analyses)

    def _again(self, schema: Schema, analyses: Mapping[str, Analysis[Result]]) -> Plan:
        reference = self.reference if self.reference.share else None
        return plan(
            schema, analyses, budget=self.budget, n=self.n, unit=self.unit,
            rows_per_person=self.rows_per_person, person=self.person, reference=reference,
            person_totals=[n for n in planned_for(self.strategy, self.analyses) if n in analyses]
            or False,
        )  # fmt: skip

    def costing(self, budget: Budget) -> Plan:
        """The same plan at another budget of its kind, every noise in proportion."""
        return with_budget(self, budget)

    def save(self, path: str | Path, *, overwrite: bool = False) -> None:
        """Write the plan as JSON: the approved plan is the plan that runs.

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
        text = files.to_json(self.to_dict())
        files.write_atomically(path, text.encode(), overwrite=overwrite)

    @classmethod
    def load(cls, path: str | Path) -> Plan:
        """Read what `save` wrote; a plan that was edited since is refused.

        Raises
        ------
        FileFormatError
            If the file is not a plan, or holds what `save` would not write.
        BudgetError, RequestError
            If its noise does not spend its budget, or its blocks are not those that its analyses
            ask for.
        """
        path = files.as_path(path)
        files.check_kind(path, "a plan")
        return cls.from_dict(files.from_json(files.read_bytes(path), "plan", path.name))

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "dpstats": "plan",
            "version": files.VERSION,
            **self.strategy.to_dict(),
            "analyses": self.requests,
            "reference": self.reference.to_dict(),
            **({} if self.start is None else {"start": self.start.to_members()}),
            **({"guesses": self.schema.guesses.to_dict()} if self.schema.guesses else {}),
            **({"file": written} if (written := self.schema.written.to_dict()) else {}),
        }

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Plan:
        """Inverse of `to_dict`, checked; the blocks are those of the file, not merged again."""
        with files.reading("the plan", RequestError):
            strategy = Strategy.from_dict(plain)
            if "guesses" in plain:
                guesses = Guesses.from_dict(plain["guesses"])
                strategy = replace(strategy, schema=replace(strategy.schema, guesses=guesses))
            if "file" in plain:
                strategy = replace(strategy, schema=replace(strategy.schema, file=plain["file"]))
            loaded = cls(
                strategy=strategy,
                analyses={name: analysis_from_dict(p) for name, p in plain["analyses"].items()},
                reference=reference_from_dict(plain["reference"]),
                start=Measurements.from_members(plain["start"]) if "start" in plain else None,
            )
            loaded.check()
            check_asked(loaded.strategy, loaded.analyses)
            check_stages(loaded.strategy, loaded.analyses)
            check_person_totals(loaded.strategy, loaded.analyses)
            changed = files.difference(plain, loaded.to_dict())
            if changed is not None:
                raise FileFormatError(
                    f"{changed.lstrip('.')} is not as dps.plan writes it; the file was edited by "
                    "hand: make it again with dps.plan"
                )
        return loaded

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        return as_html("dpstats plan", self._lines)


def plan(
    schema: Schema,
    analyses: Mapping[str, Analysis[Result]],
    budget: Budget,
    *,
    n: int | None = None,
    unit: Unit = "replace",
    rows_per_person: int = 1,
    person: str | None = None,
    person_totals: Asked = False,
    reference: Reference | None = None,
    shares: Mapping[str, float | Fraction] | None = None,
    allocation: Allocation = "equal",
    weights: Weights | None = None,
    start: ReleaseView | None = None,
) -> Plan:
    """Plan a release: merge what the analyses need and split the budget. Reads no data.

    Parameters
    ----------
    schema : Schema
    analyses : mapping of name to Analysis
    budget : PureDP, ZCDP or ApproxDP
        For everything that is measured.
    n : int, optional
        The public number of rows; checked if given, needed where a bandwidth depends on it. Under
        ``unit="add_remove"`` it is a guess from public knowledge, and never checked.
    unit : {"replace", "add_remove"}
        Neighbours differ by replacing one row, so that n is public; or by one row more or less:
        then n is measured with noise, and its exact value appears nowhere.
    rows_per_person : int
        The most rows of any one person, k. Neighbours differ in all rows of a person: they are
        replaced, or come or go together. Every block then costs k times as much epsilon, or k^2
        times as much rho, exactly. Without `person` the table is not checked for it.
    person : str, optional
        The column of keys that tells persons apart, which is neither measured nor published. Of
        each person the first `rows_per_person` rows in the table's order are used; rows without a
        key are not. Neighbours then differ in all rows of one person: under ``"add_remove"`` they
        come or go, under ``"replace"`` their values change while keys stay. So under ``"replace"``
        it is public how many rows each person has, and `n` is the exact number of rows that are
        used; unless that is public anyway, take ``unit="add_remove"``, which needs none.
    person_totals : bool or sequence of str
        Measure squares and products of person totals too, for all analyses that use them or for
        those named: intervals then have the sampling variance of persons, as cluster-robust ones
        do, instead of `rows_per_person` times that of independent rows. They cost at most about a
        seventh of what the analyses cost otherwise, under pure DP sometimes more, and have up to 16
        times the noise. For ``person=`` and `rows_per_person` of at most 63.
    reference : Reference, optional
        Where candidate rows come from. If not given, `Uniform()` where the domain of the columns
        in use has at most 20,000 cells (grid points where moments are asked for), else
        `LogLinear()`; neither spends any budget.
    shares : mapping of name to number, optional
        Share of the budget for every analysis, normalised. An analysis spreads its share over its
        blocks in proportion to their sensitivity (squared for Gaussian noise); a block that
        several analyses need takes its largest part.
    allocation : {"equal", "optimal"}
        Without shares: equal noise on every test function in natural units, as in BL24, or the
        least sum of the noise variances, those of tables as in `weights`. A measured number of rows
        gets what it would in an equal split; less where it is the total of a table, down to 1%.
    weights : {"balanced", "cells", "max", "equal"}
        How tables with common columns share what they get together, for the least noise in their
        combined answers: the sum of the variances of all cells, every table weighted by its number
        of cells to the power -1/2 ("balanced", the default without shares) or by one ("cells"), or
        the largest variance ("max"); or with equal noise on all cells, as in BL24 ("equal"). Under
        `ZCDP` all but the last measure residuals of the tables; see
        ``docs/explanation/inference/overlapping-tables.md``. Tables that an analysis needs as they
        were measured, such as those of a `Difference`, do not share.
    start : Release, optional
        Add to a release of the same table: the second stages of `analyses` (``stages=2``) are
        measured at its estimates, and nothing else. `budget` is for these alone. The new release
        holds what both measured, has both budgets together, and keeps the analyses, `n`, `unit`,
        `rows_per_person`, `person` and `reference` of the first.

    Raises
    ------
    RequestError
        For anything that cannot be measured as requested; the message says what to change.

    Examples
    --------
    >>> import dpstats as dps
    >>> schema = dps.Schema([dps.Boolean("smoker"), dps.Category("region", ["north", "south"])])
    >>> asked = {"smoking": dps.Proportion("smoker"), "link": dps.Independence("smoker", "region")}
    >>> print(dps.plan(schema, asked, budget=dps.PureDP(1)))
    Plan: 2 analyses, 4 test functions in 1 block, on columns smoker, region
    Budget: epsilon = 1 (pure differential privacy); neighbours differ by replacing one row
    Noise: discrete Laplace of scale 2 rows on every function in [-1, 1]
    Reference: uniform, share of the budget 0
    Cells outside the declaration: smoker: missing or undeclared: counted as False.
        region: missing or undeclared: counted as 'north'
    Digest: ...
    """
    n, rows_per_person = listed(n), listed(rows_per_person)
    check_arguments(schema, analyses, budget, n, reference)
    analyses, neighbours = dict(analyses), Neighbours(unit, rows_per_person, person)
    held_schema = getattr(start, "schema", None)
    if isinstance(held_schema, Schema) and held_schema.declared == schema:
        schema = replace(schema, columns=held_schema.columns)
    schema = with_even_edges(schema, analyses)
    asked = asked_by_name(analyses, schema)
    for blocks in asked.values():
        refuse_needless_norms(blocks)
    for analysis in analyses.values():
        check_readable(analysis)
    share = Fraction(0) if reference is None else reference.share
    given, weights = weights, check_weights(weights, shares)
    read = None if shares is None else read_shares(shares, list(analyses))
    if start is not None:
        if (reference, given, allocation, n, person_totals) != (None, None, "equal", None, False):
            raise RequestError(
                "start= keeps the reference, the tables, the number of rows and the person totals "
                "of the release: leave out reference=, weights=, allocation=, n= and person_totals="
            )
        strategy = continued(schema, analyses, budget, neighbours, start, read)
        held: Measurements = start.measurements  # type: ignore[attr-defined]
        every = {name: analysis_from_dict(plain) for name, plain in held.requests.items()}
        made = Plan(strategy, every | analyses, reference_from_dict(held.reference_spec), held)
        made.check(made.n)
        return made
    for name, more in asked_for(person_totals, analyses, schema, neighbours).items():
        asked[name] = (*asked[name], *more)
    rule = Split(asked, budget, budget.total * (1 - share), neighbours, allocation, read)
    rule, scores = split_stages(rule, second_stages(analyses, schema))
    division = divide(rule, analyses, schema, weights)
    measured, of_persons = apart(division.blocks)
    family = Family(tuple(one.block for one in measured))
    columns = schema.select(family.column_names)
    reference = default_reference(columns, family) if reference is None else reference
    reference.check_family(family)
    planned = [*measured, *scores, *of_persons]
    own = reference.block(columns, n)
    if own is not None:
        multiplier = own.multiplier(budget, neighbours, budget.total * share)
        planned.append(PlannedBlock(own, multiplier, "reference"))
    if unit == "add_remove":
        multiplier = ROWS.multiplier(budget, neighbours, division.count)
        planned.append(PlannedBlock(ROWS, multiplier, "count"))
    strategy = Strategy(
        schema, tuple(planned), budget, unit, n, division.tables, rows_per_person, person
    )
    made = Plan(strategy, analyses, reference)
    made.check(n)
    return made
