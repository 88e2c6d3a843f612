"""What all plots share: where they are drawn, and names that fit; matplotlib loads on first use."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from dpstats.errors import RequestError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_LONGEST = 20  # characters of a name


def axes_of(ax: Axes | None) -> Axes:
    """The given axes, or those of a new figure.

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
            "plots need matplotlib; install it with: pip install matplotlib"
        ) from None
    if ax is None:
        made: Axes = pyplot.subplots(layout="constrained")[1]
        return made
    if not isinstance(ax, Axes):
        raise RequestError(
            "ax must be a matplotlib Axes, such as the second of plt.subplots() or one of "
            f"plt.gcf().axes, got {type(ax).__name__}"
        )
    return ax


def labels_of(names: Sequence[str], what: str = "column") -> list[str]:
    """Names of columns, or of `what`, as a plot shows them: the middle of a long one is left out.

    A name with characters that matplotlib's font lacks shows as its place, such as "column 2": set
    ``plt.rcParams["font.family"]`` to a font that has them. A dollar sign starts no formula.
    """
    from matplotlib import font_manager

    family = font_manager.FontProperties().get_family()
    paths = [font_manager.findfont(font_manager.FontProperties(family=[one])) for one in family]
    fonts = [font_manager.get_font(path) for path in paths]
    return [
        _shortened(name).replace("$", r"\$")
        if all(any(font.get_char_index(ord(c)) for font in fonts) for c in name)
        else f"{what} {place}"
        for place, name in enumerate(names, start=1)
    ]


def _shortened(name: str) -> str:
    kept = _LONGEST // 2
    return name if len(name) <= _LONGEST else f"{name[:kept]}…{name[1 - kept :]}"
