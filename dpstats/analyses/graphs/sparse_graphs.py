"""Sparse graphs at several penalties: pictures without p-values or intervals.

The support of a penalised estimate changes with the penalty, and no penalty makes its edges valid:
a chain of ten columns and 100,000 rows shows a false edge in nearly every run. Both methods work on
the noisy correlation matrix, moved to the nearest positive definite one: post-processing, which
costs no privacy.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from dpstats.analyses.graphs.graph_result import PairGraph, pair_names, strongest_first
from dpstats.analyses.graphs.pair_intervals import PairLaws, Pairs
from dpstats.arrays import Floats
from dpstats.checks import Target, check_number, check_target, counted
from dpstats.error_rates import USUAL_ALPHA, bonferroni
from dpstats.errors import DpstatsError, RequestError
from dpstats.results.base import Result
from dpstats.results.rendering import MOST, Page, fixed, more_rows, significant

if TYPE_CHECKING:
    import pandas as pd

    from dpstats.measured.row_count import RowCount

_LEAST_EIGENVALUE = 1e-3  # of a correlation matrix
_SWEEPS = 10_000
_INNER = 1e-10  # tolerance of a column; at scikit-learn's 1e-4 noisy matrices may not converge
_ZERO = 1e-9
_ROUNDED = 1e-3  # relative error of a penalty as it prints
_NO_ERRORS = (
    "a picture: the edges depend on the penalty and none has an error probability; use "
    "estimator='inverse' on the same release for intervals and tests"
)


@dataclass(frozen=True, repr=False, eq=False)
class PenalisedGraphResult(PairGraph, Result):
    """Sparse precision matrices at k penalties, on the scale of correlations.

    Attributes
    ----------
    columns : tuple of str
    estimator : {"glasso", "clime"}
    penalties : (k,) float64
        Increasing.
    precision_ : (k, p, p) float64
        Inverse correlation matrices.
    usual : float
        The penalty at which a graph without edges stays empty with probability .95, no more.
    rows, budget, notes :
        As of `EstimateResult`.

    Examples
    --------
    >>> import dpstats as dps
    >>> import numpy as np
    >>> import pandas as pd
    >>> schema = dps.Schema([dps.Number(name, -3, 3, missing=0) for name in ("a", "b", "c")])
    >>> graph = dps.GraphicalModel(["a", "b", "c"])
    >>> plan = dps.plan(schema, {"graph": graph}, budget=dps.PureDP(5))
    >>> z = np.random.default_rng(0).standard_normal((20_000, 3))
    >>> rows = pd.DataFrame(z @ [[1, 0.8, 0.4], [0, 0.6, 0.3], [0, 0, 0.8]], columns=list("abc"))
    >>> release = dps.release(plan, rows, m=2_000)
    >>> sparse = dps.GraphicalModel(["a", "b", "c"], estimator="clime", penalties=[0.1, 0.9])
    >>> release.infer(sparse).edge_counts.tolist()
    [2, 0]
    >>> release.infer(sparse).edges(penalty=0.1)["first"].tolist()
    ['a', 'b']
    >>> release.infer(sparse).pairs(penalty=0.9)["estimate"].tolist()
    [0.0, 0.0, 0.0]
    >>> sorted(release.infer(sparse).to_networkx(penalty=0.1).edges)
    [('a', 'b'), ('b', 'c')]
    """

    of_population: ClassVar[bool] = False

    columns: tuple[str, ...]
    estimator: str
    penalties: Floats
    precision_: Floats
    usual: float
    rows: RowCount
    budget: str
    notes: tuple[str, ...] = ()

    @property
    def partial_correlation_(self) -> Floats:
        """(k, p, p) partial correlations, ones on the diagonal.

        Eq. partial-correlation of docs/explanation/inference/graphical-models.md.
        """
        root = np.sqrt(np.diagonal(self.precision_, axis1=1, axis2=2))
        with np.errstate(divide="ignore", invalid="ignore"):
            partial = -self.precision_ / (root[:, :, np.newaxis] * root[:, np.newaxis, :])
        own = np.arange(len(self.columns))
        partial[:, own, own] = 1.0
        return np.asarray(np.nan_to_num(partial) + 0.0)  # no -0

    @property
    def edge_counts(self) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        """(k,) number of edges at each penalty."""
        i, j = np.triu_indices(len(self.columns), 1)
        return np.asarray(np.count_nonzero(self.precision_[:, i, j], axis=1))

    @property
    def headline(self) -> str:
        """The number of edges at the fitted penalty nearest to the usual one."""
        count = self.edge_counts[self.penalties == self.nearest][0]
        return f"{counted(int(count), 'edge')} at penalty {significant(self.nearest)}"

    def edges(self, penalty: float | None = None) -> pd.DataFrame:
        """The edges at one of the penalties, strongest first.

        Parameters
        ----------
        penalty : float, optional
            One of `penalties`; by default the one nearest to `usual`.

        Returns
        -------
        DataFrame
            Columns first, second and estimate, the partial correlation.

        Raises
        ------
        RequestError
            For a penalty that was not asked for.
        """
        pairs = self.pairs(penalty)
        return strongest_first(pairs[pairs["estimate"] != 0]).reset_index(drop=True)

    def pairs(self, penalty: float | None = None) -> pd.DataFrame:
        """All pairs at one of the penalties.

        Parameters
        ----------
        penalty : float, optional
            As in `edges`.

        Returns
        -------
        DataFrame
            Columns first, second and estimate, which is zero without an edge.

        Raises
        ------
        RequestError
            For a penalty that was not asked for.
        """
        wanted = self.nearest if penalty is None else check_number("penalty", penalty)
        nearest = self.penalties[np.argmin(np.abs(self.penalties - wanted))]
        if not np.isclose(nearest, wanted, rtol=_ROUNDED):
            raise RequestError(
                f"penalty {wanted!r} was not fitted; fitted: "
                f"{', '.join(significant(one) for one in self.penalties.tolist())}. Ask the "
                "same release for another: dps.GraphicalModel(..., penalties=[...])"
            )
        frame = self.to_frame()
        pairs: pd.DataFrame = frame.loc[frame["penalty"] == nearest]
        return pairs[["first", "second", "estimate"]].reset_index(drop=True)

    def _network(
        self, *, alpha: float, adjust: Any, target: Target, penalty: float | None = None
    ) -> tuple[pd.DataFrame, str]:
        """The lines and the title of `dps.plots.network`."""
        found = self.edges(penalty).assign(basis="at this penalty")
        return found, f"{counted(len(found), 'edge')}{self._at_penalty(penalty)}"

    def _at_penalty(self, penalty: float | None) -> str:
        """The end of a title: the estimator and the penalty."""
        shown = self.nearest if penalty is None else penalty
        return f", {self.estimator} at penalty {significant(shown)}"

    def to_frame(self) -> pd.DataFrame:
        """One row per penalty and pair.

        Returns
        -------
        DataFrame
            Columns penalty, first, second and estimate.
        """
        import pandas as pd

        i, j = np.triu_indices(len(self.columns), 1)
        k, names = len(self.penalties), pair_names(self.columns)
        return pd.DataFrame(
            {
                "penalty": np.repeat(self.penalties, len(i)),
                **{side: np.tile(found, k) for side, found in names.items()},
                "estimate": self.partial_correlation_[:, i, j].ravel(),
            }
        )

    def summary(
        self,
        *,
        alpha: float = 0.05,
        target: Target = "population",
        most: int = MOST,
        penalty: float | None = None,
    ) -> str:
        """Numbers of edges at every penalty, and the strongest edges at one of them.

        Parameters
        ----------
        alpha, target :
            Without effect: there are no intervals.
        most : int
            Largest number of edges to print.
        penalty : float, optional
            As in `edges`.

        Returns
        -------
        str
        """
        check_target(target)
        return self._page(penalty, most).text()

    def _page(self, penalty: float | None = None, most: int = MOST) -> Page:
        counts = zip(self.penalties.tolist(), self.edge_counts.tolist(), strict=True)
        listed = ", ".join(f"{significant(one)}: {count}" for one, count in counts)
        edges, below = self.edges(penalty), self.nearest if penalty is None else penalty
        rows = [
            [f"{one}, {other}", fixed(value, 3)]
            for one, other, value in edges.head(most).itertuples(index=False)
        ]
        more = len(edges) - most
        after = [f"{self.rows}; {self.budget}.", f"Note: {_NO_ERRORS}"]
        after += [f"Note: {more_rows(more, 'edges()')}"] if more > 0 else []
        return Page(
            self.title,
            [f"edges by penalty: {listed}", f"below: penalty {significant(below)}"],
            ["", "partial correlation"],
            rows,
            after=[*after, *(f"Note: {note}" for note in self.notes)],
        )

    @property
    def nearest(self) -> float:
        """The fitted penalty nearest to `usual`."""
        return float(self.penalties[np.argmin(np.abs(np.log(self.penalties / self.usual)))])


def usual_penalty(laws: PairLaws, pairs: Pairs) -> float:
    """The penalty at which a graph without edges stays empty with probability .95, and no more.

    The largest of d noisy correlations of independent columns, by Bonferroni's inequality: the
    quantile of the widest of their laws.
    """
    law = laws.error(pairs, np.zeros(pairs.shape[1]))
    reach = law.quantile(bonferroni(USUAL_ALPHA, pairs.shape[1]))
    return float(np.tanh(reach.max()))


def positive_definite(correlation: Floats) -> Floats:
    """Correlation matrix (p, p) with eigenvalues lifted to 0.001 and unit diagonal."""
    values, vectors = np.linalg.eigh(correlation)
    if values[0] >= _LEAST_EIGENVALUE:
        return correlation
    lifted = (vectors * np.maximum(values, _LEAST_EIGENVALUE)) @ vectors.T
    root = np.sqrt(np.diag(lifted))
    return np.asarray(lifted / np.outer(root, root))


def graphical_lasso(correlation: Floats, penalties: Sequence[float]) -> Floats:
    """Precision matrices (k, p, p) of the graphical lasso at k penalties, by scikit-learn.

    Nan where it finds none, as at small penalties of nearly collinear columns.

    J. Friedman, T. Hastie and R. Tibshirani (2008), Sparse inverse covariance estimation with the
    graphical lasso. Biostatistics 9, 432-441.
    """
    try:
        from sklearn import covariance
        from sklearn.exceptions import ConvergenceWarning
    except ImportError:
        raise RequestError(
            "estimator='glasso' needs scikit-learn; install it with: "
            "pip install 'dpstats[graphs]', or use estimator='clime'"
        ) from None
    matrices = np.full((len(penalties), *correlation.shape), np.nan)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        for k, penalty in enumerate(penalties):
            with contextlib.suppress(FloatingPointError):
                _, found, sweeps = covariance.graphical_lasso(
                    correlation, penalty, max_iter=_SWEEPS, enet_tol=_INNER, return_n_iter=True
                )
                if sweeps < _SWEEPS:
                    matrices[k] = found
    return matrices


def clime(correlation: Floats, penalties: Sequence[float]) -> Floats:
    """Precision matrices (k, p, p) of constrained l1 minimisation at k penalties below one.

    By HiGHS: column j minimises |b|_1 subject to |S b - e_j| <= penalty in every entry; of the two
    solutions for an entry the one of smaller absolute value is taken.

    T. Cai, W. Liu and X. Luo (2011), A constrained l1 minimization approach to sparse precision
    matrix estimation. J. Amer. Statist. Assoc. 106, 594-607.
    """
    from scipy import optimize

    p = len(correlation)
    both = np.hstack([correlation, -correlation])
    rows = np.vstack([both, -both])
    matrices = np.empty((len(penalties), p, p))
    for k, penalty in enumerate(penalties):
        for j, unit in enumerate(np.eye(p)):
            limits = np.concatenate([penalty + unit, penalty - unit])
            solved = optimize.linprog(np.ones(2 * p), A_ub=rows, b_ub=limits, method="highs")
            if solved.x is None:
                raise DpstatsError(f"the linear program of column {j + 1} failed: {solved.message}")
            matrices[k, :, j] = solved.x[:p] - solved.x[p:]
    other = matrices.swapaxes(1, 2)
    matrices = np.where(np.abs(matrices) <= np.abs(other), matrices, other)
    return np.where(np.abs(matrices) < _ZERO, 0.0, matrices)
