"""The report for analysts: results first, then the certificate, the plan, privacy and limits."""

from __future__ import annotations

import html
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, get_args

import numpy as np

from dpstats.analyses.base import answered
from dpstats.analyses.counts.marginals import Marginals
from dpstats.analyses.counts.proportion import Proportion
from dpstats.analyses.counts.quantile import Quantile
from dpstats.analyses.moments.correlation import Correlation
from dpstats.analyses.moments.mean import Mean
from dpstats.analyses.registry import spelled
from dpstats.analyses.regression.ols import OLS
from dpstats.analyses.tables.independence import Independence
from dpstats.checks import Method
from dpstats.error_rates import USUAL_BETA, percent
from dpstats.errors import DpstatsError
from dpstats.measured.certificate import Accuracy
from dpstats.planning.previews.preview import (
    FOR_TABLE,
    SCALED,
    WITHOUT,
    certified_text,
    preview_strategy,
    previewed_width,
    width_text,
)
from dpstats.releases.interchange import CAUTION, limits
from dpstats.releases.release import Release
from dpstats.reports.page import render
from dpstats.reports.pictures import can_draw, drawn, of_certificate, of_margin, of_result
from dpstats.results.base import Result
from dpstats.results.rendering import significant
from dpstats.schema import Category, Number, quoted_name

if TYPE_CHECKING:
    from dpstats.checks import Progress

_PAIRED = 12  # columns up to which pairs are tried
_NAMED = 8  # columns or pairs that a row lists

_MEAN, _LEAST = "mean and variance", "least squares of one column on another"
_CLAMPED = (
    "Values outside the declared bounds were clamped to them, and results are for the clamped "
    "values."
)


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


def analysts_report(
    release: Release, title: str, progress: Progress | None = None, like: Any = None
) -> str:
    """The page; with widths expected of rows that resemble `like`, if it is given."""
    measurements, analyses = release.measurements, release.analyses
    draw = partial(drawn, numbers=itertools.count(1))
    results, failed = _infer_all(release, progress)
    shown = [
        {
            "name": name,
            "headline": result.headline,
            "shown": _shown(name, result),
            "figures": draw(of_result(release, name, analyses[name], result)),
        }
        for name, result in results.items()
    ]
    whole = release.accuracy()
    said = [limits(measurements.neighbours), *release.notes, *release.unread.values(), _CLAMPED]
    asked = [
        [name, spelled(analysis), f"{analysis.family(release.schema).size:,}"]
        for name, analysis in analyses.items()
    ]
    measured = release.measured()[["kind", "columns", "functions", "noise_sd", "analyses"]]
    return render(
        "analysts.html",
        release,
        title,
        can_draw=can_draw(),
        results=shown,
        failed=failed,
        whole=whole,
        misfit=_misfit,
        left_out=measurements.published.size - len(whole.names),
        certificate_figures=draw(of_certificate(whole)),
        certificates=_certificates(release, results),
        level=percent(USUAL_BETA),
        scaled=SCALED,
        caution=CAUTION,
        margins={name: draw(of_margin(release, name)) for name in release.columns.names},
        asked=asked + [[name, reason, ""] for name, reason in release.unread.items()],
        reached=None if like is None else _reached(release, results, like, progress),
        for_table=FOR_TABLE,
        rules=[[c.name, c.missing_rule(), c.note] for c in release.columns],
        between=[[line] for line in release.columns.rule_lines],
        limits=said,
        answerable=answerable(release),
        measured=[
            [kind, columns, f"{functions:,}", significant(noise), serves]
            for kind, columns, functions, noise, serves in measured.itertuples(index=False)
        ],
    )


def _infer_all(
    release: Release, progress: Progress | None
) -> tuple[dict[str, Result], dict[str, str]]:
    results, failed = {}, dict(release.unread)
    for done, name in enumerate(release.analyses):
        if progress is not None:
            progress("inferring", done, len(release.analyses))
        try:
            results[name] = release.infer(name)
        except Exception as error:  # an analysis of another package may raise anything
            failed[name] = f"no result: {error}"
    return results, failed


def _certificates(release: Release, results: Mapping[str, Result]) -> list[list[str]]:
    rows = []
    for name in results:
        try:
            accuracy = release.accuracy(name, alpha=USUAL_BETA)
        except Exception:  # as above; the table leaves it out
            continue
        numbers = _misfit(accuracy), float(accuracy.joint_radius.max()), accuracy.delta
        rows.append([name, *map(significant, numbers), accuracy.worst])
    return rows


def _reached(
    release: Release, results: Mapping[str, Result], like: Any, progress: Progress | None
) -> dict[str, Any]:
    """Widths expected from the plan, beside those of the release."""
    measurements = release.measurements
    try:
        expected = preview_strategy(
            measurements.strategy,
            {name: release.analyses[name] for name in results},
            release.n,
            like,
            progress=progress,
        )
    except Exception as error:  # as above
        return {"error": error}
    rows = []
    for outlook in expected.outlooks:
        width, certified = (previewed_width(results[outlook.name], m) for m in get_args(Method))
        whole, target = outlook.whole, outlook.certified_target
        rows.append([
            outlook.name,
            significant(outlook.noise),
            width_text(outlook.width, whole),
            width_text(width, whole),
            certified_text(outlook.certified_width, whole, target),
            certified_text(certified, whole, target),
            outlook.of or WITHOUT,
        ])  # fmt: skip
    return {"expected": expected, "widths": rows, "error": None}


def _shown(name: str, result: Result) -> str:
    """The text and the table of a result, in a box that scrolls."""
    label = html.escape(name)
    box = '<div class="scroll" role="group" tabindex="0" aria-label="{} {}">'
    if not type(result).__module__.startswith("dpstats."):
        return f"{box.format('Result of', label)}<pre>{html.escape(result.summary())}</pre></div>"
    start, shown = box.format("Table of", label), str(result._repr_html_())
    return shown.replace("<table>", f"{start}<table>").replace("</table>", "</table></div>")


def _misfit(accuracy: Accuracy) -> float:
    """Largest difference of the rows from the noisy answers, without rounding errors."""
    return round(float(np.abs(accuracy.synthetic - accuracy.noisy).max()), 12)
