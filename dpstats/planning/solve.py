"""The least budget, or the least number of rows, for a wanted width, accuracy or power.

From public numbers alone, by previews of one analysis within the whole plan: it keeps the share of
the budget that the plan gives it, and no other analysis is computed. Simulated rows and noise have
fixed seeds (common random numbers), so what is searched is one curve, the same in every run.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Generic, Literal, TypeVar

from dpstats.analyses.base import Analysis
from dpstats.checks import Progress, check_alpha, check_finite, short
from dpstats.display import wrapped
from dpstats.errors import BudgetError, RequestError
from dpstats.measured.strategy import Strategy
from dpstats.planning import measures
from dpstats.planning.measures import Measure, Power
from dpstats.planning.survey import USUAL_ROWS, divide_again
from dpstats.privacy.budget import ZCDP, Budget
from dpstats.privacy.laws import POWERS
from dpstats.privacy.rationals import decimal_text
from dpstats.results.base import Result
from dpstats.results.rendering import significant
from dpstats.rows.base import Reference

_FIRST, _LARGEST, _LEAST = math.log(8), math.log(50), math.log(1.03)  # steps in log v
BUDGETS: Mapping[str, tuple[float, float]] = {"epsilon": (1e-4, 1e4), "rho": (1e-8, 1e4)}
ROWS = (10.0, 1e9)
MOST_POWER = 0.99  # four of 400 simulated releases keep the hypothesis
Quantity = Literal["width", "delta", "power"]
P = TypeVar("P")  # the plan, which this module makes from a strategy and does not look into


def find_least(
    shortfall: Callable[[float], float],
    span: tuple[float, float],
    grid: Callable[[float], float],
    start: float,
    *,
    power: float = 0.0,
    slope: float = Measure.slope,
    close: float = Measure.close,
) -> tuple[float | None, float | None]:
    """Find the least value of a grid at which a falling shortfall is at most zero.

    Returns it with a value below whose shortfall is positive: their ratio is at most `close`, or
    the grid has none between. Both were evaluated, whether the shortfall falls or not. None stands
    for a value outside the span. A shortfall is on a scale like a logarithm, and infinite where
    only its sign is known.

    Steps outwards assume that it falls with log v as `slope` says. If `power` is positive, it is
    the logarithm of a width w, and w^2 is interpolated as a + b / v^power: the variances of
    sampling and of the noise.
    """
    low, high = span
    gaps: dict[float, float] = {}
    miss: float | None = None
    hit: float | None = None
    value, step, same_side, before = grid(min(max(start, low), high)), 0.0, 0, math.inf
    while True:
        if value not in gaps:  # a step can be too short for the grid
            gaps[value] = shortfall(value)
        gap = gaps[value]
        if gap > 0:
            miss, same_side = value, max(same_side, 0) + 1
        else:
            hit, same_side = value, min(same_side, 0) - 1
        if miss is None or hit is None:
            if value == (high if hit is None else low):
                return hit, miss
            if math.isfinite(gap - before) and gap != before:  # how it fell in the last step
                slope = min(max(abs(gap - before) / step, slope / 8), 2 * slope)
            before = gap
            step = max(1.1 * abs(gap) / slope, 2 * step, _LEAST) if math.isfinite(gap) else _FIRST
            step = min(step, _LARGEST)
            value = grid(min(max(value * math.exp(step if gap > 0 else -step), low), high))
            continue
        middle = value = grid(math.sqrt(miss * hit))
        if abs(same_side) < 3 and math.isfinite(gaps[miss] - gaps[hit]):
            # Next to the root, on the side of the end that is still far from it.
            beside, root = close**0.4, _interpolated(miss, hit, gaps, power)
            near = root * beside if root < middle else root / beside
            near = grid(min(max(near, miss * beside**0.25), hit / beside**0.25))
            value = middle if near in (miss, hit) else near
        if hit <= miss * close or value in (miss, hit):
            return hit, miss


def _interpolated(miss: float, hit: float, gaps: Mapping[float, float], power: float) -> float:
    """Value where a line through two shortfalls crosses zero."""
    above, below = gaps[miss], gaps[hit]
    if not power or above > 100:
        return float(miss * (hit / miss) ** (above / (above - below)))
    above, below = math.expm1(2 * above), math.expm1(2 * below)
    share = above / (above - below)
    return float((miss**-power + share * (hit**-power - miss**-power)) ** (-1 / power))


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
        The largest smaller value that was tried, at most 2% below (5% for a power), and what the
        preview shows there; None if the least value of the range suffices.
    details, note : str
        The quantity; and which of several parameters it is of, or "".

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
class Problem(Generic[P]):
    """A target for one analysis of a plan, which `plan_of` makes from a strategy.

    The number of rows is searched for if n is None, else the budget, of the kind of `budget`.
    """

    strategy: Strategy
    reference: Reference
    analyses: Mapping[str, Analysis[Result]]
    plan_of: Callable[[Strategy], P]
    of: str
    quantity: Quantity
    target: float
    measure: Measure
    progress: Progress | None
    budget: Budget
    n: int | None

    def solve(self) -> Solution[P]:
        """The least budget or number of rows; RequestError if none reaches the target."""
        hit, miss, seen = self._search()
        if hit is None:
            raise self._out_of_reach(seen)
        strategy, n = self._at(hit)
        return Solution(
            plan=self.plan_of(strategy), of=self.of, n=n, budget=strategy.budget,
            found="n" if self.n is None else "budget", quantity=self.quantity, target=self.target,
            reached=seen[hit], below=None if miss is None else (self._given(miss), seen[miss]),
            details=self.measure.details,
            note=self.measure.chosen and f"Note: {self.measure.chosen}",
        )  # fmt: skip

    def _out_of_reach(self, seen: Mapping[float, float]) -> RequestError:
        high = max(seen)
        check_reference(self._at(high)[0], self.reference, self._at(high)[1])  # may be the reason
        cure, usual = f"; {self.measure.advice}", self.strategy.budget
        if self.n is not None:
            width = seen.get(float(usual.total), math.nan) / self.target
            near = self.n * (width**1.5 if self.quantity == "width" and 1 < width < 1e3 else 1)
            rows, _, _ = replace(self, budget=usual, n=None)._search(min(near, ROWS[1]))
            if rows is None:
                cure = f"; no number of rows would do with the plan's own budget{cure}"
            else:
                alone = "" if self.quantity == "delta" else ", from sampling alone"
                cure = f"{alone}; with the plan's own budget, {text_of(usual)}, n = {int(rows)} "
                cure += "rows would do"
        at = text_of(self.budget if self.n is None else self.n)
        reached = significant(seen[high]) if math.isfinite(seen[high]) else "nothing finite"
        chosen = self.measure.chosen and f"; {self.measure.chosen}"
        return RequestError(
            f"not even {text_of(self._given(high))} gives {self.of!r} a {self.quantity} of "
            f"{self.target:g} at {at}: it gives {reached}{cure}{chosen}"
        )

    def _given(self, value: float) -> Budget | int:
        return int(value) if self.n is None else self.budget.of_total(value)

    def _at(self, value: float) -> tuple[Strategy, int]:
        """The strategy and the number of rows at a value that is tried."""
        budget, n = (self.budget, int(value)) if self.n is None else (self._given(value), self.n)
        assert isinstance(budget, Budget)
        rows = n if self.n is None else None
        strategy = with_budget(self.strategy, self.reference, budget, rows)
        return divide_again(strategy, self.analyses), n

    def _search(
        self, start: float | None = None
    ) -> tuple[float | None, float | None, dict[float, float]]:
        """The least value and one that misses the target, and what was measured at all."""
        measure, measured = self.measure, dict[float, float]()

        def shortfall(value: float) -> float:
            if self.progress is not None:
                where = f"previewing {self.of!r} at {text_of(self._given(value))}"
                self.progress(where, len(measured), None)
            strategy, n = self._at(value)
            base = n if self.n is not None else 2 ** (n.bit_length() - 1)
            try:
                check_reference(strategy, self.reference, n)
                _ = strategy.block_scales
            except (BudgetError, RequestError):
                measured[value] = math.nan
                return math.inf
            measured[value] = measure(measure.subject.seen(strategy, n), n, base)
            return measure.shortfall(measured[value], self.target)

        def grid(value: float) -> float:
            """The value to three digits: at most half a per cent away."""
            rounded = float(f"{value:.3g}")
            return float(int(rounded)) if self.n is None else rounded

        if self.n is None:
            span, power = ROWS, 0.0
            start = float(self.strategy.n or USUAL_ROWS) if start is None else start
        else:  # the variance of noise falls as epsilon^2, or as rho
            span, power = BUDGETS[self.budget.parameter], 2 / POWERS[self.budget.noise]
            start = float(self.budget.total)
        if isinstance(measure, Power):
            power = 0.0
            measure.releases = measures.FEW_RELEASES
            near, _ = find_least(
                shortfall, span, grid, start, slope=measure.slope, close=measure.rough
            )
            start = span[1] if near is None else near
            measure.releases = measures.RELEASES
            measured.clear()
        hit, miss = find_least(
            shortfall, span, grid, start, power=power, slope=measure.slope, close=measure.close
        )
        return hit, miss, measured


def check_reference(strategy: Strategy, reference: Reference, n: int) -> None:
    """Refuse a reference whose own measurement would be mostly noise at n rows."""
    planned = strategy.own_block("reference")
    if planned is not None:
        law = strategy.budget.law(strategy.budget.natural_scale(planned.multiplier))
        reference.check(planned.block, n, law)


def with_budget(
    old: Strategy, reference: Reference, budget: Budget, n: int | None = None
) -> Strategy:
    """Strategy at another budget of its kind, every noise in proportion, and for n rows."""
    scale = old.budget.total / budget.total
    planned = [replace(p, multiplier=p.multiplier * scale) for p in old.blocks]
    rows = old.n if n is None or old.n is None else n
    placing = old.own_block("reference")
    if placing is not None and rows != old.n:  # its bins may depend on n
        block = reference.block(old.columns, rows)
        assert block is not None
        multiplier = block.multiplier(budget, old.neighbours, budget.total * reference.share)
        planned[old.blocks.index(placing)] = replace(placing, block=block, multiplier=multiplier)
    return replace(old, blocks=tuple(planned), budget=budget, n=rows)
