"""Draws of a release: plausible private tables, analysed one by one and pooled."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, overload

from dpstats.arrays import Integers
from dpstats.display import Shown, shown_progress
from dpstats.errors import RequestError
from dpstats.results.pooled import Pooled, independent_rows, pool
from dpstats.rows.drawing import random_order
from dpstats.rows.plausible import PlausibleTables
from dpstats.schema import Schema

if TYPE_CHECKING:
    import pandas as pd

MOST = 1_000
CAUTION = (
    "One of several plausible private tables: analyse every one as if it were the private table, "
    "and pool the estimates and their variances, see dps.pool. One draw by itself leaves out the "
    "privacy noise."
)


@dataclass(frozen=True, repr=False, eq=False)
class Draws:
    """Plausible private tables, computed when they are first used, and kept.

    Attributes
    ----------
    schema : Schema
    tables : PlausibleTables
    seeds : (M,) int64
    n : int
        Number of private rows, or the estimate of it.

    Examples
    --------
    >>> import dpstats as dps
    >>> import pandas as pd
    >>> schema = dps.Schema([dps.Boolean("smoker")])
    >>> plan = dps.plan(schema, {"smoking": dps.Proportion("smoker")}, budget=dps.PureDP(1))
    >>> rows = pd.DataFrame({"smoker": [True] * 3_000 + [False] * 7_000})
    >>> draws = dps.release(plan, rows).draws(20, rng=1)
    >>> len(draws), draws[0].shape
    (20, (10000, 1))
    >>> def share(frame):
    ...     p = frame["smoker"].mean()
    ...     return p, p * (1 - p) / len(frame)
    >>> pooled = draws.combine(share)
    >>> print(pooled.conf_int().round(2))
    [[0.29 0.31]]
    """

    schema: Schema
    tables: PlausibleTables
    seeds: Integers
    n: int

    def __len__(self) -> int:
        return len(self.seeds)

    @overload
    def __getitem__(self, number: int) -> pd.DataFrame: ...

    @overload
    def __getitem__(self, number: slice) -> Draws: ...

    def __getitem__(self, number: int | slice) -> pd.DataFrame | Draws:
        """One draw, or, of a slice, some of them."""
        if isinstance(number, slice):
            return replace(self, seeds=self.seeds[number])
        seed = int(self.seeds[number])
        counts = self.tables.counts(seed)
        order = random_order(counts, seed)
        codes = {name: c[order] for name, c in self.tables.candidates.items()}
        frame = self.schema.to_frame(codes)
        frame.attrs["caution"] = CAUTION
        return frame

    def __iter__(self) -> Iterator[pd.DataFrame]:
        return (self[number] for number in range(len(self)))

    def combine(
        self, analyse: Callable[[pd.DataFrame], tuple[Any, Any]], *, progress: Shown = None
    ) -> Pooled:
        """Analyse every draw, and pool the estimates by Rubin's rules.

        Parameters
        ----------
        analyse : callable
            From a frame to estimates, a number or (d,), and their sampling variances, as if the
            frame were the private table of independent rows: where a person may have several,
            the variances are multiplied by their number, see `dps.pool`. A pandas Series of
            estimates names the parameters, and draws are matched by its index: reindex counts of
            levels, since a draw may lack one.
        progress : callable, optional
            Called with a text, the number of draws so far, and that of all. By default a bar, as in
            `measure`.

        Returns
        -------
        Pooled

        Raises
        ------
        RequestError
            If `analyse` returns anything but a pair; and see `dps.pool`.
        """
        rows_per_person = self.tables.sources.rows.rows_per_person
        independent_rows(self.n, rows_per_person)  # before tables are drawn
        pairs = []
        with shown_progress(progress) as say:
            for done, frame in enumerate(self):
                pairs.append(analyse(frame))
                if say is not None:
                    say("drawing tables", done + 1, len(self))
        for pair in pairs:
            if not isinstance(pair, tuple | list) or len(pair) != 2:
                raise RequestError(
                    "analyse must return a pair, estimates and their sampling variances, such as "
                    f"(p, p * (1 - p) / len(frame)); got {type(pair).__name__}"
                )
        return pool(
            [estimates for estimates, _ in pairs],
            [variances for _, variances in pairs],
            n=self.n,
            rows_per_person=rows_per_person,
        )

    def __repr__(self) -> str:
        return f"<dpstats Draws: {len(self)} plausible tables of about {self.n} rows>"
