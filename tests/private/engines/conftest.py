"""Drawn tables, cut into parts in an order of their own: what every engine is compared on."""

import itertools
import math
from types import SimpleNamespace

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from dpstats.private.tables import exact_sums, open_source

TYPES = pa.schema({
    "word": pa.string(), "grade": pa.float64(), "flag": pa.bool_(), "x": pa.float64(),
    "y": pa.int64(), "score": pa.float64(), "ignored": pa.string(),
})  # fmt: skip
ROWS = st.fixed_dictionaries({
    "word": st.sampled_from([None, "no", "yes", "Yes", "yes ", "é, \"quoted\"\n'ü'", "NA", "\0"]),
    "grade": st.sampled_from([None, 1.0, 2.5, -3.0, 1.5, math.nan, -0.0, math.inf]),
    "flag": st.sampled_from([None, True, False]),
    "x": st.none() | st.floats() | st.floats(-2, 3),
    "y": st.none() | st.integers(-3, 13) | st.integers(-(2**63), 2**63 - 1),
    "score": st.sampled_from([None, 17.5, 19.75, 19.76, 22.0, 24.5, 27.0, 99.0, math.nan]),
    "ignored": st.just("x"),
})  # fmt: skip
GROUPED = {"word", "flag", "y"}  # columns of texts, integers and truth values


@st.composite
def cases(draw, blocks, engines):
    """Some blocks, rows, and for every engine the rows in another order and cut into pieces."""
    grouped = [b for b in blocks if {c.name for c in b.columns} <= GROUPED]
    asked = draw(st.lists(st.sampled_from(blocks), min_size=1, max_size=4)
                 | st.lists(st.sampled_from(grouped), min_size=1, max_size=3))  # fmt: skip
    rows = draw(st.lists(ROWS, max_size=12))
    partitionings = {}
    for engine in engines:
        cuts = sorted(draw(st.lists(st.integers(0, len(rows)), max_size=5)))
        ordered = draw(st.permutations(rows))
        ends = itertools.pairwise([0, *cuts, len(rows)])
        partitionings[engine] = [
            pa.Table.from_pylist(ordered[start:end], TYPES) for start, end in ends
        ]
    return asked, rows, partitionings


def check_case(loop, case, tables):
    """Compare the sums of every engine, which `tables` makes tables of, with those of the loop."""
    blocks, rows, partitionings = case
    schema = loop.schema.select({c.name for block in blocks for c in block.columns})
    expected = loop.sums(schema, blocks, rows)
    for engine, pieces in partitionings.items():
        sums, n = exact_sums(open_source(tables[engine](pieces), schema), schema, blocks)
        assert n == len(rows), engine
        assert [block.tolist() for block in sums] == expected, engine


@pytest.fixture(scope="session")
def drawn():
    """The types of the cells, the cases, and their comparison with the loop."""
    return SimpleNamespace(
        types=TYPES,
        cases=cases,
        check=check_case,
        settings=settings(suppress_health_check=list(HealthCheck), deadline=None),
    )
