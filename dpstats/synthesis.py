"""From measurements to a release; post-processing only, repeatable with ``rng=``."""

from __future__ import annotations

from pathlib import Path

from dpstats.display import Shown, shown_progress
from dpstats.errors import RequestError
from dpstats.inference.simulation import Seed
from dpstats.measured.measurements import Measurements
from dpstats.planning.plan import Plan
from dpstats.privacy.ledger import Ledger
from dpstats.private.measure import measure
from dpstats.releases import Release
from dpstats.releases.paid import attached
from dpstats.rows.drawing import Draw
from dpstats.rows.generator import Fit, check_options, generate
from dpstats.rows.minimax import Solver


def synthesize(
    measurements: Measurements,
    *,
    fit: Fit = "entropy",
    solver: Solver = "columns",
    draw: Draw = "systematic",
    m: int | None = None,
    k: int | None = None,
    rng: Seed = None,
    progress: Shown = None,
) -> Release:
    """Fit a density to the measurements and draw synthetic rows.

    Parameters
    ----------
    measurements : Measurements
    fit : {"entropy", "minimax"}
        Closest to the reference in relative entropy with a penalty on the misfit, or the linear
        program of BL24, Algorithm 1. Both get the same certificate.
    solver : {"columns", "highs", "pulp"}
        For ``fit="minimax"``: column generation, which ends when the largest misfit is certified
        to be within a thousandth of the noise's standard deviation of the optimum; or the whole
        program at once by HiGHS, or as printed in the paper through PuLP and CBC. These reach the
        optimum at a vertex, which has fewer distinct rows; both are far slower. A note of the
        release has the largest misfit and its lower bound.
    draw : {"systematic", "iid"}
        Balanced rows, or independent ones as in BL24.
    m : int, optional
        Number of candidate points of the rows, of which equal ones are merged. By default 20,000,
        or all cells of a smaller domain. With the log-linear reference candidates are rows: as many
        as the private table has, at least 20,000 and at most 65,536; or k where they are edited to
        fit tables, at most the private n and 65,536. Results of `infer` do not depend on it.
    k : int, optional
        Number of synthetic rows; the private table's n if not given.
    rng : seed or numpy Generator, optional
        Makes rows repeatable, and candidates where m or the fit is not the default: those have a
        fixed seed. The privacy noise has no seed.
    progress : callable, optional
        Called with a message, the work done and the total.
        By default a bar, as in `measure`.

    Returns
    -------
    Release

    Raises
    ------
    RequestError
        For unknown options or sizes below one.

    Examples
    --------
    >>> import dpstats as dps
    >>> import pandas as pd
    >>> schema = dps.Schema([dps.Boolean("smoker")])
    >>> plan = dps.plan(schema, {"smoking": dps.Proportion("smoker")}, budget=dps.PureDP(1))
    >>> rows = pd.DataFrame({"smoker": [True] * 3_000 + [False] * 7_000})
    >>> measurements = dps.measure(plan, rows)
    >>> release = dps.synthesize(measurements, k=500, rng=1)
    >>> release.to_frame().shape
    (500, 1)
    """
    if not isinstance(measurements, Measurements):
        raise RequestError(
            "the first argument must be dps.Measurements, from dps.measure or "
            f"dps.Measurements.load; got {type(measurements).__name__}"
        )
    with shown_progress(progress) as say:
        generator = check_options(fit, draw, m, k, rng, solver)
        made = generate(
            measurements, generator, fit=fit, solver=solver, draw=draw, m=m, k=k, progress=say
        )
    return Release(
        measurements=measurements,
        candidates=made.candidates,
        weights=made.weights,
        counts=made.counts,
        fit=fit,
        draw=draw,
        row_seed=int(generator.integers(2**32)),
        notes=made.notes,
        serves_inference=made.serves_inference,
    )


def release(
    plan: Plan,
    data: object,
    *,
    ledger: Ledger | str | Path | None = None,
    order: str | None = None,
    fit: Fit = "entropy",
    solver: Solver = "columns",
    draw: Draw = "systematic",
    m: int | None = None,
    k: int | None = None,
    rng: Seed = None,
    progress: Shown = None,
) -> Release:
    """Measure a table under a plan and synthesise rows: `measure` followed by `synthesize`.

    A plan with second stages (``stages=2``) reads the table twice.

    Parameters
    ----------
    plan : Plan
    data : path, DataFrame, Table or stream
        As in `measure`.
    ledger : Ledger or path, optional
        Record of what was spent on this data set, with its cap.
    order :
        For Spark DataFrames, as in `measure`.
    fit, solver, draw, m, k, rng :
        As in `synthesize`; checked before anything is read or spent.
    progress : callable, optional
        Called with a message, the work done and the total (or None).
        By default a bar, as in `measure`.

    Returns
    -------
    Release
        Save it: the budget is spent and the measurement cannot be repeated.

    Raises
    ------
    RequestError, DataError, BudgetError
        Before anything is spent.

    Notes
    -----
    Whatever stops the work later - an exception of `progress`, too little memory, Ctrl-C - holds
    the measurements that the budget has paid for as ``error.measurements``: save them, and finish
    with `synthesize`.

    Examples
    --------
    >>> import dpstats as dps
    >>> import pandas as pd
    >>> schema = dps.Schema([dps.Boolean("smoker")])
    >>> plan = dps.plan(schema, {"smoking": dps.Proportion("smoker")}, budget=dps.PureDP(1))
    >>> rows = pd.DataFrame({"smoker": [True] * 3_000 + [False] * 7_000})
    >>> release = dps.release(plan, rows)
    >>> print(release.infer("smoking").params.round(2))
    [0.3]
    """
    rng = check_options(fit, draw, m, k, rng, solver)
    with attached() as paid:
        paid.append(measure(plan, data, ledger=ledger, order=order, progress=progress))
        return synthesize(
            paid[0], fit=fit, solver=solver, draw=draw, m=m, k=k, rng=rng, progress=progress
        )
