"""Plots of results, as functions that return matplotlib Axes. matplotlib is optional."""

from dpstats.plots.components import loadings, scree
from dpstats.plots.estimates import forest
from dpstats.plots.graphs import matrix, network

__all__ = ["forest", "loadings", "matrix", "network", "scree"]
