"""What the privacy tests share; numbers are those of docs/explanation/privacy/privacy-cases.md."""

import gc
import re
import types
import zipfile
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
def no_backend_is_kept():
    """Every test builds OpenDP's measurements anew: some break the backend."""
    kept = noise._laplace, noise._gaussian
    for made in kept:
        made.cache_clear()
    yield
    for made in kept:
        made.cache_clear()


class Unread:
    """A private table whose structure is public and whose rows must never be asked for."""

    read = False

    def __init__(self, *fields):
        self.schema = pa.schema(fields)

    def batches(self):
        self.read = True
        yield from ()

    def __arrow_c_stream__(self, requested_schema=None):
        reader = pa.RecordBatchReader.from_batches(self.schema, self.batches())
        return reader.__arrow_c_stream__(requested_schema)


@pytest.fixture
def unread():
    """Makes streams from column names and types; the test fails if one of them is read."""
    made = []

    def make(*fields):
        made.append(Unread(*fields))
        return made[-1]

    yield make
    assert not any(stream.read for stream in made), "a row was read"


SMALL = dps.Schema([
    dps.Category("c", ["a", "b", "z"], missing="a"), dps.Boolean("b"),
    dps.Number("x", 0, 4, points=5, edges=[1, 3], missing=2),
])  # fmt: skip


@pytest.fixture
def ledger(tmp_path):
    return dps.Ledger.create(tmp_path / "ledger", dps.PureDP(1))


@pytest.fixture(scope="session")
def small_schema():
    return SMALL


@pytest.fixture(scope="session")
def simple_plan():
    def make(epsilon=1, **options):
        analyses = {"p": dps.Proportion("b"), "t": dps.Marginals(["c", "x"])}
        return dps.plan(SMALL, analyses, budget=dps.PureDP(epsilon), **options)

    return make


@pytest.fixture
def attempt(unread):
    """The whole private path, from declarations to noise, on a stream that must stay unread."""

    def run(*, columns=SMALL, analyses=None, epsilon=1, ledger=None, **options):
        stream = unread(("c", pa.string()), ("b", pa.bool_()), ("x", pa.float64()))
        analyses = {"asked": dps.Proportion("b")} if analyses is None else analyses
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

    def family(self, schema):
        return dps.Family(ASKED[self.number])

    def infer(self, release):
        return None


@pytest.fixture
def asking(monkeypatch):
    """Makes an analysis that asks for given blocks; blocks of tests pass for those of dpstats."""
    monkeypatch.setattr("dpstats.planning.asked.is_library_block", lambda block: True)

    def make(*blocks):
        ASKED.append(blocks)
        return Asking(len(ASKED) - 1)

    return make


@pytest.fixture(scope="session")
def exact(silent_noise):
    """Measures without noise: the sums of every block."""

    def run(plan, data):
        with noise._noise_from(silent_noise):
            measured = dps.measure(plan, data)
        extra = [] if measured.reference is None else [measured.reference]
        return [block.sums.tolist() for block in (*measured.measured, *extra)]

    return run


def everything_in(root, *skipped):
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
def reachable():
    return lambda root: list(everything_in(root))


ROWS = 300_017
RARE = "Sentinel-Quux-village"
# Digests, file names, addresses: in one of 400 archives they hold the digits of a true sum.
HEXADECIMAL = re.compile(r"(?=[0-9]*[a-f])[0-9a-f]{8,}")


def members_of(path):
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name).decode() for name in archive.namelist()}


class Search:
    """Looks for private sums, their shares and a rare text in what a release leaves behind."""

    rare = RARE
    rows = ROWS
    members = staticmethod(members_of)

    def __init__(self, sums):
        shares = [total / ROWS for total in sums]
        self.numbers = {*sums, *shares}
        self.wholes, self.shares = set(map(str, sums)), list(map(repr, shares))
        self.packed = [total.to_bytes(8, "little", signed=True) for total in sums]
        self.packed += [np.float64(share).tobytes() for share in shares]

    def __call__(self, thing, *skipped):
        """True if one is in a file, a text, or whatever can be reached from another object."""
        if isinstance(thing, Path):
            texts = members_of(thing).values() if zipfile.is_zipfile(thing) else ()
            return any(map(self.is_in, (thing.read_bytes(), *texts)))
        return any(map(self.is_in, everything_in(thing, *skipped)))

    def is_in(self, thing):
        match thing:
            case np.ndarray() if thing.dtype.kind in "iuf":
                return np.isin(thing.astype(float), list(self.numbers)).any()
            case int() | float() | np.number():
                return thing in self.numbers
            case str():
                found = re.findall(r"(?<![\d.])\d+(?!\d)", HEXADECIMAL.sub(" ", thing))
                whole = not self.wholes.isdisjoint(found)
                return whole or "Sentinel" in thing or any(s in thing for s in self.shares)
            case bytes():
                packed = any(part in thing for part in self.packed)
                return packed or self.is_in(thing.decode("latin-1"))
        return False


@pytest.fixture(scope="session")
def search():
    return Search


def sentinel_rows():
    """Rows whose sums are sentinels, with a text that is nowhere else."""
    rng = np.random.default_rng(11)
    frame = pd.DataFrame({
        "c": rng.choice(["a", "b"], ROWS), "b": rng.random(ROWS) < 0.31,
        "x": rng.uniform(0, 4, ROWS), "unused": rng.random(ROWS), RARE: 1,
    })  # fmt: skip
    frame.loc[17, "c"] = RARE
    return frame


def sentinel_plan():
    """Noise of scale 10^8 or more, so that no noisy sum is a true one by chance."""
    schema = dps.Schema([
        dps.Category("c", ["a", "b", "z"], allow_missing=True), dps.Boolean("b"),
        dps.Number("x", 0, 4, points=1025, edges=[1, 3], missing=2), dps.Number("unused", 0, 1),
    ])  # fmt: skip
    analyses = {"cells": dps.Marginals(["c", "x"]), "share": dps.Proportion("b"),
                "group": dps.Proportion("b", given="x < 1")}  # fmt: skip
    return dps.plan(schema, analyses, budget=dps.PureDP(4e-8))


frame = pytest.fixture(scope="session")(sentinel_rows)
plan = pytest.fixture(scope="session")(sentinel_plan)


@pytest.fixture(scope="session")
def release(plan, frame):
    return dps.release(plan, frame, m=500, k=1000, rng=np.random.default_rng(1))
