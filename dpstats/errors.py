"""Every error that dpstats raises on purpose, under one base class.

A message says what happened, names the public value, what is allowed and what to do.
No message ever quotes a cell of a private table.
"""


class DpstatsError(Exception):
    """Base class of all errors raised by dpstats."""


class RequestError(DpstatsError, ValueError):
    """A parameter, plan or analysis cannot be carried out as asked."""


class SchemaError(RequestError):
    """A schema declares something impossible."""


class ConditionError(RequestError):
    """A condition such as ``"smoker == 'yes'"`` cannot be read or cannot be measured."""


class BudgetError(RequestError):
    """A privacy budget is not valid, or a request would exceed it."""


class DataError(DpstatsError):
    """The structure of a private table does not fit the plan (never about a cell's value)."""


class NoiseError(DpstatsError, RuntimeError):
    """Privacy noise could not be drawn; nothing was released."""


class NotMeasuredError(DpstatsError, LookupError):
    """A release holds no measurement from which the answer could be derived."""


class FileFormatError(DpstatsError, ValueError):
    """A plan, measurement, release or ledger file cannot be read."""
