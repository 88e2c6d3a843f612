"""A penalty for every block of functions, from released values only."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from dpstats.arrays import Floats
from dpstats.density.entropy import EntropyFit

_FACTORS = 2.0 ** np.arange(-8, 9)


def adapted(
    fit: EntropyFit, sizes: Sequence[int], least: float, trusted: float = math.inf
) -> Floats:
    """Penalties by block: small where the signal in the answers exceeds the noise.

    At the optimum the residual of function f is r_f = s_f y_f. To first order, and the other
    functions fixed, another penalty s would leave r_f (c_f + s_f) / s_f times s / (c_f + s), with
    c_f its variance, and take 2 c_f / (c_f + s) degrees of freedom (twice). Their sum over a
    block estimates its part of the risk, as Stein's formula does for the whole; the s that makes
    it least is used for the whole block, within the limits.

    A residual of more than `trusted` standard deviations is hardly due to noise: the penalty of
    that function falls further, down to a quarter. (A penalty on squares is too strict for the
    few very strong associations in real tables.)

    Parameters
    ----------
    fit : EntropyFit
        With one penalty per function.
    sizes : sequence of int
        Numbers of functions of the blocks, in order.
    least : float
        Smallest factor by which a block's penalty may change; the largest is one.
    trusted : float
        In noise standard deviations.

    Returns
    -------
    (|F|,) float64
    """
    block = np.repeat(np.arange(len(sizes)), sizes)
    before = fit.penalty
    unshrunk = (fit.dual * (fit.variances + before)) ** 2
    risks = []
    for factor in _FACTORS:
        kept = before * factor / (fit.variances + before * factor)
        risks.append(np.bincount(block, kept**2 * unshrunk + 2 * (1 - kept), len(sizes)))
    best = _FACTORS[np.argmin(risks, axis=0)]
    residuals = np.maximum(np.abs(before * fit.dual), 1e-300)
    own = np.clip(trusted / residuals, 0.25, 1)
    return np.asarray(before * np.clip(best, least, 1)[block] * own)
