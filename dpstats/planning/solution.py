"""The least budget or number of rows that reaches a target: what a search returns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, Literal, Protocol, TypeVar

from dpstats.display import wrapped
from dpstats.measured.strategy import Strategy
from dpstats.privacy.budget import ZCDP, Budget
from dpstats.privacy.rationals import decimal_text
from dpstats.results.rendering import significant

if TYPE_CHECKING:
    from dpstats.analyses.base import Analysis
    from dpstats.results.base import Result
    from dpstats.rows.base import Reference

Quantity = Literal["width", "delta", "power"]


class Planned(Protocol):
    """What is used of a plan."""

    @property
    def strategy(self) -> Strategy:
        """The blocks with their noise."""

    @property
    def analyses(self) -> Mapping[str, Analysis[Result]]:
        """By name."""

    @property
    def reference(self) -> Reference:
        """Where candidates come from."""

    def check_reference(self, n: int) -> None:
        """Refuse a reference that would be mostly noise."""


P = TypeVar("P", bound=Planned)


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
    found: Literal["budget", "n"]
    quantity: Quantity
    target: float
    reached: float
    below: tuple[Budget | int, float] | None
    details: str
    note: str = ""

    @property
    def budget(self) -> Budget:
        """The budget of the whole plan, found or given."""
        return self.plan.strategy.budget

    def __str__(self) -> str:
        bound = "at least" if self.quantity == "power" else "at most"
        asked = f"{self.of}: {self.quantity} of {bound} {self.target:g} ({self.details})"
        if self.found == "budget":
            least = f"least {text_of(self.budget)} at n = {self.n}"
        else:
            least = f"least n = {self.n} at {text_of(self.budget)}"
        if self.below is None:
            beside = "the least value that is tried suffices"
        else:
            value, other = self.below
            name = f"n = {value}" if isinstance(value, int) else text_of(value)
            beside = f"at {name} it is {significant(other)}"
        lines = [asked, f"{least}: {self.quantity} {significant(self.reached)}; {beside}"]
        lines += self.note.splitlines()
        return "\n".join(line for one in lines for line in wrapped(one))

    __repr__ = __str__


def text_of(budget: Budget) -> str:
    """A budget in short; rho with its epsilon."""
    text = f"{budget.parameter} = {decimal_text(budget.total)}"
    if isinstance(budget, ZCDP):
        text += f" (epsilon = {budget.epsilon_at():.3g} at delta = {float(budget.delta):.3g})"
    return text
