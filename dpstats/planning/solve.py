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

from dpstats.checks import Method, Progress, check_alpha, check_finite, did_you_mean, short
from dpstats.display import Shown, shown_progress
from dpstats.errors import BudgetError, RequestError
from dpstats.measured.strategy import check_rows
from dpstats.planning import measures
from dpstats.planning.least import CLOSE, Search
from dpstats.planning.measures import Delta, Measure, Power, Subject, Width
from dpstats.planning.power import Effect
from dpstats.planning.previews.likeness import likeness
from dpstats.planning.previews.pretended import seen_by_analyses
from dpstats.planning.solution import P, Planned, Quantity, Solution, text_of
from dpstats.privacy.budget import Budget, check_budget
from dpstats.results.rendering import significant

BUDGETS: Mapping[str, tuple[float, float]] = {"epsilon": (1e-4, 1e4), "rho": (1e-8, 1e4)}
ROWS = (10.0, 1e9)
USUAL_ROWS = 10_000
MOST_POWER = 0.99  # four of 400 simulated releases keep the hypothesis


class Solvable:
    """A plan that can be solved for its budget or its number of rows."""

    def solve(
        self: P,
        *,
        of: str,
        width: float | None = None,
        delta: float | None = None,
        power: float | None = None,
        n: int | None = None,
        budget: Budget | None = None,
        alpha: float = 0.05,
        method: Method | None = None,
        alternative: Effect | None = None,
        null: float | None = None,
        term: str | None = None,
        like: Any = None,
        progress: Shown = None,
    ) -> Solution[P]:
        """The least budget, or the least number of rows, that reaches a target for one analysis.

        From public numbers alone, by previews of that analysis within the whole plan, to 2%. The
        whole plan is given the budget; the analysis keeps its share. The search assumes that more
        budget, or more rows, never hurt; what it returns reaches the target in any case.

        Parameters
        ----------
        of : str
            Name of the analysis.
        width : float, optional
            Wanted width of its interval. Of several, the median, or that of the coefficient or
            mean whose width `preview` shows first; `details` says which, `note` names the others.
        delta : float, optional
            Wanted error of the rows over its functions, in unit scale, as the certificate bounds it
            with probability 1 - alpha where the rows match the noisy answers.
        power : float, optional
            Wanted power of its two-sided noise-aware test at level alpha (of a partial correlation:
            with Holm's adjustment): the share of 400 simulated releases, s.e. at most 2.5%. At most
            0.99.
            Give exactly one of the three.
        n : int, optional
            Number of rows, for which to find the least budget. Without it and without `budget`,
            the plan's own n if it declares one.
        budget : PureDP, ZCDP or ApproxDP, optional
            For which to find the least n, of the plan's kind; without a number of rows, the plan's
            own.
        alpha : float
        method : {"noise_aware", "certified"}, optional
            Of the interval; default: noise-aware. Certified intervals of a `GoodnessOfFit` or
            `Independence` are for the private table, and `details` says so.
        alternative : number or numbers, optional
            Effect size for `power`: the proportion; the difference of two proportions, around one
            half, or both; the probabilities of a goodness of fit. Otherwise rows are as in
            `preview`.
        null : float, optional
            For `power`: the value of the null hypothesis, where the analysis has none.
        term : str, optional
            For `power` and `width`: the coefficient, pair or cell that is meant, where there are
            several.
        like : Release, Guesses or data frame, optional
            What rows are drawn from; see `preview`.
        progress : callable, optional
            Called with a text, the number of previews so far, and None.
            By default a bar, as in `measure`.

        Raises
        ------
        RequestError
            If the target is out of reach, with the n that would do; or for an argument that does
            not fit the analysis.

        Examples
        --------
        >>> import dpstats as dps
        >>> schema = dps.Schema([dps.Boolean("smoker")])
        >>> plan = dps.plan(schema, {"smoking": dps.Proportion("smoker")}, budget=dps.PureDP(1))
        >>> plan.solve(width=0.05, of="smoking", n=2_000)
        smoking: width of at most 0.05 (noise-aware 0.95 interval)
        least epsilon = 0.118 at n = 2000: width 0.04985; at epsilon = 0.116 it is 0.05005
        >>> plan.solve(width=0.05, of="smoking", budget=dps.PureDP(1)).found
        'n'
        """
        if not isinstance(of, str) or of not in self.analyses:
            raise RequestError(
                f"of= must name an analysis of the plan, one of {list(self.analyses)}; got "
                f"{short(of)}{did_you_mean(of, self.analyses)}"
            )
        if getattr(self, "start", None) is not None:
            raise RequestError("a plan with start= adds to a budget that is spent: use preview")
        quantity, target = _target({"width": width, "delta": delta, "power": power}, alpha)
        only: dict[str, tuple[object, Quantity]] = {
            "method": (method, "width"),
            "alternative": (alternative, "power"),
            "null": (null, "power"),
        }
        if term is not None and quantity == "delta":
            raise RequestError(
                "term= belongs to width= and power=; drop it for delta=, which holds for all "
                "functions of the analysis"
            )
        for name, (value, belongs) in only.items():
            if value is not None and belongs != quantity:
                raise RequestError(f"{name}= belongs to {belongs}=; drop it for {quantity}=")
        if n is not None and budget is not None:
            raise RequestError(
                "give n= for the least budget, or budget= for the least n, not both; to see the "
                "widths of both given, use preview"
            )
        if n is not None:
            check_rows(n)
        if budget is not None and type(check_budget(budget)) is not type(self.strategy.budget):
            raise RequestError(
                "budget= must be of the plan's own kind, whose split it follows: a "
                f"dps.{type(self.strategy.budget).__name__}; make the plan again for another kind"
            )
        known = self.strategy.n if n is None and budget is None else n
        rows = likeness(like, self.strategy)
        subject = Subject(self.strategy, self.analyses[of], of, rows, alpha)
        measure: Measure
        if quantity == "width":
            measure = Width(subject, method or "noise_aware", term)
        elif quantity == "delta":
            measure = Delta(subject)
        else:
            measure = Power(subject, alternative, null, term)
        with shown_progress(progress) as say:
            problem = _Problem(self, of, quantity, target, measure, say)
            solution = (
                problem.least_rows(self.strategy.budget if budget is None else budget)
                if known is None
                else problem.least_budget(known)
            )
            if say is not None:
                say("done", 1, 1)
        return solution


def _target(given: Mapping[Quantity, Any], alpha: float) -> tuple[Quantity, float]:
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
class _Problem(Generic[P]):
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
