"""From measurements to a release; post-processing only, repeatable with ``rng=``."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Literal

import numpy as np
from threadpoolctl import threadpool_limits

from dpstats.density.candidates import Candidates, Seen, draw_candidates, seen_by
from dpstats.density.entropy import fit_entropy
from dpstats.density.minimax import SolverError, feasible, minimax_highs
from dpstats.density.rows import Draw, draw_counts
from dpstats.engines.local import Progress
from dpstats.errors import RequestError
from dpstats.families.block import Floats
from dpstats.measurements import Measurements
from dpstats.measuring import measure
from dpstats.planning import Plan
from dpstats.privacy.ledger import Ledger
from dpstats.references import reference_from_dict
from dpstats.releases import Release

Fit = Literal["entropy", "minimax"]
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
    """
    for name, size in (("m", m), ("k", k)):
        if size is not None and (type(size) is not int or size < 1):
            raise RequestError(f"{name} must be a positive whole number, got {size!r}")
    for name, value, allowed in (
        ("fit", fit, ("entropy", "minimax")),
        ("draw", draw, ("systematic", "iid")),
    ):
        if value not in allowed:
            raise RequestError(f"{name} must be one of {list(allowed)}, got {value!r}")
    generator = np.random.default_rng(rng)
    say = progress or (lambda text, done, total: None)

    with threadpool_limits(
        1, user_api="blas"
    ):  # many small products: threads only wait for each other
        say("drawing candidates", 0, 3)
        candidates = draw_candidates(
            reference_from_dict(measurements.reference_spec),
            measurements.columns,
            measurements.reference,
            m,
            generator,
            stratified=fit == "entropy",
        )
        say("fitting the density", 1, 3)
        weights, notes = _fitted(measurements, candidates, fit)
        say("drawing rows", 2, 3)
        values = measurements.family.evaluate(candidates.codes)
        rows = measurements.n if k is None else k
        counts = draw_counts(weights, rows, draw, values, generator)
    say("done", 3, 3)
    return Release(
        measurements=measurements,
        candidates=candidates.codes,
        weights=weights,
        counts=counts,
        fit=fit,
        draw=draw,
        notes=tuple(notes),
    )


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
    """Measure a table under a plan and synthesise rows: `measure` followed by `synthesize`."""
    measurements = measure(plan, data, ledger=ledger, progress=progress)
    return synthesize(measurements, fit=fit, draw=draw, m=m, k=k, rng=rng, progress=progress)


def _fitted(
    measurements: Measurements, candidates: Candidates, fit: Fit
) -> tuple[Floats, list[str]]:
    """Weights on the candidates. The budget is spent, so trouble in a fit never loses a release."""
    seen = seen_by(measurements.family, candidates)
    notes: list[str] = []
    if fit == "minimax":
        target = feasible(measurements.family, measurements.means)
        try:
            density, _ = minimax_highs(seen.values.matrix(), target)
            return seen.spread(density), notes
        except SolverError as error:
            notes.append(f"{error}; the entropy fit was used instead")
    return seen.spread(_entropy(measurements, seen, notes)), notes


def _entropy(measurements: Measurements, seen: Seen, notes: list[str]) -> Floats:
    fitted = fit_entropy(
        seen.values, seen.reference, measurements.means, measurements.standard_deviations
    )
    if not fitted.converged:
        notes.append(
            f"the entropy fit stopped with a gradient of {fitted.gradient:.2g} noise standard "
            "deviations; the certificate accounts for it"
        )
    _log.info("entropy fit: penalty %.3g", fitted.penalty)
    return fitted.density
