"""The commands show and report: what a file of dpstats holds, as text and as a page."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

from dpstats.cli.arguments import Commands, a_path, add_output, check_ending, read_like
from dpstats.errors import RequestError
from dpstats.terminal import progress, say, show

if TYPE_CHECKING:
    import pandas as pd

    from dpstats.analyses.base import Analysis
    from dpstats.measured.measurements import Measurements
    from dpstats.planning.plan import Plan
    from dpstats.releases.release import Release
    from dpstats.results.base import Result

_MOST = 60  # rows of the table of measurements


def add_commands(commands: Commands) -> None:
    """Add show and report."""
    shown = commands.add_parser("show", help="print what a file of dpstats holds")
    shown.add_argument("file", type=a_path, help="a release, measurements, a plan or a ledger")
    form = shown.add_mutually_exclusive_group()
    form.add_argument(
        "--croissant", action="store_true", help="describe a release in Croissant (JSON-LD)"
    )
    form.add_argument(
        "--frictionless", action="store_true", help="the schema as a Frictionless Table Schema"
    )
    form.add_argument(
        "--parquet", type=a_path, metavar="FILE", help="write the rows to a Parquet file"
    )
    shown.add_argument(
        "--overwrite", action="store_true", help="overwrite an existing --parquet file"
    )
    shown.set_defaults(run=_show)

    report = commands.add_parser("report", help="write a release as one HTML page")
    report.add_argument("release", type=a_path, help="release.zip")
    add_output(report, "report.html")
    report.add_argument(
        "--audience",
        choices=("analysts", "board"),
        default="analysts",
        help="analysts (default): results, certificate and limits; board: what leaves the building "
        "and by which proof, for the custodian and those who decide on the release",
    )
    report.add_argument(
        "--like",
        type=a_path,
        metavar="FILE",
        help="compare the widths with those expected of rows like these: release.zip, or a .toml "
        "file with [guesses], such as the request (a release holds no guesses)",
    )
    report.add_argument("--title", help="heading of the page")
    report.set_defaults(run=_report)


def _show(options: argparse.Namespace) -> None:
    from dpstats.files import as_document
    from dpstats.privacy.ledger import Ledger
    from dpstats.releases.opening import open_file, open_release

    if options.croissant:
        found = open_release(options.file)
        show(as_document(found.to_croissant(options.file.stem, file=options.file)), wrap=False)
        return
    if options.parquet is not None:
        found = open_release(options.file)
        found.to_parquet(options.parquet, overwrite=options.overwrite)
        show(f"wrote {found.k} rows to {options.parquet}")
        return
    held = open_file(options.file)
    if options.frictionless:
        if isinstance(held, Ledger):
            raise RequestError(f"{options.file.name} is a ledger, which has no schema")
        show(as_document(held.schema.to_frictionless()), wrap=False)
    elif isinstance(held, Ledger):
        show(f"{held}\n\n{held.table()}")
    else:
        show("\n\n".join([str(held), *_parts(held)]))


def _parts(held: Release | Measurements | Plan) -> list[str]:
    from dpstats.checks import lines_shown
    from dpstats.display import fitted_table, line_width
    from dpstats.results.rendering import more_rows

    table, title, whole = _measured(held)
    table = table[["first_function", *table.columns.drop("first_function")]]
    most = lines_shown(len(table), _MOST)
    cells = [[_cell(value) for value in row] for row in table.head(most).itertuples(index=False)]
    text = [j for j, name in enumerate(table.columns) if table[name].dtype.kind not in "if"]
    shown = "\n".join(fitted_table(list(table.columns), cells, text, line_width(sys.stdout)))
    left = len(table) - most
    more = f"\n\n{more_rows(left, whole).partition(';')[0]}" if left > 0 else ""
    return [f"Schema\n{held.schema}", "\n".join(_analyses(held)), f"{title}\n{shown}{more}"]


def _cell(value: object) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def _analyses(held: Release | Measurements | Plan) -> list[str]:
    """The planned analyses as they are written; of those that cannot be read here, the reason."""
    from dpstats.analyses.registry import spelled
    from dpstats.planning.plan import Plan
    from dpstats.releases.release import Release, read_analyses

    analyses: Mapping[str, Analysis[Result]]
    unread: dict[str, str] = {}
    if isinstance(held, Plan):
        analyses = held.analyses
    else:
        measurements = held.measurements if isinstance(held, Release) else held
        analyses, unread = read_analyses(measurements)
    lines = (f"{name}: {spelled(one)}" for name, one in analyses.items())
    return ["Analyses", *lines, *unread.values()]


def _measured(held: Release | Measurements | Plan) -> tuple[pd.DataFrame, str, str]:
    """A table of the blocks, its title, and the code that gives all of it."""
    import pandas as pd

    from dpstats.measured.contents import describe
    from dpstats.planning.plan import Plan
    from dpstats.releases.release import Release

    if isinstance(held, Release):
        table = held.measured()
        title = "Measured: these and what follows from them can be inferred (noise_sd is of means)"
        whole = "release.measured()"
    else:
        strategy = held.strategy
        start = held.start if isinstance(held, Plan) else None
        before = () if start is None else start.strategy.blocks
        rows = [
            (
                *describe(planned.block),
                strategy.budget.natural_scale(planned.multiplier) / strategy.row_weight,
            )
            for planned in strategy.blocks
            if planned not in before
        ]
        names = ["kind", "columns", "functions", "first_function", "options", "noise_scale"]
        table = pd.DataFrame(rows, columns=names)
        what = "Blocks that will be measured" if isinstance(held, Plan) else "Measured blocks"
        title = f"{what} (noise_scale is in rows, for functions in [-1, 1])"
        whole = "plan.strategy.blocks" if isinstance(held, Plan) else "measurements.strategy.blocks"
    return table if table["options"].any() else table.drop(columns=["options"]), title, whole


def _report(options: argparse.Namespace) -> None:
    from dpstats.releases.opening import open_release
    from dpstats.releases.paid import check_apart
    from dpstats.reports.pictures import can_draw
    from dpstats.reports.report import report

    check_apart(options.output, {"release": options.release, "pattern": options.like})
    check_ending(options.output, "a report is a page", ".html", "; print it to PDF in a browser")
    release = open_release(options.release)
    if options.audience == "analysts" and not can_draw():
        say("dpstats: no figures: install matplotlib with: pip install 'dpstats[plots]'")
    like = None if options.like is None else read_like(options.like)
    report(
        release, options.output, audience=options.audience, title=options.title, like=like,
        overwrite=options.overwrite, progress=progress(),
    )  # fmt: skip
    show(f"written to {options.output}", done=f"{options.output} is written")
