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
class BlockAudit:
    """The largest change of a block's sums by one row, or one person, that was reached.

    Attributes
    ----------
    kind, first_function : str
    functions : int
    rows : int
        That were tried, one against the other.
    every : bool
        Whether these are all pairs of rows; else an ascent went on from the best.
    reached, claimed : Fraction
        In units of each function's bound: L1 for Laplace noise, squared L2 for Gaussian.
    additive : bool
        Whether the sums over several rows were those of each, added.
    """

    kind: str
    first_function: str
    functions: int
    rows: int
    every: bool
    reached: Fraction
    claimed: Fraction
    additive: bool = True

    @property
    def passed(self) -> bool:
        """Whether nothing beyond the claim was reached."""
        return self.additive and self.reached <= self.claimed

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "kind": self.kind,
            "first_function": self.first_function,
            "functions": self.functions,
            "rows": self.rows,
            "every_pair": self.every,
            "reached": str(self.reached),
            "claimed": str(self.claimed),
            "additive": self.additive,
            "passed": self.passed,
        }


@dataclass(frozen=True)
class LossAudit:
    """The largest privacy loss of the whole plan that was reached.

    Attributes
    ----------
    reached, budget : Fraction
        Epsilon or rho.
    every : bool
        Whether all pairs of rows were tried.
    """

    reached: Fraction
    budget: Fraction
    every: bool

    @property
    def passed(self) -> bool:
        """Whether it is within the budget."""
        return self.reached <= self.budget

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "reached": str(self.reached),
            "budget": str(self.budget),
            "every_pair": self.every,
            "passed": self.passed,
        }


@dataclass(frozen=True)
class NoiseAudit:
    """What draws of the installed noise showed.

    Attributes
    ----------
    draws : int
        Releases of noise on either of two neighbouring tables.
    proved : dict of str to (float, float)
        Losses that the draws prove, with confidence 1 - 1e-6 each, and what is claimed.
    pvalue : float
        Of the fit of all draws to their exact laws.
    tests : int
        Number of tests that it joins.
    """

    draws: int
    proved: dict[str, tuple[float, float]]
    pvalue: float
    tests: int

    @property
    def passed(self) -> bool:
        """Whether no proved loss passes its claim, and the draws fit their law."""
        within = all(found <= claimed for found, claimed in self.proved.values())
        return within and self.pvalue >= MISS

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "draws": self.draws,
            "confidence": 1 - MISS,
            "proved": {
                name: {"proved": found, "claimed": claimed}
                for name, (found, claimed) in self.proved.items()
            },
            "pvalue": self.pvalue,
            "tests": self.tests,
            "passed": self.passed,
        }


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
        return {
            "plan": self.plan,
            "guarantee": self.guarantee,
            "passed": self.passed,
            "blocks": [block.to_dict() for block in self.blocks],
            "loss": self.loss.to_dict(),
            "noise": self.noise.to_dict(),
            "not_shown": _NOT_SHOWN,
        }

    def __str__(self) -> str:
        return _printed(self)

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        return as_html("dpstats audit", str(self).splitlines())


def _printed(audit: Audit) -> str:
    """Verdict, a line for each block, the whole plan, the noise, and what is not shown."""
    norm = "L1" if "rho" not in audit.noise.proved else "squared L2"
    kept = _printed_blocks(audit)
    left = len(audit.blocks) - len(kept)
    loss = audit.loss
    name = next(iter(audit.noise.proved))
    functions = sum(block.functions for block in audit.blocks)
    whole: list[object] = ["whole plan", functions, _how(loss.every), f"{float(loss.reached):.6g}",
                           f"{float(loss.budget):.6g}",
                           _ratio(float(loss.reached / loss.budget), loss.passed)]  # fmt: skip
    head: list[object] = ["block", "functions", "rows tried", "reached", "claimed", "ratio"]
    lines = [
        f"Audit of plan {short_digest(audit.plan)}: {'passed' if audit.passed else 'FAILED'}",
        audit.guarantee,
        "",
        f"Largest change of the sums by {audit.changed}, {norm}, in units of each function's "
        f"bound; for the whole plan {name}",
        *_aligned([head, *map(_line, kept), whole]),
    ]
    if left:
        lines.append(f"and {left} more blocks, which passed; --json or to_dict() has them all")
    lines += ["", f"Noise, {audit.noise.draws:,} draws of all of it on either of two neighbouring "
              "tables of the rows that tell most", *_noise(audit)]  # fmt: skip
    return "\n".join([*lines, "", _NOT_SHOWN])


def _printed_blocks(audit: Audit) -> list[BlockAudit]:
    failed = [block for block in audit.blocks if not block.passed]
    passed = [block for block in audit.blocks if block.passed]
    most = lines_shown(len(audit.blocks), _MOST)
    kept = {id(block) for block in (*failed, *passed[: max(0, most - len(failed))])}
    return [block for block in audit.blocks if id(block) in kept]


def _line(block: BlockAudit) -> list[object]:
    name = f"{block.kind}: {block.first_function}"
    name = name if len(name) <= _WIDTH else name[: _WIDTH - 3] + "..."
    ratio = _ratio(float(block.reached / block.claimed), block.passed)
    if not block.additive:
        ratio += " (sums of several rows are not those of each)"
    return [name, block.functions, f"{block.rows:,} {_how(block.every)}",
            f"{float(block.reached):.6g}", f"{float(block.claimed):.6g}", ratio]  # fmt: skip


def _how(every: bool) -> str:
    return "all pairs" if every else "and a search"


def _ratio(ratio: float, passed: bool) -> str:
    return f"{ratio:.4f}" if passed else f"{ratio:.4f} FAILED"


def _noise(audit: Audit) -> list[str]:
    rows: list[list[object]] = [["check", "found", "allowed", ""]]
    for name, (found, claimed) in audit.noise.proved.items():
        verdict = "" if found <= claimed else "FAILED"
        rows.append([f"{name}, proved", f"{found:.4g}", f"at most {claimed:.4g}", verdict])
    fit, verdict = audit.noise.pvalue, "" if audit.noise.pvalue >= MISS else "FAILED"
    tests = f"fit to its law, {audit.noise.tests} tests, p-value"
    rows.append([tests, f"{fit:.3g}", f"at least {MISS:g}", verdict])
    return _aligned(rows)


def _aligned(rows: Sequence[Sequence[object]]) -> list[str]:
    """Lines of columns, the first to the left."""
    texts = [[str(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
    lines = []
    for first, *rest in texts:
        cells = [cell.rjust(width) for cell, width in zip(rest, widths[1:], strict=True)]
        lines.append("  ".join([first.ljust(widths[0]), *cells]).rstrip())
    return lines
