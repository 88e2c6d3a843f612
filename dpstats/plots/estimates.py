"""Forest plots of estimates, whose intervals show what sampling and what noise leave unknown."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dpstats.checks import first_few, short
from dpstats.errors import RequestError
from dpstats.plots.axes import (
    LINES,
    axes_of,
    axis_of,
    label_rows,
    labels_of,
    legend_below,
    panels_of,
    titled,
)
from dpstats.results.estimates import EstimateResult
from dpstats.results.rendering import MOST

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from dpstats.arrays import Floats
    from dpstats.checks import Method

_ACROSS = 4  # panels beside each other, of `MOST` terms each
_POPULATION, _TABLE = "sampling and privacy noise", "privacy noise alone"


def forest(
    result: EstimateResult,
    *,
    terms: Sequence[str] | None = None,
    alpha: float = 0.05,
    method: Method = "noise_aware",
    simultaneous: bool = False,
    ax: Axes | None = None,
) -> Axes | NDArray[np.object_]:
    """Estimates of a result, one per line, each with two intervals.

    The thin dark line is the interval for the population, with sampling error and noise. The thick
    one is the interval for the private table, whose only error is the noise: shorter as a rule, but
    that of a correlation assumes less and can be the longer one. An interval without an end runs to
    the edge. Terms of different units, such as the means of several columns, have a panel each; so
    has every column of more than 60 terms, on one scale.

    Parameters
    ----------
    result : EstimateResult
        Such as those of `OLS`, `GroupMeans` and of its ``pairwise()``.
    terms : sequence of str, optional
        The parameters to draw, at most 240: coefficients of one unit fit one axis. Default: all but
        an intercept, beside which slopes look like nothing; ``terms=result.terms`` draws it too.
    alpha : float
        Error probability of each interval.
    method : {"noise_aware", "certified"}
    simultaneous : bool
        Intervals that hold jointly.
    ax : Axes, optional
        Where to draw; a new figure by default. Several panels take its place.

    Returns
    -------
    Axes, or an array of them for several panels

    Raises
    ------
    RequestError
        If matplotlib is not installed, `ax` is no Axes, an option is not known, or the result has
        no estimates or too many.

    Examples
    --------
    >>> import dpstats as dps
    >>> import pandas as pd
    >>> places = ["north", "south", "west"]
    >>> schema = dps.Schema([dps.Number("pay", 0, 99, missing=0), dps.Category("region", places)])
    >>> means = dps.GroupMeans("pay", by="region")
    >>> plan = dps.plan(schema, {"means": means}, budget=dps.PureDP(1))
    >>> numbers = pd.Series(range(9_000))
    >>> rows = pd.DataFrame({"pay": numbers % 100, "region": [places[i % 3] for i in numbers]})
    >>> ax = dps.plots.forest(dps.release(plan, rows, m=2_000).infer("means"))
    >>> [label.get_text() for label in ax.get_yticklabels()]
    ['region=north', 'region=south', 'region=west']
    >>> ax.figure.savefig("means.png")
    """
    if not isinstance(result, EstimateResult):
        raise RequestError(
            "this plot needs a result with estimates, such as that of dps.GroupMeans; got "
            f"{type(result).__name__}"
        )
    chosen = _places(result, terms)
    names = [result.terms[i] for i in chosen]
    panels = [[i for i, name in enumerate(names) if name in unit] for unit in result.terms_by_unit]
    panels = [panel for panel in panels if panel]
    deepest = max(map(len, panels))
    across = -(-deepest // MOST)
    down = -(-deepest // across)
    rows = [label_rows([names[i] for i in panel[:down]]) for panel in panels]
    ax = axes_of(ax, sum(rows) + len(rows) - 1, across)
    whole, of_table = (
        np.asarray(result.conf_int(
            alpha=alpha, method=method, target=target, simultaneous=simultaneous
        )).reshape(-1, 2)[chosen]
        for target in ("population", "table")
    )  # fmt: skip
    estimates = result.displayed[chosen]
    number = getattr(result.intervals, "number", None)  # of quantiles
    log = number is not None and number.scale == "log"
    axes = [ax] if len(panels) == across == 1 else panels_of(ax, rows, across)
    places = iter(axes)
    for panel in panels:
        edges = _edges([estimates[panel], whole[panel], of_table[panel]], log=log)
        for start in range(0, across * down, down):
            one, part = next(places), panel[start : start + down]
            shown = [names[i] for i in part]
            _draw(one, shown, estimates[part], whole[part], of_table[part], edges)
            axis_of(one, dates=set(shown) <= set(result.dates), log=log)
            one.set_visible(bool(part))
    titled(axes[0], result.title)
    legend_below(axes[-across], ncols=2)
    return axes[0] if len(axes) == 1 else np.array(axes, dtype=np.object_)


def _edges(numbers: Sequence[Floats], *, log: bool) -> tuple[float, float]:
    """Where the axis of one unit begins and ends."""
    known = np.concatenate([one[np.isfinite(one)] for one in numbers])
    if not known.size:
        return (math.exp(-1), math.e) if log else (-1.0, 1.0)
    known = np.log(known) if log else known
    room = 0.05 * max(float(np.ptp(known)), 1e-12)
    low, high = float(known.min()) - room, float(known.max()) + room
    return (math.exp(low), math.exp(high)) if log else (low, high)


def _draw(
    ax: Axes,
    names: list[str],
    estimates: Floats,
    whole: Floats,
    of_table: Floats,
    edges: tuple[float, float],
) -> None:
    """Draw estimates of one unit with their intervals (d, 2)."""
    y = np.arange(len(estimates))
    drawn = ((whole, 1.2, "0.2", 2.1, _POPULATION), (of_table, 4.0, "0.6", 2.0, _TABLE))
    for ends, width, color, order, label in drawn:
        low, high = _within(ends, *edges).T
        ax.hlines(y, low, high, color=color, linewidth=width, zorder=order, label=label)
    ax.plot(estimates, y, "o", markersize=5, zorder=3)
    if edges[0] < 0 < edges[1]:
        ax.axvline(0, color="0.7", linewidth=0.8, zorder=0)
    ax.set_yticks(y, labels_of(names, "term", lines=LINES))
    ax.set_ylim(len(y) - 0.5, -0.5)
    ax.set_xlim(*edges)


def drawn_of(terms: Sequence[str]) -> list[str]:
    """The terms without an intercept, unless it is the only one."""
    return [term for term in terms if term != "Intercept"] or list(terms)


def _places(result: EstimateResult, terms: Sequence[str] | None) -> list[int]:
    """Numbers of the terms to draw."""
    asked = drawn_of(result.terms) if terms is None else list(terms)
    if not asked or not set(asked) <= set(result.terms):
        raise RequestError(f"terms must be some of {first_few(result.terms)}, got {short(terms)}")
    if len(asked) > _ACROSS * MOST:
        raise RequestError(
            f"a forest plot shows at most {_ACROSS * MOST} parameters, and this result has "
            f"{len(asked)}; name some with terms=, or draw to_frame() yourself"
        )
    return [result.terms.index(term) for term in asked]


def _within(ends: Floats, low: float, high: float) -> Floats:
    """Limits (d, 2), infinite ones at the edges."""
    return np.asarray(np.clip(ends, low, high))
