"""Open a release, measurements or a plan: members and their digests, and the blocks."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import math
import re
import zipfile
from collections.abc import Mapping, Set
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

VERSION = 3
_MOST = 2**31
ANSWERS = ["block", "function", "name", "noisy_sum", "uniform"]
_PERSONS = ("rows_per_person", "person_key")  # only there if there is something to say
_SHARED = {"dpstats", "version", "budget", "unit", "rows", "schema", "blocks", "tables", *_PERSONS}
_ROLES = ("family", "score", "persons", "reference", "count")
_KEYS = {
    "plan": _SHARED | {"analyses", "reference", "start", "guesses"},
    "measurements": _SHARED
    | {"person", "not_private", "assumes", "reference", "analyses", "plan"},
    "column": {"kind", "name", "missing", "allow_missing", "note", "levels", "other", "low", "high",
               "points", "edges", "closed", "values", "scale", "even_edges"},
    "table": {"columns"},
    "condition": {"columns", "cells", "label"},
    "residual": {"columns"},
    "moments": {"terms", "coarse", "robust", "given"},
    "group_moments": {"number", "groups"},
    "ball_moments": {"numbers", "center", "scale", "clip_norm"},
    "kernel_lattice": {"columns", "k", "bandwidth"},
    "bin_offsets": {"columns", "number"},
    "linear_losses": {"loss", "response", "regressors", "axes"},
    "tabulated_losses": {"loss"},
    "pilot_score": {"terms", "response", "link", "pilot", "given"},
    "person_shares": {"number", "groups"},
    "person_moments": {"terms", "given"},
}  # fmt: skip


class NotReadError(Exception):
    """The file is no release, no measurements and no plan, or cannot be read as one."""


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
        data = path.read_bytes()
        return _archive(data) if data.startswith(b"PK") else _plan(data)
    except OSError as error:
        raise NotReadError(f"{path.name} cannot be read: {error.strerror}") from None
    except NotReadError as error:
        raise NotReadError(f"{path.name} {error}") from None
    except Exception as error:  # any value may be anywhere in a file
        why = f"{type(error).__name__}: {error}"
        raise NotReadError(f"{path.name} is not as dpstats writes it ({why})") from None


def _plan(data: bytes) -> Held:
    document = _json(data.decode("utf-8"), "plan")
    held = _held("plan", document)
    held.said.append("It is a plan: nothing was measured yet.")
    if "start" in document:
        before = _held(
            "measurements", _json(document["start"]["measurements.json"], "measurements")
        )
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
    if "measurements.json" not in members or len(members) < len(infos):
        raise NotReadError("is an archive, and not one of dpstats")
    texts = {name: content.decode("utf-8") for name, content in members.items()}
    kind = "release" if "release.json" in members else "measurements"
    held = _held(kind, _json(texts["measurements.json"], "measurements"))
    held.members = texts
    held.release = _json(texts["release.json"], "release") if kind == "release" else None
    digests = json.loads(texts.get("digests.json", "{}"))
    found = {
        name: hashlib.sha256(content).hexdigest()
        for name, content in members.items()
        if name != "digests.json"
    }
    if digests == found:
        held.said.append(f"SHA-256 of {len(found)} members: as digests.json says.")
    else:
        differ = sorted(n for n in {*digests, *found} if digests.get(n) != found.get(n))
        held.wrong.append(f"members whose SHA-256 is not that of digests.json: {', '.join(differ)}")
    _check_plan(held)
    rows = list(csv.reader(io.StringIO(texts["answers.csv"])))
    if rows[0] != ANSWERS or any(len(row) != len(ANSWERS) for row in rows):
        raise NotReadError("has answers without the columns of dpstats")
    held.answers = rows[1:]
    expected = [(i, f) for i, one in enumerate(held.blocks) for f in range(one.block.size)]
    if expected != [(int(row[0]), int(row[1])) for row in held.answers]:
        held.wrong.append("answers.csv does not hold one answer to every function, in their order")
    elif any(abs(float(row[4])) > 0.5 for row in held.answers):
        held.wrong.append("answers.csv has a uniform outside [-1/2, 1/2]")
    else:
        held.said.append(f"answers.csv: one whole number for each of {len(expected)} functions.")
    k, used = held.rows_per_person, " used," if "person_key" in held.document else ";"
    most = "one row" if k == 1 else f"at most {k} rows"
    if not str(held.document.get("person")).startswith(f"{most} per person{used}"):
        held.wrong.append(f"the file does not say that it protects persons with {most}")
    if held.document.get("not_private") is not False:
        held.wrong.append("the noise came from a source for tests: the file is not private")
    return held


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


def _json(text: str, kind: str) -> dict[str, Any]:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        raise NotReadError("does not hold JSON") from None
    if not isinstance(document, dict) or document.get("dpstats") != kind:
        raise NotReadError(f"is not a {kind} of dpstats")
    if document.get("version") != VERSION:
        raise NotReadError(f"has the format version {document.get('version')}, not {VERSION}")
    return document


def _held(kind: str, document: dict[str, Any]) -> Held:
    _known(document, "measurements" if document["dpstats"] == "measurements" else "plan")
    for plain in document["schema"]:
        _known(plain, "column")
    for plain in document["blocks"]:
        _known(
            {k: plain[k] for k in plain if k not in ("kind", "role", "multiplier")}, plain["kind"]
        )
    columns = {plain["name"]: read_column(plain) for plain in document["schema"]}
    blocks = [
        Measured(_block(plain, columns), plain["role"], fraction(plain["multiplier"]))
        for plain in document["blocks"]
    ]
    if any(one.role not in _ROLES for one in blocks):
        raise NotReadError("has a block of a role that is not known")
    for key in set(document["budget"]) - {"kind"}:
        fraction(document["budget"][key])
    if document["unit"] not in ("replace", "add_remove"):
        raise NotReadError("has no neighbour relation")
    rows = document.get("rows_per_person", 2)
    if type(rows) is not int or rows < 2:  # one is not written
        raise NotReadError("has no whole number of rows per person")
    key = document.get("person_key", "")
    if not isinstance(key, str):
        raise NotReadError("has a key of persons that is no name")
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
    return held


def _known(plain: Mapping[str, Any], kind: str, more: Set[str] = frozenset()) -> None:
    """Refuse keys that could change what the others mean."""
    if kind not in _KEYS:
        raise NotReadError(f"has blocks of a kind that is not known: {kind}")
    if unknown := set(plain) - _KEYS[kind] - more:
        raise NotReadError(f"has keys that are not known: {', '.join(sorted(unknown))}")


def fraction(text: object, sign: bool = False) -> Fraction:
    """A fraction as files write it, such as "1/3"; positive, unless a sign is allowed."""
    if not isinstance(text, str) or not re.fullmatch(r"-?[0-9]{1,4000}(/[0-9]{1,4000})?", text):
        raise NotReadError("has an amount that is no fraction")
    found = Fraction(text)
    if found <= 0 and not sign:
        raise NotReadError("has an amount that is not positive")
    return found


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
    pilot = None if plain["pilot"] is None else tuple(map(int, plain["pilot"]))
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
