"""Figures of a page: which ones show a release and its results, and their SVG.

In the page text stays text, colours are those of the page, and ids are those of the figure.
"""

from __future__ import annotations

import html
import importlib.util
import io
import math
import re
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from dpstats import plots
from dpstats.analyses.base import Analysis
from dpstats.analyses.counts.marginals import Marginals
from dpstats.errors import DpstatsError
from dpstats.measured.certificate import Accuracy
from dpstats.plots.axes import label_rows
from dpstats.plots.curves import MOST as MOST_CURVES
from dpstats.plots.estimates import drawn_of
from dpstats.releases.release import Release
from dpstats.results.base import Result
from dpstats.results.rendering import MOST

WIDTH = 5.2  # inches
_SETTINGS: dict[str, Any] = {
    "svg.fonttype": "none",  # text as text, without a font
    "svg.hashsalt": "dpstats",  # the same ids every time
    "font.family": ["DejaVu Sans"],
    "font.size": 11.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
}
# Colours that the plots use, and those of the page, which differ in the dark.
_COLOURS = {
    "#000000": "--ink", "#333333": "--ink", "#666666": "--quiet", "#808080": "--mid",
    "#999999": "--mid", "#b3b3b3": "--rule", "#cccccc": "--rule", "#d9d9d9": "--rule",
    "#1f77b4": "--blue", "#ff7f0e": "--orange", "#2ca02c": "--green", "#d62728": "--red",
    "#9467bd": "--purple",
}  # fmt: skip
_TABLES = 6  # of two columns, drawn for one analysis
_CELLS = 600  # of a table that is drawn
_LEAST, _ROW = 1.35, 0.36  # inches: of a plot without rows, and of each of them
_SPLIT = (
    "Thin lines are 95% intervals for the population, with sampling and privacy noise; thick ones "
    "are those for the private table, whose only error is the privacy noise."
)
_MARGIN = (
    "Points are the noisy answers with 95% intervals for the privacy noise; bars are the shares in "
    "the synthetic rows."
)


@dataclass(frozen=True)
class Picture:
    """A plot to be drawn, with a description for those who do not see it."""

    title: str
    description: str
    draw: Callable[..., object]  # on the Axes that it gets as `ax`
    height: float = 3.4  # inches

    def svg(self, key: str) -> str:
        """The drawing with a title and a description."""
        from matplotlib import rc_context
        from matplotlib.figure import Figure

        buffer = io.StringIO()
        with rc_context(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # fonts: the page has its own
            from matplotlib import rcdefaults, rcParams

            rcdefaults()  # a report does not depend on anyone's settings
            rcParams.update(_SETTINGS)
            figure = Figure(figsize=(WIDTH, self.height), layout="constrained")
            self.draw(ax=figure.subplots())
            figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None})
        named = f'<title id="{key}-title">{html.escape(self.title)}</title>'
        named += f'<desc id="{key}-desc">{html.escape(self.description)}</desc>'
        return _inlined(buffer.getvalue(), key, named)


def drawn(pictures: Iterable[Picture], numbers: Iterator[int]) -> list[dict[str, Any]]:
    """Title, description and svg of each, with ids of its own, or the error that stopped it."""
    figures: list[dict[str, Any]] = []
    for picture in pictures if can_draw() else ():
        texts = {"title": picture.title, "description": picture.description}
        try:
            svg = picture.svg(f"figure{next(numbers)}")
            figures.append({**texts, "svg": svg, "error": None})
        except Exception as error:  # the rest of the page does not depend on it
            figures.append({**texts, "error": str(error)})
    return figures


def can_draw() -> bool:
    """True if matplotlib is installed."""
    return importlib.util.find_spec("matplotlib") is not None


def _inlined(svg: str, key: str, named: str) -> str:
    text = svg[svg.index("<svg") :]
    for cut in (r"<metadata>.*?</metadata>", r"<style.*?</style>", r"<!--.*?-->"):
        text = re.sub(cut, "", text, flags=re.DOTALL)
    text = re.sub(r"\s*\n\s*", " ", text)
    box = re.search(r'viewBox="([^"]*)"', text)
    assert box is not None
    start = (
        f'<svg viewBox="{box[1]}" role="img" aria-labelledby="{key}-title" '
        f'aria-describedby="{key}-desc">{named}'
    )
    tags = r"<[^>]*>"  # names and levels, between them, may look like a colour or an id
    used = set(re.findall(r'(?:url\(#|href="#)([^)"]+)', "".join(re.findall(tags, text))))

    def inlined(tag: re.Match[str]) -> str:
        text = tag[0].replace("xlink:href", "href")
        text = re.sub(r"font: (?:[\w ]*)?(\d[\d.]*px)[^;\"]*", r"font-size: \1", text)
        text = re.sub(r"font-family: [^;\"]*;? ?", "", text)
        for colour, variable in _COLOURS.items():
            text = text.replace(colour, f"var({variable})")
        text = re.sub(r' id="([^"]*)"', renamed, text)
        return re.sub(r'(url\(#|href="#)', rf"\g<1>{key}-", text)

    def renamed(found: re.Match[str]) -> str:
        return f' id="{key}-{found[1]}"' if found[1] in used else ""

    return start + re.sub(tags, inlined, text[text.index(">") + 1 :])


def _height_of_curves(result: Any) -> float:
    """In inches: of panels, and of a line for the numbers at risk of every group."""
    groups = min(len(result.labels), MOST_CURVES)
    panels = len(result.events) if groups > 1 else 1
    return 1.6 + 2.0 * panels + 0.3 * groups


# By name in `plots`: title, text and height.
_PLOTS: dict[str, tuple[str, str, float | Callable[[Any], float]]] = {
    "distribution": (
        "distribution function",
        "Estimates at the declared edges or values, and a band that holds for all values jointly "
        "at 95%, with sampling and privacy noise.",
        3.4,
    ),
    "scree": (
        "eigenvalues", "Eigenvalues with 95% intervals, sampling and privacy noise together.", 2.6,
    ),
    "loadings": ("loadings", "Loadings on the first components with 95% intervals.", 3.4),
    "network": (
        "network", "Columns, joined where they are related; wider lines are stronger relations.",
        4.2,
    ),
    "risk": (
        "mean loss",
        "Noisy mean loss; the shaded parameters can have the least, certified at 95%.",
        3.8,
    ),
    "path": (
        "path of the penalty",
        "Coefficients along the penalty, for columns scaled to run from -1 to 1 between their "
        "bounds; the dashed line is the penalty asked for.",
        3.4,
    ),
    "survival": (
        "curves",
        "Estimates at the declared edges of time with 95% intervals, sampling and privacy noise "
        "together, and bands that hold at all edges jointly. Below are noisy numbers of rows at "
        f"risk. At most {MOST_CURVES} groups are drawn.",
        _height_of_curves,
    ),
}  # fmt: skip


def of_result(
    release: Release, name: str, analysis: Analysis[Result], result: Result
) -> Iterator[Picture]:
    """The figures of one analysis: of the tables that it is about, or of its result."""
    tables: list[tuple[str, ...]] = getattr(analysis, "drawn_tables", list)()
    for columns in tables[:_TABLES]:
        yield from (of_margin if len(columns) == 1 else _table)(release, *columns)
    if tables:
        return
    for plot in result.figures:
        if plot == "forest":
            yield from _forest(name, result)
            continue
        title, text, height = _PLOTS[plot]
        inches = height(result) if callable(height) else height
        options: dict[str, Any] = {}
        if plot == "loadings":
            options["components"] = [1, 2][: result.n_components_]  # type: ignore[attr-defined]
        if plot == "survival":
            options["groups"] = result.labels[:MOST_CURVES]  # type: ignore[attr-defined]
        draw = partial(getattr(plots, plot), result, **options)
        yield Picture(f"{name}: {title}", text, draw, inches)


def of_margin(release: Release, column: str) -> Iterator[Picture]:
    """The levels of a column, if their answers follow from the measurements."""
    levels = release.schema[column].bins
    if 1 < levels <= MOST and _follows(release, Marginals((column,), 1)):
        yield Picture(
            f"{column}: synthetic rows and noisy answers",
            f"{column}. {_MARGIN}",
            lambda ax: plots.margin(release, column, ax=ax),
            _LEAST + _ROW * label_rows(release.schema[column].bin_labels),
        )


def of_certificate(accuracy: Accuracy, most: int = 20) -> Iterator[Picture]:
    """The synthetic rows against the noisy answers, for the functions with the largest bounds."""
    deep = label_rows(accuracy.names) / len(accuracy.names)
    most = most if deep == 1 else most // 2  # a figure fits a page
    shown = min(len(accuracy.names), most)
    some = "the measured functions" if shown == len(accuracy.names) else (
        f"the {shown} functions with the largest bounds, of {len(accuracy.names)}"
    )  # fmt: skip
    yield Picture(
        "Synthetic rows and private rows against the noisy answers",
        f"Means of {some}, each scaled to lie in [-1, 1]. Zero is the noisy answer. Lines hold the "
        f"private means, all jointly with probability {1 - accuracy.alpha:.4g}; points are the "
        "synthetic rows.",
        lambda ax: plots.departures(accuracy, most=most, ax=ax),
        _LEAST + _ROW * deep * shown,
    )


def _forest(name: str, result: Any) -> Iterator[Picture]:
    """The parameters, each unit on axes of its own; no intercept, which would hide the others."""
    terms = drawn_of(result.terms)
    left_out = ", ".join(term for term in result.terms if term not in terms)
    if len(terms) <= MOST:
        yield Picture(
            f"{name}: estimates",
            _SPLIT + (f" Not drawn: {left_out}." if left_out else ""),
            lambda ax: plots.forest(result, ax=ax),
            _LEAST + _ROW * (label_rows(terms) + 1.5 * (len(result.terms_by_unit) - 1)),
        )


def _table(release: Release, a: str, b: str) -> Iterator[Picture]:
    down, across = sorted((a, b), key=lambda name: -release.schema[name].bins)
    sizes = [release.schema[name].bins for name in (down, across)]
    if math.prod(sizes) <= _CELLS and _follows(release, Marginals((a, b), 2)):
        yield Picture(
            f"{down} by {across}",
            f"Table of {down} by {across}: shares of all rows in per cent, and half of their 95% "
            "intervals for the privacy noise. Darker cells have more rows.",
            lambda ax: plots.table(release, down, across, ax=ax),
            min(1.6 + 0.42 * sizes[0], 7.0),
        )


def _follows(release: Release, analysis: Marginals) -> bool:
    try:
        release.answers(analysis.family(release.schema))
    except DpstatsError:
        return False
    return True
