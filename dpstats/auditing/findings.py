"""What an audit found, and its text for a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from dpstats.auditing.noise_source import MISS
from dpstats.checks import lines_shown
from dpstats.display import as_html
from dpstats.files import short_digest

_MOST = 40  # blocks that are printed; those that failed always are
_WIDTH = 32  # characters of a name
_NOT_SHOWN = (
    "Not shown: changes that no row tried here reaches, flaws of the random source too small for "
    "these draws, and what happens outside the sums and their noise, such as the reading of cells."
)


@dataclass(frozen=True)
class LossAudit:
    """The largest privacy loss of the whole plan that was reached, and the budget."""

    reached: Fraction
    budget: Fraction
    every_pair: bool  # of rows was tried

    @property
    def passed(self) -> bool:
        """Whether it is within the budget."""
        return self.reached <= self.budget


@dataclass(frozen=True)
class BlockAudit:
    """The largest change of a block's sums by one row, or one person, that was reached.

    In units of each function's bound: L1 for Laplace noise, squared L2 for Gaussian.
    """

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
        """Whether nothing beyond the claim was reached."""
        return self.additive and self.reached <= self.claimed


@dataclass(frozen=True)
class NoiseAudit:
    """What draws of the installed noise showed, on either of two neighbouring tables."""

    draws: int
    proved: dict[str, tuple[float, float]]  # losses, with confidence 1 - 1e-6 each, and claims
    pvalue: float  # of the fit of all draws to their exact laws
    tests: int  # that it joins

    @property
    def passed(self) -> bool:
        """Whether no proved loss passes its claim, and the draws fit their law."""
        within = all(found <= claimed for found, claimed in self.proved.values())
        return within and self.pvalue >= MISS


@dataclass(frozen=True, repr=False)
class Audit:
    """What `audit` found.

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
        """Whether nothing was found beyond a claim."""
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

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        return as_html("dpstats audit", str(self).splitlines())


def _plain(part: BlockAudit | LossAudit | NoiseAudit) -> dict[str, Any]:
    values = {n: str(v) if isinstance(v, Fraction) else v for n, v in vars(part).items()}
    return values | {"passed": part.passed}


def _print(audit: Audit) -> str:
    """Verdict, a line for each block, the whole plan, the noise, and what is not shown."""
    name, *_ = audit.noise.proved
    norm = "squared L2" if "rho" in audit.noise.proved else "L1"
    failed = [block for block in audit.blocks if not block.passed]
    passed = [block for block in audit.blocks if block.passed]
    shown = failed + passed[: max(0, lines_shown(len(audit.blocks), _MOST) - len(failed))]
    lines = [["block", "functions", "rows tried", "reached", "claimed", "ratio"]]
    for block in audit.blocks:
        if any(block is one for one in shown):
            title = f"{block.kind}: {block.first_function}"
            title = title if len(title) <= _WIDTH else title[: _WIDTH - 3] + "..."
            tried = f"{block.rows:,} {_tried(block.every_pair)}"
            more = "" if block.additive else " (sums of several rows are not those of each)"
            compared = _compare(block.reached, block.claimed, block.passed, more)
            lines.append([title, str(block.functions), tried, *compared])
    functions, loss = sum(block.functions for block in audit.blocks), audit.loss
    compared = _compare(loss.reached, loss.budget, loss.passed)
    lines.append(["whole plan", str(functions), _tried(loss.every_pair), *compared])
    left = len(audit.blocks) - len(shown)
    checks = [["check", "found", "allowed", ""]]
    for what, (found, claimed) in audit.noise.proved.items():
        verdict = "" if found <= claimed else "FAILED"
        checks.append([f"{what}, proved", f"{found:.4g}", f"at most {claimed:.4g}", verdict])
    what = f"fit to its law, {audit.noise.tests} tests, p-value"
    verdict = "" if audit.noise.pvalue >= MISS else "FAILED"
    checks.append([what, f"{audit.noise.pvalue:.3g}", f"at least {MISS:g}", verdict])
    return "\n".join([
        f"Audit of plan {short_digest(audit.plan)}: {'passed' if audit.passed else 'FAILED'}",
        audit.guarantee,
        "",
        f"Largest change of the sums by {audit.changed}, {norm}, in units of each function's "
        f"bound; for the whole plan {name}",
        *_align(lines),
        *([f"and {left} more blocks, which passed; --json or to_dict() has them all"] * (left > 0)),
        "",
        f"Noise, {audit.noise.draws:,} draws of all of it on either of two neighbouring tables of "
        "the rows that tell most",
        *_align(checks),
        "",
        _NOT_SHOWN,
    ])  # fmt: skip


def _tried(every: bool) -> str:
    return "all pairs" if every else "and a search"


def _compare(reached: Fraction, claimed: Fraction, passed: bool, more: str = "") -> list[str]:
    ratio = f"{float(reached / claimed):.4f}{'' if passed else ' FAILED'}{more}"
    return [f"{float(reached):.6g}", f"{float(claimed):.6g}", ratio]


def _align(rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines of columns, the first to the left."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]).rstrip()
        for row in rows
    ]
