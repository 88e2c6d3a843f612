"""Plots of estimates with their intervals: forests, eigenvalues and loadings."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dpstats.checks import first_few, short
from dpstats.errors import RequestError
from dpstats.plots.axes import (
    add_legend,
    axes_of,
    axis_of,
    check_figure,
    label_down,
    label_rows,
    labels_of,
    panels_of,
    titled,
)
from dpstats.results.named import place_of
from dpstats.results.rendering import MOST

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from dpstats.analyses.moments.pca import PCAResult
    from dpstats.arrays import Floats
    from dpstats.checks import Method
    from dpstats.results.estimates import EstimateResult

_UPRIGHT = 4  # columns up to which their names fit side by side
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
    if not getattr(result, "terms_by_unit", None):
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
    add_legend(axes[-across], ncols=2)
    return axes[0] if len(axes) == 1 else np.array(axes, dtype=np.object_)


def _edges(numbers: Sequence[Floats], *, log: bool) -> tuple[float, float]:
    """Where the axis of one unit begins and ends."""
    finite = np.concatenate([values[np.isfinite(values)] for values in numbers])
    if not finite.size:
        return (math.exp(-1), math.e) if log else (-1.0, 1.0)
    finite = np.log(finite) if log else finite
    room = 0.05 * max(float(np.ptp(finite)), 1e-12)
    low, high = float(finite.min()) - room, float(finite.max()) + room
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
        low, high = np.clip(ends, *edges).T  # infinite ones to the edges
        ax.hlines(y, low, high, color=color, linewidth=width, zorder=order, label=label)
    ax.plot(estimates, y, "o", markersize=5, zorder=3)
    if edges[0] < 0 < edges[1]:
        ax.axvline(0, color="0.7", linewidth=0.8, zorder=0)
    label_down(ax, names, "term")
    ax.set_xlim(*edges)


def drawn_of(terms: Sequence[str]) -> list[str]:
    """The terms without an intercept, unless it is the only one."""
    return [term for term in terms if term != "Intercept"] or list(terms)


def _places(result: EstimateResult, terms: Sequence[str] | None) -> list[int]:
    """Numbers of the terms to draw."""
    if terms is None:
        drawn = drawn_of(result.terms)
        chosen = [i for i, term in enumerate(result.terms) if term in drawn]
    elif len(terms) and set(terms) <= set(result.terms):
        chosen = [place_of(term, result.terms) for term in terms]
    else:
        raise RequestError(f"terms must be some of {first_few(result.terms)}, got {short(terms)}")
    if len(chosen) > _ACROSS * MOST:
        raise RequestError(
            f"a forest plot shows at most {_ACROSS * MOST} parameters, and this result has "
            f"{len(chosen)}; name some with terms=, or draw to_frame() yourself"
        )
    return chosen


def scree(
    result: PCAResult,
    *,
    ratio: bool = False,
    alpha: float = 0.05,
    method: Method = "noise_aware",
    ax: Axes | None = None,
) -> Axes:
    """Eigenvalues, or their shares of the variance, with intervals.

    Parameters
    ----------
    result : PCAResult
    ratio : bool
        Draw shares instead of eigenvalues.
    alpha : float
        Error probability of each interval.
    method : {"noise_aware", "certified"}
    ax : Axes, optional
        Where to draw; a new figure by default.

    Returns
    -------
    Axes

    Raises
    ------
    RequestError
        If matplotlib is not installed, `ax` is no Axes, or an option is not known.

    Examples
    --------
    >>> import dpstats as dps
    >>> import pandas as pd
    >>> schema = dps.Schema([dps.Number(name, 0, 100, missing=50) for name in ("math", "physics")])
    >>> plan = dps.plan(schema, {"shape": dps.PCA(["math", "physics"])}, budget=dps.PureDP(1))
    >>> numbers = pd.Series(range(10_000))
    >>> rows = pd.DataFrame({"math": numbers % 100, "physics": numbers % 70})
    >>> shape = dps.release(plan, rows, m=2_000).infer("shape")
    >>> ax = dps.plots.scree(shape, ratio=True)
    >>> ax.get_ylabel()
    'share of the variance'
    >>> ax.figure.savefig("scree.png")
    """
    k, ends, ax = _prepared(result, alpha, method, ax)
    drawn = slice(k, 2 * k) if ratio else slice(0, k)
    _bars(ax, np.arange(1, k + 1), result.params[drawn], ends[drawn], label=None)
    ax.set_xticks(np.arange(1, k + 1))
    ax.set_xlabel("component")
    ax.set_ylabel("share of the variance" if ratio else "eigenvalue")
    ax.set_ylim(bottom=0)
    return ax


def loadings(
    result: PCAResult,
    *,
    components: int | str | Sequence[int | str] = (1, 2),
    alpha: float = 0.05,
    method: Method = "noise_aware",
    ax: Axes | None = None,
) -> Axes:
    """Loadings of the columns on some components, with intervals.

    Parameters
    ----------
    result : PCAResult
    components : int, name, or a sequence of them
        Numbers of components, from 1, or names such as ``"PC1"``.
    alpha : float
        Error probability of each interval.
    method : {"noise_aware", "certified"}
    ax : Axes, optional
        Where to draw; a new figure by default.

    Returns
    -------
    Axes

    Raises
    ------
    RequestError
        If matplotlib is not installed, `ax` is no Axes, or an option is not known.

    Examples
    --------
    >>> import dpstats as dps
    >>> import pandas as pd
    >>> schema = dps.Schema([dps.Number(name, 0, 100, missing=50) for name in ("math", "physics")])
    >>> plan = dps.plan(schema, {"shape": dps.PCA(["math", "physics"])}, budget=dps.PureDP(1))
    >>> numbers = pd.Series(range(10_000))
    >>> rows = pd.DataFrame({"math": numbers % 100, "physics": numbers % 70})
    >>> shape = dps.release(plan, rows, m=2_000).infer("shape")
    >>> ax = dps.plots.loadings(shape, components="PC1")
    >>> [label.get_text() for label in ax.get_xticklabels()]
    ['math', 'physics']
    >>> ax.figure.savefig("loadings.png")
    """
    k, ends, ax = _prepared(result, alpha, method, ax)
    p = len(result.columns)
    wanted = list(components) if isinstance(components, tuple | list) else [components]
    numbers = [_number(component, k) for component in wanted]
    ends = ends[2 * k :].reshape(k, p, 2)
    places = np.arange(p)
    for i, number in enumerate(numbers):
        aside = (i - (len(numbers) - 1) / 2) * 0.6 / len(numbers)
        weights = result.components_[number - 1]
        _bars(ax, places + aside, weights, ends[number - 1], label=f"PC{number}")
    ax.axhline(0, color="0.7", linewidth=0.8, zorder=0)
    ax.set_xticks(places, labels_of(result.columns), rotation=90 if p > _UPRIGHT else 0)
    ax.set_ylabel("loading")
    ax.set_ylim(-1.05, 1.05)
    add_legend(ax, room=None, ncols=len(numbers))
    return ax


def _prepared(
    result: PCAResult, alpha: float, method: Method, ax: Axes | None
) -> tuple[int, Floats, Axes]:
    """Number of components, limits (2 k + k p, 2) of all parameters, and where to draw them."""
    check_figure("scree", result, "the result of a dps.PCA, such as release.infer('shape')")
    ends = np.asarray(result.conf_int(alpha=alpha, method=method))
    return result.n_components_, ends, axes_of(ax)


def _number(component: object, k: int) -> int:
    """Number of a component, from 1."""
    names = {f"PC{i}": i for i in range(1, k + 1)}
    number = names.get(component) if isinstance(component, str) else component
    if isinstance(number, bool) or not isinstance(number, int | np.integer) or not 1 <= number <= k:
        raise RequestError(
            f"components must be numbers from 1 to {k}, or names such as 'PC1', got "
            f"{short(component)}"
        )
    return int(number)


def _bars(ax: Axes, x: object, estimates: object, ends: object, label: str | None) -> None:
    """Points with intervals, which need not be symmetric about their estimates."""
    x, estimates, ends = np.asarray(x), np.asarray(estimates), np.asarray(ends)
    ax.vlines(x, ends[:, 0], ends[:, 1], color="0.5", linewidth=1.2)
    ax.plot(x, estimates, "o", label=label)
