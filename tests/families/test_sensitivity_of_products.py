"""Sensitivities of products of three and more features: exact, or near what a search finds."""

import itertools
from collections import Counter

import numpy as np

import dpstats as dps
from dpstats.families.features import alternatives, replacement
from dpstats.families.moments import fourth_moments_of_pairs, third_and_fourth_powers


def numbers(p, points):
    return dps.Schema([dps.Number(f"x{i}", -1, 1, points=points, missing=0) for i in range(p)])


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
    t = np.vstack([*few, signs, rng.uniform(-1, 1, (500, p))])
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
    for p in (2, 5, 12):
        schema = numbers(p, 9)
        terms = fourth_moments_of_pairs(schema, schema.names).terms
        (l1, l2), claimed = search(terms, p), replacement(terms)
        assert l1 <= claimed.l1 + 1e-9
        assert claimed.l1 <= 1.045 * l1
        assert l2 == claimed.l2_squared
