"""Plots of penalised regressions: coefficients along the penalty."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dpstats.analyses.regression.elastic_net import ElasticNetResult
from dpstats.checks import short
from dpstats.errors import RequestError
from dpstats.plots.axes import axes_of, labels_of, legend_below, titled

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def path(result: ElasticNetResult, *, size: int = 50, ax: Axes | None = None) -> Axes:
    """Coefficients along the penalty, from none to nearly least squares; columns scaled to [-1, 1].

    The dashed line is the penalty of the result.

    Parameters
    ----------
    result : ElasticNetResult
    size : int
        Number of penalties.
    ax : Axes, optional
        Where to draw; a new figure by default.

    Raises
    ------
    RequestError
        If matplotlib is not installed, or for another result or axes.

    Examples
    --------
    >>> import dpstats as dps
    >>> import pandas as pd
    >>> schema = dps.Schema([dps.Number(name, 0, 99, missing=0) for name in ("age", "score")])
    >>> line = dps.Lasso("score ~ age")
    >>> plan = dps.plan(schema, {"line": line}, budget=dps.PureDP(10))
    >>> numbers = pd.Series(range(10_000))
    >>> rows = pd.DataFrame({"age": numbers % 100, "score": numbers % 100 // 2 + numbers % 7})
    >>> ax = dps.plots.path(dps.release(plan, rows, m=2_000).infer(line))
    >>> ax.get_xscale()
    'log'
    """
    if not isinstance(result, ElasticNetResult):
        raise RequestError(
            "a path is of a result of dps.Lasso or dps.ElasticNet, got " + short(result)
        )
    alphas, basis = result.path_in_units(size)
    penalised = np.flatnonzero(result.design.penalised)
    ax = axes_of(ax)
    for j, label in zip(
        penalised, labels_of([result.terms[j] for j in penalised], "term", lines=3), strict=True
    ):
        ax.plot(alphas, basis[:, j], label=label)
    ax.axvline(result.alpha, color="0.5", linestyle="dashed", linewidth=1)
    ax.axhline(0, color="0.8", linewidth=0.8, zorder=0)
    ax.set_xscale("log")
    ax.invert_xaxis()
    ax.set_xlabel("penalty")
    ax.set_ylabel("coefficient,\ncolumns scaled to [-1, 1]")
    titled(ax, result.title)
    legend_below(ax, room=40, ncols=4)
    return ax
