"""The audit of a plan, for a custodian who wants to see: searches, draws, and a verdict."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np

from dpstats.arrays import Floats, Integers
from dpstats.auditing.noise_source import (
    MISS,
    Event,
    epsilon_of,
    fits,
    log_ratios,
    loss_of,
    together,
)
from dpstats.auditing.pairs import Pair, Search
from dpstats.checks import Progress, check_whole, lines_shown
from dpstats.display import Shown, as_html, fitted_table, shown_progress
from dpstats.errors import RequestError
from dpstats.families.block import Block
from dpstats.files import short_digest
from dpstats.measured.contents import kind_of
from dpstats.measured.strategy import PlannedBlock, Strategy
from dpstats.planning.plan import Plan
from dpstats.privacy.budget import ZCDP
from dpstats.privacy.laws import POWERS
from dpstats.private import measure as measuring

_MOST = 40  # blocks that are printed; those that failed always are
_WIDTH = 32  # characters of a line of a name
_NOT_SHOWN = (
    "Not shown: changes that no row tried here reaches, flaws of the random source too small for "
    "these draws, and what happens outside the sums and their noise, such as the reading of cells."
)
_SEED = 20240229  # of the rows that are tried; the noise has none
_LEAST = 100  # releases of noise on either table
_FEW, _MANY = 1_000, 50_000  # of those that are usual
_TIME = 30_000_000  # microseconds, of about 150 for a call and 8 for a function
_CALL, _FUNCTION = 150, 8
_PILOTS = (0.0, 1.0, -3.0, np.inf)  # coefficients of a second stage that comes later; any may come


@dataclass(frozen=True)
class LossAudit:
    """The largest privacy loss of the whole plan that was reached, and the budget."""

    reached: Fraction
    budget: Fraction
    every_pair: bool  # of rows was tried

    @property
    def passed(self) -> bool:
        """True if it is within the budget."""
        return self.reached <= self.budget


@dataclass(frozen=True)
class BlockAudit:
    """Largest change of a block's sums by one person, in units of the functions' bounds."""

    kind: str
    first_function: str
    functions: int
    rows: int  # that were tried, one against the other
    every_pair: bool  # these are all rows; else an ascent went on from the best
    reached: Fraction
    claimed: Fraction
    additive: bool = True  # the sums over several rows were those of each, added

    @property
    def passed(self) -> bool:
        """True if nothing beyond the claim was reached."""
        return self.additive and self.reached <= self.claimed


@dataclass(frozen=True)
class NoiseAudit:
    """Findings from draws of the installed noise on two neighbouring tables."""

    draws: int
    proved: dict[str, tuple[float, float]]  # losses, with confidence 1 - 1e-6 each, and claims
    pvalue: float  # of the fit of all draws to their exact laws
    tests: int  # that it joins

    @property
    def passed(self) -> bool:
        """True if no proved loss passes its claim, and the draws fit their law."""
        within = all(found <= claimed for found, claimed in self.proved.values())
        return within and self.pvalue >= MISS


@dataclass(frozen=True, repr=False)
class Audit:
    """Findings of `audit`.

    Attributes
    ----------
    plan : str
        The plan's digest.
    guarantee : str
        Budget and neighbour relation.
    blocks : tuple
        Of every block the change that was `reached` and `claimed`, with `passed`.
    loss : LossAudit
        The same for the privacy loss of all blocks together.
    noise : NoiseAudit
        What draws of the noise proved.
    changed : str
        What neighbours differ in, such as "up to 4 rows of one person".

    Examples
    --------
    >>> import dpstats as dps
    >>> schema = dps.Schema([dps.Boolean("smoker")])
    >>> plan = dps.plan(schema, {"smoking": dps.Proportion("smoker")}, budget=dps.PureDP(1))
    >>> audit = dps.audit(plan, draws=100)
    >>> audit.blocks[0].reached, audit.loss.reached, audit.passed
    (Fraction(1, 1), Fraction(1, 1), True)
    """

    plan: str
    guarantee: str
    blocks: tuple[BlockAudit, ...]
    loss: LossAudit
    noise: NoiseAudit
    changed: str = "one row"

    @property
    def passed(self) -> bool:
        """True if nothing was found beyond a claim."""
        blocks = all(block.passed for block in self.blocks)
        return blocks and self.loss.passed and self.noise.passed

    def to_dict(self) -> dict[str, Any]:
        """Plain data, for JSON: exact numbers as text."""
        noise = _plain(self.noise) | {"confidence": 1 - MISS}
        for name, (found, claimed) in self.noise.proved.items():
            noise["proved"] = noise["proved"] | {name: {"proved": found, "claimed": claimed}}
        return {
            "plan": self.plan,
            "guarantee": self.guarantee,
            "passed": self.passed,
            "blocks": [_plain(block) for block in self.blocks],
            "loss": _plain(self.loss),
            "noise": noise,
            "not_shown": _NOT_SHOWN,
        }

    def __str__(self) -> str:
        return _print(self)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return as_html("dpstats audit", str(self).splitlines())


def _plain(part: BlockAudit | LossAudit | NoiseAudit) -> dict[str, Any]:
    values = {n: str(v) if isinstance(v, Fraction) else v for n, v in vars(part).items()}
    return values | {"passed": part.passed}


def _print(audit: Audit) -> str:
    name, *_ = audit.noise.proved
    norm = "squared L2" if "rho" in audit.noise.proved else "L1"
    failed = sum(not block.passed for block in audit.blocks)
    room = max(0, lines_shown(len(audit.blocks), _MOST) - failed)
    lines, left = [], 0
    for block in audit.blocks:
        if block.passed and room == 0:
            left += 1
            continue
        room -= block.passed
        title = f"{block.kind}: {block.first_function}"
        tried = f"{block.rows:,} {_tried(block.every_pair)}"
        compared = _compare(block.reached, block.claimed, block.passed)
        if not block.additive:
            compared[-1] += " (sums of several rows are not those of each)"
        lines.append([title, str(block.functions), tried, *compared])
    functions, loss = sum(block.functions for block in audit.blocks), audit.loss
    compared = _compare(loss.reached, loss.budget, loss.passed)
    lines.append(["whole plan", str(functions), _tried(loss.every_pair), *compared])
    checks = [
        [f"{what}, proved", f"{proved:.4g}", f"at most {claimed:.4g}", _verdict(proved <= claimed)]
        for what, (proved, claimed) in audit.noise.proved.items()
    ]
    what, pvalue = f"fit to its law, {audit.noise.tests} tests, p-value", audit.noise.pvalue
    checks.append([what, f"{pvalue:.3g}", f"at least {MISS:g}", _verdict(pvalue >= MISS)])
    return "\n".join([
        f"Audit of plan {short_digest(audit.plan)}: {'passed' if audit.passed else 'FAILED'}",
        audit.guarantee,
        "",
        f"Largest change of the sums by {audit.changed}, {norm}, in units of each function's "
        f"bound; for the whole plan {name}",
        *fitted_table(["block", "functions", "rows tried", "reached", "claimed", "ratio"], lines,
                      (0,), first=_WIDTH),
        *([f"and {left} more blocks, which passed; --json or to_dict() has them all"] * (left > 0)),
        "",
        f"Noise, {audit.noise.draws:,} draws of all of it on either of two neighbouring tables of "
        "the rows that tell most",
        *fitted_table(["check", "found", "allowed", ""], checks, (0,)),
        "",
        _NOT_SHOWN,
    ])  # fmt: skip


def _tried(every: bool) -> str:
    return "all pairs" if every else "and a search"


def _verdict(passed: bool) -> str:
    return "" if passed else "FAILED"


def _compare(reached: Fraction, claimed: Fraction, passed: bool) -> list[str]:
    ratio = f"{float(reached / claimed):.4f} {_verdict(passed)}".rstrip()
    return [f"{float(reached):.6g}", f"{float(claimed):.6g}", ratio]


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
    weighted = " with its weights and units" if strategy.schema.design is not None else ""
    changed = strategy.neighbours.rows + weighted
    return Audit(plan.digest, guarantee, tuple(blocks), loss, noise, changed)


def _usual(strategy: Strategy) -> int:
    calls = sum(len(np.unique(scales)) for scales in strategy.block_scales)
    functions = sum(planned.block.size for planned in strategy.blocks)
    return min(max(_TIME // (2 * (_CALL * calls + _FUNCTION * functions)), _FEW), _MANY)


@dataclass(frozen=True)
class Tables:
    """Two neighbouring tables: blocks at the pilot that was worst, and their sums over either."""

    blocks: tuple[PlannedBlock, ...]
    sums: tuple[list[Integers], list[Integers]]


def audit_blocks(
    strategy: Strategy, rng: np.random.Generator, progress: Progress | None = None
) -> tuple[list[BlockAudit], LossAudit, Tables]:
    """Search for the largest change of every block, and for the largest loss of them all.

    The search compares floats; what it finds is computed again in rationals, as it is measured.
    The loss is that of changes over scales, or half of their squares over squared scales.
    """
    found: list[tuple[BlockAudit, Pair, PlannedBlock]] = []
    for number, planned in enumerate(strategy.blocks):
        if progress is not None:
            progress("looking for rows that change the sums most", number, len(strategy.blocks) + 1)
        pilots = [planned.at(c) for c in _PILOTS] if planned.pending else [planned]
        tried = [(*_audit_block(strategy, one.block, rng), one) for one in pilots]
        found.append(max(tried, key=lambda one: one[0].reached))
    audits, pairs, worst = zip(*found, strict=True)
    at_worst = replace(strategy, blocks=worst)
    search = _search(strategy, [planned.block for planned in worst], at_worst.block_scales, rng)
    pair = search.farthest(pairs)
    reached = search.change(pair) / POWERS[strategy.budget.noise]
    loss = LossAudit(reached, strategy.budget.total, pair.every)
    return list(audits), loss, Tables(worst, (search.totals(pair.row), search.totals(pair.other)))


def _audit_block(
    strategy: Strategy, block: Block, rng: np.random.Generator
) -> tuple[BlockAudit, Pair]:
    search = _search(strategy, [block], [block.bounds], rng)
    pair, claimed = search.farthest(), block.moved_by(strategy.neighbours)
    audited = BlockAudit(
        kind=kind_of(block),
        first_function=block.names[0],
        functions=block.size,
        rows=pair.tried,
        every_pair=pair.every and block.degree == 1,  # persons may have different rows
        reached=search.change(pair),
        claimed=claimed.l1 if search.power == 1 else claimed.l2_squared,
        additive=search.adds_up(),
    )
    return audited, pair


def _search(
    strategy: Strategy,
    blocks: Sequence[Block],
    units: Sequence[Floats | Integers],
    rng: np.random.Generator,
) -> Search:
    power, replaced = POWERS[strategy.budget.noise], strategy.unit == "replace"
    k = strategy.rows_per_person
    return Search(strategy.schema, blocks, units, power, replaced, rng, k)


def _audit_noise(
    strategy: Strategy,
    tables: Tables,
    draws: int,
    rng: np.random.Generator,
    progress: Progress | None,
) -> NoiseAudit:
    """Half of the draws choose an event, the other half prove a loss; all fit a law."""
    noise = strategy.budget.noise
    scales: Floats = np.concatenate(strategy.block_scales)
    one, other = (np.concatenate(side) for side in tables.sums)
    drawn = []
    for number, side in enumerate(tables.sums):
        made: Integers = np.empty((draws, len(scales)), dtype=np.int64)
        for run in range(draws):
            if progress is not None and run % 100 == 0:
                progress("drawing noise", number * draws + run, 2 * draws)
            parts = zip(tables.blocks, side, strict=True)
            made[run] = np.concatenate([measuring._noisy(p, own, noise)[0] for p, own in parts])
        drawn.append(made)
    here, there = (log_ratios(made, one, other, scales, noise) for made in drawn)
    half, budget, proved = draws // 2, strategy.budget, {}
    claims = [(budget.parameter, loss_of(noise), float(budget.total))]
    if isinstance(budget, ZCDP):
        delta = float(budget.delta)
        claims.append((f"epsilon at delta = {delta:.3g}", epsilon_of(delta), budget.epsilon_at()))
    for name, loss, claimed in claims:
        event = Event.choose(loss, here[:half], there[:half])
        proved[name] = (event.proves(loss, here[half:], there[half:]), claimed)
    every = np.concatenate([drawn[0] - one, drawn[1] - other])
    pvalues = fits(every, scales, strategy.budget.law, rng)
    return NoiseAudit(draws, proved, together(pvalues), len(pvalues))
