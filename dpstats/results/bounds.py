"""Certified intervals for questions that nobody planned for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dpstats.arrays import Floats
from dpstats.checks import Target, lines_shown
from dpstats.error_rates import percent
from dpstats.results.base import FieldsCompared, footer
from dpstats.results.rendering import Numerals, Page, Printed

if TYPE_CHECKING:
    import pandas as pd

    from dpstats.measured.row_count import RowCount

_SHOWN = 40


@dataclass(frozen=True, repr=False, eq=False)
class Bounds(Printed, FieldsCompared):
    """Intervals that hold for every table that agrees with a release.

    Each holds with probability 1 - alpha over the privacy noise (for the population: over the noise
    and the rows), for any data.

    Attributes
    ----------
    terms : list of str
        What was asked.
    low, high : (d,) float64
    known_from : list of str
        What each interval follows from.
    informative : (d,) bool
        Whether an interval is narrower than what is known without any measurement.
    alpha : float
    target : {"table", "population"}
    rows : RowCount
    budget : str
    notes : tuple of str
    totals : bool
        Whether they rest on public totals of the table.

    Examples
    --------
    >>> import dpstats as dps
    >>> import pandas as pd
    >>> schema = dps.Schema([dps.Boolean("smoker"), dps.Boolean("ill")])
    >>> asked = {"smoking": dps.Proportion("smoker"), "illness": dps.Proportion("ill")}
    >>> plan = dps.plan(schema, asked, budget=dps.PureDP(1))
    >>> rows = pd.DataFrame({"smoker": [True] * 300 + [False] * 700, "ill": [True] * 1_000})
    >>> both = dps.release(plan, rows).bound("smoker & ill")  # neither measured nor planned
    >>> bool(both.low[0] < 0.33), bool(both.high[0] > 0.27)
    (True, True)
    >>> list(both.to_frame())
    ['term', 'conf_low', 'conf_high', 'known_from']
    """

    terms: list[str]
    low: Floats
    high: Floats
    known_from: list[str]
    informative: NDArray[np.bool_]
    alpha: float
    target: Target
    rows: RowCount
    budget: str
    notes: tuple[str, ...] = ()
    totals: bool = False

    @property
    def width(self) -> Floats:
        """Widths (d,) of the intervals."""
        return self.high - self.low

    def __len__(self) -> int:
        return len(self.terms)

    def __iter__(self) -> Iterator[tuple[float, float]]:
        """Pairs of ends."""
        return iter(zip(self.low.tolist(), self.high.tolist(), strict=True))

    def to_frame(self) -> pd.DataFrame:
        """One row per term.

        Returns
        -------
        DataFrame
            Columns term, conf_low, conf_high and known_from; the level is in ``attrs``.
        """
        import pandas as pd

        frame = pd.DataFrame(
            {
                "term": self.terms,
                "conf_low": self.low,
                "conf_high": self.high,
                "known_from": self.known_from,
            }
        )
        frame.attrs["level"] = round(1 - self.alpha, 12)
        return frame

    def _page(self) -> Page:
        shown = range(lines_shown(len(self), _SHOWN))
        rows = []
        for i in shown:
            low, high = float(self.low[i]), float(self.high[i])
            show = Numerals.of([low, high], high - low)
            rows.append([self.terms[i], show.certified(low, high), self.known_from[i]])
        header = ["", f"{percent(self.alpha)} certified", "from"]
        known, below = {row[-1] for row in rows}, []
        words: tuple[int, ...] = (0, 2)
        if len(known) == 1:  # said once
            header, rows, below = header[:2], [row[:2] for row in rows], [f"From: {known.pop()}."]
            words = (0,)
        left = len(self) - len(shown)
        more = [f"and {left} more"] if left else []
        level = percent(self.alpha)
        each = "" if len(self) == 1 else ", each by itself"
        return Page(
            "What is known",
            [],
            header,
            rows,
            words=words,
            after=[
                *more,
                *below,
                f"Certain with probability {level}{each}, for any data"
                + (" with the public totals, which the custodian asserts." if self.totals else "."),
                footer(self.rows, self.budget, "", self.target),
                *(f"Note: {note}" for note in self.notes),
            ],
        )

    def fitted(self) -> str:
        """The text with lines and columns that fit the terminal."""
        return self._page().fitted()

    def __hash__(self) -> int:
        return hash((tuple(self.terms), self.alpha, self.target))
