"""The public description of a private table: its columns, declared and never learned from data.

Every cell of a private table becomes an integer code by a public rule: the index of a level, or a
point of a public grid. No level, bound or bin is ever chosen by looking at data.
"""

from dpstats.schema.category import Boolean, Category
from dpstats.schema.column_fields import MISSING_LABEL, Level, quoted_name
from dpstats.schema.conditions import Column
from dpstats.schema.design import Design
from dpstats.schema.grid import MAX_POINTS
from dpstats.schema.guesses import Guesses
from dpstats.schema.number import Number
from dpstats.schema.read_from import RawColumns
from dpstats.schema.rules import Determines, Never, Order
from dpstats.schema.schema import Schema
from dpstats.schema.text_files import TextFile
from dpstats.schema.totals import Total

__all__ = [
    "MAX_POINTS",
    "MISSING_LABEL",
    "Boolean",
    "Category",
    "Column",
    "Design",
    "Determines",
    "Guesses",
    "Level",
    "Never",
    "Number",
    "Order",
    "RawColumns",
    "Schema",
    "TextFile",
    "Total",
    "quoted_name",
]
