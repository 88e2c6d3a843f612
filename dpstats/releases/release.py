"""Releases: measurements, weighted candidates, synthetic rows and their certificate."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from dpstats import files
from dpstats.analyses.base import Analysis, R
from dpstats.analyses.person_totals import possible_blocks
from dpstats.analyses.registry import spelled
from dpstats.analyses.second_stage import needs
from dpstats.arrays import Codes, Floats
from dpstats.caching import Cached
from dpstats.checks import (
    Method,
    Target,
    check_alpha,
    check_method,
    check_target,
    counted,
)
from dpstats.density.rows import random_order
from dpstats.display import as_html
from dpstats.error_rates import bonferroni
from dpstats.errors import NotMeasuredError
from dpstats.families.block import Block, Family
from dpstats.measured.answers import Answers, answer
from dpstats.measured.candidates_file import candidates_to_members
from dpstats.measured.combining import Sources
from dpstats.measured.contents import contents, lacking
from dpstats.measured.measurements import Measurements
from dpstats.measured.published import printed
from dpstats.measured.view import ReleaseView
from dpstats.privacy.budget import Budget
from dpstats.references.generator import inference_density
from dpstats.releases.certified import Certified, check_analysis
from dpstats.releases.interchange import CAUTION, Interchange, limits
from dpstats.releases.planned_analyses import PlannedAnalyses
from dpstats.releases.unplanned import Unplanned
from dpstats.results.base import INTERVAL_COLUMNS, Result
from dpstats.schema import Schema

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, repr=False, eq=False)
class Release(Cached, Certified, Unplanned, Interchange):
    """A differentially private release.

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
        """What analyses get."""
        return _View(self)

    @property
    def n(self) -> int:
        """Number of private rows; where it is not public, the best estimate of it, at least 1."""
        return self._sources.rows.value

    @property
    def k(self) -> int:
        """Number of synthetic rows."""
        return int(self.counts.sum())

    @property
    def budget(self) -> Budget:
        """The budget that was spent."""
        return self.measurements.budget

    @property
    def _planned(self) -> PlannedAnalyses:
        return PlannedAnalyses(self.measurements.requests, self.schema)

    @property
    def analyses(self) -> dict[str, Analysis[Result]]:
        """The planned analyses by name, except those in `unread`."""
        return self._planned.read()[0]

    @property
    def unread(self) -> dict[str, str]:
        """Planned analyses that cannot be read here, by name, each with the reason.

        Their kind is not registered, or another version wrote their parameters. The rest of the
        release works without them.
        """
        return self._planned.read()[1]

    def measured(self) -> pd.DataFrame:
        """What you can ask for: what was measured, block by block.

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
            name: Family((*needs(one, self.schema).blocks, *possible_blocks(one, self.schema)))
            for name, one in self.analyses.items()
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

        Parameters
        ----------
        wanted : Family, block, sequence of blocks, or analysis
            For an analysis, the functions that it needs.
        disjoint : bool
            Answer every function of a block as a plain sum of measured ones from one block where
            they can be; then disjoint conditions have independent noise.
        with_count : bool
            Where the number of rows is not public, answer it too, after the wanted functions.

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
            For a planned analysis of a kind that is not registered, see `dps.register`.

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
            self._latest[:] = analysis, result
        found: Result = result
        return found

    @cached_property
    def _latest(self) -> list[Any]:
        """Last analysis that was inferred, and its result; a regression takes seconds."""
        return [object(), None]

    def _inferred(self, analysis: str | Analysis[R]) -> Result | R:
        if isinstance(analysis, str):
            return self._planned.named(analysis).infer(self._view)
        check_analysis("infer", analysis)
        try:
            return analysis.infer(self._view)
        except NotMeasuredError as error:
            family = analysis.family(self.schema)
            missing = lacking(self.measurements, self.answers, family)
            if error.__cause__ is not None or not missing:  # the analysis explains it better
                raise
        some = not family.column_names.isdisjoint(self.measurements.family.column_names)
        same = self._planned.about(family.column_names)
        raise NotMeasuredError(
            f"this release cannot answer {spelled(analysis)}: {missing}; ask the custodian to plan "
            "it"
            + (", or see release.bound for what the answers leave open" if some else "")
            + (f"; planned on the same columns: {', '.join(same)}" if same else "")
        )

    def intervals(
        self,
        *,
        alpha: float = 0.05,
        method: Method = "noise_aware",
        target: Target = "population",
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

        check_alpha(alpha)
        check_method(method)
        check_target(target)
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

    def to_frame(self, *, weighted: bool = False) -> pd.DataFrame:
        """Synthetic rows in original units, only the columns that the plan's family touches.

        Rows come in a random order, the same as in ``rows.csv`` and in the saved release. Inside a
        bin of a number whose moments were not measured, values are spread evenly; nothing was
        learned about them. ``frame.attrs["caution"]`` says how the rows may be used.

        Parameters
        ----------
        weighted : bool
            Instead of rows, all candidates, sorted, with a last column ``_weight``.
        """
        if weighted:
            frame = self.schema.to_frame(self.candidates).assign(_weight=self.weights)
        else:
            order = random_order(self.counts, self.row_seed)
            frame = self.schema.to_frame({name: c[order] for name, c in self.candidates.items()})
        frame.attrs["caution"] = CAUTION
        return frame

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
        """What `save` writes."""
        return files.pack(self._members())

    def _members(self) -> dict[str, str]:
        """The texts of the archive, by member name."""
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
            f"{'' if held.rows.public else 'about '}{counted(self.n, 'private row')}, "
            f"{counted(self.k, 'synthetic row')} ({self._origin()})",
            *held.summary_lines(),
            *(f"Note: {reason}" for reason in self.unread.values()),
            *(
                f"Note: {note}"
                for note in (*self._planned.notes(self.measurements.published), *self.notes)
            ),
            *printed(self._published, self._whole),
        ]
        return "\n".join([*lines, limits(held.neighbours)])

    def _origin(self) -> str:
        """Where the rows come from."""
        if self.fit == "entropy" and self.measurements.reference_spec.get("kind") == "log_linear":
            return "from the log-linear model"
        return f"{self.draw}, {self.fit} fit on {counted(len(self.weights), 'candidate')}"

    def _repr_html_(self) -> str:
        return as_html("dpstats release", str(self).splitlines())

    def __repr__(self) -> str:
        names = ", ".join(self.measurements.requests)
        return f"<dpstats Release: {names}; n = {self.n}, k = {self.k}>"


class _View:
    """A release as analyses see it: its answers, and a density that follows from them alone."""

    def __init__(self, release: Release) -> None:
        self._release = release
        self.schema, self.n, self.budget = release.schema, release.n, release.budget

    def answers(
        self,
        wanted: Family | Block | Sequence[Block],
        *,
        disjoint: bool = False,
        with_count: bool = False,
    ) -> Answers:
        """Noisy sums of functions; see `Release.answers`."""
        return self._release.answers(wanted, disjoint=disjoint, with_count=with_count)

    @cached_property
    def _density(self) -> tuple[Mapping[str, Codes], Floats]:
        if self._release.serves_inference:
            return self._release.candidates, self._release.weights
        candidates, weights = inference_density(self._release.measurements)
        return candidates.codes, weights

    @property
    def candidates(self) -> Mapping[str, Codes]:
        """Points of the density, (m,) codes per column."""
        return self._density[0]

    @property
    def weights(self) -> Floats:
        """Their weights (m,)."""
        return self._density[1]
