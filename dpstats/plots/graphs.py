"""Plots of graphical models: the network of columns, and the matrix of all pairs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dpstats.analyses.moments.correlation import symmetric
from dpstats.checks import check_choice, short
from dpstats.error_rates import USUAL_ALPHA
from dpstats.errors import RequestError
from dpstats.plots.axes import add_legend, axes_of, check_figure, ink_on, labels_of, titled
from dpstats.results.hypothesis import ADJUSTED
from dpstats.results.rendering import fixed

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

    from dpstats.analyses.graphs.graph_result import PairGraph
    from dpstats.checks import Target
    from dpstats.results.hypothesis import Adjustment

_WANTED = (
    "the result of a dps.GraphicalModel (or, for a matrix, of a dps.Correlation without penalty=), "
    "such as release.infer('graph')"
)
_WIDEST = 8.0  # points, of the line of a correlation of one
_LABELLED = 12  # columns up to which a matrix shows numbers
_COLORS = {"positive": "tab:blue", "negative": "tab:red", "not tested": "0.6"}
_STYLES = {
    "certified": "solid", "by a test": "dashed",
    "sure": "solid", "undecided": "dashed",
    "at this penalty": "dashed",
    "not tested": "dotted",
}  # fmt: skip


def network(
    result: PairGraph,
    *,
    alpha: float = USUAL_ALPHA,
    adjust: Adjustment = "holm",
    target: Target = "population",
    penalty: float | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Columns on a circle, joined by the edges that were found.

    The width of an edge is its (partial) correlation in absolute value; blue is positive, red
    negative. Of a tree, sure edges are solid and the undecided ones of Chow and Liu's tree dashed.
    Otherwise edges that are certified present are solid, and those that rest on a test (or on a
    penalty) dashed. Pairs that are not tested, since the triangulation of a declared graph joins
    them, are dotted grey unless they are certified present.

    The middle of a long name is left out. A name that matplotlib's font cannot write shows as its
    place, such as "column 2": set ``plt.rcParams["font.family"]`` to a font that can.

    Parameters
    ----------
    result : GraphResult, TreeResult or PenalisedGraphResult
    alpha : float
        Level of the tests and of the verdicts.
    adjust : {"holm", "fdr_bh", "none"}
        Of the tests, see `GraphResult.adjusted_pvalues`.
    target : {"population", "table"}
        Of the verdicts; tests are of the population.
    penalty : float, optional
        For a penalised graph: one of its penalties.
    ax : Axes, optional
        Where to draw; a new figure by default.

    Returns
    -------
    Axes

    Raises
    ------
    RequestError
        If matplotlib is not installed, or for another result, axes or penalty.

    Examples
    --------
    >>> import dpstats as dps
    >>> import numpy as np
    >>> import pandas as pd
    >>> schema = dps.Schema([dps.Number(name, -3, 3, missing=0) for name in ("a", "b", "c")])
    >>> graph = dps.GraphicalModel(["a", "b", "c"])
    >>> plan = dps.plan(schema, {"graph": graph}, budget=dps.PureDP(5))
    >>> z = np.random.default_rng(0).standard_normal((20_000, 3))
    >>> rows = pd.DataFrame(z @ [[1, 0.8, 0.4], [0, 0.6, 0.3], [0, 0, 0.8]], columns=list("abc"))
    >>> ax = dps.plots.network(dps.release(plan, rows, m=2_000).infer("graph"))
    >>> len(ax.lines) >= 2
    True
    >>> ax.figure.savefig("network.png")
    """
    check_figure("network", result, _WANTED)
    check_choice("adjust", adjust, list(ADJUSTED))
    _check_penalty(result, penalty)
    lines, title = result._network(alpha=alpha, adjust=adjust, target=target, penalty=penalty)
    signs = np.where(lines["estimate"] > 0, "positive", "negative")
    lines["color"] = np.where(lines["basis"] == "not tested", "not tested", signs)
    ax, names = axes_of(ax), result.columns
    turn = 2 * np.pi * np.arange(len(names)) / len(names)
    place = {n: (np.sin(t), np.cos(t)) for n, t in zip(names, turn.tolist(), strict=True)}
    drawn = lines[["first", "second", "estimate", "basis", "color"]]
    for first, second, estimate, basis, color in drawn.itertuples(index=False):
        (x0, y0), (x1, y1) = place[first], place[second]
        ax.plot(
            [x0, x1], [y0, y1],
            color=_COLORS[color],
            linewidth=1.0 if basis == "not tested" else max(_WIDEST * abs(estimate), 0.5),
            linestyle=_STYLES[basis],
            zorder=1,
        )  # fmt: skip
    x, y = np.array(list(place.values())).T
    ax.scatter(x, y, s=60, color="0.2", zorder=2)
    for label, (a, b) in zip(labels_of(names), place.values(), strict=True):
        side = "left" if a > 0.1 else "right" if a < -0.1 else "center"
        level = "bottom" if b > 0.9 else "top" if b < -0.9 else "center"
        ax.annotate(label, (1.1 * a, 1.1 * b), ha=side, va=level)
    ax.set_xlim(-1.6, 1.6)
    ax.set_ylim(-1.3, 1.3)
    ax.set_aspect("equal")
    ax.set_axis_off()
    titled(ax, title)
    _add_legend(ax, lines)
    return ax


def matrix(result: Any, *, penalty: float | None = None, ax: Axes | None = None) -> Axes:
    """All pairs of columns as a matrix, coloured by the (partial) correlation.

    Parameters
    ----------
    result : GraphResult, TreeResult, PenalisedGraphResult or CorrelationResult
    penalty : float, optional
        For a penalised graph: one of its penalties.
    ax : Axes, optional
        Where to draw; a new figure by default.

    Returns
    -------
    Axes

    Raises
    ------
    RequestError
        If matplotlib is not installed, or for another result, axes or penalty.

    Examples
    --------
    >>> import dpstats as dps
    >>> import numpy as np
    >>> import pandas as pd
    >>> schema = dps.Schema([dps.Number(name, -3, 3, missing=0) for name in ("a", "b", "c")])
    >>> graph = dps.GraphicalModel(["a", "b", "c"])
    >>> plan = dps.plan(schema, {"graph": graph}, budget=dps.PureDP(5))
    >>> z = np.random.default_rng(0).standard_normal((20_000, 3))
    >>> rows = pd.DataFrame(z @ [[1, 0.8, 0.4], [0, 0.6, 0.3], [0, 0, 0.8]], columns=list("abc"))
    >>> ax = dps.plots.matrix(dps.release(plan, rows, m=2_000).infer("graph"))
    >>> [label.get_text() for label in ax.get_xticklabels()]
    ['a', 'b', 'c']
    >>> ax.figure.savefig("matrix.png")
    """
    measure = getattr(result, "measure", None)
    if measure is None:
        raise RequestError(f"this plot needs {_WANTED}; got {type(result).__name__}")
    _check_penalty(result, penalty)
    values, title = result.matrix.to_numpy(copy=True), f"{measure.capitalize()}s"
    if hasattr(result, "penalties"):
        values = symmetric(result.pairs(penalty)["estimate"].to_numpy(), len(result.columns))
        title += result._at_penalty(penalty)
    elif not getattr(result, "known", True):
        title = "nearly singular: no estimates"
    ax, names = axes_of(ax), labels_of(result.columns)
    np.fill_diagonal(values, np.nan)
    image = ax.imshow(values, cmap="RdBu", vmin=-1, vmax=1)
    colours = image.to_rgba(values)
    if len(names) <= _LABELLED:
        for i, j in np.argwhere(np.isfinite(values)).tolist():
            ax.text(
                j, i, fixed(values[i, j], 2), ha="center", va="center",
                color=ink_on(colours[i, j]), fontsize="small",
            )  # fmt: skip
    ax.set_xticks(range(len(names)), names, rotation=90)
    ax.set_yticks(range(len(names)), names)
    titled(ax, title)
    ax.figure.colorbar(image, ax=ax, label=measure)
    return ax


def _check_penalty(result: object, penalty: float | None) -> None:
    if penalty is not None and not hasattr(result, "penalties"):
        raise RequestError(
            "penalty= is for the result of estimator='glasso' or 'clime', and this one is a "
            f"{type(result).__name__}, without penalties; got {short(penalty)}"
        )


def _add_legend(ax: Axes, lines: pd.DataFrame) -> None:
    """The colors and styles that were drawn, below the plot."""
    from matplotlib.lines import Line2D

    colors, bases = set(lines["color"]), set(lines["basis"])
    shown: dict[str, dict[str, Any]] = {
        sign: {"color": _COLORS[sign]} for sign in ("positive", "negative") if sign in colors
    }
    shown |= {
        basis: {"color": _COLORS.get(basis, "0.2"), "linestyle": style}
        for basis, style in _STYLES.items()
        if basis in bases
    }
    if shown:
        handles = [Line2D([], [], label=name, **looks) for name, looks in shown.items()]
        add_legend(ax, room=4, ncols=len(handles), handles=handles)
