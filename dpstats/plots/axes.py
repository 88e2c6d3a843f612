"""Common parts of all plots: figures, and names that fit; matplotlib loads on first use."""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from dpstats.arrays import Floats
from dpstats.errors import RequestError
from dpstats.schema.dates import day_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.transforms import Transform

_MARGINS, _ROW = 1.3, 0.36  # inches: of a plot without rows, and of a label of two lines
_LONGEST = 20  # characters of a name in one line
_LINE_OF_NAME, LINES = 24, 6  # characters of a line, and lines, of a name where there is room
_LONGER = 1.5  # times as long a line, of a name that takes more lines than that
_LINE = 60  # characters of a line of a title, at most
_CHARACTER = 0.62  # width of a character, in units of the size of the font
_HANDLE, _BETWEEN = 2.8, 2.0  # of an entry of a legend besides its text, and of two of them
_BIN = re.compile(r"([\[(][^\s\[\]()]+,) ([^\s\[\]()]+[\])])")
_COMPARED = re.compile(r"([=!<>]=|[<>]) ")
_LINE_HEIGHT = 1.3  # in units of the size of the font
_YEAR = 366  # days
_TICKS = 8  # at most, along an axis of declared edges
_DARK, _LIGHT = "0.05", "white"  # numbers on a coloured cell


def check_figure(plot: str, result: object, wanted: str) -> None:
    """Refuse what does not name a plot among its `figures`."""
    if plot not in getattr(result, "figures", ()):
        raise RequestError(f"this plot needs {wanted}; got {type(result).__name__}")


def axes_of(ax: Axes | None, rows: int = 0, across: int = 1) -> Axes:
    """The given axes, or those of a new figure that has room for so many labels on the left.

    The new figure is as wide as so many plots beside each other.

    Raises
    ------
    RequestError
        If matplotlib is not installed, or `ax` is something else.
    """
    try:
        from matplotlib import pyplot
        from matplotlib.axes import Axes
    except ImportError:
        raise RequestError(
            "plots need matplotlib; install it with: pip install 'dpstats[plots]'"
        ) from None
    if ax is None:
        width, height = pyplot.rcParams["figure.figsize"]
        size = width * across, max(height, _MARGINS + _ROW * rows)
        new_axes: Axes = pyplot.subplots(layout="constrained", figsize=size)[1]
        return new_axes
    if not isinstance(ax, Axes):
        raise RequestError(
            "ax must be a matplotlib Axes, such as the second of plt.subplots() or one of "
            f"plt.gcf().axes, got {type(ax).__name__}"
        )
    return ax


def add_legend(
    ax: Axes,
    *,
    room: float | None = 24,
    ncols: int = 1,
    handles: Sequence[Any] | None = None,
) -> None:
    """Add a legend `room` points below the axes, or above them for None.

    It covers no data, and has at most `ncols` columns: as many as the figure is wide.
    """
    from matplotlib.transforms import ScaledTranslation, blended_transform_factory

    entries = ax.get_legend_handles_labels()[0] if handles is None else handles
    texts = [str(handle.get_label()) for handle in entries]
    across, free = _across(ax)
    entry = _CHARACTER * max(_longest(texts), 1) + _HANDLE
    fitting = int((free / _points("small") + _BETWEEN) / (entry + _BETWEEN))
    loc, y, points = ("lower center", 1, 4.0) if room is None else ("upper center", 0, -room)
    at = blended_transform_factory(across, ax.transAxes)
    ax.legend(
        handles=entries, loc=loc, bbox_to_anchor=(0.5, y),
        bbox_transform=at + ScaledTranslation(0, points / 72, ax.figure.dpi_scale_trans),
        frameon=False, fontsize="small", borderaxespad=0, ncols=max(1, min(ncols, fitting)),
    )  # fmt: skip


def titled(ax: Axes, title: str) -> None:
    """A title of plain text, in as many lines as fit."""
    from matplotlib import rcParams
    from matplotlib.transforms import ScaledTranslation, blended_transform_factory

    across, free = _across(ax)
    line = max(20, min(_LINE, int(free / (_CHARACTER * _points("medium")))))
    text = "\n".join(textwrap.wrap(title, line)) or title
    shown = ax.set_title(text.replace("$", r"\$"), fontsize="medium")
    raised = ScaledTranslation(0, rcParams["axes.titlepad"] / 72, ax.figure.dpi_scale_trans)
    shown.set_transform(blended_transform_factory(across, ax.transAxes) + raised)


def _across(ax: Axes) -> tuple[Transform, float]:
    """Where x runs from 0 to 1 for a title or a legend, and how many points that is.

    Over the plot's part of the figure, the whole width if it has one column of plots: names on the
    left, which may take half of it, then push nothing out of the figure on the right.
    """
    from matplotlib.transforms import Affine2D

    figure: Any = ax.figure  # or a part of one, which the type of get_position does not know
    spec = ax.get_subplotspec()
    width = 72 * figure.bbox.width / figure.dpi
    if spec is None:  # placed by hand
        return ax.transAxes, width * float(ax.get_position().width)
    box, within = spec.get_position(figure), figure.subplotpars
    low, high = ((x - within.left) / (within.right - within.left) for x in (box.x0, box.x1))
    part = Affine2D().scale(high - low, 1).translate(low, 0) + figure.transSubfigure
    return part, width * (high - low)


def _points(size: str) -> float:
    """Size of the font by a name such as "small"."""
    from matplotlib.font_manager import FontProperties

    return float(FontProperties(size=size).get_size_in_points())


def panels_of(ax: Axes, rows: Sequence[int], across: int = 1) -> list[Axes]:
    """Axes in the place of `ax`, row by row, with room for so many labels each.

    Raises
    ------
    RequestError
        If `ax` was placed by hand.
    """
    spec = ax.get_subplotspec()
    if spec is None:
        raise RequestError(
            "these terms need several panels, and axes that were placed by hand hold one: give "
            "fewer terms= of one unit, or axes of plt.subplots(layout='constrained')"
        )
    figure: Any = ax.figure
    ax.remove()
    grid = spec.subgridspec(len(rows), across, height_ratios=[count + 1 for count in rows])
    return [figure.add_subplot(grid[place]) for place in range(len(rows) * across)]


def _longest(names: Sequence[str]) -> int:
    """Characters of the longest line of some labels."""
    return max((len(line) for name in names for line in name.split("\n")), default=0)


def room_across(ax: Axes, names: Sequence[str]) -> float:
    """About how many points the axes are wide, beside labels on the left."""
    size = _points("medium")
    return max(_across(ax)[1] - _CHARACTER * size * _longest(names) - 3 * size, 5 * size)


def some_of(names: Sequence[str], room: float) -> list[int]:
    """Numbers of the labels to show where a line of text each would not fit: every so many."""
    fitting = max(int(room / (_LINE_HEIGHT * _points("medium"))), 1)
    return list(range(0, len(names), -(-len(names) // fitting)))


def fits_across(names: Sequence[str], room: float) -> bool:
    """True if evenly spaced labels fit side by side in a width of `room` points."""
    return len(names) * (_longest(names) + 1) * _CHARACTER * _points("medium") <= room


def characters_in(room: float) -> int:
    """How many characters a line of so many points has."""
    return max(int(room / (_CHARACTER * _points("medium"))), 12)


def fitting_ticks(ax: Axes, places: Floats, texts: Sequence[str]) -> list[int]:
    """Numbers of the places along the axis whose texts fit beside each other, from the first on."""
    room = (_longest(texts) + 2) * _CHARACTER * _points("medium")
    apart = max(room / _across(ax)[1], 1 / _TICKS) * float(places[-1] - places[0])
    chosen = [0]
    for i, place in enumerate(places.tolist()):
        if place - places[chosen[-1]] >= apart:
            chosen.append(i)
    return chosen


def axis_of(ax: Axes, *, dates: bool = False, log: bool = False) -> None:
    """Few numbers below the axes: dates for days since 1970-01-01, or a logarithmic scale."""
    if dates:
        from matplotlib.dates import AutoDateLocator
        from matplotlib.ticker import MaxNLocator

        most = max(2, min(6, int(_across(ax)[1] / 100)))
        low, high = ax.get_xlim()
        days = MaxNLocator(most, integer=True)
        long = AutoDateLocator(minticks=2, maxticks=most)
        ax.xaxis.set_major_locator(long if high - low > _YEAR else days)
        ax.xaxis.set_major_formatter(lambda value, _: day_text(value))
    elif log:
        ax.set_xscale("log")
        log_ticks(ax.xaxis, max(3, int(_across(ax)[1] / 60)))
    else:
        ax.locator_params(axis="x", nbins=4)


def log_ticks(axis: Axis, most: int) -> None:
    """About so many numbers on a logarithmic axis, written out, and no ticks between them."""
    from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator

    low, high = axis.get_view_interval()
    decades = math.log10(high / low)
    if decades <= 1:  # 1, 2 and 5 in every decade may be a single one
        axis.set_major_locator(MaxNLocator(min(most, 5), steps=[1, 2, 5, 10]))
    else:
        subs = (1, 2, 5) if 3 * decades <= most else (1,)
        axis.set_major_locator(LogLocator(subs=subs, numticks=most))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(lambda value, _: f"{value:,.10g}")


def label_down(ax: Axes, names: Sequence[str], what: str) -> None:
    """Label the rows 0, 1, ... of a plot, the first one on top."""
    ax.set_yticks(range(len(names)), labels_of(names, what, lines=LINES))
    ax.set_ylim(len(names) - 0.5, -0.5)


def label_rows(names: Sequence[str], lines: int = LINES) -> int:
    """Rows that so many labels below each other take, see `axes_of`."""
    deepest = max((len(_lines_of(name, lines)) for name in names), default=1)
    return len(names) * -(-deepest // 2)


def labels_of(
    names: Sequence[str], what: str = "column", *, lines: int = 1, line: int = _LINE_OF_NAME
) -> list[str]:
    """Names of columns, or of `what`, as a plot shows them: the middle of a long one is left out.

    A name with characters that matplotlib's font lacks shows as its place, such as "column 2": set
    ``plt.rcParams["font.family"]`` to a font that has them, or ``plt.rcParams["svg.fonttype"]`` to
    "none", for text that the reader's fonts write. A dollar sign starts no formula. Where there is
    room for several `lines`, a name wraps to lines of `line` characters instead.
    """
    from matplotlib import font_manager, rcParams

    family = font_manager.FontProperties().get_family()
    paths = [
        font_manager.findfont(font_manager.FontProperties(family=[name_of_font]))
        for name_of_font in family
    ]
    fonts = [font_manager.get_font(path) for path in paths]
    as_text = rcParams["svg.fonttype"] == "none"
    return [
        "\n".join(_lines_of(name, lines, line)).replace("$", r"\$")
        if as_text or all(any(font.get_char_index(ord(c)) for font in fonts) for c in name)
        else f"{what} {place}"
        for place, name in enumerate(names, start=1)
    ]


def _lines_of(name: str, lines: int, line: int = _LINE_OF_NAME) -> list[str]:
    """A name in so many lines, without its middle where they are too few."""
    if len(name) <= _LONGEST:
        return [name]
    for wide in (line, int(_LONGER * line)) if lines > 1 else ():
        wrapped_lines = _wrapped(name, wide)
        if len(wrapped_lines) <= lines:
            return wrapped_lines
    kept = (_LONGEST if lines == 1 else lines * (line - 4)) // 2
    cut = f"{name[:kept]}…{name[1 - kept :]}"
    return [cut] if lines == 1 else _wrapped(cut, line)


def _wrapped(name: str, line: int) -> list[str]:
    """Lines of a name, broken at spaces, but not within a bin "[18, 40)" or before a value."""
    whole = _COMPARED.sub("\\1\u00a0", _BIN.sub("\\1\u00a0\\2", name))
    return [
        line_of_name.replace("\u00a0", " ")
        for line_of_name in textwrap.wrap(whole, line, break_on_hyphens=False)
    ]


def ink_on(colour: Floats) -> str:
    """Dark or light text, whichever stands out more from a colour (r, g, b, ...) in [0, 1].

    By the contrast ratio of relative luminances; the better of the two is 4.5 or more.

    Examples
    --------
    >>> ink_on(np.array([1, 1, 1])), ink_on(np.array([0, 0, 0.3, 1]))
    ('0.05', 'white')
    """
    rgb = np.asarray(colour, dtype=np.float64)[:3]
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    light = float(linear @ [0.2126, 0.7152, 0.0722]) + 0.05
    dark = ((float(_DARK) + 0.055) / 1.055) ** 2.4 + 0.05
    return _LIGHT if 1.05 / light > light / dark else _DARK
