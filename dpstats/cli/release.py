"""Commands that make a release: release, synthesize."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpstats.cli.arguments import TABLE, Commands, a_path, add_output, check_ending, read_plan
from dpstats.errors import RequestError
from dpstats.terminal import agrees, attended, progress, say, show

if TYPE_CHECKING:
    from dpstats.measured.measurements import Measurements
    from dpstats.planning.plan import Plan
    from dpstats.privacy.ledger import Ledger

_ZIP = ("a release is a zip archive", ".zip", "; its synthetic rows are in it as rows.csv")


def add_commands(commands: Commands) -> None:
    """Add release and synthesize."""
    release = commands.add_parser("release", help="measure a table once and write a release")
    release.add_argument("plan", type=a_path, help="plan.json or request.toml")
    release.add_argument("data", type=a_path, help=TABLE)
    add_output(release, "release.zip")
    looked = release.add_mutually_exclusive_group()
    looked.add_argument(
        "--checked", action="store_true", help="somebody has looked at 'dpstats check' before"
    )
    looked.add_argument("--unchecked", action="store_true", help="release without such a look")
    release.add_argument(
        "--ledger", type=a_path, help="ledger file: the budget spent on this data set"
    )
    release.add_argument(
        "--digest",
        help="of the approved plan, as 'dpstats show' prints it; a plan with another is refused",
    )
    _add_synthesis(release)
    release.set_defaults(run=_release)

    synthesize = commands.add_parser(
        "synthesize", help="write a release from measurements; spends nothing"
    )
    synthesize.add_argument("measurements", type=a_path, help="measurements.zip or release.zip")
    add_output(synthesize, "release.zip")
    _add_synthesis(synthesize)
    synthesize.set_defaults(run=_synthesize)


def _add_synthesis(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--fit", choices=("entropy", "minimax"), default="entropy")
    solvers = ("columns", "highs", "pulp")
    parser.add_argument("--solver", choices=solvers, default="columns", help="for --fit minimax")
    parser.add_argument("--draw", choices=("systematic", "iid"), default="systematic")
    parser.add_argument(
        "--m", type=int, metavar="M", help="default: 20000; as many as rows where these are edited"
    )
    parser.add_argument("--k", type=int, metavar="K", help="default: as many as rows")
    parser.add_argument("--rng", type=int, help="seed of candidates and rows, never of noise")


def _check_digest(plan: Plan, given: str | None) -> None:
    from dpstats.files import short_digest

    if given is None:
        return
    least = short_digest(plan.digest)
    if len(given) < len(least):
        raise RequestError(
            f"--digest needs the {len(least)} digits that 'dpstats show' prints, or all "
            f"{len(plan.digest)}; got {len(given)}; nothing was spent"
        )
    if not plan.digest.startswith(given.lower()):
        raise RequestError(
            f"the plan has the digest {least}, not that of --digest: it is not the plan that was "
            "approved; release the approved one, or have this one approved; nothing was spent"
        )


def _question(plan: Plan, options: argparse.Namespace, book: Ledger | None) -> str:
    """Question to a person: what is spent, under which plan, from which ledger."""
    from dpstats.files import short_digest
    from dpstats.privacy.rationals import amount_text

    spends = plan.spends
    left = "no ledger records it"
    if book is not None:
        remaining, cap = amount_text(book.remaining), amount_text(book.cap)
        left = f"{remaining} of {cap} remains in {options.ledger}"
    return (
        f"spend {spends.parameter} = {amount_text(spends.total)} under plan "
        f"{short_digest(plan.digest)}, {left}, write {options.output}?"
    )


def _let_a_person_look(plan: Plan, options: argparse.Namespace) -> None:
    """Offer the fit of the schema on a terminal; the program decides nothing by it."""
    if options.checked or options.unchecked:
        return
    if not attended():
        raise RequestError(
            "nobody can be asked whether the table fits the schema: look at 'dpstats check PLAN "
            "DATA' and add --checked, or add --unchecked; nothing was spent"
        )
    from dpstats.privacy.ledger import Ledger

    book = None if options.ledger is None else Ledger.open(options.ledger)
    if book is not None:
        book.check(
            plan.spends, unit=plan.unit, rows_per_person=plan.rows_per_person, person=plan.person
        )
    if agrees("look at the fit of the schema first?"):
        from dpstats.private.fit_of_schema import check

        say(str(check(plan, options.data)))
    if not agrees(_question(plan, options, book)):
        raise RequestError("you declined; nothing was spent")


def _release(options: argparse.Namespace) -> None:
    plan = read_plan(options.plan)
    _check_digest(plan, options.digest)
    from dpstats.private.measure import measure
    from dpstats.releases.paid import (
        check_apart,
        held_interrupts,
        keep_measurements,
        place_of_measurements,
        places,
        stopped_in_order,
        unspent,
    )

    read = {"plan": options.plan, "table": options.data, "ledger": options.ledger}
    paid = place_of_measurements(options.output)
    for place in (options.output, paid):
        check_apart(place, read)
    check_ending(options.output, *_ZIP)
    settings = _synthesis(options)
    force = options.overwrite and os.path.exists(options.output)

    size = plan.most_bytes
    reserved = places(options.output, overwrite=options.overwrite, size=size)
    with stopped_in_order(), reserved as (keep, write):
        if options.ledger is None:
            say(
                "dpstats: warning: no --ledger: no file records that this data set spends "
                f"{plan.spends}; create one with 'dpstats ledger new FILE "
                f"{plan.spends.cap_options}'"
            )
        with unspent("before any row was measured"):
            _let_a_person_look(plan, options)
        try:
            with held_interrupts() as hold:  # from the spending until the answers are on disk
                report = progress({"drawing noise": hold})
                try:
                    measurements = measure(
                        plan, options.data, ledger=options.ledger, progress=report
                    )
                except Exception as error:  # in the second of two stages
                    if (first := getattr(error, "measurements", None)) is not None:
                        paid = keep_measurements(first, keep, options.output)
                        _say_how_to_finish(paid, options.output, force)
                    raise
                paid = keep_measurements(measurements, keep, options.output)
        except KeyboardInterrupt as stopped:
            if paid.is_file():
                _say_how_to_finish(paid, options.output, force)
            elif not stopped.args:  # noise is drawn and kept in one piece, or not at all
                stopped.args = ("before any noise was drawn; nothing was spent",)
            raise
        _finish(measurements, paid, write, settings, options.output, force)


def _synthesize(options: argparse.Namespace) -> None:
    from dpstats import files
    from dpstats.measured.measurements import Measurements
    from dpstats.releases.paid import check_apart, stopped_in_order

    check_apart(options.output, {"file of the measurements": options.measurements})
    check_ending(options.output, *_ZIP)
    settings = _synthesis(options)
    measurements = Measurements.load(options.measurements)
    force = options.overwrite and os.path.exists(options.output)
    with stopped_in_order(), files.reserved(options.output, overwrite=options.overwrite) as write:
        _finish(measurements, options.measurements, write, settings, options.output, force)


def _synthesis(options: argparse.Namespace) -> dict[str, Any]:
    from dpstats.rows.generator import check_options

    fit, solver, draw = options.fit, options.solver, options.draw
    m, k = options.m, options.k
    rng = check_options(fit, draw, m, k, options.rng, solver)
    return {"fit": fit, "solver": solver, "draw": draw, "m": m, "k": k, "rng": rng}


def _finish(
    measurements: Measurements,
    paid: Path,
    write: Callable[[bytes], None],
    settings: dict[str, Any],
    output: Path,
    force: bool,
) -> None:
    from dpstats.files import formula_note
    from dpstats.releases.paid import remove_paid
    from dpstats.schema import Category
    from dpstats.synthesis import synthesize

    try:
        made = synthesize(measurements, progress=progress(), **settings)
        write(made.to_bytes())
        removed = remove_paid(paid, output, measurements)
    except BaseException:
        _say_how_to_finish(paid, output, force)
        raise
    kept = "" if removed else f"\n{paid} was kept; the release holds all of it"
    levels = (str(level) for c in made.columns if isinstance(c, Category) for level in c.labels)
    note = formula_note((*made.columns.names, *levels), "its rows.csv")
    written = f"written to {output}{note and '; ' + note}{kept}"
    show(f"{made}\n{made.accuracy()}\n{written}", done=f"{output} is written")


def _say_how_to_finish(paid: Path, output: Path, force: bool) -> None:
    from dpstats.releases.paid import how_to_finish

    say(
        f"\ndpstats: the measurements, which the budget has paid for, are in {paid}; finish the "
        f"release with: {how_to_finish(paid, output, overwrite=force)}"
    )
