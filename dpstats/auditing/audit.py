"""The audit of a plan, for a custodian who wants to see: searches, draws, and a verdict."""

from __future__ import annotations

import numpy as np

from dpstats.arrays import Floats, Integers
from dpstats.auditing.findings import Audit, NoiseAudit
from dpstats.auditing.noise_source import (
    Event,
    Loss,
    epsilon_of,
    fits,
    log_ratios,
    loss_of,
    together,
)
from dpstats.auditing.sensitivities import Tables, audit_blocks
from dpstats.checks import Progress, check_whole
from dpstats.display import Shown, shown_progress
from dpstats.errors import RequestError
from dpstats.measured.strategy import Strategy
from dpstats.planning.plan import Plan
from dpstats.privacy.budget import ZCDP
from dpstats.private import measure as measuring

_SEED = 20240229  # of the rows that are tried; the noise has none
_LEAST = 100  # releases of noise on either table
_FEW, _MANY = 1_000, 50_000  # of those that are usual
_TIME = 30_000_000  # microseconds, of about 150 for a call and 8 for a function
_CALL, _FUNCTION = 150, 8


def audit(plan: Plan, *, draws: int | None = None, progress: Shown = None) -> Audit:
    """Audit a plan against its claims, on rows made from its schema; reads no table.

    Three questions, in about a minute. Can a row change the sums of a block, or all sums together,
    by more than the plan claims? Do draws of the installed noise, on the two neighbouring tables
    that differ most, prove a larger privacy loss than the budget? Do the draws follow the law that
    every interval of the release rests on?

    Parameters
    ----------
    plan : Plan
    draws : int, optional
        Releases of noise on either table, at least 100; by default as many as take about half a
        minute on one core, from 1,000 to 50,000.
    progress : callable or False, optional
        As in `measure`.

    Returns
    -------
    Audit
        Print it; ``passed`` is the verdict.

    Raises
    ------
    RequestError
        If `draws` is below 100, or `plan` is no plan.
    NoiseError
        If noise cannot be drawn.

    Notes
    -----
    Changes are counted in rationals, from the sums that would be measured and the scales at which
    noise would be drawn: L1 norms for Laplace noise, squared L2 norms for Gaussian. Where a block
    has few rows all pairs are compared; else random rows, and from the best of them an ascent by
    single cells. A change beyond a claim is a proof that the claim is wrong, and the absence of one
    is no proof that it is right. A loss that draws prove is right with probability 1 - 1e-6, and
    correct noise fails the tests of fit with about 1e-6.

    Examples
    --------
    >>> import dpstats as dps
    >>> schema = dps.Schema([dps.Boolean("smoker"), dps.Category("region", ["north", "south"])])
    >>> asked = {"link": dps.Independence("smoker", "region")}
    >>> plan = dps.plan(schema, asked, budget=dps.PureDP(1))
    >>> print(dps.audit(plan, draws=100))
    Audit of plan ...: passed
    ...
    """
    if not isinstance(plan, Plan):
        raise RequestError(
            f"the first argument must be a dps.Plan, got {type(plan).__name__}; make one with "
            "dps.plan or dps.Plan.load"
        )
    if draws is not None:
        check_whole("draws", draws, _LEAST)
    rng = np.random.default_rng(_SEED)
    strategy = plan.strategy
    with shown_progress(progress) as say:
        blocks, loss, tables = audit_blocks(strategy, rng, say)
        noise = _audit_noise(strategy, tables, draws or _usual(strategy), rng, say)
        if say is not None:
            say("done", 1, 1)
    guarantee = f"{strategy.budget}; {strategy.neighbours}"
    return Audit(plan.digest, guarantee, tuple(blocks), loss, noise, strategy.neighbours.rows)


def _usual(strategy: Strategy) -> int:
    """Draws that take about as long for every plan."""
    calls = sum(len(np.unique(scales)) for scales in strategy.block_scales)
    functions = sum(planned.block.size for planned in strategy.blocks)
    return min(max(_TIME // (2 * (_CALL * calls + _FUNCTION * functions)), _FEW), _MANY)


def _claims(strategy: Strategy) -> dict[str, tuple[Loss, float]]:
    """What is promised, and the loss of an event in its terms."""
    budget = strategy.budget
    claims = {budget.parameter: (loss_of(budget.noise), float(budget.total))}
    if isinstance(budget, ZCDP):
        delta = float(budget.delta)
        claims[f"epsilon at delta = {delta:.3g}"] = epsilon_of(delta), budget.epsilon_at()
    return claims


def _audit_noise(
    strategy: Strategy,
    tables: Tables,
    draws: int,
    rng: np.random.Generator,
    progress: Progress | None,
) -> NoiseAudit:
    """Half of the draws choose an event, the other half prove a loss; all are compared with a law.

    The draws are those of `measure`, block by block; the scales are those of the plan.
    """
    noise = strategy.budget.noise
    scales: Floats = np.concatenate(strategy.block_scales)
    one, other = (np.concatenate(side) for side in tables.sums)
    drawn = []
    for number, side in enumerate(tables.sums):
        made: Integers = np.empty((draws, len(scales)), dtype=np.int64)
        for run in range(draws):
            if progress is not None and run % 100 == 0:
                progress("drawing noise", number * draws + run, 2 * draws)
            pairs = zip(tables.blocks, side, strict=True)
            made[run] = np.concatenate([measuring._noisy(p, own, noise)[0] for p, own in pairs])
        drawn.append(made)
    here, there = (log_ratios(made, one, other, scales, noise) for made in drawn)
    half = draws // 2
    proved = {}
    for name, (loss, claimed) in _claims(strategy).items():
        event = Event.choose(loss, here[:half], there[:half])
        proved[name] = (event.proves(loss, here[half:], there[half:]), claimed)
    every = np.concatenate([drawn[0] - one, drawn[1] - other])
    pvalues = fits(every, scales, strategy.budget.law, rng)
    return NoiseAudit(draws, proved, together(pvalues), len(pvalues))
