"""From analyses to a plan: families merged, the budget split, and a preview; reads no data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import Any

from dpstats import files
from dpstats.analyses.base import Analysis
from dpstats.analyses.registry import (
    analysis_from_dict,
    analysis_to_dict,
    check_readable,
    spelled,
)
from dpstats.errors import BudgetError, FileFormatError, RequestError
from dpstats.families import block_from_dict, is_library_block
from dpstats.families.block import Block, Family, bounds_of, overflow
from dpstats.families.cells import ROWS
from dpstats.measured.measurements import noise_scales
from dpstats.measured.view import ReleaseView
from dpstats.planning.allocation import Allocation, Split, read_shares, relative_price
from dpstats.planning.preview import Preview, preview_plan
from dpstats.privacy.budget import Budget, budget_from_dict
from dpstats.privacy.neighbours import NEIGHBOURS, Unit, check_unit
from dpstats.privacy.rationals import parse_fraction
from dpstats.references import default_reference, reference_from_dict
from dpstats.references.base import Reference
from dpstats.references.loglinear import LogLinear
from dpstats.references.uniform import Uniform
from dpstats.schema import Schema

MOST_ROWS = 2**32  # that exact sums must hold where the number of rows is private
SAFE_TOTAL = 2**62


@dataclass(frozen=True)
class PlannedBlock:
    """A block and its noise in natural units (f in [-1, 1]).

    The multiplier is the scale of Laplace noise, the squared scale of Gaussian noise.
    """

    block: Block
    multiplier: Fraction


@dataclass(frozen=True, repr=False)
class Plan:
    """What will be measured, and how the budget is split; made before any row is read.

    Attributes
    ----------
    schema : Schema
    analyses : mapping of name to Analysis
    budget : PureDP or ZCDP
    blocks : tuple of PlannedBlock
        The family F: what the analyses share is merged.
    reference : Reference
        The density that candidates are drawn from.
    reference_block : PlannedBlock or None
        What the reference itself measures, paid by its own share.
    n : int or None
        The public number of rows, checked when the data are read; under add/remove a declared
        number that sizes are planned for, never compared with the data.
    unit : {"replace", "add_remove"}
        Neighbour relation.
    count : PlannedBlock or None
        The number of rows, which is measured where neighbours add or remove a row.

    Examples
    --------
    >>> import dpstats as dps
    >>> schema = dps.Schema([dps.Boolean("smoker")])
    >>> plan = dps.plan(schema, {"smoking": dps.Proportion("smoker")}, budget=dps.PureDP(1))
    >>> plan.family.names, plan.cost()
    (['smoker'], Fraction(1, 1))
    >>> preview = plan.preview(n=10_000)  # print it for noise, sizes and advice
    >>> print(preview.widths().round(3))
      analysis    term  width
    0  smoking  smoker   0.02
    """

    schema: Schema
    analyses: Mapping[str, Analysis]
    budget: Budget
    blocks: tuple[PlannedBlock, ...]
    reference: Reference = field(default_factory=Uniform)
    reference_block: PlannedBlock | None = None
    n: int | None = None
    unit: Unit = "replace"
    count: PlannedBlock | None = None

    @cached_property
    def family(self) -> Family:
        """The test functions F."""
        return Family(tuple(planned.block for planned in self.blocks))

    @property
    def columns(self) -> Schema:
        """The columns that the family touches: the ones that are read and synthesised."""
        return self.schema.select(self.family.column_names)

    @property
    def everything(self) -> tuple[PlannedBlock, ...]:
        """All blocks that are measured: the family, the reference's own, the number of rows."""
        return self.blocks + tuple(b for b in (self.reference_block, self.count) if b is not None)

    def cost(self) -> Fraction:
        """Exact amount of the budget that the noise spends, recomputed from sensitivities."""
        return sum(
            (self.budget.cost(p.block.sensitivity(self.unit), p.multiplier)
             for p in self.everything),
            Fraction(0),
        )  # fmt: skip

    def check(self, n: int | None = None) -> None:
        """Refuse a plan that overspends, or whose reference would be mostly noise at n rows.

        Raises
        ------
        BudgetError, RequestError
        """
        check_unit(self.unit)
        if (self.count is not None) != (self.unit == "add_remove"):
            raise RequestError(
                "the number of rows is measured under unit='add_remove' and public under "
                "unit='replace'; the plan was edited by hand: make it again with dps.plan"
            )
        if self.cost() != self.budget.total:
            raise BudgetError(
                f"the noise of the plan spends {self.cost()} and its budget is "
                f"{self.budget.total}; it was edited by hand: make it again with dps.plan"
            )
        for planned in self.everything:
            largest = int(bounds_of(planned.block).max())
            if self.unit == "add_remove" and largest * MOST_ROWS >= SAFE_TOTAL:
                raise RequestError(
                    f"{overflow(planned.block, (SAFE_TOTAL - 1) // MOST_ROWS)}; under "
                    "unit='add_remove' sums must be exact whatever the number of rows, up to 2^32"
                )
            # refuses impossible scales
            noise_scales(planned.block, planned.multiplier, self.budget.noise)
        if n is not None and self.reference_block is not None:
            law = self.budget.law(self.budget.natural_scale(self.reference_block.multiplier))
            self.reference.check(self.reference_block.block, n, law)

    def preview(self, n: int | None = None, *, like: ReleaseView | None = None) -> Preview:
        """Functions, noise and expected interval widths, from public numbers alone.

        Every analysis runs on pretend releases of n rows. Rows spread evenly over the levels and
        bins say too much where real ones crowd together: a number that varies over a tenth of its
        bounds has coefficients 10 to 100 times less certain. So rows can be made to resemble a
        release.

        Parameters
        ----------
        n : int, optional
            Number of rows to pretend; the plan's own n if not given.
        like : Release, optional
            Rows are drawn from its fitted density: a release of an earlier year, or of rows that
            were made up from public knowledge. It declares the plan's columns as the plan does. A
            release is public, so nothing here reads private rows.

        Raises
        ------
        RequestError
            Without a number of rows, or if `like` lacks a column or declares it otherwise.
        """
        rows = self.n if n is None else n
        if rows is None:
            raise RequestError("preview needs a number of rows: plan.preview(n=...)")
        _check_rows(rows)
        self.check(rows)
        return preview_plan(self, rows, like)

    def save(self, path: str | Path) -> None:
        """Write the plan as JSON: what someone approves is what runs."""
        files.write_atomically(path, files.to_json(self.to_dict()).encode())

    @classmethod
    def load(cls, path: str | Path) -> Plan:
        """Read what `save` wrote."""
        path = Path(path)
        try:
            text = path.read_text(encoding="utf-8")
        except OSError as error:
            raise FileFormatError(f"cannot read {path.name}: {error.strerror}") from None
        except UnicodeDecodeError:
            raise FileFormatError(f"{path.name} is not a plan that dpstats wrote") from None
        return cls.from_dict(files.from_json(text, "plan", path.name))

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        plain: dict[str, Any] = {
            "dpstats": "plan",
            "version": files.VERSION,
            "budget": self.budget.to_dict(),
            "unit": self.unit,
            "rows": self.n,
            "schema": self.schema.to_dict(),
            "analyses": {name: analysis_to_dict(a) for name, a in self.analyses.items()},
            "blocks": [_planned_to_dict(planned) for planned in self.blocks],
            "reference": self.reference.to_dict(),
        }
        if self.reference_block is not None:
            plain["reference_block"] = _planned_to_dict(self.reference_block)
        if self.count is not None:
            plain["count"] = str(self.count.multiplier)
        return plain

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Plan:
        """Inverse of `to_dict`; the blocks are those of the file, not merged anew."""
        try:
            schema = Schema.from_dict(plain["schema"])
            loaded = cls(
                schema=schema,
                analyses={name: analysis_from_dict(p) for name, p in plain["analyses"].items()},
                budget=budget_from_dict(plain["budget"]),
                blocks=tuple(_planned_from_dict(p, schema) for p in plain["blocks"]),
                reference=reference_from_dict(plain["reference"]),
                reference_block=(
                    _planned_from_dict(plain["reference_block"], schema)
                    if "reference_block" in plain
                    else None
                ),
                n=plain["rows"],
                unit=check_unit(plain["unit"]),
                count=PlannedBlock(ROWS, _multiplier(plain["count"])) if "count" in plain else None,
            )
        except (KeyError, TypeError, IndexError) as error:
            raise FileFormatError(f"the plan cannot be read: {error}") from None
        loaded.check()
        return loaded

    def __str__(self) -> str:
        noise = sorted({self.budget.natural_scale(p.multiplier) for p in self.blocks})
        scales = f"{noise[0]:.4g}" + (f" to {noise[-1]:.4g}" if len(noise) > 1 else "")
        share = self.reference.share
        own = self.reference_block
        paid = "" if own is None else f" for {own.block.size} sums that place candidates"
        lines = [
            f"Plan: {len(self.analyses)} analyses, {self.family.size} test functions in "
            f"{len(self.blocks)} blocks, on columns {', '.join(self.columns.names)}",
            f"Budget: {self.budget}; {NEIGHBOURS[self.unit]}",
            f"Noise: discrete {self.budget.noise.capitalize()} of scale {scales} rows on every "
            "function in [-1, 1]",
            f"Reference: {self.reference.to_dict()['kind']}, share of the budget {share}{paid}",
            self.columns.missing_rules(),
        ]
        return "\n".join(lines)

    def __repr__(self) -> str:
        return str(self)


def plan(
    schema: Schema,
    analyses: Mapping[str, Analysis],
    *,
    budget: Budget,
    n: int | None = None,
    unit: Unit = "replace",
    reference: Reference | None = None,
    shares: Mapping[str, float | Fraction] | None = None,
    allocation: Allocation = "equal",
) -> Plan:
    """Plan a release: merge what the analyses need and split the budget. Reads no data.

    Parameters
    ----------
    schema : Schema
    analyses : mapping of name to Analysis
    budget : PureDP or ZCDP
        For everything that is measured.
    n : int, optional
        The public number of rows; checked if given, needed where a bandwidth depends on it. Under
        ``unit="add_remove"`` it is a guess from public knowledge, and never checked.
    unit : {"replace", "add_remove"}
        Neighbours differ by replacing one row, so that n is public; or by one row more or less:
        then n is measured with noise, and its exact value appears nowhere.
    reference : Reference, optional
        Where candidate rows come from. If not given, `Uniform()` where the domain of the columns
        in use has at most 20,000 cells (grid points where moments are asked for), else
        `LogLinear()`; neither spends any budget.
    shares : mapping of name to number, optional
        Share of the budget for every analysis, normalised. An analysis spreads its share over its
        blocks in proportion to their sensitivity (squared for Gaussian noise); a block that
        several ask for takes its largest part.
    allocation : {"equal", "optimal"}
        Without shares: equal noise on every test function in natural units, as in BL24, or the
        least sum of the noise variances, see `allocation.Split`. The number of rows, where it is
        measured, gets what it would in an equal split.

    Raises
    ------
    RequestError
        For anything that cannot be measured as asked; the sentence says what to change.

    Examples
    --------
    >>> import dpstats as dps
    >>> schema = dps.Schema([dps.Boolean("smoker"), dps.Category("region", ["north", "south"])])
    >>> asked = {"smoking": dps.Proportion("smoker"), "link": dps.Independence("smoker", "region")}
    >>> print(dps.plan(schema, asked, budget=dps.PureDP(1)))
    Plan: 2 analyses, 4 test functions in 1 blocks, on columns smoker, region
    Budget: epsilon = 1 (pure differential privacy); neighbours differ by replacing one row
    Noise: discrete Laplace of scale 2 rows on every function in [-1, 1]
    Reference: uniform, share of the budget 0
    Cells outside the declaration: smoker: missing or undeclared: counted as False.
        region: missing or undeclared: counted as 'north'
    """
    if not isinstance(schema, Schema):
        raise RequestError("the first argument is a dps.Schema; read one with dps.Schema.load")
    if not isinstance(analyses, Mapping) or not analyses:
        raise RequestError("analyses must be a non-empty mapping of names to analyses")
    for name, analysis in analyses.items():
        if not isinstance(name, str) or not name.strip():
            raise RequestError(f"analyses are named by non-empty text, got {name!r}")
        if isinstance(analysis, type):
            raise RequestError(
                f"{name!r} is the class dps.{analysis.__name__}; make an analysis of it, with its "
                f"parameters: dps.{analysis.__name__}(...)"
            )
        if not (hasattr(analysis, "family") and hasattr(analysis, "infer")):
            raise RequestError(f"{name!r} is not an analysis such as dps.Proportion(...)")
        check_readable(analysis)
    if not isinstance(budget, Budget):
        raise RequestError(
            f"budget must be a dps.PureDP(epsilon) or a dps.ZCDP(rho), got {budget!r}"
        )
    if n is not None:
        _check_rows(n)
    unit = check_unit(unit)
    if reference is not None and (isinstance(reference, type) or not hasattr(reference, "share")):
        raise RequestError(f"reference must be one such as dps.Uniform(), got {reference!r}")

    asked = {name: _blocks_of(analysis, schema) for name, analysis in analyses.items()}
    share = Fraction(0) if reference is None else reference.share
    rule = Split(
        asked,
        budget,
        budget.total * (1 - share),
        unit,
        allocation,
        None if shares is None else read_shares(shares, list(analyses)),
    )

    def split(blocks: Sequence[Block]) -> list[Fraction]:
        kept = rule.amount - _paid_for_count(rule, blocks)
        return replace(rule, amount=kept)(blocks)

    def variances(blocks: Sequence[Block]) -> list[float]:
        return [budget.law(budget.natural_scale(m)).variance for m in split(blocks)]

    wanted = [block for blocks in asked.values() for block in blocks]
    family = Family.merge(wanted, variances, complements=unit == "replace")
    paid = _paid_for_count(rule, family.blocks)
    made = Plan(
        schema=schema,
        analyses=dict(analyses),
        budget=budget,
        blocks=tuple(map(PlannedBlock, family.blocks, split(family.blocks))),
        n=n,
        unit=unit,
        count=PlannedBlock(ROWS, budget.multiplier(ROWS.sensitivity(unit), paid)) if paid else None,
    )
    reference = default_reference(made.columns, family) if reference is None else reference
    if isinstance(reference, LogLinear):
        reference.check_family(family)
    made = replace(made, reference=reference)
    own = reference.block(made.columns, n)
    if own is not None:
        paid = budget.multiplier(own.sensitivity(unit), budget.total * share)
        made = replace(made, reference_block=PlannedBlock(own, paid))
    made.check(n)
    return made


def _blocks_of(analysis: Analysis, schema: Schema) -> tuple[Block, ...]:
    """What an analysis asks for, refused unless its sensitivity is proven."""
    family = analysis.family(schema)
    if not isinstance(family, Family):
        raise RequestError(
            f"family() of {spelled(analysis)} must return a dps.Family, not a "
            f"{type(family).__name__}"
        )
    for block in family.blocks:
        if not is_library_block(block):
            raise RequestError(
                f"{spelled(analysis)} asks for a block of class {type(block).__name__}, whose "
                "sensitivity is not proven; ask for blocks of dpstats, such as dps.Cells or "
                "dps.Moments"
            )
    return family.blocks


def _paid_for_count(rule: Split, blocks: Sequence[Block]) -> Fraction:
    """Part of the budget for the number of rows: what it would get in an equal split."""
    if rule.unit == "replace":
        return Fraction(0)
    one = rule.budget.price(ROWS.sensitivity(rule.unit))
    others = relative_price(blocks, rule.budget, rule.unit)
    return rule.amount * one / (one + others)


def _check_rows(n: object) -> None:
    if type(n) is not int or n < 1:
        raise RequestError(f"the number of rows n must be a positive whole number, got {n!r}")


def _planned_to_dict(planned: PlannedBlock) -> dict[str, Any]:
    return {"multiplier": str(planned.multiplier), **planned.block.to_dict()}


def _planned_from_dict(plain: Mapping[str, Any], schema: Schema) -> PlannedBlock:
    return PlannedBlock(block_from_dict(plain, schema), _multiplier(plain["multiplier"]))


def _multiplier(text: object) -> Fraction:
    multiplier = parse_fraction(text)
    if not multiplier:
        raise FileFormatError("the plan holds a multiplier that is not a positive fraction")
    return multiplier
