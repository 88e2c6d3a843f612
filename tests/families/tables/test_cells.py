"""Tables, conditions and monomials: what they count, and how far one row moves them."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpstats.errors import RequestError
from dpstats.families.block import Family
from dpstats.families.tables.cells import Cells, tables_of_degree
from dpstats.privacy.neighbours import Sensitivity
from dpstats.schema import Boolean, Category, Number, Schema

SCHEMA = Schema([
    Category("region", ["north", "south", "east"]),
    Boolean("smoker"),
    Boolean("tall", allow_missing=True),
    Number("age", 0, 6, points=7, edges=[2, 5]),
    Number("score", values=[17.5, 22, 27]),
    Number("bmi", 0, 4, points=5, edges=[2], closed="right"),
])  # fmt: skip
ALL = list(SCHEMA.names)
subsets = st.lists(st.sampled_from(ALL), min_size=1, max_size=3, unique=True)


@st.composite
def coded_rows(draw, schema=SCHEMA, most=30):
    seed, n = draw(st.integers(0, 2**32)), draw(st.integers(1, most))
    rng = np.random.default_rng(seed)
    return {c.name: c.draw_inside(rng.integers(c.bins, size=n), rng) for c in schema}


class Stacked:
    """Several blocks as one, for brute force over a whole family."""

    def __init__(self, blocks):
        self.family = Family(tuple(blocks))
        self.bounds = self.family.bounds

    def evaluate(self, codes):
        return self.family.evaluate(codes)


def test_m_monomials_have_sensitivity_m(rows_of, change_of):
    for p, degree in [(1, 1), (3, 2), (5, 5)]:
        schema = Schema([Boolean(f"b{i}") for i in range(p)])
        blocks = Cells.monomials(schema, schema.names, degree)
        rows = rows_of(schema)
        m = sum(len(list(itertools.combinations(range(p), k))) for k in range(1, degree + 1))
        assert len(blocks) == m
        assert change_of(Stacked(blocks), rows, rows) == Sensitivity(m, m)
        assert Family(tuple(blocks)).sensitivity("replace") == Sensitivity(m, m)
        assert Family(tuple(blocks)).sensitivity("add_remove") == Sensitivity(m, m)


@given(names=subsets, codes=coded_rows())
@settings(max_examples=30)
def test_a_table_counts_like_a_loop(names, codes):
    table = Cells.table(SCHEMA, names)
    counts = dict.fromkeys(itertools.product(*(range(c.bins) for c in table.columns)), 0)
    for row in range(len(codes["age"])):
        cell = tuple(int(c.bins_of(codes[c.name][[row]])[0]) for c in table.columns)
        counts[cell] += 1
    assert table.sums(codes).tolist() == list(counts.values())  # C order
    assert table.sums(codes).dtype == np.int64
    assert table.names == [
        ", ".join(f"{c.name}={c.bin_labels[b]}" for c, b in zip(table.columns, cell, strict=True))
        for cell in counts
    ]


def test_what_cannot_be_counted_is_refused():
    wide = Schema([Category(f"c{i}", list(range(200))) for i in range(4)])  # 1.6e9 cells
    for make in [
        lambda: Cells.table(SCHEMA, []), lambda: Cells.table(SCHEMA, "age"),
        lambda: Cells.table(SCHEMA, ["age", "age"]), lambda: Cells.table(SCHEMA, ["agee"]),
        lambda: Cells.table(Schema([Number("x", 0, 1)]), ["x"]),
        lambda: Cells.table(wide, wide.names),
        lambda: tables_of_degree(SCHEMA, ["age", "smoker"], 0),
        lambda: tables_of_degree(SCHEMA, ["age", "smoker"], 3),
        lambda: tables_of_degree(SCHEMA, ["age", "smoker"], True),
        lambda: Cells.monomials(SCHEMA, ["smoker", "tall"], 1),
        lambda: Cells.monomials(SCHEMA, ["smoker", "age"], 1),
        lambda: Cells.monomials(SCHEMA, ["smoker"], 2),
    ]:  # fmt: skip
        with pytest.raises(RequestError):
            make()
