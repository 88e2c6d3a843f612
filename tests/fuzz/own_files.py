"""Files of dpstats with changes: each kind is a function of a generator that gives an outcome."""

from __future__ import annotations

import json
import random
import tomllib
from collections.abc import Callable
from contextlib import suppress
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import mutations
import numpy as np
import pandas as pd
import pyarrow as pa
from outcomes import EQUAL, OTHER, Finding, Refused, read

import dpstats as dps
from dpstats import files
from dpstats.measured.strategy import Strategy
from dpstats.planning.requests import load_request
from dpstats.privacy import noise

SCHEMA = dps.Schema([
    dps.Category("smoker", ["no", "yes"], other="no"), dps.Boolean("hiv"),
    dps.Number("age", 0, 100, points=21, edges=[50], missing=40, note="years"),
    dps.Number("bmi", values=[17.5, 22, 27], allow_missing=True),
    dps.Number("height", 100, 220, points=25, missing=160),
    dps.Category("town", {"north": 1, "south": 2, "east": 3}, allow_missing=True),
])  # fmt: skip
ROWS = pd.DataFrame({
    "smoker": ["no", "yes", "no", "yes"] * 30, "hiv": [True, False, False] * 40,
    "age": np.linspace(0, 100, 120), "bmi": [17.5, 22, 27, None] * 30, "town": [1, 2, 3] * 40,
    "height": np.linspace(150, 200, 120),
})  # fmt: skip
SIGNED = ("budget", "unit", "schema", "blocks", "tables", "analyses", "reference")
COLUMNS = """column = [
  {name = "smoker", levels = ["no", "yes"], other = "no"},
  {name = "hiv", kind = "boolean"},  # a test result
  {name = "age", low = 0, high = 100, points = 21, edges = [50], missing = 40},
  {name = "since", low = "2020-01-01", high = "2020-12-31", missing = "2020-02-01"},
]
"""
REQUEST = f"""rows = 120
{COLUMNS}
[budget]
epsilon = 1.0

[[analysis]]
name = "smoking"
kind = "proportion"
condition = "smoker == 'yes'"
given = "age >= 50"
share = 2

[[analysis]]
name = "link"
kind = "independence"
a = "smoker"
b = "hiv"
share = 1.5
"""
CLIPPED = {"clip_norm": 2, "center": {"age": 50}, "scale": {"age": 25}}
PLANS = [
    dps.plan(
        SCHEMA,
        {"smoking": dps.Proportion("smoker == 'yes'", given="age >= 50"),
         "b": dps.Proportion("hiv"), "mean": dps.Mean("age"), "median": dps.Quantile("age")},
        budget=dps.PureDP(1), reference=dps.PerturbedHistogram(0.25),
    ),
    dps.plan(
        SCHEMA,
        {"t": dps.Marginals(["smoker", "hiv", "town"]), "g": dps.GroupMeans("age", "hiv")},
        budget=dps.ZCDP(Fraction(1, 2)), unit="add_remove",
    ),
    dps.plan(
        SCHEMA,
        {"line": dps.OLS("age ~ hiv"), "median": dps.Quantile("bmi"),
         "cov": dps.Covariance(["age", "height"], **CLIPPED)},
        budget=dps.ApproxDP(1, Fraction(1, 10**5)), n=120,
    ),
]  # fmt: skip
DOCUMENTS = [json.loads(files.to_json(plan.to_dict())) for plan in PLANS]


def _same(given_back: object, thing: object, what: str) -> None:
    if given_back != thing:
        raise Finding(f"{what} is not given back by its file")


class Kinds:
    """The kinds of files, each read from a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._document = tomllib.loads(REQUEST)
        self._request = load_request(self._put("original.toml", REQUEST.encode()))
        self._schema = dps.Schema.load(self._put("original-schema.toml", COLUMNS.encode()))
        self._releases = [dps.release(plan, ROWS, m=30, k=20, rng=0) for plan in PLANS]
        self._members = [release._members() for release in self._releases]
        ledger = dps.Ledger.create(folder / "original.ledger", dps.PureDP(3))
        for i, amount in enumerate(("1/10", "1/3", "1")):
            ledger.spend(dps.PureDP(Fraction(amount)), f"note {i}", plan="ab" * 32, data="x.csv")
        self._ledger, self._spendings = ledger.path.read_bytes(), ledger.spendings

    def by_name(self) -> dict[str, Callable[[random.Random], str]]:
        names = ("schemas", "requests", "plans", "ledgers", "measurements", "releases")
        return {name: getattr(self, name) for name in names}

    def _put(self, name: str, data: bytes) -> Path:
        path = self.folder / name
        path.write_bytes(data)
        return path

    def _toml(self, rng: random.Random, text: str, document: Any, others: list[Any]) -> bytes:
        if rng.random() < 0.4:
            return mutations.of_bytes(rng, text.encode())
        return mutations.as_toml(mutations.of_value(rng, document, others)).encode()

    def schemas(self, rng: random.Random) -> str:
        document = {"column": self._document["column"]}
        data = self._toml(rng, COLUMNS, document, DOCUMENTS)
        schema = read(dps.Schema.load, self._put("s.toml", data))
        _same(dps.Schema.from_dict(schema.to_dict()), schema, "a schema")
        repr(schema), str(schema)
        cells = pa.array(["no", "", "nan", "-1e400", "Zq", "50", None, "2020-06-01"], pa.string())
        for column in schema:
            codes = column.encode(cells)
            low, high = column.code_range
            if len(codes) != len(cells) or codes.min() < low or codes.max() > high:
                raise Finding(f"codes outside the range of {column!r}")
        return EQUAL if schema == self._schema else OTHER

    def requests(self, rng: random.Random) -> str:
        data = self._toml(rng, REQUEST, self._document, [])
        plan = read(load_request, self._put("r.toml", data))
        self._consistent(plan)
        return EQUAL if plan == self._request else OTHER

    def _consistent(self, plan: dps.Plan) -> None:
        document = json.loads(files.to_json(plan.to_dict()))
        _same(dps.Plan.from_dict(document), plan, "a plan")
        if plan.cost() != plan.budget.total:
            raise Finding(f"a plan spends {plan.cost()} of {plan.budget.total}")
        repr(plan), str(plan), plan.digest

    def plans(self, rng: random.Random) -> str:
        number = rng.randrange(len(PLANS))
        document, original = DOCUMENTS[number], PLANS[number]
        if rng.random() < 0.25:
            data = mutations.of_bytes(rng, files.to_json(document).encode())
        else:
            changed = mutations.of_value(rng, document, DOCUMENTS)
            data = mutations.as_json(rng, changed).encode()
        plan = read(dps.Plan.load, self._put("p.json", data))
        self._consistent(plan)
        if plan.to_dict() != files.parse_json(data):
            raise Finding("a plan was read as something else than its file says")
        if plan != original and rng.random() < 0.2:
            # A plan that was accepted can be measured, or says why not before any noise.
            with suppress(Refused), noise._noise_from(_small):
                measured = read(dps.measure, plan, ROWS)
                again = dps.Measurements.from_members(measured.to_members())
                _same(again, measured, "a measurement")
        return EQUAL if plan == original else OTHER

    def ledgers(self, rng: random.Random) -> str:
        original, signed = self._ledger, False
        if rng.random() < 0.4:
            data = mutations.of_bytes(rng, original)
        else:
            lines = [json.loads(line) for line in original.splitlines()]
            changed = mutations.of_value(rng, lines)
            signed = rng.random() < 0.8
            last, made = "", []
            for line in changed:
                if signed and isinstance(line, dict):
                    content = {k: v for k, v in line.items() if k != "digest"}
                    with suppress(ValueError):  # no digest is of an infinite number
                        last = files.digest([last, content])
                    line = {**content, "digest": last}
                made.append(json.dumps(line))
            data = ("\n".join(made) + "\n").encode()
        path = self._put("l.ledger", data)
        ledger = read(dps.Ledger.open, path)
        spent = read(lambda: ledger.spent)
        amounts = [one.amount for one in ledger.spendings]
        stated = [json.loads(line).get("spent") for line in data.split(b"\n")[1:-1]]
        if amounts != [Fraction(str(one)) for one in stated] or spent != sum(amounts):
            raise Finding("a ledger counts something else than its lines say")
        found = ledger.spendings, ledger.cap, ledger.unit
        # Lines removed from the end are not noticed, as the package says.
        if not signed and found != (self._spendings[: len(amounts)], 3, "replace"):
            raise Finding("a ledger is believed although its digests do not fit")
        str(ledger), ledger.table()
        if data == original:
            return EQUAL
        more = Fraction(1, 1000)
        if budget := {"pure": dps.PureDP, "zcdp": dps.ZCDP}.get(ledger.kind):
            try:
                read(lambda: ledger.spend(budget(more), unit=ledger.unit))
            except Refused:
                more = 0 * more
                if path.read_bytes() != data:
                    raise Finding("a refused spending has changed the ledger") from None
            again = dps.Ledger.open(path)
            if again.spent != spent + more or (more and again.spent > again.cap):
                raise Finding("a spending is not counted, or passes the cap")
        return OTHER

    def _rewritten(self, rng: random.Random, members: dict[str, str]) -> bytes:
        """An archive with changes; in most, digests are computed again after the change."""
        if rng.random() < 0.2:
            return mutations.of_bytes(rng, files.pack(members))
        members = dict(members)
        name = rng.choice([*members, "measurements.json"])
        if name.endswith(".csv") or rng.random() < 0.1:
            data = mutations.of_bytes(rng, members[name].encode())
            return files.pack(members | {name: data.decode("utf-8", "replace")})
        others = [json.loads(one["measurements.json"]) for one in self._members]
        changed = mutations.of_value(rng, json.loads(members[name]), others)
        if name == "measurements.json" and isinstance(changed, dict) and rng.random() < 0.8:
            with suppress(Exception):  # a strategy that cannot be read
                changed["plan"] = files.digest({key: changed.get(key) for key in SIGNED})
                if rng.random() < 0.6:
                    members["answers.csv"] = _answers(rng, changed)
        members[name] = mutations.as_json(rng, changed)
        try:
            return files.pack(members)
        except UnicodeEncodeError:  # half a surrogate pair, which no file holds
            return b"PK"

    def measurements(self, rng: random.Random) -> str:
        original = rng.choice(self._releases).measurements
        data = self._rewritten(rng, original.to_members())
        found = read(dps.Measurements.load, self._put("m.zip", data))
        self._checked(found)
        return EQUAL if found == original else OTHER

    def _checked(self, found: dps.Measurements) -> None:
        if found.strategy.cost() != found.budget.total:
            raise Finding("measurements spend another budget than they state")
        _same(dps.Measurements.from_members(found.to_members()), found, "a measurement")
        repr(found), str(found)

    def releases(self, rng: random.Random) -> str:
        number = rng.randrange(len(self._releases))
        data = self._rewritten(rng, self._members[number])
        found = read(dps.load, self._put("release.zip", data))
        self._checked(found.measurements)
        repr(found), str(found)
        if found == self._releases[number]:
            return EQUAL
        if rng.random() < 0.2:
            found.save(self.folder / "again.zip", overwrite=True)
            _same(dps.load(self.folder / "again.zip"), found, "a release")
            uses = [partial(found.infer, name) for name in found.measurements.requests]
            for use in (found.to_frame, found.accuracy, *uses):
                with suppress(Refused):
                    str(read(use))
        return OTHER


def _answers(rng: random.Random, document: dict[str, Any]) -> str:
    """Answers that fit whatever blocks a document has."""
    strategy = Strategy.from_dict(document)
    rows = [
        (b, f, name, rng.choice((0, 1, -5, 60, 120, 2**40)), rng.choice((0.0, 0.25, -0.4999)))
        for b, planned in enumerate(strategy.blocks)
        for f, name in enumerate(planned.block.names)
    ]
    return files.to_csv(("block", "function", "name", "noisy_sum", "uniform"), rows)


def _small(scale: float, size: int) -> np.ndarray:
    """Noise of a small size, the same every time."""
    return np.arange(size, dtype=np.int64) % 3 - 1
