"""Where a plot is drawn; matplotlib is imported on first use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpstats.errors import RequestError

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def axes_of(ax: Axes | None) -> Axes:
    """The given axes, or those of a new figure.

    Raises
    ------
    RequestError
        If matplotlib is not installed.
    """
    if ax is not None:
        return ax
    try:
        from matplotlib import pyplot
    except ImportError:
        raise RequestError(
            "plots need matplotlib; install it with: pip install matplotlib"
        ) from None
    made: Axes = pyplot.subplots(layout="constrained")[1]
    return made
