"""Distribution functions with their bands."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dpstats.errors import RequestError
from dpstats.plots.axes import axes_of, axis_of, labels_of, legend_below, titled

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from dpstats.analyses.counts.quantile import QuantileResult
    from dpstats.checks import Method, Target


def distribution(
    result: QuantileResult,
    *,
    alpha: float = 0.05,
    method: Method = "noise_aware",
    target: Target = "population",
    ax: Axes | None = None,
) -> Axes:
    """Distribution function of a number, with a band that holds for all values jointly.

    The axis is logarithmic where the column has ``scale="log"``, and shows dates as dates.
    Points are the estimates at the declared edges or values. Between two edges nothing is measured:
    there the band runs from the lower limit on the left to the upper limit on the right, which
    holds since a distribution function increases.

    Parameters
    ----------
    result : QuantileResult
    alpha : float
        Error probability of the band as a whole.
    method : {"noise_aware", "certified"}
    target : {"population", "table"}
    ax : Axes, optional
        Where to draw; a new figure by default.

    Raises
    ------
    RequestError
        If matplotlib is not installed, or for another result, axes or option.

    Examples
    --------
    >>> import dpstats as dps
    >>> import pandas as pd
    >>> schema = dps.Schema([dps.Number("age", 0, 100, edges=range(10, 100, 10), missing=50)])
    >>> plan = dps.plan(schema, {"median": dps.Quantile("age")}, budget=dps.PureDP(1))
    >>> rows = pd.DataFrame({"age": [x % 100 for x in range(10_000)]})
    >>> ax = dps.plots.distribution(dps.release(plan, rows, m=1_000).infer("median"))
    >>> ax.get_xlabel(), ax.get_ylabel()
    ('age', 'share of the rows below')
    >>> ax.figure.savefig("ages.png")
    """
    from dpstats.analyses.counts.quantile import QuantileResult
    from dpstats.analyses.counts.quantile_intervals import QuantileIntervals

    if not isinstance(result, QuantileResult):
        raise RequestError(
            "this plot needs the result of a dps.Quantile, such as release.infer('median'); got "
            f"{type(result).__name__}"
        )
    intervals = result.intervals
    assert isinstance(intervals, QuantileIntervals)
    frame = result.distribution(alpha=alpha, method=method, target=target)
    number, cuts = intervals.number, np.asarray(intervals.cuts, dtype=np.float64)
    low, high = frame["band_low"].to_numpy(), frame["band_high"].to_numpy()
    if intervals.discrete:  # F is constant between values, and 1 from the last on
        low, high = np.append(low, 1.0), np.append(high, 1.0)
    else:  # one step per bin
        low, high = np.insert(low, 0, 0.0), np.append(high, 1.0)
        low, high = np.append(low, low[-1]), np.append(high, high[-1])
    ax = axes_of(ax)
    ax.fill_between(
        cuts, low, high, step="post", color="tab:blue", alpha=0.25, linewidth=0,
        label=f"band at {1 - alpha:.4g}, jointly",
    )  # fmt: skip
    ax.plot(intervals.edges, frame["estimate"], "o", color="tab:blue", label="estimate")
    ax.set_ylim(-0.02, 1.02)
    if number.dates or number.scale == "log":
        axis_of(ax, dates=number.dates, log=number.scale == "log")
    ax.set_xlabel(labels_of([number.name], lines=3, line=50)[0])
    below = number.closed == "left" and not intervals.discrete
    ax.set_ylabel("share of the rows below" if below else "share of the rows up to")
    titled(ax, f"Distribution function of {number.name}")
    legend_below(ax, room=36, ncols=2)
    return ax
