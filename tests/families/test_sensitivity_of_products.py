"""Sensitivities of products of three and more features: exact, or near what a search finds."""

import itertools
from collections import Counter

import numpy as np
import pytest

import dpstats as dps
from dpstats.families import features
from dpstats.families.features import SIGN, alternatives, product, replacement
from dpstats.families.moments import fourth_moments_of_pairs, third_and_fourth_powers


def numbers(p, points):
    return dps.Schema([dps.Number(f"x{i}", -1, 1, points=points, missing=0) for i in range(p)])


def fourth_terms(numbers, groups=0):
    """What robust errors of y on some numbers and groups of three levels ask for."""
    x = [(f"x{i}", None) for i in range(numbers)]
    levels = [(f"g{i}", level) for i in range(groups) for level in range(1, 3)]
    own, response = [(), *((f,) for f in x), *((f,) for f in levels)], [(("y", None),)]
    pairs = [product(a, b) for a in own for b in own]
    every = [*pairs, *(product(a, b) for a in [*own, *response] for b in response)]
    terms = {product(a, b) for a in pairs for b in every if a is not None and b is not None}
    return sorted((t for t in terms - {None} if len(t) > 2), key=str)


def changes(terms, t, moved=()):
    """L1 and squared L2 if rows (1, .., 1) become t (m, features) and some groups change."""
    grouped = alternatives(terms)
    l1, l2 = np.zeros(len(t)), np.zeros(len(t))
    names = sorted({f for values, _ in grouped for f in values})
    for (values, groups), count in grouped.items():
        power = [Counter(values)[name] for name in names]
        f = np.prod(t**power, axis=1)
        if set(groups) & set(moved):
            parts = [np.ones(len(t)), np.abs(f)][: min(2, count)]
        else:
            parts = [1 - f]
        l1 += np.sum(parts, axis=0)
        l2 += np.sum(np.square(parts), axis=0)
    return l1.max(), l2.max()


def search(terms, p, groups=()):
    """The largest changes over signs, rows of few values and random rows."""
    rng = np.random.default_rng(1)
    k = np.arange(p + 1)[:, None] > np.arange(p)
    few = [np.where(k, -a, b) for a in np.linspace(0, 1, 21) for b in (-0.5, 0.0, 0.5, 1.0)]
    signs = np.array(list(itertools.product([-1.0, 1.0], repeat=p))) if p <= 7 else k * 2.0 - 1
    t = np.vstack([*few, signs, rng.uniform(-1, 1, (2_000, p))])
    moved = itertools.chain.from_iterable(
        itertools.combinations(groups, r) for r in range(len(groups) + 1)
    )
    return np.max([changes(terms, t, some) for some in moved], axis=0)


def test_third_and_fourth_powers_are_exact(rows_of, change_of):
    """The least of t^3 + t^4 is at -3/4, a point of this grid."""
    for p in [1, 2]:
        schema = numbers(p, 9)
        block = third_and_fourth_powers(schema, schema.names)
        rows = rows_of(block.columns)
        assert change_of(block, rows, rows) == block.sensitivity("replace")
        assert change_of(block, rows) == block.sensitivity("add_remove")
        for power in (3, 4):
            one = block.restrict(np.array([len(term) == power for term in block.terms]))
            assert change_of(one, rows, rows) == one.sensitivity("replace")


def test_third_and_fourth_moments_of_all_pairs_by_search():
    for p in range(2, 13):
        schema = numbers(p, 9)
        terms = fourth_moments_of_pairs(schema, schema.names).terms
        (l1, l2), claimed = search(terms, p), replacement(terms)
        assert l1 <= claimed.l1 + 1e-9
        assert claimed.l1 <= 1.045 * l1
        assert l2 == claimed.l2_squared


def test_moments_of_robust_errors_by_search():
    for p, groups, slack in [
        (1, 0, 1.09), (2, 0, 1.07), (3, 0, 1.05), (4, 0, 1.05), (5, 0, 1.05), (6, 0, 1.05),
        (1, 1, 1.06), (2, 1, 1.06), (3, 1, 1.05), (2, 2, 1.05),
    ]:  # fmt: skip
        terms = fourth_terms(p, groups)
        l1, l2 = search(terms, p + 1, [f"g{i}" for i in range(groups)])
        claimed = replacement(terms)
        assert l1 <= claimed.l1 + 1e-9
        assert l2 <= claimed.l2_squared + 1e-9
        assert claimed.l1 <= slack * l1
        assert claimed.l2_squared <= slack * l2


def mixed_terms():
    """Products of three of two numbers and two signs: each can change places with each."""
    features = [("s0", SIGN), ("s1", SIGN), ("x0", None), ("x1", None)]
    return [product(some, ()) for some in itertools.combinations(features, 3)]


@pytest.mark.parametrize("terms", [fourth_terms(3, 1), mixed_terms()], ids=["robust", "mixed"])
def test_signs_of_features_that_can_change_places_are_counted_once(terms, monkeypatch):
    quick = replacement(terms)
    monkeypatch.setattr(features, "_interchangeable", lambda rows, features: [1] * len(features))
    assert replacement(terms) == quick


def test_too_many_patterns_fall_back_on_one_alternative_at_a_time(monkeypatch):
    terms = fourth_terms(3)
    few = replacement(terms)
    monkeypatch.setattr(features, "_MOST_PATTERNS", 1)
    many = replacement(terms)
    assert many == features._one_by_one(terms)
    assert few.l1 < many.l1
    assert few.l2_squared < many.l2_squared
