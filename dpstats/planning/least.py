"""The least value of a positive number at which a target is reached, from few evaluations."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

CLOSE = 1.02  # a value that reaches the target is at most this times one that does not
_FIRST = 8.0  # factor where the shortfall is unknown
_MOST = 50.0  # of one step


@dataclass(frozen=True)
class Search:
    """The least value in a range from low to high at which a shortfall is at most zero.

    The shortfall should fall as the value grows. Whether it does or not, the value found was
    evaluated and reaches the target, and the one below was evaluated and does not; their ratio is
    at most `close`. The shortfall is on a scale like a logarithm, and infinite where nothing is
    known of it but that it is positive. Values of the `grid` are tried, which rounds.

    If `power` is positive, the shortfall is the logarithm of a width w, and w^2 is about
    a + b / v^power at a value v: the variances of sampling and of the noise. Else it is about
    linear in log v. Where one value is known it is taken to fall with log v as `slope` says: widths
    fall with about this power of the budget or of n, between 1/2 and 1.
    """

    shortfall: Callable[[float], float]
    low: float
    high: float
    grid: Callable[[float], float]
    power: float = 0.0
    slope: float = 0.7
    close: float = CLOSE
    seen: dict[float, float] = field(default_factory=dict)

    def least(self, start: float) -> tuple[float | None, float | None]:
        """The value that reaches the target, and one that does not close below, or next to it.

        The first is None if not even `high` reaches it, the second if `low` does.
        """
        miss: float | None = None
        hit: float | None = None
        value, sides = self.grid(min(max(start, self.low), self.high)), 0
        while True:
            if self._at(value) > 0:
                miss, sides = value, min(sides, 0) - 1
            else:
                hit, sides = value, max(sides, 0) + 1
            if hit is None:
                if value >= self.high:
                    return None, miss
                value = self._outwards(value, +1)
            elif miss is None:
                if value <= self.low:
                    return hit, None
                value = self._outwards(value, -1)
            else:
                if hit <= miss * self.close:
                    return hit, miss
                value = self._between(miss, hit, sides)
                if value in (miss, hit):
                    return hit, miss

    def beside(self, miss: float, hit: float, shortfall: float) -> float:
        """A value from miss to hit where a line through both has about this shortfall."""
        gaps = self.seen[miss], self.seen[hit]
        share = (gaps[0] - shortfall) / (gaps[0] - gaps[1]) if math.isfinite(gaps[0]) else 0.5
        return float(miss * (hit / miss) ** min(max(share, 0.0), 1.0))

    def _at(self, value: float) -> float:
        if value not in self.seen:
            self.seen[value] = self.shortfall(value)
        return self.seen[value]

    def _outwards(self, value: float, sign: int) -> float:
        """The next value up (+1) or down (-1), a little beyond where the target should be."""
        here, step = self.seen[value], math.log(_FIRST)
        if math.isfinite(here):
            step = abs(here) / self.slope
            others = [v for v in self.seen if v != value and math.isfinite(self.seen[v])]
            if others:
                near = min(others, key=lambda other: abs(math.log(other / value)))
                root = self._root(value, near)
                if root == self.high:  # it seems out of reach: look there
                    return self.high
                step = step if root is None else sign * math.log(root / value)
        least = math.log(1.03) * 2 ** len(self.seen)  # never creep
        step = sign * min(max(1.1 * step, least), math.log(_MOST))
        return self.grid(min(max(value * math.exp(step), self.low), self.high))

    def _between(self, miss: float, hit: float, sides: int) -> float:
        """A value between the two, beside where a line through both crosses zero.

        It is the middle where a line says nothing, and after three values on one side.
        """
        middle = math.sqrt(miss * hit)
        root = self._root(miss, hit) if abs(sides) < 3 else None
        if root is None:
            return self.grid(middle)
        # Next to the root, on the side of the end that is still far from it.
        beside = self.close**0.4
        tried = root * beside if root < middle else root / beside
        tried = self.grid(min(max(tried, miss * beside**0.25), hit / beside**0.25))
        return self.grid(middle) if tried in (miss, hit) else tried

    def _root(self, one: float, other: float) -> float | None:
        """Where the line through two points crosses zero; None if it does not say."""
        gaps = self.seen[one], self.seen[other]
        if not all(map(math.isfinite, gaps)) or max(gaps) > 100:
            return None
        q = self.power
        if not q:
            (x, y), (a, b) = (math.log(one), math.log(other)), gaps
        else:
            (x, y), (a, b) = (one**-q, other**-q), map(math.expm1, (2 * gap for gap in gaps))
        if a == b:
            return None
        root = x - a * (y - x) / (b - a)
        if not q:
            return math.exp(root) if abs(root) < 100 else None
        return float(root ** (-1 / q)) if root > 0 else self.high
