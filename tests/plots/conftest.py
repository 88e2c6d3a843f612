"""Plots are drawn without a window, and closed after every test."""

import importlib.util
import os

import pytest

os.environ.setdefault("MPLBACKEND", "Agg")
if importlib.util.find_spec("matplotlib") is None:
    collect_ignore_glob = ["test_*.py"]


@pytest.fixture(autouse=True)
def closed():
    from matplotlib import pyplot

    yield
    pyplot.close("all")


@pytest.fixture
def ax():
    from matplotlib import pyplot

    return pyplot.subplots()[1]
