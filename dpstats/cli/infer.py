"""Questions to a release: infer, and for what nobody planned explain and bound."""

from __future__ import annotations

import argparse
import csv
import inspect
import io
import json
import math
import sys
from collections.abc import Callable, Mapping
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from dpstats.analyses.tables.cells import level_name
from dpstats.cli.arguments import Commands, a_path
from dpstats.errors import RequestError
from dpstats.terminal import say, show

if TYPE_CHECKING:
    import pandas as pd

    from dpstats.results.base import Result

_ONLY_TEXT = ("simultaneous", "adjust", "penalty")
_SINGLE = ("nobs", "statistic", "df", "pvalue", "effect_name", "effect")  # of some results


def add_commands(commands: Commands) -> None:
    """Add infer, explain and bound."""
    infer = commands.add_parser("infer", help="print the results of a release")
    infer.add_argument("release", type=a_path, help="release.zip")
    infer.add_argument(
        "names", nargs="*", help="names of planned analyses (default: all; with --ask, none)"
    )
    infer.add_argument(
        "--alpha", type=float, default=0.05, help="error of each interval (default: 0.05)"
    )
    infer.add_argument(
        "--target",
        choices=("population", "table"),
        default="population",
        help="what the intervals cover: the population (default) or the private table itself",
    )
    infer.add_argument(
        "--most", type=_row_limit, metavar="N", help="most rows of a table, or all (default: 60)"
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

    explain = commands.add_parser(
        "explain", help="say whether a release answers a question, from what, and how surely"
    )
    _add_question(explain)
    explain.set_defaults(run=partial(_ask, "explain"))
    bound = commands.add_parser(
        "bound", help="certified intervals for a question, measured or not, from a release"
    )
    _add_question(bound)
    bound.add_argument(
        "--target",
        choices=("table", "population"),
        default="table",
        help="what the intervals cover: the private table (default) or the population",
    )
    bound.set_defaults(run=partial(_ask, "bound"))


def _add_shown(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--simultaneous", action="store_true", default=None, help="cover all parameters jointly"
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
    if text == "all":
        return sys.maxsize
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"give a number of rows, or all; got {text!r}")
    return int(text)


def _infer(options: argparse.Namespace) -> None:
    from dpstats.analyses.registry import analysis_from_text, analysis_to_dict, spelled
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
            frames[name] = _frame_of(result, given)
    if results and not frames:
        raise RequestError("no analysis is left; choose another --method or --target")
    text = _as_json(results, frames, analyses, given) if options.json else _as_csv(frames)
    cells = (cell for row in csv.reader(io.StringIO(text)) for cell in row)
    if options.csv and (note := formula_note(cells, "the table")):
        say(f"dpstats: {note}")
    show(text, end="" if options.csv else "\n", wrap=False)


def _print_summaries(results: Mapping[str, Result], options: argparse.Namespace) -> None:
    asked = {n: getattr(options, n) for n in _ONLY_TEXT if getattr(options, n) is not None}
    for name, result in results.items():  # before anything prints
        known = inspect.signature(result.summary).parameters
        if other := [option for option in asked if option not in known]:
            raise RequestError(
                f"--{other[0]} has no meaning for {name!r}; name the analyses that it is for"
            )
    for result in results.values():
        summary: Callable[..., str] = result.summary
        if options.most is not None and "most" in inspect.signature(summary).parameters:
            summary = partial(summary, most=options.most)
        show(summary(alpha=options.alpha, target=options.target, **asked), end="\n\n")


def _frame_of(result: Result, options: Mapping[str, Any]) -> pd.DataFrame:
    """The frame of a result with those options of `infer` that it takes."""
    known = inspect.signature(result.to_frame).parameters
    frame = result.to_frame(**{o: value for o, value in options.items() if o in known})
    numbers = frame.select_dtypes("float").columns
    return frame.assign(**{name: frame[name] + 0.0 for name in numbers})  # no zero is negative


def _as_csv(frames: Mapping[str, pd.DataFrame]) -> str:
    import pandas as pd

    tables = []
    for name, frame in frames.items():
        renamed = frame.rename(columns={"analysis": level_name("analysis", frame.columns)})
        renamed.insert(0, "analysis", name)
        tables.append(renamed)
    whole = pd.concat(tables, ignore_index=True, join="outer")
    return str(whole.to_csv(index=False, lineterminator="\n"))


def _as_json(
    results: Mapping[str, Result],
    frames: Mapping[str, pd.DataFrame],
    analyses: Mapping[str, Mapping[str, Any]],
    options: Mapping[str, Any],
) -> str:
    """A list of results, each with its table and what it says beside it."""
    found = []
    for name in frames:
        result = results[name]
        one: dict[str, Any] = {"name": name, "analysis": analyses[name], "title": result.title}
        one |= {"headline": result.headline, **options}
        one |= {key: getattr(result, key) for key in _SINGLE if hasattr(result, key)}
        if "conf_low" not in frames[name] and hasattr(result, "conf_int"):  # that of the effect
            taken = inspect.signature(result.conf_int).parameters
            one["conf_int"] = result.conf_int(**{o: v for o, v in options.items() if o in taken})
        one["table"] = frames[name].to_dict("records")
        for key in ("budget", "notes"):
            if hasattr(result, key):
                one[key] = getattr(result, key)
        found.append(_plain(one))
    return json.dumps(found, indent=1, ensure_ascii=False, allow_nan=False)


def _plain(value: Any) -> Any:
    """Values that JSON has: NaN as null, infinities as the texts "inf" and "-inf"."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, np.generic | np.ndarray):
        return _plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else str(value)
    if isinstance(value, datetime):  # of a frame; NaT is one too
        return None if value != value else value.date().isoformat()
    if value is None or isinstance(value, str | int | float | bool):
        return value
    return str(value)


def _add_question(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("release", type=a_path, help="release.zip")
    parser.add_argument(
        "query",
        help="a condition such as \"smoker == 'yes' and age >= 65\", the name of a planned "
        "analysis, or an analysis such as \"Mean('age', given=\"smoker == 'yes'\")\"",
    )
    parser.add_argument("--given", metavar="CONDITION", help="the share among the rows with it")
    parser.add_argument("--minus", metavar="CONDITION", help="the difference of the two shares")
    parser.add_argument("--over", metavar="CONDITION", help="the ratio of the two shares")
    parser.add_argument(
        "--alpha", type=float, default=0.05, help="error probability (default: 0.05)"
    )
    parser.add_argument(
        "--totals", action="store_true", help="use public totals, which the custodian asserts"
    )


def _ask(question: str, options: argparse.Namespace) -> None:
    """Ask `Release.explain` or `Release.bound`, of an analysis where the query is a call of one."""
    from dpstats.analyses.registry import analysis_from_text, is_call
    from dpstats.releases.opening import open_release

    release, query = open_release(options.release), options.query
    names = ("given", "minus", "over", "alpha", "target", "totals")
    given = {name: getattr(options, name) for name in names if hasattr(options, name)}
    show(
        getattr(release, question)(analysis_from_text(query) if is_call(query) else query, **given)
    )
