"""The command infer, which prints the results of a release."""

from __future__ import annotations

import argparse
import csv
import inspect
import io
import sys
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, get_args

from dpstats.cli.arguments import Commands, a_path
from dpstats.terminal import say, show

if TYPE_CHECKING:
    from dpstats.results.base import Result

_ONLY_TEXT = ("simultaneous", "adjust", "penalty")
_SHOWN = ("method", *_ONLY_TEXT)


def add_commands(commands: Commands) -> None:
    """Add infer."""
    infer = commands.add_parser("infer", help="print the results of a release")
    infer.add_argument("release", type=a_path, help="release.zip")
    infer.add_argument(
        "names", nargs="*", help="names of planned analyses (default: all; with --ask, none)"
    )
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
        "--most",
        type=_row_limit,
        metavar="N",
        help="print at most so many rows of each table, or all (default: 60)",
    )
    infer.add_argument(
        "--ask",
        action="append",
        default=[],
        metavar="ANALYSIS",
        help="an analysis that was not planned, such as \"OLS('y ~ x')\"; it is answered if it "
        "follows from what was measured. May be repeated, and with names both are printed",
    )
    form = infer.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print JSON, with everything but text")
    form.add_argument(
        "--csv", action="store_true", help="print the tables as one CSV table; tests are in --json"
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
        choices=("noise_aware", "certified"),
        help="of the intervals of --json and --csv; in text both print side by side",
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


def _infer(options: argparse.Namespace) -> None:
    from dpstats.analyses.registry import analysis_to_dict, spelled
    from dpstats.analyses.spelled_text import analysis_from_text
    from dpstats.releases.opening import open_release

    asked = {spelled(one).removeprefix("dps."): one for one in map(analysis_from_text, options.ask)}
    release = open_release(options.release)
    every = not options.names and not asked
    for reason in release.unread.values() if every else ():
        say(reason)
    names = list(release.analyses) if every else options.names
    results = {name: release.infer(name) for name in names}
    results |= {name: release.infer(analysis) for name, analysis in asked.items()}
    if options.json or options.csv:
        analyses = {name: release.measurements.requests.get(name, {}) for name in names}
        _print_tables(
            results, analyses | {k: analysis_to_dict(v) for k, v in asked.items()}, options
        )
    else:
        _print_summaries(results, options)


def _print_tables(
    results: Mapping[str, Result],
    analyses: Mapping[str, Mapping[str, Any]],
    options: argparse.Namespace,
) -> None:
    from dpstats.cli.inferred_files import as_csv, as_json, frame_of
    from dpstats.errors import RequestError
    from dpstats.files import formula_note

    if other := [name for name in (*_ONLY_TEXT, "most") if getattr(options, name) is not None]:
        raise RequestError(f"--{other[0]} is for the text; leave it out, or --json and --csv")
    given = {"alpha": options.alpha, "target": options.target}
    given["method"] = options.method or "noise_aware"
    frames = {}
    for name, result in results.items():
        method = options.method or (*result.methods, "noise_aware")[0]
        chosen = options.method is not None or options.target != "population"
        if chosen and (why := result.lacking(method, options.target)):
            say(f"dpstats: {name!r} is left out: {why}")
        else:
            frames[name] = frame_of(result, given)
    if results and not frames:
        raise RequestError("no analysis is left; choose another --method or --target")
    text = as_json(results, frames, analyses, given) if options.json else as_csv(frames)
    cells = (cell for row in csv.reader(io.StringIO(text)) for cell in row)
    if options.csv and (note := formula_note(cells, "the table")):
        say(f"dpstats: {note}")
    show(text, end="" if options.csv else "\n", wrap=False)


def _print_summaries(results: Mapping[str, Result], options: argparse.Namespace) -> None:
    from dpstats.checks import Method
    from dpstats.errors import RequestError

    asked = {name: getattr(options, name) for name in _SHOWN if getattr(options, name) is not None}
    if asked.get("method") in get_args(Method):
        del asked["method"]  # these print in any case
    for name, result in results.items() if asked else ():  # before anything prints
        known = inspect.signature(result.summary).parameters
        lacking = result.lacking(asked.get("method", "noise_aware")) if "method" in asked else ""
        other = [option for option in asked if option not in known]
        if lacking or other:
            option = f"method {asked['method']}" if lacking else other[0]
            raise RequestError(
                f"--{option} has no meaning for {name!r}{lacking and f': {lacking}'}; name the "
                "analyses that it is for"
            )
    for result in results.values():
        summary: Callable[..., str] = result.summary
        if options.most is not None and "most" in inspect.signature(summary).parameters:
            summary = partial(summary, most=options.most)
        show(summary(alpha=options.alpha, target=options.target, **asked), end="\n\n")
