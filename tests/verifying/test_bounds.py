"""Every bound that is argued is at least what all pairs of rows of small grids reach."""

import itertools
import json
import random
from fractions import Fraction

import pytest

import dpstats as dps
from dpstats.errors import RequestError
from dpstats.families.ball_moments import BallMoments
from dpstats.families.features import product
from dpstats.families.moments import Moments
from dpstats.families.pilot_score import PilotScore
from dpstats.families.subgroups import Subgroup
from dpstats.families.tables.lattice import KernelLattice
from dpstats.verifying import enumeration, findings, reading
from dpstats.verifying.columns import read_column

SCHEMA = dps.Schema([
    dps.Number("x", -1, 1, points=7, missing=0, edges=[0]),
    dps.Number("y", -1, 1, points=5, missing=0),
    dps.Number("z", -1, 1, points=3, missing=0),
    dps.Boolean("a"),
    dps.Boolean("b"),
    dps.Category("g", ["p", "q", "r"]),
    dps.Category("k", ["u", "v"], allow_missing=True),
])  # fmt: skip
FEATURES = [
    ("x", None), ("y", None), ("z", None), ("a", -1), ("b", -1), ("g", 0), ("g", 1), ("g", 2),
    ("a", 1), ("x", 1), ("k", 0),
]  # fmt: skip


def read(block):
    columns = {plain["name"]: read_column(plain) for plain in SCHEMA.to_dict()}
    return reading._block(json.loads(json.dumps(block.to_dict())), columns)


def argued(block, unit, power):
    """The bound by its argument, although there are few rows."""
    return findings._BOUNDS[type(block)](block, unit, power)


def check(block):
    for unit, power in itertools.product(("replace", "add_remove"), (1, 2)):
        exact = enumeration.every_row(block, unit, power)
        if exact is None:
            continue
        found = argued(block, unit, power)
        assert found.reached <= exact[0] <= found.bound, (unit, power, block.plain)


def random_terms(rng):
    some, degree = rng.sample(FEATURES, rng.randint(1, 5)), rng.choice([1, 2, 2, 3, 4])
    terms, share = set(), rng.choice([1, 1, 0.6])
    for d in range(1, degree + 1):
        for chosen in itertools.combinations_with_replacement(some, d):
            try:
                term = product(chosen, ())
            except RequestError:
                continue
            if term and rng.random() < share:
                terms.add(term)
    return sorted(terms, key=str)


def test_moments():
    for seed in range(80):
        rng = random.Random(seed)
        terms = random_terms(rng)
        if terms:
            given = Subgroup.of(SCHEMA, "k == 'u'", []) if rng.random() < 0.3 else None
            terms += [()] if given else []
            check(read(Moments.of_terms(SCHEMA, terms, False, given)))


def test_a_number_and_a_sign_are_not_alike():
    check(read(Moments.of_terms(SCHEMA, [(("z", None), ("a", -1), ("g", 2))])))


def test_pairs_of_numbers():
    for p in [2, 3]:
        names = ["x", "y", "z"][:p]
        terms = {
            tuple((name, None) for name in chosen)
            for degree in (3, 4)
            for chosen in itertools.combinations_with_replacement(names, degree)
            if len(set(chosen)) <= 2
        }
        check(read(Moments.of_terms(SCHEMA, sorted(terms))))


def test_the_ball():
    for norm in ["1/2", "1", "13/10"]:
        check(read(BallMoments.of(SCHEMA, ["x", "y"], Fraction(norm))))


def test_the_lattice():
    for columns in [["x"], ["x", "y"], ["y", "z"]]:
        check(read(KernelLattice(tuple(SCHEMA[name] for name in columns), 2, 0.3)))


def test_the_score():
    for pilot in [None, (0, 0, 0), (2**24, -(2**24), 2**20), (-(2**23), 9, 7)]:
        for terms in [
            [(), (("x", None),), (("g", 1),)],
            [(("g", 0),), (("g", 1),), (("a", 1), ("g", 1))],
        ]:
            block = read(PilotScore.of(SCHEMA, terms, ("b", 1), "logit"))
            plain = {**block.plain, "pilot": None if pilot is None else list(pilot)}
            columns = {one["name"]: read_column(one) for one in SCHEMA.to_dict()}
            block = reading._block(plain, columns)
            for unit, power in itertools.product(("replace", "add_remove"), (1, 2)):
                exact = enumeration.every_row(block, unit, power)
                assert exact is not None
                assert exact[0] <= argued(block, unit, power).bound


def test_a_bound_that_is_too_small_is_seen(monkeypatch):
    block = read(Moments.of_terms(SCHEMA, [(("x", None),), (("x", None),) * 2]))
    check(block)
    monkeypatch.setattr(findings.monomials, "replaced", lambda terms, power: (Fraction(2), "", {}))
    with pytest.raises(AssertionError):
        check(block)
