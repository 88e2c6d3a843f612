"""Plots of graphical models: the network of columns, and the matrix of all pairs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from dpstats.analyses.graphs.graph_result import Adjustment, GraphResult, symmetric
from dpstats.analyses.graphs.sparse_graphs import PenalisedGraphResult
from dpstats.analyses.graphs.tree import TreeResult
from dpstats.analyses.moments.correlation import CorrelationResult
from dpstats.checks import counted, short
from dpstats.error_rates import USUAL_ALPHA
from dpstats.errors import RequestError
from dpstats.plots.axes import axes_of, ink_on, labels_of, legend_below, titled
from dpstats.results.rendering import fixed, significant

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

    from dpstats.arrays import Floats
    from dpstats.checks import Target

AnyGraph: TypeAlias = GraphResult | TreeResult | PenalisedGraphResult

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
    result: AnyGraph,
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
    lines = _lines(result, alpha, adjust, target, penalty)
    ax, names = axes_of(ax), result.columns
    turn = 2 * np.pi * np.arange(len(names)) / len(names)
    place = {n: (np.sin(t), np.cos(t)) for n, t in zip(names, turn.tolist(), strict=True)}
    for first, second, estimate, basis, color, _ in lines.itertuples(index=False):
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
    titled(ax, _caption(result, lines, alpha, penalty))
    _add_legend(ax, lines)
    return ax


def matrix(
    result: AnyGraph | CorrelationResult, *, penalty: float | None = None, ax: Axes | None = None
) -> Axes:
    """All pairs of columns as a matrix, coloured by the (partial) correlation.

    Parameters
    ----------
    result : GraphResult, TreeResult, PenalisedGraphResult or CorrelationResult
    penalty : float, optional
        For a penalised graph: one of its penalties.
    ax : Axes, optional
        Where to draw; a new figure by default.

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
    estimates = _estimates(result, penalty)
    ax, names = axes_of(ax), labels_of(result.columns)
    values = symmetric(estimates, len(names))
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
    plain = isinstance(result, TreeResult | CorrelationResult)
    what = "correlation" if plain else "partial correlation"
    if isinstance(result, GraphResult) and not result.known:
        titled(ax, "nearly singular: no estimates")
    else:
        titled(ax, f"{what.capitalize()}s{_at_penalty(result, penalty)}")
    ax.figure.colorbar(image, ax=ax, label=what)
    return ax


def _estimates(result: AnyGraph | CorrelationResult, penalty: float | None) -> Floats:
    """Estimates of all pairs, row by row above the diagonal; RequestError as in `_pairs`."""
    if isinstance(result, CorrelationResult) and penalty is None:
        return np.asarray(result.params)
    return _pairs(result, penalty)["estimate"].to_numpy()


def _pairs(result: Any, penalty: float | None) -> pd.DataFrame:
    """All pairs of columns; RequestError for another result, or a penalty that it does not have."""
    if isinstance(result, PenalisedGraphResult):
        return result.pairs(penalty)
    if not isinstance(result, GraphResult | TreeResult):
        raise RequestError(
            "this plot needs the result of a dps.GraphicalModel (or, for a matrix, of a "
            "dps.Correlation without penalty=), such as release.infer('graph'); "
            f"got {type(result).__name__}"
        )
    if penalty is not None:
        raise RequestError(
            "penalty= is for the result of estimator='glasso' or 'clime', and this one is a "
            f"{type(result).__name__}, without penalties; got {short(penalty)}"
        )
    return result.pairs()


def _lines(
    result: AnyGraph, alpha: float, adjust: Adjustment, target: Target, penalty: float | None
) -> pd.DataFrame:
    """What is drawn: first, second, estimate, what a line rests on (a style), its color, tested."""
    import pandas as pd

    pairs = _pairs(result, penalty)
    if isinstance(result, GraphResult):
        found = result.joined(alpha=alpha, adjust=adjust, target=target)
        certified = found["certified"] == "present"
        found = found.assign(basis=np.where(certified, "certified", "by a test"))
        known = set(zip(found["first"], found["second"], strict=True))
        drawn = [pair in known for pair in zip(pairs["first"], pairs["second"], strict=True)]
        others = pairs[~pairs["tested"] & ~np.array(drawn)]
        found = pd.concat([others.assign(basis="not tested"), found])
    elif isinstance(result, TreeResult):
        found = result.edges(alpha=alpha, target=target)
        found = found.assign(basis=found["verdict"], tested=True)
    else:
        found = result.edges(penalty).assign(basis="at this penalty", tested=True)
    signs = np.where(found["estimate"] > 0, "positive", "negative")
    colors = np.where(found["basis"] == "not tested", "not tested", signs)
    shown = ["first", "second", "estimate", "basis", "color", "tested"]
    return found.assign(color=colors)[shown]


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
        legend_below(ax, room=4, ncols=len(handles), handles=handles)


def _caption(result: AnyGraph, lines: pd.DataFrame, alpha: float, penalty: float | None) -> str:
    """What the edges are."""
    if isinstance(result, TreeResult):
        return f"{int(np.sum(lines['basis'] == 'sure'))} sure edges of {len(result.columns) - 1}"
    edges = counted(int(lines["tested"].sum()), "edge")
    if isinstance(result, GraphResult):
        if not result.known:
            return "nearly singular: no edges can be tested"
        tested = counted(int(result.tested.sum()), "tested pair")
        declared = int(np.sum(~lines["tested"] & (lines["basis"] == "certified")))
        also = f", {counted(declared, 'declared pair')} certified" if declared else ""
        return f"{edges} of {tested}{also}, level {alpha:g}"
    return f"{edges}{_at_penalty(result, penalty)}"


def _at_penalty(result: AnyGraph | CorrelationResult, penalty: float | None) -> str:
    """Estimator and penalty of a picture; "" for other results."""
    if not isinstance(result, PenalisedGraphResult):
        return ""
    shown = result.nearest if penalty is None else penalty
    return f", {result.estimator} at penalty {significant(shown)}"
