"""The examples of the docstrings run as written, and functions say what they take and return."""

import doctest
import functools
import importlib
import inspect
import re
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


def public():
    """Pairs of name and object: classes and functions, those of public modules included."""
    for name in dps.__all__:
        value = getattr(dps, name)
        if inspect.ismodule(value):
            yield from ((f"{name}.{part}", getattr(value, part)) for part in value.__all__)
        else:
            yield name, value


# Methods that only dpstats itself calls, and those of files, which `save` and `load` show.
INTERNAL = {
    "asking", "check", "check_kept", "check_reference", "costing", "declaring", "from_dict",
    "fitted", "from_members", "joined", "lacking", "preview_widths",
    "single_test", "summary_lines", "to_bytes", "to_dict", "to_members",
}  # fmt: skip
OPENED = (
    dps.Accuracy, dps.Bounds, dps.Draws, dps.Ledger, dps.Measurements, dps.Plan, dps.Pooled,
    dps.Radius, dps.Release,
)  # fmt: skip
CLASSES = [value for _, value in public() if inspect.isclass(value)
           and issubclass(value, (dps.Result, *OPENED))]  # fmt: skip


def called():
    """What people call on results, releases and the like: where it is, its name, and itself."""
    for cls in CLASSES:
        for name, method in inspect.getmembers(cls, callable):
            owner = next((c for c in cls.__mro__ if name in vars(c)), object)
            ours = owner.__module__.startswith("dpstats") and inspect.isroutine(method)
            if ours and not name.startswith("_") and name not in INTERNAL:
                yield owner, name, method


@functools.cache
def code_of(docstring):
    """The lines of its examples."""
    return "\n".join(re.findall(r"^\s*(?:>>>|\.\.\.) (.*)$", docstring or "", re.MULTILINE))


def test_methods_that_people_call_have_an_example():
    """In their own docstring, or in that of a class that has them."""
    without = set()
    for owner, name, method in called():
        family = {*owner.__mro__, *(c for c in CLASSES if issubclass(c, owner))}
        texts = [text for c in family for text in (c.__doc__, getattr(c, name, None).__doc__)]
        if method.__doc__ and not any(f".{name}(" in code_of(text) for text in texts):
            without.add(method.__qualname__)
    assert without == set()


def test_functions_and_methods_say_what_they_take_and_return():
    """In numpydoc sections, their own or inherited; a method that always refuses needs none."""
    wanted = {value for _, value in public() if inspect.isfunction(value)}
    lacking = set()
    for function in wanted.union(method for *_, method in called()):
        text, signature = inspect.getdoc(function) or "", inspect.signature(function)
        returned, taken = signature.return_annotation, signature.parameters.keys() - {"self"}
        if not function.__module__.startswith("dpstats") or returned == "NoReturn":
            continue
        if taken and "Parameters\n----------" not in text:
            lacking.add(f"{function.__qualname__}: Parameters")
        if returned != "None" and "Returns\n-------" not in text:
            lacking.add(f"{function.__qualname__}: Returns")
    assert lacking == set()
