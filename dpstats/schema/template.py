"""A schema file to fill in: what to decide for every column, from its name alone."""

from __future__ import annotations

import json
from collections.abc import Sequence

_TOP = """\
# Schema of a private table, to be completed. It was written from the names of the columns alone: no
# cell was read, and none may decide what you write. Take levels and bounds from public knowledge:
# the questionnaire, the code book, published statistics, the law. Record the source in a note.
#
# Keep one kind for every column, uncomment its lines, and delete the others. Delete the columns
# that no analysis needs: they are then neither read nor published.
#
# boolean  true and false, or 1 and 0.
# levels   of a category: every level, as the table stores it, text or numbers. With labels:
#          levels = { "not at all" = 1, "a little" = 2 }
# low, high, points
#          of a number: bounds that hold for anybody, to which other values are clamped, and the
#          number of grid points: 121 for the whole numbers from 0 to 120. Wide bounds mean more
#          noise, narrow ones bias. For amounts such as incomes: scale = "log". For dates:
#          low = 2020-01-01. For a few uneven scores, instead of bounds: values = [17.5, 22, 27].
# edges    of a number: what conditions such as "age >= 65" may compare with, and the bins of tables
#          and quantiles.
# missing  what a cell without a value counts as; or allow_missing = true for a level of its own.
#          Means and regressions need one of the two.
"""
_COLUMN = """\
[[column]]
name = {name}
# kind = "boolean"               # true and false, or 1 and 0
# levels = ["...", "..."]        # a category: every level that a cell may have
# low = 0                        # a number: bounds from public knowledge,
# high = 100                     #   points, and edges for bins and conditions
# points = 101
# edges = []
# missing = ...                  # a level or a value; or
# allow_missing = true
# note = "where this comes from"
"""
_GUESSES = """\
# What you publicly know or believe about the rows, for previews alone: a wrong guess makes a
# preview wrong and changes nothing else. Never take it from the private rows.
#
# [guesses]
# correlations = [[{first}, {second}, 0.3]]
#
# [guesses.typical]              # numbers
# {first} = {{ mean = 45, sd = 17 }}
#
# [guesses.shares]               # levels; those that are left out divide the rest
# {second} = {{ "..." = 0.2 }}
#
# [guesses.missing]
# {first} = 0.05
"""


def template(names: Sequence[str]) -> str:
    """Text of a schema file with comments on what to decide; it cannot be loaded before that.

    Parameters
    ----------
    names : sequence of str
        Of the columns.

    Examples
    --------
    >>> print(template(["age", "sex"]).split("[[column]]")[1].splitlines()[1])
    name = "age"
    """
    quoted = [json.dumps(name, ensure_ascii=False) for name in names]
    parts = [_TOP, *(_COLUMN.format(name=name) for name in quoted)]
    parts.append(_GUESSES.format(first=quoted[0], second=quoted[-1]))
    return "\n".join(parts)
