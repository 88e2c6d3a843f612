"""The certificate: how far the synthetic rows can be from the private ones, without assumptions.

For every test function |mean_Y f - mean_X f| <= |mean_Y f - b_f| + |b_f - mean_X f|. The first term
follows from the release; the second is the noise itself, whose law is known exactly. The bound
holds for any data and any Y, however the rows were fitted. Where the number of rows n is not
public, quantiles of the noise give a box for the sum S_f and n; the bound is the largest
|mean_Y f - S / (n B_f)| over the box, reached at a corner because S / n is monotone in each.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dpstats.arrays import Floats
from dpstats.checks import check_alpha
from dpstats.measured.measurements import Measurements
from dpstats.privacy.laws import joint_quantiles

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, repr=False)
class Accuracy:
    """The certificate of a release, in unit scale (functions in [-1, 1]).

    Attributes
    ----------
    names : list of str
    synthetic, noisy : (|F|,) float64
        Means over the synthetic rows, and the noisy answers b_f.
    ends, joint_ends : (2, |F|) float64
        Intervals for the private means: each of the first holds with probability 1 - alpha, and
        all of the joint ones together. Where n is public: b_f -+ a quantile of the noise.
    alpha : float
    target : str
        What was compared: the synthetic rows or the weighted candidates.
    """

    names: list[str]
    synthetic: Floats
    noisy: Floats
    ends: Floats
    joint_ends: Floats
    alpha: float
    target: str

    @property
    def radius(self) -> Floats:
        """How far a private mean can be from b_f, each with probability 1 - alpha."""
        return _furthest(self.noisy, self.ends)

    @property
    def joint_radius(self) -> Floats:
        """The same for all functions together."""
        return _furthest(self.noisy, self.joint_ends)

    @property
    def bounds(self) -> Floats:
        """For each function alone: a bound on its error, with probability 1 - alpha."""
        return _furthest(self.synthetic, self.ends)

    @property
    def joint_bounds(self) -> Floats:
        """For all functions at once: bounds on their errors, with probability 1 - alpha."""
        return _furthest(self.synthetic, self.joint_ends)

    @property
    def delta(self) -> float:
        """The release is delta-accurate (BL24, Definition II.2) with probability 1 - alpha."""
        return float(self.joint_bounds.max())

    def to_frame(self) -> pd.DataFrame:
        """One row per test function."""
        import pandas as pd

        return pd.DataFrame(
            {
                "function": self.names,
                "synthetic": self.synthetic,
                "noisy_answer": self.noisy,
                "bound": self.bounds,
                "joint_bound": self.joint_bounds,
            }
        )

    def __str__(self) -> str:
        level = f"{100 * (1 - self.alpha):g}%"
        fit = float(np.abs(self.synthetic - self.noisy).max())
        noise = float(self.joint_radius.max())
        empty = (
            "\nA bound of 1 or more does not constrain a proportion: plan fewer functions, more "
            "candidates or a larger budget."
            if self.delta >= 1
            else ""
        )
        return (
            f"Certificate: with probability {level} over the privacy noise, every one of the "
            f"{len(self.names)} test functions has a mean on the {self.target} within\n"
            f"delta = {self.delta:.3g} of its mean on the private rows "
            f"(largest misfit to the noisy answers {fit:.2g}, joint noise quantile {noise:.2g}).\n"
            f"It assumes nothing about the data, the candidates or the fit.{empty}"
        )

    def __repr__(self) -> str:
        return str(self)


def certify(
    measurements: Measurements, synthetic: Floats, *, alpha: float, target: str
) -> Accuracy:
    """Certificate of means over any synthetic rows.

    Parameters
    ----------
    measurements : Measurements
    synthetic : (|F|,) float64
        Means of the test functions over the rows, unit scale.
    alpha : float
        The certificate holds with probability at least 1 - alpha.
    target : str
        Name, in the text, of what the means are taken over.
    """
    check_alpha(alpha)
    rows = measurements.rows
    laws, which = measurements.laws
    every = [laws[i] for i in which]
    of_rows = rows.spent(alpha)
    single = np.array([law.quantile(alpha - of_rows) for law in laws], dtype=np.float64)[which]
    if rows.law is None:
        together = joint_quantiles(every, alpha).astype(np.float64)
        sizes = joint_sizes = (rows.value, rows.value)
    else:  # the count is one more independent noise
        *rest, q = joint_quantiles([*every, rows.law], alpha).tolist()
        together = np.array(rest, dtype=np.float64)
        sizes, joint_sizes = rows.bounds(of_rows), rows.within(q)
    return Accuracy(
        names=measurements.family.names,
        synthetic=synthetic,
        noisy=measurements.means,
        ends=_mean_ends(measurements, single, sizes),
        joint_ends=_mean_ends(measurements, together, joint_sizes),
        alpha=alpha,
        target=target,
    )


def _furthest(means: Floats, ends: Floats) -> Floats:
    """Distance of each mean from the further end of its interval."""
    return np.asarray(np.abs(means - ends).max(axis=0), dtype=np.float64)


def _mean_ends(measurements: Measurements, q: Floats, sizes: tuple[int, int]) -> Floats:
    """Smallest and largest means (2, |F|) of sums within q of the noisy ones, over sizes of n."""
    low, high = measurements.sums - q, measurements.sums + q
    bounds = measurements.family.bounds
    corners = np.stack([end / (n * bounds) for end in (low, high) for n in sizes])
    return np.stack([corners.min(axis=0), corners.max(axis=0)])
