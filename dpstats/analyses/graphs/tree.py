"""Tree-structured graphical models: which edges the maximum spanning tree surely has.

In a tree of columns where each depends on its neighbours linearly (Gaussian columns, or columns of
two values) the correlation of two columns is the product of those along their path. Then the tree
is the maximum spanning tree of the absolute correlations (Chow and Liu 1968), and with distinct
weights an edge is in it if and only if its weight exceeds the bottleneck, the largest minimum of
weights, over all other paths between its ends.

References
----------
C. K. Chow and C. N. Liu (1968), Approximating discrete probability distributions with dependence
trees. IEEE Trans. Inf. Theory 14, 462-467.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from dpstats.analyses.graphs.graph_result import PairGraph, pair_names, strongest_first
from dpstats.analyses.graphs.pair_intervals import MarginalIntervals, Pairs
from dpstats.arrays import Floats
from dpstats.checks import Method, Target, check_interval, counted
from dpstats.error_rates import USUAL_ALPHA, percent
from dpstats.results.estimates import METHODS, EstimateResult

if TYPE_CHECKING:
    import pandas as pd

TreeVerdict = Literal["sure", "impossible", "undecided"]


@dataclass(frozen=True, repr=False, eq=False)
class TreeResult(PairGraph, EstimateResult):
    """Correlations of all pairs of columns, and their maximum spanning tree.

    Parameters are Pearson's correlations, one per pair of columns, row by row of the upper
    triangle. There are no p-values: a test after a search over trees has no level.

    Attributes
    ----------
    columns : tuple of str

    Examples
    --------
    >>> import dpstats as dps
    >>> import numpy as np
    >>> import pandas as pd
    >>> schema = dps.Schema([dps.Number(name, -3, 3, missing=0) for name in ("a", "b", "c")])
    >>> tree = dps.GraphicalModel(["a", "b", "c"], structure="tree")
    >>> plan = dps.plan(schema, {"tree": tree}, budget=dps.PureDP(5))
    >>> z = np.random.default_rng(0).standard_normal((20_000, 3))
    >>> rows = pd.DataFrame(z @ [[1, 0.8, 0.4], [0, 0.6, 0.3], [0, 0, 0.8]], columns=list("abc"))
    >>> result = dps.release(plan, rows, m=2_000).infer(tree)
    >>> result.verdicts()
    ['sure', 'impossible', 'sure']
    >>> result.edges()["term"].tolist(), len(result.pairs())
    (['a, b', 'b, c'], 3)
    >>> low, high = result.weights()
    >>> print(low[0] > high[1], sorted(result.to_networkx().edges))
    True [('a', 'b'), ('b', 'c')]
    """

    interval_of: ClassVar[str] = "correlations"

    measure: ClassVar[str] = "correlation"

    columns: tuple[str, ...] = ()

    @property
    def headline(self) -> str:
        """How many edges are sure, and the estimated tree."""
        sure = self.verdicts().count("sure")
        tree = "; ".join(np.array(self.terms, dtype=object)[self.in_tree].tolist())
        edges = counted(len(self.columns) - 1, "edge")
        return f"{sure} of {edges} sure; estimated tree: {tree or 'unknown'}"

    @property
    def _tree(self) -> MarginalIntervals:
        assert isinstance(self.intervals, MarginalIntervals)
        return self.intervals

    @property
    def in_tree(self) -> NDArray[np.bool_]:
        """(d,) Chow and Liu's tree of the estimates, a picture; none if an estimate is unknown."""
        weights = np.abs(np.asarray(self.params))
        if np.isnan(weights).any():
            return np.zeros(len(weights), dtype=bool)
        return spanning_tree(weights, self._tree.pairs, len(self.columns))

    def weights(
        self,
        *,
        alpha: float = USUAL_ALPHA,
        method: Method = "noise_aware",
        target: Target = "population",
    ) -> tuple[Floats, Floats]:
        """Limits of the absolute correlations of all pairs, jointly.

        Parameters
        ----------
        alpha, method, target :
            As in `conf_int`; alpha is the probability that some limit fails.

        Returns
        -------
        low, high : (d,) float64
        """
        check_interval(alpha, method, target)
        low, high = self._tree.simultaneous(alpha, method, target)
        return np.maximum(np.maximum(low, -high), 0), np.maximum(np.abs(low), np.abs(high))

    def verdicts(
        self,
        *,
        alpha: float = USUAL_ALPHA,
        method: Method = "noise_aware",
        target: Target = "population",
    ) -> list[TreeVerdict]:
        """Classify each pair as certainly an edge of the tree, certainly not one, or undecided.

        Right for all pairs with probability 1 - alpha, since the limits of all correlations hold
        jointly.

        Parameters
        ----------
        alpha, method, target :
            As in `weights`.

        Returns
        -------
        list of {"sure", "impossible", "undecided"}
        """
        low, high = self.weights(alpha=alpha, method=method, target=target)
        return tree_verdicts(low, high, self._tree.pairs, len(self.columns))

    def pairs(self) -> pd.DataFrame:  # noqa: D102, inherited
        import pandas as pd

        return pd.DataFrame({**pair_names(self.columns), "estimate": np.asarray(self.params)})

    def edges(
        self,
        *,
        alpha: float = USUAL_ALPHA,
        method: Method = "noise_aware",
        target: Target = "population",
    ) -> pd.DataFrame:
        """Sure edges and those of Chow and Liu's tree, strongest first.

        The column ``verdict`` has which are sure and which undecided.

        Parameters
        ----------
        alpha, method, target :
            As in `weights`.

        Returns
        -------
        DataFrame
            The rows of `to_frame` of these pairs.
        """
        frame = self.to_frame(alpha=alpha, method=method, target=target)
        edges = frame[frame["in_tree"] | (frame["verdict"] == "sure")]
        return strongest_first(edges).reset_index(drop=True)

    def _network(
        self, *, alpha: float, adjust: Any, target: Target, penalty: float | None = None
    ) -> tuple[pd.DataFrame, str]:
        """The lines and the title of `dps.plots.network`."""
        found = self.edges(alpha=alpha, target=target)
        found = found.assign(basis=found["verdict"])
        sure = int((found["verdict"] == "sure").sum())
        return found, f"{sure} sure edges of {len(self.columns) - 1}"

    def to_frame(
        self,
        *,
        alpha: float = USUAL_ALPHA,
        method: Method = "noise_aware",
        target: Target = "population",
    ) -> pd.DataFrame:
        """One row per pair of columns.

        Parameters
        ----------
        alpha, method, target :
            As in `conf_int`; `verdict` has the same alpha, for all pairs together.

        Returns
        -------
        DataFrame
            The columns of `EstimateResult.to_frame`; ``first`` and ``second``, the columns of the
            pair; ``in_tree``, true for an edge of Chow and Liu's tree of the estimates;
            ``verdict``.
        """
        frame = super().to_frame(alpha=alpha, method=method, target=target)
        verdict = self.verdicts(alpha=alpha, method=method, target=target)
        return frame.assign(**pair_names(self.columns), in_tree=self.in_tree, verdict=verdict)

    def _shown(self, alpha: float, target: Target, most: int) -> pd.DataFrame:
        """Edges of Chow and Liu's tree first, then by strength."""
        frame = super()._shown(alpha, target, len(self.terms))
        strength = frame["estimate"].abs()
        order = frame.assign(strength=strength).sort_values(
            ["in_tree", "strength"], ascending=False, kind="stable"
        )
        marks = np.where(order["in_tree"], " (tree, " + order["verdict"] + ")", "")
        order["term"] += marks
        dropped = ["first", "second", "in_tree", "verdict", "strength"]
        return order.drop(columns=dropped).head(most)

    def _head(self, alpha: float, target: Target) -> list[str]:
        lines = [self.title]
        for method in METHODS:
            count = Counter(self.verdicts(alpha=alpha, method=method, target=target))  # type: ignore[arg-type]
            lines.append(
                f"{method.replace('_', '-')} at {percent(alpha)}, of "
                f"{counted(len(self.columns) - 1, 'edge')} of the tree and "
                f"{counted(len(self.terms), 'pair')}: "
                f"{count['sure']} sure, {count['impossible']} impossible, "
                f"{count['undecided']} undecided"
            )
        return lines


def spanning_tree(weights: Floats, pairs: Pairs, p: int) -> NDArray[np.bool_]:
    """Which of the d pairs, all pairs of p columns, are in the maximum spanning tree."""
    from scipy import sparse
    from scipy.sparse.csgraph import minimum_spanning_tree

    ranks = np.argsort(np.argsort(-weights, kind="stable")) + 1.0  # distinct, and no edge has 0
    # Indices of 32 bits: older graphs of SciPy take no others.
    places = np.asarray(pairs, dtype=np.int32)
    tree = minimum_spanning_tree(sparse.coo_array((ranks, tuple(places)), shape=(p, p)))
    return np.asarray(tree.toarray()[tuple(pairs)] > 0)


def tree_verdicts(low: Floats, high: Floats, pairs: Pairs, p: int) -> list[TreeVerdict]:
    """Verdicts on the maximum spanning tree for all weights within intervals `low`, `high` (d,).

    An edge is surely in it if its lower end exceeds the bottleneck over all other paths at the
    upper ends: no weights in the intervals make another path as good. It is impossible if its upper
    end is below the bottleneck at the lower ends. If the intervals hold jointly, no verdict is
    wrong.
    """
    from scipy import sparse
    from scipy.cluster.hierarchy import cophenet, linkage
    from scipy.sparse.csgraph import connected_components

    verdicts: list[TreeVerdict] = ["undecided"] * len(low)
    order = np.argsort(-low, kind="stable")
    # Single linkage by rank joins two columns at the bottleneck of the best path between them.
    joined_at = cophenet(linkage(np.argsort(order).astype(np.float64), "single"))
    bottlenecks = low[order[np.rint(joined_at).astype(np.int64)]]
    for d in np.flatnonzero(high < bottlenecks).tolist():
        verdicts[d] = "impossible"
    # Outside of the tree of the upper ends another path is at least as good at these.
    inside = spanning_tree(high, pairs, p)
    for d in np.flatnonzero(inside).tolist():
        rest = pairs[:, inside & (np.arange(len(low)) != d)]
        forest = sparse.coo_array((np.ones(rest.shape[1]), rest), shape=(p, p))
        _, side = connected_components(forest, directed=False)
        crossing = side[pairs[0]] != side[pairs[1]]
        crossing[d] = False
        if low[d] > high[crossing].max(initial=-np.inf):
            verdicts[d] = "sure"
    return verdicts
