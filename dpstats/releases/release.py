"""Releases: measurements, weighted candidates, synthetic rows and their certificate."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args, overload

import numpy as np

from dpstats import files
from dpstats.analyses.base import Analysis, R, answered, possible_blocks
from dpstats.analyses.registry import analysis_from_dict, checked_result, family_of, spelled
from dpstats.analyses.second_stage import needs
from dpstats.arrays import Codes, Floats, freeze
from dpstats.caching import Cached
from dpstats.checks import (
    Method,
    Target,
    check_choice,
    check_interval,
    check_whole,
    counted,
    did_you_mean,
    short,
)
from dpstats.display import as_html
from dpstats.error_rates import USUAL_BETA, bonferroni
from dpstats.errors import ConditionError, FileFormatError, NotMeasuredError, RequestError
from dpstats.families.block import Block, Family
from dpstats.families.contrasts import Contrasts
from dpstats.families.tables.cells import Cells
from dpstats.measured.answers import Answers, answer
from dpstats.measured.candidates_file import candidates_from_members, candidates_to_members
from dpstats.measured.certificate import (
    MOST_PUBLISHED,
    Accuracy,
    certify,
    certify_answers,
    printed,
    written,
)
from dpstats.measured.combining import Sources
from dpstats.measured.contents import contents, lacking
from dpstats.measured.measurements import Measurements
from dpstats.measured.radius import Radius
from dpstats.measured.view import ReleaseView, View
from dpstats.privacy.budget import Budget
from dpstats.releases.interchange import CAUTION, croissant_of, limits, row_batches
from dpstats.results.base import INTERVAL_COLUMNS, Result
from dpstats.rows import reference_from_dict
from dpstats.rows.drawing import Draw, random_order
from dpstats.rows.generator import Fit, inference_density
from dpstats.schema import Schema
from dpstats.schema.column_fields import WEIGHT

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

    from dpstats.inference.simulation import Seed
    from dpstats.releases.draws import Draws
    from dpstats.results.bounds import Bounds
    from dpstats.results.explanation import Explanation

_KEYS = {
    "serves_inference", "dpstats", "version", "fit", "draw", "row_seed", "notes", "accuracy",
    "limits",
}  # fmt: skip


@dataclass(frozen=True, repr=False, eq=False)
class Release(Cached):
    """A differentially private release. Its arrays, and those of its results, are read-only.

    Attributes
    ----------
    measurements : Measurements
        Noisy sums with the law of their noise.
    candidates : mapping of column name to (m,) int64
        Distinct candidate rows, coded.
    weights : (m,) float64
        The fitted density on the candidates.
    counts : (m,) int64
        How many synthetic rows are copies of each candidate.
    fit, draw : str
        How the density was fitted and the rows were drawn.
    row_seed : int
        Of the order of the synthetic rows.
    notes : tuple of str
        Warnings, such as a fit that did not converge.
    serves_inference : bool
        Whether analyses use these candidates and weights. Else they use those that the default
        options give, fitted when first needed: results do not depend on how the rows were made.

    Examples
    --------
    >>> import dpstats as dps
    >>> import pandas as pd
    >>> schema = dps.Schema([dps.Boolean("smoker")])
    >>> plan = dps.plan(schema, {"smoking": dps.Proportion("smoker")}, budget=dps.PureDP(1))
    >>> rows = pd.DataFrame({"smoker": [True] * 3_000 + [False] * 7_000})
    >>> release = dps.release(plan, rows)
    >>> release
    <dpstats Release: smoking; n = 10000, k = 10000>
    >>> print(release.infer("smoking").conf_int().round(2))
    [0.29 0.31]
    >>> print(release.intervals().round(2))
      analysis    term  estimate  conf_low  conf_high
    0  smoking  smoker       0.3      0.29       0.31
    >>> release.accuracy(alpha=0.05).delta < 0.01
    True
    >>> release.to_frame().shape
    (10000, 1)
    >>> print(release.answers(dps.Proportion("smoker")).means.round(1))
    [0.3]
    >>> release.save("release.zip")
    >>> dps.load("release.zip") == release
    True
    """

    measurements: Measurements
    candidates: Mapping[str, Codes]
    weights: Floats
    counts: Codes
    fit: str
    draw: str
    row_seed: int = 0
    notes: tuple[str, ...] = ()
    serves_inference: bool = False

    def __post_init__(self) -> None:
        freeze(vars(self))

    @property
    def schema(self) -> Schema:
        """The public schema, including columns that were not asked for."""
        return self.measurements.schema

    @property
    def columns(self) -> Schema:
        """The columns of the synthetic rows: those that the plan's analyses touch."""
        return self.measurements.columns

    @cached_property
    def _sources(self) -> Sources:
        """The measurements with their tables combined, once for all answers."""
        return Sources(self.measurements)

    @cached_property
    def _view(self) -> ReleaseView:
        return _View(self)

    @property
    def n(self) -> int:
        """Number of private rows; where it is not public, the best estimate of it, at least 1."""
        return self._sources.rows.in_rows

    @property
    def k(self) -> int:
        """Number of synthetic rows."""
        return int(self.counts.sum())

    @property
    def budget(self) -> Budget:
        """The budget that was spent."""
        return self.measurements.budget

    @property
    def contrasts(self) -> Sequence[Contrasts]:
        """Contrasts between units of a survey that were measured."""
        return self._view.contrasts

    def _named(self, name: str) -> Analysis[Result]:
        """A planned analysis, read anew: its kind may have been registered since."""
        requests = self.measurements.requests
        if name not in requests:
            raise NotMeasuredError(
                f"this release has no analysis {name!r}{did_you_mean(name, requests)}; it has "
                f"{list(requests)}"
            )
        return analysis_from_dict(requests[name])

    @property
    def analyses(self) -> dict[str, Analysis[Result]]:
        """The planned analyses by name, except those in `unread`."""
        return read_analyses(self.measurements)[0]

    @property
    def unread(self) -> dict[str, str]:
        """Planned analyses that cannot be read here, by name, each with the reason.

        Their kind is not registered, or another version wrote their parameters. The rest of the
        release works without them.
        """
        return read_analyses(self.measurements)[1]

    def measured(self) -> pd.DataFrame:
        """List what was measured, block by block: what you can ask for.

        Any analysis that needs only these can be inferred, planned or not. Margins of a table, and
        conditions on its columns, follow from the table.

        Returns
        -------
        DataFrame
            Columns: kind (table, condition, moments, ...), columns, functions (their number),
            first_function (of a condition, the condition), options (of clipped moments: norm,
            centre and scale), noise_sd (median noise standard deviation of a mean of functions in
            [-1, 1]) and analyses (the planned ones it serves).

        Examples
        --------
        >>> import dpstats as dps
        >>> import pandas as pd
        >>> schema = dps.Schema([dps.Boolean("smoker"), dps.Boolean("ill")])
        >>> asked = {"link": dps.Independence("smoker", "ill"), "ill": dps.Proportion("ill")}
        >>> plan = dps.plan(schema, asked, budget=dps.PureDP(1))
        >>> rows = pd.DataFrame({"smoker": [True, False] * 5_000, "ill": [True] * 10_000})
        >>> measured = dps.release(plan, rows).measured()
        >>> print(measured[["kind", "columns", "functions", "analyses"]].to_string(index=False))
         kind     columns  functions  analyses
        table smoker, ill          4 link, ill
        """
        asked = {
            name: Family(
                (*needs(analysis, self.schema).blocks, *possible_blocks(analysis, self.schema))
            )
            for name, analysis in self.analyses.items()
        }
        return contents(self.measurements, self.answers, asked)

    def answers(
        self,
        wanted: Family | Block | Sequence[Block] | Analysis[Result],
        *,
        disjoint: bool = False,
        with_count: bool = False,
    ) -> Answers:
        """Noisy sums of the requested functions with the exact law of their noise.

        They use rules between columns, and public totals only as ``answers(...).with_totals``.

        Parameters
        ----------
        wanted : Family, block, sequence of blocks, or analysis
            For an analysis, the functions that it needs.
        disjoint : bool
            Answer every function of a block as a plain sum of measured ones from one block where
            they can be; then disjoint conditions have independent noise.
        with_count : bool
            Where the number of rows is not public, answer it too, after the wanted functions.

        Returns
        -------
        Answers

        Raises
        ------
        RequestError
            If `wanted` is something else.
        NotMeasuredError
            If they do not follow from what was measured.
        """
        return answer(self._sources, wanted, disjoint=disjoint, with_count=with_count)

    @overload
    def infer(self, analysis: str) -> Result: ...

    @overload
    def infer(self, analysis: Analysis[R]) -> R: ...

    def infer(self, analysis: str | Analysis[R]) -> Result | R:
        """Result of a planned analysis (by name), or of any other that the measurements determine.

        Parameters
        ----------
        analysis : str or Analysis

        Returns
        -------
        Result
            Of the class that the analysis declares, such as `PCAResult`.

        Raises
        ------
        NotMeasuredError
            For an unknown name, or for functions that were not measured: `measured` lists what was.
        RequestError
            For a planned analysis of a kind that is not registered, see `dps.register`, and for an
            analysis of your own that returns no `dps.Result`.

        Examples
        --------
        >>> import dpstats as dps
        >>> import pandas as pd
        >>> schema = dps.Schema([dps.Boolean("smoker")])
        >>> plan = dps.plan(schema, {"smoking": dps.Proportion("smoker")}, budget=dps.PureDP(1))
        >>> rows = pd.DataFrame({"smoker": [True] * 3_000 + [False] * 7_000})
        >>> release = dps.release(plan, rows)
        >>> smoking = release.infer("smoking")
        >>> print(f"{smoking.params[0]:.2f} +- {smoking.bse[0]:.4f}")
        0.30 +- 0.0046
        >>> others = release.infer(dps.Proportion("not smoker"))  # follows from what was measured
        >>> print(f"{others.params[0]:.2f}")
        0.70
        """
        latest, result = self._latest
        if analysis is not latest and not (isinstance(analysis, str) and analysis == latest):
            result = self._inferred(analysis)
            freeze(getattr(result, "__dict__", None))
            self._latest[:] = analysis, result
        inferred: Result = result
        return inferred

    @cached_property
    def _latest(self) -> list[Any]:
        """Last analysis that was inferred, and its result; a regression takes seconds."""
        return [object(), None]

    def _inferred(self, analysis: str | Analysis[R]) -> Result | R:
        if isinstance(analysis, str):
            return checked_result(self._named(analysis), self._view)
        _check_analysis("infer", analysis)
        try:
            return checked_result(analysis, self._view)
        except NotMeasuredError as error:
            family = analysis.family(self.schema)
            missing = lacking(self.measurements, self.answers, family)
            if error.__cause__ is not None or not missing:  # the analysis explains it better
                raise
        some = not family.column_names.isdisjoint(self.measurements.family.column_names)
        same = [
            f"{name!r} ({spelled(planned)})"
            for name, planned in self.analyses.items()
            if planned.family(self.schema).column_names == family.column_names
        ]
        raise NotMeasuredError(
            f"this release cannot answer {spelled(analysis)}: {missing}; ask the custodian to plan "
            "it"
            + (", or see release.bound for what the answers leave open" if some else "")
            + (f"; planned on the same columns: {', '.join(same)}" if same else "")
        )

    def intervals(
        self, *, alpha: float = 0.05, method: Method = "noise_aware", target: Target = "population"
    ) -> pd.DataFrame:
        """Intervals of all planned estimates that hold jointly with probability 1 - alpha.

        Every analysis gets an equal share of alpha (Bonferroni's inequality, for any dependence)
        and spends it jointly over its own parameters. Tests have no intervals and are not listed;
        an analysis that cannot be read here is skipped with a warning.

        Parameters
        ----------
        alpha : float
            Probability that any interval of the whole plan misses.
        method : {"noise_aware", "certified"}
        target : {"population", "table"}

        Returns
        -------
        DataFrame with columns analysis, term, estimate, conf_low, conf_high
            Without rows if there is no estimate.

        Raises
        ------
        RequestError
            If an option is out of its range.
        """
        import pandas as pd

        check_interval(alpha, method, target)
        for reason in self.unread.values():
            warnings.warn(reason, stacklevel=2)
        results = {name: self.infer(name) for name in self.analyses}
        estimates = {name: result for name, result in results.items() if result.has_intervals}
        each = bonferroni(alpha, max(len(estimates), 1))
        frames = []
        for name, result in estimates.items():
            frame = result.intervals_frame(
                alpha=each, method=method, target=target, simultaneous=True
            )
            frame.insert(0, "analysis", name)
            frames.append(frame)
        if not frames:
            return pd.DataFrame(columns=["analysis", *INTERVAL_COLUMNS])
        return pd.concat(frames, ignore_index=True)

    def accuracy(
        self,
        analysis: str | Analysis[Result] | None = None,
        *,
        alpha: float = 0.05,
        of: Literal["rows", "weights"] = "rows",
    ) -> Accuracy:
        """Certificate of the synthetic rows (or of the weighted candidates).

        Parameters
        ----------
        analysis : str or Analysis, optional
            Only the functions whose answers this analysis uses, at a level of their own: they hold
            jointly with probability 1 - alpha, whatever else was measured. Default: all measured
            functions. Both leave out what only calibrates intervals.
        alpha : float
            The certificate holds with probability at least 1 - alpha over the privacy noise.
        of : {"rows", "weights"}

        Returns
        -------
        Accuracy

        Raises
        ------
        NotMeasuredError
            If the functions of the analysis do not follow from what was measured.
        RequestError
            If an option is not known.

        Examples
        --------
        >>> import dpstats as dps
        >>> import pandas as pd
        >>> schema = dps.Schema([dps.Boolean("smoker"), dps.Number("age", 0, 99, missing=40)])
        >>> asked = {"smoking": dps.Proportion("smoker"), "age": dps.Mean("age")}
        >>> plan = dps.plan(schema, asked, budget=dps.PureDP(1))
        >>> rows = pd.DataFrame({"smoker": [True] * 3_000 + [False] * 7_000, "age": 50})
        >>> release = dps.release(plan, rows)
        >>> release.accuracy().names, release.accuracy("smoking").names
        (['smoker', 'age', 'age^2'], ['smoker'])
        """
        check_choice("of", of, ("rows", "weights"))
        weights = self.counts / self.k if of == "rows" else self.weights
        target = "synthetic rows" if of == "rows" else "weighted candidates"
        if analysis is None:
            means = self.measurements.published.evaluate(self.candidates).average(weights)
            return certify(self._sources, means, alpha=alpha, target=target)
        named = isinstance(analysis, str)
        asked = self._named(analysis) if isinstance(analysis, str) else analysis
        _check_analysis("accuracy", asked)
        family = answered(asked, self.schema)
        return certify_answers(
            self.answers(family, with_count=True),
            family,
            family.evaluate(self.candidates).average(weights),
            alpha=alpha,
            target=target,
            analysis=str(analysis) if named else spelled(asked),
        )

    def radius(self, analysis: str | Analysis[Result], *, alpha: float = USUAL_BETA) -> Radius:
        """How far means over the synthetic rows may be from the private ones, for one analysis.

        It is what someone who has only the rows needs, with n: see `dps.corrected`. Intervals at
        level 95% spend 5% on the radius and on sampling together, so the default level is 97.5%.

        Parameters
        ----------
        analysis : str or Analysis
            The radius is for the functions whose answers it uses.
        alpha : float
            Probability that some function (or a measured number of rows) is out of its bound.

        Returns
        -------
        Radius
            A mapping of function name to bound, in unit scale; ``radius.max`` is a single one.

        Raises
        ------
        NotMeasuredError
            If the functions of the analysis do not follow from what was measured.

        Examples
        --------
        >>> import dpstats as dps
        >>> import pandas as pd
        >>> schema = dps.Schema([dps.Boolean("smoker")])
        >>> plan = dps.plan(schema, {"smoking": dps.Proportion("smoker")}, budget=dps.PureDP(1))
        >>> rows = pd.DataFrame({"smoker": [True] * 3_000 + [False] * 7_000})
        >>> radius = dps.release(plan, rows).radius("smoking")
        >>> radius.level, radius["smoker"] < 0.001
        (0.975, True)
        """
        _check_analysis("radius", analysis)
        self._refuse_for_design("a radius")
        certificate = self.accuracy(analysis, alpha=alpha)
        asked = self._named(analysis) if isinstance(analysis, str) else analysis
        spectral = getattr(asked, "spectral_radius", None)
        shares = self.counts / self.k
        return Radius(
            analysis=certificate.analysis,
            names=tuple(certificate.names),
            values_of=certificate.joint_bounds,
            alpha=alpha,
            n=certificate.rows,
            spectral=None if spectral is None else spectral(self, shares, alpha),
            of_sums=certificate.of_sums,
            estimate=self._sources.rows.value,
            rows_per_person=self._sources.rows.rows_per_person,
        )

    @cached_property
    def _published(self) -> dict[str, Any]:
        """The certificate as it is written in the file and printed."""
        own = {}
        for name in self._planned_radii:
            analysis = self.analyses[name]
            try:
                if answered(analysis, self.schema).size <= MOST_PUBLISHED:
                    own[name] = self.accuracy(analysis, alpha=USUAL_BETA)
            except Exception:  # one of another package may raise anything; the release is paid for
                continue
        return written(self._whole, own)

    @property
    def _planned_radii(self) -> tuple[str, ...]:
        """Names of planned analyses that can have a radius; a survey has none."""
        return tuple(self.analyses) if self.schema.design is None else ()

    @cached_property
    def _whole(self) -> Accuracy:
        return self.accuracy()

    def bound(
        self,
        query: str | Analysis[Result] | Family | Block,
        *,
        given: str | None = None,
        minus: str | None = None,
        over: str | None = None,
        alpha: float = 0.05,
        target: Target = "table",
        totals: bool = False,
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
        totals : bool
            Also use the public totals of the table. Intervals are then shorter, and valid only if
            these totals are right, which the custodian asserts.

        Returns
        -------
        Bounds

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

        if target == "population":
            self._refuse_for_design("bound(target='population')")

        options = {"given": given, "minus": minus, "over": over}
        query = self._asked(query, *options.values())
        return bound(
            self._view, self._sources, query, **options, alpha=alpha, target=target, totals=totals
        )

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

        Returns
        -------
        Draws
            A sequence of `count` data frames.

        Raises
        ------
        RequestError
            If an option is out of its range.

        Notes
        -----
        A draw is computed when it is first used, by a fit of its own: about a second where 28
        tables of 1,600 cells were measured, eight where moments of numbers were too.

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
        from dpstats.releases.draws import MOST, Draws
        from dpstats.rows.plausible import PlausibleTables, seeds_of

        def tables_near() -> PlausibleTables:
            view = self._view
            return PlausibleTables.near(self._sources, view.candidates, np.asarray(view.weights))

        self._refuse_for_design("draws")
        check_whole("the number of draws", count, 2, MOST)
        tables = self._once("plausible tables", tables_near)
        return Draws(self.columns, tables, seeds_of(rng, count), self.n)

    def explain(
        self,
        query: str | Analysis[Result] | Family | Block,
        *,
        given: str | None = None,
        minus: str | None = None,
        over: str | None = None,
        alpha: float = 0.05,
        totals: bool = False,
    ) -> Explanation:
        """Say how much is known of a question: measured, derivable, bounded or out of reach.

        Parameters
        ----------
        query : str, Analysis, Family or block
            A condition, or what `bound` takes.
        given, minus, over : str, optional
            As in `bound`.
        alpha : float
            Of the certified intervals.
        totals : bool
            As in `bound`.

        Returns
        -------
        Explanation

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
        from dpstats.bounds.bounding import explain

        options = {"given": given, "minus": minus, "over": over}
        query = self._asked(query, *options.values())
        return explain(self._view, self._sources, query, **options, alpha=alpha, totals=totals)

    def _refuse_for_design(self, what: str) -> None:
        """Refuse what is valid for rows that were drawn independently, and not for a survey."""
        if self.schema.design is not None:
            raise RequestError(
                f"{what} takes rows as independent draws from the population, and this release is "
                "of a survey with a design: use infer; for the private table accuracy and bound"
            )

    def _asked(self, query: Any, *options: str | None) -> Any:
        """The planned analysis that a text names, unless it reads as a condition."""
        if isinstance(query, str) and query in self.measurements.requests and not any(options):
            try:
                Cells.condition(self.schema, query)
            except ConditionError:
                return self._named(query)
        return query

    def to_frame(self, *, weighted: bool = False) -> pd.DataFrame:
        """Synthetic rows in original units, only the columns that the plan's family touches.

        Rows come in a random order, the same as in ``rows.csv`` and in the saved release. Inside a
        bin of a number whose moments were not measured, values are spread evenly; nothing was
        learned about them. ``frame.attrs["caution"]`` says how the rows may be used.

        Parameters
        ----------
        weighted : bool
            Instead of rows, all candidates, sorted, with a last column ``_weight``. Their weights
            add up to one; in a survey to the size of the population by its weights.

        Returns
        -------
        DataFrame
            (k, columns), or (candidates, columns + 1) if `weighted`.
        """
        if weighted:
            design = self.schema.design
            size = 1.0 if design is None else self._sources.rows.estimate * design.unit_weight
            frame = self.schema.to_frame(self.candidates).assign(**{WEIGHT: size * self.weights})
        else:
            order = random_order(self.counts, self.row_seed)
            frame = self.schema.to_frame({name: c[order] for name, c in self.candidates.items()})
        frame.attrs["caution"] = CAUTION
        return frame

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """The synthetic rows for Arrow, polars, DuckDB and others, as in `to_frame`.

        Dates are ``date32``, text levels dictionaries, and so are levels beside "(missing)", as
        text; the metadata say how the rows may be used.

        Examples
        --------
        >>> import dpstats as dps
        >>> import pandas as pd
        >>> import pyarrow as pa
        >>> schema = dps.Schema([dps.Boolean("smoker")])
        >>> plan = dps.plan(schema, {"smoking": dps.Proportion("smoker")}, budget=dps.PureDP(1))
        >>> rows = pd.DataFrame({"smoker": [True] * 3_000 + [False] * 7_000})
        >>> pa.table(dps.release(plan, rows)).shape
        (10000, 1)
        """
        return self._batches().__arrow_c_stream__(requested_schema)

    def _batches(self) -> pa.RecordBatchReader:
        return row_batches(self.columns, self.candidates, self.counts, self.row_seed)

    def to_parquet(self, path: str | Path, *, overwrite: bool = False) -> None:
        """Write the synthetic rows to a Parquet file, a row group of 262,144 rows at a time.

        The same rows in the same order as in `to_frame`, with the types of ``__arrow_c_stream__``.
        In memory are the candidates, one row group, and 24 bytes for the place of each row.

        Parameters
        ----------
        path : str or Path
        overwrite : bool
            Replace an existing file, but never a ledger or measurements without their release.

        Raises
        ------
        RequestError
            If the file exists or cannot be written.

        Examples
        --------
        >>> import dpstats as dps
        >>> import pandas as pd
        >>> schema = dps.Schema([dps.Boolean("smoker")])
        >>> plan = dps.plan(schema, {"smoking": dps.Proportion("smoker")}, budget=dps.PureDP(1))
        >>> rows = pd.DataFrame({"smoker": [True] * 3_000 + [False] * 7_000})
        >>> dps.release(plan, rows).to_parquet("rows.parquet")
        >>> pd.read_parquet("rows.parquet").shape
        (10000, 1)
        """
        import pyarrow.parquet as pq

        rows = self._batches()
        with (
            files.written_in_parts(path, overwrite=overwrite) as file,
            pq.ParquetWriter(file, rows.schema) as writer,
        ):
            for batch in rows:
                writer.write_batch(batch)

    def to_croissant(
        self, name: str, *, file: str | Path | None = None, **details: str
    ) -> dict[str, Any]:
        """A description of the release in Croissant 1.0 (JSON-LD), for catalogues of data sets.

        It holds the budget, the columns with their levels, and how the rows may be used; nothing
        that the release does not publish.

        Parameters
        ----------
        name : str
            Of the data set.
        file : path, optional
            The saved release, whose name and SHA-256 go into the description; by default those
            that `save` would write to ``{name}.zip``.
        **details : str
            Further properties of schema.org, such as ``license=``, ``url=``, ``creator=``,
            ``datePublished=`` and ``version=``.

        Returns
        -------
        dict
            Write it with `json.dump`; ``dpstats show survey.zip --croissant`` prints it.

        Examples
        --------
        >>> import dpstats as dps
        >>> import pandas as pd
        >>> schema = dps.Schema([dps.Boolean("smoker")])
        >>> plan = dps.plan(schema, {"smoking": dps.Proportion("smoker")}, budget=dps.PureDP(1))
        >>> rows = pd.DataFrame({"smoker": [True] * 3_000 + [False] * 7_000})
        >>> described = dps.release(plan, rows).to_croissant("survey", license="CC-BY-4.0")
        >>> described["recordSet"][0]["field"][0]["dataType"]
        'sc:Boolean'
        """
        data = self.to_bytes() if file is None else files.read_bytes(file)
        return croissant_of(
            self.measurements,
            self.columns,
            self.k,
            name,
            archive=f"{name}.zip" if file is None else Path(file).name,
            digest=files.digest_of_bytes(data),
            limitations=[CAUTION, limits(self.measurements.neighbours)],
            details=details,
        )

    def save(self, path: str | Path, *, overwrite: bool = False) -> None:
        """Write a zip archive of JSON and CSV; only what was released, nothing executable.

        It holds the measurements, the candidates (codes, weights, counts) and, for use in other
        programs, the synthetic rows in original units as ``rows.csv``.

        Parameters
        ----------
        path : str or Path
        overwrite : bool
            Replace an existing file, but never a ledger or measurements without their release.

        Raises
        ------
        RequestError
            If the file exists or cannot be written.
        """
        with files.reserved(path, overwrite=overwrite) as write:  # before the texts are made
            write(self.to_bytes())

    def to_bytes(self) -> bytes:
        """The bytes that `save` writes."""
        return files.pack(self._members())

    def _members(self) -> dict[str, str]:
        document = {
            "dpstats": "release",
            "version": files.VERSION,
            "fit": self.fit,
            "draw": self.draw,
            "row_seed": self.row_seed,
            "serves_inference": self.serves_inference,
            "notes": list(self.notes),
            "accuracy": self._published,
            "limits": limits(self.measurements.neighbours),
        }
        return {
            "release.json": files.to_json(document),
            **self.measurements.to_members(),
            **candidates_to_members(
                self.columns,
                self.candidates,
                self.weights,
                self.counts,
                random_order(self.counts, self.row_seed),
            ),
        }

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Release):
            return NotImplemented
        return self._members() == other._members()

    def __hash__(self) -> int:
        return hash(self.measurements)

    def __str__(self) -> str:
        held = self.measurements
        lines = [
            f"Release: {counted(len(held.noisy_sums), 'noisy answer')} from "
            f"{'' if held.rows.rows_public else 'about '}{counted(self.n, 'private row')}, "
            f"{counted(self.k, 'synthetic row')} ({self._origin()})",
            *held.summary_lines(),
            *(
                f"Note: {note}"
                for note in self._sources.with_constraints("totals").constraint_notes(())
            ),
            *(f"Note: {reason}" for reason in self.unread.values()),
            *(f"Note: {note}" for note in self.notes),
            *printed(self._published, self._whole, self._planned_radii),
        ]
        return "\n".join([*lines, limits(held.neighbours)])

    def _origin(self) -> str:
        if self.fit == "entropy" and self.measurements.reference_spec.get("kind") == "log_linear":
            return "from the log-linear model"
        return f"{self.draw}, {self.fit} fit on {counted(len(self.weights), 'candidate')}"

    def _repr_html_(self) -> str:
        return as_html("dpstats release", str(self).splitlines())

    def __repr__(self) -> str:
        names = ", ".join(self.measurements.requests)
        return f"<dpstats Release: {names}; n = {self.n}, k = {self.k}>"


def read_analyses(measurements: Measurements) -> tuple[dict[str, Analysis[Result]], dict[str, str]]:
    """The analyses asked for that can be read here by name, and the reasons for the others."""
    analyses, unread = {}, {}
    for name, plain in measurements.requests.items():
        try:
            analysis = analysis_from_dict(plain)
            family_of(analysis, measurements.schema)
            analyses[name] = analysis
        except RequestError as error:
            unread[name] = f"analysis {name!r} cannot be read here: {error}"
    return analyses, unread


class _View(View):
    """View of a release, whose density follows from the answers alone; it is fitted when used."""

    def __init__(self, release: Release) -> None:
        super().__init__(release._sources, release.n)
        self._release = release

    @cached_property
    def _density(self) -> tuple[Mapping[str, Codes], Floats]:
        if self._release.serves_inference:
            return self._release.candidates, self._release.weights
        candidates, weights = inference_density(self._release.measurements)
        return candidates.codes, weights

    @property
    def candidates(self) -> Mapping[str, Codes]:  # type: ignore[override]
        """Points of the density, (m,) codes per column."""
        return self._density[0]

    @property
    def weights(self) -> Floats:  # type: ignore[override]
        """Their weights (m,)."""
        return self._density[1]


def _check_analysis(method: str, given: object) -> None:
    if not isinstance(given, str) and (isinstance(given, type) or not hasattr(given, "infer")):
        raise RequestError(
            f"{method} takes the name of an analysis, or an analysis with its parameters such as "
            f"dps.Proportion(\"smoker == 'yes'\"); got {short(given)}"
        )


def load(path: str | Path) -> Release:
    """Read a release file.

    Parameters
    ----------
    path : str or Path
        File that `Release.save` wrote.

    Returns
    -------
    Release

    Raises
    ------
    FileFormatError
        If the file is not a release that this version can read.

    Examples
    --------
    >>> import dpstats as dps
    >>> import pandas as pd
    >>> schema = dps.Schema([dps.Boolean("smoker")])
    >>> plan = dps.plan(schema, {"smoking": dps.Proportion("smoker")}, budget=dps.PureDP(1))
    >>> rows = pd.DataFrame({"smoker": [True] * 3_000 + [False] * 7_000})
    >>> release = dps.release(plan, rows)
    >>> release.save("survey-2026.zip")
    >>> dps.load("survey-2026.zip")
    <dpstats Release: smoking; n = 10000, k = 10000>
    """
    members = files.load_archive(path, files.RELEASE)
    document = files.from_json(members["release.json"], "release", Path(path).name)
    measurements = Measurements.from_members(members)
    try:
        fit, draw, notes = document["fit"], document["draw"], document["notes"]
        if fit not in get_args(Fit) or draw not in get_args(Draw):
            raise ValueError("fit and draw must name ways in which dpstats makes rows")
        if type(notes) is not list or not all(isinstance(note, str) for note in notes):
            raise TypeError("notes must be a list of texts")
        row_seed = document.get("row_seed", 0)
        if type(row_seed) is not int or row_seed < 0:
            raise TypeError("row_seed must be a whole number of at least 0")
        if not (isinstance(document["accuracy"], dict) and isinstance(document["limits"], str)):
            raise TypeError("accuracy must be a mapping and limits a text")
        if unknown := set(document) - _KEYS:
            raise ValueError(f"release.json has unknown keys {sorted(unknown)}")
        serves = document.get("serves_inference", False)
        if type(serves) is not bool:
            raise TypeError("serves_inference must be true or false")
        if not all(isinstance(plain["kind"], str) for plain in measurements.requests.values()):
            raise TypeError("every analysis needs a kind")
        reference_from_dict(measurements.reference_spec)
        candidates, weights, counts = candidates_from_members(members, measurements.columns)
        order = (
            random_order(counts, row_seed)
            if "row_seed" in document  # else rows are sorted, as they were before
            else np.repeat(np.arange(len(counts)), counts)
        )
        written = candidates_to_members(measurements.columns, candidates, weights, counts, order)
        if changed := [name for name, text in written.items() if members[name] != text]:
            raise ValueError(f"{changed[0]} does not hold the candidates and rows of the release")
    except (KeyError, TypeError, ValueError, IndexError, OverflowError) as error:
        raise FileFormatError(f"{Path(path).name} is damaged: {error}") from None
    return Release(
        measurements, candidates, weights, counts, fit, draw, row_seed, tuple(notes), serves
    )
