"""The command verify, a second opinion on a file by a program that shares nothing with dpstats."""

from __future__ import annotations

import argparse

from dpstats.cli.arguments import Commands, a_path
from dpstats.terminal import show


def add_commands(commands: Commands) -> None:
    """Add verify."""
    verify = commands.add_parser(
        "verify", help="recompute sensitivities, budget and certificate from the file alone"
    )
    verify.add_argument("file", type=a_path, help="a release, measurements or a plan")
    verify.set_defaults(run=_verify)


def _verify(options: argparse.Namespace) -> bool:
    """Print the argument; False if anything does not agree or cannot be decided."""
    from dpstats import files
    from dpstats.errors import FileFormatError
    from dpstats.releases.opening import not_wanted
    from dpstats.verifying.arguing import verify
    from dpstats.verifying.shapes import NotReadError

    try:
        verdict = verify(options.file)
    except NotReadError as error:
        wanted = ("a release, measurements or a plan", "a release", "measurements", "a plan")
        ours = files.read_bytes(options.file, most=2).startswith((b"PK", b"{"))  # but damaged
        if not ours or files.mistaken(options.file, *wanted):
            raise not_wanted(options.file, *wanted) from None
        raise FileFormatError(str(error)) from None
    show(verdict.text)
    return verdict.agrees
