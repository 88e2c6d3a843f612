"""Write a report of a release as one HTML page."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

from dpstats import files
from dpstats.checks import check_choice, check_label
from dpstats.display import Shown, shown_progress
from dpstats.errors import RequestError
from dpstats.planning.previews.likeness import likeness
from dpstats.releases.release import Release
from dpstats.reports.analysts import analysts_report
from dpstats.reports.board import board_report

Audience: TypeAlias = Literal["analysts", "board"]
TITLES: dict[Audience, str] = {
    "analysts": "Report of a differentially private release",
    "board": "Disclosure report of a differentially private release",
}


def report(
    release: Release,
    path: str | Path,
    *,
    audience: Audience = "analysts",
    title: str | None = None,
    like: Any = None,
    overwrite: bool = False,
    progress: Shown = None,
) -> None:
    """Write a report of a release: one HTML page that needs no scripts and loads nothing.

    For analysts: every result with its table and figure, the certificate, the synthetic rows
    against the noisy answers, what was asked, privacy spent and promised, with `like` the plan
    against what was reached, the rules for missing cells, the limits, and what else the release can
    answer. For the custodian and the board that decides on the release: what leaves the building,
    and by which proof it may. All of both follows from the release; no private row is read.

    Parameters
    ----------
    release : Release
    path : str or Path
        Such as ``"report.html"``.
    audience : {"analysts", "board"}
    title : str, optional
        Heading of the page.
    like : Release, Guesses or data frame, optional
        For analysts: the page compares the widths that were reached with those expected of such
        rows, as in `Plan.preview`. Give the guesses of the plan: the file of a release holds none.
        Without it the page has no expected widths.
    overwrite : bool
        Replace an existing file, but never a ledger or measurements without their release.
    progress : callable, optional
        Called with a text, the number of analyses so far, and that of all.
        By default a bar, as in `measure`.

    Raises
    ------
    RequestError
        If an argument is not allowed, or the file exists or cannot be written.

    Notes
    -----
    Figures need matplotlib; without it the page has none, and says so.

    Examples
    --------
    >>> import dpstats as dps
    >>> import pandas as pd
    >>> schema = dps.Schema([dps.Boolean("smoker")])
    >>> plan = dps.plan(schema, {"smoking": dps.Proportion("smoker")}, budget=dps.PureDP(1))
    >>> rows = pd.DataFrame({"smoker": [True] * 3_000 + [False] * 7_000})
    >>> release = dps.release(plan, rows, m=100, k=100)
    >>> dps.report(release, "report.html", title="Smoking in 2026")
    >>> dps.report(release, "disclosure.html", audience="board")
    """
    if not isinstance(release, Release):
        raise RequestError(
            "a report is of a release, such as dps.load('survey.zip'); got "
            f"{type(release).__name__}"
        )
    check_choice("audience", audience, get_args(Audience))
    title = TITLES[audience] if title is None else title
    check_label("the title", title)
    if like is not None:
        if audience == "board":
            raise RequestError(
                "like= is for expected widths, which the page for the board does not have; leave "
                "it out"
            )
        like = likeness(like, release.measurements.strategy)
    with shown_progress(progress) as say, files.reserved(path, overwrite=overwrite) as write:
        text = (
            board_report(release, title)
            if audience == "board"
            else analysts_report(release, title, say, like)
        )
        write(text.encode())
