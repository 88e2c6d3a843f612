"""The certificate of a release, of all functions and of single analyses."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, Protocol, cast

from dpstats.analyses.base import Analysis, answered
from dpstats.analyses.registry import spelled
from dpstats.checks import short
from dpstats.error_rates import USUAL_BETA
from dpstats.errors import RequestError
from dpstats.measured.certificate import Accuracy, certify, certify_answers
from dpstats.measured.published import written
from dpstats.measured.radius import Radius
from dpstats.measured.view import ReleaseView

if TYPE_CHECKING:
    from dpstats.arrays import Codes
    from dpstats.measured.combining import Sources
    from dpstats.measured.measurements import Measurements
    from dpstats.releases.planned_analyses import PlannedAnalyses
    from dpstats.results.base import Result

MOST_PUBLISHED = 2_000  # functions of an analysis whose radius is published; more take long


class _Release(ReleaseView, Protocol):
    """What a release holds, besides what analyses see."""

    measurements: Measurements

    @property
    def counts(self) -> Codes:
        """How many rows are copies of each candidate."""

    @property
    def k(self) -> int:
        """Number of synthetic rows."""

    @property
    def analyses(self) -> dict[str, Analysis[Result]]:
        """Those of the plan."""

    @property
    def _sources(self) -> Sources: ...

    @property
    def _planned(self) -> PlannedAnalyses: ...


class Certified:
    """The methods of a release for its certificate."""

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

        Raises
        ------
        NotMeasuredError
            If the functions of the analysis do not follow from what was measured.

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
        release = cast("_Release", self)
        weights = release.counts / release.k if of == "rows" else release.weights
        target = "synthetic rows" if of == "rows" else "weighted candidates"
        if analysis is None:
            means = release.measurements.published.evaluate(release.candidates).average(weights)
            return certify(release._sources, means, alpha=alpha, target=target)
        named = isinstance(analysis, str)
        asked = release._planned.named(analysis) if isinstance(analysis, str) else analysis
        check_analysis("accuracy", asked)
        family = answered(asked, release.schema)
        return certify_answers(
            release.answers(family, with_count=True),
            family,
            family.evaluate(release.candidates).average(weights),
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
        check_analysis("radius", analysis)
        release, found = cast("_Release", self), self.accuracy(analysis, alpha=alpha)
        asked = release._planned.named(analysis) if isinstance(analysis, str) else analysis
        spectral = getattr(asked, "spectral_radius", None)
        shares = release.counts / release.k
        return Radius(
            analysis=found.analysis,
            names=tuple(found.names),
            values_of=found.joint_bounds,
            alpha=alpha,
            n=found.rows,
            spectral=None if spectral is None else spectral(self, shares, alpha),
            of_sums=found.of_sums,
            estimate=release._sources.rows.value,
            rows_per_person=release._sources.rows.rows_per_person,
        )

    @cached_property
    def _published(self) -> dict[str, Any]:
        """The certificate as it is written in the file and printed."""
        release, own = cast("_Release", self), {}
        for name, analysis in release.analyses.items():
            try:
                if answered(analysis, release.schema).size <= MOST_PUBLISHED:
                    own[name] = self.accuracy(analysis, alpha=USUAL_BETA)
            except Exception:  # one of another package may raise anything; the release is paid for
                continue
        return written(self._whole, own)

    @cached_property
    def _whole(self) -> Accuracy:
        """The certificate of all functions, at its usual level."""
        return self.accuracy()


def check_analysis(method: str, given: object) -> None:
    """Refuse what is neither the name of an analysis nor an analysis."""
    if not isinstance(given, str) and (isinstance(given, type) or not hasattr(given, "infer")):
        raise RequestError(
            f"{method} takes the name of an analysis, or an analysis with its parameters such as "
            f"dps.Proportion(\"smoker == 'yes'\"); got {short(given)}"
        )
