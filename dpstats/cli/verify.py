"""Checks: audit, a search for losses above a claim, and verify, a second opinion on a file."""

from __future__ import annotations

import argparse

from dpstats.cli.arguments import Commands, a_path, read_plan
from dpstats.errors import FileFormatError
from dpstats.terminal import progress, show


def add_commands(commands: Commands) -> None:
    """Add audit and verify."""
    audit = commands.add_parser(
        "audit",
        help="search for rows and draws of noise that show more than a plan claims; reads no data",
    )
    audit.add_argument("plan", type=a_path, help="plan.json or request.toml")
    audit.add_argument(
        "--draws", type=int, metavar="N", help="of noise on either table (default: half a minute)"
    )
    audit.add_argument("--json", action="store_true", help="print JSON")
    audit.set_defaults(run=_audit)

    verify = commands.add_parser(
        "verify", help="recompute sensitivities, budget and certificate from the file alone"
    )
    verify.add_argument("file", type=a_path, help="a release, measurements or a plan")
    verify.set_defaults(run=_verify)


def _audit(options: argparse.Namespace) -> bool:
    from dpstats.auditing.audit import audit
    from dpstats.files import to_json

    found = audit(read_plan(options.plan), draws=options.draws, progress=progress())
    show(to_json(found.to_dict()) if options.json else found)
    return found.passed


def _verify(options: argparse.Namespace) -> bool:
    """Print the argument; False if anything does not agree or cannot be decided."""
    from dpstats import files
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
