"""Intervals and tests from a centre and a radius, if you have only the synthetic rows.

A centre is a statistic of the synthetic rows or a noisy answer. A radius bounds the distance of
every entry of the centre from that of the private rows, for all entries jointly with probability at
least 1 - beta; one number applies to every entry. Nothing here depends on a release.
"""

from dpstats.corrected.chi_square import chisquare
from dpstats.corrected.eigenvalues import eigenvalues
from dpstats.corrected.least_squares import ols
from dpstats.corrected.proportions import clopper_pearson, proportion_confint

__all__ = ["chisquare", "clopper_pearson", "eigenvalues", "ols", "proportion_confint"]
