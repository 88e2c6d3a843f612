"""Plots of graphical models: the network of columns, and the matrix of all pairs."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from dpstats.checks import counted
from dpstats.errors import RequestError
from dpstats.plots.axes import axes_of
from dpstats.results.graph import Adjustment, GraphResult
from dpstats.results.penalised_graph import PenalisedGraphResult
from dpstats.results.rendering import fixed
from dpstats.results.spanning_tree import TreeResult
from dpstats.spending import USUAL_ALPHA

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

    from dpstats.checks import Target

AnyGraph: TypeAlias = GraphResult | TreeResult | PenalisedGraphResult

_WIDEST = 8.0  # points, of the line of a correlation of one
_LABELLED = 12  # columns up to which a matrix shows numbers
_POSITIVE, _NEGATIVE = "tab:blue", "tab:red"


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
    penalty) dashed.

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
        If matplotlib is not installed, or for another result.

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
    edges = _edges(result, alpha, adjust, target, penalty)
    ax = axes_of(ax)
    names = result.columns
    turn = 2 * np.pi * np.arange(len(names)) / len(names)
    place = {n: (np.sin(t), np.cos(t)) for n, t in zip(names, turn.tolist(), strict=True)}
    for first, second, estimate, firm in edges.itertuples(index=False):
        (x0, y0), (x1, y1) = place[first], place[second]
        ax.plot(
            [x0, x1], [y0, y1],
            color=_POSITIVE if estimate > 0 else _NEGATIVE,
            linewidth=max(_WIDEST * abs(estimate), 0.5),
            linestyle="solid" if firm else "dashed",
            zorder=1,
        )  # fmt: skip
    x, y = np.array(list(place.values())).T
    ax.scatter(x, y, s=60, color="0.2", zorder=2)
    for name, (a, b) in place.items():
        side = "left" if a > 0.1 else "right" if a < -0.1 else "center"
        ax.annotate(name, (1.1 * a, 1.1 * b), ha=side, va="center")
    ax.set_xlim(-1.6, 1.6)
    ax.set_ylim(-1.3, 1.3)
    ax.set_aspect("equal")
    ax.set_axis_off()
    ax.set_title(_caption(result, edges, alpha))
    return ax


def matrix(result: AnyGraph, *, penalty: float | None = None, ax: Axes | None = None) -> Axes:
    """All pairs of columns as a matrix, coloured by the (partial) correlation.

    Parameters
    ----------
    result : GraphResult, TreeResult or PenalisedGraphResult
    penalty : float, optional
        For a penalised graph: one of its penalties.
    ax : Axes, optional
        Where to draw; a new figure by default.

    Raises
    ------
    RequestError
        If matplotlib is not installed, or for another result.

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
    pairs = _pairs(result, penalty)
    ax, names = axes_of(ax), list(result.columns)
    values = np.full((len(names), len(names)), np.nan)
    for first, second, estimate in pairs.itertuples(index=False):
        i, j = names.index(first), names.index(second)
        values[i, j] = values[j, i] = estimate
    image = ax.imshow(values, cmap="RdBu", vmin=-1, vmax=1)
    if len(names) <= _LABELLED:
        for i, j in np.argwhere(np.isfinite(values)).tolist():
            dark = abs(values[i, j]) > 0.6
            ax.text(
                j, i, fixed(values[i, j], 2), ha="center", va="center",
                color="white" if dark else "black", fontsize="small",
            )  # fmt: skip
    ax.set_xticks(range(len(names)), names, rotation=90)
    ax.set_yticks(range(len(names)), names)
    what = "correlation" if isinstance(result, TreeResult) else "partial correlation"
    ax.figure.colorbar(image, ax=ax, label=what)
    return ax


def _pairs(result: AnyGraph, penalty: float | None) -> pd.DataFrame:
    """All pairs of columns: first, second, estimate."""
    if isinstance(result, PenalisedGraphResult):
        return result.pairs(penalty)
    if isinstance(result, GraphResult | TreeResult):
        return result.to_frame()[["first", "second", "estimate"]]
    raise RequestError(
        "this plot needs the result of a dps.GraphicalModel, such as release.infer('graph'); got "
        f"{type(result).__name__}"
    )


def _edges(
    result: AnyGraph, alpha: float, adjust: Adjustment, target: Target, penalty: float | None
) -> pd.DataFrame:
    """The edges to draw: first, second, estimate, and whether the line is solid."""
    kept = ["first", "second", "estimate", "firm"]
    if isinstance(result, GraphResult):
        found = result.edges(alpha=alpha, adjust=adjust, target=target)
        return found.assign(firm=found["certified"] == "present")[kept]
    if isinstance(result, TreeResult):
        frame = result.to_frame(alpha=alpha, target=target)
        sure = frame["verdict"] == "sure"
        return frame.assign(firm=sure)[sure | frame["in_tree"]][kept]
    found = _pairs(result, penalty)
    return found.assign(firm=False)[found["estimate"] != 0][kept]


def _caption(result: AnyGraph, edges: pd.DataFrame, alpha: float) -> str:
    """What the edges are."""
    if isinstance(result, TreeResult):
        return f"{int(edges['firm'].sum())} sure edges of {len(result.columns) - 1}"
    if isinstance(result, GraphResult):
        if not result.known:
            return "nearly singular: no edges can be tested"
        tested = counted(int(result.tested.sum()), "tested pair")
        return f"{counted(len(edges), 'edge')} of {tested}, level {alpha:g}"
    return f"{counted(len(edges), 'edge')}, {result.estimator}"
