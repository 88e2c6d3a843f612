"""The command that writes a page: report."""

from __future__ import annotations

import argparse

from dpstats.cli.arguments import Commands, a_path, check_ending, read_like
from dpstats.terminal import progress, say, show


def add_commands(commands: Commands) -> None:
    """Add report."""
    report = commands.add_parser("report", help="write a release as one HTML page")
    report.add_argument("release", type=a_path, help="release.zip")
    report.add_argument("-o", "--output", type=a_path, required=True, help="report.html")
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
    report.add_argument("--overwrite", action="store_true", help="overwrite an existing output")
    report.set_defaults(run=_report)


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
    done = f"{options.output} is written"
    show(f"written to {options.output}", done=done)
