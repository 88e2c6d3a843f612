"""Every error that dpstats raises on purpose, under one base class.

A message says what happened, names the public value, what is allowed and what to do.
No message ever quotes a cell of a private table.
"""


class DpstatsError(Exception):
    """Base class of all errors raised by dpstats.

    Examples
    --------
    >>> import dpstats as dps
    >>> try:
    ...     budget = dps.PureDP(-1)
    ... except dps.DpstatsError as error:
    ...     print(type(error).__name__)
    BudgetError
    """


class RequestError(DpstatsError, ValueError):
    """A parameter, plan or analysis cannot be carried out as asked.

    Examples
    --------
    >>> import dpstats as dps
    >>> schema = dps.Schema([dps.Boolean("smoker")])
    >>> dps.plan(schema, {"smoking": dps.Proportion}, budget=dps.PureDP(1))
    Traceback (most recent call last):
        ...
    dpstats.errors.RequestError: 'smoking' is the class dps.Proportion; make an analysis of it...
    """


class SchemaError(RequestError):
    """A schema declares something impossible.

    Examples
    --------
    >>> import dpstats as dps
    >>> dps.Number("age", 120, 0)
    Traceback (most recent call last):
        ...
    dpstats.errors.SchemaError: column 'age': low must be below high, got 120 and 0
    """


class ConditionError(RequestError):
    """A condition such as ``"smoker == 'yes'"`` cannot be read or cannot be measured.

    Examples
    --------
    >>> import dpstats as dps
    >>> schema = dps.Schema([dps.Number("age", 0, 120, edges=[18, 65])])
    >>> dps.Cells.condition(schema, "age >= 50")
    Traceback (most recent call last):
        ...
    dpstats.errors.ConditionError: 'age' >= 50 cannot be measured exactly; allowed: < or
    >= with one of the declared edges [18, 65]; add an edge to the schema if you need another
    """


class BudgetError(RequestError):
    """A privacy budget is not valid, or a request would exceed it.

    Examples
    --------
    >>> import dpstats as dps
    >>> dps.PureDP(0)
    Traceback (most recent call last):
        ...
    dpstats.errors.BudgetError: epsilon must be a positive finite number, got 0; give one such as
    1 or 0.5, or a fraction: Fraction(1, 3) in Python, 1/3 in files and commands
    """


class DataError(DpstatsError):
    """The structure of a private table does not fit the plan (never about a cell's value).

    Examples
    --------
    >>> import dpstats as dps
    >>> import pandas as pd
    >>> schema = dps.Schema([dps.Boolean("smoker")])
    >>> plan = dps.plan(schema, {"smoking": dps.Proportion("smoker")}, budget=dps.PureDP(1))
    >>> dps.measure(plan, pd.DataFrame({"age": [30, 40]}))
    Traceback (most recent call last):
        ...
    dpstats.errors.DataError: the table has no column 'smoker'; the plan needs ['smoker'];
    the table has ['age']
    """


class NoiseError(DpstatsError, RuntimeError):
    """Privacy noise could not be drawn; nothing was released but an earlier stage, if any.

    Examples
    --------
    It is raised where OpenDP or the system's random source fails, and is also a RuntimeError:

    >>> import dpstats as dps
    >>> issubclass(dps.NoiseError, RuntimeError)
    True
    """


class NotMeasuredError(DpstatsError, LookupError):
    """A release holds no measurement from which the answer could be derived.

    Examples
    --------
    >>> import dpstats as dps
    >>> import pandas as pd
    >>> schema = dps.Schema([dps.Boolean("smoker")])
    >>> plan = dps.plan(schema, {"smoking": dps.Proportion("smoker")}, budget=dps.PureDP(1))
    >>> rows = pd.DataFrame({"smoker": [True] * 3_000 + [False] * 7_000})
    >>> release = dps.release(plan, rows)
    >>> release.infer("age")
    Traceback (most recent call last):
        ...
    dpstats.errors.NotMeasuredError: this release has no analysis 'age'; it has ['smoking']
    """


class FileFormatError(DpstatsError, ValueError):
    """A plan, measurement, release or ledger file cannot be read.

    Examples
    --------
    >>> import dpstats as dps
    >>> dps.load("no-such-release.zip")
    Traceback (most recent call last):
        ...
    dpstats.errors.FileFormatError: cannot read no-such-release.zip: ...
    """
