"""Notes of results: the rows that an answer is about, and how other cells were counted."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dpstats.schema import Schema

if TYPE_CHECKING:
    from dpstats.families.subgroups import Subgroup
    from dpstats.measured.answers import Asking
    from dpstats.measured.row_count import RowCount


def cell_rules(schema: Schema, analysis: Asking) -> str:
    """How missing and undeclared cells of an analysis's columns were counted."""
    rules = schema.select(analysis.family(schema).column_names).missing_rules()
    return rules[0].lower() + rules[1:]


def subgroup_note(group: Subgroup, size: float, noise: float) -> str:
    """Which rows an answer is about, their noisy number and the sd of its noise."""
    return f"{group.described}: about {size:.0f} (noise sd {noise:.2g} rows)"


def subgroup_notes(group: Subgroup | None, rows: RowCount) -> list[str]:
    """The same in a list, which is empty for all rows; `rows` are those of the subgroup."""
    if group is None:
        return []
    noise = 0.0 if rows.law is None else float(np.sqrt(rows.law.variance))
    return [subgroup_note(group, rows.value, noise)]
