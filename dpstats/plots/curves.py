"""Plots of curves: widths against the budget, distributions, survival, penalties and losses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from dpstats.checks import counted, first_few, short
from dpstats.error_rates import USUAL_ALPHA, percent
from dpstats.errors import RequestError
from dpstats.planning.curve import Curve
from dpstats.plots.axes import (
    add_legend,
    axes_of,
    axis_of,
    check_figure,
    fitting_ticks,
    labels_of,
    log_ticks,
    panels_of,
    titled,
)
from dpstats.schema.dates import day_text

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from numpy.typing import NDArray

    from dpstats.analyses.counts.quantile_result import QuantileResult
    from dpstats.analyses.regression.elastic_net import ElasticNetResult
    from dpstats.analyses.regression.loss_grid import LossGridResult
    from dpstats.analyses.survival.survival_result import SurvivalResult
    from dpstats.checks import Method, Target

MOST = 10  # lines
_HALF = 36  # characters of a legend in half the width of a figure
_FINE = 121  # points along each axis of a picture
_BELOW, _LINE = 42, 13  # points: from a time axis to the numbers at risk, and between their lines
_LIGHT, _DARKER = 0.1, 0.22  # opacity of bands, and of intervals
_PANEL = 8  # rows of labels that are as high as a panel of curves


def check_drawn(analyses: int) -> None:
    """Refuse more lines than a figure can show."""
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

    Returns
    -------
    Axes

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
    add_legend(ax, room=40, ncols=columns)
    return ax


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

    Returns
    -------
    Axes

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
    wanted = "the result of a dps.Quantile, such as release.infer('median')"
    check_figure("distribution", result, wanted)
    intervals: Any = result.intervals
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
        label=f"{percent(alpha)} band, jointly",
    )  # fmt: skip
    ax.plot(intervals.edges, frame["estimate"], "o", color="tab:blue", label="estimate")
    ax.set_ylim(-0.02, 1.02)
    if number.dates or number.scale == "log":
        axis_of(ax, dates=number.dates, log=number.scale == "log")
    ax.set_xlabel(labels_of([number.name], lines=3, line=50)[0])
    below = number.closed == "left" and not intervals.discrete
    ax.set_ylabel("share of the rows below" if below else "share of the rows up to")
    titled(ax, f"Distribution function of {number.name}")
    add_legend(ax, room=36, ncols=2)
    return ax


def survival(
    result: SurvivalResult,
    *,
    groups: Sequence[str] | None = None,
    alpha: float = 0.05,
    method: Method = "noise_aware",
    target: Target = "population",
    band: bool = True,
    ax: Axes | None = None,
) -> Axes | NDArray[np.object_]:
    """Survival curves or cumulative incidences, with the numbers at risk below the time axis.

    The lines are the monotone estimates: straight between declared edges, as the median and the
    restricted mean take them, and steps between declared values. The darker area has the interval
    at every edge, the lighter one the band that holds for all edges of a curve jointly; between
    edges nothing is measured. Numbers at risk are noisy and rounded: rows at risk in the bin that
    begins at the time.

    Cumulative incidences of several groups have a panel for every kind of event, and those of all
    rows a colour for it.

    Parameters
    ----------
    result : SurvivalResult
    groups : sequence of str, optional
        Labels of the groups to draw, of ``result.labels``. By default all; at most 10 curves.
    alpha : float
        Error probability of each interval, and of each band as a whole.
    method : {"noise_aware", "certified"}
    target : {"population", "table"}
    band : bool
        Draw the bands too.
    ax : Axes, optional
        Where to draw; a new figure by default. Several panels take its place.

    Returns
    -------
    Axes, or an array of them for several panels

    Raises
    ------
    RequestError
        If matplotlib is not installed, or for another result, axes, group or option.

    Examples
    --------
    >>> import dpstats as dps
    >>> import pandas as pd
    >>> schema = dps.Schema([
    ...     dps.Number("days", 0, 500, edges=range(50, 500, 50), missing=0),
    ...     dps.Boolean("died"), dps.Category("arm", ["new", "old"]),
    ... ])
    >>> curves = dps.Survival("days", "died", by="arm")
    >>> plan = dps.plan(schema, {"curves": curves}, budget=dps.PureDP(1))
    >>> numbers = pd.Series(range(6_000))
    >>> arm = numbers.mod(2).map({0: "new", 1: "old"})
    >>> rows = pd.DataFrame({"days": numbers * 7 % 400, "died": numbers % 3 > 0, "arm": arm})
    >>> ax = dps.plots.survival(dps.release(plan, rows, m=2_000).infer("curves"))
    >>> ax.get_xlabel(), ax.get_ylabel()
    ('days', 'survival')
    >>> ax.figure.savefig("survival.png")
    """
    wanted = "the result of a dps.Survival, such as release.infer('curves')"
    check_figure("survival", result, wanted)
    drawn, events = _drawn_groups(result, groups), list(result.events)
    frame = result.curve(alpha=alpha, method=method, target=target)
    bins = [curve.bins for curve in result.curves for _ in events]
    frame["time"] = np.concatenate([result.cuts[1 : last + 1] for last in bins])  # dates too
    both = frame.assign(
        group=frame.get("group", result.labels[0]), event=frame.get("event", events[0])
    )
    by_event = len(events) > 1 and len(drawn) > 1
    ax = axes_of(ax, _PANEL * len(events) if by_event else 0)
    axes = panels_of(ax, [_PANEL] * len(events)) if by_event else [ax]
    for i, panel in enumerate(axes):
        event = events[i]
        curves = [(event, group) for group in drawn]
        names = drawn
        if len(events) > 1 and not by_event:
            curves, names = [(event, drawn[0]) for event in events], events
        for j, (curve, label) in enumerate(
            zip(curves, labels_of(names, "curve", lines=3), strict=True)
        ):
            part = both[(both["event"] == curve[0]) & (both["group"] == curve[1])]
            _draw_curve(panel, result, part, f"C{j}", label or None, band=band)
        panel.set_ylabel(result.interval_of)
        if by_event:
            text = labels_of([event], "event", lines=2, line=40)[0]
            panel.text(0.02, 0.96, text, transform=panel.transAxes, va="top", fontsize="small")
    _set_time_axes(axes, result)
    below = _add_numbers_at_risk(axes[-1], result, drawn, both[both["event"] == events[0]])
    titled(axes[0], result.title)
    handles = _curve_handles(axes[0], alpha, band=band)
    add_legend(axes[-1], room=below, ncols=3, handles=handles)
    return axes[0] if len(axes) == 1 else np.array(axes, dtype=np.object_)


def _drawn_groups(result: SurvivalResult, groups: Sequence[str] | None) -> list[str]:
    """Labels of the groups to draw: of those asked for, the ones that have a curve."""
    wanted = list(result.labels if groups is None else groups)
    if not wanted or not set(wanted) <= set(result.labels):
        raise RequestError(
            f"groups must be some of {first_few(result.labels)}, got {short(groups)}"
        )
    if len(wanted) > MOST:
        raise RequestError(
            f"a figure shows at most {MOST} curves, not {len(wanted)}; name some with groups="
        )
    started = {x for x, curve in zip(result.labels, result.curves, strict=True) if curve.bins}
    if drawn := [label for label in wanted if label in started]:
        return drawn
    raise RequestError(f"no curve of {first_few(wanted)} has a start; see the notes of the result")


def _has_steps(result: SurvivalResult) -> bool:
    """True if the times are declared values, between which curves are constant."""
    return result.clock.discrete


def _draw_curve(
    ax: Axes,
    result: SurvivalResult,
    part: pd.DataFrame,
    color: str,
    label: str | None,
    *,
    band: bool,
) -> None:
    """One curve from the start of time, with its intervals and its band."""
    steps = _has_steps(result)
    start = 1.0 if len(result.events) == 1 else 0.0
    time = np.insert(part["time"].to_numpy(), 0, result.cuts[0])
    monotone, low, high, band_low, band_high = (
        np.insert(part[name].to_numpy(), 0, start)
        for name in ("monotone", "low", "high", "band_low", "band_high")
    )
    shaded: dict[str, Any] = {"step": "post" if steps else None, "color": color, "linewidth": 0}
    if band:
        ax.fill_between(time, band_low, band_high, alpha=_LIGHT, **shaded)
    ax.fill_between(time, low, high, alpha=_DARKER, **shaded)
    style = "steps-post" if steps else "default"
    ax.plot(time, monotone, color=color, drawstyle=style, label=label)


def _set_time_axes(axes: Sequence[Axes], result: SurvivalResult) -> None:
    """Give all panels the same axes, with ticks at declared times; only the last is labelled."""
    bins = max(curve.bins for curve in result.curves)
    times = result.cuts[: bins + 1]
    shown = result.clock.dates
    texts = [day_text(x) if shown else f"{x:,.10g}" for x in times.tolist()]
    top = 1.0 if len(result.events) == 1 else max(float(ax.dataLim.y1) for ax in axes)
    for ax in axes:
        ax.set_xlim(times[0], times[-1])
        ax.margins(x=0)
        ax.set_ylim(-0.02 * top, 1.02 * top)
        fitting = fitting_ticks(ax, times, texts)
        ax.set_xticks(times[fitting], [texts[i] for i in fitting])
        if ax is not axes[-1]:
            ax.tick_params(labelbottom=False)
    axes[-1].set_xlabel(labels_of([result.clock.name], lines=3, line=50)[0])


def _add_numbers_at_risk(
    ax: Axes, result: SurvivalResult, drawn: Sequence[str], counts: pd.DataFrame
) -> float:
    """Write them below the ticks, a line for every group; returns the points below the axes."""

    def write(text: str, x: float, line: float, side: str, aside: float = 0) -> None:
        ax.annotate(
            text, (x, 0), (aside, -_BELOW - line * _LINE), xycoords=ax.get_xaxis_transform(),
            textcoords="offset points", ha=side, va="top", fontsize="small", annotation_clip=False,
        )  # fmt: skip

    ticks, start = ax.get_xticks(), float(ax.get_xlim()[0])
    write(f"{result.counted} at risk (noisy)", start, 0, "left", -18)
    for i, (group, label) in enumerate(zip(drawn, labels_of(drawn, "group"), strict=True)):
        at_risk = counts.loc[counts["group"] == group, "at_risk"]
        longest = len(f"{round(max(at_risk, default=0)):,}")
        write(label, start, i + 1, "right", -max(24, 8 + 3 * longest))
        begins = result.cuts[1:] if _has_steps(result) else result.cuts
        for time, rows in zip(begins.tolist(), at_risk.tolist(), strict=False):
            if time in ticks:
                write(f"{max(round(rows), 0):,}", time, i + 1, "center")
    return _BELOW + (len(drawn) + 1.6) * _LINE


def _curve_handles(ax: Axes, alpha: float, *, band: bool) -> list[Any]:
    """Entries of the legend: the curves, intervals and bands."""
    from matplotlib.patches import Patch

    level = percent(alpha)
    entries = [(_DARKER + _LIGHT, f"{level} intervals"), (_LIGHT, f"{level} band, jointly")]
    return ax.get_legend_handles_labels()[0] + [
        Patch(color="0.4", alpha=2 * shade, linewidth=0, label=label)
        for shade, label in entries[: 2 if band else 1]
    ]


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

    Returns
    -------
    Axes

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
    check_figure("path", result, "the result of a dps.Lasso or dps.ElasticNet")
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
    add_legend(ax, room=40, ncols=4)
    return ax


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

    Returns
    -------
    Axes

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
    check_figure("risk", result, "the result of a dps.LossGrid or a dps.Huber")
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
        add_legend(ax, room=None, ncols=3)
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
