"""The command line. Results go to stdout, progress and errors to stderr."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from pathlib import Path

from dpstats import __version__
from dpstats.cli import infer, ledger, plan, release, show, verify
from dpstats.cli.arguments import add_output, register_from
from dpstats.errors import BudgetError, DpstatsError
from dpstats.terminal import Unprinted, clear_progress, close_output, prepare_streams, progress, say

DONE, FAILED, REFUSED, OVER_BUDGET = 0, 1, 2, 3
_EXITS = (
    "exit codes: 0 done, 1 unexpected failure, or no pass of audit or verify, 2 a request, table "
    "or file was refused, 3 the privacy budget does not allow it, 4 a column has no cell that "
    "'dpstats check' can read"
)

_WITH = (  # commands that read analyses
    "plan", "preview", "check", "audit", "release", "synthesize", "show", "infer", "explain",
    "bound", "report",
)  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    prepare_streams()
    options = _options(arguments)
    # Threads in BLAS gain nothing here and wait for each other on a busy machine.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    try:
        for path in getattr(options, "own", ()):
            register_from(path)
        run = options.run
        passed = run(options)
    except BudgetError as error:
        say(f"dpstats: {error}")
        return OVER_BUDGET
    except DpstatsError as error:
        say(f"dpstats: {error}")
        return REFUSED
    except BrokenPipeError:  # the reader of the results closed it, as in `dpstats ... | head`
        close_output()
        return DONE
    except Unprinted as error:
        say(f"dpstats: {error}")
        close_output()
        return FAILED
    except OSError as error:
        say(f"dpstats: {error.filename or 'a file'}: {error.strerror}")
        return REFUSED
    except KeyboardInterrupt as stopped:  # perhaps with when, and what that means
        say(f"\ndpstats: {' '.join(['interrupted', *map(str, stopped.args)])}")
        return FAILED
    finally:
        clear_progress()
    return getattr(options, "failed", FAILED) if passed is False else DONE


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The options; names of analyses may stand after options too, which argparse does not read."""
    parser = _parser()
    options, rest = parser.parse_known_args(arguments)
    if rest and (not hasattr(options, "names") or any(one.startswith("-") for one in rest)):
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    if rest:
        options.names = [*options.names, *rest]
    return options


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="dpstats",
        description="Statistics on private data, with valid confidence intervals and tests.",
        epilog=_EXITS,
    )
    parser.add_argument("--version", action="version", version=f"dpstats {__version__}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")

    demo = commands.add_parser(
        "demo", help="run an end-to-end example on a bundled public data set"
    )
    add_output(demo, "default: dpstats-demo.zip, which is overwritten", required=False)
    demo.add_argument(
        "--rng", type=int, default=1, help="seed of candidates and rows, never of noise"
    )
    demo.set_defaults(run=_demo)
    for group in (plan, release, show, infer, verify, ledger):
        group.add_commands(commands)
    for name in _WITH:
        commands.choices[name].add_argument(
            "--with",
            dest="own",
            type=Path,
            action="append",
            default=[],
            metavar="FILE.py",
            help="run a Python file that registers analyses of your own. May be repeated",
        )
    return parser


def _demo(options: argparse.Namespace) -> None:
    from dpstats.demo import run_demo

    output = options.output or Path("dpstats-demo.zip")
    overwrite = options.overwrite or options.output is None
    run_demo(output, seed=options.rng, progress=progress(), overwrite=overwrite)
