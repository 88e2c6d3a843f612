"""The examples of the docstrings run as written."""

import doctest
import importlib
from pathlib import Path

import pytest
from matplotlib import pyplot
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

import dpstats as dps

PACKAGE = Path(dps.__file__).parent
SHOWING = [path for path in sorted(PACKAGE.rglob("*.py")) if ">>>" in path.read_text("utf-8")]
OPTIONS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


@pytest.fixture
def elsewhere(tmp_path, monkeypatch, request):
    """Where examples may write files and draw."""
    monkeypatch.chdir(tmp_path)
    if request.config.option.markexpr == "not slow":  # no example shows a density or a layout
        monkeypatch.setattr("dpstats.rows.generator.CANDIDATES", 300)
        monkeypatch.setattr(dps.LogLinear, "_proposal", lambda self, held, m, rng, **options: (
            dps.Uniform().candidates(held, m, rng, stratified=True)))  # fmt: skip
        monkeypatch.setattr(ConstrainedLayoutEngine, "execute", lambda self, figure: None)
        save = Figure.savefig
        monkeypatch.setattr(Figure, "savefig", lambda self, where, **options: (
            None if isinstance(where, str) else save(self, where, **options)))  # fmt: skip
    pyplot.switch_backend("Agg")
    yield
    pyplot.close("all")


def module_of(path):
    parts = ("dpstats", *path.relative_to(PACKAGE).with_suffix("").parts)
    return importlib.import_module(".".join(parts).removesuffix(".__init__"))


@pytest.mark.parametrize("folder", sorted({p.relative_to(PACKAGE).parts[0] for p in SHOWING}))
def test_examples_run(folder, elsewhere):
    wrong = []
    for path in (path for path in SHOWING if path.relative_to(PACKAGE).parts[0] == folder):
        failed, tried = doctest.testmod(module_of(path), optionflags=OPTIONS)  # prints what fails
        if failed or not tried:
            wrong.append(str(path.relative_to(PACKAGE)))
    assert wrong == []
