"""The examples of the docstrings run as written, and every public name has one."""

import doctest
import importlib
import inspect
from pathlib import Path

import pytest
from matplotlib import pyplot

import dpstats as dps

PACKAGE = Path(dps.__file__).parent
SHOWING = [path for path in sorted(PACKAGE.rglob("*.py")) if ">>>" in path.read_text("utf-8")]
OPTIONS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    """Where examples may write files and draw."""
    monkeypatch.chdir(tmp_path)
    pyplot.switch_backend("Agg")
    yield
    pyplot.close("all")


def module_of(path):
    parts = ("dpstats", *path.relative_to(PACKAGE).with_suffix("").parts)
    return importlib.import_module(".".join(parts).removesuffix(".__init__"))


@pytest.mark.parametrize("path", SHOWING, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_examples_run(path, elsewhere):
    failed, tried = doctest.testmod(module_of(path), optionflags=OPTIONS)  # prints what fails
    assert tried
    assert not failed


def public():
    """Pairs of name and object: classes and functions, those of public modules included."""
    for name in dps.__all__:
        value = getattr(dps, name)
        if inspect.ismodule(value):
            yield from ((f"{name}.{part}", getattr(value, part)) for part in value.__all__)
        else:
            yield name, value


@pytest.mark.parametrize("value", [pytest.param(value, id=name) for name, value in public()])
def test_public_names_have_an_example(value):
    assert ">>>" in value.__doc__
