"""Analyses from text, as it is typed on a command line: parsed, never evaluated."""

from __future__ import annotations

import ast
import dataclasses
import tomllib
from typing import Any

from dpstats.analyses.base import Analysis
from dpstats.analyses.registry import analysis_from_dict, class_name, find, kinds
from dpstats.checks import did_you_mean, short
from dpstats.errors import RequestError
from dpstats.results.base import Result

_LONGEST = 10_000  # characters
_GRAMMAR = (
    "write it as in Python, with literal parameters, such as OLS('y ~ x') or "
    "Proportion(\"smoker == 'yes'\", given='age >= 65'), or as in a request, such as "
    "{kind = 'ols', formula = 'y ~ x'}"
)


def analysis_from_text(text: str) -> Analysis[Result]:
    """The analysis that a text spells.

    Parameters
    ----------
    text : str
        A call of a class of analyses by its name or kind, with literals as arguments; or the keys
        of an ``[[analysis]]`` table of a request as an inline table of TOML.

    Raises
    ------
    RequestError
        For anything else, and for parameters that the analysis does not take.

    Examples
    --------
    >>> analysis_from_text("dps.Quantile('age', 0.25)")
    Quantile(column='age', probability=0.25, given=None)
    >>> analysis_from_text("{kind = 'quantile', column = 'age', probability = 0.25}")
    Quantile(column='age', probability=0.25, given=None)
    >>> analysis_from_text("OLS(open('rows.csv').read())")
    Traceback (most recent call last):
        ...
    dpstats.errors.RequestError: ... argument 1 of OLS is not a literal; ...
    """
    if len(text) > _LONGEST:
        raise RequestError(f"an analysis is spelled in at most {_LONGEST} characters")
    text = text.strip()
    return analysis_from_dict(_table(text) if text.startswith("{") else _call(text))


def is_call(text: str) -> bool:
    """Whether a text spells an analysis, and not a condition or a name.

    Examples
    --------
    >>> is_call("Mean('age')"), is_call("age >= 65 and not (smoker)"), is_call("smoking")
    (True, False, False)
    """
    if text.strip().startswith("{"):
        return True
    try:
        return isinstance(ast.parse(text.strip(), mode="eval").body, ast.Call)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False


def _table(text: str) -> dict[str, Any]:
    try:
        plain: dict[str, Any] = tomllib.loads(f"analysis = {text}")["analysis"]
    except (ValueError, RecursionError):
        raise _unreadable(text, "it is not an inline table of TOML") from None
    return plain


def _call(text: str) -> dict[str, Any]:
    try:
        node = ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise _unreadable(text, "it is not an expression") from None
    if not isinstance(node, ast.Call):
        raise _unreadable(text, "it is no analysis with its parameters in parentheses")
    kind = _kind(node.func, text)
    found = find(kind)
    fields = [field for field in dataclasses.fields(found) if field.init]
    positional = [field.name for field in fields if not field.kw_only]
    if len(node.args) > len(positional):
        raise _unreadable(
            text, f"{found.__name__} takes {len(positional)} parameters without names"
        )
    plain: dict[str, Any] = {"kind": kind}
    given: list[tuple[str | None, str, ast.expr]] = [
        (name, f"argument {i}", value)
        for i, (name, value) in enumerate(zip(positional, node.args, strict=False), 1)
    ]
    given += [(word.arg, f"{word.arg}=", word.value) for word in node.keywords]
    for name, what, value in given:
        if name is None or name == "kind":
            raise _unreadable(text, "parameters are given one by one")
        if name in plain:
            raise _unreadable(text, f"{name} is given twice")
        try:
            plain[name] = _lists(ast.literal_eval(value))
        except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
            raise _unreadable(text, f"{what} of {found.__name__} is not a literal") from None
    return plain


def _kind(node: ast.expr, text: str) -> str:
    """The kind of the class that is called: by its name, also after ``dps.``, or by its kind."""
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        name = node.attr if node.value.id in ("dps", "dpstats") else ""
    else:
        name = node.id if isinstance(node, ast.Name) else ""
    for kind in kinds():
        if name in (kind, class_name(kind)):
            return kind
    known = sorted(map(class_name, kinds()))
    meant = did_you_mean(name, [*known, *kinds()])
    raise _unreadable(text, f"it calls no analysis{meant}; the analyses are {', '.join(known)}")


def _lists(value: Any) -> Any:
    """Tuples as lists, as files have them; sets and bytes are no parameters."""
    if isinstance(value, list | tuple):
        return [_lists(item) for item in value]
    if isinstance(value, dict):
        return {key: _lists(item) for key, item in value.items()}
    if value is None or isinstance(value, str | int | float | bool):
        return value
    raise ValueError("no parameter")


def _unreadable(text: str, why: str) -> RequestError:
    return RequestError(f"cannot read the analysis {short(text)}: {why}; {_GRAMMAR}")
