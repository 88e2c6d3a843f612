"""The command show, which prints what a file of dpstats holds; it reads that file alone."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from dpstats.cli.arguments import Commands
from dpstats.terminal import show

if TYPE_CHECKING:
    from dpstats.releases.release import Release

_MOST = 60  # rows of the table of measurements


def add_commands(commands: Commands) -> None:
    """Add show."""
    shown = commands.add_parser("show", help="print what a file of dpstats holds")
    shown.add_argument("file", type=Path, help="a release, measurements, a plan or a ledger")
    form = shown.add_mutually_exclusive_group()
    form.add_argument(
        "--croissant", action="store_true", help="describe a release in Croissant (JSON-LD)"
    )
    form.add_argument(
        "--frictionless",
        action="store_true",
        help="the schema of a release, measurements or a plan as a Frictionless Table Schema",
    )
    shown.set_defaults(run=_show)


def _show(options: argparse.Namespace) -> None:
    from dpstats.privacy.ledger import Ledger
    from dpstats.releases.opening import open_file, open_release
    from dpstats.releases.release import Release

    if options.croissant:
        from dpstats.files import as_document

        found = open_release(options.file)
        show(as_document(found.to_croissant(options.file.stem, file=options.file)))
        return
    held = open_file(options.file)
    if options.frictionless:
        from dpstats.errors import RequestError
        from dpstats.files import as_document

        if isinstance(held, Ledger):
            raise RequestError(f"{options.file.name} is a ledger, which has no schema")
        show(as_document(held.schema.to_frictionless()))
    elif isinstance(held, Ledger):
        show(f"{held}\n\n{held.table()}")
    elif isinstance(held, Release):
        show("\n\n".join([str(held), *_parts(held)]))
    else:
        show(held)


def _parts(release: Release) -> list[str]:
    """The schema, the planned analyses as they are written, and what was measured."""
    from dpstats.analyses.registry import spelled
    from dpstats.results.rendering import more_rows

    measured = release.measured()
    table = measured.drop(columns=["options"]) if not measured["options"].any() else measured
    shown = table.head(_MOST).to_string(index=False, float_format="{:.3g}".format)
    left = len(table) - _MOST
    return [
        f"Schema\n{release.schema}",
        "Analyses\n" + "\n".join(f"{name}: {spelled(a)}" for name, a in release.analyses.items()),
        "Measured: these and what follows from them can be inferred (noise_sd is of means)\n"
        + shown
        + (f"\n{more_rows(left, 'release.measured()').partition(';')[0]}" if left > 0 else ""),
    ]
