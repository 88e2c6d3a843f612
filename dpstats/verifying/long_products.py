"""Bounds for products of three and more features, see `monomials` for what they start from."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import TypeVar

from dpstats.verifying.functions import SIGN, Feature, Term, alternatives

MOST_PATTERNS = 400_000
T = TypeVar("T")


def one_by_one(terms: Sequence[Term], power: int) -> Fraction:
    """Every set of alternatives at its own worst: 2 (or 4) if it can be negative, else 2 or 1."""
    total = 0
    for (values, _), count in alternatives(terms).items():
        signed = any(times % 2 for times in Counter(values).values())
        total += 2**power if signed else min(2, count)
    return Fraction(total)


def classes_of(names: Sequence[T], swapped: Callable[[T, T], bool]) -> list[list[T]]:
    """Names that can change places without effect, together."""
    found: list[list[T]] = []
    for name in names:
        for own in found:
            if swapped(own[0], name):
                own.append(name)
                break
        else:
            found.append([name])
    return found


def of_long(terms: Sequence[Term], power: int) -> tuple[Fraction, str]:
    """Products of three and more features: the least bound that applies."""
    found = [(one_by_one(terms, power), "each at its own worst")]
    if all(level is None for term in terms for _, level in term) and max(map(len, terms)) <= 4:
        distinct = [len(set(term)) for term in terms]
        p = len({feature for term in terms for feature in term})
        if max(distinct) == 1:
            own = Counter(term[0] for term in terms)
            both = sum(count == 2 for count in own.values())
            cubes = sum(len(t) == 3 and own[t[0]] == 1 for t in terms)
            rest = len(own) - both - cubes
            # t^3 + t^4 + 27/256 = (t + 3/4)^2 (t^2 - t/2 + 3/16), the last factor above 0
            one = 2 + Fraction(27, 256) if power == 1 else Fraction(4)
            total = both * one + cubes * 2**power + rest
            found.append((total, "2 - t^3 - t^4 <= 2 + 27/256, and 4 in squares, for each number"))
        if max(distinct) == 2:
            found.append((_pairs(p, power), "a bound for all pairs, in the power sums of t"))
    bound = _thresholds(terms, power)
    if bound is not None:
        found.append((bound, "r^k = |t|^k falls in k, so a sum of c_k r^k is at most the largest "
                             "c_0 + .. + c_j (Abel), for every number in turn"))  # fmt: skip
    return min(found)


def _pairs(p: int, power: int) -> Fraction:
    """All products of degree three and four within every pair of p >= 2 numbers.

    With the power sums S_k of t and R = S_2 + S_3 they add up to P = S_1 R + (S_2^2 - S_4) / 2.

    Power 1, d - P with d = p (5p - 1) / 2. From (1 - t)(t + 1 - e)^2 >= 0 follows R <= 2e S_2 +
    (1 - e^2) S_1 + p (1 - e)^2; with S_4 <= S_2 the largest -P over S_2, then over S_1 < 0, is at
    most (p (1 - e)^2 + e)^2 / (4 (1 - 3 e^2)) + 1/8. For p = 2, with s = S_1 and q = t_1 t_2, P =
    s^3 + s^4 - q (2s + 3 s^2) + q^2 where q <= s^2/4. Its least value is at q = s^2/4, so t_1 = t_2
    = u and P = 4u^3 + 5u^4 = (u + 3/5)^2 (5u^2 - 2u + 3/5) - 27/125, or for s in [-4/5, 0] at
    q = s + 3 s^2/2, where it is -s^2 (1 + 2s + 5 s^2/4) >= -16/125, as that falls in s.

    Power 2: the sum of (1 - v)^2 is at most 4 p^2 - 2 S_1 R - 3 (p^2 - S_2^2) / 2. If S_1 >= 0, at
    most 4 p^2. Else R <= p + S_1; with a = (1 - t) / 2 and b = sum a (1 - a), p^2 - S_2^2 >= 4pb,
    and 4 p^2 - 2 S_1 (p + S_1) is linear in every a but for 8b <= 6pb: largest at a of 0 or 1.
    """
    if power == 2:
        return Fraction(max(4 * k * (3 * p - 2 * k) for k in range(p + 1)))
    d = Fraction(p * (5 * p - 1), 2)
    if p == 2:
        return d + Fraction(27, 125)
    steps = [Fraction(i, 256) for i in range(256) if 3 * i * i < 256 * 256]
    return (
        d + Fraction(1, 8) + min((p * (1 - e) ** 2 + e) ** 2 / (4 * (1 - 3 * e * e)) for e in steps)
    )


def _thresholds(terms: Sequence[Term], power: int) -> Fraction | None:
    """Write v(t) as a sign times a product of r_i^k_i, r_i = |t_i|.

    In every r_i, a sum of c_k r_i^k over k is at most one of its partial sums. So r_i^k may be
    replaced by 1 for k <= j_i and by 0 beyond, with the worst j_i. In squares (1 - v)^2 is at most
    1 + 3 |v| if v < 0 and 1 - |v| else.
    """
    sets = list(alternatives(terms).items())
    powers = [Counter(values) for (values, _), _ in sets]
    features = sorted({feature for own in powers for feature in own}, key=str)
    groups = sorted({name for (_, own), _ in sets for name in own})
    whole = (1 << len(sets)) - 1

    def mask(holds: Callable[[int], bool]) -> int:
        return sum(1 << i for i in range(len(sets)) if holds(i))

    states: dict[Feature, list[tuple[int, int]]] = {}  # alternatives that stay, and that turn
    for f in features:
        odd = mask(lambda i: bool(powers[i][f] % 2))  # noqa: B023
        most = max(own[f] for own in powers)
        within = [mask(lambda i: powers[i][f] <= j) for j in range(most + 1)]  # noqa: B023
        steps = [within[-1]] if f[1] == SIGN else within
        states[f] = list(dict.fromkeys((s, o) for s in steps for o in (0, odd)))

    def alike(one: Feature, other: Feature) -> bool:
        def swap(feature: Feature) -> Feature:
            return other if feature == one else one if feature == other else feature

        if one[1] != other[1]:  # of a sign only the parity matters
            return False
        moved = Counter((frozenset((swap(f), k) for f, k in own.items()), g, n)
                        for own, ((_, g), n) in zip(powers, sets, strict=True))  # fmt: skip
        return moved == Counter((frozenset(own.items()), g, n)
                                for own, ((_, g), n) in zip(powers, sets, strict=True))  # fmt: skip

    classes = classes_of(features, alike)
    ways = [math.comb(len(own) + len(states[own[0]]) - 1, len(own)) for own in classes]
    if math.prod(ways) * 2 ** len(groups) > MOST_PATTERNS:
        return None
    more, best = 1 if power == 1 else 3, 0
    for moved in itertools.product((False, True), repeat=len(groups)):
        gone = {name for name, one in zip(groups, moved, strict=True) if one}
        touched = mask(lambda i: any(name in gone for name in sets[i][0][1]))  # noqa: B023
        start = sum(min(2, n) for i, (_, n) in enumerate(sets) if touched >> i & 1)
        start += len(sets) - touched.bit_count()

        def rest(number: int, stays: int, turned: int) -> int:
            if number == len(classes):
                return more * (stays & turned).bit_count() - (stays & ~turned).bit_count()
            found = -len(sets)
            own = classes[number]
            for chosen in itertools.combinations_with_replacement(
                range(len(states[own[0]])), len(own)
            ):
                left, sign = stays, turned
                for f, state in zip(own, chosen, strict=True):
                    keep, turn = states[f][state]
                    left, sign = left & keep, sign ^ turn
                found = max(found, rest(number + 1, left, sign))
            return found

        best = max(best, start + rest(0, whole & ~touched, 0))
    return Fraction(best)
