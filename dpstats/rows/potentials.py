"""Terms of subgroup moments and of clipped moments in the conditional distribution of a column."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, product
from operator import mul

import numpy as np
from numpy.typing import NDArray

from dpstats.arrays import Codes, Floats
from dpstats.families.ball_moments import BallMoments
from dpstats.families.features import Term, add_by_bin, indicator
from dpstats.families.group_moments import PARTS
from dpstats.families.subgroups import Subgroup
from dpstats.schema import Number

Units = Callable[[str], Floats]
"""Values (rows,) of a number in unit scale."""

# (1-x)^2/4, (1-x^2)/2 and (1+x)^2/4 as coefficients of 1, x and x^2
_PARTS = np.array([[1, -2, 1], [2, 0, -2], [1, 2, 1]]) / 4


@dataclass(frozen=True)
class Monomial:
    """A coefficient times powers of numbers, signs and indicators of levels."""

    powers: Mapping[str, int]
    levels: tuple[tuple[str, int], ...]
    value: float

    @staticmethod
    def of(term: Term, value: float) -> Monomial:
        """A product of features, times a coefficient."""
        powers = Counter(name for name, level in term if level is None)
        levels = tuple((name, level) for name, level in term if level is not None)
        return Monomial(powers, levels, value)

    def without(self, name: str, units: Units, bins: Mapping[str, Codes]) -> Floats:
        """The coefficient times all factors that are of other columns, (rows,)."""
        rest = np.full(len(bins[name]), self.value)
        for number, power in self.powers.items():
            if number != name:
                rest *= units(number) ** power
        for group, level in self.levels:
            if group != name:
                rest *= indicator(level, bins[group])
        return rest


@dataclass(frozen=True)
class SubgroupPotential:
    """A sum of monomials, for the rows of a subgroup; zero for others."""

    group: Subgroup
    monomials: tuple[Monomial, ...]

    @staticmethod
    def of_groups(
        numbers: Sequence[Number], groups: Sequence[Subgroup], part: Floats
    ) -> list[SubgroupPotential]:
        """One polynomial per group, of the second degree in each of one or two numbers.

        From coefficients (d,) of the products of their parts, in unit scale.
        """
        features = [[(number.name, None)] for number in numbers]
        degrees = product(range(len(PARTS)), repeat=len(numbers))
        terms = [tuple(chain(*map(mul, features, powers))) for powers in degrees]
        to_powers = _PARTS if len(numbers) == 1 else np.kron(_PARTS, _PARTS)
        found = []
        for group, values in zip(groups, part.reshape(len(groups), -1), strict=True):
            monomials = zip(terms, (values @ to_powers).tolist(), strict=True)
            potential = tuple(Monomial.of(term, value) for term, value in monomials)
            found.append(SubgroupPotential(group, potential))
        return found

    def involves(self, name: str) -> bool:
        """True if the potential depends on a column."""
        used = {column.name for column in self.group.columns}
        return name in used or any(
            name in monomial.powers or any(name == group for group, _ in monomial.levels)
            for monomial in self.monomials
        )

    def given_others(
        self, name: str, width: int, units: Units, bins: Mapping[str, Codes]
    ) -> SubgroupConditional:
        """As a function of one column with `width` bins, the others as they are."""
        flat = np.zeros((len(bins[name]), width))
        powers: list[Floats] = []
        for monomial in self.monomials:
            rest = monomial.without(name, units, bins)
            power, level = monomial.powers.get(name, 0), dict(monomial.levels).get(name)
            if power == 0:
                if level is None:
                    flat += rest[:, np.newaxis]
                else:
                    add_by_bin(flat, level, rest)
                continue
            while len(powers) < power:
                powers.append(np.zeros(len(rest)))
            powers[power - 1] = powers[power - 1] + rest
        return SubgroupConditional(self.group.holds_by_bin(name, bins), flat, powers)


@dataclass(frozen=True)
class SubgroupConditional:
    """A potential as a function of one column, for given values of the others."""

    # (rows, bins) or (rows, 1) bool: whether the row is in the subgroup, for every bin of the
    # column
    holds: NDArray[np.bool_]
    flat: Floats  # (rows, bins): what does not depend on the number's value inside its bin
    # list of (rows,): coefficients of the number's powers 1, 2, .. in unit scale
    powers: list[Floats]

    @property
    def by_bin(self) -> Floats:
        """(rows, bins) potential without the powers."""
        return self.flat * self.holds

    @property
    def same_in_all_bins(self) -> bool:
        """True if membership of the subgroup does not depend on the column."""
        return bool(self.holds.shape[1] == 1)

    def at(self, units: Floats, bins: Codes) -> Floats:
        """(rows, states) of the powers, at values in unit scale and the bins they are in."""
        if not self.powers:
            return np.zeros(units.shape)
        held = np.broadcast_to(self.holds, self.flat.shape)
        return horner(self.powers, units.T).T * np.take_along_axis(held, bins, axis=1)


def horner(powers: list[Floats], at: Floats) -> Floats:
    """The polynomial without constant at (states, rows), coefficients (rows,) of each power."""
    total = powers[-1] * at
    for coefficient in reversed(powers[:-1]):
        total += coefficient
        total *= at
    return total


@dataclass(frozen=True)
class BallPotential:
    """Sum of c_f f(x) over f in `BallMoments`: a'w + w'Qw + c 1(|z| > 1), w = z / max(1, |z|)."""

    block: BallMoments
    coefficients: Floats  # (d,): for functions in unit scale

    @cached_property
    def _parts(self) -> tuple[Floats, Floats, float]:
        p = len(self.block.numbers)
        scaled = self.coefficients * self.block.ones / self.block.bounds
        square = np.zeros((p, p))
        square[np.triu_indices(p)] = scaled[p:-1]
        return scaled[:p], (square + square.T) / 2, float(scaled[-1])

    def given_others(self, name: str, codes: Mapping[str, Codes]) -> BallConditional:
        """As a function of one number, the others as they are in (m,) rows of codes."""
        names = [column.name for column in self.block.numbers]
        i = names.index(name)
        rest = self.block.coordinates(codes)
        rest[i] = 0
        linear, square, outside = self._parts
        turned = square @ rest
        zero = self.block.numbers[i].half_points
        every = np.arange(-zero, zero + 1)
        own = self.block.coordinates({**{n: every * 0 for n in names}, name: every})[i]
        return BallConditional(
            own, zero, np.sum(rest**2, axis=0),
            (linear @ rest, float(linear[i])),
            (np.sum(turned * rest, axis=0), 2 * turned[i], float(square[i, i])),
            outside,
        )  # fmt: skip


@dataclass(frozen=True)
class BallConditional:
    """A `BallPotential` of one number for each of some rows."""

    own: Floats  # (points,): the number's coordinate z at code - zero
    zero: int
    rest: Floats  # (rows,): squared length of the others
    # linear, square: tuples of (rows,) and float: coefficients of 1, z (and z^2) in a'z and in z'Qz
    linear: tuple[Floats, float]
    square: tuple[Floats, Floats, float]
    outside: float  # c

    def at(self, codes: Codes) -> Floats:
        """(rows, states) float64 at codes (rows, states)."""
        z = self.own[codes + self.zero]
        length = self.rest[:, None] + z**2
        shrink = 1 / np.sqrt(np.maximum(1, length))
        linear = self.linear[0][:, None] + self.linear[1] * z
        square = self.square[0][:, None] + self.square[1][:, None] * z + self.square[2] * z**2
        return np.asarray(shrink * (linear + shrink * square) + self.outside * (length > 1))
