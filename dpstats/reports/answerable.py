"""What else a release can answer: analyses that nobody planned and that its answers determine."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from typing import Any

from dpstats.analyses.base import answered
from dpstats.analyses.counts.marginals import Marginals
from dpstats.analyses.counts.quantile import Quantile
from dpstats.analyses.moments.correlation import Correlation
from dpstats.analyses.moments.mean import Mean
from dpstats.analyses.registry import spelled
from dpstats.analyses.regression.ols import OLS
from dpstats.analyses.tables.independence import Independence
from dpstats.errors import DpstatsError
from dpstats.releases.release import Release

_PAIRED = 12  # columns up to which pairs are tried
_NAMED = 8  # columns or pairs that a row lists

_OF_ONE: dict[str, Callable[[str], Any]] = {
    "shares of all levels of one column, and any condition on it": lambda c: Marginals((c,), 1),
    "quantiles and the distribution function": lambda c: Quantile(c),
    "mean and variance": lambda c: Mean(c),
}
_OF_TWO: dict[str, Callable[[str, str], Any]] = {
    "table of two columns, and any condition on both": lambda a, b: Marginals((a, b), 2),
    "test of independence": lambda a, b: Independence(a, b),
    "correlation": lambda a, b: Correlation((a, b)),
    "least squares of one number on another": lambda a, b: OLS(f"`{a}` ~ `{b}`"),
}


def answerable(release: Release) -> list[list[str]]:
    """Rows of a table: what can be asked, of which columns, and an example."""
    names = release.columns.names
    pairs = list(itertools.combinations(names, 2)) if len(names) <= _PAIRED else []
    tried: list[tuple[str, Iterable[tuple[str, ...]], Callable[..., Any]]] = [
        *((what, [(name,) for name in names], make) for what, make in _OF_ONE.items()),
        *((what, pairs, make) for what, make in _OF_TWO.items()),
    ]
    rows = []
    for what, groups, make in tried:
        found = list(_answered(release, groups, make))
        if found:
            listed = [" and ".join(group) for group, _ in found[:_NAMED]]
            more = [f"{len(found) - _NAMED} more"] if len(found) > _NAMED else []
            example = f"release.infer({spelled(found[0][1])})"
            rows.append([what, "; ".join([*listed, *more]), example])
    return rows


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
