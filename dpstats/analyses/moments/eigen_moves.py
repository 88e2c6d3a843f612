"""How far eigenvalues and eigenvectors of diag(values) + A are from values and axes, A a draw.

`rises` bounds the largest moves of eigenvalues from above, and the mirrored problem (`mirrored`)
gives the smallest ones.

Level. Let N draws be given, N fixed by the estimates, the level and the largest norm alone, and let
m(A, d) be the move if the eigenvalue is at d and all others are as high as they may be. The test of
d that rejects if seen - d exceeds q(d), the `outer` quantile of the N moves, has its level over all
draws, since the true error is exchangeable with them. A larger q is valid too: that of a `Tail`
does not fall with the level. All d below the limit must be rejected. Raising d raises other values
by no more: m falls with d, and so does q. If all d below e are rejected, so are those from e to
seen - q(e), where q(d) <= q(e) < seen - d. A step from e to seen - q(e) therefore errs outwards
only, wherever one stops, but for one condition: q is the quantile of the same N draws in all steps.
Any upper bound may replace the move of a draw, and the draws may decide which: q is then too large,
if anything. The first e is seen less the quantile of the largest eigenvalues of A. The slack is a
quantile of the draws' norms, which the norm of the true error exceeds at a share of alpha. Where it
does not, the slack and the largest norm are order statistics of draws and error together: given
them, they are exchangeable. Two things are approximate: the law of A is estimated, and bounds on
the other eigenvalues, which are taken as given, depend on the error.

Nested intervals. As alpha falls, the slack and every move grow, N does not fall and the first draws
are the same ones: a limit moves outwards, but for the accuracy of the bounds on moves, some tenths
of a per cent of the width. Sizes and groups are chosen at no level for that reason. A share of the
sum has a quantile of its own, of other draws, which are decomposed too.

Four kinds of bounds replace most decompositions; draws near the quantile are decomposed until it is
known.

Other moves: of an earlier step, since m falls with d; of the last group, if e is not below its e.
Without rows i, .., j - 1, the problems of numbers i and j at one d are the same, and removing them
makes eigenvalue j of the second at most number i of the first (Cauchy's interlacing). If e + q(e)
of the first is at most the estimate of number j, all up to e is rejected for j too.

Larger values: by elimination. With F the rows of larger numbers, B the others and C between them,
all entries less d, no eigenvalue but those of larger numbers exceeds t >= 0 if F > t and
B - C F^-1 C' <= t: the inertia of a matrix is that of F - t and of its Schur complement. Here
F <= D_F + |A|.

Isolated eigenvalues: perturbation theory with a bound on the rest. With a the row of A beside
entry i, F the other indices and R(x) = (x - D_F - A_FF)^-1, eigenvalue number i is the solution of
x = G(x) = d_i + A_ii + a' R(x) a between those eigenvalues of D_F + A_FF that belong to smaller and
to larger numbers. With W = (x - D_F)^-1 and w = W a, R = W + W A W + W A R A W. The distance of x
from the eigenvalues of D_F + A_FF is at least g, that from D_F less |A| (Weyl), so |R| <= 1 / g and
a'w + w'Aw, the third order, is within |Aw|^2 / g of a' R a. G decreases, with a slope of at most
|a|^2 / g^2: its value at any x is within that slope times |x - G(x)| of the solution. Where another
value is within a few |A|, g is negative or the two errors are not small beside the moves.

Close eigenvalues: in groups. If the estimates of numbers i, .., l are close, the move of each is at
most that of number i with the limit of number l. For number j, subtract its limit e_j: entries
before j are others + slack - e_j, those from j on min(others + slack - e_j, 0). Remove the rows i,
.., j - 1: eigenvalue j is at most number i of the rest (Cauchy). All entries of that increase as
e_j falls to e_l, and adding the rows again raises number i (Cauchy).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from dpstats.analyses.moments.noisy_covariance import PART
from dpstats.arrays import Floats
from dpstats.caching import Cached
from dpstats.inference.intervals import FEWEST


def outer(draws: Floats, level: float) -> float:
    """Value that one more draw exceeds with probability `level` at most, or the largest draw.

    Over all draws, which are of exchangeable pairs (or independent). Add the pair of the new draw.
    The new one is as likely any of all size + 2. It exceeds the number with size - rank of the
    given draws above only if it is among the size - rank + 1 largest of all, or the next with its
    partner among these.
    """
    rank = min(math.ceil((len(draws) + 2) * (1 - level)), len(draws))
    return float(np.partition(draws, rank - 1)[rank - 1])


@dataclass(frozen=True)
class Tail:
    """How many of the first draws have a level, and the larger levels that fewer of them have.

    The number doubles where a level leaves fewer than `FEWEST` draws beyond it. A quantile of twice
    as many draws may be smaller, also at a lower level. The quantile here is therefore the largest
    of that of all these draws at the level, and those of every smaller number at the least level
    that it has: it does not decrease as the level falls, and so intervals are nested. It remains
    valid, since it is never less than `outer` of a number of draws that was fixed before.
    """

    # numbers of draws, increasing and even, and their levels, decreasing
    parts: tuple[tuple[int, float], ...]

    @classmethod
    def of(cls, level: float, least: int, most: int) -> Tail:
        """From an even number of draws, `least`, doubled as far as the level needs, to `most`.

        Examples
        --------
        >>> [size for size, level in Tail.of(0.005, 500, 4_000).parts]
        [500, 1000, 2000]
        >>> Tail.of(0.05, 500, 4_000).parts
        ((500, 0.05),)
        """
        size, parts = min(least, most), []
        while size < most and (lowest := (FEWEST + 2) / (size + 2)) > level:
            parts.append((size, lowest))
            size = min(2 * size, most)
        return cls((*parts, (size, level)))

    @property
    def size(self) -> int:
        """Number of draws in all."""
        return self.parts[-1][0]

    def quantile(self, draws: Floats) -> float:
        """The quantile of draws (size,)."""
        return max(outer(draws[:size], level) for size, level in self.parts)

    def beyond(self, draws: Floats, factor: float) -> NDArray[np.bool_]:
        """(size,) which draws are beyond a quantile at so many times its level."""
        found = np.zeros(len(draws), dtype=bool)
        for size, level in self.parts:
            found[:size] |= draws[:size] >= outer(draws[:size], factor * level)
        return found


_ACCURACY = 0.04  # of a bound by perturbation, in standard deviations of the move
_ISOLATED = 2.0  # distance from all other values, in norms of A, below which it is not tried
_GROUP = 12  # a group has about one in so many of the eigenvalues within the slack below it
_SPAN = 0.15  # and spans at most this share of the slack
_ENTRIES = 5_000  # rows of matrices that are decomposed at least, for one eigenvalue
_DRAWS = 310  # at least
_ALONE = 1_200  # draws for an eigenvalue that is close to none below it
_USUAL = 0.8  # slack at usual levels, in norms of the largest draw
_BLOCKS = 8  # trailing blocks whose largest eigenvalues are computed, at most
_STEPS = 3  # towards a limit, at most
_SLOW = 0.97  # no further step after one that leaves more of the reach
_MARGIN = 1.5  # draws are decomposed out to so many times the level
_REST = 0.01  # and no more of them for less than this share of the reach


@dataclass(frozen=True)
class ErrorDraws(Cached):
    """Draws of a symmetric error A."""

    # (size, p, p) pairs of neighbours have opposite noise: the first few are balanced too
    errors: Floats
    known_ends: Floats | None = None  # (size, 2) least and largest eigenvalues, if they are known

    @cached_property
    def ends(self) -> Floats:
        """(size, 2) least and largest eigenvalues."""
        return self.find_ends() if self.known_ends is None else self.known_ends

    def find_ends(self) -> Floats:
        """Least and largest eigenvalues by decomposition."""
        return np.asarray(np.linalg.eigvalsh(self.errors)[:, [0, -1]])

    @cached_property
    def norms(self) -> Floats:
        """(size,) spectral norms."""
        return np.asarray(np.abs(self.ends).max(axis=1))

    @property
    def usual_slack(self) -> float:
        """About the slack at usual levels, by the draws that all levels share; the same at all."""
        return _USUAL * float(self.norms[:PART].max())

    @cached_property
    def traces(self) -> Floats:
        """(size,)."""
        return np.asarray(np.trace(self.errors, axis1=1, axis2=2))

    def largest(self, i: int) -> Floats:
        """(size,) at least the largest eigenvalues without the first i rows and columns."""
        i -= i % math.ceil(self.errors.shape[1] / _BLOCKS)  # without fewer they are no less
        if i == 0:
            return self.ends[:, 1]

        def largest() -> Floats:
            return np.asarray(np.linalg.eigvalsh(self.errors[:, i:, i:])[:, -1])

        return self._once(i, largest)

    def mirrored(self) -> ErrorDraws:
        """Draws of -A, rows and columns in reverse."""
        return ErrorDraws(-self.errors[:, ::-1, ::-1], -self.ends[:, ::-1])

    def first(self, size: int) -> ErrorDraws:
        """The first few."""
        return self.some(slice(size))

    def some(self, which: slice | NDArray[np.bool_]) -> ErrorDraws:
        """Draws of a slice or mask."""
        return ErrorDraws(self.errors[which], self.ends[which])


@dataclass(frozen=True)
class Moves:
    """Bounds on the moves of neighbouring eigenvalues, one per draw."""

    numbers: range  # which eigenvalues
    # (used,) for the first few draws, or all; close where they are near their quantile
    moves: Floats
    tail: Tail  # of the draws

    @property
    def reach(self) -> float:
        """Quantile of the moves."""
        return self.tail.quantile(self.moves)


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
    plus slack, those of higher numbers at most the limit. A reach that takes all of a group below
    the limits is no closer than that, and a step that would reject all possible values is not made.
    """
    sized: dict[int, ErrorDraws] = {}
    last: dict[Tail, list[tuple[float, Floats]]] = {}  # limits and moves
    for numbers in _groups(seen, draws.usual_slack, wanted):
        i = numbers[0]
        tail = Tail.of(level, _least(draws, seen, i), len(draws.errors))
        used = sized.setdefault(tail.size, draws.first(tail.size))
        least, most = (float(seen[i] - limit) for limit in limits[::-1])
        given: Floats | None = None
        for end, found in last.get(tail, []):
            reach = tail.quantile(found)
            if (end <= limits[0] or end + reach <= seen[numbers[-1]]) and reach >= least:
                given = found
        moves, last[tail] = used.largest(i) if given is None else given, []
        of_share = _of_share(seen, i, used.traces, tail, limits)
        for _ in range(_STEPS if most > 0 else 0):
            before = tail.quantile(moves)
            values = _worst(seen, limits, slack, numbers, before)
            given = _moves(used, values, i, tail, given, of_share, most)
            reach = tail.quantile(given)
            last[tail].append((float(values[i]), given))
            if reach >= least:
                moves = given
            if not least <= reach < before - (1 - _SLOW) * abs(before):
                break
        yield Moves(numbers, moves, tail)


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


def _itself(moves: Floats) -> Floats:
    return moves


def _of_share(
    seen: Floats, i: int, traces: Floats, tail: Tail, limits: tuple[float, float]
) -> Callable[[Floats], Floats]:
    """Moves of the eigenvalue alone that change its share of the sum as much as moves of both do.

    Their order is that of the shares. Of mirrored values the sum is negative, and so are all.
    """
    total = float(seen.sum())
    sums = total - traces if limits[1] > 0 else traces - total
    unlimited = np.where(sums > 0, -np.inf, np.inf)
    if not total or tail.quantile(unlimited) > 0:
        return _itself  # a share without a limit needs no accuracy
    ratios = abs(total) / np.where(sums > 0, sums, abs(total))

    def of_share(moves: Floats) -> Floats:
        return np.asarray(np.maximum(seen[i] + (moves - seen[i]) * ratios, unlimited))

    return of_share


def few(p: int) -> int:
    """An even number of draws for a quantile of p x p matrices; more of small ones."""
    return 2 * math.ceil(max(_DRAWS, _ENTRIES / p) / 2)


def _least(draws: ErrorDraws, seen: Floats, i: int) -> int:
    """An even number of draws, unless the level needs more: the reach is then within some per cent.

    The more values are close below, the less the move varies. Nothing but the estimates and the
    largest norm may decide, at no level, for the intervals to be valid and nested.
    """
    slack, most = draws.usual_slack, len(draws.errors)
    close = int(np.sum(seen[i:] >= seen[i] - slack))
    others = np.delete(seen, i)
    if close == 1 and np.all(np.abs(others - seen[i]) > (1 + _ISOLATED) * slack):
        return min(PART, most)  # by perturbation
    return min(max(few(len(seen)), 2 * math.ceil(_ALONE / close / 2)), most)


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


def _without_larger(draws: ErrorDraws, values: Floats, i: int) -> Floats:
    """(size,) bounds on the moves of eigenvalue i by elimination; infinite if others are close."""
    gaps, norms = values[:i] - values[i], draws.norms
    others = draws.errors[:, i:, :i]
    block = np.diag(values[i:] - values[i]) + draws.errors[:, i:, i:]
    block -= (others / (gaps + norms[:, np.newaxis])[:, np.newaxis]) @ others.swapaxes(1, 2)
    moves = np.maximum(np.linalg.eigvalsh(block)[:, -1], 0)
    return np.where(gaps.min(initial=np.inf) - norms > moves, moves, np.inf)


def _moves(
    draws: ErrorDraws,
    values: Floats,
    i: int,
    tail: Tail,
    bounds: Floats | None = None,
    of_share: Callable[[Floats], Floats] = _itself,
    most: float = np.inf,
) -> Floats:
    """(size,) upper bounds on the moves of eigenvalue i, close where they are near a quantile.

    That of the moves, and that of `of_share` of them. Not close if the first is above `most`. Other
    bounds may be given.
    """
    both = (_itself, of_share)
    approximation = isolated(draws, values, i)
    if approximation is not None:
        high = approximation.moves + approximation.errors
        bounds = high if bounds is None else np.minimum(bounds, high)
        if all(approximation.accurate(tail, function) for function in both):
            return bounds
    elif bounds is None:
        bounds = _without_larger(draws, values, i)
    bounds, known = bounds.copy(), np.zeros(len(bounds), dtype=bool)
    while True:
        near = np.zeros_like(known)
        for function in both:
            near |= tail.beyond(function(bounds), _MARGIN)
        near &= ~known
        if not near.any():
            return bounds
        bounds[near] = _rise(draws.some(near), values, i)
        known |= near
        sure = np.where(known, bounds, -np.inf)
        lower = [tail.quantile(function(sure)) for function in both]
        pairs = zip(both, lower, strict=True)
        rest = [tail.quantile(function(bounds)) - x for function, x in pairs]
        if lower[0] >= most or np.all(np.array(rest) <= _REST * np.abs(lower)):
            return bounds


@dataclass(frozen=True)
class Isolated:
    """One eigenvalue to third order and its eigenvector to second, with bounds on the rest."""

    # The eigenvalue is values[number] + move, within the error; infinite where no bound is known.
    moves: Floats  # (size,)
    errors: Floats  # (size,)
    draws: ErrorDraws
    weights: Floats  # (size, p) 1 / (x - D)
    turned: Floats  # (size, p) A w
    gaps: Floats  # (size,) g, or 0
    number: int
    shifts: Floats  # (size,) bounds on the distance of x from the eigenvalue

    def accurate(self, tail: Tail, function: Callable[[Floats], Floats]) -> bool:
        """True if the error in a quantile of a function of the moves is small beside its spread."""
        usual = function(self.moves)
        usual = usual[np.isfinite(self.errors) & np.isfinite(usual)]
        spread = float(usual.std()) if len(usual) else 0.0
        high, low = (tail.quantile(function(self.moves + side * self.errors)) for side in (1, -1))
        return high - low <= _ACCURACY * spread

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
        with np.errstate(divide="ignore"):
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
    with np.errstate(divide="ignore", invalid="ignore"):
        rest = np.sum(turned**2, axis=1) / gaps
        close = (gaps > 0) & (gaps > rest)
        shifts, gaps = shifts + rest, gaps - rest
        errors = rest + np.sum(row**2, axis=1) / gaps**2 * shifts
    errors[~close], shifts[~close], gaps[~close] = np.inf, np.inf, 0.0
    third[~close] = 0.0
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
