"""The command ledger, which starts and shows the record of spent budget."""

from __future__ import annotations

import argparse

from dpstats.cli.arguments import Commands, a_path, budget_of, number_of
from dpstats.errors import RequestError
from dpstats.terminal import show


def add_commands(commands: Commands) -> None:
    """Add ledger."""
    ledger = commands.add_parser("ledger", help="create or show the record of spent budget")
    actions = ledger.add_subparsers(required=True, metavar="ACTION")
    new = actions.add_parser("new", help="create a ledger with a cap")
    new.add_argument("file", type=a_path)
    new.add_argument("--cap", required=True, help="largest total epsilon, such as 2 or 1/3")
    new.add_argument(
        "--kind",
        choices=("pure", "zcdp", "approx"),
        default="pure",
        help="kind of the budgets; with zcdp the cap is the largest total rho, with approx the "
        "epsilon of all releases together at --delta (default: pure)",
    )
    new.add_argument("--delta", help="of --kind approx, such as 1e-9")
    new.add_argument(
        "--unit", choices=["replace", "add_remove"], default="replace",
        help="neighbour relation of all entries",
    )  # fmt: skip
    new.add_argument(
        "--rows-per-person", type=int, default=1, metavar="K",
        help="the most rows of one person, in all entries (default: 1)",
    )  # fmt: skip
    new.add_argument(
        "--person", metavar="COLUMN",
        help="the column that tells persons apart in all entries, whatever rows of them are used",
    )  # fmt: skip
    new.set_defaults(run=_new_ledger)
    spent = actions.add_parser("show", help="print cap, spent and remaining budget")
    spent.add_argument("file", type=a_path)
    spent.set_defaults(run=_show_ledger)


def _new_ledger(options: argparse.Namespace) -> None:
    from dpstats.privacy.ledger import Ledger

    if (options.delta is None) == (options.kind == "approx"):
        raise RequestError("give --delta with --kind approx, and with no other kind")
    if options.person is not None and options.rows_per_person != 1:
        raise RequestError(
            "a ledger with --person counts persons, whatever rows of them are used: leave "
            "--rows-per-person out"
        )
    delta = None if options.delta is None else number_of(options.delta)
    limit = budget_of(options.cap, options.kind, "--cap", delta)
    ledger = Ledger.create(
        options.file,
        limit,
        unit=options.unit,
        rows_per_person=options.rows_per_person,
        person=options.person,
    )
    show(ledger, done=f"{options.file} is written")


def _show_ledger(options: argparse.Namespace) -> None:
    from dpstats.privacy.ledger import Ledger

    ledger = Ledger.open(options.file)
    show(f"{ledger}\n\n{ledger.table()}")
