"""How far eigenvalues and eigenvectors of diag(values) + A are from values and axes, A a draw.

`rises` bounds the largest moves of eigenvalues from above, and the mirrored problem (`mirrored`)
gives the smallest ones. A full decomposition per eigenvalue, step and draw is avoided in three
ways. The first two err outwards only, the third in neither direction more than the other.

Isolated eigenvalues: perturbation theory with a bound on the rest. With a the row of A beside
entry i, F the other indices and R(x) = (x - D_F - A_FF)^-1, eigenvalue number i is the solution of
x = G(x) = d_i + A_ii + a' R(x) a between those eigenvalues of D_F + A_FF that belong to smaller and
to larger numbers. With W = (x - D_F)^-1 and w = W a, R = W + W A W + W A R A W. The distance of x
from the eigenvalues of D_F + A_FF is at least g, that from D_F less |A| (Weyl), so |R| <= 1 / g and
a'w + w'Aw, the third order, is within |Aw|^2 / g of a' R a. G decreases, with a slope of at most
|a|^2 / g^2: its value at any x is within that slope times |x - G(x)| of the solution. Perturbation
theory fails where another value is within a few |A|: g is then negative, or the two errors are not
small beside the moves, and diag(values) + A is decomposed instead.

Close eigenvalues: in groups. If the estimates of numbers i, .., l are close, the move of each is at
most that of number i with the limit of number l. For number j, subtract its limit e_j: entries
before j are others + slack - e_j, those from j on min(others + slack - e_j, 0). Remove the rows i,
.., j - 1: eigenvalue j is at most number i of the rest (Cauchy's interlacing). All entries of that
increase as e_j falls to e_l, and adding the rows again raises number i (Cauchy).

Fewer draws where the law is narrow. The largest of many tied eigenvalues hardly varies: a quantile
needs as many draws as its own error asks for. It is the order statistic that one more draw exceeds
with at most the given probability, over all draws, which is true of any number of draws.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dpstats.arrays import Floats
from dpstats.inference.intervals import FEWEST

_ACCURACY = 0.04  # of a bound by perturbation, in standard deviations of the move
_ISOLATED = 2.0  # distance from all other values, in norms of A, below which it is not tried
_GROUP = 12  # a group has about one in so many of the eigenvalues within the slack below it
_SPAN = 0.15  # and spans at most this share of the slack
_ENTRIES = 7_000  # rows of matrices that are decomposed at least, for one eigenvalue
_DRAWN = 0.04  # error of a simulated reach, as a share of it


@dataclass(frozen=True)
class ErrorDraws:
    """Draws of a symmetric error A.

    Attributes
    ----------
    errors : (size, p, p) float64
        Pairs of neighbours have opposite noise: the first few are balanced too.
    """

    errors: Floats

    @cached_property
    def ends(self) -> Floats:
        """(size, 2) least and largest eigenvalues."""
        return np.asarray(np.linalg.eigvalsh(self.errors)[:, [0, -1]])

    @cached_property
    def norms(self) -> Floats:
        """(size,) spectral norms."""
        return np.asarray(np.abs(self.ends).max(axis=1))

    @cached_property
    def traces(self) -> Floats:
        """(size,)."""
        return np.asarray(np.trace(self.errors, axis1=1, axis2=2))

    def mirrored(self) -> ErrorDraws:
        """Draws of -A, rows and columns in reverse."""
        found = ErrorDraws(-self.errors[:, ::-1, ::-1])
        found.__dict__["ends"] = -self.ends[:, ::-1]  # computed once
        return found

    def first(self, size: int) -> ErrorDraws:
        """The first few."""
        return ErrorDraws(self.errors[:size])


def outer(draws: Floats, level: float) -> float:
    """What one more draw exceeds with probability `level` at most, or else the largest draw."""
    rank = min(math.ceil((len(draws) + 1) * (1 - level)), len(draws))
    return float(np.partition(draws, rank - 1)[rank - 1])


def fewest(level: float, p: int) -> int:
    """Draws, an even number, of which `FEWEST` are beyond a quantile; more of small matrices."""
    return 2 * math.ceil(max(FEWEST / level, _ENTRIES / p) / 2)


@dataclass(frozen=True)
class Moves:
    """Bounds on the moves of neighbouring eigenvalues, one per draw.

    Attributes
    ----------
    numbers : range
        Which eigenvalues.
    moves : (used,) float64
        For the first few draws, or all.
    reach : float
        Their quantile.
    """

    numbers: range
    moves: Floats
    reach: float


def rises(
    draws: ErrorDraws,
    seen: Floats,
    limits: tuple[float, float],
    slack: float,
    level: float,
    wanted: range,
) -> Iterator[Moves]:
    """Bounds on how far the wanted eigenvalues may have risen, for a lower limit of each.

    Each is at its lower limit, seen less reach, and all others are as high as they may be: seen
    plus slack, those of higher numbers at most the limit. The move falls as the limit rises:
    starting from a limit that is too low (Weyl's) and going inwards, it is never understated.

    Parameters
    ----------
    draws : ErrorDraws
    seen : (p,) float64
        Estimated eigenvalues, descending.
    limits : pair of float
        Of all true eigenvalues.
    slack : float
    level : float
        Probability of a larger move.
    wanted : range
    """
    weyl, few = outer(draws.ends[:, 1], level), fewest(level, len(seen))
    for numbers in _groups(seen, slack, wanted):
        i = numbers[0]

        def worst(reach: float, numbers: range = numbers) -> Floats:
            return _worst(seen, limits, slack, numbers, reach)

        moves = _isolated_rise(draws, worst(weyl), i, level) if len(numbers) == 1 else None
        if moves is not None:
            again = _isolated_rise(draws, worst(outer(moves, level)), i, level)
            moves = moves if again is None else again
        else:
            moves = _rise(draws.first(few // 2), worst(weyl), i)
            reach = outer(moves, level)
            size = _size(moves, reach, level, few, len(draws.errors))
            moves = _rise(draws.first(size), worst(reach), i)
        yield Moves(numbers, moves, outer(moves, level))


def _worst(
    seen: Floats, limits: tuple[float, float], slack: float, numbers: range, reach: float
) -> Floats:
    """(p,) true values: the first of a group at the limit of the last, all others high."""
    first, last = numbers[0], numbers[-1]
    end = float(np.clip(seen[last] - reach, *limits))
    values = np.clip(seen + slack, *limits)
    values[:first] = np.maximum(values[:first], end)
    values[first:] = np.minimum(values[first:], end)
    values[first] = end
    return values


def _size(moves: Floats, reach: float, level: float, least: int, most: int) -> int:
    """An even number of draws with which the error of the reach is a small share of it.

    At the tail of a normal law an order statistic of N draws has an error of about
    2.75 sqrt(0.0225 / level) standard deviations over the root of N.
    """
    wanted = 2.75 * math.sqrt(0.0225 / level) * float(moves.std())
    enough = math.sqrt(most) * _DRAWN * reach
    if wanted >= enough:
        return most
    return int(np.clip(2 * math.ceil((wanted / (_DRAWN * reach)) ** 2 / 2), least, most))


def _groups(seen: Floats, slack: float, wanted: range) -> Iterator[range]:
    first = wanted.start
    while first < wanted.stop:
        close = int(np.sum(seen[first:] >= seen[first] - slack))
        last = min(first + close // _GROUP, wanted.stop - 1)
        while seen[first] - seen[last] > _SPAN * slack:
            last -= 1
        yield range(first, last + 1)
        first = last + 1


def _rise(draws: ErrorDraws, values: Floats, i: int) -> Floats:
    """(size,) moves of eigenvalue i by decomposition."""
    return np.asarray(np.linalg.eigvalsh(np.diag(values) + draws.errors)[:, -1 - i] - values[i])


def _isolated_rise(draws: ErrorDraws, values: Floats, i: int, level: float) -> Floats | None:
    """(size,) upper bounds on the moves of eigenvalue i; None where they are not close."""
    found = isolated(draws, values, i)
    if found is None:
        return None
    high, low = found.moves + found.errors, found.moves - found.errors
    close = outer(high, level) - outer(low, level) <= _ACCURACY * float(found.moves.std())
    return high if close else None


@dataclass(frozen=True)
class Isolated:
    """One eigenvalue to third order and its eigenvector to second, with bounds on the rest.

    Attributes
    ----------
    moves, errors : (size,) float64
        The eigenvalue is values[i] + move, within the error.
    draws, weights, turned, gaps : arrays
        For the eigenvector: the draws, 1 / (x - D) and A w, (size, p) each, and g, (size,).
    number : int
    shifts : (size,) float64
        Bounds on the distance of x from the eigenvalue, which is between x and G(x).
    """

    moves: Floats
    errors: Floats
    draws: ErrorDraws
    weights: Floats
    turned: Floats
    gaps: Floats
    number: int
    shifts: Floats

    def vectors(self) -> tuple[Floats, Floats]:
        """Unit eigenvectors (size, p), entry i positive, and bounds (size,) on their errors.

        The other entries are R a over entry i; w + W A w leaves R A W A w, and R at another x
        changes R a by at most |a| / g^2 times the difference. Entry i is the largest: scaling to
        length one makes errors no larger.
        """
        row = self.draws.errors[:, self.number] * (self.weights != 0)
        second = self.weights * self.turned
        rest = np.linalg.norm(_products(self.draws.errors, second, self.number), axis=1)
        size = np.linalg.norm(row, axis=1)
        vectors = self.weights * row + second
        vectors[:, self.number] = 1
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        return vectors, rest / self.gaps + self.shifts * size / self.gaps**2


def isolated(draws: ErrorDraws, values: Floats, i: int) -> Isolated | None:
    """Eigenvalue i of diag(values) + A, values descending; None if another value is too close."""
    others = np.delete(values, i)
    nearest = float(np.abs(others - values[i]).min(initial=np.inf))
    if not nearest > _ISOLATED * outer(draws.norms, 0.01):
        return None
    own = draws.errors[:, i, i]
    row = draws.errors[:, i].copy()
    row[:, i] = 0
    start = values[i] + own
    x = start + np.sum(row**2 * _weights(start, values, i)[0], axis=1)
    weights, gaps = _weights(x, values, i)
    w = row * weights
    turned = _products(draws.errors, w, i)
    third = own + np.sum(row * w, axis=1) + np.sum(w * turned, axis=1)
    shifts = np.abs(values[i] + third - x)
    gaps = gaps - draws.norms - shifts
    if not np.all(gaps > 0):
        return None
    rest = np.sum(turned**2, axis=1) / gaps
    shifts, gaps = shifts + rest, gaps - rest
    if not np.all(gaps > 0):
        return None
    errors = rest + np.sum(row**2, axis=1) / gaps**2 * shifts
    return Isolated(third, errors, draws, weights, turned, gaps, i, shifts)


def _weights(x: Floats, values: Floats, i: int) -> tuple[Floats, Floats]:
    """1 / (x - values) with a zero at i, (size, p), and the distance from the nearest, (size,).

    Negative where a value is on the other side of x.
    """
    side = np.where(np.arange(len(values)) < i, -1.0, 1.0)
    distances = side * (x[:, np.newaxis] - values)
    distances[:, i] = np.inf
    with np.errstate(divide="ignore"):
        return side / distances, distances.min(axis=1)


def _products(errors: Floats, vectors: Floats, i: int) -> Floats:
    """(size, p) products of A and vectors, entry i left out."""
    found = (errors @ vectors[:, :, np.newaxis])[:, :, 0]
    found[:, i] = 0
    return np.asarray(found)
