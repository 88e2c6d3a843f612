"""The one private step: read the rows once, spend the budget once, return noisy sums."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from dpstats.arrays import Codes, Floats
from dpstats.checks import Progress, check_progress
from dpstats.errors import DataError, NoiseError, RequestError
from dpstats.measured.measurements import Measurements
from dpstats.measured.strategy import PlannedBlock, noise_scales
from dpstats.planning.plan import Plan
from dpstats.privacy.laws import Noise
from dpstats.privacy.ledger import Ledger
from dpstats.privacy.noise import add_noise, draw_uniforms, is_private
from dpstats.private.tables import exact_sums, open_source
from dpstats.releases.paid import attached, held_interrupts

_log = logging.getLogger(__name__)


def measure(
    plan: Plan,
    data: object,
    *,
    ledger: Ledger | str | Path | None = None,
    progress: Progress | None = None,
) -> Measurements:
    """Measure what a plan asks for, under differential privacy.

    The structure of the table, the plan and the ledger are checked first; then the rows are read
    once; then the ledger records the budget, on disk, before any noise is drawn.

    Parameters
    ----------
    plan : Plan
    data : path, DataFrame, Table or stream
        The path of a ``.csv``, ``.tsv`` (both also ``.gz``) or ``.parquet`` file, a pandas or
        polars DataFrame, an Arrow table or reader, a DuckDB relation. Cells outside the declaration
        are coded as the schema says, silently: look at `check` before.
    ledger : Ledger or path, optional
        Record of what was spent on this data set, with its cap.
    progress : callable, optional
        Called with a message, the per cent done and 100, or 0 and None where there is no total;
        never once the budget is spent.

    Returns
    -------
    Measurements
        Save them: the budget is spent and the measurement cannot be repeated.

    Raises
    ------
    DataError
        If the table does not fit the plan; nothing is spent.
    BudgetError
        If the ledger's cap would be passed; nothing is read.
    NoiseError
        If noise cannot be drawn. If this is found before the rows are read, nothing is spent;
        afterwards the budget counts as spent.

    Notes
    -----
    An interrupt (Ctrl-C, SIGTERM) while noise is drawn waits until the measurements are made; the
    KeyboardInterrupt then holds them as ``error.measurements``.

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
    with attached() as paid, held_interrupts() as hold:
        paid.append(_measured(plan, data, ledger, progress, hold))
    return paid[0]


def _measured(
    plan: Plan,
    data: object,
    ledger: Ledger | str | Path | None,
    progress: Progress | None,
    hold: Callable[[], None],
) -> Measurements:
    """As `measure`; `hold` is called before the budget is spent."""
    if not isinstance(plan, Plan):
        raise RequestError(
            "the first argument must be a dps.Plan and the second the table, got "
            f"{type(plan).__name__}; make a plan with dps.plan or dps.Plan.load"
        )
    check_progress(progress)
    plan.check(plan.n)
    plan.check_kept(not_private=not is_private())
    strategy = plan.strategy
    _check_noise_source(plan.budget.noise)
    book = Ledger.open(ledger) if isinstance(ledger, str | Path) else ledger
    if book is not None:
        if not isinstance(book, Ledger):
            raise RequestError(
                f"ledger must be a dps.Ledger or the path of one, got {type(book).__name__}; start "
                "one with 'dpstats ledger new'"
            )
        book.check(plan.budget, unit=plan.unit)
    source = open_source(data, plan.columns)
    if plan.unit == "add_remove":  # a file may state it, and tracebacks hold this frame
        source = replace(source, rows=None)
    if source.rows is not None:
        _check_rows(source.rows, plan)
    blocks = [planned.block for planned in strategy.blocks if planned.role != "count"]
    totals, n = exact_sums(source, plan.columns, blocks, progress)
    try:
        if n != source.rows:
            _check_rows(n, plan)
        if plan.unit == "replace":
            strategy = replace(strategy, n=n)
        else:  # the count is one more private sum, the last, and is released only with noise
            totals.append(np.array([n], dtype=np.int64))
            strategy = replace(strategy, n=None)
            n = 0
        if progress is not None:
            progress("drawing noise", 0, None)
        hold()
        if book is not None:
            book.spend(
                plan.budget, "; ".join(plan.analyses), unit=plan.unit, plan=plan.digest,
                data=_file_name(data),
            )  # fmt: skip
    except BaseException:
        del totals  # so that no frame of the traceback holds the sums
        raise
    _log.info("drawing noise for %d functions", plan.family.size)
    failure, stopped = "", None
    noisy: list[tuple[Codes, Floats]] = []
    try:
        noisy.extend(map(partial(_noisy, noise=plan.budget.noise), strategy.blocks, totals))
    except NoiseError as error:
        failure = str(error)
    except Exception:  # whose message and frames could hold sums
        failure = "drawing privacy noise failed; nothing was released"
    except BaseException as error:  # an interrupt
        stopped = error.with_traceback(None)
    del totals, source
    if stopped is not None:
        raise stopped
    if failure:  # raised here, where no frame holds the sums any more
        raise NoiseError(f"{failure}. The budget counts as spent.")
    return Measurements(
        strategy=strategy,
        noisy_sums=np.concatenate([sums for sums, _ in noisy]),
        uniforms=np.concatenate([uniforms for _, uniforms in noisy]),
        reference_spec=plan.reference.to_dict(),
        requests=plan.requests,
        not_private=not is_private(),
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


def _check_rows(rows: int, plan: Plan) -> None:
    """Compare a public number of rows with the plan; a private one is not used."""
    if plan.unit == "add_remove":
        return
    if rows == 0:
        raise DataError("the table has no rows")
    if plan.n is not None and rows != plan.n:
        raise DataError(
            f"the plan was made for n = {plan.n} rows and the table has {rows}; "
            "make the plan for that number"
        )
    plan.check_reference(rows)


def _noisy(planned: PlannedBlock, sums: Codes, noise: Noise) -> tuple[Codes, Floats]:
    """Sums of one block with their noise, one draw per distinct scale, and uniforms."""
    scales = noise_scales(planned.block, planned.multiplier, noise)
    noisy = np.empty_like(sums)
    for scale in np.unique(scales):
        same = scales == scale
        noisy[same] = add_noise(sums[same], float(scale), noise)
    return noisy, draw_uniforms(len(sums))
