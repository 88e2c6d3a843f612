"""Plots of results, as functions that return matplotlib Axes. matplotlib is optional."""

from dpstats.plots.components import loadings, scree
from dpstats.plots.curves import curve
from dpstats.plots.distributions import distribution
from dpstats.plots.estimates import forest
from dpstats.plots.graphs import matrix, network
from dpstats.plots.losses import risk
from dpstats.plots.paths import path
from dpstats.plots.tables import departures, margin, table

__all__ = [
    "curve", "departures", "distribution", "forest", "loadings", "margin", "matrix", "network",
    "path", "risk", "scree", "table",
]  # fmt: skip


def __dir__() -> list[str]:
    return sorted(__all__)  # not the modules beside this file
