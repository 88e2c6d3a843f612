"""How much a vector of integers changes when one row replaces another, over all states of a row."""

from __future__ import annotations

import bisect
import math
from collections.abc import Callable, Iterable, Iterator

import numpy as np

from dpstats.arrays import Codes

_KEPT = 10**6  # entries of the vectors that are compared in pairs
_WORK = 10**8  # entries that are subtracted in these comparisons

Vectors = Callable[[], Iterable[Codes]]


def largest_norms(vectors: Vectors) -> tuple[int, int]:
    """Largest L1 and squared L2 norm of any vector; `vectors` gives pieces (m, d) int64."""
    norms = [(np.abs(v).sum(axis=1).max(), (v * v).sum(axis=1).max()) for v in vectors()]
    l1, l2_squared = zip(*norms, strict=True)
    return int(max(l1)), int(max(l2_squared))


def largest_changes(vectors: Vectors, some: Codes) -> tuple[int, int]:
    """Bounds on the L1 and the squared L2 distance of any two vectors; exact in most cases.

    Let a + b be twice a centre. Two vectors u, v have 2 |u - v| <= |2u - a - b| + |2v - a - b|. In
    decreasing order of the norms on the right, pairs are compared until their bound is no larger
    than the largest distance found: then that is exact. Where it takes too long, the bound of the
    next pair is returned.

    Parameters
    ----------
    vectors : callable
        Gives all of them in pieces (m, d) int64.
    some : (c, d) int64
        A few, of which the farthest two make the centre.
    """
    farthest = [_Farthest(some, power) for power in (1, 2)]
    for piece in vectors():
        for one in farthest:
            one.add(piece)
    return farthest[0].distance(), farthest[1].distance()


class _Farthest:
    """Vectors far from a centre, in decreasing order of their doubled distances from it.

    Parameters
    ----------
    some : (c, d) int64
        The farthest two make the centre.
    power : {1, 2}
        Absolute or squared distances.
    """

    def __init__(self, some: Codes, power: int) -> None:
        found = [_norms(some[i:] - some[i], power) for i in range(len(some))]
        i = int(np.argmax([own.max() for own in found]))
        self._power, self._known = power, int(found[i].max())
        self._twice = some[i] + some[i + int(found[i].argmax())]
        self._keep = max(2, _KEPT // some.shape[1])
        self._vectors, self._norms, self._left_out = some[:0], np.empty(0, np.int64), -1

    def add(self, vectors: Codes) -> None:
        """Keep those that are farther than others."""
        norms = _norms(2 * vectors - self._twice, self._power)
        far = norms > self._left_out
        vectors = np.concatenate([self._vectors, vectors[far]])
        norms = np.concatenate([self._norms, norms[far]])
        order = np.argsort(-norms, kind="stable")
        if len(order) > self._keep:
            self._left_out = int(norms[order[self._keep]])
        kept = order[: self._keep]
        self._vectors, self._norms = vectors[kept], norms[kept]

    def distance(self) -> int:
        """Largest distance of any two vectors, or a bound on it."""
        if not len(self._norms):
            return self._known
        inside, norms = self._of_kept(), self._norms
        return (
            max(inside, self._bound(int(norms[0]), self._left_out))
            if self._left_out >= 0
            else inside
        )

    def _of_kept(self) -> int:
        best, work, norms = self._known, 0, self._norms.tolist()
        for i in range(len(norms) - 1):
            # Bounds decrease: compare only the vectors whose bound is above the best so far.
            last = bisect.bisect_left(
                norms,
                True,
                lo=i + 1,
                key=lambda norm: self._bound(norms[i], norm) <= best,
            )
            if last == i + 1:
                return best
            if work > _WORK:
                return self._bound(norms[i], norms[i + 1])
            others = self._vectors[i + 1 : last]
            best = max(best, int(_norms(others - self._vectors[i], self._power).max()))
            work += others.size
        return best

    def _bound(self, one: int, other: int) -> int:
        """Largest distance of two vectors with these doubled distances from the centre."""
        if self._power == 1:
            return (one + other) // 2
        return (one + other + 2 * (math.isqrt(one * other) + 1)) // 4


def _norms(vectors: Codes, power: int) -> Codes:
    return np.asarray((np.abs(vectors) if power == 1 else vectors * vectors).sum(axis=1))


def in_pieces(total: int, size: int) -> Iterator[slice]:
    """Slices of at most `size` that cover `total`."""
    return (slice(first, min(first + size, total)) for first in range(0, total, size))


def rounded_root(square: int) -> int:
    """Square root, rounded up."""
    return math.isqrt(square - 1) + 1 if square else 0
