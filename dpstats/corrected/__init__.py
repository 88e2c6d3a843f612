"""Intervals and tests from a centre and a radius, for those who have only the synthetic rows.

A centre is a statistic of the synthetic rows or a noisy answer; the radius bounds its distance from
the private rows with probability at least 1 - beta. Nothing here knows a release.
"""

from dpstats.corrected.chi_square import chisquare
from dpstats.corrected.eigenvalues import eigenvalues
from dpstats.corrected.least_squares import ols
from dpstats.corrected.proportions import clopper_pearson, proportion_confint

__all__ = ["chisquare", "clopper_pearson", "eigenvalues", "ols", "proportion_confint"]
