"""Commands that print what a file holds: show, infer."""

from __future__ import annotations

import argparse
import inspect
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import get_args

from dpstats.cli.arguments import Commands
from dpstats.terminal import say, show

_SHOWN = ("simultaneous", "method", "adjust", "penalty")


def add_commands(commands: Commands) -> None:
    """Add show and infer."""
    shown = commands.add_parser("show", help="print what a file of dpstats holds")
    shown.add_argument("file", type=Path, help="a release, measurements, a plan or a ledger")
    shown.set_defaults(run=_show)

    infer = commands.add_parser("infer", help="print the results of a release")
    infer.add_argument("release", type=Path, help="release.zip")
    infer.add_argument("names", nargs="*", help="names of analyses (default: all)")
    infer.add_argument(
        "--alpha",
        type=float,
        default=0.05,
        help="error probability of each interval (default: 0.05)",
    )
    infer.add_argument(
        "--target",
        choices=("population", "table"),
        default="population",
        help="what the intervals cover: the population (default) or the private table itself",
    )
    infer.add_argument(
        "--rows",
        type=_row_limit,
        metavar="N",
        help="print at most so many rows of each table, or all (default: 60)",
    )
    _add_shown(infer)
    infer.set_defaults(run=_infer)


def _add_shown(parser: argparse.ArgumentParser) -> None:
    """Options of `summary` that some results have; see `_SHOWN`."""
    parser.add_argument(
        "--simultaneous",
        action="store_true",
        default=None,
        help="intervals that cover all parameters of an analysis jointly",
    )
    parser.add_argument(
        "--method",
        choices=("noise_aware", "certified", "shortest"),
        help="of the intervals: noise_aware and certified ones print side by side in any case; "
        "shortest, for proportions and cells, print those of least mean width over all "
        "proportions in place of the noise-aware ones",
    )
    parser.add_argument(
        "--adjust",
        choices=("holm", "fdr_bh", "none"),
        help="of the p-values of a graphical model: Holm's method (default), the false discovery "
        "rate by Benjamini and Hochberg, or none; of means of groups, to print their differences",
    )
    parser.add_argument(
        "--penalty", type=float, help="of a graphical lasso or CLIME: the one whose edges to print"
    )


def _row_limit(text: str) -> int:
    """A number of rows to print."""
    if text == "all":
        return sys.maxsize
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"give a number of rows, or all; got {text!r}")
    return int(text)


def _show(options: argparse.Namespace) -> None:
    from dpstats.privacy.ledger import Ledger
    from dpstats.releases.opening import open_file

    found = open_file(options.file)
    show(f"{found}\n\n{found.table()}" if isinstance(found, Ledger) else found)


def _infer(options: argparse.Namespace) -> None:
    from dpstats.checks import Method
    from dpstats.errors import RequestError
    from dpstats.releases.opening import open_release

    release = open_release(options.release)
    for reason in () if options.names else release.unread.values():
        say(reason)
    asked = {name: getattr(options, name) for name in _SHOWN if getattr(options, name) is not None}
    if asked.get("method") in get_args(Method):
        del asked["method"]  # these print in any case
    names = options.names or release.analyses
    for name in names if asked else ():  # before anything prints
        known = inspect.signature(release.infer(name).summary).parameters
        if other := [option for option in asked if option not in known]:
            raise RequestError(
                f"--{other[0]} has no meaning for {name!r}; name the analyses that it is for"
            )
    for name in names:
        summary: Callable[..., str] = release.infer(name).summary
        if options.rows is not None and "most" in inspect.signature(summary).parameters:
            summary = partial(summary, most=options.rows)
        show(summary(alpha=options.alpha, target=options.target, **asked), end="\n\n")
