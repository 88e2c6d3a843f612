"""The one private step: read the rows, spend the budget once, return noisy sums."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import partial
from pathlib import Path

import numpy as np

from dpstats.arrays import Codes, Floats
from dpstats.checks import Progress
from dpstats.display import Shown, shown_progress
from dpstats.errors import DataError, NoiseError, RequestError, SchemaError
from dpstats.families.block import Block
from dpstats.families.persons import PersonProducts
from dpstats.measured.measurements import Measurements
from dpstats.measured.strategy import PlannedBlock, Strategy, noise_scales
from dpstats.planning.plan import Plan
from dpstats.privacy.laws import Noise
from dpstats.privacy.ledger import Ledger
from dpstats.privacy.neighbours import WITHOUT_A_COUNT
from dpstats.privacy.noise import add_noise, draw_uniforms, is_private
from dpstats.private.persons import PersonTotals, of_persons
from dpstats.private.sources import Source, require_again
from dpstats.private.tables import exact_sums, open_source
from dpstats.releases.paid import attached, held_interrupts, unspent
from dpstats.schema.totals import check_totals

_log = logging.getLogger(__name__)
Held = dict[int, tuple[Codes, Floats]]
"""Noisy sums and uniforms of what is measured so far, by the number of the block."""


def measure(
    plan: Plan,
    data: object,
    *,
    ledger: Ledger | str | Path | None = None,
    order: str | None = None,
    progress: Shown = None,
) -> Measurements:
    """Measure what a plan asks for, under differential privacy.

    The structure of the table, the plan and the ledger are checked first; then the rows are read
    once; then the ledger records the budget, on disk, before any noise is drawn. A plan with a
    second stage (``stages=2``) has paid for both by then, and reads the rows again for it.

    Parameters
    ----------
    plan : Plan
    data : path, DataFrame, Table or stream
        The path of a ``.csv``, ``.tsv`` (both also ``.gz``) or ``.parquet`` file, a pandas or
        polars DataFrame, an Arrow table or reader, a DuckDB relation, a Spark or Dask DataFrame, an
        Ibis table. Cells outside the declaration are coded as the schema says, silently: look at
        `check` before.
    ledger : Ledger or path, optional
        Record of what was spent on this data set, with its cap.
    order : str, optional
        For a Spark DataFrame or an Ibis table, which have no order, and a plan with ``person=``:
        the column by which the rows of a person are sorted before the first are used.
    progress : callable, optional
        Called with a message, the per cent done and 100, or 0 and None where there is no total;
        never once the budget is spent. By default a bar, in a terminal or a notebook, if the work
        takes more than two seconds; False for none.

    Returns
    -------
    Measurements
        Save them: the budget is spent and the measurement cannot be repeated.

    Raises
    ------
    DataError
        If the table does not fit the plan, or is a stream where it would be read twice; nothing is
        spent. If it cannot be read a second time, what the first stage measured is
        ``error.measurements``.
    BudgetError
        If the ledger's cap would be passed; nothing is read.
    NoiseError
        If noise cannot be drawn. If this is found before the rows are read, nothing is spent;
        afterwards the budget counts as spent.

    Notes
    -----
    An interrupt (Ctrl-C, SIGTERM) once the budget is spent waits until the measurements are made,
    a second stage included; the KeyboardInterrupt then holds them as ``error.measurements``.

    Examples
    --------
    >>> import dpstats as dps
    >>> import pandas as pd
    >>> schema = dps.Schema([dps.Boolean("smoker")])
    >>> plan = dps.plan(schema, {"smoking": dps.Proportion("smoker")}, budget=dps.PureDP(1))
    >>> rows = pd.DataFrame({"smoker": [True] * 3_000 + [False] * 7_000})
    >>> measurements = dps.measure(plan, rows)
    >>> print(measurements.means.round(2))
    [0.3]
    """
    with attached() as paid, shown_progress(progress) as say, held_interrupts() as hold:
        _measured(plan, data, order, ledger, say, hold, paid)
    return paid[0]


def _measured(
    plan: Plan,
    data: object,
    order: str | None,
    ledger: Ledger | str | Path | None,
    progress: Progress | None,
    hold: Callable[[], None],
    paid: list[Measurements],
) -> None:
    """As `measure`, into `paid`; `hold` is called before the budget is spent."""
    if not isinstance(plan, Plan):
        raise RequestError(
            "the first argument must be a dps.Plan and the second the table, got "
            f"{type(plan).__name__}; make a plan with dps.plan or dps.Plan.load"
        )
    plan.check(plan.n)
    plan.check_kept(not_private=not is_private())
    _check_noise_source(plan.budget.noise)
    book = Ledger.open(ledger) if isinstance(ledger, str | Path) else ledger
    if book is not None:
        if not isinstance(book, Ledger):
            raise RequestError(
                f"ledger must be a dps.Ledger or the path of one, got {type(book).__name__}; start "
                "one with 'dpstats ledger new'"
            )
        book.check(
            plan.spends, unit=plan.unit, rows_per_person=plan.rows_per_person, person=plan.person
        )
    source = open_source(data, plan.read_columns, plan.person, order)
    if plan.in_two_stages:
        require_again(source)
    held = _measured_before(plan)
    now = {i: p for i, p in enumerate(plan.strategy.blocks) if not p.pending and i not in held}
    of_each = _person_totals(now.values(), plan)
    source = _of_persons(source, plan, of_each)
    if plan.unit == "add_remove":  # a file may state it, and tracebacks hold this frame
        source = replace(source, rows=None)
    if source.rows is not None:
        check_rows(source.rows, plan)
    roles = [planned.role for planned in now.values()]
    weighted = plan.schema.design is not None
    apart = ("persons",) if weighted else ("persons", "count")
    blocks = [p.block for p in now.values() if p.role not in apart]
    with unspent("while reading rows"), of_each:
        totals, n = exact_sums(source, plan.read_columns, blocks, progress)
    try:
        if n != source.rows:
            check_rows(n, plan)
        if "persons" in roles:
            at = roles.index("persons")
            totals[at:at] = of_each.taken()
        if (
            "count" in roles and not weighted
        ):  # one more private sum, the last, released only with noise
            totals.append(np.array([n], dtype=np.int64))
        rows = n if plan.unit == "replace" else None
        n = 0
        if progress is not None:
            progress("drawing noise", 0, None)
        hold()
        if book is not None:
            book.spend(
                plan.spends, "; ".join(plan.analyses), unit=plan.unit,
                rows_per_person=plan.rows_per_person, person=plan.person, plan=plan.digest,
                data=_file_name(data),
            )  # fmt: skip
    except BaseException:
        of_each.clear()
        del totals  # so that no frame of the traceback holds the sums
        raise
    _log.info("drawing noise for %d functions", plan.family.size)
    del source
    held |= _with_noise(now, totals, plan.budget.noise)
    strategy = replace(plan.strategy, n=rows)
    paid.append(_so_far(plan, strategy, held))
    if plan.in_two_stages:
        paid[0] = _second_stage(plan, data, order, paid[0], strategy, held)


def _of_persons(source: Source, plan: Plan, totals: PersonTotals | None = None) -> Source:
    """The source of the rows that are used, where the plan knows persons."""
    if plan.person is None:
        return source
    return of_persons(source, plan.person, plan.rows_per_person, totals, design=plan.schema.design)


def _person_totals(blocks: Iterable[PlannedBlock], plan: Plan) -> PersonTotals:
    """Accumulator of person totals, for the blocks that are products of them."""
    products = [p.block for p in blocks if isinstance(p.block, PersonProducts)]
    return PersonTotals(plan.read_columns, products)


def _measured_before(plan: Plan) -> Held:
    """Measurements of the release that a plan starts from."""
    if plan.start is None:
        return {}
    old = plan.start.strategy.blocks
    places = [i for i, planned in enumerate(plan.strategy.blocks) if planned in old]
    pairs = zip(places, plan.start.every, strict=True)  # in the same order, see `check_start`
    return {i: (noisy.sums, noisy.uniforms) for i, noisy in pairs}


def _with_noise(
    blocks: Mapping[int, PlannedBlock], totals: list[Codes], noise: Noise, *, again: bool = False
) -> Held:
    """Noisy sums and uniforms of some blocks; `totals` is emptied, whatever happens.

    With `again` an earlier stage is kept, and a NoiseError says so; no frame holds the sums then.
    """
    failure, stopped = "", None
    noisy: list[tuple[Codes, Floats]] = []
    try:
        noisy.extend(map(partial(_noisy, noise=noise), blocks.values(), totals))
    except NoiseError as error:
        failure = str(error)
    except Exception:  # whose message and frames could hold sums
        failure = "drawing privacy noise failed; nothing was released"
    except BaseException as error:  # an interrupt
        stopped = error.with_traceback(None)
    totals.clear()
    if stopped is not None:
        raise stopped
    if failure and again:
        raise NoiseError(
            f"{failure.partition('; nothing was')[0]}, in the second stage. The budget counts as "
            "spent, and the measurements of the first stage are kept"
        )
    if failure:
        raise NoiseError(f"{failure}. The budget counts as spent.")
    return dict(zip(blocks, noisy, strict=True))


def _so_far(plan: Plan, strategy: Strategy, held: Held) -> Measurements:
    """Measurements so far, with the budget that they cost.

    The rest of the budget counts as spent: these are what remains if the second stage fails.
    """
    pending = [p for i, p in enumerate(strategy.blocks) if i not in held]
    if pending:
        costs = (p.block.cost(plan.budget, plan.neighbours, p.multiplier) for p in pending)
        budget = plan.budget.of_total(plan.budget.total - sum(costs, Fraction(0)))
        blocks = tuple(p for i, p in enumerate(strategy.blocks) if i in held)
        strategy = replace(strategy, blocks=blocks, budget=budget)
    parts = [held[i] for i in sorted(held)]
    return Measurements(
        strategy=strategy,
        noisy_sums=np.concatenate([sums for sums, _ in parts]),
        uniforms=np.concatenate([uniforms for _, uniforms in parts]),
        reference_spec=plan.reference.to_dict(),
        requests=plan.requests,
        not_private=not is_private() or (plan.start is not None and plan.start.not_private),
    )


def _second_stage(
    plan: Plan,
    data: object,
    order: str | None,
    first: Measurements,
    strategy: Strategy,
    held: Held,
) -> Measurements:
    """Read the rows again, for what the first stage's noisy answers have chosen.

    The pilots are functions of these answers, and what is added has noise of its own: privacy is
    that of adaptive composition, with scales that the plan fixed.
    """
    from dpstats.releases.pilots import pilots

    blocks = pilots(first, strategy.blocks, plan.analyses)
    now = {i: planned for i, planned in enumerate(blocks) if i not in held}
    chosen = [planned.block for planned in now.values()]
    totals = _read_again(data, order, plan, chosen, strategy.n)
    held = held | _with_noise(now, totals, plan.budget.noise, again=True)
    return _so_far(plan, replace(strategy, blocks=blocks), held)


def _read_again(
    data: object, order: str | None, plan: Plan, blocks: Sequence[Block], rows: int | None
) -> list[Codes]:
    """Exact sums of a second reading; a public number of rows must be the same.

    Nothing else of the two readings is compared. Each is private by itself, whatever the table is.
    """
    failure = ""
    try:
        opened = open_source(data, plan.read_columns, plan.person, order)
        source = replace(_of_persons(opened, plan), rows=None)
        totals, again = exact_sums(source, plan.read_columns, blocks)
        if rows in (None, again):
            return totals
        failure = "its number of rows has changed"
    except DataError as error:
        failure = str(error).partition("; nothing was")[0]
    totals = []
    raise DataError(
        f"the table could not be read a second time: {failure}. The budget counts as spent, and "
        "the measurements of the first stage are kept"
    )


def _file_name(data: object) -> str:
    """Name of the table's file as text, without its folder; empty if it is no file."""
    name = Path(data).name if isinstance(data, str | Path) else ""
    return name.encode("utf-8", "replace").decode()


def _check_noise_source(noise: Noise) -> None:
    """A trial draw, discarded: it finds a missing backend before rows are read."""
    if is_private():
        add_noise(np.zeros(1, dtype=np.int64), 1.0, noise)
        draw_uniforms(1)


def check_rows(rows: int, plan: Plan) -> None:
    """Compare a public number of rows with the plan; a private one is not used."""
    if plan.unit == "add_remove":
        return
    if rows == 0:
        key = "" if plan.person is None else f" with a key in the column {plan.person!r}"
        raise DataError(f"the table has no rows{key}; nothing was released or spent")
    if plan.n is not None and rows != plan.n:
        other = "" if plan.person is None else f", or {WITHOUT_A_COUNT}"
        raise DataError(
            f"the plan was made for n = {plan.n} rows and {_which(plan)} {rows}; make the plan for "
            f"that number{other}; nothing was spent"
        )
    try:
        check_totals(plan.schema, rows)
    except SchemaError as error:
        raise DataError(f"{error}; nothing was spent") from None
    plan.check_reference(rows)


def _which(plan: Plan) -> str:
    """Whose number it is: all rows, or those of each person that are used."""
    if plan.person is None:
        return "the table has"
    return f"those that are used, {plan.neighbours.which_rows}, are"


def _noisy(planned: PlannedBlock, sums: Codes, noise: Noise) -> tuple[Codes, Floats]:
    """Sums of one block with their noise, one draw per distinct scale, and uniforms."""
    scales = noise_scales(planned.block, planned.multiplier, noise)
    noisy = np.empty_like(sums)
    for scale in np.unique(scales):
        same = scales == scale
        noisy[same] = add_noise(sums[same], float(scale), noise)
    return noisy, draw_uniforms(len(sums))
