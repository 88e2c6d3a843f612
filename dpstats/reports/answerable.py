"""Analyses that nobody planned and that the answers of a release determine."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
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


def answerable(release: Release) -> list[list[str]]:
    """Rows of a table: what can be asked, of which columns, and an example."""
    columns = {column.name: column for column in release.columns}
    ones = [(name,) for name in columns]
    pairs = list(itertools.combinations(columns, 2)) if len(columns) <= _PAIRED else []
    # The name of what was measured: a logarithm, where that is the scale.
    measured = {name: getattr(c, "measured_name", name) for name, c in columns.items()}

    def share(*names: str) -> Proportion:
        return Proportion(" and ".join(_condition(columns[name]) for name in names))

    def line(a: str, b: str) -> OLS:
        """The response is a number."""
        first, second = columns[a], columns[b]
        if isinstance(first, Category) and isinstance(second, Number):
            first, second = second, first
        return OLS(f"{_term(first)} ~ {_term(second)}")

    questions: list[tuple[str, Sequence[tuple[str, ...]], Callable[..., Any]]] = [
        ("shares of all levels of one column", ones, lambda c: Marginals((c,), 1)),
        ("quantiles and the distribution function", ones, lambda c: Quantile(c)),
        (_MEAN, ones, lambda c: Mean(measured[c])),
        ("conditions on one column", ones, share),
        ("table of two columns", pairs, lambda a, b: Marginals((a, b), 2)),
        ("test of independence", pairs, lambda a, b: Independence(a, b)),
        ("correlation", pairs, lambda a, b: Correlation((a, b))),
        (_LEAST, pairs, line),
        ("conditions on two columns", pairs, share),
    ]
    rows = []
    for what, groups, make in questions:
        answers = list(_answered(release, groups, make))
        if not answers:
            continue
        shown = measured if what in (_MEAN, _LEAST) else {name: name for name in columns}
        about = [" and ".join(shown[name] for name in group) for group, _ in answers[:_NAMED]]
        more = [f"{len(answers) - _NAMED} more"] if len(answers) > _NAMED else []
        of_numbers = (  # the simplest example
            analysis
            for group, analysis in answers
            if all(isinstance(columns[name], Number) for name in group)
        )
        example = f"release.infer({spelled(next(of_numbers, answers[0][1]))})"
        rows.append([what, "; ".join([*about, *more]), example])
    return rows


def _term(column: Category | Number) -> str:
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
