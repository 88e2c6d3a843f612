"""Questions to a release that nobody planned for."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Protocol, cast

import numpy as np

from dpstats.checks import Target, did_you_mean, excerpt
from dpstats.errors import ConditionError
from dpstats.families.tables.cells import Cells
from dpstats.measured.view import ReleaseView

_LONE_NAME = re.compile(r"(?!.*\b(and|or|not|in)\b)[\w\s.-]+")  # without operators or quotes

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from dpstats.analyses.base import Analysis
    from dpstats.caching import T
    from dpstats.families.block import Block, Family
    from dpstats.measured.combining import Sources
    from dpstats.references.generator import Seed
    from dpstats.releases.draws import Draws
    from dpstats.releases.planned_analyses import PlannedAnalyses
    from dpstats.results.base import Result
    from dpstats.results.bounds import Bounds
    from dpstats.results.explanation import Explanation
    from dpstats.schema import Schema


class _Release(ReleaseView, Protocol):
    """What a release holds, besides what analyses see."""

    @property
    def _sources(self) -> Sources: ...

    @property
    def _planned(self) -> PlannedAnalyses: ...

    def _once(self, key: Hashable, compute: Callable[[], T]) -> T: ...

    @property
    def _view(self) -> ReleaseView: ...

    @property
    def columns(self) -> Schema:
        """Columns of the synthetic rows."""


class Unplanned:
    """The methods of a release for questions outside of its plan."""

    def bound(
        self,
        query: str | Analysis[Result] | Family | Block,
        *,
        given: str | None = None,
        minus: str | None = None,
        over: str | None = None,
        alpha: float = 0.05,
        target: Target = "table",
    ) -> Bounds:
        """Certified intervals for anything: measured or not, planned or not.

        The least and largest value over all tables that agree with the noisy answers, by linear
        programs; see ``docs/explanation/inference/what-a-release-can-answer.md``. What follows from
        the answers has its own certified interval, as `infer` gives it.

        Parameters
        ----------
        query : str, Analysis, Family or block
            A condition: the share of rows with it, as in `dps.Proportion`; or the name of a planned
            analysis that is no condition. Of `dps.Proportion`, `dps.Mean`, `dps.GroupMeans`,
            `dps.Difference` and `dps.MeanDifference`, what they estimate. Of another analysis that
            does not follow from the measurements: the means that it is computed from, those of
            moments in units of the columns, ``(age - 60)^2`` with 60 the middle of the bounds. Of a
            family: the mean of every function, in unit scale.
        given : str, optional
            The share among the rows with this condition.
        minus, over : str, optional
            Another condition: the difference of the two shares, or their ratio.
        alpha : float
            Each interval misses with probability at most alpha.
        target : {"table", "population"}
            The private table, or the population that its rows were drawn from.

        Raises
        ------
        RequestError, ConditionError
            For a query that cannot be read.

        Examples
        --------
        >>> import dpstats as dps
        >>> import pandas as pd
        >>> schema = dps.Schema([dps.Boolean("smoker"), dps.Boolean("ill")])
        >>> asked = {"smoking": dps.Proportion("smoker"), "illness": dps.Proportion("ill")}
        >>> plan = dps.plan(schema, asked, budget=dps.PureDP(1))
        >>> rows = pd.DataFrame({"smoker": [True] * 300 + [False] * 700, "ill": [True] * 1_000})
        >>> release = dps.release(plan, rows)
        >>> print(release.bound("ill", given="smoker").to_frame()["term"].item())
        ill | smoker
        >>> bool(release.bound("ill", given="smoker").low[0] > 0.8)
        True
        >>> bool(release.bound("ill", minus="smoker").low[0] > 0.6)
        True
        """
        from dpstats.bounds.bounding import bound

        release, options = cast("_Release", self), {"given": given, "minus": minus, "over": over}
        query = _named(release, query, *options.values())
        return bound(release._view, release._sources, query, **options, alpha=alpha, target=target)

    def draws(self, count: int = 20, *, rng: Seed = None) -> Draws:
        """Plausible private tables, for analyses of any kind with any software.

        Each is a table of n rows that the private one may be, given the noisy answers: only the
        privacy noise varies between them. Analyse every one as if it were the private table and
        pool the results, with `Draws.combine` or `dps.pool`. Intervals for what was measured then
        cover as stated where a count exceeds three noise standard deviations; for what was not
        measured there is no guarantee: use `bound`.

        Parameters
        ----------
        count : int
            At least 2, at most 1,000.
        rng : seed or numpy Generator, optional
            Makes draws repeatable. It is no privacy noise.

        Notes
        -----
        A draw is computed when it is first used, by a fit of its own: about a second where 28
        tables of 1,600 cells were measured, eight where moments of numbers were too.

        Raises
        ------
        RequestError
            If an option is out of its range.

        Examples
        --------
        >>> import dpstats as dps
        >>> import pandas as pd
        >>> schema = dps.Schema([dps.Boolean("smoker")])
        >>> plan = dps.plan(schema, {"smoking": dps.Proportion("smoker")}, budget=dps.PureDP(1))
        >>> rows = pd.DataFrame({"smoker": [True] * 3_000 + [False] * 7_000})
        >>> draws = dps.release(plan, rows).draws(10, rng=1)
        >>> shares = [frame["smoker"].mean() for frame in draws]
        >>> pooled = dps.pool(shares, [p * (1 - p) / 10_000 for p in shares])
        >>> print(pooled.params.round(2))
        [0.3]
        """
        from dpstats.references.plausible import PlausibleTables
        from dpstats.releases.draws import draws_of

        release = cast("_Release", self)

        def tables_near() -> PlausibleTables:
            view = release._view
            return PlausibleTables.near(release._sources, view.candidates, np.asarray(view.weights))

        tables = release._once("plausible tables", tables_near)
        return draws_of(release.columns, tables, count, rng)

    def explain(
        self,
        query: str | Analysis[Result] | Family | Block,
        *,
        given: str | None = None,
        minus: str | None = None,
        over: str | None = None,
        alpha: float = 0.05,
    ) -> Explanation:
        """What is known of a question: measured, derivable, bounded or out of reach.

        Parameters
        ----------
        query : str, Analysis, Family or block
            A condition, or what `bound` takes.
        given, minus, over : str, optional
            As in `bound`.
        alpha : float
            Of the certified intervals.

        Raises
        ------
        RequestError, ConditionError
            For a query that cannot be read.

        Examples
        --------
        >>> import dpstats as dps
        >>> import pandas as pd
        >>> schema = dps.Schema([dps.Boolean("smoker"), dps.Boolean("ill")])
        >>> plan = dps.plan(schema, {"smoking": dps.Proportion("smoker")}, budget=dps.PureDP(1))
        >>> rows = pd.DataFrame({"smoker": [True] * 300 + [False] * 700, "ill": [True] * 1_000})
        >>> release = dps.release(plan, rows)
        >>> release.explain("not smoker").verdict, release.explain("ill").verdict
        ('derivable', 'out of reach')
        """
        from dpstats.bounds.explaining import explain

        release, options = cast("_Release", self), {"given": given, "minus": minus, "over": over}
        query = _named(release, query, *options.values())
        return explain(release._view, release._sources, query, **options, alpha=alpha)


def _named(release: _Release, query: Any, *options: str | None) -> Any:
    """The planned analysis that a text names, unless it reads as a condition.

    Raises
    ------
    ConditionError
        For a name that is neither a column nor one of a planned analysis.
    """
    if not isinstance(query, str) or any(options):
        return query
    planned = release._planned.requests
    try:
        Cells.condition(release.schema, query)
    except ConditionError as error:
        if query in planned:
            return release._planned.named(query)
        if planned and _LONE_NAME.fullmatch(query) and query.strip() not in release.schema:
            raise ConditionError(
                f"{excerpt(query)} names an unknown column, and no planned analysis"
                f"{did_you_mean(query, [*release.schema.names, *planned])}; columns: "
                f"{list(release.schema.names)}; planned: {list(planned)}; or write a "
                'condition, such as "age >= 65"'
            ) from error
    return query
