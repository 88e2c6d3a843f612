"""Explanation of how a release answers a question: from what, and how accurately."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from dpstats.checks import lines_shown
from dpstats.error_rates import percent
from dpstats.results.rendering import Page, Printed, significant

if TYPE_CHECKING:
    from dpstats.results.bounds import Bounds

Verdict = Literal["measured", "derivable", "bounded", "out of reach"]
MEANING: dict[Verdict, str] = {
    "measured": "it was measured: release.infer estimates it",
    "derivable": "it follows from what was measured: release.infer estimates it",
    "bounded": "it does not follow from what was measured, which leaves an interval: release.bound",
    "out of reach": "what was measured does not limit it",
}
OF_TABLE = "Target: the private table itself, with its capped weights."
_TABLE = "Target: the private table itself; for the population use "
BOUNDED = f'{_TABLE}release.bound with target="population" (dpstats bound --target population).'
INFERRED = (
    f"{_TABLE}release.infer (dpstats infer, with --ask); its intervals allow for sampling too."
)
COMPARED = "both shares follow from what was measured: release.infer estimates each of them"
SHOWN = 5


@dataclass(frozen=True, repr=False, eq=False)
class Explanation(Printed):
    """Answer of a release to a question, with its reasons.

    Attributes
    ----------
    query : str
        What was asked.
    verdict : {"measured", "derivable", "bounded", "out of reach"}
    bounds : Bounds
        Certified intervals for the private table. Of a table whose cells need a linear program
        each, those of the first few, and on to the first that is limited; `Release.bound` has all.
    ask : str
        The analysis to ask the custodian for; of functions, their columns.
    left : int
        Cells that `bounds` leaves out.
    survey : bool
        Whether the rows have a `Design`: there are no bounds for its population.

    Examples
    --------
    >>> import dpstats as dps
    >>> import pandas as pd
    >>> schema = dps.Schema([dps.Boolean("smoker"), dps.Boolean("ill"), dps.Boolean("rich")])
    >>> asked = {"smoking": dps.Proportion("smoker"), "illness": dps.Proportion("ill")}
    >>> plan = dps.plan(schema, asked, budget=dps.PureDP(1))
    >>> columns = ["smoker", "ill", "rich"]
    >>> rows = pd.DataFrame([[True, True, False]] * 300 + [[False, True, True]] * 700)
    >>> release = dps.release(plan, rows.set_axis(columns, axis=1))
    >>> for query in ("smoker", "not smoker", "smoker & ill", "rich"):
    ...     print(release.explain(query).verdict)
    measured
    derivable
    bounded
    out of reach
    >>> release.explain("rich").ask
    "dps.Proportion('rich')"
    """

    query: str
    verdict: Verdict
    bounds: Bounds
    ask: str
    left: int = 0
    survey: bool = False

    def _page(self) -> Page:
        level = percent(self.bounds.alpha)
        pairs = [*zip(self.bounds.terms, self.bounds, strict=True)]
        lines = [f"{self.verdict}: {MEANING[self.verdict]}"]
        if self.verdict != "out of reach":
            every = len(pairs) + self.left
            most = lines_shown(every, SHOWN)
            lines += [
                f"  {term}: from {significant(low)} to {significant(high)}, with {level}"
                for term, (low, high) in pairs[:most]
            ]
            lines += [f"  and {every - most} more"] if every > most else []
        else:
            known = dict.fromkeys(self.bounds.known_from)
            lines += [f"  {text}" for text in known if text.startswith("no limit")][:SHOWN]
        if self.verdict in ("bounded", "out of reach"):
            lines.append(f"To know it, ask the custodian to plan {self.ask}")
        inferred = self.verdict in ("measured", "derivable") and COMPARED not in self.bounds.notes
        bounded = OF_TABLE if self.survey else BOUNDED
        target = [INFERRED if inferred else bounded] if self.verdict != "out of reach" else []
        return Page(self.query, lines, after=[*target, *map("Note: {}".format, self.bounds.notes)])
