"""Sparse precision matrices at given penalties: pictures of a graph, without error bounds.

The support of a penalised estimate changes with the penalty, and no penalty makes its edges valid:
a chain of ten columns and 100,000 rows shows a false edge in nearly every run. Both methods work on
the noisy correlation matrix, moved to the nearest positive definite one: post-processing, which
costs no privacy.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dpstats.arrays import Floats
from dpstats.error_rates import USUAL_ALPHA, bonferroni
from dpstats.errors import DpstatsError, RequestError
from dpstats.inference.graphs.pair_laws import PairLaws, Pairs

_LEAST_EIGENVALUE = 1e-3  # of a correlation matrix
_SWEEPS = 500
_INNER = 1e-7  # tolerance of a column; at scikit-learn's 1e-4 noisy matrices may not converge
_ZERO = 1e-9


def usual_penalty(laws: PairLaws, pairs: Pairs) -> float:
    """The penalty at which a graph without edges stays empty with probability .95, and no more.

    The largest of d noisy correlations of independent columns, by Bonferroni's inequality: the
    quantile of the widest of their laws.
    """
    law = laws.error(pairs, np.zeros(pairs.shape[1]))
    reach = law.quantile(bonferroni(USUAL_ALPHA, pairs.shape[1]))
    return float(np.tanh(reach.max()))


def positive_definite(correlation: Floats) -> Floats:
    """The same (p, p) correlation matrix with eigenvalues of at least 0.001 and unit diagonal."""
    values, vectors = np.linalg.eigh(correlation)
    if values[0] >= _LEAST_EIGENVALUE:
        return correlation
    lifted = (vectors * np.maximum(values, _LEAST_EIGENVALUE)) @ vectors.T
    root = np.sqrt(np.diag(lifted))
    return np.asarray(lifted / np.outer(root, root))


def graphical_lasso(correlation: Floats, penalties: Sequence[float]) -> Floats:
    """Precision matrices (k, p, p) of the graphical lasso, by scikit-learn.

    Parameters
    ----------
    correlation : (p, p) float64
        Positive definite.
    penalties : k positive numbers
        On the absolute off-diagonal entries.

    Raises
    ------
    RequestError
        If scikit-learn is not installed.

    References
    ----------
    J. Friedman, T. Hastie and R. Tibshirani (2008), Sparse inverse covariance estimation with the
    graphical lasso. Biostatistics 9, 432-441.
    """
    try:
        from sklearn import covariance
    except ImportError:
        raise RequestError(
            "estimator='glasso' needs scikit-learn; install it with: "
            "pip install 'dpstats[graphs]', or use estimator='clime'"
        ) from None
    found = [
        covariance.graphical_lasso(correlation, penalty, max_iter=_SWEEPS, enet_tol=_INNER)[1]
        for penalty in penalties
    ]
    return np.asarray(found)


def clime(correlation: Floats, penalties: Sequence[float]) -> Floats:
    """Precision matrices (k, p, p) of constrained l1 minimisation, by HiGHS.

    Column j minimises |b|_1 subject to |S b - e_j| <= penalty in every entry; of the two solutions
    for an entry the one of smaller absolute value is taken.

    Parameters
    ----------
    correlation : (p, p) float64
    penalties : k positive numbers
        Below one.

    References
    ----------
    T. Cai, W. Liu and X. Luo (2011), A constrained l1 minimization approach to sparse precision
    matrix estimation. J. Amer. Statist. Assoc. 106, 594-607.
    """
    from scipy import optimize

    p = len(correlation)
    both = np.hstack([correlation, -correlation])
    rows = np.vstack([both, -both])
    found = np.empty((len(penalties), p, p))
    for k, penalty in enumerate(penalties):
        for j, unit in enumerate(np.eye(p)):
            limits = np.concatenate([penalty + unit, penalty - unit])
            solved = optimize.linprog(np.ones(2 * p), A_ub=rows, b_ub=limits, method="highs")
            if solved.x is None:
                raise DpstatsError(f"the linear program of column {j + 1} failed: {solved.message}")
            found[k, :, j] = solved.x[:p] - solved.x[p:]
    other = found.swapaxes(1, 2)
    found = np.where(np.abs(found) <= np.abs(other), found, other)
    return np.where(np.abs(found) < _ZERO, 0.0, found)
