"""The report for the custodian and the disclosure board: what leaves the building, and why it may.

Each step of the proof is recomputed from the release when the page is written: the sensitivities,
the noise and the sum of what it spends.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from dpstats import files
from dpstats.analyses.registry import spelled
from dpstats.checks import counted
from dpstats.families.tables.residuals import Residual
from dpstats.measured.contents import kind_of
from dpstats.measured.strategy import Strategy, residuals_cost
from dpstats.privacy.neighbours import Neighbours
from dpstats.privacy.rationals import amount_text
from dpstats.releases.release import Release
from dpstats.reports.page import (
    Section,
    bullets,
    facts,
    heading,
    page,
    paragraph,
    prose,
    table,
)
from dpstats.reports.words import of_several, promise
from dpstats.results.rendering import MOST, significant

_PUBLIC = "public: declared before any row was read"
_NOISY = "noisy answers, by the proof below"
_LATER = "computed from the noisy answers and from public random numbers (post-processing)"


def board_report(release: Release, title: str) -> str:
    """The page."""
    sections = (
        _left(release),
        _declared(release),
        _proof(release),
        _spent(release),
        _numbers(release),
        _protected(release),
        _decisions(release),
    )
    return page(title, _lead(release), sections)


def _lead(release: Release) -> Iterator[str]:
    held = release.measurements
    if held.not_private:
        yield paragraph(
            "NOT PRIVATE: the noise came from a source for testing; do not publish.", "warn"
        )
    yield paragraph(
        f"One file leaves the building. The private rows enter it through "
        f"{counted(len(held.noisy_sums), 'noisy answer')} and in no other way"
        f"{', but for their public number' if held.unit == 'replace' else ''}. The noise spends "
        f"{held.budget}.",
        "lead",
    )
    yield facts([
        ("Private rows", f"{release.n:,} (exact)" if held.rows.public else f"about {release.n:,}"),
        ("Neighbours", _NEIGHBOURS[held.unit].replace("one row", held.neighbours.rows)),
        ("Budget spent", str(held.budget)),
        ("Digest of the plan", files.short_digest(held.plan_digest)),
    ])  # fmt: skip


_NEIGHBOURS = {
    "replace": "tables that differ in the content of one row",
    "add_remove": "tables that differ by one row more or less",
}


def _left(release: Release) -> Section:
    held = release.measurements
    size = len(held.noisy_sums)
    number = "; also the exact number of rows" if held.unit == "replace" else ""
    rows = [
        ["measurements.json",
         "schema with levels, bounds and notes; analyses; budget; blocks with their noise; digest"
         + number,
         _PUBLIC],
        ["answers.csv", f"{counted(size, 'noisy answer')}, each with a uniform random number",
         f"{_NOISY}; uniforms are drawn independently of the rows"],
        ["candidates.csv", f"{counted(len(release.weights), 'candidate row')} with weights and "
         "numbers of copies", _LATER],
        ["rows.csv", f"{counted(release.k, 'synthetic row')}", _LATER],
        ["release.json", "how the rows were fitted and drawn, the certificate, the limits", _LATER],
        ["digests.json", "checksums of the other members", _LATER],
    ]  # fmt: skip
    return Section(
        "left",
        "What leaves the building",
        (
            paragraph("The members of the release's file, and where their content comes from."),
            prose(table("Members of the file", ["member", "what it holds", "because"], rows)),
            paragraph("Not in the file:"),
            bullets([
                "private rows, or exact sums of them" + (
                    "" if held.unit == "replace" else ", or their exact number"
                ),
                "how many cells were missing, undeclared or outside the bounds",
                "levels or bounds found in the rows: the schema was declared",
                "times, names of files, folders or machines, and checksums of the private table",
                "the state of any random generator of the noise",
            ]),
        ),
    )  # fmt: skip


def _declared(release: Release) -> Section:
    """Every public choice that the noise depends on, and that the file repeats."""
    used = release.columns.names
    columns = [
        [one.name, one.described, one.missing_rule(), one.note,
         "measured" if one.name in used else "named only"]
        for one in release.schema
    ]  # fmt: skip
    asked = [[name, spelled(one)] for name, one in release.analyses.items()]
    asked += [[name, reason] for name, reason in release.unread.items()]
    header = ["column", "levels or bounds", "other cells", "note", "in this release"]
    return Section(
        "declared",
        "What was declared and asked",
        (
            paragraph(
                "All of it is in the file. The proof below holds if it was chosen without a look "
                "at the rows."
            ),
            prose(table("Columns of the schema", header, columns)),
            prose(table("Planned analyses", ["analysis", "as it was asked"], asked)),
        ),
    )


def _decimal(value: Fraction | int) -> str:
    """A fraction to six digits."""
    return f"{float(value):.6g}"


def _proof(release: Release) -> Section:
    held = release.measurements
    strategy = held.strategy
    laplace = held.budget.noise == "laplace"
    law = "discrete Laplace" if laplace else "discrete Gaussian"
    norm = "the sum of absolute changes (L1)" if laplace else "the sum of squared changes (L2)"
    source = (
        "Dwork, McSherry, Nissim and Smith (2006) for Laplace noise; Ghosh, Roughgarden and "
        "Sundararajan (2012) for the discrete law"
        if laplace
        else "Canonne, Kamath and Steinke (2020) for discrete Gaussian noise; Bun and Steinke "
        "(2016) for its composition"
    )
    count = counted(len(strategy.blocks), "block")
    steps = [
        "Every row is coded by the declared schema alone: a level or a point between public "
        "bounds. A cell that does not fit gets a declared code, so no row moves a sum by more than "
        "the schema allows.",
        f"The private table enters through exact integer sums of {count} of functions with public "
        f"ranges. How far {held.neighbours.rows} can move a block, {norm}, follows from the "
        "ranges. The table below has it for each block.",
        f"Independent {law} noise is added to each sum. OpenDP draws it exactly, as an integer, "
        f"from the random source of the operating system, without a seed. Source: {source}.",
        "Blocks compose: what they spend adds up, in exact fractions"
        + ("." if laplace else "; overlapping tables are bounded jointly, over all pairs of rows."),
        "All else in the file is computed from the noisy answers. Nothing that is done with them "
        "later can lose more privacy (post-processing).",
    ]
    return Section(
        "proof",
        "By which proof",
        (bullets(steps, numbered=True), paragraph(_checked(strategy)), *_outside(release)),
    )


def _checked(strategy: Strategy) -> str:
    """What the page found when it was written."""
    spent = strategy.cost()
    strategy.check()
    return (
        f"Checked when this page was written: the noise of all blocks spends exactly "
        f"{strategy.budget.parameter} = {amount_text(spent)}, and the budget is "
        f"{amount_text(strategy.budget.total)}."
    )


def _outside(release: Release) -> Iterator[str]:
    yield heading("What the proof relies on")
    yield bullets([
        "The file was made by dpstats from one table, under the plan with the digest "
        f"{release.measurements.plan_digest}. The digest shows a change of the plan, not who made "
        "it.",
        "The random source of the operating system is sound.",
        "The exact sums were seen by nobody; timing and memory were not observed. Batch use only.",
        _of_persons(release.measurements.neighbours),
    ])  # fmt: skip


def _of_persons(neighbours: Neighbours) -> str:
    if neighbours.person is not None:
        return (
            f"The column {neighbours.person!r} tells persons apart: {neighbours.persons}. Rows "
            "without a key are not used."
        )
    if neighbours.rows_per_person == 1:
        return "A row holds one person. For several rows of one person see below."
    return f"The table holds {neighbours.persons}. For more rows of one person see below."


def _to_persons(neighbours: Neighbours) -> str:
    return "" if neighbours.whom == "row" else " (to all rows of one person)"


def _spent(release: Release) -> Section:
    held = release.measurements
    strategy, budget = held.strategy, held.budget
    laplace = budget.noise == "laplace"
    rows = []
    for planned in strategy.blocks:
        block = planned.block
        moved = block.moved_by(strategy.neighbours)
        joint = isinstance(block, Residual) and not laplace
        cost = None if joint else block.cost(budget, strategy.neighbours, planned.multiplier)
        columns = ", ".join(column.name for column in block.columns) or "(all rows)"
        rows.append([
            kind_of(block), columns, f"{block.size:,}",
            _decimal(moved.l1 if laplace else moved.l2_squared),
            significant(budget.natural_scale(planned.multiplier)),
            "jointly" if cost is None else _decimal(cost),
        ])  # fmt: skip
    together = residuals_cost(strategy.blocks, budget, strategy.neighbours)
    if together:
        rows.append(["all residuals together", "", "", "", "", _decimal(together)])
    rows.append(
        ["all blocks", "", f"{len(held.noisy_sums):,}", "", "", amount_text(strategy.cost())]
    )
    header = [
        "block", "columns", "sums", "sensitivity, L1" if laplace else "sensitivity, L2 squared",
        "noise scale", f"{budget.parameter} spent",
    ]  # fmt: skip
    return Section(
        "spent",
        "What each block spends",
        (
            paragraph(
                f"Sensitivities{_to_persons(held.neighbours)} and scales are in units of the "
                "largest value of each function: one row, for a count. All but the total are "
                "rounded to six digits; the check above is of exact fractions."
            ),
            table("Blocks", header, rows),
            paragraph(
                "Compare the total with the entry of this plan in the ledger of the data set, and "
                "with the cap that the board has set. Releases of the same people add up.",
            ),
        ),
    )


def _numbers(release: Release) -> Section:
    held = release.measurements
    whom = held.neighbours.whom
    functions = (
        one
        for planned, scales in zip(held.strategy.blocks, held.strategy.block_scales, strict=True)
        for one in zip(
            planned.block.names, scales.tolist(),
            planned.block.bounds * held.rows_per_person**planned.block.degree, strict=True,
        )
    )  # fmt: skip
    rows = [
        [name, f"{noisy:,}", significant(held.budget.law(scale).variance ** 0.5), f"{most:,}"]
        for (name, scale, most), noisy in zip(functions, held.noisy_sums[:MOST].tolist(),
                                              strict=False)
    ]  # fmt: skip
    header = ["function", "noisy answer", "noise sd", f"most of a {whom}"]
    left = len(held.noisy_sums) - len(rows)
    more = [paragraph(f"{counted(left, 'more answer')} in answers.csv.")] if left else []
    return Section(
        "numbers",
        "The published numbers",
        (
            paragraph(
                "Noisy answers as they are in answers.csv. For a condition or a cell they count "
                "rows. A number is measured in grid units: a row counts as the steps of the "
                "declared grid between the middle of the bounds and its value, negative below the "
                "middle (half steps, if the grid has an even number of points); a product, as that "
                "of such numbers. Some functions have coarser grids of their own. The last column "
                f"has, for every answer, the most that one {whom} can add or take away. Negative "
                "counts are noise, and are published as they are."
            ),
            table("Noisy answers", header, rows),
            *more,
        ),
    )


def _protected(release: Release) -> Section:
    held = release.measurements
    header, rows = of_several(held.budget, held.rows_per_person)
    unprotected = [
        "What is true of the population, and would be found without any one person: that is what "
        "the release is for.",
        "The schema, the analyses and the budget, which were public before.",
    ]
    if held.unit == "replace":
        unprotected.append(f"The exact number of rows, {release.n:,}.")
    return Section(
        "protected",
        "What is promised to a person, and what is not",
        (
            bullets(promise(held.budget, held.neighbours)),
            *(
                [prose(table("Guarantee for several rows of one person", header, rows))]
                if held.person is None
                else []
            ),
            paragraph("Not protected:"),
            bullets(unprotected),
        ),
    )


def _decisions(release: Release) -> Section:
    held = release.measurements
    questions = [
        f"Is the digest {files.short_digest(held.plan_digest)} that of the plan that was approved?",
        "Does the ledger of this data set hold an entry for it, and the cap allow it?",
        f"Does each person have {held.neighbours.persons.removesuffix(' per person')}? If not, is "
        "the guarantee for their number of rows enough?"
        if held.person is None
        else f"Does {held.person!r} hold the same key in all rows of a person?",
        "Were all levels, bounds and edges chosen without a look at these rows?",
        "Are the names and notes in the schema fit to be published?",
    ]
    if held.unit == "replace":
        questions.insert(3, f"May the number of rows, {release.n:,}, be public?")
    return Section("decide", "Before you publish", (bullets(questions),))
