"""Signs of two-level columns as features: algebra, sums, and sensitivities by brute force."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dpstats as dps
from dpstats.errors import RequestError
from dpstats.families.features import SIGN, has_sign, product
from dpstats.families.moments import Moments
from dpstats.families.subgroups import Subgroup

SCHEMA = dps.Schema([
    dps.Number("a", 0, 4, points=5, edges=[2], missing=0),
    dps.Number("b", -1, 1, points=3, allow_missing=True),
    dps.Category("g", ["n", "s", "w"]),
    dps.Boolean("t"), dps.Category("u", ["no", "yes"]), dps.Boolean("v", allow_missing=True),
    dps.Boolean("w"),
])  # fmt: skip
A, G = ("a", None), ("g", 1)
T, U, V = (("t", SIGN), ("u", SIGN), ("v", SIGN))


def test_impossible_terms_and_signs_are_refused():
    for terms in [
        [(T, T)], [(U, T)], [(T, A)], [(G, T)], [(("g", SIGN),)], [(("a", SIGN),)], [(("t", -2),)],
        [(T, ("t", 1))], [(V,)], [(A, V)],
    ]:  # fmt: skip
        with pytest.raises(RequestError):
            Moments.of_terms(SCHEMA, terms)
    for groups, signs in (([], ["g"]), ([], ["a"]), ([], ["t", "t"]), ([], ["x"]), (["t"], ["t"])):
        with pytest.raises(RequestError):
            Moments.of(SCHEMA, ["a"], groups, signs=signs)
    with pytest.raises(RequestError, match="'v' has allow_missing=True in the schema"):
        Moments.of_terms(SCHEMA, [(V,)], given=Subgroup.of(SCHEMA, "t == True", []))


@st.composite
def mixed_terms(draw):
    """Products of up to four numbers, signs and levels, of all rows or of a subgroup."""
    given_rows = draw(st.sampled_from([None, "", "u == 'yes'", "g in ['n', 's']"]))
    columns = [c for c in SCHEMA if given_rows is not None or not c.allow_missing]
    names = draw(st.sets(st.sampled_from([c.name for c in columns]), min_size=1, max_size=4))
    used = [c for c in columns if c.name in names]
    features = [(c.name, None) for c in used if isinstance(c, dps.Number)]
    features += [(c.name, SIGN) for c in used if has_sign(c)] * 2
    features += [(c.name, level) for c in used if not has_sign(c) for level in range(c.bins)
                 if c.bins > 1]  # fmt: skip
    lists = st.lists(st.sampled_from(features), min_size=1, max_size=4)
    terms = {product(factors, ()) for factors in draw(st.lists(lists, min_size=1, max_size=12))}
    terms = sorted(terms - {None, ()}, key=str) or [features[:1]]
    group = None
    if given_rows is not None:
        group = Subgroup.of(SCHEMA, given_rows or None, names)
        terms += [()] * (group is not None and draw(st.booleans()))
    return Moments.of_terms(SCHEMA, map(tuple, terms), coarse=draw(st.booleans()), given=group)


def products(block, codes):
    """Values (d, m) by definition: steps of numbers, signs and levels multiplied, of all rows."""

    def factor(name, level):
        if level is None:
            return block._feature(SCHEMA[name], None, codes[name])
        if level == SIGN:
            return 2 * codes[name] - 1
        return (SCHEMA[name].bins_of(codes[name]) == level).astype(int)

    inside = 1 if block.given is None else block.given.holds(codes).astype(int)
    one = np.ones(len(codes[block.columns[0].name]), int)
    return np.array([
        np.prod([one * inside, *(factor(*f) for f in term)], axis=0) for term in block.terms
    ])  # fmt: skip


def is_below(found, claimed):
    return found.l1 <= claimed.l1 and found.l2_squared <= claimed.l2_squared


@given(block=mixed_terms())
@settings(max_examples=40)
def test_no_pair_of_rows_passes_the_claim_for_products_of_any_length(block, rows_of, change_of):
    rows = rows_of(block.columns)
    claimed = block.sensitivity("replace")
    low, high = block.ranges
    values = block.evaluate(rows).matrix().toarray()
    np.testing.assert_array_equal(values, products(block, rows))
    assert block.sums(rows).tolist() == values.sum(axis=1).tolist()
    assert np.all((values >= low[:, None]) & (values <= high[:, None]))
    if len(values.T) <= 1500:
        assert is_below(change_of(block, rows, rows), claimed)
    assert is_below(change_of(block, rows), block.sensitivity("add_remove"))
    for dropped in range(block.size):
        kept = np.arange(block.size) != dropped
        if kept.any():
            assert is_below(block.restrict(kept).sensitivity("replace"), claimed)
