"""The least budget, or the least number of rows, for a wanted width, accuracy or power.

From public numbers alone, by previews of one analysis within the whole plan: it keeps the share of
the budget that the plan gives it, and no other analysis is computed. Simulated rows and noise have
fixed seeds (common random numbers), so what is searched is one curve, the same in every run.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Generic, Literal, TypeVar

from dpstats.checks import Progress, check_alpha, check_finite, short
from dpstats.display import wrapped
from dpstats.errors import BudgetError, RequestError
from dpstats.measured.strategy import Strategy
from dpstats.planning import measures
from dpstats.planning.measures import Measure, Power
from dpstats.planning.previews.pretended import seen_by_analyses
from dpstats.privacy.budget import ZCDP, Budget
from dpstats.privacy.rationals import decimal_text
from dpstats.results.rendering import significant
from dpstats.rows.base import Reference

CLOSE = 1.02  # a value that reaches the target is at most this times one that does not
_FIRST = 8.0  # factor where the shortfall is unknown
_MOST = 50.0  # of one step
BUDGETS: Mapping[str, tuple[float, float]] = {"epsilon": (1e-4, 1e4), "rho": (1e-8, 1e4)}
ROWS = (10.0, 1e9)
USUAL_ROWS = 10_000
MOST_POWER = 0.99  # four of 400 simulated releases keep the hypothesis
Quantity = Literal["width", "delta", "power"]
P = TypeVar("P")  # the plan, which this module makes from a strategy and does not look into


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
        """Value that reaches the target, and one close below that does not, or None."""
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
        """Value between the two, beside where a line through both crosses zero, or their middle."""
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


@dataclass(frozen=True, repr=False)
class Solution(Generic[P]):
    """The least budget or number of rows at which a plan reaches a target.

    Attributes
    ----------
    plan : Plan
        With that budget, or for that number of rows: release with it at once.
    of : str
        The analysis.
    n : int
        Number of rows, given or found.
    budget : PureDP, ZCDP or ApproxDP
        The budget of the whole plan, found or given.
    found : {"budget", "n"}
        What was solved for.
    quantity : {"width", "delta", "power"}
    target, reached : float
        What was asked for, and what the preview shows at the solution.
    below : pair of a Budget or int and a float, or None
        The largest smaller value that was tried, at most 2% below, and what the preview shows
        there; None if the least value of the range suffices.
    details, note : str
        What the quantity is; and warnings, one a line, or "".

    Examples
    --------
    >>> import dpstats as dps
    >>> schema = dps.Schema([dps.Boolean("smoker")])
    >>> plan = dps.plan(schema, {"smoking": dps.Proportion("smoker")}, budget=dps.PureDP(1))
    >>> solution = plan.solve(width=0.05, of="smoking", n=2_000)
    >>> solution.found, 0.049 < solution.reached <= 0.05 < solution.below[1]
    ('budget', True)
    >>> solution.plan.budget == solution.budget
    True
    """

    plan: P
    of: str
    n: int
    budget: Budget
    found: Literal["budget", "n"]
    quantity: Quantity
    target: float
    reached: float
    below: tuple[Budget | int, float] | None
    details: str
    note: str = ""

    def __str__(self) -> str:
        bound = "at least" if self.quantity == "power" else "at most"
        asked = f"{self.of}: {self.quantity} of {bound} {self.target:g} ({self.details})"
        rows, budget = f"n = {self.n}", text_of(self.budget)
        least = f"{budget} at {rows}" if self.found == "budget" else f"{rows} at {budget}"
        beside = "the least value that is tried suffices"
        if self.below is not None:
            beside = f"at {text_of(self.below[0])} it is {significant(self.below[1])}"
        reached = f"least {least}: {self.quantity} {significant(self.reached)}; {beside}"
        lines = [asked, reached, *self.note.splitlines()]
        return "\n".join(part for line in lines for part in wrapped(line))

    __repr__ = __str__


def text_of(value: Budget | int) -> str:
    """A number of rows, or a budget in short; rho with its epsilon."""
    if isinstance(value, int):
        return f"n = {value}"
    text = f"{value.parameter} = {decimal_text(value.total)}"
    if isinstance(value, ZCDP):
        text += f" (epsilon = {value.epsilon_at():.3g} at delta = {float(value.delta):.3g})"
    return text


def target_of(given: Mapping[Quantity, Any], alpha: float) -> tuple[Quantity, float]:
    """The one quantity that is given, and its value."""
    check_alpha(alpha)
    wanted = [(name, value) for name, value in given.items() if value is not None]
    if len(wanted) != 1:
        raise RequestError(
            "give exactly one of width=, delta= and power=; got "
            + (", ".join(f"{name}=" for name, _ in wanted) or "none")
        )
    name, value = wanted[0]
    array = check_finite(name, value)
    if array.ndim or not array > 0:
        raise RequestError(f"{name} must be a positive number, got {short(value)}")
    if name == "power" and not alpha < array <= MOST_POWER:
        raise RequestError(
            f"power={float(array):g} is out of range: more than alpha={alpha:g}, which a test "
            f"reaches without any effect, and at most {MOST_POWER:g}, as it is the share of "
            f"{measures.RELEASES} simulated releases"
        )
    return name, float(array)


@dataclass(frozen=True)
class _Unknown:
    """The number that is searched for: of the plan's budget, or of rows."""

    found: Literal["budget", "n"]
    budget: Budget
    n: int
    range: tuple[float, float]

    @property
    def start(self) -> float:
        return float(self.budget.total if self.found == "budget" else self.n)

    def grid(self, value: float) -> float:
        """The value to three digits: at most half a per cent away."""
        rounded = float(f"{value:.3g}")
        return rounded if self.found == "budget" else float(int(rounded))

    def as_given(self, value: float) -> Budget | int:
        return int(value) if self.found == "n" else self.budget.of_total(value)

    def text(self, value: float) -> str:
        return text_of(self.as_given(value))

    @property
    def power(self) -> float:
        """The variance of the noise falls as epsilon^2, or as rho; see `Search`."""
        return 0.0 if self.found == "n" else 2.0 if self.budget.noise == "laplace" else 1.0


@dataclass(frozen=True)
class Problem(Generic[P]):
    """A target for one analysis of a plan, which `plan_of` makes from a strategy."""

    strategy: Strategy
    reference: Reference
    plan_of: Callable[[Strategy], P]
    of: str
    quantity: Quantity
    target: float
    measure: Measure
    progress: Progress | None

    def least_budget(self, n: int) -> Solution[P]:
        """The least budget for n rows; RequestError if none reaches the target."""
        own = self.strategy.budget
        unknown = _Unknown("budget", own, n, BUDGETS[own.parameter])
        hit, miss, seen = self._search(unknown)
        if hit is not None:
            return self._solution(unknown, hit, miss, seen)
        here = seen.get(float(own.total), math.nan) / self.target
        near = n * here**1.5 if self.quantity == "width" and 1 < here < 1e3 else n
        rows, _, _ = self._search(replace(self._rows(own), n=int(min(near, ROWS[1]))))
        if rows is None:
            cure = f"; no number of rows would do with the plan's own budget; {self.measure.advice}"
        else:
            alone = "" if self.quantity == "delta" else ", from sampling alone"
            own_budget = f"with the plan's own budget, {text_of(own)}"
            cure = f"{alone}; {own_budget}, n = {int(rows)} rows would do"
        raise self._out_of_reach(unknown, seen, f"n = {n}", cure)

    def least_rows(self, budget: Budget) -> Solution[P]:
        """The least number of rows for a budget; RequestError if none reaches the target."""
        unknown = self._rows(budget)
        hit, miss, seen = self._search(unknown)
        if hit is not None:
            return self._solution(unknown, hit, miss, seen)
        raise self._out_of_reach(unknown, seen, text_of(budget), f"; {self.measure.advice}")

    def _rows(self, budget: Budget) -> _Unknown:
        return _Unknown("n", budget, self.strategy.n or USUAL_ROWS, ROWS)

    def _out_of_reach(
        self, unknown: _Unknown, seen: Mapping[float, float], at: str, cure: str
    ) -> RequestError:
        high = unknown.range[1]
        strategy, n, _ = self._at(unknown, high)
        check_reference(strategy, self.reference, n)  # perhaps it is the reason
        chosen = self.measure.chosen and f"; {self.measure.chosen}"
        return RequestError(
            f"not even {unknown.text(high)} gives {self.of!r} a {self.quantity} of "
            f"{self.target:g} at {at}: it gives {_shown(seen[high])}{cure}{chosen}"
        )

    def _at(self, unknown: _Unknown, value: float) -> tuple[Strategy, int, int]:
        """The strategy there, the number of rows, and that of the draw to move to it."""
        if unknown.found == "budget":
            budget, n = unknown.budget.of_total(value), unknown.n
            return with_budget(self.strategy, self.reference, budget), n, n
        n = int(value)
        moved = with_budget(self.strategy, self.reference, unknown.budget, n)
        return moved, n, 2 ** (n.bit_length() - 1)

    def _search(self, unknown: _Unknown) -> tuple[float | None, float | None, dict[float, float]]:
        """The least value and one that misses the target, and what was measured at all."""
        measure, measured = self.measure, dict[float, float]()

        def shortfall(value: float, sure: bool = False) -> float:
            if self.progress is not None:
                where = f"previewing {self.of!r} at {unknown.text(value)}"
                self.progress(where, len(measured), None)
            strategy, n, base = self._at(unknown, value)
            of = measure.sure if sure and isinstance(measure, Power) else measure
            measured[value] = math.nan
            if self._possible(strategy, n):
                measured[value] = of(seen_by_analyses(strategy, n), n, base)
            gap = measure.shortfall(measured[value], self.target)
            return math.inf if math.isnan(gap) else gap

        low, high = unknown.range
        if not isinstance(measure, Power):
            search = Search(shortfall, low, high, unknown.grid, unknown.power)
            hit, miss = search.least(unknown.start)
            if hit is not None and max(measured) < 1.5 * hit <= high / 2:
                shortfall(unknown.grid(2 * hit))  # whether more does not hurt
            return hit, miss, measured
        measure.forget()
        rough = Search(shortfall, low, high, unknown.grid, slope=measure.slope, close=measure.rough)
        near, under = rough.least(unknown.start)
        start = high if near is None else near
        if near is not None and under is not None:
            start = rough.beside(under, near, measure.below)
        measure.size = measures.RELEASES
        measured.clear()  # shares of few releases
        search = Search(shortfall, low, high, unknown.grid, slope=measure.slope)
        hit, miss = search.least(start)
        while hit is not None and shortfall(hit, sure=True) > 0:
            reached = False  # further on, by what is known for sure now
            while hit is not None and not reached:
                miss, further = hit, unknown.grid(hit * CLOSE)
                hit = further if miss < further <= high else None
                reached = hit is not None and shortfall(hit) <= 0
        return hit, miss, measured

    def _possible(self, strategy: Strategy, n: int) -> bool:
        try:
            check_reference(strategy, self.reference, n)
            _ = strategy.block_scales
        except (BudgetError, RequestError):
            return False
        return True

    def _solution(
        self, unknown: _Unknown, hit: float, miss: float | None, seen: Mapping[float, float]
    ) -> Solution[P]:
        strategy, n, _ = self._at(unknown, hit)
        missed = {v: self.measure.shortfall(m, self.target) > 0 for v, m in seen.items()}
        notes = [self.measure.chosen] if self.measure.chosen else []
        odd = [v for v in seen if v != hit and missed[v] == (v > hit)]
        notes += [
            f"more is not always better here: at {unknown.text(value)} the {self.quantity} is "
            f"{_shown(seen[value])}"
            for value in odd[:1]
        ]
        return Solution(
            plan=self.plan_of(strategy),
            of=self.of,
            n=n,
            budget=strategy.budget,
            found=unknown.found,
            quantity=self.quantity,
            target=self.target,
            reached=seen[hit],
            below=None if miss is None else (unknown.as_given(miss), seen[miss]),
            details=self.measure.details,
            note="\n".join(f"Note: {note}" for note in notes),
        )


def _shown(measured: float) -> str:
    return significant(measured) if math.isfinite(measured) else "nothing finite"


def check_reference(strategy: Strategy, reference: Reference, n: int) -> None:
    """Refuse a reference whose own measurement would be mostly noise at n rows."""
    own = strategy.own_block("reference")
    if own is not None:
        law = strategy.budget.law(strategy.budget.natural_scale(own.multiplier))
        reference.check(own.block, n, law)


def with_budget(
    old: Strategy, reference: Reference, budget: Budget, n: int | None = None
) -> Strategy:
    """Strategy at another budget of its kind, every noise in proportion, and for n rows."""
    scale = old.budget.total / budget.total
    planned = [replace(p, multiplier=p.multiplier * scale) for p in old.blocks]
    rows = old.n if n is None or old.n is None else n
    own = old.own_block("reference")
    if own is not None and rows != old.n:  # its bins may depend on n
        block = reference.block(old.columns, rows)
        assert block is not None
        multiplier = block.multiplier(budget, old.neighbours, budget.total * reference.share)
        planned[old.blocks.index(own)] = replace(own, block=block, multiplier=multiplier)
    return replace(old, blocks=tuple(planned), budget=budget, n=rows)
