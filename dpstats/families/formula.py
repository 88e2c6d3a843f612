"""Formulas such as ``"y ~ a + C(g) + a:b"`` as regressors; parsed by formulaic, never evaluated."""

from __future__ import annotations

import ast
import itertools
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from dpstats.arrays import Floats
from dpstats.checks import did_you_mean, excerpt, is_number, listed, short
from dpstats.errors import RequestError, SchemaError
from dpstats.families.features import Feature, has_sign
from dpstats.schema import Boolean, Category, Column, Number, Schema, quoted_name
from dpstats.schema.dates import check_day

if TYPE_CHECKING:
    import pandas as pd

GRAMMAR = (
    "a formula reads 'y ~ a + C(g) + a:b': a number or a column with two levels on the left; on "
    "the right numbers, categories (C(g) or g; C(age) for the bins of a number; C(g, "
    "Treatment('north')) for another baseline than the first level), products a:b or a*b of two "
    "columns, squares I(a**2), log(a) of a number with scale='log', and - 1 for no intercept; "
    "names that are not identifiers go in backticks, and what is in backticks is a name"
)
_Terms = tuple[tuple[str, ...], ...]
_LARGEST = 2  # columns in one term; a square counts twice
_MOST_CHARACTERS, _MOST_OPERATORS, _MOST_TERMS = 20_000, 300, 10_000
_OPERATOR = re.compile(r"[-+*/:^|(]|\bin\b")
_NAME = r"(?:`(?P<quoted>[^`]+)`|(?P<bare>[^\W\d][\w.]*))"
_STRING = r""""(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'"""
_REFERENCE = rf"Treatment\(\s*(?P<key>reference\s*=)?\s*(?P<level>{_STRING}|[-+.\w]+)\s*\)"
_GROUP = re.compile(rf"C\(\s*{_NAME}\s*(?:,\s*{_REFERENCE}\s*)?\)")
_NUMBER = rf"(?P<log>(?:np\.)?log\(\s*)?{_NAME}\s*(?(log)\))"
_NUMBERS = re.compile(_NUMBER)
_SQUARE = re.compile(rf"I\(\s*{_NUMBER}\s*\*\*\s*2\s*\)")
_INSIDE = rf"[^()'\"`]|`[^`]*`|{_STRING}"
_FACTOR = re.compile(  # what may hold a name in backticks
    rf"`[^`]*`|(?<![\w.])(?:C|I|(?:np\.)?log)\((?:{_INSIDE}|\((?:{_INSIDE})*\))*\)"
)
_MARK = "\x1f"  # of the places of factors, which formulaic would change; no name holds it
_MARKED = re.compile(rf"`?{_MARK}(\d+)`?")


@dataclass(frozen=True)
class Regressor:
    """One column of the design matrix: a product of features; of none, the intercept."""

    # as statsmodels names it: ``age``, ``C(region)[T.south]``, ``age:smoker[T.True]``,
    # ``I(age ** 2)``, ``C(region, Treatment('east'))[T.south]``
    name: str
    # in the order of the formula; of different columns, or one number twice
    factors: tuple[Feature, ...]
    # those factors that are the first level of a category with another baseline. Such a factor is
    # one minus the other levels, so that every baseline has the same moments
    first: tuple[Feature, ...] = ()


@dataclass(frozen=True)
class Design:
    """The regressors and the response that a formula names.

    Attributes
    ----------
    response : feature
        A number, or the indicator of a level: that a Boolean is true, or the second of two levels.
    regressors : tuple of Regressor
        The intercept first, if there is one.
    terms : tuple of (name, slice)
        Which regressors belong to each term of the formula.
    constant : slice or None
        Regressors that add up to one: the intercept, or else all levels of a category.
    references : tuple of (name, level)
        The level that others of its column are compared with, of every column taken by levels.
    """

    response: Feature
    regressors: tuple[Regressor, ...]
    terms: tuple[tuple[str, slice], ...]
    constant: slice | None
    references: tuple[tuple[str, int], ...]

    @property
    def intercept(self) -> bool:
        """True if the design has an intercept, which is then its first regressor."""
        return not self.regressors[0].factors

    @property
    def names(self) -> list[str]:
        """Names of the regressors."""
        return [regressor.name for regressor in self.regressors]

    def titled(self, formula: str, schema: Schema) -> str:
        """The formula for a title, with the level that counts as 1 where it is not ``True``."""
        name, level = self.response
        if level is None or (isinstance(schema[name], Boolean) and level == 1):
            return formula
        return f"{formula}, for {name} == {schema[name].labels[level]!r}"  # type: ignore[union-attr]

    def matrix(self, exog: pd.DataFrame | Mapping[str, Any] | None, schema: Schema) -> Floats:
        """Design matrix (m, p) of given values in original units, such as to predict for.

        `exog` is a mapping, or a frame of pandas, polars or Arrow. A single value of a column is
        repeated in all m rows. Levels are given by their labels, or as the table stores them.

        Raises
        ------
        RequestError
            For a missing column, or a value that the schema does not declare.
        """
        features = dict.fromkeys(f for regressor in self.regressors for f in regressor.factors)
        values = self.values(exog, schema, features)
        one = np.ones(len(next(iter(values.values()))))
        columns = [math.prod((values[f] for f in r.factors), start=one) for r in self.regressors]
        return np.stack(columns, axis=1)

    def values(
        self,
        exog: pd.DataFrame | Mapping[str, Any] | None,
        schema: Schema,
        features: Iterable[Feature],
    ) -> dict[Feature, Floats]:
        """Values (m,) of features in original units, as `matrix` takes them."""
        columns = None if hasattr(exog, "collect") else _column_names(exog)  # not of a lazy query
        if exog is None or columns is None:
            raise RequestError(
                "predictions need values by column, a DataFrame or {'age': [20, 30], ...} (a "
                f"release keeps no rows to predict for); got {type(exog).__name__}"
            )
        names = dict.fromkeys(name for name, _ in features)
        lacking = sorted(set(names) - set(columns))
        if lacking:
            raise RequestError(f"predictions also need values of {lacking}")
        given = {name: listed(exog[name]) for name in names}
        lengths = {len(value) for value in given.values() if _is_list(value)}
        if len(lengths) > 1:
            raise RequestError("predictions need as many values of every column, or a single one")
        m = lengths.pop() if lengths else 1
        if not m:
            raise RequestError("predictions need at least one value of every column")
        lists = {n: list(v) if _is_list(v) else [v] * m for n, v in given.items()}
        return {f: _values(lists[f[0]], f, schema[f[0]]) for f in features}

    @staticmethod
    def of(
        formula: str,
        schema: Schema,
        *,
        constant_alone: bool = False,
        response: Feature | None = None,
    ) -> Design:
        """Read a formula against a schema; no data, nothing evaluated.

        The first level of a category is its baseline where there is an intercept, or the one that
        ``Treatment`` names: a level, or the label of a bin. In a product with a number, the levels
        of a category have a baseline if the number is there by itself; a product of two categories
        needs one of them by itself, or no intercept: ``C(g):C(h) - 1`` has all cells. The column
        on the left may be of any kind if its feature is given as the `response`.

        Raises
        ------
        RequestError
            For anything outside the grammar, columns of the wrong kind, or two coefficients with
            one name; without a regressor, unless `constant_alone`.
        """
        left, right = _parsed(formula)
        for match in _FACTOR.finditer(formula):
            if match[0] in schema.names:
                raise RequestError(
                    f"{excerpt(formula)} has {match[0]}, which is also the name of a column: write "
                    f"`{match[0]}` for the column, and for the other put the name inside it in "
                    "backticks"
                )
        if len(left) != 1 or len(left[0]) != 1 or left[0][0] == "1":
            raise RequestError(f"{excerpt(formula)} needs one column on the left; {GRAMMAR}")
        response = response or _response(left[0][0], schema)
        terms = [tuple(_Factor.of(text, schema) for text in term if text != "1") for term in right]
        if not any(terms) and not (terms and constant_alone):
            raise RequestError(f"{excerpt(formula)} has no regressor; for a mean use dps.Mean")
        _check(formula, terms, response)
        regressors: list[Regressor] = []
        places = []
        constant = None
        seen: set[frozenset[str]] = set()  # what the regressors so far span
        for term in sorted(terms, key=len):  # the intercept, columns, products; else as written
            start = len(regressors)
            regressors += _regressors(term, seen)
            places.append((":".join(f.text for f in term), slice(start, len(regressors))))
            if frozenset() not in seen and all(f.grouped for f in term):
                constant = slice(start, len(regressors))
            seen |= _spanned(term)
        names = [regressor.name for regressor in regressors]
        counts = Counter(["Intercept", *names] if regressors[0].factors else names)
        if twice := [name for name, count in counts.items() if count > 1]:
            other = "the constant" if twice[0] == "Intercept" else "another"
            raise RequestError(
                f"{excerpt(formula)}: a coefficient would be called {twice[0]!r}, as {other} is; "
                "rename a column"
            )
        references = {(f.column.name, f.reference) for term in terms for f in term if f.grouped}
        return Design(
            response, tuple(regressors), tuple(p for p in places if p[0]), constant,
            tuple(sorted(references)),
        )  # fmt: skip


@dataclass(frozen=True)
class _Factor:
    """A column in a term, or the square of one."""

    column: Column
    text: str
    grouped: bool
    power: int = 1
    reference: int = 0

    @staticmethod
    def of(text: str, schema: Schema) -> _Factor:
        group, square = _GROUP.fullmatch(text), _SQUARE.fullmatch(text)
        match = group or square or _NUMBERS.fullmatch(text)
        name, text = match["quoted"] if match else text, _shown(text)
        if match is None or name not in schema.names:
            known = f"{did_you_mean(name, schema.names)}; columns: {list(schema.names)}"
            raise RequestError(f"{excerpt(text)} is not a column{known}; {GRAMMAR}")
        column = schema[name]
        log = group is None and match["log"] is not None
        if (square or log) and not isinstance(column, Number):
            raise RequestError(f"{name!r} is not a number, which {text} needs")
        grouped = group is not None or not isinstance(column, Number)
        if not grouped:
            check_scale(column, text, log=log)
        if square:
            return _Factor(column, text, False, 2)
        if grouped and column.bins < 2:
            raise RequestError(f"{name!r} has a single bin; add edges to the schema for C({name})")
        level = group["level"] if group else None
        return _Factor(column, text, grouped, reference=_reference(column, level) if level else 0)

    @property
    def key(self) -> str:
        """Key of what it spans: a column in any spelling, or its square."""
        return self.column.name if self.power == 1 else self.text

    def features(self, *, baseline: bool) -> Iterator[tuple[str, tuple[Feature, ...]]]:
        """Names and features: the number, or the levels but the reference if `baseline`."""
        name = self.column.name
        if not self.grouped:
            yield self.text, ((name, None),) * self.power
            return
        labels = self.column.bin_labels
        for level in range(self.column.bins):
            if not baseline or level != self.reference:
                yield f"{self.text}[{'T.' if baseline else ''}{labels[level]}]", ((name, level),)


def names_logarithm(schema: Schema, text: str) -> bool:
    """True if a text is the logarithm of a column, and not itself the name of a column."""
    match = _NUMBERS.fullmatch(text)
    return bool(match and match["log"]) and text not in schema.names


def named_number(schema: Schema, text: str) -> Number:
    """The number that ``age`` names, or ``log(income)`` if its grid is logarithmic."""
    match = _NUMBERS.fullmatch(text) if isinstance(text, str) else None
    name = (match["quoted"] or match["bare"]) if match else text
    log = bool(match and match["log"])
    if log and text in schema.names:
        if name in schema.names and getattr(schema[name], "scale", None) == "log":
            raise RequestError(
                f"{text} names a column and is the logarithm of another: write '`{text}`' for the "
                f"column or 'log(`{name}`)' for the logarithm"
            )
        name, log = text, False
    column = schema[name]
    if not isinstance(column, Number):
        raise RequestError(
            f"{column.name!r} is not a number: it has no mean; for the shares of its levels use "
            f"dps.Marginals([{column.name!r}], 1)"
        )
    check_scale(column, text, log=log)
    return column


def check_scale(column: Column, text: str, *, log: bool) -> None:
    """Refuse the logarithm of a number with an even grid, and one on a logarithmic grid itself."""
    assert isinstance(column, Number)
    if not log:
        column.require_linear()
    elif column.scale != "log":
        raise RequestError(
            f"{text} needs a grid with equal steps of the logarithm: declare {column.name!r} with "
            "scale='log' in the schema, or a second number with scale='log' and "
            f"source={column.name!r}"
        )


def _reference(column: Column, literal: str) -> int:
    """Index of the level that a literal such as ``'north'``, ``True`` or ``17.5`` names."""
    try:
        level = ast.literal_eval(literal)
    except (SyntaxError, ValueError):
        raise RequestError(
            f"the reference {excerpt(literal)} of {column.name!r} cannot be read; put it in "
            f"quotes, as in C({column.name}, Treatment({column.bin_labels[0]!r}))"
        ) from None
    try:
        return column.index(level)
    except SchemaError as error:
        raise RequestError(f"reference: {error}") from None


def _parsed(formula: str) -> tuple[_Terms, _Terms]:
    """Texts of the factors of every term, left and right."""
    if not isinstance(formula, str):
        raise RequestError(f"a formula must be a string, got {short(formula)}; {GRAMMAR}")
    if len(formula) > _MOST_CHARACTERS:
        raise RequestError(
            f"a formula has {len(formula)} characters; at most {_MOST_CHARACTERS} are allowed: "
            f"{formula[:40]!r}..."
        )
    return _read(formula)


@lru_cache(maxsize=256)  # an analysis reads its formula again for every family and every result
def _read(formula: str) -> tuple[_Terms, _Terms]:
    from formulaic.errors import FormulaicError
    from formulaic.parser import DefaultFormulaParser

    factors: list[str] = []
    marked = _FACTOR.sub(lambda match: _mark(match[0], factors), formula)
    bare = re.sub("`[^`]*`", "", marked)
    if "{" in bare:
        raise RequestError(
            f"{excerpt(formula)} has braces, but nothing here is evaluated; {GRAMMAR}"
        )
    if len(_OPERATOR.findall(bare)) > _MOST_OPERATORS:
        raise RequestError(
            f"the formula {formula[:40]!r}... has more than {_MOST_OPERATORS} operators; name "
            "fewer columns"
        )
    try:
        if "``" in marked:
            raise ValueError("an empty name")
        parser = DefaultFormulaParser()
        tree = parser.get_ast(marked)
        if _terms_of(tree) > _MOST_TERMS:  # before they are expanded
            raise RequestError(
                f"{excerpt(formula)} has more than {_MOST_TERMS} terms; no term may multiply more "
                f"than {_LARGEST} columns"
            )
        _check_powers(formula, tree, factors)
        sides = parser.get_terms(marked)
        left, right = (
            tuple(_texts(term, factors) for term in getattr(sides, side)) for side in ("lhs", "rhs")
        )
    except RequestError:
        raise
    except (
        FormulaicError,
        AttributeError,
        IndexError,
        RecursionError,
        SyntaxError,
        TypeError,
        ValueError,
    ) as e:
        raise RequestError(f"{excerpt(formula)} cannot be read; {GRAMMAR}") from e
    return left, right


def _mark(written: str, factors: list[str]) -> str:
    """Placeholder for a factor: formulaic drops backticks, and cannot read Python's keywords.

    The factor itself is appended to `factors`, in a single spelling with its name in backticks.
    """
    group, square = _GROUP.fullmatch(written), _SQUARE.fullmatch(written)
    match = group or square or _NUMBERS.fullmatch(written)
    if match is None:
        return written
    text = f"`{match['quoted'] or match['bare']}`"
    if group:
        key, level = "reference=" if group["key"] else "", group["level"]
        text = f"C({text}, Treatment({key}{level}))" if level else f"C({text})"
    elif match["log"]:
        text = f"{match['log'].rstrip()}{text})"
    if square:
        text = f"I({text} ** 2)"
    if text not in factors:
        factors.append(text)
    return f"`{_MARK}{factors.index(text)}`"


def _texts(term: Any, factors: Sequence[str]) -> tuple[str, ...]:
    """Texts of the factors of a term, a name in backticks; the constant is "1"."""
    texts = []
    for factor in term.factors:
        mark = _MARKED.fullmatch(factor.expr)
        if mark or factor.eval_method is not type(factor).EvalMethod.LOOKUP:
            texts.append(_MARKED.sub(lambda found: factors[int(found[1])], factor.expr))
        else:
            texts.append(f"`{factor.expr}`")
    return tuple(texts)


def _shown(text: str) -> str:
    """A factor as statsmodels writes it; in parentheses some names have backticks."""
    name = re.search("`([^`]+)`", text)
    if name is None or name[0] == text:
        return text.strip("`")
    return text.replace(name[0], quoted_name(name[1]), 1)


def _terms_of(node: Any) -> float:
    """At least as many terms as a formula expands to, repeated ones included."""
    if not hasattr(node, "operator"):
        return 1
    parts = [_terms_of(part) for part in getattr(node, "args", ())]
    match node.operator.symbol, parts:
        case (("**" | "^"), [base, _]):
            power = str(node.args[1])
            return base ** min(int(power), 99) if power.isdecimal() and len(power) < 9 else math.inf
        case ((":" | "*" | "/" | "in"), [one, other]):
            return one * other + one + other
    return sum(parts)


def _check_powers(formula: str, node: Any, factors: Sequence[str]) -> set[str]:
    """Texts of the factors under a node; refuse products with itself, which parsers drop.

    The product of a column with itself counts as the column in R and Patsy, so that ``a**2`` and
    ``a:a`` would be ``a``; ``(a + b)**2`` means both columns and their product.
    """
    parts = [_check_powers(formula, part, factors) for part in getattr(node, "args", ())]
    if not hasattr(node, "operator"):
        return {text for term in node.to_terms() for text in _texts(term, factors)}
    symbol = node.operator.symbol
    power = symbol in ("**", "^") and len(node.args[0].to_terms()) == 1
    if power or (symbol in (":", "*", "/", "in") and parts[0] & parts[1]):
        text = min(parts[0] if power else parts[0] & parts[1])
        inside = quoted_name(_shown(text)) if text.startswith("`") else _shown(text)
        raise RequestError(
            f"{excerpt(formula)} multiplies {excerpt(inside)} by itself; write I({inside}**2) for "
            f"the square of a number; {GRAMMAR}"
        )
    return set().union(*parts)


def _response(text: str, schema: Schema) -> Feature:
    factor = _Factor.of(text, schema)
    if factor.power > 1:
        raise RequestError(f"the response must be a column, not {text}; {GRAMMAR}")
    if not factor.grouped:
        assert isinstance(factor.column, Number)
        factor.column.require_missing("moments")
        return factor.column.name, None
    if factor.reference > 1 or not has_sign(factor.column):
        raise RequestError(
            f"the response {excerpt(text)} must be a number or a column with two levels, of which "
            "the second counts as 1, or with C(smoker, Treatment('yes')) the one that is not "
            f"named; {GRAMMAR}"
        )
    return factor.column.name, 1 - factor.reference


def _check(formula: str, terms: Sequence[tuple[_Factor, ...]], response: Feature) -> None:
    """Refuse terms with no meaning, or with two meanings."""
    ways: dict[str, tuple[bool, int]] = {}
    for term in terms:
        names = [factor.column.name for factor in term]
        if response[0] in names:
            raise RequestError(f"{response[0]!r} is on both sides of {excerpt(formula)}")
        if len(set(names)) < len(names):
            raise RequestError(f"{excerpt(formula)} multiplies {names[0]!r} by itself; {GRAMMAR}")
        size = sum(factor.power for factor in term)
        if size > _LARGEST:
            raise RequestError(
                f"{excerpt(formula)} multiplies {size} columns (a square counts twice); at most "
                f"{_LARGEST} are allowed"
            )
        for factor in term:
            name, way = factor.column.name, (factor.grouped, factor.reference)
            if ways.setdefault(name, way) != way:
                how = "with two references" if factor.grouped and ways[name][0] else (
                    "as number and levels"
                )  # fmt: skip
                raise RequestError(f"{excerpt(formula)} has {name!r} {how}")
            if isinstance(factor.column, Number) and not factor.grouped:
                factor.column.require_missing("moments")
    if len({frozenset(f.key for f in term) for term in terms}) < len(terms):
        raise RequestError(f"{excerpt(formula)} has a term twice, in two spellings")


def _column_names(table: Any) -> list[str] | None:
    """Columns of a mapping, or of a frame of Arrow, pandas or polars; None for anything else."""
    if isinstance(table, Mapping):
        return list(table)
    names = getattr(table, "column_names", getattr(table, "columns", None))
    return None if names is None else list(names)


def _is_list(value: object) -> bool:
    """True for a list of values, False for a single value of all predictions."""
    return hasattr(value, "__len__") and not isinstance(value, str)


def _values(given: Sequence[Any], feature: Feature, column: Column) -> Floats:
    """Values (m,) of a feature for given values of its column."""
    level = feature[1]
    if any(map(_is_list, given)):
        raise RequestError(f"predictions need one value of {column.name!r} each, not a list")
    if isinstance(column, Category):
        try:
            return np.array([float(column.index_of_cell(value) == level) for value in given])
        except SchemaError as error:
            raise RequestError(f"predictions: {error}") from None
    if column.dates:
        given = [value if is_number(value) else check_day(column.name, value) for value in given]
    try:
        numbers = np.asarray(given, dtype=np.float64)
    except (TypeError, ValueError):
        raise RequestError(f"predictions need numbers for {column.name!r}") from None
    low, high = column.grid[0], column.grid[-1]
    if not np.all((numbers >= low) & (numbers <= high)):
        raise RequestError(f"predictions need {column.name!r} between {low:g} and {high:g}")
    if level is None:
        return np.log(numbers) if column.scale == "log" else numbers
    codes = np.searchsorted(column.grid, numbers, side="left") - column.half_points
    if column.edges:  # a value is in its own bin, whatever grid point is next to it
        side: Literal["right", "left"] = "right" if column.closed == "left" else "left"
        return np.equal(np.searchsorted(column.edges, numbers, side=side), level).astype(float)
    return np.equal(column.bins_of(codes), level).astype(np.float64)


def _regressors(term: Sequence[_Factor], seen: set[frozenset[str]]) -> Iterator[Regressor]:
    """Regressors of a term; levels have a baseline where the term without them is there."""
    names = frozenset(factor.key for factor in term)
    with_baseline = [f.grouped and names - {f.key} in seen for f in term]
    if term and frozenset() in seen and all(f.grouped for f in term) and not any(with_baseline):
        text = ":".join(f.text for f in term)
        raise RequestError(
            f"the product {text} needs a main effect of either column: write "
            f"{text.replace(':', '*')}, or - 1 for one coefficient of every pair of levels"
        )
    choices = [f.features(baseline=b) for f, b in zip(term, with_baseline, strict=True)]
    first = [(f.column.name, 0) for f, b in zip(term, with_baseline, strict=True) if b]
    for chosen in itertools.product(*choices):
        factors = tuple(feature for _, features in chosen for feature in features)
        yield Regressor(
            ":".join(name for name, _ in chosen) or "Intercept",
            factors,
            tuple(feature for feature in factors if feature in first),
        )


def _spanned(term: Sequence[_Factor]) -> set[frozenset[str]]:
    """Products of factors that a term spans, together with the terms before it.

    As the levels of a group add up to one, a term also spans itself without any of its groups.
    """
    groups = [f.key for f in term if f.grouped]
    names = frozenset(f.key for f in term)
    subsets = (itertools.combinations(groups, count) for count in range(len(groups) + 1))
    return {names - set(omitted) for omitted in itertools.chain.from_iterable(subsets)}
