"""Tables of a release with their noise, and how near the synthetic rows are to them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dpstats.analyses.counts.marginals import Marginals
from dpstats.checks import check_whole, short
from dpstats.errors import RequestError
from dpstats.families.tables.cells import Cells
from dpstats.measured.certificate import Accuracy
from dpstats.plots.axes import (
    add_legend,
    axes_of,
    characters_in,
    fits_across,
    ink_on,
    label_down,
    label_rows,
    labels_of,
    room_across,
    some_of,
    titled,
)
from dpstats.releases.release import Release
from dpstats.results.rendering import MOST, Numerals

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from dpstats.arrays import Floats

_NUMBERED = (12, 8)  # rows and columns up to which cells show numbers
_DARKEST = 0.6  # of the colours, below numbers: on darker ones neither ink stands out
_LINE = 50  # characters of a name below an axis


def margin(release: Release, column: str, *, alpha: float = 0.05, ax: Axes | None = None) -> Axes:
    """Share of every level of a column: noisy answers with error bars, and synthetic rows.

    The error bar is the interval for the private table, whose only error is the noise. A synthetic
    share outside of it is a misfit of the rows, which the certificate counts.

    Parameters
    ----------
    release : Release
    column : str
        At most 60 levels or bins.
    alpha : float
        Error probability of each error bar.
    ax : Axes, optional
        Where to draw; a new figure by default.

    Returns
    -------
    Axes

    Raises
    ------
    NotMeasuredError
        If the column's table does not follow from the measurements.
    RequestError
        If matplotlib is not installed, or for an unknown column or option.

    Examples
    --------
    >>> import dpstats as dps
    >>> import pandas as pd
    >>> schema = dps.Schema([dps.Category("region", ["north", "south"])])
    >>> plan = dps.plan(schema, {"all": dps.Marginals(["region"], 1)}, budget=dps.PureDP(1))
    >>> rows = pd.DataFrame({"region": ["north", "south", "south"] * 3_000})
    >>> ax = dps.plots.margin(dps.release(plan, rows), "region")
    >>> [label.get_text() for label in ax.get_yticklabels()]
    ['north', 'south']
    >>> ax.figure.savefig("region.png")
    """
    _check_release(release)
    marginals, labels = Marginals((column,), 1), release.schema[column].bin_labels
    if len(labels) > MOST:
        raise RequestError(
            f"this plot shows at most {MOST} levels, and {column!r} has {len(labels)}; draw "
            "release.infer(dps.Marginals([...], 1)).to_frame() yourself"
        )
    result = release.infer(marginals)
    low, high = np.asarray(result.conf_int(alpha=alpha, target="table")).reshape(-1, 2).T
    synthetic = marginals.family(release.schema).evaluate(release.candidates).average(
        release.counts / release.k
    )  # fmt: skip
    ax = axes_of(ax, label_rows(labels))
    y = np.arange(len(labels))
    ax.barh(y, synthetic, height=0.7, color="tab:blue", alpha=0.3, label="synthetic rows")
    ax.hlines(y, low, high, color="0.5", linewidth=3, label="privacy noise")
    ax.plot(np.asarray(result.params), y, "o", color="tab:blue", label="noisy answer")
    label_down(ax, labels, "level")
    ax.set_xlim(left=min(0.0, 1.1 * float(np.min(result.params))))
    ax.locator_params(axis="x", nbins=4)
    ax.set_xlabel("share of the rows")
    titled(ax, column)
    add_legend(ax, room=36, ncols=3)
    return ax


def table(
    release: Release, rows: str, columns: str, *, alpha: float = 0.05, ax: Axes | None = None
) -> Axes:
    """Heat map of the table of two columns: shares of all rows in per cent, with their noise.

    The shares are fitted ones, see `EstimateResult.fitted`. After +- is half the interval for the
    private table, whose only error is the noise (the larger side, where it is not symmetric).
    Tables of more than 12 rows or 8 columns show no numbers, and a scale of the colours instead;
    where not all labels of levels fit, every so many are shown.

    Parameters
    ----------
    release : Release
    rows, columns : str
        Names of two columns.
    alpha : float
        Error probability of each interval.
    ax : Axes, optional
        Where to draw; a new figure by default.

    Returns
    -------
    Axes

    Raises
    ------
    NotMeasuredError
        If the table does not follow from the measurements.
    RequestError
        If matplotlib is not installed, or for an unknown column or option.

    Examples
    --------
    >>> import dpstats as dps
    >>> import pandas as pd
    >>> schema = dps.Schema([dps.Boolean("smoker"), dps.Category("region", ["north", "south"])])
    >>> link = dps.Independence("smoker", "region")
    >>> plan = dps.plan(schema, {"link": link}, budget=dps.PureDP(1))
    >>> people = pd.DataFrame({"smoker": [True, False, False], "region": ["north", "south", "n"]})
    >>> ax = dps.plots.table(dps.release(plan, people.loc[[0, 1, 2] * 3_000]), "smoker", "region")
    >>> [label.get_text() for label in ax.get_xticklabels()]
    ['north', 'south']
    >>> ax.figure.savefig("link.png")
    """
    _check_release(release)
    if rows == columns:
        raise RequestError(f"a table needs two different columns, got {short(rows)} twice")
    marginals = Marginals((rows, columns), 2)
    result, block = release.infer(marginals), Cells.table(release.schema, [rows, columns])
    ends = np.asarray(result.conf_int(alpha=alpha, target="table"))
    shares = result.displayed
    noise = np.maximum(ends[:, 1] - shares, shares - ends[:, 0])
    down = block.columns[0].name == rows

    def grid(values: Floats) -> Floats:
        shaped = values.reshape(block.shape)
        return shaped if down else shaped.T

    values, errors = 100 * grid(shares), 100 * grid(noise)
    ax, schema = axes_of(ax), release.schema
    on_left = labels_of(schema[rows].bin_labels, "level", lines=3)
    wide, high = room_across(ax, on_left), float(72 * ax.bbox.height / ax.figure.dpi)
    numbered = all(size <= most for size, most in zip(values.shape, _NUMBERED, strict=True))
    darkest = float(values.max()) / (_DARKEST if numbered else 1)
    image = ax.pcolormesh(
        values, cmap="Blues", vmin=0, vmax=max(darkest, 1e-12), edgecolors="0.7", linewidth=0.5
    )
    if numbered:
        colours = image.to_rgba(values)
        show = Numerals.of(values.ravel(), float(np.median(errors)), digits=2)
        for (i, j), value in np.ndenumerate(values):
            ax.text(
                j + 0.5, i + 0.5, f"{show(value)}\n±{show(float(errors[i, j]))}",
                ha="center", va="center", fontsize="x-small",
                color=ink_on(colours[i, j]),
            )  # fmt: skip
    below = labels_of(schema[columns].bin_labels, "level", lines=3)
    turned = not fits_across(below, wide)
    for name, axis, labels, room, along in (
        (rows, ax.yaxis, on_left, high, True), (columns, ax.xaxis, below, wide, turned),
    ):  # fmt: skip
        some = some_of(labels, room) if along else range(len(labels))
        axis.set_ticks([i + 0.5 for i in some], [labels[i] for i in some])
        line = min(_LINE, characters_in(room))
        axis.set_label_text(labels_of([name], lines=3, line=line)[0])
    if turned:
        ax.tick_params(axis="x", labelrotation=90)
    ax.invert_yaxis()
    if not ax.texts:
        scale = ax.figure.colorbar(image, ax=ax, location="top", label="% of the rows", aspect=30)
        scale.ax.locator_params(axis="x", nbins=4)
    return ax


def departures(accuracy: Accuracy | Release, *, most: int = 30, ax: Axes | None = None) -> Axes:
    """How far the synthetic rows are from the noisy answers, and how far the private rows can be.

    Zero is the noisy answer to each function, in unit scale. The line holds the private mean,
    jointly for all functions of the certificate; the point is the mean of the synthetic rows.

    Parameters
    ----------
    accuracy : Accuracy or Release
        Such as ``release.accuracy("smoking")``; a release stands for all of its certificate.
    most : int
        Draw so many functions, those with the largest bounds.
    ax : Axes, optional
        Where to draw; a new figure by default.

    Returns
    -------
    Axes

    Raises
    ------
    RequestError
        If matplotlib is not installed, or for another argument.

    Examples
    --------
    >>> import dpstats as dps
    >>> import pandas as pd
    >>> schema = dps.Schema([dps.Number("age", 0, 99, missing=40)])
    >>> plan = dps.plan(schema, {"age": dps.Mean("age")}, budget=dps.PureDP(1))
    >>> rows = pd.DataFrame({"age": [x % 100 for x in range(10_000)]})
    >>> ax = dps.plots.departures(dps.release(plan, rows, m=1_000).accuracy("age"))
    >>> [label.get_text() for label in ax.get_yticklabels()]
    ['age', 'age^2']
    """
    if isinstance(accuracy, Release):
        accuracy = accuracy.accuracy()
    if not isinstance(accuracy, Accuracy):
        raise RequestError(
            "this plot needs a release or a certificate, such as release.accuracy('smoking'); got "
            f"{type(accuracy).__name__}"
        )
    check_whole("most", most, 1)
    order = np.argsort(-accuracy.joint_bounds, kind="stable")[:most]
    shown = np.sort(order)
    names = [accuracy.names[i] for i in shown]
    ax, y = axes_of(ax, label_rows(names)), np.arange(len(shown))
    low, high = (accuracy.joint_ends - accuracy.noisy)[:, shown]
    ax.hlines(y, low, high, color="0.5", linewidth=3, label="private rows, jointly")
    apart = (accuracy.synthetic - accuracy.noisy)[shown]
    ax.plot(apart, y, "o", color="tab:blue", label="synthetic rows")
    ax.axvline(0, color="0.7", linewidth=0.8, zorder=0)
    label_down(ax, names, "function")
    ax.locator_params(axis="x", nbins=4)
    ax.set_xlabel("difference from the noisy answer", loc="right")  # beside long names
    add_legend(ax, room=36, ncols=2)
    return ax


def _check_release(release: object) -> None:
    if not isinstance(release, Release):
        raise RequestError(f"this plot needs a release, got {type(release).__name__}")
