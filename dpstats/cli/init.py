"""The command init, which writes a schema to fill in."""

from __future__ import annotations

import argparse
from pathlib import Path

from dpstats.cli.arguments import TABLE, Commands
from dpstats.terminal import say, show


def add_commands(commands: Commands) -> None:
    """Add init."""
    init = commands.add_parser(
        "init", help="write a schema to fill in, from the names of the columns alone"
    )
    init.add_argument("data", type=Path, nargs="?", help=f"{TABLE}; only its header is read")
    init.add_argument("--header", metavar="A,B,C", help="names of the columns, instead of a file")
    init.add_argument("-o", "--output", type=Path, required=True, help="survey.toml")
    init.add_argument("--force", action="store_true", help="overwrite an existing output")
    init.set_defaults(run=_init)


def _init(options: argparse.Namespace) -> None:
    from dpstats import files
    from dpstats.checks import counted
    from dpstats.errors import RequestError
    from dpstats.private.header import header_of, named
    from dpstats.releases.paid import check_apart
    from dpstats.schema.template import template

    if (options.data is None) == (options.header is None):
        raise RequestError("give a table, or --header with the names of its columns, and not both")
    check_apart(options.output, {} if options.data is None else {"table": options.data})
    names = named(options.header) if options.data is None else header_of(options.data)
    text = template(names)
    files.write_atomically(options.output, text.encode(), overwrite=options.force)
    show(
        f"{counted(len(names), 'column')} written to {options.output}; complete it before you plan",
        done=f"{options.output} is written",
    )
    if options.data is not None:
        say(
            "dpstats: the names are the header of the table. If that is a person's row, delete "
            f"{options.output}, and name the columns with --header"
        )
