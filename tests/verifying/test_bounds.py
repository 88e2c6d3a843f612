"""Every bound that is argued is at least what all pairs of rows of small grids reach."""

import itertools
import json
import math
import random
from contextlib import suppress
from fractions import Fraction

import numpy as np
import pytest

import dpstats as dps
from dpstats.errors import RequestError
from dpstats.families.ball_moments import BallMoments
from dpstats.families.features import product
from dpstats.families.moments import Moments
from dpstats.families.subgroups import Subgroup
from dpstats.families.tables.lattice import KernelLattice
from dpstats.verifying import blocks, kinds
from dpstats.verifying.columns import read_column
from dpstats.verifying.shapes import NotReadError

SCHEMA = dps.Schema([
    dps.Number("x", -1, 1, points=7, missing=0, edges=[0]),
    dps.Number("y", -1, 1, points=5, missing=0),
    dps.Number("z", -1, 1, points=3, missing=0),
    dps.Boolean("a"),
    dps.Boolean("b"),
    dps.Category("g", ["p", "q", "r"]),
    dps.Category("k", ["u", "v"], allow_missing=True),
])  # fmt: skip
COLUMNS = {plain["name"]: read_column(plain) for plain in SCHEMA.to_dict()}
FEATURES = [
    ("x", None), ("y", None), ("z", None), ("a", -1), ("b", -1), ("g", 0), ("g", 1), ("g", 2),
    ("a", 1), ("x", 1), ("k", 0),
]  # fmt: skip


def read(block):
    return kinds.read_block(json.loads(json.dumps(block.to_dict())), COLUMNS)


def check(block):
    """A search finds no more than all pairs of rows reach, and the argument no less."""
    if math.prod(map(len, block.codes())) * block.size > 8_000:
        return
    names = [column.name for column in block.columns]
    rows = list(itertools.product(*block.codes()))
    values = np.zeros((len(rows), block.size))
    for i, codes in enumerate(rows):
        for f, value in block.of(dict(zip(names, codes, strict=True))).items():
            values[i, f] = value / block.bounds[f]
    values = np.unique(values, axis=0)
    for unit, power in itertools.product(("replace", "add_remove"), (1, 2)):
        others = values if unit == "replace" else np.zeros((1, block.size))
        exact = max((np.abs(values - row) ** power).sum(axis=1).max() for row in others)
        bound = block.argue(unit, power)
        assert blocks.search(block, unit, power) <= exact + 1e-9, block.plain
        assert exact <= bound + 1e-9, (unit, power, block.plain)
        found = blocks.find(block, unit, power)
        assert found.reached <= found.bound
        if block.listed and "boxes" in found.how:
            assert float(found.bound) == pytest.approx(exact, abs=1e-12)


def random_terms(rng):
    some, degree = rng.sample(FEATURES, rng.randint(1, 5)), rng.choice([1, 2, 2, 3, 4])
    terms, share = set(), rng.choice([1, 1, 0.6])
    for d in range(1, degree + 1):
        for chosen in itertools.combinations_with_replacement(some, d):
            with suppress(RequestError):  # a product that is always 0
                terms |= {product(chosen, ())} if rng.random() < share else set()
    return sorted(filter(None, terms), key=str)


def test_moments():
    for seed in range(20):
        rng = random.Random(seed)
        if terms := random_terms(rng):
            given = Subgroup.of(SCHEMA, "k == 'u'", []) if rng.random() < 0.3 else None
            terms += [()] if given else []
            check(read(Moments.of_terms(SCHEMA, terms, False, given)))
    # a number and a sign are not alike
    check(read(Moments.of_terms(SCHEMA, [(("z", None), ("a", -1), ("g", 2))])))
    for names in ["xy", "xyz"]:
        every = [some for d in (3, 4) for some in itertools.combinations_with_replacement(names, d)]
        terms = [tuple((name, None) for name in some) for some in every if len({*some}) <= 2]
        check(read(Moments.of_terms(SCHEMA, sorted(terms))))


def test_other_kinds():
    for norm in ["1/2", "1", "13/10"]:
        check(read(BallMoments.of(SCHEMA, ["x", "y"], Fraction(norm))))
    for columns in ["x", "yz"]:
        check(read(KernelLattice(tuple(SCHEMA[name] for name in columns), 2, 0.3)))


def test_losses_of_a_number_and_of_its_bins():
    """A bin between the ends of a box of codes is not overlooked; dpstats has no such formula."""
    columns = [
        {"kind": "number", "name": "x", "low": 0, "high": 100, "points": 51, "edges": [42, 44]},
        {"kind": "number", "name": "y", "low": 0, "high": 10, "points": 5},
    ]
    losses = {
        "kind": "linear_losses",
        "loss": {"kind": "pinball", "probability": 0.9},
        "response": ["y", None],
        "regressors": [["x", None], ["x", 1]],
        "axes": [["a", -1.0, 1.0, 3], ["b", -200, 200, 5]],
    }
    columns = {plain["name"]: read_column(plain) for plain in columns}
    block = kinds.read_block(losses, columns)
    rows = itertools.product(*block.codes())
    values = [list(block.of({"x": x, "y": y}).values()) for x, y in rows]
    shares = np.array(values) / block.bounds
    for power in (1, 2):
        exact = max((np.abs(shares - row) ** power).sum(axis=1).max() for row in shares)
        assert abs(blocks.find(block, "replace", power).reached - exact) < 1e-9
    losses["loss"] = {"kind": "logistic"}
    with pytest.raises(NotReadError, match="does not fit its response"):
        kinds.read_block(losses, columns)
