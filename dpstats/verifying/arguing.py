"""The program: open a file, compute everything again, print the argument and the verdict."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

from dpstats.verifying.certificate import check_certificate
from dpstats.verifying.findings import Finding, find, joint_residuals
from dpstats.verifying.functions import Residual
from dpstats.verifying.noise import promises, scale_of
from dpstats.verifying.persons import PersonProducts
from dpstats.verifying.reading import Held, Measured, open_file
from dpstats.verifying.shapes import NotReadError, fraction

AGREES, DISAGREES, NOT_READ = 0, 1, 2
_KEYS = {"pure": "epsilon", "zcdp": "rho", "approx": "rho"}
_UNITS = {
    "replace": "neighbours differ by replacing one row",
    "add_remove": "neighbours differ by one row more or less",
}
_OF_PERSONS = {
    "replace": "neighbours differ by the values in the rows of one person",
    "add_remove": "neighbours differ by all rows of one person, there or not",
}

_WHAT = {
    "table": "counts of all cells",
    "condition": "the count of some cells",
    "residual": "products over columns of n 1{bin = i} - 1, n bins",
    "moments": "products of values, signs and levels",
    "group_moments": "(1 - x)^2 / 4, (1 - x^2) / 2, (1 + x)^2 / 4 in groups",
    "ball_moments": "means and products of rows shrunk to a ball, and their number",
    "kernel_lattice": "products of kernels at the points of a lattice",
    "bin_offsets": "distances from the middle of bins, by cell",
    "linear_losses": "losses at the points of a grid",
    "tabulated_losses": "losses that the file lists, at the points of a grid",
    "pilot_score": "terms times the residual of a response",
    "person_shares": "products of person totals of a weight of one a row",
    "person_moments": "products of person totals of products",
}


@dataclass(frozen=True)
class Verdict:
    """What the program concludes.

    Attributes
    ----------
    findings : tuple of Finding
        Of every block, in the order of the file.
    reached, bound : Fraction
        Cost of the noise: of what rows reach, and of what none exceeds.
    wrong : tuple of str
        Disagreements.
    undecided : bool
        Whether the budget lies between the two costs.
    text : str
        The argument.
    """

    findings: tuple[Finding, ...]
    reached: Fraction
    bound: Fraction
    wrong: tuple[str, ...]
    undecided: bool
    text: str

    @property
    def agrees(self) -> bool:
        """Whether everything is as the file states."""
        return not self.wrong and not self.undecided


def main(arguments: Sequence[str]) -> int:
    """Run the program; returns 0 for agreement, 1 for none, 2 for a file that cannot be read."""
    if len(arguments) != 1 or arguments[0].startswith("-"):
        sys.stderr.write("usage: verifying FILE, a release, measurements or a plan of dpstats\n")
        return NOT_READ
    try:
        verdict = verify(Path(arguments[0]))
    except NotReadError as error:
        sys.stderr.write(f"{error}\n")
        return NOT_READ
    sys.stdout.write(verdict.text + "\n")
    return AGREES if verdict.agrees else DISAGREES


def verify(path: Path) -> Verdict:
    """Compute everything in a file again.

    Raises
    ------
    NotReadError
        If it is no file of dpstats, or cannot be understood.
    """
    held = open_file(path)
    try:
        return _argued(held, path.name)
    except NotReadError:
        raise
    except Exception as error:  # any value may be anywhere in a file
        why = f"{type(error).__name__}: {error}"
        raise NotReadError(f"{path.name} is not as dpstats writes it ({why})") from None


def _argued(held: Held, name: str) -> Verdict:
    budget = held.document["budget"]
    kind = budget["kind"]
    total, power = fraction(budget[_KEYS[kind]]), 1 if kind == "pure" else 2
    findings = tuple(find(one.block, held.unit, power) for one in held.blocks)
    times = [_times(one, held.rows_per_person, power) for one in held.blocks]
    costs = [
        _costs(one, finding, power, own)
        for one, finding, own in zip(held.blocks, findings, times, strict=True)
    ]
    joint, joint_words = _of_residuals(held, power)
    reached, bound = joint, joint
    for one, (least, most) in zip(held.blocks, costs, strict=True):
        if not (joint and isinstance(one.block, Residual)):
            reached, bound = reached + least, bound + most
    what = "discrete Laplace" if power == 1 else "discrete Gaussian"
    units = _UNITS if held.rows_per_person == 1 else _OF_PERSONS
    lines = [
        f"{name}: a {held.kind} of dpstats, "
        f"{sum(one.block.size for one in held.blocks):,} noisy answers from "
        f"{len(held.blocks)} blocks of functions.",
        f"Claim: {_KEYS[kind]} = {_text(total)} with {what} noise; {units[held.unit]}.",
        *_persons(held, held.rows_per_person**power),
        "",
    ]
    for number, (one, finding, cost) in enumerate(zip(held.blocks, findings, costs, strict=True)):
        alone = not (joint and isinstance(one.block, Residual))
        left = total - bound + cost[1] if alone else None
        lines += _paragraph(number, one, finding, cost, left, power, times[number])
    lines += joint_words
    wrong = held.wrong
    undecided = reached <= total < bound
    lines += ["", *_sum(total, reached, bound, _KEYS[kind], held)]
    if reached > total:
        wrong.append(
            f"the noise spends {_text(reached)} on rows that exist, more than the budget "
            f"{_text(total)}: some sensitivity is claimed too small, or a cost is left out"
        )
    if kind == "approx":
        lines += _promise(held, total, budget)
    if held.release is not None:
        lines += ["", "Certificate", *(f"  {line}" for line in check_certificate(held))]
    lines += ["", *held.said, ""]
    lines += [f"Disagreement: {one}." for one in wrong]
    if undecided:
        lines.append(
            f"Not decided: rows reach a cost of {_text(reached)}, the bound is {_text(bound)}, and "
            f"the budget {_text(total)} lies between them."
        )
    if not wrong and not undecided:
        lines.append("agrees")
    return Verdict(findings, reached, bound, tuple(wrong), undecided, "\n".join(lines))


def _persons(held: Held, times: int) -> list[str]:
    """What is said of persons with several rows."""
    k, key = held.rows_per_person, held.document.get("person_key")
    lines = []
    totals = any(isinstance(one.block, PersonProducts) for one in held.blocks)
    squared = f", and products of person totals {times**2} times" if totals else ""
    if k > 1:
        lines.append(
            f"A person has at most {k} rows: each block costs {times} times what it does for one"
            f"{squared}."
        )
    if key is not None:
        lines.append(f"The rows of a person are found by the key {key!r}, which is not measured.")
    return lines


def _times(one: Measured, k: int, power: int) -> int:
    """How many times as much a person of k rows costs: totals are multiplied by each other."""
    found: int = k ** (power * (2 if isinstance(one.block, PersonProducts) else 1))
    return found


def _costs(one: Measured, finding: Finding, power: int, times: int) -> tuple[Fraction, Fraction]:
    """What a block spends on a person, by what is reached and by the bound.

    k equal rows that change alike move sums k times as far as one, and no k rows farther; products
    of two person totals k^2 times.
    """
    per_unit = times / one.multiplier / power
    return finding.reached * per_unit, finding.bound * per_unit


def _of_residuals(held: Held, power: int) -> tuple[Fraction, list[str]]:
    """The cost of all residuals together: no pair of rows is the worst for each of them."""
    own = [one for one in held.blocks if isinstance(one.block, Residual)]
    if power == 1 or not own:
        return Fraction(0), []
    blocks = [one.block for one in own if isinstance(one.block, Residual)]
    weights = [1 / (one.multiplier * one.block.bounds[0] ** 2) for one in own]
    found = held.rows_per_person**2 * joint_residuals(blocks, weights, held.unit) / 2
    how = "every row has the same length" if held.unit == "add_remove" else (
        "the largest over all sets of columns in which two rows differ"
    )  # fmt: skip
    return found, [f"Residuals together: cost {_text(found)}, {how}."]


def _paragraph(
    number: int,
    one: Measured,
    finding: Finding,
    cost: tuple[Fraction, Fraction],
    left: Fraction | None,
    power: int,
    times: int,
) -> list[str]:
    """The argument for a block."""
    names = ", ".join(column.name for column in one.block.columns) or "no column"
    bounds = sorted(set(one.block.bounds))
    scales = [scale_of(one.multiplier, bound, power) for bound in (bounds[0], bounds[-1])]
    norm = "L1" if power == 1 else "squared L2"
    known = f"{norm} = {_text(finding.bound)}, which rows reach"
    if finding.reached < finding.bound:
        found = _text(finding.reached)
        known = f"{norm} <= {_text(finding.bound)} (a search finds {found})"
    claimed = ""
    if left is not None:  # what the budget leaves for it, if all other blocks are as here
        amount = left * one.multiplier * power / times
        claimed = " Claimed: the same."
        if amount > finding.bound > 0:
            factor = f"{float(amount / finding.bound):.6g}"
            claimed = f" Claimed: at most {_text(amount)}, safe and larger by a factor of {factor}."
        elif amount < finding.bound:
            claimed = f" Claimed, if all other blocks are as here: {_text(amount)}."
    scale = f"{scales[0]:.6g}" + (f" to {scales[1]:.6g}" if scales[0] < scales[1] else "")
    return [
        f"{number}. {one.block.kind} ({one.role}) of {names}: {_WHAT[one.block.kind]}, "
        f"{one.block.size:,} function{'s' * (one.block.size > 1)}.",
        f"   Recomputed {known}: {finding.how}.{claimed}",
        f"   Noise scale {scale} on the sums (multiplier {_text(one.multiplier)}); cost "
        f"{_text(cost[1])}.",
    ]


def _sum(total: Fraction, reached: Fraction, bound: Fraction, key: str, held: Held) -> list[str]:
    lines = [f"Total: {key} = {_text(bound)} is spent, {_text(total)} is claimed."]
    if bound < total:
        factor = float(total / bound)
        lines.append(f"The claim is safe, larger by a factor of {factor:.9g}.")
    if bound == total == reached:
        lines.append("Both are equal, and rows reach every sensitivity.")
    return lines


def _promise(held: Held, total: Fraction, budget: dict[str, str]) -> list[str]:
    epsilon, delta = fraction(budget["epsilon"]), fraction(budget["delta"])
    holds, found, how = promises(total, epsilon, delta)
    stated = f"epsilon = {_text(epsilon)} at delta = {float(delta):.3g}"
    if not holds:
        held.wrong.append(f"rho = {_text(total)} is not proven to give {stated}: delta {found:.4g}")
    return [
        f"rho = {_text(total)} gives epsilon = {_text(epsilon)} at delta <= {found:.6g}, {how}."
    ]


def _text(value: Fraction) -> str:
    """A fraction, or its decimal if that is long."""
    exact = str(value)
    return exact if len(exact) <= 12 else f"{float(value):.9g}"
