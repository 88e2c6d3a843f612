"""Plots of results, as functions that return matplotlib Axes. matplotlib is optional."""

from dpstats.plots.curves import curve, distribution, path, risk, survival
from dpstats.plots.estimates import forest, loadings, scree
from dpstats.plots.graphs import matrix, network
from dpstats.plots.tables import departures, margin, table

__all__ = [
    "curve", "departures", "distribution", "forest", "loadings", "margin", "matrix", "network",
    "path", "risk", "scree", "survival", "table",
]  # fmt: skip


def __dir__() -> list[str]:
    return sorted(__all__)  # not the modules beside this file
