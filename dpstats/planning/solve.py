"""The least budget, or the least number of rows, for a wanted width, accuracy or power.

From public numbers alone, by previews of one analysis within the whole plan: it keeps the share of
the budget that the plan gives it, and no other analysis is computed. Simulated rows and noise have
fixed seeds (common random numbers), so what is searched is one curve, the same in every run.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Generic, Literal

from dpstats.checks import Progress, check_alpha, check_finite, short
from dpstats.errors import BudgetError, RequestError
from dpstats.planning import measures
from dpstats.planning.least import CLOSE, Search
from dpstats.planning.measures import Measure, Power
from dpstats.planning.previews.pretended import seen_by_analyses
from dpstats.planning.solution import P, Planned, Quantity, Solution, text_of
from dpstats.privacy.budget import Budget
from dpstats.results.rendering import significant

BUDGETS: Mapping[str, tuple[float, float]] = {"epsilon": (1e-4, 1e4), "rho": (1e-8, 1e4)}
ROWS = (10.0, 1e9)
USUAL_ROWS = 10_000
MOST_POWER = 0.99  # four of 400 simulated releases keep the hypothesis


def target_of(given: Mapping[Quantity, Any], alpha: float) -> tuple[Quantity, float]:
    """The one quantity that is given, and its value."""
    check_alpha(alpha)
    found = [(name, value) for name, value in given.items() if value is not None]
    if len(found) != 1:
        raise RequestError(
            "give exactly one of width=, delta= and power=; got "
            + (", ".join(f"{name}=" for name, _ in found) or "none")
        )
    name, value = found[0]
    array = check_finite(name, value)
    if array.ndim or not array > 0:
        raise RequestError(f"{name} must be a positive number, got {short(value)}")
    if name == "power" and not alpha < array < 1:
        raise RequestError(
            f"power={float(array):g} is out of range: more than alpha={alpha:g}, which a test "
            "reaches without any effect, and less than 1"
        )
    if name == "power" and array > MOST_POWER:
        raise RequestError(
            f"power={float(array):g} is too near 1 for the share of {measures.RELEASES} simulated "
            f"releases; ask for at most {MOST_POWER:g}"
        )
    return name, float(array)


@dataclass(frozen=True)
class _Unknown(Generic[P]):
    """The number that is searched for: of the plan's budget, or of rows."""

    found: Literal["budget", "n"]
    plan: P
    budget: Budget
    n: int
    range: tuple[float, float]

    def at(self, value: float) -> tuple[P, int, int]:
        """The plan there, the number of rows, and that of the draw to move to it."""
        if self.found == "budget":
            return with_budget(self.plan, self.budget.of_total(value)), self.n, self.n
        n = int(value)
        return with_budget(self.plan, self.budget, n), n, 2 ** (n.bit_length() - 1)

    @property
    def start(self) -> float:
        """Where the search begins."""
        return float(self.budget.total if self.found == "budget" else self.n)

    def grid(self, value: float) -> float:
        """To three digits: at most half a per cent away."""
        rounded = float(f"{value:.3g}")
        return rounded if self.found == "budget" else float(int(rounded))

    def as_given(self, value: float) -> Budget | int:
        """As users write it."""
        return int(value) if self.found == "n" else self.budget.of_total(value)

    def text(self, value: float) -> str:
        """The value in a sentence."""
        given = self.as_given(value)
        return f"n = {given}" if isinstance(given, int) else text_of(given)

    @property
    def curve(self) -> float:
        """The variance of the noise falls as epsilon^2, or as rho; see `Search`."""
        return 0.0 if self.found == "n" else 2.0 if self.budget.noise == "laplace" else 1.0


@dataclass(frozen=True)
class Problem(Generic[P]):
    """A target for one analysis of a plan."""

    plan: P
    of: str
    quantity: Quantity
    target: float
    measure: Measure
    progress: Progress | None

    def least_budget(self, n: int) -> Solution[P]:
        """Given the number of rows.

        Raises
        ------
        RequestError
            If no budget reaches the target.
        """
        own = self.plan.strategy.budget
        unknown = _Unknown("budget", self.plan, own, n, BUDGETS[own.parameter])
        hit, miss, seen = self._search(unknown)
        if hit is not None:
            return self._solution(unknown, hit, miss, seen)
        here = seen.get(float(own.total), math.nan) / self.target
        near = n * here**1.5 if self.quantity == "width" and 1 < here < 1e3 else n
        rows, _, _ = self._search(replace(self._rows(own), n=int(min(near, ROWS[1]))))
        alone = "" if self.quantity == "delta" or rows is None else ", from sampling alone"
        cure = (
            f"no number of rows would do with the plan's own budget; {self.measure.advice}"
            if rows is None
            else f"with the plan's own budget, {text_of(own)}, n = {int(rows)} rows would do"
        )
        raise RequestError(
            f"{self._not_even(unknown, seen)} at n = {n}: it gives "
            f"{_shown(seen[unknown.range[1]])}{alone}; {cure}{self._chosen}"
        )

    def least_rows(self, budget: Budget) -> Solution[P]:
        """Given the budget.

        Raises
        ------
        RequestError
            If no number of rows reaches the target.
        """
        unknown = self._rows(budget)
        hit, miss, seen = self._search(unknown)
        if hit is not None:
            return self._solution(unknown, hit, miss, seen)
        raise RequestError(
            f"{self._not_even(unknown, seen)} at {text_of(budget)}: it gives "
            f"{_shown(seen[unknown.range[1]])}; {self.measure.advice}{self._chosen}"
        )

    def _rows(self, budget: Budget) -> _Unknown[P]:
        return _Unknown("n", self.plan, budget, self.plan.strategy.n or USUAL_ROWS, ROWS)

    @property
    def _chosen(self) -> str:
        return f"; {self.measure.chosen}" if self.measure.chosen else ""

    def _not_even(self, unknown: _Unknown[P], seen: Mapping[float, float]) -> str:
        """The start of a refusal; that of the reference where it is the reason."""
        high = unknown.range[1]
        plan, n, _ = unknown.at(high)
        plan.check_reference(n)
        return (
            f"not even {unknown.text(high)} gives {self.of!r} a {self.quantity} of {self.target:g}"
        )

    def _search(
        self, unknown: _Unknown[P]
    ) -> tuple[float | None, float | None, dict[float, float]]:
        """The least value and one that misses the target, and what was measured at all."""
        measure, measured = self.measure, dict[float, float]()

        def shortfall(value: float, sure: bool = False) -> float:
            if self.progress is not None:
                where = f"previewing {self.of!r} at {unknown.text(value)}"
                self.progress(where, len(measured), None)
            plan, n, base = unknown.at(value)
            of = measure.sure if sure and isinstance(measure, Power) else measure
            measured[value] = math.nan
            if _possible(plan, n):
                measured[value] = of(seen_by_analyses(plan.strategy, n), n, base)
            gap = measure.shortfall(measured[value], self.target)
            return math.inf if math.isnan(gap) else gap

        low, high = unknown.range
        if not isinstance(measure, Power):
            search = Search(shortfall, low, high, unknown.grid, unknown.curve)
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

    def _solution(
        self, unknown: _Unknown[P], hit: float, miss: float | None, seen: Mapping[float, float]
    ) -> Solution[P]:
        plan, n, _ = unknown.at(hit)
        missed = {v: self.measure.shortfall(m, self.target) > 0 for v, m in seen.items()}
        notes = [self.measure.chosen] if self.measure.chosen else []
        odd = [v for v in seen if v != hit and missed[v] == (v > hit)]
        notes += [
            f"more is not always better here: at {unknown.text(value)} the {self.quantity} is "
            f"{_shown(seen[value])}"
            for value in odd[:1]
        ]
        return Solution(
            plan=plan,
            of=self.of,
            n=n,
            found=unknown.found,
            quantity=self.quantity,
            target=self.target,
            reached=seen[hit],
            below=None if miss is None else (unknown.as_given(miss), seen[miss]),
            details=self.measure.details,
            note="\n".join(f"Note: {note}" for note in notes),
        )


def _possible(plan: Planned, n: int) -> bool:
    """Whether the noise can be drawn, and candidates placed."""
    try:
        plan.check_reference(n)
        _ = plan.strategy.block_scales
    except (BudgetError, RequestError):
        return False
    return True


def _shown(measured: float) -> str:
    return significant(measured) if math.isfinite(measured) else "nothing finite"


def with_budget(plan: P, budget: Budget, n: int | None = None) -> P:
    """The same plan with another budget of its kind, every noise in proportion.

    Parameters
    ----------
    plan : Plan
    budget : Budget
    n : int, optional
        Another number of rows, for a plan that declares one.
    """
    old = plan.strategy
    scale = old.budget.total / budget.total
    planned = [replace(p, multiplier=p.multiplier * scale) for p in old.blocks]
    rows = old.n if n is None or old.n is None else n
    own = old.own_block("reference")
    if own is not None and rows != old.n:  # its bins may depend on n
        block = plan.reference.block(old.columns, rows)
        assert block is not None
        amount = budget.total * plan.reference.share
        multiplier = block.multiplier(budget, old.neighbours, amount)
        planned[old.blocks.index(own)] = replace(own, block=block, multiplier=multiplier)
    strategy = replace(old, blocks=tuple(planned), budget=budget, n=rows)
    made: P = replace(plan, strategy=strategy)  # type: ignore[type-var]
    return made
