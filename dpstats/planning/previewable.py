"""Plans that can be previewed: once, or at several budgets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Protocol

from dpstats.checks import Method, check_alpha, check_method, did_you_mean, short
from dpstats.display import Shown, shown_progress
from dpstats.errors import RequestError
from dpstats.measured.strategy import Strategy, check_rows
from dpstats.planning.curve import Curve, curve_of
from dpstats.planning.previews.likeness import likeness
from dpstats.planning.previews.preview import Preview, preview_strategy
from dpstats.planning.solve import with_budget
from dpstats.references.uniform import Uniform

if TYPE_CHECKING:
    from dpstats.analyses.base import Analysis
    from dpstats.planning.previews.remedies import Replannable
    from dpstats.privacy.budget import Budget
    from dpstats.references.base import Reference
    from dpstats.results.base import Result
    from dpstats.schema import Schema


class _Plan(Protocol):
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

    @property
    def n(self) -> int | None:
        """The public number of rows."""

    def check_reference(self, n: int) -> None:
        """Refuse a reference that would be mostly noise."""

    def asking(self, analyses: Mapping[str, Analysis[Result]]) -> Replannable:
        """The same for other analyses."""

    def declaring(self, schema: Schema) -> Replannable:
        """The same for another schema."""

    def costing(self, budget: Budget) -> Replannable:
        """The same at another budget."""


class Previewable:
    """The methods."""

    def preview(
        self: _Plan,
        n: int | None = None,
        *,
        like: Any = None,
        theory: bool = False,
        progress: Shown = None,
    ) -> Preview:
        """Functions, noise and expected interval widths, from public numbers alone.

        Every analysis runs on simulated releases of n rows, which come from the guesses of the
        schema where it states some. Without, they spread evenly over the levels and bins, which is
        too optimistic where real rows concentrate: the coefficients of a number that varies over a
        tenth of its bounds are 10 to 100 times less certain. The preview says which rows it used.

        There are three releases, and up to 30 of an analysis whose intervals may have no ends:
        those beyond three have new noise over the same rows. Widths are medians over them.

        Parameters
        ----------
        n : int, optional
            Assumed number of rows; the plan's own n if not given.
        like : Release, Guesses or data frame, optional
            What rows are drawn from instead: the fitted density of a release of an earlier year
            that declares the plan's columns as the plan does; other guesses, where
            ``dps.Guesses()`` means even rows; or a frame (pandas, polars, Arrow) of invented or
            public rows, such as those of `dps.pretend`. Never the private rows: widths that were
            computed from them are not private.
        theory : bool
            Print what a theorem promises of the synthetic rows as well; `Preview.accuracy` has it
            in any case.
        progress : callable, optional
            Called with a text, the number of analyses so far, and that of all. By default a bar,
            as in `measure`.

        Raises
        ------
        RequestError
            Without a number of rows; if `like` is a path, lacks a column, or declares it otherwise.
        """
        rows = _rows(self, n)
        with shown_progress(progress) as say:
            made = preview_strategy(
                self.strategy, self.analyses, rows, like, heading=str(self), progress=say,
                fixed=isinstance(self.reference, Uniform),
            )  # fmt: skip
        made = replace(made, theory=bool(theory), silent=progress is False)
        return made if getattr(self, "start", None) is not None else replace(made, plan=self)

    def curve(
        self: _Plan,
        n: int | None = None,
        *,
        of: str | Sequence[str] | None = None,
        budgets: Sequence[float | Fraction] | None = None,
        method: Method = "noise_aware",
        alpha: float = 0.05,
        like: Any = None,
        progress: Shown = None,
    ) -> Curve:
        """Expected widths of the intervals of each analysis, against the budget of the whole plan.

        By previews at several budgets, on the same rows and noise; reads no data.

        Parameters
        ----------
        n : int, optional
            Number of rows; the plan's own n if not given.
        of : str or sequence of str, optional
            Names of analyses; default: all that have intervals.
        budgets : sequence of numbers, optional
            Totals, of epsilon or rho as in the plan's budget; default: an eighth of the plan's to
            eight times as much.
        method : {"noise_aware", "certified"}
        alpha : float
            Error probability of each interval.
        like : Release, Guesses or data frame, optional
            As in `preview`.
        progress : callable, optional
            Called with a text, the number of previews so far, and that of all. By default a bar.

        Raises
        ------
        RequestError

        Examples
        --------
        >>> import dpstats as dps
        >>> schema = dps.Schema([dps.Boolean("smoker")])
        >>> plan = dps.plan(schema, {"smoking": dps.Proportion("smoker")}, budget=dps.PureDP(1))
        >>> print(plan.curve(500, budgets=[0.1, 1, 10]))
        Median width of noise-aware 0.95 intervals at n = 500, rows drawn evenly over the cells
        epsilon  smoking: proportion
            0.1               0.1443
              1              0.08814
             10               0.0875
        """
        rows = _rows(self, n)
        check_alpha(alpha)
        check_method(method)
        if getattr(self, "start", None) is not None:
            raise RequestError("a plan with start= adds to a budget that is spent: use preview")
        names = [of] if isinstance(of, str) else list(self.analyses if of is None else of)
        if unknown := [name for name in names if name not in self.analyses]:
            raise RequestError(
                "of= must name analyses of the plan, among "
                f"{list(self.analyses)}; got {short(unknown[0])}"
                f"{did_you_mean(unknown[0], self.analyses)}"
            )
        own = self.strategy.budget
        totals = (
            [own.total * Fraction(2) ** k for k in range(-3, 4)] if budgets is None else budgets
        )
        at = {}
        for total in totals:
            budget = own.of_total(total)
            at[budget.total] = with_budget(self, budget).strategy
        if not at:
            raise RequestError("give at least one budget, or none for the usual ones")
        like = likeness(like, self.strategy)
        asked = {name: self.analyses[name] for name in names}
        with shown_progress(progress) as say:
            return curve_of(
                self.strategy, asked, dict(sorted(at.items())), rows, like, method, alpha,
                required=of is not None, progress=say,
            )  # fmt: skip


def _rows(plan: _Plan, n: int | None) -> int:
    """The number of rows that is given, or declared."""
    rows = plan.n if n is None else n
    if rows is None:
        raise RequestError("preview needs a number of rows: give n=")
    check_rows(rows)
    plan.check_reference(rows)
    return rows
