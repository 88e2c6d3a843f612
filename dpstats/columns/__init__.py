"""The columns a schema declares: what a cell may hold, and the small integer it is coded to.

Every cell of a private table becomes an integer code by a public rule: the index of a level, or a
point of a public grid. Nothing here ever looks at data to choose a level, a bound or a bin.
"""

from dpstats.columns.category import MISSING_LABEL, Boolean, Category
from dpstats.columns.number import MAX_POINTS, Number
from dpstats.columns.shared import Codes, Level

Column = Category | Number

__all__ = [
    "MAX_POINTS",
    "MISSING_LABEL",
    "Boolean",
    "Category",
    "Codes",
    "Column",
    "Level",
    "Number",
]
