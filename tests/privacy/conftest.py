"""What the numbered privacy tests share: rows that must not be read, and a marked noise source."""

import gc
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pytest

import dpstats as dps
from dpstats.privacy import noise


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


@pytest.fixture
def asking() -> Callable[..., Any]:
    """Makes an analysis that asks for given blocks."""

    def make(*blocks: Any) -> Any:
        @dataclass(frozen=True)
        class Asking:
            kind: ClassVar[str] = "asking"

            def family(self, schema: dps.Schema) -> dps.Family:
                return dps.Family(blocks)

            def infer(self, release: Any) -> None:
                return None

        return Asking()

    return make


class Zero:
    """No noise at all, uniforms in the middle."""

    def __call__(self, scale: float, size: int) -> np.ndarray:
        return np.zeros(size, dtype=np.int64)


@pytest.fixture
def exact() -> Callable[..., list[list[int]]]:
    """Measures without noise: the sums of every block."""

    def run(plan: dps.Plan, data: Any) -> list[list[int]]:
        with noise._noise_from(Zero()):
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
        elif not isinstance(thing, types.CodeType | types.BuiltinFunctionType):
            stack.extend(gc.get_referents(thing))


@pytest.fixture
def reachable() -> Callable[..., list[object]]:
    def collect(root: object, *skipped: object) -> list[object]:
        return list(_reachable(root, skipped))

    return collect
