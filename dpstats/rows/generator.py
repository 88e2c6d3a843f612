"""From measurements to candidates, their weights and counts of rows; sees no private row."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from dpstats.arrays import Codes, Floats, one_blas_thread
from dpstats.checks import check_choice, check_whole
from dpstats.errors import RequestError
from dpstats.inference.simulation import Seed, make_generator
from dpstats.measured.candidates_file import MOST_ROWS, most_rows
from dpstats.measured.certificate import Accuracy, certify
from dpstats.measured.combining import Sources
from dpstats.measured.measurements import Measurements
from dpstats.rows import default_reference, reference_from_dict
from dpstats.rows.base import Proposal, Reference
from dpstats.rows.candidates import Candidates, seen_by
from dpstats.rows.drawing import Draw, draw_counts
from dpstats.rows.entropy import fit_entropy, targets
from dpstats.rows.gibbs import has_conditionals
from dpstats.rows.loglinear import LogLinear, edits
from dpstats.rows.minimax import Solver, SolverError, feasible, minimax, tolerance

Fit = Literal["entropy", "minimax"]
MOST_CANDIDATES = 1_000_000  # and as many weights to fit; a thousand times fewer usually do
POINTS_SEED = 0  # of the candidates that inference uses
CANDIDATES = 20_000
LEAST_EDITED, MOST_EQUAL = 2_000, 65_536  # where they are edited rows; where they are rows at all
NOTHING = 0.5  # noise on the means from which they say nothing, as a share of their range
COARSE_ROWS, NO_MISFIT = 3, 0.01  # rows, and the share, by which a sum may miss without a note

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Generated:
    """A fitted density with synthetic rows drawn from it."""

    # mapping of column name to (m,): distinct candidate rows, coded
    candidates: Mapping[str, Codes]
    weights: Floats  # (m,): the fitted density
    counts: Codes  # (m,): how many synthetic rows are copies of each candidate
    notes: tuple[str, ...]  # warnings for the release
    # whether candidates and weights are those of `inference_density`
    serves_inference: bool = False


def check_options(
    fit: Fit,
    draw: Draw,
    m: int | None,
    k: int | None,
    rng: Seed,
    solver: Solver = "columns",
) -> np.random.Generator:
    """Refuse impossible options; the generator to use."""
    most = (MOST_CANDIDATES, MOST_ROWS)
    for name, size, limit in zip("mk", (m, k), most, strict=True):
        if size is not None:  # as many as serve; as many as private rows
            check_whole(name, size, 1, limit)
    check_choice("fit", fit, get_args(Fit))
    check_choice("draw", draw, get_args(Draw))
    check_choice("solver", solver, get_args(Solver))
    if fit == "entropy" and solver != "columns":
        raise RequestError(
            f"solver={solver!r} is for the linear program of fit='minimax'; drop solver=, or give "
            "fit='minimax'"
        )
    return make_generator(rng)


def fit_density(
    measurements: Measurements, m: int, rng: np.random.Generator
) -> tuple[Candidates, Floats]:
    """Candidates and their weights by the entropy fit, without rows."""
    return _fit(measurements, reference_from_dict(measurements.reference_spec), m, rng)


def inference_density(measurements: Measurements) -> tuple[Candidates, Floats]:
    """Density that analyses use, which follows from the measurements alone.

    Neither the number of candidates of the synthetic rows nor their seed or fit change it.
    """
    reference, rng = inference_reference(measurements), np.random.default_rng(POINTS_SEED)
    return _fit(measurements, reference, number_of_candidates(measurements, reference), rng)


def number_of_candidates(
    measurements: Measurements, reference: Reference, k: int | None = None
) -> int:
    """`CANDIDATES`, or, where candidates have equal weight, as many as there are rows.

    Of the density that inference uses; of the rows of a release where their number k is given.
    """
    if not isinstance(reference, LogLinear):
        return CANDIDATES
    edited = edits(measurements)
    least = LEAST_EDITED if edited else CANDIDATES
    usual = min(MOST_EQUAL, max(Sources(measurements).rows.in_rows, least))
    return min(k, usual) if edited and k is not None else usual


def inference_reference(measurements: Measurements) -> Reference:
    """A reference that was measured, or the default one, whose points can carry the answers."""
    given = reference_from_dict(measurements.reference_spec)
    default = default_reference(measurements.columns, measurements.published)
    both = isinstance(given, LogLinear) and isinstance(default, LogLinear)
    return given if given.share or both else default


def _fit(
    measurements: Measurements, reference: Reference, m: int, rng: np.random.Generator
) -> tuple[Candidates, Floats]:
    with one_blas_thread():
        proposal = reference.candidates_for_inference(measurements, m, rng)
        proposal = proposal.obeying(measurements.columns)
        return proposal.candidates, _entropy(measurements, proposal, [])


def generate(
    measurements: Measurements,
    rng: np.random.Generator,
    *,
    fit: Fit = "entropy",
    solver: Solver = "columns",
    draw: Draw = "systematic",
    m: int | None = None,
    k: int | None = None,
    progress: Callable[[str, int, int | None], None] | None = None,
) -> Generated:
    """Draw candidates, fit their weights to the measurements and draw rows.

    With the default options the density is that of `inference_density`, so that it is fitted once,
    unless rows are exchanged.

    Parameters
    ----------
    measurements : Measurements
    rng : numpy Generator
    fit, solver, draw, m, k :
        As in `synthesize`, already checked by `check_options`.
    progress : callable, optional
        Called with a message, the work done and the total.
    """
    say = progress or (lambda text, done, total: None)
    reference = reference_from_dict(measurements.reference_spec)
    own = number_of_candidates(measurements, reference)
    notes: list[str] = []
    wanted = _number_of_rows(measurements, notes) if k is None else k
    m = number_of_candidates(measurements, reference, wanted) if m is None else m
    usual = m == own and fit == "entropy" and reference == inference_reference(measurements)
    points = np.random.default_rng(POINTS_SEED) if usual else rng
    with one_blas_thread():
        say("drawing candidates", 0, 3)
        proposal = reference.candidates(measurements, m, points, stratified=fit == "entropy")
        proposal = proposal.obeying(measurements.columns)
        candidates = proposal.candidates
        notes += proposal.notes
        say("fitting the density", 1, 3)
        weights = None
        if fit == "minimax":
            weights = _minimax(measurements, candidates, solver, notes)
        if weights is None:
            weights = _entropy(measurements, proposal, notes)
        say("drawing rows", 2, 3)
        values = measurements.published.evaluate(candidates.codes)
        rows = most_rows(measurements.columns, candidates.codes, wanted)
        if rows < wanted:
            notes.append(f"{rows} rows were drawn and not {wanted}: a file holds no more of them")
        counts = draw_counts(weights, rows, draw, values, rng)
    say("done", 3, 3)
    drawn = _certified(measurements, values.average(counts / rows))
    spared = min(COARSE_ROWS / rows, NO_MISFIT)
    if _excess(drawn).max() > spared:
        rounded = not np.allclose(counts, rows * weights)
        weighted = _certified(measurements, values.average(weights))
        close = rounded and _excess(weighted).max() <= spared
        advice = _advice(measurements, reference, (m, candidates.size, rows), draw, close=close)
        notes.append(_misfit(drawn, advice))
    if np.median(drawn.radius) > NOTHING:
        notes.append(
            f"half of the noisy means may be off by more than {NOTHING:g} of their range: neither "
            "they nor the rows say much about so few private rows at this budget"
        )
    serves = usual and proposal.serves_inference
    return Generated(candidates.codes, weights, counts, tuple(notes), serves)


def _minimax(
    measurements: Measurements, candidates: Candidates, solver: Solver, notes: list[str]
) -> Floats | None:
    """Weights by the linear program; the budget is spent, and a failure must not lose a release."""
    family, means, deviations = targets(measurements)
    seen = seen_by(family, candidates)
    target, within = feasible(family, means), tolerance(deviations)
    try:
        fit = minimax(seen.values, target, solver, within)
    except SolverError as error:
        notes.append(f"{error}; the entropy fit was used instead")
        return None
    notes.append(
        f"the largest misfit of the minimax fit is {fit.value:.6g}; the optimum on these "
        f"candidates is at least {fit.bound:.6g}, so the gap is at most {fit.gap:.2g}"
    )
    if solver == "columns" and fit.gap > within:
        notes[-1] += f", more than {within:.2g}, a thousandth of the noise; the certificate holds"
    return seen.spread(fit.density)


def _entropy(measurements: Measurements, proposal: Proposal, notes: list[str]) -> Floats:
    """Weights by the entropy fit, unless the reference has made it."""
    if proposal.density is not None:
        return proposal.density
    family, means, deviations = targets(measurements)
    seen = seen_by(family, proposal.candidates)
    fit = fit_entropy(seen.values, seen.reference, means, deviations)
    _log.info("entropy fit: penalty %.3g", fit.s2)
    if not fit.converged:
        notes.append(
            f"the entropy fit stopped with a gradient of {fit.worst:.2g} noise standard "
            "deviations; the certificate accounts for it"
        )
    return seen.spread(fit.density)


def _number_of_rows(measurements: Measurements, notes: list[str]) -> int:
    """As many rows as the private table has, up to a cap."""
    rows = Sources(measurements).rows.in_rows
    if rows <= MOST_ROWS:
        return rows
    noisy = "" if measurements.count is None else "noisy "
    notes.append(f"the {noisy}number of rows is {rows}; {MOST_ROWS} were drawn, the most allowed")
    return MOST_ROWS


def _certified(measurements: Measurements, means: Floats) -> Accuracy:
    return certify(measurements, means, alpha=0.05, target="synthetic rows")


def _excess(accuracy: Accuracy) -> Floats:
    """Misfit to the noisy answers beyond what the noise explains, (|F|,)."""
    return np.abs(accuracy.synthetic - accuracy.noisy) - accuracy.joint_radius


def _misfit(accuracy: Accuracy, advice: Sequence[str]) -> str:
    """A note on rows that miss the noisy answers by more than the noise explains."""
    worst = int(np.argmax(_excess(accuracy)))
    missed = abs(accuracy.synthetic[worst] - accuracy.noisy[worst])
    note = (
        f"the rows miss the noisy answer to {accuracy.names[worst]!r} by {missed:.2g}, more than "
        f"the noise explains ({accuracy.joint_radius[worst]:.2g}). Intervals and tests do not use "
        "the rows and remain valid"
    )
    return note + (f". To come closer, {' or '.join(advice)}" if advice else "")


def _advice(
    measurements: Measurements,
    reference: Reference,
    sizes: tuple[int, int, int],
    draw: Draw,
    *,
    close: bool,
) -> list[str]:
    """Options not in force that would bring the rows closer to the answers.

    Parameters
    ----------
    measurements : Measurements
    reference : Reference
    sizes : (int, int, int)
        m, the number of distinct candidates, and k.
    draw : {"systematic", "iid"}
    close : bool
        Whether the weighted candidates are close, so that only the draw of rows is at fault.
    """
    m, distinct, k = sizes
    log_linear = isinstance(reference, LogLinear)
    edited = log_linear and edits(measurements)
    advice = []
    if draw == "iid":
        advice.append("use draw='systematic'")
    rows = min(Sources(measurements).rows.in_rows, MOST_EQUAL)
    few = 2 * k < rows  # by exchanges, too, rows get finer as they get more
    if close or few or (edited and k < max(m, rows)):
        advice.append("draw more rows (k)")
    if close:
        return advice
    # Edited rows are best where each candidate is one row; others help until they repeat.
    if m < MOST_CANDIDATES and (m < k if edited else 2 * distinct > m):
        advice.append("take more candidates (m)")
    if not log_linear and has_conditionals(measurements.published):
        advice.append("plan with reference=dps.LogLinear()")
    if len(measurements.columns.names) > 2:
        advice.append("plan fewer columns")
    return advice
