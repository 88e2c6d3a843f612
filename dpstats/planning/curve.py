"""Expected widths against the budget: what a curve holds, and how it is computed."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from dpstats.arrays import Floats
from dpstats.checks import Method, Progress
from dpstats.display import as_html, fitted_table, html_table, wrapped
from dpstats.errors import BudgetError, RequestError
from dpstats.measured.strategy import Strategy
from dpstats.planning.measures import Subject, Width
from dpstats.planning.previews.preview import edges_of_quantile, width_text

if TYPE_CHECKING:
    import pandas as pd


_FLAT = 0.05  # of the least width, by which the others of a flat curve exceed it at most


@dataclass(frozen=True, repr=False)
class Curve:
    """Expected widths of the intervals of analyses, against the budget of the whole plan.

    Attributes
    ----------
    parameter : {"epsilon", "rho"}
        What the budgets are.
    budgets : (d,) float64
        Increasing.
    widths : mapping of name to (d,) float64
        Median widths; infinite where most intervals have no ends.
    of : mapping of name to str
        What the intervals estimate: a term, or how many that the median is over.
    n : int
        Number of rows.
    method, alpha :
        Of the intervals.
    said : str
        Which rows were simulated.
    notes : tuple of str
        Where more budget hardly helps, and what does.

    Examples
    --------
    >>> import dpstats as dps
    >>> schema = dps.Schema([dps.Boolean("smoker")])
    >>> plan = dps.plan(schema, {"smoking": dps.Proportion("smoker")}, budget=dps.PureDP(1))
    >>> curve = plan.curve(n=500, budgets=[0.1, 1])
    >>> curve.widths["smoking"].round(2)
    array([0.14, 0.09])
    """

    parameter: str
    budgets: Floats
    widths: Mapping[str, Floats]
    of: Mapping[str, str]
    n: int
    method: Method
    alpha: float
    said: str
    notes: tuple[str, ...] = ()

    def to_frame(self) -> pd.DataFrame:
        """One row per analysis and budget.

        Returns
        -------
        DataFrame
            Columns analysis, of, epsilon (or rho) and width.
        """
        import pandas as pd

        parts = [
            pd.DataFrame(
                {
                    "analysis": name,
                    "of": self.of[name],
                    self.parameter: self.budgets,
                    "width": widths,
                }
            )
            for name, widths in self.widths.items()
        ]
        return pd.concat(parts, ignore_index=True)

    @property
    def title(self) -> str:
        """Title of the widths, in one line."""
        kind = f"{self.method.replace('_', '-')} {1 - self.alpha:.6g}"
        return f"Median width of {kind} intervals at n = {self.n}, {self.said}"

    def label(self, name: str) -> str:
        """The name of an analysis with what its width is of."""
        return f"{name}: {self.of[name]}" if self.of[name] else name

    @property
    def _cells(self) -> list[tuple[str, ...]]:
        columns = [[self.parameter, *(f"{budget:.4g}" for budget in self.budgets)]]
        for name, widths in self.widths.items():
            columns.append([self.label(name), *map(width_text, widths.tolist())])
        return list(zip(*columns, strict=True))

    def __str__(self) -> str:
        header, *rows = self._cells
        notes = itertools.chain.from_iterable(map(wrapped, self.notes))
        return "\n".join([*wrapped(self.title), *fitted_table(header, rows, ()), *notes])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        header, *rows = self._cells
        return as_html("dpstats widths", [self.title], html_table(header, rows), self.notes)


def curve_of(
    subjects: Sequence[Subject],
    parameter: str,
    at: Mapping[Fraction, Strategy],
    n: int,
    method: Method,
    *,
    required: bool,
    progress: Progress | None,
) -> Curve:
    """Widths of analyses of one plan under the strategies of several budgets, by `parameter`."""
    widths: dict[str, Floats] = {}
    whose: dict[str, str] = {}
    notes, total = [], len(subjects) * len(at)
    for done, subject in enumerate(subjects):
        name, of_budget = subject.name, []
        try:
            measure = Width(subject, method, few=False)
            for step, strategy in enumerate(at.values()):
                if progress is not None:
                    progress("previewing", done * len(at) + step, total)
                of_budget.append(measure(subject.seen(strategy, n), n, n))
        except BudgetError:
            raise
        except RequestError:
            if required:
                raise
            continue
        widths[name] = found = np.array(of_budget)
        whose[name] = measure.whose
        if len(found) > 1 and np.isfinite(found).all() and np.ptp(found) <= _FLAT * min(found):
            why = edges_of_quantile(subject.analysis, subject.strategy.schema)
            why = why or "the sampling of the rows decides its width"
            notes.append(f"{name}: more budget hardly helps here: {why}")
    if not widths:
        raise RequestError("no analysis of the plan has intervals: there is no width to show")
    if progress is not None:
        progress("done", total, total)
    strategy, like = subjects[0].strategy, subjects[0].like
    return Curve(
        parameter, np.array([float(value) for value in at]), widths, whose, n,
        method, subjects[0].alpha, like.said(strategy.columns, n), tuple(notes),
    )  # fmt: skip
