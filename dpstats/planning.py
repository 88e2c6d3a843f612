"""From analyses to a plan: families merged, the budget split, and a preview; reads no data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from dpstats import files
from dpstats.analyses import analysis_from_dict, analysis_to_dict
from dpstats.analyses.base import Analysis
from dpstats.errors import BudgetError, FileFormatError, RequestError
from dpstats.families import block_from_dict
from dpstats.families.block import Block, Family
from dpstats.measurements import noise_scales
from dpstats.previews import Preview, preview_plan
from dpstats.privacy.budget import (
    PureDP,
    Unit,
    budget_from_dict,
    check_unit,
    parse_fraction,
    read_rational,
)
from dpstats.references import default_reference, reference_from_dict
from dpstats.references.base import Reference
from dpstats.references.loglinear import LogLinear
from dpstats.references.uniform import Uniform
from dpstats.schema import Schema


@dataclass(frozen=True)
class PlannedBlock:
    """A block and the scale of its noise in natural units (f in [-1, 1])."""

    block: Block
    multiplier: Fraction


@dataclass(frozen=True, repr=False)
class Plan:
    """What will be measured, and how the budget is split; made before any row is read.

    Attributes
    ----------
    schema : Schema
    analyses : mapping of name to Analysis
    budget : PureDP
    blocks : tuple of PlannedBlock
        The family F: what the analyses share is merged.
    reference : Reference
        The density that candidates are drawn from.
    reference_block : PlannedBlock or None
        What the reference itself measures, paid by its own share.
    n : int or None
        The public number of rows, checked when the data are read.
    unit : {"replace"}
        Neighbour relation.
    """

    schema: Schema
    analyses: Mapping[str, Analysis]
    budget: PureDP
    blocks: tuple[PlannedBlock, ...]
    reference: Reference = field(default_factory=Uniform)
    reference_block: PlannedBlock | None = None
    n: int | None = None
    unit: Unit = "replace"

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
        """All blocks that are measured, the reference's own last."""
        return self.blocks + (() if self.reference_block is None else (self.reference_block,))

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
        if self.cost() != self.budget.total:
            raise BudgetError(
                f"the noise of the plan spends {self.cost()} and its budget is "
                f"{self.budget.total}; it was edited by hand: make it again with dps.plan"
            )
        for planned in self.everything:
            noise_scales(planned.block, planned.multiplier)  # refuses impossible scales
        if n is not None and self.reference_block is not None:
            law = self.budget.law(float(self.reference_block.multiplier))
            self.reference.check(self.reference_block.block, n, law)

    def preview(self, n: int | None = None) -> Preview:
        """Functions, noise and expected interval widths, from public numbers alone.

        Every analysis runs on a pretend release: n rows spread evenly over the levels and bins.

        Parameters
        ----------
        n : int, optional
            Number of rows to pretend; the plan's own n if not given.
        """
        rows = self.n if n is None else n
        if rows is None:
            raise RequestError("preview needs a number of rows: plan.preview(n=...)")
        _check_rows(rows)
        self.check(rows)
        return preview_plan(self, rows)

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
            )
        except (KeyError, TypeError, IndexError) as error:
            raise FileFormatError(f"the plan cannot be read: {error}") from None
        loaded.check()
        return loaded

    def __str__(self) -> str:
        noise = sorted({float(p.multiplier) for p in self.blocks})
        scales = f"{noise[0]:.4g}" + (f" to {noise[-1]:.4g}" if len(noise) > 1 else "")
        share = self.reference.share
        lines = [
            f"Plan: {len(self.analyses)} analyses, {self.family.size} test functions in "
            f"{len(self.blocks)} blocks, on columns {', '.join(self.columns.names)}",
            f"Budget: {self.budget}; neighbours differ by replacing one row",
            f"Noise: discrete Laplace of scale {scales} rows on every function in [-1, 1]",
            f"Reference: {self.reference.to_dict()['kind']}, share of the budget {share}",
            self.columns.missing_rules(),
        ]
        return "\n".join(lines)

    def __repr__(self) -> str:
        return str(self)


def plan(
    schema: Schema,
    analyses: Mapping[str, Analysis],
    *,
    budget: PureDP,
    n: int | None = None,
    unit: Unit = "replace",
    reference: Reference | None = None,
    shares: Mapping[str, float | Fraction] | None = None,
) -> Plan:
    """Plan a release: merge what the analyses need and split the budget. Reads no data.

    Parameters
    ----------
    schema : Schema
    analyses : mapping of name to Analysis
    budget : PureDP
        For everything that is measured.
    n : int, optional
        The public number of rows; checked if given.
    unit : {"replace"}
        Neighbours differ by replacing one row, so n is public.
    reference : Reference, optional
        Where candidate rows come from. If not given, `Uniform()` where the domain of the columns
        in use has at most 20,000 cells (grid points where moments are asked for), else
        `LogLinear()`; neither spends any budget.
    shares : mapping of name to number, optional
        Share of the budget for every analysis, normalised. Without shares every test function
        gets the same noise in natural units. An analysis spreads its share over its blocks in
        proportion to their sensitivity; a block that several ask for takes its largest part.

    Raises
    ------
    RequestError
        For anything that cannot be measured as asked; the sentence says what to change.
    """
    if not isinstance(schema, Schema):
        raise RequestError("the first argument is a dps.Schema; read one with dps.Schema.load")
    if not isinstance(analyses, Mapping) or not analyses:
        raise RequestError("analyses must be a non-empty mapping of names to analyses")
    for name, analysis in analyses.items():
        if not isinstance(name, str) or not name.strip():
            raise RequestError(f"analyses are named by non-empty text, got {name!r}")
        if not (hasattr(analysis, "family") and hasattr(analysis, "infer")):
            raise RequestError(f"{name!r} is not an analysis such as dps.Proportion(...)")
    if not isinstance(budget, PureDP):
        raise RequestError(f"budget must be a dps.PureDP(epsilon), got {budget!r}")
    if n is not None:
        _check_rows(n)
    unit = check_unit(unit)
    if reference is not None and not hasattr(reference, "share"):
        raise RequestError(f"reference must be one such as dps.Uniform(), got {reference!r}")

    asked = {name: analysis.family(schema).blocks for name, analysis in analyses.items()}
    weights = None if shares is None else _read_shares(shares, list(analyses))
    share = Fraction(0) if reference is None else reference.share
    amount = budget.total * (1 - share)
    split = partial(_split, asked=asked, weights=weights, budget=budget, amount=amount, unit=unit)

    def variances(blocks: Sequence[Block]) -> list[float]:
        return [budget.law(float(multiplier)).variance for multiplier in split(blocks)]

    family = Family.merge([b for blocks in asked.values() for b in blocks], variances)
    made = Plan(
        schema=schema,
        analyses=dict(analyses),
        budget=budget,
        blocks=tuple(map(PlannedBlock, family.blocks, split(family.blocks))),
        n=n,
        unit=unit,
    )
    reference = default_reference(made.columns, family) if reference is None else reference
    if isinstance(reference, LogLinear):
        reference.check_family(family)
    made = replace(made, reference=reference)
    own = reference.block(made.columns)
    if own is not None:
        paid = budget.multiplier(own.sensitivity(unit), budget.total * share)
        made = replace(made, reference_block=PlannedBlock(own, paid))
    made.check(n)
    return made


def _split(
    blocks: Sequence[Block],
    *,
    asked: Mapping[str, Sequence[Block]],
    weights: Mapping[str, Fraction] | None,
    budget: PureDP,
    amount: Fraction,
    unit: Unit,
) -> list[Fraction]:
    """Noise multiplier of every block, so that together they spend `amount` exactly."""
    if weights is None:  # equal noise in natural units, as in the paper
        together = budget.multiplier(Family(tuple(blocks)).sensitivity(unit), amount)
        return [together] * len(blocks)
    sensitivities = [block.sensitivity(unit) for block in blocks]
    parts = [Fraction(0)] * len(blocks)
    for name, wanted in asked.items():
        serving = _serving(blocks, wanted)
        whole = sum((sensitivities[i].l1 for i in serving), Fraction(0))
        for i in serving:
            parts[i] = max(parts[i], weights[name] * sensitivities[i].l1 / whole)
    total = sum(parts)
    return [
        budget.multiplier(sensitivity, amount * part / total)
        for sensitivity, part in zip(sensitivities, parts, strict=True)
    ]


def _serving(blocks: Sequence[Block], wanted: Sequence[Block]) -> list[int]:
    """Indices of the measured blocks that answer what an analysis asked for.

    A wanted block answers itself where it is measured; else those it follows from do.
    """
    serving: dict[int, None] = {}
    for block in wanted:
        if block in blocks:
            serving[blocks.index(block)] = None
        else:
            serving |= {i: None for i, b in enumerate(blocks) if b.derive(block) is not None}
    return list(serving)


def _read_shares(shares: Mapping[str, Any], names: list[str]) -> dict[str, Fraction]:
    if not isinstance(shares, Mapping) or set(shares) != set(names):
        given = sorted(shares) if isinstance(shares, Mapping) else shares
        raise RequestError(f"shares must name every analysis: {names}; got {given}")
    return {name: read_rational(share, f"share of {name!r}") for name, share in shares.items()}


def _check_rows(n: object) -> None:
    if type(n) is not int or n < 1:
        raise RequestError(f"the number of rows n must be a positive whole number, got {n!r}")


def _planned_to_dict(planned: PlannedBlock) -> dict[str, Any]:
    return {"multiplier": str(planned.multiplier), **planned.block.to_dict()}


def _planned_from_dict(plain: Mapping[str, Any], schema: Schema) -> PlannedBlock:
    multiplier = parse_fraction(plain["multiplier"])
    if not multiplier:
        raise FileFormatError("the plan holds a multiplier that is not a positive fraction")
    return PlannedBlock(block_from_dict(plain, schema), multiplier)
