"""Bounds on how much replacing one row moves sums of products, all of them together.

Let a row x become x', let t_i = 1 - |x_i - x'_i| for its numbers in [-1, 1] and its signs, and let
v be a product of them.

1. |v(x) - v(x')| <= 1 - v(t), and |v(x)| + |v(x')| <= 1 + |v(t)|, with equality for x = (1, .., 1)
   and x' = t. For the first write x = u + w, x' = u - w and expand: what remains has terms that are
   odd in w, all with positive coefficients in |u| and |w|, and |u_i| <= 1 - |w_i|. For the second,
   |x_i| + |x'_i| <= 1 + |t_i|, and a product of such pairs is largest at pairs (1, |t_i|) or
   (|t_i|, 1), where a product P and its counterpart Q have P + Q <= 1 + P Q.
2. Terms that share all but their levels: a row has a value at one of them at most. It changes by
   the first bound if the row keeps its levels, else two of them change, by the second bound.

So one function of t is to be maximised, for every set of groups that change their level. More
terms can only change more. In squares (1 - v)^2 <= 2 (1 - v), and (1 - t)^2 + (1 - t^2)^2 <=
2 (1 - t), as the sides differ by (1 - t) (1 + t) t^2.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import partial

from dpstats.verifying.blocks import SIGN, Term, alternatives, by_sets, is_level, sets_of

_PATTERNS = 400_000  # that are tried


def bound_products(terms: Sequence[Term], unit: str, power: int, in_group: bool) -> Fraction:
    """A bound for some products, of the rows of a subgroup if so; () is the number of rows."""
    entering = by_sets(sets_of(terms), "add_remove", power)  # a row has 1 in each set at most
    if unit == "add_remove":
        return entering
    few, long = ([t for t in terms if t and (len(t) <= 2) == short] for short in (True, False))
    total = min(
        filter(None, [by_sets(sets_of(few), unit, power), _bound_all_few(few, power)]),
        default=Fraction(0),
    )
    if long:
        options = [by_sets(sets_of(long), unit, power), _by_powers(long, power)]
        total += min(bound for bound in [*options, _by_patterns(long, power)] if bound is not None)
    return max(total, entering) if in_group else total


def _bound_all_few(terms: Sequence[Term], power: int) -> Fraction | None:
    """The largest change of all first and second moments of the columns of some terms.

    Of `groups` several levels are used, of `single` ones one level. Numbers are alike, signs are,
    and so are groups: it matters how many change. With m numbers below zero the sum for power 1 is
    concave in t, and so largest where these are equal, to a, and the others too, to b. Its slopes
    in one of these and in one of those differ by b - a - 2 changed, and cannot both vanish inside
    -1 < a < 0 < b < 1. For power 2 it is linear in every t.
    """
    used = {feature for term in terms for feature in term}
    p = sum(level is None for _, level in used)
    s = sum(level == SIGN for _, level in used)
    levels = Counter(feature[0] for feature in used if is_level(feature)).values()
    single = sum(count == 1 for count in levels)
    groups = len(levels) - single
    first = any(len(term) == 1 and not is_level(term[0]) for term in terms)
    if (groups + 1) * (single + 1) * (p + 1) * (s + 1) > _PATTERNS // 10:
        return None
    best = Fraction(0)
    for changed, d, m, k in itertools.product(*map(range, (groups + 1, single + 1, p + 1, s + 1))):
        kept = groups - changed + single - d
        moved = [(changed, 2), (groups - changed, 0), (d, 1), (single - d, 0)]
        of_levels = sum(n * by for n, by in moved) + sum(
            (n * o if i < j else n * (n - 1) // 2) * (1 if 1 in (by, to) else max(by, to))
            for i, (n, by) in enumerate(moved) for j, (o, to) in enumerate(moved) if i <= j
        )  # fmt: skip
        counts = m, p - m, k, s - k
        change = partial(_change_of_values, counts, (first + kept, changed, d), power)
        if power == 2:
            best = max(best, of_levels + Fraction(change(-1, 1)))
        else:
            corners = itertools.pairwise([(-1, 0), (-1, 1), (0, 1), (0, 0), (-1, 0)])
            best = max(best, of_levels + max(_peak(change, *edge) for edge in corners))
    return best


def _change_of_values(
    counts: tuple[int, ...], levels: tuple[int, int, int], power: int, a: float, b: float
) -> float:
    """The change of terms with numbers at t = a or b, and with signs at -1 or 1.

    The numbers and signs have levels that stay (one of which is their first moment), groups that
    change, which give 1 + |t|, and single levels that change, which give 1.
    """
    values, (kept, changed, d) = list(zip(counts, (a, b, -1, 1), strict=True)), levels
    size, total = sum(counts), sum(n * t for n, t in values)
    squares = sum(n * t * t for n, t in values)
    pairs = math.comb(size, 2) - (total * total - squares) / 2
    own = power * (kept * (size - total) + pairs)
    if power == 1:
        own += size - squares
    elif kept + changed == 0:
        # (P^2 - 2 (sum t)^2 + T^2 + sum (1 - t^2)^2) / 2 <= (P^2 + T^2 + P - T) / 2 <= P^2
        # (eq. l2-without-means)
        own = size**2
    return own + changed * sum(n * (1 + abs(t)) for n, t in values) + d * size


def _peak(change: Callable[..., float], one: tuple[int, int], other: tuple[int, int]) -> Fraction:
    """The largest value between two points of a quadratic that is not convex, from three values."""
    middle = ((x + y) / 2 for x, y in zip(one, other, strict=True))
    start, half, end = (Fraction(change(*point)) for point in (one, middle, other))
    bend = 2 * (end - 2 * half + start)
    slope = end - start - bend
    x = min(max(-slope / (2 * bend), Fraction(0)), Fraction(1)) if bend else Fraction(slope > 0)
    return start + slope * x + bend * x * x


def _by_powers(terms: Sequence[Term], power: int) -> Fraction | None:
    """Third and fourth moments of numbers, or of pairs of them, in the power sums of t.

    Of single numbers t^3 + t^4 + 27/256 = (t + 3/4)^2 (t^2 - t/2 + 3/16), the last factor above 0
    (eq. third-and-fourth-powers). Of all pairs of p numbers see eq. l1-of-pairs and l2-of-pairs of
    ``docs/explanation/privacy/sensitivity.md``.
    """
    if any(level is not None for term in terms for _, level in term) or max(map(len, terms)) > 4:
        return None
    powers = Counter((f, len(term)) for term in terms for f in set(term))
    numbers = {f for f, _ in powers}
    p, widest = len(numbers), max(len(set(term)) for term in terms)
    if widest == 1:
        both = 2 + Fraction(27, 256) if power == 1 else Fraction(4)
        alone = {3: Fraction(2**power), 4: Fraction(1)}
        found = [[d for d in (3, 4) if (f, d) in powers] for f in numbers]
        total = sum((both if len(own) == 2 else alone[own[0]] for own in found), Fraction(0))
        return total
    if widest > 2:
        return None
    if power == 2:
        total = Fraction(max(4 * k * (3 * p - 2 * k) for k in range(p + 1)))
    else:
        steps = [Fraction(i, 64) for i in range(64) if 3 * i * i < 64 * 64]
        parts = ((p * (1 - e) ** 2 + e) ** 2 / (4 * (1 - 3 * e * e)) for e in steps)
        more = Fraction(27, 125) if p == 2 else Fraction(1, 8) + min(parts)
        total = Fraction(p * (5 * p - 1), 2) + more
    return total


def _by_patterns(terms: Sequence[Term], power: int) -> Fraction | None:
    """Write v(t) as a sign times a product of r_i^k_i, r_i = |t_i|.

    In every r_i, a sum of c_k r_i^k over k is at most one of its partial sums (Abel). So r_i^k may
    be replaced by 1 for k <= j_i and by 0 beyond, with the worst j_i. In squares (1 - v)^2 is at
    most 1 + 3 |v| if v < 0 and 1 - |v| else (eq. by-patterns). Sets of numbers are held as bits:
    those that stay, as no r_i made them 0, and those that are negative.
    """
    sets = [(Counter(values), own, n) for (values, own), n in alternatives(terms).items()]
    features = sorted({f for powers, _, _ in sets for f in powers}, key=str)
    groups = sorted({name for _, own, _ in sets for name in own})
    states = {}
    for f in features:
        odd = sum(1 << i for i, (powers, _, _) in enumerate(sets) if powers[f] % 2)
        most = max(powers[f] for powers, _, _ in sets)
        stays = [
            sum(1 << i for i, (powers, _, _) in enumerate(sets) if powers[f] <= j)
            for j in range(most if f[1] == SIGN else 0, most + 1)
        ]
        states[f] = list(dict.fromkeys((stay, turn) for stay in stays for turn in (0, odd)))

    def swapped(one: object, other: object) -> Counter[tuple[object, ...]]:
        """The sets, where two features change places."""
        at = {one: other, other: one}
        return Counter(
            (frozenset((at.get(f, f), k) for f, k in powers.items()), own, n)
            for powers, own, n in sets
        )

    alike: list[list[tuple[str, int | None]]] = []
    for f in features:
        for others in alike:
            if others[0][1] == f[1] and swapped(others[0], f) == swapped(f, f):
                others.append(f)
                break
        else:
            alike.append([f])
    ways = [math.comb(len(own) + len(states[own[0]]) - 1, len(own)) for own in alike]
    if math.prod(ways) * 2 ** len(groups) > _PATTERNS:
        return None

    def largest(number: int, stays: int, turned: int) -> int:
        """The most that sets that stay add, over the features from a number of `alike` on."""
        if number == len(alike):
            more = 1 if power == 1 else 3
            return more * (stays & turned).bit_count() - (stays & ~turned).bit_count()
        best, own = -len(sets), alike[number]
        for chosen in itertools.combinations_with_replacement(range(len(states[own[0]])), len(own)):
            left, sign = stays, turned
            for f, state in zip(own, chosen, strict=True):
                left, sign = left & states[f][state][0], sign ^ states[f][state][1]
            best = max(best, largest(number + 1, left, sign))
        return best

    best = 0
    for changes in itertools.product((False, True), repeat=len(groups)):
        gone = set(itertools.compress(groups, changes))
        kept = sum(1 << i for i, (_, own, _) in enumerate(sets) if not gone & set(own))
        start = sum(min(2, n) for i, (_, _, n) in enumerate(sets) if not kept >> i & 1)
        best = max(best, start + kept.bit_count() + largest(0, kept, 0))
    return Fraction(best)
