"""Open a release, measurements or a plan: members and their digests, and the blocks."""

from __future__ import annotations

import csv
import hashlib
import io
import itertools
import json
import math
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any

from dpstats.verifying.columns import Column, read_column
from dpstats.verifying.functions import (
    SIGN,
    BinOffsets,
    Block,
    Condition,
    Feature,
    Group,
    GroupMoments,
    Moments,
    Residual,
    Table,
    Term,
)
from dpstats.verifying.losses import LinearLosses, TabulatedLosses, grid_of
from dpstats.verifying.numeric_functions import BallMoments, KernelLattice, PilotScore
from dpstats.verifying.persons import MOST_ROWS, PersonMoments, PersonProducts, PersonShares
from dpstats.verifying.shapes import (
    BLOCKS,
    SHAPES,
    NotReadError,
    check,
    fraction,
    is_number,
    read_json,
)

_MOST, _MOST_ROWS = 2**31, 2**32  # bytes of an archive that is read, rows of a table
_MEASUREMENTS = ("measurements.json", "answers.csv")
_RELEASE = ("release.json", *_MEASUREMENTS, "candidates.csv", "rows.csv")
ANSWERS = ["block", "function", "name", "noisy_sum", "uniform"]
_PERSONS = ("rows_per_person", "person_key")  # only there if there is something to say


@dataclass(frozen=True)
class Measured:
    """A block of the file, what it is for and the multiplier of its noise."""

    block: Block
    role: str
    multiplier: Fraction


@dataclass
class Held:
    """What a file holds.

    Attributes
    ----------
    kind : {"release", "measurements", "plan"}
    document : dict
        Of the plan or of the measurements.
    columns : dict of name to Column
    blocks : list of Measured
    release : dict or None
    answers : list of (block, function, name, noisy sum, uniform), or None
    members : dict of name to text
    wrong : list of str
        What does not agree.
    said : list of str
        What was checked.
    """

    kind: str
    document: dict[str, Any]
    columns: dict[str, Column]
    blocks: list[Measured]
    release: dict[str, Any] | None = None
    answers: list[list[str]] | None = None
    members: dict[str, str] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)
    said: list[str] = field(default_factory=list)

    @property
    def unit(self) -> str:
        """The neighbour relation."""
        return str(self.document["unit"])

    @property
    def rows_per_person(self) -> int:
        """The most rows of one person, all of which neighbours differ in."""
        return int(self.document.get("rows_per_person", 1))


def open_file(path: Path) -> Held:
    """Read a file.

    Raises
    ------
    NotReadError
    """
    try:
        data = path.expanduser().read_bytes()
        return _archive(data) if data.startswith(b"PK") else _plan(data)
    except OSError as error:
        raise NotReadError(f"{path.name} cannot be read: {error.strerror}") from None
    except NotReadError as error:
        raise NotReadError(f"{path.name} {error}") from None
    except Exception as error:  # any value may be anywhere in a file
        why = f"{type(error).__name__}: {error}"
        raise NotReadError(f"{path.name} is not as dpstats writes it ({why})") from None


def _plan(data: bytes) -> Held:
    document = read_json(data.decode("utf-8"), "plan")
    held = _held("plan", document)
    held.said.append("It is a plan: nothing was measured yet.")
    if "start" in document:
        before = _measured("measurements", document["start"])
        held.wrong += before.wrong
        held.said.append(
            f"It adds to measurements of {len(before.blocks)} blocks, which count too."
        )
        written = [_bare(plain) for plain in before.document["blocks"]]
        own = [_bare(plain) for plain in document["blocks"]]
        if any(plain not in own for plain in written):
            held.wrong.append(
                "a block of the measurements that the plan adds to is not in the plan"
            )
    return held


def _bare(plain: Mapping[str, Any]) -> str:
    return json.dumps({**plain, "pilot": None}, sort_keys=True)


def _archive(data: bytes) -> Held:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        infos = archive.infolist()
        if sum(info.file_size for info in infos) > _MOST:
            raise NotReadError("would expand to more than 2 GB")
        members = {info.filename: archive.read(info) for info in infos}
    kind = "release" if "release.json" in members else "measurements"
    known = (*(_RELEASE if kind == "release" else _MEASUREMENTS), "digests.json")
    if not set(known) <= set(members) or len(members) < len(infos):
        raise NotReadError("is an archive, and not one of dpstats")
    held = _measured(kind, {name: members[name].decode("utf-8") for name in known})
    if kind == "release":
        held.release = read_json(held.members["release.json"], "release")
    if unknown := set(members) - set(known):
        held.wrong.append(f"members that dpstats does not write: {sorted(unknown)}")
    digests = read_json(held.members["digests.json"], "digests")
    found = {
        name: hashlib.sha256(content).hexdigest()
        for name, content in members.items()
        if name != "digests.json"
    }
    if digests == found:
        held.said.append(f"SHA-256 of {len(found)} members: as digests.json says.")
    else:
        differ = sorted(n for n in {*digests, *found} if digests.get(n) != found.get(n))
        held.wrong.append(f"members whose SHA-256 is not that of digests.json: {differ}")
    return held


def _measured(kind: str, texts: dict[str, str]) -> Held:
    """Measurements from the texts of their members."""
    held = _held(kind, read_json(texts["measurements.json"], "measurements"))
    held.members = texts
    _check_plan(held)
    if any(plain.get("pilot", ()) is None for plain in held.document["blocks"]):
        raise NotReadError("lacks the pilot that a second stage was measured at")
    names, *held.answers = csv_rows(held, "answers.csv")
    if names != ANSWERS:
        raise NotReadError("has answers without the columns of dpstats")
    expected = [
        [str(i), str(f)] for i, one in enumerate(held.blocks) for f in range(one.block.size)
    ]
    if expected != [row[:2] for row in held.answers]:
        held.wrong.append("answers.csv does not hold one answer to every function, in their order")
    elif not all(is_number(row[3], int) and is_number(row[4]) for row in held.answers):
        held.wrong.append("answers.csv has a number that is not written as dpstats writes it")
    elif not all(abs(float(row[4])) < 0.5 for row in held.answers):
        held.wrong.append("answers.csv has a uniform outside (-1/2, 1/2)")
    else:
        held.said.append(f"answers.csv: one whole number for each of {len(expected)} functions.")
    k, keyed = held.rows_per_person, "person_key" in held.document
    most = "one row" if k == 1 else f"at most {k} rows"
    ends = (" used,", " is used," if k == 1 else " are used,") if keyed else (";",)
    if not str(held.document.get("person")).startswith(
        tuple(f"{most} per person{e}" for e in ends)
    ):
        held.wrong.append(f"the file does not say that it protects persons with {most}")
    if held.document["not_private"]:
        held.wrong.append("the noise came from a source for tests: the file is not private")
    if held.unit == "add_remove" and held.document["rows"] is not None:
        held.wrong.append("the file states the number of rows, which it is to protect")
    if held.unit == "replace" and held.document["rows"] is None:
        raise NotReadError("lacks the public number of rows")
    return held


def csv_rows(held: Held, name: str) -> list[list[str]]:
    """The lines of a member, which has to be a table as dpstats writes it."""
    rows, again = list(csv.reader(io.StringIO(held.members[name]))), io.StringIO()
    csv.writer(again, lineterminator="\n").writerows(rows)
    if again.getvalue() != held.members[name] or len({*map(len, rows)}) != 1:
        held.wrong.append(f"{name} is no table as dpstats writes it")
    return rows


def _check_plan(held: Held) -> None:
    """The digest of the plan: of all that decides what is measured, pilots and n left out."""
    persons = (key for key in _PERSONS if key in held.document)
    keys = ("budget", "unit", *persons, "schema", "blocks", "tables", "analyses", "reference")
    plain = {key: held.document[key] for key in keys}
    plain["blocks"] = [{**b, "pilot": None} if "pilot" in b else b for b in plain["blocks"]]
    text = json.dumps(plain, separators=(",", ":"), allow_nan=False)
    digest = hashlib.sha256(text.encode("ascii")).hexdigest()
    if digest == held.document.get("plan"):
        held.said.append(f"Digest of the plan: {digest[:16]}, computed again from the contents.")
    else:
        held.wrong.append(
            f"the contents have the plan digest {digest[:16]}, and the file states "
            f"{str(held.document.get('plan'))[:16]}"
        )


def _held(kind: str, document: dict[str, Any]) -> Held:
    for plain in document["schema"]:
        check(plain, SHAPES["column"], "column")
    for plain in document["blocks"]:
        if plain.get("kind") not in BLOCKS:
            raise NotReadError(f"has blocks of a kind that is not known: {plain.get('kind')!r}")
        check(plain, SHAPES["block"] | BLOCKS[plain["kind"]], plain["kind"])
    columns = {plain["name"]: read_column(plain) for plain in document["schema"]}
    blocks = [
        Measured(_block(plain, columns), plain["role"], fraction(plain["multiplier"]))
        for plain in document["blocks"]
    ]
    kind_of_budget = document["budget"].get("kind")
    if kind_of_budget not in ("pure", "zcdp", "approx"):
        raise NotReadError("has a budget of a kind that is not known")
    check(document["budget"], SHAPES[kind_of_budget], "budget")
    for name in set(document["budget"]) - {"kind"}:
        fraction(document["budget"][name])
    if not 1 <= (1 if document["rows"] is None else document["rows"]) <= _MOST_ROWS:
        raise NotReadError("has a number of rows that no table has")
    if document.get("rows_per_person", 2) < 2:  # one is not written
        raise NotReadError("has no whole number of rows per person")
    key = document.get("person_key", "")
    if any(column.name == key for one in blocks for column in one.block.columns):
        raise NotReadError("measures the column that tells persons apart")
    of_persons = [isinstance(one.block, PersonProducts) for one in blocks]
    if of_persons != [one.role == "persons" for one in blocks] or (
        any(of_persons) and (not key or document.get("rows_per_person", 1) > MOST_ROWS)
    ):
        raise NotReadError("has person totals without persons, or of too many rows")
    held = Held(kind, document, columns, blocks)
    counts = sum(one.role == "count" for one in blocks)
    if counts != (document["unit"] == "add_remove"):
        held.wrong.append("the number of rows is measured if and only if neighbours add a row")
    texts = [json.dumps({**plain, "multiplier": "", "role": ""}) for plain in document["blocks"]]
    if len(set(texts)) < len(texts) - 1:  # a histogram may be a table of the family too
        held.wrong.append("a block is in the file twice")
    residuals = {one.block.columns for one in blocks if isinstance(one.block, Residual)}
    tables = [tuple(columns[name] for name in names) for names in document["tables"]]
    many = any(2 ** len(table) - 1 > len(residuals) for table in tables)
    if many or residuals != {some for table in tables for some in _margins(table)}:
        held.wrong.append("the residuals are not those of the tables that follow from them")
    return held


def _margins(table: Sequence[Column]) -> Iterator[tuple[Column, ...]]:
    """The columns of every table that follows from one, its own too."""
    for size in range(1, len(table) + 1):
        yield from itertools.combinations(table, size)


def _block(plain: dict[str, Any], columns: dict[str, Column]) -> Block:
    """The functions of a block, from its keys."""
    kind = plain["kind"]

    def of(names: Any) -> tuple[Column, ...]:
        used = set(names)
        if isinstance(names, str) or len(used) < len(names) or not used <= set(columns):
            raise NotReadError("has a block of columns that the schema does not have")
        return tuple(column for name, column in columns.items() if name in used)

    if kind in ("table", "residual"):
        return {"table": Table, "residual": Residual}[kind](plain, of(plain["columns"]))
    if kind == "condition":
        return Condition(plain, _group({**plain, "answered": []}, columns).columns)
    if kind == "bin_offsets":
        return BinOffsets(plain, of(plain["columns"]), plain["number"])
    if kind == "kernel_lattice":
        own = tuple(columns[name] for name in plain["columns"])
        _check_features([(column.name, None) for column in own], columns, None)
        return KernelLattice(plain, own, plain["k"], plain["bandwidth"])
    if kind == "group_moments":
        groups = tuple(_group(one, columns) for one in plain["groups"])
        for group in groups:
            _check_features([(plain["number"], None)], columns, group)
        used = {plain["number"], *(c.name for g in groups for c in (*g.columns, *g.answered))}
        return GroupMoments(plain, of(used), plain["number"], groups)
    if kind == "person_shares":
        groups = tuple(_group(one, columns) for one in plain["groups"])
        names = [] if plain["number"] is None else [plain["number"]]
        for group in groups:
            _check_features([(name, None) for name in names], columns, group)
        used = {*names, *(c.name for g in groups for c in (*g.columns, *g.answered))}
        number = columns[names[0]] if names else None
        return PersonShares(plain, of(used), number, groups)
    if kind == "ball_moments":
        centre, scale = (
            dict(
                zip(
                    plain["numbers"],
                    (fraction(v, what == "center") for v in plain[what]),
                    strict=True,
                )
            )
            for what in ("center", "scale")
        )
        own = of(plain["numbers"])
        _check_features([(name, None) for name in plain["numbers"]], columns, None)
        in_order = [tuple(values[c.name] for c in own) for values in (centre, scale)]
        return BallMoments(plain, own, in_order[0], in_order[1], fraction(plain["clip_norm"]))
    if kind == "linear_losses":
        regressors = tuple(None if f is None else _feature(f) for f in plain["regressors"])
        response = _feature(plain["response"])
        used = {response[0], *(f[0] for f in regressors if f is not None)}
        check([axis[1:3] for axis in plain["axes"]], [[(int, float)]], "axes")
        check([axis[3] for axis in plain["axes"]], [int], "axes")
        axes = grid_of(plain["axes"])
        _check_features([response, *(f for f in regressors if f is not None)], columns, None)
        _valued([columns[response[0]]])
        return LinearLosses(plain, of(used), plain["loss"], response, regressors, axes)
    if kind == "tabulated_losses":
        return TabulatedLosses(plain, tuple(columns[name] for name in plain["loss"]["columns"]))
    return _of_terms(plain, columns, of)


def _of_terms(plain: dict[str, Any], columns: dict[str, Column], of: Any) -> Block:
    terms: tuple[Term, ...] = tuple(tuple(map(_feature, term)) for term in plain["terms"])
    given = _group(plain["given"], columns) if "given" in plain else None
    used = {name for term in terms for name, _ in term}
    if given is not None:
        used |= {column.name for column in (*given.columns, *given.answered)}
    empty = () in terms and plain["kind"] == "moments" and given is None
    if plain["kind"] == "person_moments":
        _check_features({feature for term in terms for feature in term}, columns, given)
        if len(set(terms)) < len(terms) or any(
            sum(level is None for _, level in term) > 2 for term in terms
        ):
            raise NotReadError("has person totals with a term twice, or of three numbers")
        return PersonMoments(plain, of(used), terms, given)
    if len(set(terms)) < len(terms) or empty or plain.get("coarse", True) is not True:
        raise NotReadError("has moments with a term twice, or without features")
    _check_features({feature for term in terms for feature in term}, columns, given)
    if plain["kind"] == "moments":
        return Moments(plain, of(used), terms, given, bool(plain.get("coarse", False)))
    response = _feature(plain["response"])
    check(plain["pilot"] or [], [int], "pilot")
    pilot = None if plain["pilot"] is None else tuple(plain["pilot"])
    own = of(used | {response[0]})
    _check_features([response], columns, given)
    _valued([columns[response[0]]], given)
    return PilotScore(plain, own, terms, response, plain["link"], pilot, given)


def _feature(plain: Any) -> Feature:
    name, level = plain
    if not isinstance(name, str) or not (level is None or type(level) is int):
        raise NotReadError("has a feature that is no column with a level")
    return name, level


def _valued(used: Any, group: Group | None = None) -> None:
    """Refuse values of cells that may be missing: their code is beyond the bound of the others."""
    known = () if group is None else group.answered
    if any(column.missing is not None and column not in known for column in used):
        raise NotReadError("has functions of the value of cells that may be missing")


def _check_features(features: Any, columns: dict[str, Column], group: Group | None) -> None:
    """Refuse features that their columns do not have."""
    by_value = []
    for name, level in features:
        column = columns[name]
        levels = column.bins - (column.missing is not None)
        if level is None or level == SIGN:
            by_value.append(column)
        if level is None and column.is_number:
            continue
        if level is None or not (0 <= level < column.bins or (level == SIGN and levels == 2)):
            raise NotReadError("has a feature that its column does not have")
    _valued(by_value, group)


def _group(plain: Mapping[str, Any], columns: dict[str, Column]) -> Group:
    own = tuple(columns[name] for name in plain["columns"])
    answered = tuple(columns[name] for name in plain["answered"])
    inside, every = plain["cells"], range(math.prod(column.bins for column in own))
    whole = isinstance(inside, list) and all(type(c) is int and c in every for c in inside)
    if not whole or len(set(inside)) < len(inside) or any(c.missing is None for c in answered):
        raise NotReadError("has a set of cells that its columns do not have")
    return Group(own, frozenset(inside), answered)
