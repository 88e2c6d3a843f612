"""The command audit, which searches a plan and the noise source for what passes their claims."""

from __future__ import annotations

import argparse

from dpstats.cli.arguments import Commands, a_path, read_plan
from dpstats.terminal import progress, show


def add_commands(commands: Commands) -> None:
    """Add audit."""
    audit = commands.add_parser(
        "audit",
        help="search for rows and draws of noise that show more than a plan claims; reads no data",
    )
    audit.add_argument("plan", type=a_path, help="plan.json or request.toml")
    audit.add_argument(
        "--draws",
        type=int,
        metavar="N",
        help="releases of noise on either of two tables (default: about half a minute's)",
    )
    audit.add_argument("--json", action="store_true", help="print JSON")
    audit.set_defaults(run=_audit)


def _audit(options: argparse.Namespace) -> bool:
    """Whether the audit passed."""
    from dpstats.auditing.audit import audit
    from dpstats.files import to_json

    found = audit(read_plan(options.plan), draws=options.draws, progress=progress())
    show(to_json(found.to_dict()) if options.json else found)
    return found.passed
