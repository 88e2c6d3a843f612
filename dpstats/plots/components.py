"""Plots of principal components."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from dpstats.checks import short
from dpstats.errors import RequestError
from dpstats.plots.axes import axes_of, labels_of, legend_above

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from dpstats.analyses.moments.pca import PCAResult
    from dpstats.arrays import Floats
    from dpstats.checks import Method

_UPRIGHT = 4  # columns up to which their names fit side by side


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
    given = list(components) if isinstance(components, tuple | list) else [components]
    numbers = [_number(component, k) for component in given]
    ends = ends[2 * k :].reshape(k, p, 2)
    places = np.arange(p)
    for i, number in enumerate(numbers):
        aside = (i - (len(numbers) - 1) / 2) * 0.6 / len(numbers)
        own = result.components_[number - 1]
        _bars(ax, places + aside, own, ends[number - 1], label=f"PC{number}")
    ax.axhline(0, color="0.7", linewidth=0.8, zorder=0)
    ax.set_xticks(places, labels_of(result.columns), rotation=90 if p > _UPRIGHT else 0)
    ax.set_ylabel("loading")
    ax.set_ylim(-1.05, 1.05)
    legend_above(ax, ncols=len(numbers))
    return ax


def _prepared(
    result: PCAResult, alpha: float, method: Method, ax: Axes | None
) -> tuple[int, Floats, Axes]:
    """Number of components, limits (2 k + k p, 2) of all parameters, and where to draw them."""
    from dpstats.analyses.moments.pca import PCAResult

    if not isinstance(result, PCAResult):
        raise RequestError(
            "this plot needs the result of a dps.PCA, such as release.infer('shape'); got "
            f"{type(result).__name__}"
        )
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
