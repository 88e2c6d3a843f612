"""All marginals of some columns up to a degree, for general-purpose synthetic rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np

from dpstats.analyses.counts.proportion import ProportionResult, of_persons, proportions_result
from dpstats.analyses.notes import cell_rules
from dpstats.checks import check_choice, short
from dpstats.errors import RequestError
from dpstats.families.block import Family
from dpstats.families.tables.cells import Cells, Table, tables_of_degree
from dpstats.measured.view import ReleaseView
from dpstats.results.tables.cells import TableOfCells
from dpstats.schema import Schema

MOST_OF_PERSONS = 500  # cells that allow for several rows of a person, 6 ms each
_JOINTLY = """\
joint limits (simultaneous=True) and one-sided p-values are too short for cells of few persons, \
below about 20: they rest on a normal law"""


@dataclass(frozen=True)
class Marginals:
    """Marginals of the columns, up to a degree.

    Parameters
    ----------
    columns : sequence of str
    degree : int
        Largest number of columns in one marginal, from 1 to the number of columns.
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

    columns: Sequence[str]
    degree: int = 2
    form: Literal["cells", "monomials"] = "cells"

    def __post_init__(self) -> None:
        if isinstance(self.columns, str) or not isinstance(self.columns, Sequence):
            raise RequestError(f"columns must be a list of names, got {short(self.columns)}")
        object.__setattr__(self, "columns", tuple(self.columns))
        check_choice("form", self.form, ("cells", "monomials"))

    def family(self, schema: Schema) -> Family:
        """The tables, or the monomials."""
        if self.form == "monomials":
            return Family(tuple(Cells.monomials(schema, self.columns, self.degree)))
        return Family(tuple(tables_of_degree(schema, self.columns, self.degree)))

    def combines(self, schema: Schema) -> bool:
        """Its answers may be combined from several measurements."""
        return True

    def infer(self, release: ReleaseView) -> ProportionResult:
        """The proportion in every cell, each with its own interval.

        Where a person may have several rows, the intervals of up to 500 cells allow for that, as
        those of `Proportion` do; results with more say that they do not.
        """
        family = self.family(release.schema)
        tables = tuple(
            TableOfCells.of(block.columns) for block in family.blocks if isinstance(block, Table)
        )
        answers = release.answers(family)  # before the candidates, which may lack its columns
        fitted = family.evaluate(release.candidates).average(np.asarray(release.weights))
        result = proportions_result(
            f"Marginals of {', '.join(self.columns)} of degree {self.degree}",
            family.names,
            answers,
            str(release.budget),
            tables=tables,
            notes=(cell_rules(release.schema, self),),
            fitted=fitted,
        )
        if answers.rows.rows_per_person == 1 or len(family.names) > MOST_OF_PERSONS:
            return result
        result = of_persons(result, release.answers(family, with_count=True))
        return replace(result, notes=[*result.notes, _JOINTLY])
