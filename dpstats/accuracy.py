"""The certificate: how far the synthetic rows can be from the private ones, without assumptions.

For every test function |mean_Y f - mean_X f| <= |mean_Y f - b_f| + |b_f - mean_X f|. The first term
is visible in the release; the second is the noise itself, whose law is known exactly. It holds for
any data and any Y, however the rows were fitted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dpstats.families.block import Floats
from dpstats.inference.checks import check_alpha
from dpstats.measurements import Measurements
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
    radius, joint_radius : (|F|,) float64
        Quantiles of the noise: each one alone holds with probability 1 - alpha, and all the joint
        ones together.
    alpha : float
    target : str
        What was compared: the synthetic rows or the weighted candidates.
    """

    names: list[str]
    synthetic: Floats
    noisy: Floats
    radius: Floats
    joint_radius: Floats
    alpha: float
    target: str

    @property
    def bounds(self) -> Floats:
        """For each function alone: a bound on its error, with probability 1 - alpha."""
        return np.abs(self.synthetic - self.noisy) + self.radius

    @property
    def joint_bounds(self) -> Floats:
        """For all functions at once: bounds on their errors, with probability 1 - alpha."""
        return np.abs(self.synthetic - self.noisy) + self.joint_radius

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
            "\nA bound of 1 or more says nothing about a proportion: ask for fewer functions, or "
            "give more candidates or budget."
            if self.delta >= 1
            else ""
        )
        return (
            f"Certificate: with probability {level} over the privacy noise, every one of the "
            f"{len(self.names)} test functions has a mean on the {self.target} within\n"
            f"delta = {self.delta:.4f} of its mean on the private rows "
            f"(largest visible misfit {fit:.4f}, joint noise quantile {noise:.4f}).\n"
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
        What the means are taken over, for the text.
    """
    check_alpha(alpha)
    laws, which = measurements.laws
    unit = measurements.n * measurements.family.bounds
    single = np.array([law.quantile(alpha) for law in laws])[which]
    joint = joint_quantiles([laws[i] for i in which], alpha)
    return Accuracy(
        names=measurements.family.names,
        synthetic=synthetic,
        noisy=measurements.means,
        radius=single / unit,
        joint_radius=joint / unit,
        alpha=alpha,
        target=target,
    )
