"""All marginals of some columns up to a degree, for general-purpose synthetic rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import ClassVar, Literal

from dpstats.analyses.counts.proportion import (
    ProportionResult,
    WeightedProportions,
    proportions_result,
)
from dpstats.analyses.notes import WIDTHS_OF_SHARES, cell_rules
from dpstats.analyses.survey.by_design import weighted_by_design
from dpstats.analyses.survey.estimand import Estimand, shares_of_all
from dpstats.analyses.survey.weighted import infer_weighted
from dpstats.analyses.tables.cells import TableOfCells
from dpstats.checks import check_choice, listed, short
from dpstats.errors import RequestError
from dpstats.families.block import Family
from dpstats.families.tables.cells import Cells, Table, tables_of_degree
from dpstats.measured.view import ReleaseView, density_of
from dpstats.schema import Schema


@weighted_by_design
@dataclass(frozen=True)
class Marginals:
    """Marginals of the columns, up to a degree.

    Parameters
    ----------
    columns : sequence of str
    degree : int
        Largest number of columns in one marginal, from 1 to the number of columns; by default 2,
        or 1 of a single column.
    form : {"cells", "monomials"}
        Contingency tables with all their cells, of exactly `degree` columns since smaller ones
        are their margins; or products of Boolean columns, the family of BL24.

    Examples
    --------
    >>> import dpstats as dps
    >>> schema = dps.Schema([dps.Boolean("smoker"), dps.Category("region", ["north", "south"])])
    >>> dps.Marginals(["smoker", "region"], degree=2).family(schema).names
    ['smoker=False, region=north', 'smoker=False, region=south',
     'smoker=True, region=north', 'smoker=True, region=south']
    """

    kind: ClassVar[str] = "marginals"
    preview_remark: ClassVar[str] = WIDTHS_OF_SHARES

    columns: Sequence[str]
    degree: int = 2
    form: Literal["cells", "monomials"] = "cells"

    def __post_init__(self) -> None:
        columns = listed(self.columns)
        if isinstance(columns, str) or not isinstance(columns, Sequence):
            raise RequestError(f"columns must be a list of names, got {short(columns)}")
        object.__setattr__(self, "columns", tuple(columns))
        degree = listed(self.degree)
        object.__setattr__(self, "degree", 1 if len(columns) == 1 and degree == 2 else degree)
        check_choice("form", self.form, ("cells", "monomials"))

    def family(self, schema: Schema) -> Family:
        """The tables, or the monomials."""
        if self.form == "monomials":
            return Family(tuple(Cells.monomials(schema, self.columns, self.degree)))
        return Family(tuple(tables_of_degree(schema, self.columns, self.degree)))

    def estimands(self, schema: Schema) -> list[Estimand]:
        """Weighted shares of all cells, table by table."""
        if self.form == "monomials":
            raise RequestError("form='monomials' has no weighted shares; use form='cells'")
        tables = tables_of_degree(schema, self.columns, self.degree)
        return [shares_of_all(table) for table in tables]

    def is_of_functions(self, schema: Schema) -> bool:
        """Its parameters are the means of its functions."""
        return True

    def combines(self, schema: Schema) -> bool:
        """Its answers may be combined from several measurements."""
        return True

    def drawn_tables(self) -> list[tuple[str, ...]]:
        """The pairs of columns, whose tables show it."""
        return list(combinations(self.columns, 2)) if self.degree == 2 else []

    def title(self, schema: Schema) -> str:
        """Title of the result."""
        return f"Marginals of {', '.join(self.columns)} of degree {self.degree}"

    def infer_weighted(self, release: ReleaseView) -> WeightedProportions:
        """The weighted share of every cell."""
        family = self.family(release.schema)
        return infer_weighted(self, release, WeightedProportions, tables=_tables_of(family))

    def infer(self, release: ReleaseView) -> ProportionResult:
        """The proportion in every cell, each with its own interval, as of `Proportion`."""
        family = self.family(release.schema)
        tables = _tables_of(family)
        # Before the candidates, which may lack its columns.
        answers = release.answers(family).with_totals
        candidates, weights = density_of(release)
        fitted = None  # where a column only follows from one of the candidates
        if set(family.column_names) <= set(candidates):
            fitted = family.evaluate(candidates).average(weights)
        return proportions_result(
            self.title(release.schema),
            family.names,
            answers,
            str(release.budget),
            tables=tables,
            notes=(cell_rules(release.schema, self),),
            fitted=fitted,
        )


def _tables_of(family: Family) -> tuple[TableOfCells, ...]:
    return tuple(
        TableOfCells.of(block.columns) for block in family.blocks if isinstance(block, Table)
    )
