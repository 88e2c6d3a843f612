"""Open a release, measurements or a plan: members and their digests, and the blocks."""

from __future__ import annotations

import csv
import hashlib
import io
import itertools
import json
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any

from dpstats.verifying.blocks import Block
from dpstats.verifying.columns import Column, read_column, source_of
from dpstats.verifying.design import check_contrasts, check_design
from dpstats.verifying.kinds import read_block
from dpstats.verifying.shapes import (
    SHAPES,
    check,
    fraction,
    is_number,
    read_json,
    refuse,
)

_MOST, _MOST_ROWS = 2**31, 2**32  # bytes of an archive that is read, rows of a table
_MOST_OF_PERSON = 63  # rows of a person with totals
_MEASUREMENTS = ("measurements.json", "answers.csv")
_RELEASE = ("release.json", *_MEASUREMENTS, "candidates.csv", "rows.csv")
_ANSWERS = ["block", "function", "name", "noisy_sum", "uniform"]


@dataclass
class Measured:
    """A block of the file, what it is for, the multiplier of its noise, and its noisy sums."""

    block: Block
    role: str
    multiplier: Fraction
    sums: list[int] = field(default_factory=list)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of its columns."""
        return tuple(column.name for column in self.block.columns)


@dataclass
class Contents:
    """Contents of a file: its document is that of the plan or of the measurements."""

    kind: str
    document: dict[str, Any]
    columns: dict[str, Column]
    blocks: list[Measured]
    release: dict[str, Any] | None = None
    members: dict[str, str] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)  # what does not agree
    undecided: list[str] = field(default_factory=list)
    said: list[str] = field(default_factory=list)  # what was checked

    def require(self, holds: bool, wrong: str, said: str = "") -> bool:
        """Note what does not agree, or what was checked."""
        if not holds:
            self.wrong.append(wrong)
        elif said:
            self.said.append(said)
        return holds

    @property
    def unit(self) -> str:
        """The neighbour relation."""
        return str(self.document["unit"])

    @property
    def power(self) -> int:
        """Power of changes: 1 for Laplace noise, 2 for Gaussian."""
        return 1 if self.document["budget"]["kind"] == "pure" else 2

    @property
    def rows_per_person(self) -> int:
        """The most rows of one person, all of which neighbours differ in."""
        return int(self.document.get("rows_per_person", 1))

    @property
    def weighted(self) -> bool:
        """True if rows are a sample survey: sums are of weights, in steps."""
        return "design" in self.document

    @property
    def count_is_public(self) -> bool:
        """True if the number of rows, or the sum of their weights, is known without noise."""
        return self.unit == "replace" and not self.weighted


def open_file(path: Path) -> Contents:
    """Read a file; what is none of dpstats raises an error of any kind."""
    data = path.expanduser().read_bytes()
    return _archive(data) if data.startswith(b"PK") else _plan(data)


def _plan(data: bytes) -> Contents:
    document = read_json(data.decode("utf-8"), "plan")
    contents = _contents("plan", document)
    contents.said.append("It is a plan: nothing was measured yet.")
    if "start" in document:
        before = _measured("measurements", document["start"])
        contents.wrong += before.wrong
        written = [_without_pilot(plain) for plain in before.document["blocks"]]
        own = [_without_pilot(plain) for plain in document["blocks"]]
        contents.require(
            all(plain in own for plain in written),
            "a block of the measurements that the plan adds to is not in the plan",
            f"It adds to measurements of {len(before.blocks)} blocks, which count too.",
        )
    return contents


def _without_pilot(plain: Mapping[str, Any]) -> dict[str, Any]:
    """A block, or contrasts of one, as a plan has it."""
    scored = "pilot" in plain
    known = {key: value for key, value in plain.items() if not (scored and key == "clip")}
    if isinstance(plain.get("base"), Mapping):
        known["base"] = _without_pilot(plain["base"])
    return known | ({"pilot": None} if scored else {})


def _archive(data: bytes) -> Contents:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        infos = archive.infolist()
        refuse(sum(info.file_size for info in infos) > _MOST, "would expand to more than 2 GB")
        members = {info.filename: archive.read(info) for info in infos}
    kind = "release" if "release.json" in members else "measurements"
    known = (*(_RELEASE if kind == "release" else _MEASUREMENTS), "digests.json")
    whole = set(known) <= set(members) and len(members) == len(infos)
    refuse(not whole, "is an archive, and not one of dpstats")
    contents = _measured(kind, {name: members[name].decode("utf-8") for name in known})
    if kind == "release":
        contents.release = read_json(contents.members["release.json"], "release")
    unknown = sorted(set(members) - set(known))
    contents.require(not unknown, f"members that dpstats does not write: {unknown}")
    digests = read_json(contents.members["digests.json"], "digests")
    del members["digests.json"]
    found = {name: hashlib.sha256(content).hexdigest() for name, content in members.items()}
    differ = sorted(n for n in {*digests, *found} if digests.get(n) != found.get(n))
    contents.require(
        not differ,
        f"members whose SHA-256 is not that of digests.json: {differ}",
        f"SHA-256 of {len(found)} members: as digests.json says.",
    )
    return contents


def _measured(kind: str, texts: dict[str, str]) -> Contents:
    contents = _contents(kind, read_json(texts["measurements.json"], "measurements"))
    contents.members, document = texts, contents.document
    _check_digest(contents)
    scores = [plain.get("base", plain) for plain in document["blocks"]]
    lacks = any(score.get("pilot", ()) is None for score in scores)
    refuse(lacks, "lacks the pilot that a second stage was measured at")
    _read_answers(contents)
    k, keyed = contents.rows_per_person, "person_key" in document
    most = "one row" if k == 1 else f"at most {k} rows"
    ends = (" used,", " is used," if k == 1 else " are used,") if keyed else (";",)
    said = document["person"].startswith(tuple(f"{most} per person{end}" for end in ends))
    if keyed and contents.weighted:
        most = f"at most {'the cap' if k == 1 else f'{k} times the cap'} in all"
        by = f"weights per person, by the key {document['person_key']!r}, are scaled to"
        said = document["person"].startswith(f"{by} {most};")
    contents.require(said, f"the file does not say that it protects persons with {most}")
    contents.require(
        not document["not_private"],
        "the noise came from a source for tests: the file is not private",
    )
    unknown = contents.count_is_public and document["rows"] is None
    refuse(unknown, "lacks the public number of rows")
    contents.require(
        contents.unit == "replace" or document["rows"] is None,
        "the file states the number of rows, which it is to protect",
    )
    return contents


def _read_answers(contents: Contents) -> None:
    names, *answers = csv_rows(contents, "answers.csv")
    refuse(names != _ANSWERS, "has answers without the columns of dpstats")
    sums = (int(row[3]) for row in answers)
    for one in contents.blocks:
        one.sums = list(itertools.islice(sums, one.block.size))
    blocks = enumerate(contents.blocks)
    contents.require(
        [row[:2] for row in answers]
        == [[str(i), str(f)] for i, o in blocks for f in range(o.block.size)],
        "answers.csv does not hold one answer to every function, in their order",
        f"answers.csv: one whole number for each of {len(answers)} functions.",
    )
    contents.require(
        all(is_number(row[3], int) and is_number(row[4]) for row in answers),
        "answers.csv has a number that is not written as dpstats writes it",
    )
    contents.require(
        all(abs(float(row[4])) < 0.5 for row in answers),
        "answers.csv has a uniform outside (-1/2, 1/2)",
    )


def csv_rows(contents: Contents, name: str) -> list[list[str]]:
    """The lines of a member, which has to be a table as dpstats writes it."""
    rows, again = list(csv.reader(io.StringIO(contents.members[name]))), io.StringIO()
    csv.writer(again, lineterminator="\n").writerows(rows)
    whole = again.getvalue() == contents.members[name] and len({*map(len, rows)}) == 1
    contents.require(whole, f"{name} is no table as dpstats writes it")
    return rows


def _check_digest(contents: Contents) -> None:
    """The digest of the plan: of all that decides what is measured, pilots and n left out."""
    keys = ("budget", "unit", "rows_per_person", "person_key", "schema", "rules", "totals",
            "design", "blocks", "tables", "analyses", "reference")  # fmt: skip
    plain = {key: contents.document[key] for key in keys if key in contents.document}
    plain["blocks"] = [_without_pilot(block) for block in plain["blocks"]]
    text = json.dumps(plain, separators=(",", ":"), allow_nan=False)
    digest, stated = hashlib.sha256(text.encode("ascii")).hexdigest(), contents.document["plan"]
    contents.require(
        digest == stated,
        f"the contents have the plan digest {digest[:16]}, and the file states {stated[:16]}",
        f"Digest of the plan: {digest[:16]}, computed again from the contents.",
    )


def _contents(kind: str, document: dict[str, Any]) -> Contents:
    """Read what a document says is measured, and check that it can be."""
    for plain in document["schema"]:
        check(plain, SHAPES["column"], "column")
    columns = {plain["name"]: read_column(plain) for plain in document["schema"]}
    blocks, texts = list[Measured](), set[str]()
    for plain in document["blocks"]:
        block = read_block(plain, columns, SHAPES["block"])
        blocks.append(Measured(block, plain["role"], fraction(plain["multiplier"])))
        texts.add(json.dumps({**plain, "multiplier": "", "role": ""}))
    budget = document["budget"]
    refuse(budget.get("kind") not in ("pure", "zcdp", "approx"), "has a budget of no known kind")
    check(budget, SHAPES[budget["kind"]], "budget")
    for name in set(budget) - {"kind"}:
        fraction(budget[name])
    rows, key, k = document["rows"], document.get("person_key"), document.get("rows_per_person")
    refuse(rows is not None and not 1 <= rows <= _MOST_ROWS, "has a number of rows of no table")
    refuse(k is not None and k < 2, "has no whole number of rows per person")  # 1 is not written
    read = {name for one in blocks for name in one.names}
    ends = [source_of(plain) for plain in document["schema"] if plain["name"] in read]
    read |= {name for both in ends if len(both) == 2 for name in both}
    if design := document.get("design"):
        check_design(design, [one.role for one in blocks])
        read |= {design["weights"], design.get("strata")} - {None}
    check_contrasts(design, [(one.role, one.block.plain) for one in blocks])
    refuse(key in read, "measures the column that tells persons apart")
    of_persons = [one.block.kind.startswith("person_") for one in blocks]
    unlike = of_persons != [one.role == "persons" for one in blocks]
    without = any(of_persons) and (key is None or (k or 1) > _MOST_OF_PERSON)
    refuse(unlike or without, "has person totals without persons, or of too many rows")
    contents = Contents(kind, document, columns, blocks)
    contents.require(
        sum(one.role == "count" for one in blocks) == (not contents.count_is_public),
        "the number of rows is measured if and only if neighbours add a row, or rows are weighted",
    )
    # a histogram may be a table of the family too
    contents.require(len(texts) >= len(blocks) - 1, "a block is in the file twice")
    residuals = {one.names for one in blocks if one.block.kind == "residual"}
    margins: set[tuple[str, ...]] = set()
    for table in document["tables"]:
        if 2 ** len(table) - 1 > len(residuals):
            margins.add(("more than there are",))
            continue
        for size in range(1, len(table) + 1):
            margins.update(itertools.combinations(table, size))
    contents.require(
        residuals == margins, "the residuals are not those of the tables that follow from them"
    )
    if rules := document.get("rules"):
        contents.said.append(f"Rules between columns, which change no sensitivity: {len(rules)}.")
    if totals := document.get("totals"):
        contents.said.append(f"Public totals, which nothing that is verified uses: {len(totals)}.")
    return contents
