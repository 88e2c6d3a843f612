"""Notes of results: the rows that an answer is about, and how other cells were counted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from dpstats.arrays import Floats
from dpstats.checks import first_few
from dpstats.schema import Number, Schema

# What a preview with even rows says of the widths of real ones.
WIDTHS_OF_SHARES = (
    "A share of all rows has the widest interval at one half. Most cells of an uneven table "
    "are smaller than even ones and have narrower intervals; larger cells have wider ones."
)
WIDTHS_OF_MEANS = (
    "Means of columns that vary less within their bounds than even ones have narrower "
    "intervals, down to the width that the noise leaves; those of small groups have wider "
    "ones."
)
WIDTHS_OF_GROUPS = (
    "Small groups have wider intervals: a group with a share g of the rows instead of an even "
    "share e has about sqrt(e / g) times the width, or more."
)

CLAMPED = ". All results are for the clamped values: no interval covers the bias of clamping"
_FEW = 10.0  # of n m (1 - m), the usual rule for a normal approximation to a share
_LARGEST = 0.9  # part of the largest variance beyond which a number looks two-valued

if TYPE_CHECKING:
    from dpstats.analyses.moments.noisy_mean import NoisyMean
    from dpstats.families.subgroups import Subgroup
    from dpstats.measured.answers import Answers, Asking
    from dpstats.measured.row_count import RowCount


def cell_rules(schema: Schema, analysis: Asking) -> str:
    """How missing and undeclared cells of an analysis's columns were counted.

    Where the values of numbers matter, not only their bins, also that clamping them has a bias.
    """
    family = analysis.family(schema)
    rules = schema.select(family.column_names).missing_rules()
    used = (schema[name] for name in family.coded_columns)
    clamped = any(isinstance(column, Number) and column.values is None for column in used)
    return rules[0].lower() + rules[1:] + (CLAMPED if clamped else "")


def subgroup_note(group: Subgroup, size: float, noise: float) -> str:
    """Note on the rows of an answer: their condition, noisy number and the sd of its noise."""
    sd = np.format_float_positional(noise, 2, fractional=False, trim="-")
    return (
        f"{group.described}: about {round(size)} (noise sd {sd} rows; other analyses may have "
        "other noise)"
    )


def subgroup_notes(group: Subgroup | None, rows: RowCount) -> list[str]:
    """`subgroup_note` in a list, empty if there is no subgroup; `rows` counts the subgroup."""
    if group is None:
        return []
    noise = 0.0 if rows.law is None else float(np.sqrt(rows.law.variance))
    return [subgroup_note(group, rows.estimate, noise)]


def left_out(
    what: str,
    used: Mapping[str, Sequence[str]],
    declared: Mapping[str, Sequence[str]],
    columns: Sequence[str],
) -> list[str]:
    """A note on declared levels of some columns that are left out of something, if any."""
    lacking = {name: [x for x in declared[name] if x not in used[name]] for name in columns}
    texts = [f"{name}: {first_few(labels)}" for name, labels in lacking.items() if labels]
    if not texts:
        return []
    return [
        f"levels that may have no rows are left out of {what}: {'; '.join(texts)}. Levels used: "
        + "; ".join(f"{name}: {first_few(used[name])}" for name in columns)
    ]


def rare_shares(shares: Floats, n: float) -> list[str]:
    """A note where n p (1 - p) is below 10 for some of the estimated shares (d,)."""
    rare = int(np.sum(n * shares * (1 - shares) < _FEW))
    if not rare:
        return []
    which = "p" if shares.size == 1 else f"{rare} of {shares.size} estimates p"
    verb = "is" if shares.size == 1 else "are"
    return [
        f"n p (1 - p) is below 10 for {which}, which {verb} near 0 or 1: standard errors are rough "
        "there, and intervals are not symmetric"
    ]


def notes_on_cells(answers: Answers) -> list[str]:
    """Notes on cells or conditions (d,) that cannot occur, and on rules and totals in use."""
    count = int(np.count_nonzero(answers.impossible))
    if not count:
        return answers.constraint_notes
    which = "it" if len(answers.sums) == 1 else f"{count} of {len(answers.sums)}"
    zeros = f"{which} cannot occur by the rules between columns: the share is exactly 0"
    return [zeros, *answers.constraint_notes]


def impossible_shares(shares: Floats, fitted: bool) -> list[str]:
    """A note where some of the estimated shares (d,) are below 0 or above 1."""
    count = int(np.sum((shares < 0) | (shares > 1)))
    if not count:
        return []
    which = "the estimate" if shares.size == 1 else f"{count} of {shares.size} estimates"
    verb = "is" if count == 1 else "are"
    other = "; result.fitted has shares that are possible" if fitted else ""
    return [
        f"{which} {verb} below 0 or above 1 by the noise and not cut off, which would bias sums of "
        f"estimates{other}"
    ]


def rare_mean(name: str, mean: NoisyMean) -> list[str]:
    """A note where n m (1 - m) is below 10, m the noisy mean's place between its bounds.

    The moments of a number at its two bounds have the largest variance that the mean allows. Its
    t interval at p = .01 and n = 300 covers in about 80% of samples.
    """
    place = (1 + mean.mean) / 2
    if mean.size * place * (1 - place) >= _FEW:
        return []
    if mean.variance >= _LARGEST * (1 - mean.mean**2):
        return [
            f"{name} looks like a rare number with two values, its bounds: the noise-aware "
            "interval may cover too rarely; use the certified one, or dps.Proportion of a condition"
        ]
    return [
        f"the mean of {name} is near one of its bounds: n m (1 - m) is below 10, m its place "
        "between them; if few rows are far from that bound, use the certified interval"
    ]
