"""The program: open a file, compute everything again, print the argument and the verdict."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

from dpstats.verifying.blocks import Finding, find, find_weighted
from dpstats.verifying.certificate import check_certificate, check_rows
from dpstats.verifying.design import STEPS
from dpstats.verifying.kinds import KINDS, residuals_together
from dpstats.verifying.noise import prove_delta, scale_of
from dpstats.verifying.reading import Contents, Measured, open_file
from dpstats.verifying.rules import check_rules
from dpstats.verifying.shapes import NotReadError, fraction

AGREES, DISAGREES, NOT_READ = 0, 1, 2


@dataclass(frozen=True)
class Verdict:
    """Conclusion of the program: the cost that rows reach and that none exceeds."""

    reached: Fraction
    bound: Fraction
    wrong: tuple[str, ...]
    undecided: bool  # the budget lies between the two costs, or something was not computed
    text: str

    @property
    def agrees(self) -> bool:
        """True if everything is as the file states."""
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


def _neighbours(contents: Contents) -> str:
    """How neighbouring tables differ."""
    k, replaced = contents.rows_per_person, contents.unit == "replace"
    if "person_key" in contents.document:
        rows = "all rows of one person"
        return f"replacing the values in {rows}" if replaced else f"{rows}, there or not"
    rows = "one row" if k == 1 else f"up to {k} rows of one person"
    return f"replacing {rows}" if replaced else f"{rows} more or less"


def verify(path: Path) -> Verdict:
    """Compute everything in a file again; NotReadError if it cannot be understood."""
    try:
        return _argue(open_file(path), path.name)
    except OSError as error:
        raise NotReadError(f"{path.name} cannot be read: {error.strerror}") from None
    except NotReadError as error:
        raise NotReadError(f"{path.name} {error}") from None
    except Exception as error:  # any value may be anywhere in a file
        why = f"{type(error).__name__}: {error}"
        raise NotReadError(f"{path.name} is not as dpstats writes it ({why})") from None


def _argue(contents: Contents, name: str) -> Verdict:
    """The cost of all blocks against the budget, and all other checks.

    k equal rows of a person that change alike move sums k times as far as one row, and no k rows
    move them farther; products of two totals of a person, k^2 times.
    """
    budget, power, k = contents.document["budget"], contents.power, contents.rows_per_person
    key = "epsilon" if budget["kind"] == "pure" else "rho"
    total, noise = fraction(budget[key]), "Laplace" if power == 1 else "Gaussian"
    of_persons = [one.role == "persons" for one in contents.blocks]
    lines = [
        f"{name}: a {contents.kind} of dpstats, "
        f"{sum(one.block.size for one in contents.blocks):,} noisy answers from "
        f"{len(contents.blocks)} blocks of functions.",
        f"Claim: {key} = {_text(total)} with discrete {noise} noise; neighbours differ by "
        f"{_neighbours(contents)}.",
    ]
    if k > 1:
        more = f", and products of person totals {k ** (2 * power)} times" * any(of_persons)
        lines.append(
            f"A person has at most {k} rows: each block costs {k**power} times what it does for "
            f"one{more}."
        )
    if person_key := contents.document.get("person_key"):
        scaled = f"; their weights are scaled to {k} caps in all" if contents.weighted else ""
        lines.append(
            f"The rows of a person are found by the key {person_key!r}, which is not measured"
            f"{scaled}."
        )
    if contents.weighted:
        design = contents.document["design"]
        lines.append(
            f"Rows are weighted by {design['weights']!r}, at most {design['cap']:.10g}, in "
            f"{STEPS:,} steps: each block costs {STEPS**power:,} times what it does for a weight "
            "of one step."
        )
    lines.append("")
    together, reached, bound = [], Fraction(0), Fraction(0)
    for number, (one, person) in enumerate(zip(contents.blocks, of_persons, strict=True)):
        found, copies = (find_weighted, STEPS) if contents.weighted else (find, 1)
        finding = found(one.block, contents.unit, power)
        price = Fraction((copies * k ** (1 + person)) ** power) / (power * one.multiplier)
        lines += _explain(number, one, finding, price * finding.bound, power)
        if one.block.kind == "residual" and power == 2:
            together.append((one.block.columns, price / one.block.bounds[0] ** 2))
        else:
            reached, bound = reached + price * finding.reached, bound + price * finding.bound
    if together:  # no pair of rows is the worst for each of them
        cost = residuals_together(together, contents.unit)
        reached, bound = reached + cost, bound + cost
        lines.append(
            f"Residuals together: cost {_text(cost)}, the largest over all sets of columns in "
            "which two rows differ."
        )
    lines += ["", f"Total: {key} = {_text(bound)} is spent, {_text(total)} is claimed."]
    if bound < total:
        lines.append(f"The claim is safe, larger by a factor of {float(total / bound):.9g}.")
    elif bound == total == reached:
        lines.append("Both are equal, and rows reach every sensitivity.")
    undecided = reached <= total < bound
    if undecided:
        contents.undecided.append(
            f"rows reach a cost of {_text(reached)}, the bound is {_text(bound)}, and the budget "
            f"{_text(total)} lies between them"
        )
    contents.require(
        reached <= total,
        f"the noise spends {_text(reached)} on rows that exist, more than the budget "
        f"{_text(total)}: some sensitivity is claimed too small, or a cost is left out",
    )
    if budget["kind"] == "approx":
        epsilon, delta = fraction(budget["epsilon"]), fraction(budget["delta"])
        proven, how = prove_delta(total, epsilon)
        what, most = f"rho = {_text(total)} gives epsilon = {_text(epsilon)}", float(proven)
        lines.append(f"{what} at delta <= {most:.6g}, {how}.")
        contents.require(
            proven <= delta,
            f"it is not proven that {what} at delta = {float(delta):.3g}: delta {most:.4g}",
        )
    if contents.release is not None:
        rows = check_rows(contents)
        check_rules(contents, rows)
        certificate = check_certificate(contents, rows)
        lines += ["", "Certificate", *(f"  {line}" for line in certificate)]
    lines += ["", *contents.said, ""]
    lines += [f"Disagreement: {one}." for one in contents.wrong]
    lines += [f"Not decided: {one}." for one in contents.undecided]
    lines += [] if contents.wrong or contents.undecided else ["agrees"]
    wrong, text = tuple(contents.wrong), "\n".join(lines)
    return Verdict(reached, bound, wrong, bool(contents.undecided), text)


def _explain(number: int, one: Measured, finding: Finding, cost: Fraction, power: int) -> list[str]:
    bounds, norm = one.block.bounds, "L1" if power == 1 else "squared L2"
    low, high = (scale_of(one.multiplier, b, power) for b in (min(bounds), max(bounds)))
    what = KINDS[one.block.kind].what
    if one.block.base is not None:
        what += f": {KINDS[one.block.base.kind].what}"
    known = f"{norm} = {_text(finding.bound)}, which rows reach"
    if finding.reached < finding.bound:
        found = f" (a search finds {_text(finding.reached)})" if finding.reached else ""
        known = f"{norm} <= {_text(finding.bound)}{found}"
    return [
        f"{number}. {one.block.kind} ({one.role}) of {', '.join(one.names) or 'no column'}: "
        f"{what}, {one.block.size:,} function{'s' * (one.block.size > 1)}.",
        f"   Recomputed {known}: {finding.how}.",
        f"   Noise scale {low:.6g}{f' to {high:.6g}' if low < high else ''} on the sums "
        f"(multiplier {_text(one.multiplier)}); cost {_text(cost)}.",
    ]


def _text(value: Fraction) -> str:
    exact = str(value)
    return exact if len(exact) <= 12 else f"{float(value):.9g}"
