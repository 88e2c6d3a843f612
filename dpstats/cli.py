"""The command line. Results go to stdout, progress and errors to stderr."""

from __future__ import annotations

import argparse
import inspect
import os
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from dpstats import __version__
from dpstats.errors import BudgetError, DpstatsError
from dpstats.terminal import (
    Unprinted,
    agrees,
    as_flags,
    as_options,
    attended,
    close_output,
    prepare_streams,
    progress,
    say,
    show,
)

if TYPE_CHECKING:
    from dpstats.measured.measurements import Measurements
    from dpstats.planning.plan import Plan
    from dpstats.privacy.budget import Budget

DONE, FAILED, REFUSED, OVER_BUDGET = 0, 1, 2, 3
_TARGETS = ("width", "delta", "power", "budget", "alpha", "method", "alternative", "null", "term")
_SHOWN = ("simultaneous", "method", "adjust", "penalty")
_TABLE = "a .csv or .tsv file, which may be gzipped (.gz), or a .parquet file"
_EXITS = (
    "exit codes: 0 done, 1 unexpected failure, 2 a request, table or file was refused, "
    "3 the privacy budget does not allow it"
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    prepare_streams()
    options = _parser().parse_args(arguments)
    # Threads in BLAS gain nothing here and wait for each other on a busy machine.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    try:
        run = options.run
        run(options)
    except BudgetError as error:
        say(f"dpstats: {as_flags(str(error))}")
        return OVER_BUDGET
    except DpstatsError as error:
        say(f"dpstats: {as_flags(str(error))}")
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
    except KeyboardInterrupt:
        say("dpstats: interrupted")
        return FAILED
    return DONE


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
    demo.add_argument(
        "-o", "--output", type=Path, help="default: dpstats-demo.zip, which is overwritten"
    )
    demo.add_argument("--force", action="store_true", help="overwrite an existing output")
    demo.add_argument(
        "--seed", type=int, default=1, help="seed of candidates and rows, never of noise"
    )
    demo.set_defaults(run=_demo)

    preview = commands.add_parser(
        "preview", help="show functions, noise and interval widths; reads no data"
    )
    preview.add_argument("request", type=Path, help="request.toml or plan.json")
    preview.add_argument("--rows", type=int, help="assumed number of rows")
    preview.add_argument(
        "--like",
        type=Path,
        metavar="RELEASE",
        help="release.zip of rows that resemble the real ones",
    )
    _add_solve(preview)
    preview.set_defaults(run=_preview)

    plan = commands.add_parser("plan", help="write a plan for approval")
    plan.add_argument("request", type=Path, help="request.toml")
    plan.add_argument("-o", "--output", type=Path, required=True, help="plan.json")
    plan.add_argument("--force", action="store_true", help="overwrite an existing output")
    plan.add_argument("--rows", type=int, help="public number of rows, checked at release")
    plan.set_defaults(run=_plan)

    check = commands.add_parser(
        "check", help="show how a table fits the schema; for your screen only, not private"
    )
    check.add_argument("plan", type=Path, help="plan.json or request.toml")
    check.add_argument("data", type=Path, help=_TABLE)
    check.set_defaults(run=_check)

    release = commands.add_parser("release", help="measure a table once and write a release")
    release.add_argument("plan", type=Path, help="plan.json or request.toml")
    release.add_argument("data", type=Path, help=_TABLE)
    release.add_argument("-o", "--output", type=Path, required=True, help="release.zip")
    release.add_argument("--force", action="store_true", help="overwrite an existing output")
    looked = release.add_mutually_exclusive_group()
    looked.add_argument(
        "--checked", action="store_true", help="somebody has looked at 'dpstats check' before"
    )
    looked.add_argument("--unchecked", action="store_true", help="release without such a look")
    release.add_argument(
        "--ledger", type=Path, help="ledger file: the budget spent on this data set"
    )
    _add_synthesis(release)
    release.set_defaults(run=_release)

    synthesize = commands.add_parser(
        "synthesize", help="write a release from measurements; spends nothing"
    )
    synthesize.add_argument("measurements", type=Path, help="measurements.zip or release.zip")
    synthesize.add_argument("-o", "--output", type=Path, required=True, help="release.zip")
    synthesize.add_argument("--force", action="store_true", help="overwrite an existing output")
    _add_synthesis(synthesize)
    synthesize.set_defaults(run=_synthesize)

    shown = commands.add_parser("show", help="print what a file of dpstats holds")
    shown.add_argument("file", type=Path, help="a release, measurements, a plan or a ledger")
    shown.set_defaults(run=_show)

    infer = commands.add_parser("infer", help="print the results of a release")
    infer.add_argument("release", type=Path, help="release.zip")
    infer.add_argument("names", nargs="*", help="names of analyses (default: all)")
    infer.add_argument(
        "--alpha",
        type=float,
        default=0.05,
        help="error probability of each interval (default: 0.05)",
    )
    infer.add_argument(
        "--target",
        choices=("population", "table"),
        default="population",
        help="what the intervals cover: the population (default) or the private table itself",
    )
    infer.add_argument(
        "--rows",
        type=_row_limit,
        metavar="N",
        help="print at most so many rows of each table, or all (default: 60)",
    )
    _add_shown(infer)
    infer.set_defaults(run=_infer)

    ledger = commands.add_parser("ledger", help="create or show the record of spent budget")
    actions = ledger.add_subparsers(required=True, metavar="ACTION")
    new = actions.add_parser("new", help="create a ledger with a cap")
    new.add_argument("file", type=Path)
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
    new.set_defaults(run=_new_ledger)
    spent = actions.add_parser("show", help="print cap, spent and remaining budget")
    spent.add_argument("file", type=Path)
    spent.set_defaults(run=_show_ledger)
    return parser


def _add_solve(parser: argparse.ArgumentParser) -> None:
    """The options of `Plan.solve`."""
    solve = parser.add_argument_group(
        "the least budget, or number of rows",
        "for one analysis: --solve NAME with --width, --delta or --power. With a number of rows "
        "(--rows, or in the request) it finds the least budget, with --budget the least number of "
        "rows",
    )
    solve.add_argument("--solve", metavar="NAME", help="name of the analysis")
    solve.add_argument("--width", type=float, help="wanted width of its intervals")
    solve.add_argument("--delta", type=float, help="wanted error of the rows over its functions")
    solve.add_argument("--power", type=float, help="wanted power of its test")
    solve.add_argument("--budget", help="epsilon (or rho) of the whole plan, such as 2 or 1/3")
    solve.add_argument("--alpha", type=float, help="level of the interval or test (default: 0.05)")
    solve.add_argument("--method", choices=("noise_aware", "certified"), help="of the interval")
    solve.add_argument(
        "--alternative", metavar="EFFECT", help="for --power: one number, or several with commas"
    )
    solve.add_argument("--null", type=float, help="for --power: value of the null hypothesis")
    solve.add_argument(
        "--term", help="for --power or --width: the coefficient, pair or cell that is meant"
    )


def _add_shown(parser: argparse.ArgumentParser) -> None:
    """Options of `summary` that some results have; see `_SHOWN`."""
    parser.add_argument(
        "--simultaneous",
        action="store_true",
        default=None,
        help="intervals that cover all parameters of an analysis jointly",
    )
    parser.add_argument(
        "--method",
        choices=("noise_aware", "certified", "shortest"),
        help="of the intervals: noise_aware and certified ones print side by side in any case; "
        "shortest, for proportions and cells, print those of least mean width over all "
        "proportions in place of the noise-aware ones",
    )
    parser.add_argument(
        "--adjust",
        choices=("holm", "fdr_bh", "none"),
        help="of the p-values of a graphical model: Holm's method (default), the false discovery "
        "rate by Benjamini and Hochberg, or none; of means of groups, to print their differences",
    )
    parser.add_argument(
        "--penalty", type=float, help="of a graphical lasso or CLIME: the one whose edges to print"
    )


def _row_limit(text: str) -> int:
    """A number of rows to print."""
    if text == "all":
        return sys.maxsize
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"give a number of rows, or all; got {text!r}")
    return int(text)


def _add_synthesis(parser: argparse.ArgumentParser) -> None:
    """The options of `dps.synthesize`."""
    parser.add_argument("--fit", choices=("entropy", "minimax"), default="entropy")
    parser.add_argument(
        "--solver",
        choices=("columns", "highs", "pulp"),
        default="columns",
        help="for --fit minimax",
    )
    parser.add_argument("--draw", choices=("systematic", "iid"), default="systematic")
    parser.add_argument(
        "--candidates",
        type=int,
        metavar="M",
        help="default: 20000 to 80000, by functions and noise",
    )
    parser.add_argument("--synthetic-rows", type=int, metavar="K", help="default: as many as rows")
    parser.add_argument("--seed", type=int, help="seed of candidates and rows, never of noise")


def _read_plan(path: Path, rows: int | None = None) -> Plan:
    if path.suffix.lower() == ".json":
        from dpstats.planning.plan import Plan

        return Plan.load(path)
    from dpstats.planning.requests import load_request

    return load_request(path, rows=rows)


def _demo(options: argparse.Namespace) -> None:
    from dpstats.demo import run_demo

    output = options.output or Path("dpstats-demo.zip")
    overwrite = options.force or options.output is None
    run_demo(output, seed=options.seed, progress=progress(), overwrite=overwrite)


def _preview(options: argparse.Namespace) -> None:
    from dpstats.errors import RequestError
    from dpstats.releases.opening import open_release

    given = {
        name: getattr(options, name) for name in _TARGETS if getattr(options, name) is not None
    }
    if given and options.solve is None:
        raise RequestError(f"--{next(iter(given))} needs --solve with the name of an analysis")
    plan = _read_plan(options.request, options.rows)
    like = None if options.like is None else open_release(options.like)
    if options.solve is None:
        show(plan.preview(options.rows, like=like, progress=progress()))
        return
    if "budget" in given:
        delta = getattr(plan.budget, "delta", None)
        given["budget"] = _budget(given["budget"], plan.budget.kind, "--budget", delta)
    if "alternative" in given:
        given["alternative"] = _effect(given["alternative"])
    try:
        solved = plan.solve(
            of=options.solve, n=options.rows, like=like, progress=progress(), **given
        )
    except RequestError as error:
        raise RequestError(as_options(str(error))) from None
    show(solved)


def _effect(text: str) -> float | list[float]:
    """An effect size: a number, or several."""
    from dpstats.errors import RequestError

    try:
        numbers = [float(part) for part in text.split(",")]
    except ValueError:
        raise RequestError(
            f"--alternative must be a number, or several with commas such as 0.3,0.2; got {text!r}"
        ) from None
    return numbers[0] if len(numbers) == 1 else numbers


def _plan(options: argparse.Namespace) -> None:
    from dpstats.releases.paid import check_apart

    plan = _read_plan(options.request, options.rows)
    check_apart(options.output, {"request": options.request})
    plan.save(options.output, overwrite=options.force)
    show(f"{plan}\nwritten to {options.output}", done=f"{options.output} is written")


def _check(options: argparse.Namespace) -> None:
    from dpstats.private.fit_of_schema import check

    show(check(_read_plan(options.plan), options.data))


def _let_a_person_look(plan: Plan, options: argparse.Namespace) -> None:
    """Offer the fit of the schema on a terminal; elsewhere a flag says that somebody decided.

    The program decides nothing by the fit: a refusal that depends on the data is an output.
    """
    from dpstats.errors import RequestError

    if options.checked or options.unchecked:
        return
    if not attended():
        raise RequestError(
            "nobody can be asked whether the table fits the schema: look at 'dpstats check PLAN "
            "DATA' and add --checked, or add --unchecked; nothing was spent"
        )
    if agrees("look at the fit of the schema first?"):
        from dpstats.private.fit_of_schema import check

        say(str(check(plan, options.data)))
    if not agrees("spend the budget?"):
        raise RequestError("you declined; nothing was spent")


def _release(options: argparse.Namespace) -> None:
    plan = _read_plan(options.plan)
    from dpstats.private.measure import measure
    from dpstats.releases.paid import (
        check_apart,
        held_interrupts,
        keep_measurements,
        place_of_measurements,
        places,
        stopped_in_order,
    )

    read = {"plan": options.plan, "table": options.data, "ledger": options.ledger}
    paid = place_of_measurements(options.output)
    for place in (options.output, paid):
        check_apart(place, read)
    settings = _synthesis(options)
    force = options.force and os.path.exists(options.output)

    size = plan.most_bytes
    reserved = places(options.output, overwrite=options.force, size=size)
    with stopped_in_order(), reserved as (keep, write):
        if options.ledger is None:
            say(
                "dpstats: warning: no --ledger: no file records that this data set spends "
                f"{plan.budget}; create one with 'dpstats ledger new FILE "
                f"{plan.budget.cap_options}'"
            )
        _let_a_person_look(plan, options)
        try:
            with held_interrupts() as hold:  # from the spending until the answers are on disk
                report = progress({"drawing noise": hold})
                measurements = measure(plan, options.data, ledger=options.ledger, progress=report)
                paid = keep_measurements(measurements, keep, options.output)
        except KeyboardInterrupt:
            if paid.is_file():
                _say_how_to_finish(paid, options.output, force)
            raise
        _finish(measurements, paid, write, settings, options.output, force)


def _synthesize(options: argparse.Namespace) -> None:
    from dpstats import files
    from dpstats.measured.measurements import Measurements
    from dpstats.releases.paid import check_apart, stopped_in_order

    check_apart(options.output, {"file of the measurements": options.measurements})
    settings = _synthesis(options)
    measurements = Measurements.load(options.measurements)
    force = options.force and os.path.exists(options.output)
    with stopped_in_order(), files.reserved(options.output, overwrite=options.force) as write:
        _finish(measurements, options.measurements, write, settings, options.output, force)


def _synthesis(options: argparse.Namespace) -> dict[str, Any]:
    """Arguments of `dps.synthesize`, checked."""
    from dpstats.references.generator import check_options

    fit, solver, draw = options.fit, options.solver, options.draw
    m, k = options.candidates, options.synthetic_rows
    names = ("--candidates", "--synthetic-rows", "--seed")
    rng = check_options(fit, draw, m, k, options.seed, solver, names)
    return {"fit": fit, "solver": solver, "draw": draw, "m": m, "k": k, "rng": rng}


def _finish(
    measurements: Measurements,
    paid: Path,
    write: Callable[[bytes], None],
    settings: dict[str, Any],
    output: Path,
    force: bool,
) -> None:
    """From measurements that are on disk to a release that is."""
    from dpstats.releases.paid import remove_paid
    from dpstats.synthesis import synthesize

    try:
        made = synthesize(measurements, progress=progress(), **settings)
        write(made.to_bytes())
        removed = remove_paid(paid, output, measurements)
    except BaseException:
        _say_how_to_finish(paid, output, force)
        raise
    kept = "" if removed else f"\n{paid} was kept; the release holds all of it"
    show(f"{made}\n{made.accuracy()}\nwritten to {output}{kept}", done=f"{output} is written")


def _say_how_to_finish(paid: Path, output: Path, force: bool) -> None:
    from dpstats.releases.paid import how_to_finish

    say(
        f"\ndpstats: the measurements, which the budget has paid for, are in {paid}; finish the "
        f"release with: {how_to_finish(paid, output, overwrite=force)}"
    )


def _show(options: argparse.Namespace) -> None:
    from dpstats.privacy.ledger import Ledger
    from dpstats.releases.opening import open_file

    found = open_file(options.file)
    show(f"{found}\n\n{found.table()}" if isinstance(found, Ledger) else found)


def _infer(options: argparse.Namespace) -> None:
    from dpstats.checks import Method
    from dpstats.errors import RequestError
    from dpstats.releases.opening import open_release

    release = open_release(options.release)
    for reason in () if options.names else release.unread.values():
        say(reason)
    asked = {name: getattr(options, name) for name in _SHOWN if getattr(options, name) is not None}
    if asked.get("method") in get_args(Method):
        del asked["method"]  # these print in any case
    names = options.names or release.analyses
    for name in names if asked else ():  # before anything prints
        known = inspect.signature(release.infer(name).summary).parameters
        if other := [option for option in asked if option not in known]:
            raise RequestError(
                f"--{other[0]} has no meaning for {name!r}; name the analyses that it is for"
            )
    for name in names:
        summary: Callable[..., str] = release.infer(name).summary
        if options.rows is not None and "most" in inspect.signature(summary).parameters:
            summary = partial(summary, most=options.rows)
        show(summary(alpha=options.alpha, target=options.target, **asked), end="\n\n")


def _new_ledger(options: argparse.Namespace) -> None:
    from dpstats.errors import RequestError
    from dpstats.privacy.ledger import Ledger

    if (options.delta is None) == (options.kind == "approx"):
        raise RequestError("give --delta with --kind approx, and with no other kind")
    delta = None if options.delta is None else _number(options.delta)
    limit = _budget(options.cap, options.kind, "--cap", delta)
    ledger = Ledger.create(options.file, limit, unit=options.unit)
    show(ledger, done=f"{options.file} is written")


def _budget(text: str, kind: str, option: str, delta: Any = None) -> Budget:
    """A budget of a kind, from a number or a fraction."""
    from dpstats.errors import RequestError
    from dpstats.privacy.budget import ZCDP, ApproxDP, PureDP

    amount = _number(text)
    try:
        if kind == ApproxDP.kind:
            return ApproxDP(amount, delta)
        return PureDP(amount) if kind == PureDP.kind else ZCDP(amount)
    except BudgetError as error:  # no budget is exceeded
        raise RequestError(f"{option}: {error}") from None


def _number(text: str) -> Any:
    """A fraction or a float; the text itself if it is neither, for the message."""
    from dpstats.privacy.rationals import parse_fraction

    exact = parse_fraction(text)
    try:
        return float(text) if exact is None else exact
    except ValueError:
        return text


def _show_ledger(options: argparse.Namespace) -> None:
    from dpstats.privacy.ledger import Ledger

    ledger = Ledger.open(options.file)
    show(f"{ledger}\n\n{ledger.table()}")
