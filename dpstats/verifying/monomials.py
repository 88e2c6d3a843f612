"""Bounds on how much one row moves sums of products, all of them together.

Let a row x become x', let t_i = 1 - |x_i - x'_i| for its numbers in [-1, 1] and its signs, and let
v be a product of them.

1. |v(x) - v(x')| <= 1 - v(t), and |v(x)| + |v(x')| <= 1 + |v(t)|, with equality for x = (1, .., 1)
   and x' = t. For the first write x = u + w, x' = u - w and expand: what remains has terms that are
   odd in w, all with positive coefficients in |u| and |w|, and |u_i| <= 1 - |w_i|. For the second,
   |x_i| + |x'_i| <= 1 + |t_i|, and a product of such pairs is largest at pairs (1, |t_i|) or
   (|t_i|, 1), where a product P and its counterpart Q have P + Q <= 1 + P Q.
2. Terms that share all but their levels: a row has a value at one of them at most. It changes by
   the first bound if the row keeps its levels, else two of them change, by the second bound.

So one function of t is to be maximised, for every set of groups that change their level. In squares
(1 - v)^2 <= 2 (1 - v), and (1 - t)^2 + (1 - t^2)^2 <= 2 (1 - t), the difference of the sides being
(1 - t) (1 + t) t^2.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from dpstats.verifying.functions import SIGN, Feature, Term, alternatives
from dpstats.verifying.long_products import MOST_PATTERNS, classes_of, of_long, one_by_one

Kept = tuple[Term, tuple[str, ...]]
Unit = tuple[list[Feature], Fraction, Fraction]


def replaced(terms: Sequence[Term], power: int) -> tuple[Fraction, str, dict[str, Fraction]]:
    """A bound on the change of all terms when a row is replaced, its argument, and a point t."""
    few = [term for term in terms if 0 < len(term) <= 2]
    long = [term for term in terms if len(term) > 2]
    total, words, at = Fraction(0), [], {}
    if few:
        alone = one_by_one(few, power)
        found = _Few(few).largest(power)
        if found is None or alone <= found[0]:
            total, words = alone, [f"{len(few)} first and second moments, each at its own worst"]
            at = {} if found is None else found[1]
        else:
            total, at = found
            what = "a concave function of t" if power == 1 else "a function linear in every t_i"
            words = [f"{len(few)} first and second moments: the largest value of {what}"]
    if long:
        bound, argument = of_long(long, power)
        total, words = total + bound, [*words, f"{len(long)} longer products: {argument}"]
    return total, "; ".join(words), at


@dataclass
class _Few:
    """First and second moments: at most quadratic in t."""

    terms: Sequence[Term]
    sets: dict[Kept, int] = field(init=False)

    def __post_init__(self) -> None:
        self.sets = dict(alternatives(self.terms))
        used = {feature for term in self.terms for feature in term}
        levels = Counter(name for name, level in used if level is not None and level != SIGN)
        self.single = {name for name, count in levels.items() if count == 1}
        self.groups = classes_of(sorted(levels), self._groups_alike)
        self.values: list[Feature] = sorted(
            {f for f in used if f[1] is None or f[1] == SIGN}, key=str
        )
        self.squared = {v[0] for v, _ in self.sets if len(v) == 2 and v[0] == v[1]}
        self.classes = classes_of(self.values, self._values_alike)

    def _values_alike(self, one: Feature, other: Feature) -> bool:
        def swap(feature: Feature) -> Feature:
            return other if feature == one else one if feature == other else feature

        moved = {(tuple(sorted(map(swap, v))), g): n for (v, g), n in self._sorted()}
        return moved == dict(self._sorted())

    def _groups_alike(self, one: str, other: str) -> bool:
        def swap(name: str) -> str:
            return other if name == one else one if name == other else name

        if (one in self.single) != (other in self.single):
            return False
        moved = {(v, tuple(sorted(map(swap, g)))): n for (v, g), n in self._sorted()}
        return moved == dict(self._sorted())

    def _sorted(self) -> Iterator[tuple[tuple[tuple[Feature, ...], tuple[str, ...]], int]]:
        for (values, groups), count in self.sets.items():
            yield (tuple(sorted(values, key=str)), tuple(sorted(groups))), count

    def largest(self, power: int) -> tuple[Fraction, dict[str, Fraction]] | None:
        """The largest value over t and over the groups that change, and the t; None if too many."""
        best: tuple[Fraction, dict[str, Fraction]] | None = None
        counts = [range(len(own) + 1) for own in self.groups]
        if math.prod(map(len, counts)) * len(self.terms) > MOST_PATTERNS * 10:
            return None
        for chosen in itertools.product(*counts):
            pairs = zip(self.groups, chosen, strict=True)
            changed = {name for own, k in pairs for name in own[:k]}
            found = self._linear(changed) if power == 1 else self._squared(changed)
            if found is None:
                return None
            if best is None or found[0] > best[0]:
                best = found
        return best

    def _two(self, groups: Sequence[str], count: int, changed: set[str]) -> int:
        """How many of some alternatives a row with other levels changes: two, or one."""
        return 2 if count > 1 and not any(g in changed and g in self.single for g in groups) else 1

    def _linear(self, changed: set[str]) -> tuple[Fraction, dict[str, Fraction]] | None:
        """Power 1: constant - linear - quadratic + multiples of |t_i|."""
        constant = 0
        linear: Counter[Feature] = Counter()
        bends: Counter[Feature] = Counter()
        products: dict[tuple[Feature, Feature], int] = {}
        for (values, groups), count in self.sets.items():
            if any(group in changed for group in groups):
                two = self._two(groups, count, changed)
                constant += two if not values else 1
                if values and two == 2:
                    bends[values[0]] += 1
            elif values:
                constant += 1
                if len(values) == 1:
                    linear[values[0]] += 1
                else:
                    products[values[0], values[1]] = 1
        if not self._concave(products):
            return None
        return self._over_signs(constant, linear, bends, products)

    def _concave(self, products: dict[tuple[Feature, Feature], int]) -> bool:
        """Whether the quadratic form of the numbers that have squares is not negative."""
        own = [f for f in self.values if f in self.squared]
        p = len(own)
        pairs = sum(
            (a, b) in products or (b, a) in products for a, b in itertools.combinations(own, 2)
        )
        if pairs == p * (p - 1) // 2:
            return True  # half of the sum of squares and the square of the sum
        if p > 60:
            return False
        form = [[Fraction(2 * (a == b) + ((a, b) in products or (b, a) in products) * (a != b))
                 for b in own] for a in own]  # fmt: skip
        for i in range(p):
            if form[i][i] <= 0:
                return False
            for j in range(i + 1, p):
                ratio = form[j][i] / form[i][i]
                form[j] = [x - ratio * y for x, y in zip(form[j], form[i], strict=True)]
        return True

    def _over_signs(
        self,
        constant: int,
        linear: Counter[Feature],
        bends: Counter[Feature],
        products: dict[tuple[Feature, Feature], int],
    ) -> tuple[Fraction, dict[str, Fraction]] | None:
        """Features without a square are at -1 or 1, others on a side of 0 where |t| counts."""
        options: list[list[list[Unit]]] = []
        one = Fraction(1)
        for own in self.classes:
            ways: list[list[Unit]] = []
            if own[0] not in self.squared:
                ways = [[(own[:k], -one, -one), (own[k:], one, one)] for k in range(len(own) + 1)]
            elif bends[own[0]]:
                ways = [[(own[:k], -one, 0 * one), (own[k:], 0 * one, one)]
                        for k in range(len(own) + 1)]  # fmt: skip
            else:
                ways = [[(own, -one, one)]]
            options.append(ways)
        if math.prod(map(len, options)) * max(len(products), 1) > 20 * MOST_PATTERNS:
            return None
        best: tuple[Fraction, dict[str, Fraction]] | None = None
        for chosen in itertools.product(*options):
            units = [unit for way in chosen for unit in way if unit[0]]
            found = _quadratic(units, constant, linear, bends, products)
            if found is None:
                return None
            if best is None or found[0] > best[0]:
                at = {f[0]: y for (own, _, _), y in zip(units, found[1], strict=True) for f in own}
                best = found[0], at
        return best

    def _squared(self, changed: set[str]) -> tuple[Fraction, dict[str, Fraction]] | None:
        """Power 2: linear in every t_i, so largest where each is -1 or 1."""
        constant = 0
        linear: Counter[Feature] = Counter()
        products, covered = set(), set()
        for (values, groups), count in self.sets.items():
            if any(group in changed for group in groups):
                two = self._two(groups, count, changed)
                constant += two
                covered |= set(values) if two == 2 else set()  # 1 + t^2 + (1 - t^2)^2 <= 2
            elif len(values) == 1:
                linear[values[0]] += 2
                covered |= set(values)
            elif values and values[0] != values[1]:
                products.add(values)
        alone = len(self.squared - covered)
        best, at = Fraction(-1), {}
        options = [range(len(own) + 1) for own in self.classes]
        if math.prod(map(len, options)) * max(len(products), 1) > 20 * MOST_PATTERNS:
            return None
        for chosen in itertools.product(*options):
            pairs = zip(self.classes, chosen, strict=True)
            low = {f for own, k in pairs for f in own[:k]}
            found = constant + alone + sum(2 * n for f, n in linear.items() if f in low)
            found += sum(4 for a, b in products if (a in low) != (b in low))
            if found > best:
                best, at = (
                    Fraction(found),
                    {f[0]: Fraction(-1 if f in low else 1) for f in self.values},
                )
        if not linear and alone == len(self.squared):
            # (P^2 - 2 (sum t)^2 + T^2 + sum (1 - t^2)^2) / 2 <= (P^2 + T^2 + P - T) / 2 <= P^2,
            # T the sum of the P squares of t
            best = min(best, Fraction(constant + len(self.values) ** 2))
        return best, at


def _quadratic(
    units: Sequence[Unit],
    constant: int,
    linear: Counter[Feature],
    bends: Counter[Feature],
    products: dict[tuple[Feature, Feature], int],
) -> tuple[Fraction, list[Fraction]] | None:
    """The largest value where the features of a unit are equal: as they are, by concavity."""
    at = {feature: r for r, (own, _, _) in enumerate(units) for feature in own}
    slope = [Fraction(0)] * len(units)
    form = [[Fraction(0)] * len(units) for _ in units]
    for feature, number in linear.items():
        slope[at[feature]] -= number
    for feature, number in bends.items():
        own = units[at[feature]]
        slope[at[feature]] += number if own[2] > 0 and own[1] >= 0 else -number
    for one, other in products:
        form[at[one]][at[other]] += Fraction(1, 2)
        form[at[other]][at[one]] += Fraction(1, 2)
    free = [r for r, (_, low, high) in enumerate(units) if low < high]
    if len(free) > 6:
        return None
    best: tuple[Fraction, list[Fraction]] | None = None
    for face in itertools.product((0, 1, 2), repeat=len(free)):
        y = [low for _, low, _ in units]
        for r, where in zip(free, face, strict=True):
            y[r] = units[r][2] if where == 1 else units[r][1]
        inner = [r for r, where in zip(free, face, strict=True) if where == 2]
        if inner and not _stationary(inner, y, slope, form):
            continue
        if any(not low <= value <= high for (_, low, high), value in zip(units, y, strict=True)):
            continue
        found = Fraction(constant) + sum(s * v for s, v in zip(slope, y, strict=True))
        for r, row in enumerate(form):
            found -= y[r] * sum(c * v for c, v in zip(row, y, strict=True))
        if best is None or found > best[0]:
            best = found, y
    return best


def _stationary(
    inner: list[int], y: list[Fraction], slope: list[Fraction], form: list[list[Fraction]]
) -> bool:
    """Put y where the slope vanishes along some coordinates; False where there is no one point."""
    others = [r for r in range(len(y)) if r not in inner]
    rows = [
        [2 * form[r][s] for s in inner] + [slope[r] - 2 * sum(form[r][s] * y[s] for s in others)]
        for r in inner
    ]
    for i in range(len(rows)):
        pivot = next((j for j in range(i, len(rows)) if rows[j][i]), None)
        if pivot is None:
            return False
        rows[i], rows[pivot] = rows[pivot], rows[i]
        rows[i] = [value / rows[i][i] for value in rows[i]]
        for j in range(len(rows)):
            if j != i and rows[j][i]:
                factor = rows[j][i]
                rows[j] = [a - factor * b for a, b in zip(rows[j], rows[i], strict=True)]
    for r, row in zip(inner, rows, strict=True):
        y[r] = row[-1]
    return True
