"""From measurements to a release; post-processing only, repeatable with ``rng=``."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Literal

import numpy as np
from threadpoolctl import threadpool_limits

from dpstats.arrays import Floats
from dpstats.density.candidates import Candidates, seen_by
from dpstats.density.entropy import EntropyFit, fit_entropy, usable_deviations
from dpstats.density.minimax import SolverError, feasible, minimax_highs
from dpstats.density.rows import Draw, draw_counts
from dpstats.errors import RequestError
from dpstats.measured.certificate import Accuracy, certify
from dpstats.measured.combining import Sources
from dpstats.measured.measurements import Measurements
from dpstats.planning.plan import Plan
from dpstats.privacy.ledger import Ledger
from dpstats.private.measure import measure
from dpstats.private.tables import Progress
from dpstats.references import reference_from_dict
from dpstats.references.drawing import draw_candidates
from dpstats.references.loglinear import LogLinear
from dpstats.references.uniform import Uniform
from dpstats.releases import Release

Fit = Literal["entropy", "minimax"]
MOST_ROWS = 10_000_000  # that are drawn where noise alone decides how many
Seed = int | np.random.Generator | np.random.SeedSequence | None

_log = logging.getLogger(__name__)


def synthesize(
    measurements: Measurements,
    *,
    fit: Fit = "entropy",
    draw: Draw = "systematic",
    m: int = 20_000,
    k: int | None = None,
    rng: Seed = None,
    progress: Progress | None = None,
) -> Release:
    """Fit a density to the measurements and draw synthetic rows.

    Parameters
    ----------
    measurements : Measurements
    fit : {"entropy", "minimax"}
        Closest to the reference in relative entropy with a penalty on the misfit, or the linear
        program of BL24, Algorithm 1. Both get the same certificate.
    draw : {"systematic", "iid"}
        Balanced rows, or independent ones as in BL24.
    m : int
        Number of candidate points.
    k : int, optional
        Number of synthetic rows; the private table's n if not given.
    rng : seed or numpy Generator, optional
        Makes candidates and rows repeatable. The privacy noise has no seed.
    progress : callable, optional
        Called with a text, the work done and the total.

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
    generator = check_options(fit, draw, m, k, rng)
    say = progress or (lambda text, done, total: None)

    with threadpool_limits(1, user_api="blas"):  # for small products threads only wait
        say("drawing candidates", 0, 3)
        candidates, entropy, notes = _candidates(measurements, fit, m, generator)
        say("fitting the density", 1, 3)
        weights = _fitted(measurements, candidates, entropy, fit, notes)
        say("drawing rows", 2, 3)
        values = measurements.family.evaluate(candidates.codes)
        rows = _number_of_rows(measurements, notes) if k is None else k
        counts = draw_counts(weights, rows, draw, values, generator)
    say("done", 3, 3)
    fitted = certify(
        measurements, values.average(counts / rows), alpha=0.05, target="synthetic rows"
    )
    return Release(
        measurements=measurements,
        candidates=candidates.codes,
        weights=weights,
        counts=counts,
        fit=fit,
        draw=draw,
        notes=(*notes, *_misfit(fitted)),
    )


def _number_of_rows(measurements: Measurements, notes: list[str]) -> int:
    """As many rows as the private table has; a noisy number of them has no bound of its own."""
    rows = Sources(measurements).rows.value
    if measurements.count is None or rows <= MOST_ROWS:
        return rows
    notes.append(f"the noisy number of rows is {rows}; {MOST_ROWS} were drawn: give k")
    return MOST_ROWS


def _misfit(accuracy: Accuracy) -> list[str]:
    """A note where the rows miss the noisy answers by more than the noise explains."""
    misfit = np.abs(accuracy.synthetic - accuracy.noisy)
    worst = int(np.argmax(misfit - accuracy.joint_radius))
    if misfit[worst] <= accuracy.joint_radius[worst]:
        return []
    return [
        f"the rows miss the noisy answer to {accuracy.names[worst]!r} by {misfit[worst]:.3f}, more "
        f"than the noise explains ({accuracy.joint_radius[worst]:.3f}): there are too few "
        "candidates or rows for this domain. Intervals and tests do not use the rows and stay "
        "right. Raise m or k, ask for fewer columns, or use reference=dps.LogLinear()"
    ]


def release(
    plan: Plan,
    data: object,
    *,
    ledger: Ledger | str | Path | None = None,
    fit: Fit = "entropy",
    draw: Draw = "systematic",
    m: int = 20_000,
    k: int | None = None,
    rng: Seed = None,
    progress: Progress | None = None,
) -> Release:
    """Measure a table under a plan and synthesise rows: `measure` followed by `synthesize`.

    Parameters
    ----------
    plan : Plan
    data : path, DataFrame, Table or stream
        As in `measure`.
    ledger : Ledger or path, optional
        Record of what was spent on this data set, with its cap.
    fit, draw, m, k, rng :
        As in `synthesize`; checked before anything is read or spent.
    progress : callable, optional
        Called with a text, the work done and the total (or None).

    Returns
    -------
    Release
        Save it: the budget is spent and cannot be had twice.

    Raises
    ------
    RequestError, DataError, BudgetError
        Before anything is spent.

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
    rng = check_options(fit, draw, m, k, rng)
    measurements = measure(plan, data, ledger=ledger, progress=progress)
    return synthesize(measurements, fit=fit, draw=draw, m=m, k=k, rng=rng, progress=progress)


def check_options(fit: Fit, draw: Draw, m: int, k: int | None, rng: Seed) -> np.random.Generator:
    """Refuse impossible options; the generator to use."""
    for name, size in (("m", m), ("k", k)):
        if size is not None and (type(size) is not int or size < 1):
            raise RequestError(f"{name} must be a positive whole number, got {size!r}")
    for name, value, allowed in (
        ("fit", fit, ("entropy", "minimax")),
        ("draw", draw, ("systematic", "iid")),
    ):
        if value not in allowed:
            raise RequestError(f"{name} must be one of {list(allowed)}, got {value!r}")
    try:
        return np.random.default_rng(rng)
    except (TypeError, ValueError):
        raise RequestError(f"rng must be a seed or a numpy Generator, got {rng!r}") from None


def _candidates(
    measurements: Measurements, fit: Fit, m: int, rng: np.random.Generator
) -> tuple[Candidates, EntropyFit | None, list[str]]:
    """Candidates, their entropy fit where the reference makes it anyway, and notes."""
    reference = reference_from_dict(measurements.reference_spec)
    notes: list[str] = []
    if isinstance(reference, LogLinear):
        # The budget is spent, so whatever goes wrong here must not lose the release.
        try:
            candidates, fitted = reference.refine(measurements, m, rng)
            if np.all(np.isfinite(fitted.density)):
                return candidates, fitted, notes
        except (ArithmeticError, ValueError, np.linalg.LinAlgError) as error:
            _log.warning("log-linear reference: %s", error)
        notes.append("the log-linear reference failed on these answers; uniform candidates instead")
        reference = Uniform()
    if (note := reference.note(measurements.reference)) is not None:
        notes.append(note)
    candidates = draw_candidates(
        reference,
        measurements.columns,
        measurements.reference,
        m,
        rng,
        stratified=fit == "entropy",
    )
    return candidates, None, notes


def _fitted(
    measurements: Measurements,
    candidates: Candidates,
    entropy: EntropyFit | None,
    fit: Fit,
    notes: list[str],
) -> Floats:
    """Weights on the candidates. The budget is spent, so trouble in a fit never loses a release."""
    seen = seen_by(measurements.family, candidates)
    if fit == "minimax":
        target = feasible(measurements.family, measurements.means)
        try:
            density, _ = minimax_highs(seen.values.matrix(), target)
            return seen.spread(density)
        except SolverError as error:
            notes.append(f"{error}; the entropy fit was used instead")
    if entropy is None:
        entropy = fit_entropy(
            seen.values, seen.reference, measurements.means, usable_deviations(measurements)
        )
        _log.info("entropy fit: penalty %.3g", entropy.penalty[0])
    if not entropy.converged:
        notes.append(
            f"the entropy fit stopped with a gradient of {entropy.gradient:.2g} noise standard "
            "deviations; the certificate accounts for it"
        )
    return seen.spread(entropy.density)
