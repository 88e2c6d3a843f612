"""Commands before any row is spent on: init, preview, plan, check."""

from __future__ import annotations

import argparse
import io
from typing import TYPE_CHECKING

from dpstats.cli.arguments import (
    TABLE,
    Commands,
    a_path,
    add_output,
    budget_of,
    check_ending,
    read_like,
    read_plan,
)
from dpstats.errors import DataError, RequestError
from dpstats.terminal import progress, say, show

if TYPE_CHECKING:
    from dpstats.planning.plan import Plan
    from dpstats.releases import Release
    from dpstats.schema import Guesses

_FIGURES = ("svg", "png", "pdf")
_TARGETS = ("width", "delta", "power", "budget", "alpha", "method", "alternative", "null", "term")
_UNREAD = 4  # the exit code of a check: some column has no cell that can be read


def add_commands(commands: Commands) -> None:
    """Add init, preview, plan and check."""
    init = commands.add_parser(
        "init", help="write a schema to fill in, from the names of the columns alone"
    )
    init.add_argument("data", type=a_path, nargs="?", help=f"{TABLE}; only its header is read")
    init.add_argument("--header", metavar="A,B,C", help="names of the columns, instead of a file")
    init.add_argument("--encoding", help="of a text file, such as latin-1; default: utf-8")
    init.add_argument("--delimiter", help="of a text file; default: that of its first line")
    init.add_argument("--decimal", help="decimal mark of a text file, . or ,")
    add_output(init, "survey.toml")
    init.set_defaults(run=_init)

    preview = commands.add_parser(
        "preview", help="show functions, noise and interval widths; reads no data"
    )
    preview.add_argument("request", type=a_path, help="request.toml or plan.json")
    preview.add_argument(
        "--n", type=int, help="assumed number of rows, instead of those of the request"
    )
    preview.add_argument(
        "--like",
        type=a_path,
        metavar="FILE",
        help="what simulated rows resemble: release.zip, or a .toml file with [guesses] (default: "
        "the guesses of the request)",
    )
    preview.add_argument(
        "--curve",
        action="store_true",
        help="interval widths of every analysis against the budget, an eighth to eight times as "
        "much; a table, or with -o a figure",
    )
    preview.add_argument(
        "--of",
        action="append",
        metavar="NAME",
        help="the analysis that --width, --delta or --power is for; or one that --curve shows, "
        "instead of all. May be repeated",
    )
    add_output(preview, "for --curve: curve.svg (or .png, .pdf)", required=False)
    _add_solve(preview)
    preview.set_defaults(run=_preview)

    plan = commands.add_parser("plan", help="write a plan for approval")
    plan.add_argument("request", type=a_path, help="request.toml")
    add_output(plan, "plan.json")
    plan.add_argument(
        "--n",
        type=int,
        help="public number of rows, checked at release; with --person the exact number of rows "
        'that are used, which is not needed with unit = "add_remove" in the request',
    )
    plan.add_argument(
        "--rows-per-person", type=int, metavar="K", help="the most rows of any one person"
    )
    plan.add_argument(
        "--person", metavar="COLUMN", help="the column that tells persons apart; never published"
    )
    plan.add_argument(
        "--person-totals",
        action="store_true",
        default=None,
        help="measure squares and products of person totals for the intervals of all analyses "
        "that use them",
    )
    plan.add_argument(
        "--start", type=a_path, metavar="RELEASE", help="release.zip to add second stages to"
    )
    plan.set_defaults(run=_plan)

    check = commands.add_parser(
        "check", help="show how a table fits the schema; for your screen only, not private"
    )
    check.add_argument("plan", type=a_path, help="plan.json or request.toml")
    check.add_argument("data", type=a_path, help=TABLE)
    check.set_defaults(run=_check, failed=_UNREAD)


def _add_solve(parser: argparse.ArgumentParser) -> None:
    solve = parser.add_argument_group(
        "the least budget, or number of rows",
        "for the analysis --of NAME: give --width, --delta or --power. With a number of rows "
        "(--n, or in the request) it finds the least budget, with --budget the least number of "
        "rows",
    )
    solve.add_argument("--width", type=float, help="wanted width of its intervals")
    solve.add_argument("--delta", type=float, help="wanted error of the rows over its functions")
    solve.add_argument("--power", type=float, help="wanted power of its test")
    solve.add_argument("--budget", help="epsilon (or rho) of the whole plan, such as 2 or 1/3")
    solve.add_argument("--alpha", type=float, help="level of the interval or test (default: 0.05)")
    solve.add_argument("--method", choices=("noise_aware", "certified"), help="of the interval")
    solve.add_argument(
        "--alternative", metavar="EFFECT", help="for --power: one number, or several with commas"
    )
    solve.add_argument("--null", type=float, help="for --power: value of the null hypothesis")
    solve.add_argument(
        "--term", help="for --power or --width: the coefficient, pair or cell that is meant"
    )


def _init(options: argparse.Namespace) -> None:
    from dpstats import files
    from dpstats.checks import counted
    from dpstats.private.header import read_header, read_names
    from dpstats.releases.paid import check_apart
    from dpstats.schema import TextFile
    from dpstats.schema.template import looks_like_key, template

    if (options.data is None) == (options.header is None):
        raise RequestError(
            "give a table, or --header with the names of its columns, and not both, as in "
            "'dpstats init survey.csv -o survey.toml' or 'dpstats init --header age,sex -o "
            "survey.toml'"
        )
    check_apart(options.output, {} if options.data is None else {"table": options.data})
    check_ending(options.output, "a schema template is a TOML file", ".toml")
    every = {key: getattr(options, key) for key in ("encoding", "decimal", "delimiter")}
    given = {key: value for key, value in every.items() if value is not None}
    file = TextFile(**given)
    names = read_names(options.header) if options.data is None else read_header(options.data, file)
    text = template(names, given)
    files.write_atomically(options.output, text.encode(), overwrite=options.overwrite)
    keys = [name for name in names if looks_like_key(name)]
    written = counted(len(names) - len(keys), "column")
    show(
        f"{written} written to {options.output}; complete it before you plan",
        done=f"{options.output} is written",
    )
    for name in keys:
        say(f"dpstats: {name!r} looks like a key and is not declared; its comment says what to do")
    if len(names) == 1 and (marks := [mark for mark in "|:^~" if mark in names[0]]):
        say(
            f"dpstats: the first line is one field; if {marks[0]} separates its names, add "
            f"--delimiter '{marks[0]}'"
        )
    if options.data is not None:
        say(
            "dpstats: the names are the header of the table. If that is a person's row, delete "
            f"{options.output}, and name the columns with --header in place of the table"
        )


def _preview(options: argparse.Namespace) -> None:
    given = {
        name: getattr(options, name) for name in _TARGETS if getattr(options, name) is not None
    }
    plan = read_plan(options.request, rows=options.n)
    like = None if options.like is None else read_like(options.like)
    if options.output is not None and not options.curve:
        raise RequestError("-o is for the figure of --curve")
    if options.curve and given:
        raise RequestError(f"--{next(iter(given))} and --curve exclude each other")
    if options.curve:
        _curve(plan, like, options)
        return
    if not given and not options.of:
        show(plan.preview(options.n, like=like, progress=progress()))
        return
    if "budget" in given:
        delta = getattr(plan.budget, "delta", None)
        given["budget"] = budget_of(given["budget"], plan.budget.kind, "--budget", delta)
    if "alternative" in given:
        given["alternative"] = _effect(given["alternative"])
    if not given or len(options.of or ()) != 1:
        raise RequestError(
            "give one --of NAME with --width, --delta or --power; or --curve, with any --of"
        )
    (of,) = options.of
    show(plan.solve(of=of, n=options.n, like=like, progress=progress(), **given))


def _curve(plan: Plan, like: Release | Guesses | None, options: argparse.Namespace) -> None:
    from dpstats.files import check_place, write_atomically
    from dpstats.plots.curves import check_drawn, curve
    from dpstats.releases.paid import check_apart

    place = options.output
    if place is None:
        show(plan.curve(options.n, of=options.of, like=like, progress=progress()))
        return
    check_apart(place, {"request": options.request, "pattern": options.like})
    form = place.suffix.lower().lstrip(".")
    if form not in _FIGURES:
        raise RequestError(f"name the figure .{', .'.join(_FIGURES)}, as in curve.svg")
    check_place(place, overwrite=options.overwrite)
    check_drawn(len(plan.analyses if options.of is None else options.of))
    try:
        from matplotlib import pyplot
    except ImportError:
        raise RequestError(
            "figures need matplotlib; install it with: pip install 'dpstats[plots]'"
        ) from None
    widths = plan.curve(options.n, of=options.of, like=like, progress=progress())
    pyplot.switch_backend("Agg")
    figure, ax = pyplot.subplots(layout="constrained")
    curve(widths, ax=ax)
    buffer = io.BytesIO()
    figure.savefig(buffer, format=form)
    pyplot.close(figure)
    write_atomically(place, buffer.getvalue(), overwrite=options.overwrite)
    show(f"written to {place}", done=f"{place} is written")


def _effect(text: str) -> float | list[float]:
    try:
        numbers = [float(part) for part in text.split(",")]
    except ValueError:
        raise RequestError(
            f"--alternative must be a number, or several with commas such as 0.3,0.2; got {text!r}"
        ) from None
    return numbers[0] if len(numbers) == 1 else numbers


def _plan(options: argparse.Namespace) -> None:
    from dpstats.releases.paid import check_apart

    plan = read_plan(
        options.request, rows=options.n, rows_per_person=options.rows_per_person,
        person=options.person, person_totals=options.person_totals, start=options.start,
    )  # fmt: skip
    check_apart(options.output, {"request": options.request, "start": options.start})
    check_ending(options.output, "a plan is a JSON file", ".json")
    plan.save(options.output, overwrite=options.overwrite)
    show(f"{plan}\nwritten to {options.output}", done=f"{options.output} is written")


def _check(options: argparse.Namespace) -> bool:
    """Print the fit; whether every column has a cell that can be read."""
    from dpstats.checks import columns_named
    from dpstats.private.fit_of_schema import check

    fit = check(read_plan(options.plan), options.data)
    show(fit)
    if fit.absent:
        raise DataError(
            f"the table has no {columns_named(fit.absent)}: it cannot be released under this plan; "
            "correct the names in its header, or in the schema"
        )
    if fit.refused:
        raise DataError(
            "this table cannot be released under this plan: its number of rows would be refused, "
            "for the reason that is printed with the fit"
        )
    return not fit.unread
