"""The command init, which writes a schema to fill in."""

from __future__ import annotations

import argparse

from dpstats.cli.arguments import TABLE, Commands, a_path, check_ending
from dpstats.terminal import say, show


def add_commands(commands: Commands) -> None:
    """Add init."""
    init = commands.add_parser(
        "init", help="write a schema to fill in, from the names of the columns alone"
    )
    init.add_argument("data", type=a_path, nargs="?", help=f"{TABLE}; only its header is read")
    init.add_argument("--header", metavar="A,B,C", help="names of the columns, instead of a file")
    init.add_argument("--encoding", help="of a text file, such as latin-1; default: utf-8")
    init.add_argument("--delimiter", help="of a text file; default: that of its first line")
    init.add_argument("--decimal", help="decimal mark of a text file, . or ,")
    init.add_argument("-o", "--output", type=a_path, required=True, help="survey.toml")
    init.add_argument("--overwrite", action="store_true", help="overwrite an existing output")
    init.set_defaults(run=_init)


def _init(options: argparse.Namespace) -> None:
    from dpstats import files
    from dpstats.checks import counted
    from dpstats.errors import RequestError
    from dpstats.private.header import header_of, named
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
    names = named(options.header) if options.data is None else header_of(options.data, file)
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
