"""Plots of results, as functions that return matplotlib Axes. matplotlib is optional."""

from dpstats.plots.components import loadings, scree
from dpstats.plots.estimates import forest
from dpstats.plots.graphs import matrix, network
from dpstats.plots.losses import risk
from dpstats.plots.paths import path

__all__ = ["forest", "loadings", "matrix", "network", "path", "risk", "scree"]
