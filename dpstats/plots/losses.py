"""Plots of mean losses over a grid of parameters, with the certified set of minimisers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from dpstats.checks import short
from dpstats.error_rates import USUAL_ALPHA
from dpstats.errors import RequestError
from dpstats.plots.axes import axes_of, labels_of, legend_above, titled

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from dpstats.analyses.regression.loss_grid import LossGridResult
    from dpstats.checks import Target

_FINE = 121  # points along each axis of a picture


def risk(
    result: LossGridResult,
    *,
    parameters: Sequence[str] | None = None,
    alpha: float = USUAL_ALPHA,
    target: Target = "table",
    ax: Axes | None = None,
) -> Axes:
    """Mean loss over one parameter or two, with the certified set of minimisers.

    Of one parameter: the noisy mean losses at the grid points with bounds that hold jointly, and
    the set, shaded. Of two: contours of the noisy mean losses, and the set, shaded. Other
    parameters are at their estimates, and the set is the part of it there.

    Parameters
    ----------
    result : LossGridResult
    parameters : sequence of one or two names, optional
        Default: the first two, or the only one.
    alpha : float
        Probability that the set misses a minimiser.
    target : {"table", "population"}
    ax : Axes, optional
        Where to draw; a new figure by default.

    Raises
    ------
    RequestError
        If matplotlib is not installed, or for another result, axes or parameter.

    Examples
    --------
    >>> import dpstats as dps
    >>> import pandas as pd
    >>> schema = dps.Schema([dps.Number("pay", 0, 100, points=101, missing=0)])
    >>> median = dps.LossGrid(dps.PinballLoss(), "pay ~ 1", {"Intercept": (0, 100, 41)})
    >>> plan = dps.plan(schema, {"median": median}, budget=dps.ZCDP(0.5))
    >>> rows = pd.DataFrame({"pay": [min(i % 60, 40) for i in range(20_000)]})
    >>> ax = dps.plots.risk(dps.release(plan, rows, m=1_000, k=100).infer("median"))
    >>> ax.get_xlabel()
    'Intercept'
    >>> ax.figure.savefig("risk.png")
    """
    from dpstats.analyses.regression.loss_grid import LossGridResult

    if not isinstance(result, LossGridResult):
        raise RequestError(
            "this plot needs the result of a dps.LossGrid or a dps.Huber, such as "
            f"release.infer('name'); got {type(result).__name__}"
        )
    names = list(result.terms[:2] if parameters is None else parameters)
    if not 1 <= len(set(names)) == len(names) <= 2 or not set(names) <= set(result.terms):
        raise RequestError(
            f"parameters must be one or two of {result.terms}, got {short(parameters)}"
        )
    drawn = [result.terms.index(name) for name in names]
    frame = result.risks(alpha=alpha, target=target)
    ax = axes_of(ax)
    axes = [result.surface.block.axes[j] for j in drawn]
    shape = [axis.points for axis in result.surface.block.axes]
    # The grid points nearest to the estimates of the other parameters.
    at = tuple(
        slice(None) if j in drawn else int(np.abs(axis.values - result.params[j]).argmin())
        for j, axis in enumerate(result.surface.block.axes)
    )
    seen = {name: frame[name].to_numpy().reshape(shape)[at] for name in ("risk", "low", "high")}
    fine = [np.linspace(axis.low, axis.high, _FINE) for axis in axes]
    places = np.tile(np.asarray(result.params), (_FINE ** len(drawn), 1))
    for j, values in zip(drawn, np.meshgrid(*fine, indexing="ij"), strict=True):
        places[:, j] = values.ravel()
    inside = result.surface.near(alpha, target).possible(places).reshape([_FINE] * len(drawn))
    labels = labels_of(names)
    ax.set_xlabel(labels[0])
    if len(drawn) == 1:
        low, high = seen["low"], seen["high"]
        ax.fill_between(axes[0].values, low, high, alpha=0.25, label="bounds, jointly")
        ax.plot(axes[0].values, seen["risk"], "o-", markersize=3, label="noisy mean loss")
        ax.fill_between(
            fine[0], 0, 1, where=inside.tolist(), transform=ax.get_xaxis_transform(), color="0.85",
            zorder=0, label="possible minimum",
        )  # fmt: skip
        ax.set_ylabel("mean loss")
        legend_above(ax, ncols=3)
        return ax
    if drawn[0] > drawn[1]:
        seen = {name: values.T for name, values in seen.items()}
    lines = ax.contour(
        axes[0].values, axes[1].values, seen["risk"].T, levels=12, colors="0.4", linewidths=0.8
    )
    ax.clabel(lines, fontsize="small")
    ax.contourf(fine[0], fine[1], inside.T, levels=[0.5, 1.5], colors=["tab:orange"], alpha=0.4)
    ax.plot(result.params[drawn[0]], result.params[drawn[1]], "o", color="black")
    ax.set_ylabel(labels[1])
    titled(ax, "noisy mean loss; shaded: possible minimum")
    return ax
