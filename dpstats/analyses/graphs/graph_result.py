"""Results of graphical models: partial correlations, edges and their certified verdicts."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from dpstats.analyses.graphs.pair_intervals import PartialIntervals
from dpstats.analyses.moments.correlation import symmetric
from dpstats.arrays import Floats
from dpstats.checks import (
    Alternative,
    Method,
    Target,
    check_alpha,
    check_choice,
    check_target,
    counted,
)
from dpstats.error_rates import USUAL_ALPHA, percent
from dpstats.errors import RequestError
from dpstats.results.estimates import EstimateResult
from dpstats.results.hypothesis import ADJUSTED, Adjustment, adjusted
from dpstats.results.named import Named
from dpstats.results.rendering import MOST, Page, brief_list

if TYPE_CHECKING:
    import networkx
    import pandas as pd

_ATTRIBUTES = ("p_value", "certified", "verdict", "tested")  # of an edge, besides its weight


class PairGraph(ABC):
    """The pairs of p columns, row by row of the upper triangle, and those that are edges."""

    figures: ClassVar[tuple[str, ...]] = ("network",)
    measure: ClassVar[str] = "partial correlation"  # of a pair, as `dps.plots.matrix` names it

    columns: tuple[str, ...]

    @abstractmethod
    def pairs(self) -> pd.DataFrame:
        """All pairs of columns, edges or not.

        Returns
        -------
        DataFrame
            Columns first, second and estimate; of a `GraphResult` also ``tested``.
        """

    @abstractmethod
    def edges(self) -> pd.DataFrame:
        """The edges, strongest first: columns first, second, estimate and further ones."""

    @abstractmethod
    def _network(
        self, *, alpha: float, adjust: Any, target: Target, penalty: float | None = None
    ) -> tuple[pd.DataFrame, str]:
        """The lines and the title of `dps.plots.network`, from its options.

        A frame with columns first, second, estimate, and basis: what a line rests on.
        """

    def joined(self, **options: Any) -> pd.DataFrame:
        """The edges of `to_networkx`."""
        return self.edges(**options)

    @property
    def matrix(self) -> pd.DataFrame:
        """Estimates of all pairs as a symmetric (p, p) frame, ones on the diagonal."""
        import pandas as pd

        values = symmetric(self.pairs()["estimate"].to_numpy(), len(self.columns))
        return pd.DataFrame(values, index=self.columns, columns=self.columns)

    def to_networkx(self, **options: Any) -> networkx.Graph[str]:
        """The edges as a networkx graph of the columns.

        Every edge has the attribute ``weight``, the estimate, and where the result has them
        ``p_value``, ``certified``, ``verdict`` and ``tested``: False for a pair of a declared graph
        (``separators=``) that is certified present.

        Parameters
        ----------
        **options
            Those of `edges`.

        Returns
        -------
        networkx.Graph
            All columns are nodes.

        Raises
        ------
        RequestError
            If networkx is not installed, or as `edges` does.
        """
        try:
            import networkx
        except ImportError:
            raise RequestError(
                "to_networkx() needs networkx; install it with: pip install 'dpstats[graphs]'"
            ) from None
        graph: networkx.Graph[str] = networkx.Graph()
        graph.add_nodes_from(self.columns)
        for row in self.joined(**options).to_dict("records"):
            attributes = {name: row[name] for name in _ATTRIBUTES if name in row}
            kept = {name: value for name, value in attributes.items() if value == value}  # no nan
            graph.add_edge(row["first"], row["second"], weight=row["estimate"], **kept)
        return graph


def pair_names(columns: tuple[str, ...], *, own: bool = False) -> dict[str, np.ndarray[Any, Any]]:
    """Columns first and second (d,) of a frame of pairs; with `own` also every column with itself.

    Examples
    --------
    >>> {side: names.tolist() for side, names in pair_names(("a", "b", "c")).items()}
    {'first': ['a', 'a', 'b'], 'second': ['b', 'c', 'c']}
    """
    names = np.array(columns, dtype=object)
    first, second = np.triu_indices(len(columns), 0 if own else 1)
    return {"first": names[first], "second": names[second]}


def strongest_first(pairs: pd.DataFrame) -> pd.DataFrame:
    """The rows by the size of their estimates."""
    order = pairs["estimate"].abs().sort_values(ascending=False, kind="stable").index
    return pairs.loc[order]


@dataclass(frozen=True, repr=False, eq=False)
class GraphResult(PairGraph, EstimateResult):
    """Partial correlations of all pairs of columns, given all other columns, and their edges.

    Parameters are partial correlations, one per pair of columns, row by row of the upper triangle.

    Attributes
    ----------
    columns : tuple of str
    location_ : (p,) float64
        Noisy means, original units.
    precision_ : (p, p) float64
        Precision matrix, original units; of the covariance matrix with divisor n - 1, and nan if
        that is nearly singular at this noise.
    covariance_ : (p, p) float64
        Noisy covariance matrix, original units, divisor n - 1; `precision_` is the inverse of one
        with the bias of the noise taken off.
    units : (p,) float64
        Original units in one of each column.
    tolerance : float or None
        An edge with a partial correlation below it counts as absent.
    tested : (d,) bool
        The pairs that have a p-value.
    advice : str
        What a plan could do for less noise, or "".
    adjust : {"holm", "fdr_bh", "none"}
        Of `pvalues` and of the text, see `adjusted_pvalues`.

    Examples
    --------
    >>> import dpstats as dps
    >>> import numpy as np
    >>> import pandas as pd
    >>> schema = dps.Schema([dps.Number(name, -3, 3, missing=0) for name in ("a", "b", "c")])
    >>> graph = dps.GraphicalModel(["a", "b", "c"], tolerance=0.2)
    >>> plan = dps.plan(schema, {"graph": graph}, budget=dps.PureDP(5))
    >>> z = np.random.default_rng(0).standard_normal((20_000, 3))
    >>> rows = pd.DataFrame(z @ [[1, 0.8, 0.4], [0, 0.6, 0.3], [0, 0, 0.8]], columns=list("abc"))
    >>> result = dps.release(plan, rows, m=2_000).infer(graph)
    >>> result.terms
    ['a, b', 'a, c', 'b, c']
    >>> result.edges().head(2)["term"].tolist()
    ['a, b', 'b, c']
    >>> result.precision_.shape
    (3, 3)
    >>> len(result.verdicts()), result.pairs().shape, result.precision().shape[0]
    (3, (3, 4), 6)
    >>> print(result.adjusted_pvalues("holm")[0] < 0.001, ("a", "b") in result.to_networkx().edges)
    True True
    """

    interval_of: ClassVar[str] = "partial correlations"
    null_value = 0.0

    columns: tuple[str, ...] = ()
    location_: Floats = ()  # type: ignore[assignment]
    precision_: Floats = ()  # type: ignore[assignment]
    covariance_: Floats = ()  # type: ignore[assignment]
    units: Floats = ()  # type: ignore[assignment]
    tolerance: float | None = None
    tested: np.ndarray[tuple[int], np.dtype[np.bool_]] = field(
        default_factory=lambda: np.ones(0, dtype=bool)
    )
    advice: str = ""
    adjust: Adjustment = "holm"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("adjust", self.adjust, list(ADJUSTED))

    @property
    def headline(self) -> str:
        """The number of edges, and the strongest pairs with their 95% intervals."""
        if not self.known:
            return "nearly singular: no estimates"
        order = np.argsort(-np.abs(np.asarray(self.params)), kind="stable")
        terms = [self.terms[i] for i in order]
        pairs = brief_list(
            terms, np.asarray(self.params)[order], np.asarray(self.conf_int())[order]
        )
        edges = counted(self._found(USUAL_ALPHA), "edge")
        return f"{edges} of {counted(int(self.tested.sum()), 'pair')}; {pairs}"

    def _found(self, alpha: float) -> int:
        return int(np.sum(np.asarray(self.pvalues)[self.tested] <= alpha))

    @property
    def _graph(self) -> PartialIntervals:
        assert isinstance(self.intervals, PartialIntervals)
        return self.intervals

    @property
    def known(self) -> bool:
        """True if the precision matrix was estimated; False if it is nearly singular."""
        return not self._graph.precision.singular

    @property
    def partial_correlation_(self) -> Floats:
        """(p, p) partial correlations, ones on the diagonal."""
        return symmetric(np.asarray(self.params), len(self.columns))

    def _pvalue(self, i: int, value: float, alternative: Alternative) -> float:
        if not self.tested[i]:
            raise RequestError(
                f"the pair {self.terms[i]!r} is not tested: it is in the graph that separators= "
                "declares, or was added to triangulate it, and only pairs outside have a p-value; "
                "read its interval with conf_int()"
            )
        return super()._pvalue(i, value, alternative)

    @cached_property
    def p_unadjusted(self) -> Named:
        """(d,) noise-aware p-values that each partial correlation is zero; nan if not tested."""
        pvalues = self._graph.pvalues(0.0, "two-sided")
        return Named(np.where(self.tested, pvalues, np.nan), self.terms)

    @property
    def pvalues(self) -> Named:
        """(d,) p-values, adjusted as `adjust` says."""
        return self.adjusted_pvalues(self.adjust)

    def adjusted_pvalues(self, adjust: Adjustment = "holm") -> Named:
        """P-values, adjusted for the number of tested pairs.

        Parameters
        ----------
        adjust : {"holm", "fdr_bh", "none"}
            Holm's method bounds the probability of any false edge, under any dependence of the
            pairs; Benjamini and Hochberg's the expected share of false edges among those found,
            for independent or positively dependent pairs.

        Returns
        -------
        (d,) Named
            Nan for pairs that are not tested.

        Raises
        ------
        RequestError
            For another method.
        """
        check_choice("adjust", adjust, list(ADJUSTED))
        raw = np.asarray(self.p_unadjusted)
        return self._once(adjust, lambda: Named(adjusted(raw, adjust), self.terms))

    @property
    def testable(self) -> bool:
        """True if there is a single pair, so that `test` need not name one."""
        return len(self.terms) == 1

    def pairs(self) -> pd.DataFrame:  # noqa: D102, inherited
        import pandas as pd

        columns = {"estimate": np.asarray(self.params), "tested": self.tested}
        return pd.DataFrame({**pair_names(self.columns), **columns})

    def edges(
        self,
        *,
        alpha: float = USUAL_ALPHA,
        adjust: Adjustment = "holm",
        target: Target = "population",
    ) -> pd.DataFrame:
        """The pairs with an adjusted p-value of at most alpha, strongest first.

        Parameters
        ----------
        alpha, adjust, target :
            As in `adjusted_pvalues` and `verdicts`. Tests are of the population in any case.

        Returns
        -------
        DataFrame
            The rows of `to_frame` of these pairs.
        """
        check_alpha(alpha)
        frame = self.to_frame(alpha=alpha, adjust=adjust)
        if target != "population":
            frame["certified"] = self.verdicts(alpha=alpha, target=target)
        edges = frame[frame["p_value"] <= alpha]
        return strongest_first(edges).reset_index(drop=True)

    def joined(self, **options: Any) -> pd.DataFrame:
        """The edges, and pairs that are not tested but certified present: what pictures show.

        The frame is that of `edges`, which has the options, and a column ``tested``.
        """
        import pandas as pd

        edges = self.edges(**options).assign(tested=True)
        level = {name: options[name] for name in ("alpha",) if name in options}
        target = {name: options[name] for name in ("target",) if name in options}
        present = np.asarray(self.verdicts(**level, **target)) == "present"
        frame = self.to_frame(**level).assign(certified="present", tested=False)
        parts = [part for part in (edges, frame[present & ~self.tested]) if len(part)]
        return pd.concat(parts, ignore_index=True) if parts else edges

    def _network(
        self, *, alpha: float, adjust: Any, target: Target, penalty: float | None = None
    ) -> tuple[pd.DataFrame, str]:
        """The lines and the title of `dps.plots.network`: `joined`, and pairs not tested."""
        import pandas as pd

        found = self.joined(alpha=alpha, adjust=adjust, target=target)
        certified = found["certified"] == "present"
        found = found.assign(basis=np.where(certified, "certified", "by a test"))
        pairs = self.pairs().assign(term=self.terms, basis="not tested")
        others = pairs[~pairs["tested"] & ~pairs["term"].isin(found["term"])]
        tested = counted(int(self.tested.sum()), "tested pair")
        title = f"{counted(int(found['tested'].sum()), 'edge')} of {tested}"
        if declared := int((~found["tested"] & certified).sum()):
            title += f", {counted(declared, 'declared pair')} certified"
        title += f", level {alpha:g}"
        if not self.known:
            title = "nearly singular: no edges can be tested"
        return pd.concat([part for part in (others, found) if len(part)] or [found]), title

    def verdicts(self, *, alpha: float = USUAL_ALPHA, target: Target = "population") -> list[str]:
        """Certified verdicts on all pairs: present, absent, or undecided.

        They assume nothing about the rows, and all of them are right with probability 1 - alpha.

        Parameters
        ----------
        alpha, target :
            As in `conf_int`.

        Returns
        -------
        list of str
            "absent": the certified interval lies within `tolerance`. "present": it excludes 0.
        """
        check_alpha(alpha)
        check_target(target)
        return list(self._graph.verdicts(alpha, target, self.tolerance))

    def to_frame(
        self,
        *,
        alpha: float = USUAL_ALPHA,
        method: Method = "noise_aware",
        target: Target = "population",
        adjust: Adjustment = "holm",
    ) -> pd.DataFrame:
        """One row per pair of columns.

        Parameters
        ----------
        alpha, method, target :
            As in `conf_int`.
        adjust : {"holm", "fdr_bh", "none"}
            As in `adjusted_pvalues`.

        Returns
        -------
        DataFrame
            The columns of `EstimateResult.to_frame`, with adjusted p-values; ``first`` and
            ``second``, the columns of the pair; ``p_unadjusted``, for the population;
            ``certified``, the verdict.
        """
        frame = super().to_frame(alpha=alpha, method=method, target=target)
        frame = frame.assign(**pair_names(self.columns))
        if target == "population":
            frame = frame.assign(
                statistic=self._graph.statistics(),
                p_value=np.asarray(self.adjusted_pvalues(adjust)),
                p_unadjusted=np.asarray(self.p_unadjusted),
            )
        return frame.assign(certified=self.verdicts(alpha=alpha, target=target))

    def precision(
        self, *, alpha: float = USUAL_ALPHA, target: Target = "population"
    ) -> pd.DataFrame:
        """Entries of the precision matrix with certified limits, which hold jointly.

        Parameters
        ----------
        alpha, target :
            As in `conf_int`; alpha is the probability that one of the limits fails.

        Returns
        -------
        DataFrame
            Columns first, second, estimate, conf_low, conf_high: the upper triangle row by row,
            original units; infinite limits where the noise is too large for any.
        """
        import pandas as pd

        check_alpha(alpha)
        check_target(target)
        p = len(self.columns)
        low, high = (ends[:p, :p] for ends in self._graph.precision.bounds(alpha, target))
        scale = np.outer(self.units, self.units)
        i, j = np.triu_indices(p)
        columns = {**pair_names(self.columns, own=True), "estimate": self.precision_[i, j]}
        ends = {"conf_low": (low / scale)[i, j], "conf_high": (high / scale)[i, j]}
        return pd.DataFrame({**columns, **ends})

    def summary(
        self,
        *,
        alpha: float = USUAL_ALPHA,
        target: Target = "population",
        most: int = MOST,
        simultaneous: bool = False,
        adjust: Adjustment | None = None,
    ) -> str:
        """Text table, the strongest pairs first.

        Parameters
        ----------
        alpha, target, most, simultaneous :
            As in `EstimateResult.summary`.
        adjust : {"holm", "fdr_bh", "none"}, optional
            Of the p-values; default: that of the result.

        Returns
        -------
        str
        """
        chosen = self if adjust is None else replace(self, adjust=adjust)
        return chosen._page(alpha, target, most, simultaneous).text()

    def _page(self, alpha: float, target: Target, most: int, simultaneous: bool = False) -> Page:
        page = super()._page(alpha, target, most, simultaneous)
        if not self.known:
            return replace(page, header=(), rows=())
        names = {"t": "z", "P>|t|": f"P>|z| ({ADJUSTED[self.adjust][0]})"}
        header = [names.get(cell, cell) for cell in page.header]
        return replace(page, header=header, after=[*page.after, *self._entries(alpha, target)])

    def _entries(self, alpha: float, target: Target) -> list[str]:
        """A note where no partial correlation is certified, but entries of the matrix are."""
        low, high = np.asarray(self.conf_int(alpha=alpha, method="certified", target=target)).T
        bounds = self._graph.precision.bounds(alpha, target)
        if (low > -1).any() or (high < 1).any() or not np.isfinite(bounds).all():
            return []
        return [
            "Note: all certified partial correlations are [-1, 1], since a diagonal entry of the "
            f'precision matrix may be zero; precision(target="{target}") has finite limits of all '
            "entries."
        ]

    def _shown(self, alpha: float, target: Target, most: int) -> pd.DataFrame:
        """The strongest pairs first."""
        frame = self.to_frame(alpha=alpha, target=target, adjust=self.adjust)
        low, high = np.asarray(self.conf_int(alpha=alpha, method="certified", target=target)).T
        frame = frame.assign(certified_low=low, certified_high=high)
        kept = ["term", "estimate", "std_error", "statistic", "p_value", "conf_low", "conf_high"]
        kept += ["privacy_share", "certified_low", "certified_high"]
        return strongest_first(frame).head(most)[kept]

    def _head(self, alpha: float, target: Target) -> list[str]:
        lines, tested = [self.title], counted(int(self.tested.sum()), "pair")
        if target == "population" and self.known:
            lines.append(
                f"edges: {self._found(alpha)} of {tested} at level {alpha:g}, p-values "
                f"{ADJUSTED[self.adjust][1]} tested pairs"
            )
        count = Counter(self.verdicts(alpha=alpha, target=target))
        within = "" if self.tolerance is None else f" (below {self.tolerance:g})"
        lines.append(
            f"certified at {percent(alpha)}, of {counted(len(self.terms), 'pair')}: "
            f"{count['present']} present, {count['absent']} absent{within}, "
            f"{count['undecided']} undecided"
        )
        return lines
