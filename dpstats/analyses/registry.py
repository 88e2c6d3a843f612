"""The kinds of analyses: those of dpstats, those of installed packages, and your own."""

from __future__ import annotations

import ast
import dataclasses
import importlib
import json
import tomllib
from collections.abc import Mapping
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, TypeVar, cast

from dpstats.analyses.base import Analysis, R
from dpstats.checks import did_you_mean, first_few, short
from dpstats.errors import DpstatsError, RequestError
from dpstats.families.block import Family
from dpstats.results.base import Result

if TYPE_CHECKING:
    from dpstats.measured.view import ReleaseView
    from dpstats.schema import Schema


T = TypeVar("T")

# Kind in files -> module below `dpstats.analyses` and class, imported on first use.
BUILT_IN: Mapping[str, tuple[str, str]] = {
    "correlation": ("moments.correlation", "Correlation"),
    "covariance": ("moments.covariance", "Covariance"),
    "difference": ("counts.difference", "Difference"),
    "elastic_net": ("regression.elastic_net", "ElasticNet"),
    "goodness_of_fit": ("tables.goodness_of_fit", "GoodnessOfFit"),
    "graphical_model": ("graphs.graphical_model", "GraphicalModel"),
    "group_means": ("moments.group_means", "GroupMeans"),
    "hazard": ("survival.hazard", "Hazard"),
    "huber": ("regression.loss_grid", "Huber"),
    "independence": ("tables.independence", "Independence"),
    "loss_grid": ("regression.loss_grid", "LossGrid"),
    "lasso": ("regression.elastic_net", "Lasso"),
    "logistic": ("regression.glm", "Logistic"),
    "marginals": ("counts.marginals", "Marginals"),
    "mean": ("moments.mean", "Mean"),
    "mean_difference": ("moments.mean_difference", "MeanDifference"),
    "ols": ("regression.ols", "OLS"),
    "pca": ("moments.pca", "PCA"),
    "poisson": ("regression.glm", "Poisson"),
    "proportion": ("counts.proportion", "Proportion"),
    "quantile": ("counts.quantile", "Quantile"),
    "ratio": ("moments.ratio", "Ratio"),
    "survival": ("survival.survival", "Survival"),
}
_ALSO_CALLED = {  # what others call a kind -> the kind
    "cox": "hazard",
    "median": "quantile",
    "regression": "ols",
    "t_test": "mean_difference",
    "chi_square": "independence",
    "table": "marginals",
}
GROUP = "dpstats.analyses"  # of entry points: kind = "module:Class"
_RESERVED = ("kind", "name", "share")  # keys of an [[analysis]] table that are no parameters

_registered: dict[str, type[Any]] = {}


def register(analysis: type[T]) -> type[T]:
    """Register a class of analyses under its kind, so that plans and releases can be read back.

    Call it, or use it as a decorator. An installed package can name its class as an entry point
    of the group ``dpstats.analyses`` instead; dpstats then imports it when a file needs it.

    Parameters
    ----------
    analysis : class
        A frozen dataclass with the methods of `dpstats.Analysis`.

    Returns
    -------
    The class.

    Raises
    ------
    RequestError
        If the class is not an analysis, or if another class has its kind.

    Examples
    --------
    >>> import dataclasses
    >>> import dpstats as dps
    >>> @dps.register
    ... @dataclasses.dataclass(frozen=True)
    ... class Smoking:
    ...     kind = "smoking"
    ...
    ...     def family(self, schema):
    ...         return dps.Family((dps.Cells.condition(schema, "smoker"),))
    ...
    ...     def infer(self, release):
    ...         return dps.Proportion("smoker").infer(release)
    >>> schema = dps.Schema([dps.Boolean("smoker")])
    >>> list(dps.plan(schema, {"smoking": Smoking()}, budget=dps.PureDP(1)).analyses)
    ['smoking']
    """
    check_class(analysis)
    kind: str = analysis.kind  # type: ignore[attr-defined]
    holder = BUILT_IN[kind][1] if kind in BUILT_IN else _registered.get(kind)
    again = isinstance(holder, type) and _path(holder) == _path(analysis)  # a notebook cell rerun
    if holder is not None and not again:
        taken = f"dps.{holder}" if isinstance(holder, str) else _path(holder)
        raise RequestError(
            f"{analysis.__name__} cannot be registered: {taken} has the kind {kind!r}; give your "
            "class another kind"
        )
    _registered[kind] = analysis
    return analysis


def registry() -> Mapping[str, type[Any]]:
    """The analyses of dpstats by kind."""
    return {kind: _built_in(kind) for kind in BUILT_IN}


def find(kind: object) -> type[Any]:
    """The class of a kind: of dpstats, registered, or an entry point of an installed package."""
    if isinstance(kind, str):
        if kind in BUILT_IN:
            return _built_in(kind)
        if kind not in _registered:
            _load_entry_point(kind)
        if kind in _registered:
            return _registered[kind]
    known = kinds()
    usual = _ALSO_CALLED.get(kind, kind) if isinstance(kind, str) else kind
    meant = did_you_mean(usual, known)
    raise RequestError(
        f"unknown kind of analysis {short(kind)}{meant}; known: {known}"
        + ("" if meant else
           "; for one of your own, import the module that registers it, or register its class with "
           "dps.register, or name its file with --with")
    )  # fmt: skip


def kinds() -> list[str]:
    """All kinds that are known; entry points are listed without being imported."""
    return sorted({*BUILT_IN, *_registered, *(point.name for point in entry_points(group=GROUP))})


def class_name(kind: str) -> str:
    """The name of the class of a kind; that of dpstats itself without importing it."""
    return BUILT_IN[kind][1] if kind in BUILT_IN else str(find(kind).__name__)


def check_class(analysis: object) -> None:
    """Refuse a class that is no analysis."""
    if not isinstance(analysis, type):
        raise RequestError(
            f"dps.register takes the class of an analysis, not an object; got {short(analysis)}"
        )
    name, parameters = analysis.__name__, getattr(analysis, "__dataclass_params__", None)
    if parameters is None or not parameters.frozen or "__dataclass_params__" not in vars(analysis):
        raise RequestError(
            f"{name} is not a frozen dataclass; decorate it with @dataclass(frozen=True) and make "
            "its parameters the fields"
        )
    if not isinstance(getattr(analysis, "kind", None), str) or not analysis.kind:  # type: ignore[attr-defined]
        raise RequestError(
            f"{name} has no kind, its name in files; add kind: ClassVar[str] = '...' to the class"
        )
    for method in ("family", "infer"):
        if not callable(getattr(analysis, method, None)):
            raise RequestError(f"{name} has no method {method}(); see dps.Analysis")
    if reserved := sorted({field.name for field in _parameters(analysis)} & set(_RESERVED)):
        raise RequestError(
            f"{name} has a parameter named {reserved[0]!r}, which has another meaning in a "
            "request; rename it"
        )


def check_readable(analysis: Analysis[Result]) -> None:
    """Refuse an analysis that changes when it is saved and read."""
    name = type(analysis).__name__
    kind = getattr(analysis, "kind", None)
    try:
        known = find(kind)
    except RequestError:
        known = None
    if known is not type(analysis):
        check_class(type(analysis))
        raise RequestError(
            f"{name} is not registered, and files of plans and releases with it could not be read "
            f"back; register it first: dps.register({name})"
        )
    try:
        plain = json.loads(json.dumps(analysis_to_dict(analysis), allow_nan=False))
    except (TypeError, ValueError) as error:
        raise RequestError(
            f"{spelled(analysis)} cannot be saved ({error}); parameters are strings, numbers, "
            "booleans, None, and tuples or mappings of them"
        ) from None
    again = analysis_from_dict(plain)
    if again != analysis:
        raise RequestError(
            f"{spelled(analysis)} comes back from a file as {spelled(again)}; use tuples instead "
            f"of lists, or normalise the parameters in {name}.__post_init__; then "
            f"dps.register({name})"
        )


def family_of(analysis: Analysis[Result], schema: Schema) -> Family:
    """The functions that an analysis needs."""
    try:
        family = analysis.family(schema)
    except DpstatsError:
        raise
    except Exception as error:  # a class of another package may raise anything
        raise RequestError(f"{spelled(analysis)} cannot be planned: {error}") from error
    if not isinstance(family, Family):
        raise RequestError(
            f"family() of {spelled(analysis)} must return a dps.Family, not a "
            f"{type(family).__name__}"
        )
    return family


def checked_result(analysis: Analysis[R], release: ReleaseView) -> R:
    """The result of an analysis; RequestError if it is none."""
    result: object = analysis.infer(release)
    if not isinstance(result, Result):
        raise RequestError(
            f"infer() of {spelled(analysis)} must return a result, such as dps.EstimateResult; it "
            f"returned {short(result)}"
        )
    return cast(R, result)


def inferred(analysis: Analysis[Result], release: ReleaseView, where: str) -> Result:
    """The result of an analysis; RequestError also for what its class raises of itself."""
    try:
        return checked_result(analysis, release)
    except DpstatsError:
        raise
    except Exception as error:  # a class of another package may raise anything
        raise RequestError(
            f"infer() of {spelled(analysis)} failed {where}: {type(error).__name__}: {error}; "
            "dps.testing.check_analysis tries it on easier releases too"
        ) from error


def analysis_to_dict(analysis: Analysis[Result]) -> dict[str, Any]:
    """Plain data of an analysis: its kind and the parameters that differ from their defaults."""
    plain: dict[str, Any] = {"kind": analysis.kind}
    for field in _parameters(analysis):
        value = getattr(analysis, field.name)
        if _required(field) or not _is_default(field, value):
            plain[field.name] = list(value) if isinstance(value, tuple) else value
    return plain


def analysis_from_dict(plain: Mapping[str, Any]) -> Analysis[Result]:
    """Build an analysis from plain data, such as an ``[[analysis]]`` table of a request.

    Lists become tuples.
    """
    given = dict(plain)
    if "kind" not in given:
        meant = next((key for key in given if did_you_mean(key, ["kind"])), None)
        raise RequestError(
            f"an analysis needs a kind, such as 'proportion'; known: {kinds()}"
            if meant is None
            else f"unknown key {meant!r}{did_you_mean(meant, ['kind'])}"
        )
    kind = given.pop("kind")
    analysis = find(kind)
    fields = {field.name: field for field in _parameters(analysis)}
    unknown = sorted(set(given) - set(fields))
    lacking = [name for name, field in fields.items() if name not in given and _required(field)]
    if unknown or lacking:
        raise RequestError(
            f"analysis of kind {kind!r}: "
            + (
                f"unknown keys {first_few(unknown)}{did_you_mean(unknown, fields)}; "
                if unknown
                else ""
            )
            + (f"missing keys {lacking}; " if lacking else "")
            + f"it takes {list(fields)}"
        )
    try:
        return cast(
            "Analysis[Result]", analysis(**{name: _tuples(value) for name, value in given.items()})
        )
    except DpstatsError:
        raise
    except Exception as error:  # a class of another package may raise anything
        raise RequestError(f"analysis of kind {kind!r}: {error}") from error


def spelled(analysis: Analysis[Result]) -> str:
    """An analysis as you write it, such as ``dps.Quantile('age')``."""
    plain, texts, positional = analysis_to_dict(analysis), [], True
    for field in _parameters(analysis):
        positional = positional and _required(field) and not field.kw_only
        if field.name in plain:
            texts.append(("" if positional else f"{field.name}=") + repr(plain[field.name]))
    ours = "dps." if type(analysis).__module__.startswith("dpstats.") else ""
    return f"{ours}{type(analysis).__name__}({', '.join(texts)})"


def _built_in(kind: str) -> type[Any]:
    module, name = BUILT_IN[kind]
    return cast("type[Any]", getattr(importlib.import_module(f"dpstats.analyses.{module}"), name))


def _load_entry_point(kind: str) -> None:
    """Register the class that installed packages name for a kind, if any does."""
    points = {point.value: point for point in entry_points(group=GROUP, name=kind)}
    if len(points) > 1:
        raise RequestError(
            f"several installed packages have an analysis of kind {kind!r}: {sorted(points)}; "
            "register the class you want with dps.register"
        )
    for value, point in points.items():
        try:
            analysis = point.load()
        except Exception as error:  # whatever the module of another package does on import
            raise RequestError(
                f"the analysis of kind {kind!r} cannot be imported from {value!r}: {error}"
            ) from error
        check_class(analysis)
        if analysis.kind != kind:
            raise RequestError(
                f"the entry point {kind!r} leads to {value!r}, whose kind is {analysis.kind!r}; "
                "give both the same name"
            )
        if kind not in _registered:  # importing its module may have registered it
            register(analysis)


def _path(analysis: type) -> str:
    return f"{analysis.__module__}.{analysis.__qualname__}"


def _parameters(analysis: Any) -> list[dataclasses.Field[Any]]:
    return [field for field in dataclasses.fields(analysis) if field.init]


def _required(field: dataclasses.Field[Any]) -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


def _is_default(field: dataclasses.Field[Any], value: Any) -> bool:
    made = field.default_factory
    default = field.default if made is dataclasses.MISSING else made()
    # other types are not compared: arrays would compare entry by entry
    return type(value) is type(default) and bool(value == default)


def _tuples(value: Any) -> Any:
    """Lists of JSON and TOML as tuples, which are hashable."""
    return tuple(_tuples(item) for item in value) if isinstance(value, list) else value


_LONGEST = 10_000  # characters
_GRAMMAR = (
    "write it as in Python, with literal parameters, such as OLS('y ~ x') or "
    "Proportion(\"smoker == 'yes'\", given='age >= 65'), or as in a request, such as "
    "{kind = 'ols', formula = 'y ~ x'}"
)


def analysis_from_text(text: str) -> Analysis[Result]:
    """The analysis that a text spells.

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
    """True if a text spells an analysis, and not a condition or a name.

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
