"""What else a release can answer: analyses that nobody planned and that its answers determine."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from typing import Any

from dpstats.analyses.base import answered
from dpstats.analyses.counts.marginals import Marginals
from dpstats.analyses.counts.proportion import Proportion
from dpstats.analyses.counts.quantile import Quantile
from dpstats.analyses.moments.correlation import Correlation
from dpstats.analyses.moments.mean import Mean
from dpstats.analyses.registry import spelled
from dpstats.analyses.regression.ols import OLS
from dpstats.analyses.tables.independence import Independence
from dpstats.errors import DpstatsError
from dpstats.releases.release import Release
from dpstats.schema import Category, Number, quoted_name

_PAIRED = 12  # columns up to which pairs are tried
_NAMED = 8  # columns or pairs that a row lists

_MEAN, _LEAST = "mean and variance", "least squares of one column on another"
_OF_VALUES = (_MEAN, _LEAST)  # of logarithms, where these are what was measured
_OF_ONE: dict[str, Callable[[str], Any]] = {
    "shares of all levels of one column": lambda c: Marginals((c,), 1),
    "quantiles and the distribution function": lambda c: Quantile(c),
}
_OF_TWO: dict[str, Callable[[str, str], Any]] = {
    "table of two columns": lambda a, b: Marginals((a, b), 2),
    "test of independence": lambda a, b: Independence(a, b),
    "correlation": lambda a, b: Correlation((a, b)),
}


def answerable(release: Release) -> list[list[str]]:
    """Rows of a table: what can be asked, of which columns, and an example."""
    names = release.columns.names
    pairs = list(itertools.combinations(names, 2)) if len(names) <= _PAIRED else []
    conditions = {column.name: _condition(column) for column in release.columns}

    def share(*columns: str) -> Proportion:
        return Proportion(" and ".join(conditions[name] for name in columns))

    written = {c.name: getattr(c, "measured_name", c.name) for c in release.columns}

    def mean(name: str) -> Mean:
        return Mean(written[name])

    of_one = _OF_ONE | {_MEAN: mean, "conditions on one column": share}

    def line(a: str, b: str) -> OLS:
        """The response a number, on the logarithmic scale where that is the measured one."""
        first, second = release.schema[a], release.schema[b]
        if isinstance(first, Category) and isinstance(second, Number):
            first, second = second, first
        return OLS(f"{_term(first)} ~ {_term(second)}")

    least = {_LEAST: line}
    of_two = _OF_TWO | least | {"conditions on two columns": share}
    tried: list[tuple[str, Iterable[tuple[str, ...]], Callable[..., Any]]] = [
        *((what, [(name,) for name in names], make) for what, make in of_one.items()),
        *((what, pairs, make) for what, make in of_two.items()),
    ]
    rows = []
    for what, groups, make in tried:
        answered_groups = list(_answered(release, groups, make))
        if answered_groups:
            shown = written if what in _OF_VALUES else {name: name for name in names}
            listed = [
                " and ".join(shown[name] for name in group) for group, _ in answered_groups[:_NAMED]
            ]
            more = (
                [f"{len(answered_groups) - _NAMED} more"] if len(answered_groups) > _NAMED else []
            )
            numbers = (analysis for names, analysis in answered_groups if _numbers(release, names))
            example = f"release.infer({spelled(next(numbers, answered_groups[0][1]))})"
            rows.append([what, "; ".join([*listed, *more]), example])
    return rows


def _numbers(release: Release, names: tuple[str, ...]) -> bool:
    """Whether all of these columns are numbers: the simplest example."""
    return all(isinstance(release.schema[name], Number) for name in names)


def _term(column: Category | Number) -> str:
    """Its name in a formula."""
    return column.formula_name if isinstance(column, Number) else quoted_name(column.name)


def _condition(column: Category | Number) -> str:
    """One that holds on a part of a column; of a number without bins one that is refused."""
    name = quoted_name(column.name)
    if isinstance(column, Category):
        return f"{name} == {column.labels[0]!r}"
    if not column.edges:
        return f"{name} == {column.text(column.values[0] if column.values else column.low)}"
    edge = column.text(column.edges[0])
    sign = ">" if column.closed == "right" else ">="
    return f"{name} {sign} {edge!r}" if column.dates else f"{name} {sign} {edge}"


def _answered(
    release: Release, groups: Iterable[tuple[str, ...]], make: Callable[..., Any]
) -> Iterable[tuple[tuple[str, ...], Any]]:
    """The groups of columns about which the analysis can be inferred, with the analysis."""
    for group in groups:
        try:
            analysis = make(*group)
            release.answers(answered(analysis, release.schema))
        except DpstatsError:
            continue
        yield group, analysis
