"""Plots of plans: widths of intervals against the budget."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dpstats.checks import counted, short
from dpstats.errors import RequestError
from dpstats.planning.curve import Curve
from dpstats.plots.axes import axes_of, labels_of, legend_below, log_ticks, titled

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST = 10  # lines
_HALF = 36  # characters of a legend in half the width of a figure


def check_drawn(analyses: int) -> None:
    """Refuse more lines than a figure can show.

    Raises
    ------
    RequestError
    """
    if analyses > MOST:
        raise RequestError(
            f"a figure shows at most {counted(MOST, 'analysis', 'analyses')}, not {analyses}; name "
            "some with of="
        )


def curve(curve: Curve, *, ax: Axes | None = None) -> Axes:
    """Expected widths of intervals against the budget, a line per analysis; both axes are logs.

    A cross at the top edge is a budget at which most intervals have no ends. Where a line is flat,
    the sampling of rows decides the width, and more budget buys little.

    Parameters
    ----------
    curve : Curve
        Of `Plan.curve`, with at most 10 analyses.
    ax : Axes, optional
        Where to draw; a new figure by default.

    Raises
    ------
    RequestError
        If matplotlib is not installed, or for another object or axes.

    Examples
    --------
    >>> import dpstats as dps
    >>> schema = dps.Schema([dps.Boolean("smoker")])
    >>> plan = dps.plan(schema, {"smoking": dps.Proportion("smoker")}, budget=dps.PureDP(1))
    >>> ax = dps.plots.curve(plan.curve(n=500))
    >>> ax.get_xlabel(), ax.get_xscale(), len(ax.lines)
    ('epsilon', 'log', 1)
    >>> ax.figure.savefig("curve.svg")
    """
    if not isinstance(curve, Curve):
        raise RequestError(f"the plot of widths is of plan.curve(...), got {short(curve)}")
    check_drawn(len(curve.widths))
    ax = axes_of(ax)
    names = [curve.label(name) for name in curve.widths]
    columns = 2 if max(map(len, names)) <= _HALF else 1
    labels = labels_of(names, "analysis", lines=3, line=2 * _HALF // columns)
    for label, widths in zip(labels, curve.widths.values(), strict=True):
        finite = np.isfinite(widths) & (widths > 0)
        (line,) = ax.plot(curve.budgets[finite], widths[finite], "o-", markersize=4, label=label)
        lost = curve.budgets[np.isinf(widths)]
        if len(lost):
            ax.scatter(
                lost, np.ones(len(lost)), marker="x", color=line.get_color(), clip_on=False,
                transform=ax.get_xaxis_transform(), zorder=3,
            )  # fmt: skip
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.set_xticks(curve.budgets, [f"{budget:.3g}" for budget in curve.budgets])
    ax.minorticks_off()
    if any(np.size(line.get_xdata()) for line in ax.lines):
        log_ticks(ax.yaxis, 9)
    else:  # crosses alone, on no scale
        ax.set(xlim=(curve.budgets[0] / 2, curve.budgets[-1] * 2), ylim=(0.1, 1), yticks=[])
    ax.set_xlabel(curve.parameter)
    single = len(names) == 1
    ax.set_ylabel(f"width, {names[0]}" if single else "width, each in the unit of its parameter")
    titled(ax, curve.title)
    legend_below(ax, room=40, ncols=columns)
    return ax
