"""What the privacy tests share; numbers are those of docs/explanation/privacy/privacy-cases.md."""

import gc
import re
import types
import zipfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import dpstats as dps
from dpstats.privacy import noise


@pytest.fixture(autouse=True)
def no_backend_is_kept() -> Iterator[None]:
    """Every test builds OpenDP's measurements anew: some break the backend."""
    kept = noise._laplace, noise._gaussian
    for made in kept:
        made.cache_clear()
    yield
    for made in kept:
        made.cache_clear()


class Unread:
    """A private table whose structure is public and whose rows must never be asked for."""

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        self.read = False

    def _batches(self) -> Iterator[pa.RecordBatch]:
        self.read = True
        yield from pa.Table.from_pylist([], self.schema).to_batches()

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        reader = pa.RecordBatchReader.from_batches(self.schema, self._batches())
        return reader.__arrow_c_stream__(requested_schema)


@pytest.fixture
def unread() -> Iterator[Callable[..., Unread]]:
    """Makes streams from column names and types; the test fails if one of them is read."""
    made = []

    def make(*fields: tuple[str, pa.DataType]) -> Unread:
        made.append(Unread(pa.schema([pa.field(*field) for field in fields])))
        return made[-1]

    yield make
    assert not any(stream.read for stream in made), "a row was read"


COLUMNS = (
    dps.Category("c", ["a", "b", "c"], missing="a"),
    dps.Boolean("b"),
    dps.Number("x", 0, 4, points=5, edges=[1, 3], missing=2),
)


@pytest.fixture(scope="session")
def columns() -> Callable[..., list[Any]]:
    """The columns of most tests, some replaced."""

    def make(*changed: Any) -> list[Any]:
        new = {column.name: column for column in changed}
        return [new.get(column.name, column) for column in COLUMNS]

    return make


@pytest.fixture(scope="session")
def simple_plan() -> Callable[..., dps.Plan]:
    def make(epsilon: Any = 1, **options: Any) -> dps.Plan:
        analyses = {"p": dps.Proportion("b"), "t": dps.Marginals(["c", "x"])}
        return dps.plan(dps.Schema(COLUMNS), analyses, budget=dps.PureDP(epsilon), **options)

    return make


@pytest.fixture
def attempt(unread) -> Callable[..., dps.Measurements]:
    """The whole private path, from declarations to noise, on a stream that must stay unread."""

    def run(
        *, columns=COLUMNS, analyses=None, epsilon=1, ledger=None, asked="b", **options
    ) -> dps.Measurements:
        stream = unread(("c", pa.string()), ("b", pa.bool_()), ("x", pa.float64()))
        if callable(columns):
            columns = columns()
        analyses = {"asked": dps.Proportion(asked)} if analyses is None else analyses
        plan = dps.plan(dps.Schema(columns), analyses, budget=dps.PureDP(epsilon), **options)
        return dps.measure(plan, stream, ledger=ledger)

    return run


ASKED: list[tuple[Any, ...]] = []


@dps.register
@dataclass(frozen=True)
class Asking:
    """An analysis that asks for the blocks under a number of `ASKED`; it concludes nothing."""

    kind: ClassVar[str] = "asking"

    number: int

    def family(self, schema: dps.Schema) -> dps.Family:
        return dps.Family(ASKED[self.number])

    def infer(self, release: Any) -> None:
        return None


@pytest.fixture
def asking(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Makes an analysis that asks for given blocks; blocks of tests pass for those of dpstats."""
    monkeypatch.setattr("dpstats.planning.asked.is_library_block", lambda block: True)

    def make(*blocks: Any) -> Any:
        ASKED.append(blocks)
        return Asking(len(ASKED) - 1)

    return make


@pytest.fixture(scope="session")
def exact(silent_noise: Any) -> Callable[..., list[list[int]]]:
    """Measures without noise: the sums of every block."""

    def run(plan: dps.Plan, data: Any) -> list[list[int]]:
        with noise._noise_from(silent_noise):
            measured = dps.measure(plan, data)
        extra = [] if measured.reference is None else [measured.reference]
        return [block.sums.tolist() for block in (*measured.measured, *extra)]

    return run


def _reachable(root: object, skipped: tuple[object, ...]) -> Iterator[object]:
    """Every object that can be reached from `root`, code and classes left out."""
    stack, seen = [root], {id(thing) for thing in skipped}
    while stack:
        thing = stack.pop()
        if id(thing) in seen or isinstance(thing, type | types.ModuleType):
            continue
        seen.add(id(thing))
        yield thing
        if isinstance(thing, types.FunctionType):
            stack.extend(cell.cell_contents for cell in thing.__closure__ or ())
            stack.extend([vars(thing), thing.__defaults__])
        elif not isinstance(thing, types.CodeType | types.BuiltinFunctionType):
            stack.extend(gc.get_referents(thing))


@pytest.fixture(scope="session")
def reachable() -> Callable[..., list[object]]:
    def collect(root: object, *skipped: object) -> list[object]:
        return list(_reachable(root, skipped))

    return collect


# Digests, file names, addresses: in one of 400 archives they hold the digits of a true sum.
HEXADECIMAL = re.compile(r"(?=[0-9]*[a-f])[0-9a-f]{8,}")


class Search:
    """Looks for private numbers and a rare text in what a release leaves behind."""

    rows = 300_017
    rare = "Sentinel-Quux-village"

    def text(self, text: str, sums: set[int]) -> bool:
        if self.rare in text or "Sentinel" in text:
            return True
        plain = HEXADECIMAL.sub(" ", text)
        numbers = set(re.findall(r"(?<![\d.])\d+(?![\d])", plain))
        shares = {repr(total / self.rows) for total in sums}
        return bool(numbers & {str(total) for total in sums}) or any(s in text for s in shares)

    def bytes(self, content: bytes, sums: set[int]) -> bool:
        packed = [total.to_bytes(8, "little", signed=True) for total in sums]
        packed += [np.float64(total / self.rows).tobytes() for total in sums]
        return any(part in content for part in packed) or self.text(content.decode("latin-1"), sums)

    def objects(self, things: Iterable[object], sums: set[int]) -> bool:
        wanted = np.array(sorted(sums))
        for thing in things:
            found = False
            match thing:
                case np.ndarray() if thing.dtype.kind in "iuf":
                    flat = thing.astype(np.float64).ravel()
                    found = np.isin(flat, [wanted, wanted / self.rows]).any()
                case int() | float() | np.number():
                    found = thing in sums or thing in {total / self.rows for total in sums}
                case str():
                    found = self.text(thing, sums)
                case bytes():
                    found = self.bytes(thing, sums)
            if found:
                return True
        return False

    def members(self, path: Path) -> dict[str, str]:
        with zipfile.ZipFile(path) as archive:
            return {name: archive.read(name).decode() for name in archive.namelist()}


@pytest.fixture(scope="session")
def search() -> Search:
    return Search()


def sentinel_rows() -> pd.DataFrame:
    """Rows whose sums are sentinels, with a text that is nowhere else."""
    rng, n = np.random.default_rng(11), Search.rows
    frame = pd.DataFrame(
        {
            "c": rng.choice(["a", "b"], n),
            "b": rng.random(n) < 0.31,
            "x": rng.uniform(0, 4, n),
            "unused": rng.random(n),
            Search.rare: 1,
        }
    )
    frame.loc[17, "c"] = Search.rare
    return frame


@pytest.fixture(scope="session")
def frame() -> pd.DataFrame:
    return sentinel_rows()


def sentinel_plan() -> dps.Plan:
    """Noise of scale 10^8 or more, so that no noisy sum is a true one by chance."""
    schema = dps.Schema(
        [
            dps.Category("c", ["a", "b", "z"], allow_missing=True),
            dps.Boolean("b"),
            dps.Number("x", 0, 4, points=1025, edges=[1, 3], missing=2),
            dps.Number("unused", 0, 1),
        ]
    )
    analyses = {
        "cells": dps.Marginals(["c", "x"]),
        "share": dps.Proportion("b"),
        "group": dps.Proportion("b", given="x < 1"),
    }
    return dps.plan(schema, analyses, budget=dps.PureDP(4e-8))


@pytest.fixture(scope="session")
def plan() -> dps.Plan:
    return sentinel_plan()


@pytest.fixture(scope="session")
def release(plan: dps.Plan, frame: pd.DataFrame) -> dps.Release:
    return dps.release(plan, frame, m=500, k=1000, rng=1)
