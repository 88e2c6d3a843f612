"""Arguments that several commands take."""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from dpstats.errors import BudgetError, RequestError

if TYPE_CHECKING:
    from dpstats.planning.plan import Plan
    from dpstats.privacy.budget import Budget
    from dpstats.releases import Release
    from dpstats.schema import Guesses

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"
TABLE = (
    "a .csv or .tsv file, which may be gzipped (.gz), a .parquet file, or a folder or pattern in "
    "quotes of these last"
)


def a_path(text: str) -> Path:
    """A path given to an option; shells leave a ``~`` after a sign of equality as it is."""
    return Path(os.path.expanduser(text))


def add_output(parser: argparse.ArgumentParser, what: str, *, required: bool = True) -> None:
    """Add ``-o`` and ``--overwrite``."""
    parser.add_argument("-o", "--output", type=a_path, required=required, help=what)
    parser.add_argument("--overwrite", action="store_true", help="overwrite an existing output")


def check_ending(output: Path, what: str, ending: str, more: str = "") -> None:
    """Refuse a name that promises another kind of file than is written."""
    from dpstats.files import check_place

    if output.suffix.lower() not in ("", ending):
        check_place(output, overwrite=True)  # what nothing replaces is said first
        raise RequestError(f"{what}: name it {output.stem}{ending}, not {output.name}{more}")


def register_from(path: Path) -> None:
    """Run a Python file that registers analyses, which the user has named."""
    name = str(path.resolve())  # no other module has it
    spec = importlib.util.spec_from_file_location(name, path) if path.is_file() else None
    if spec is None or spec.loader is None:
        raise RequestError(
            f"--with takes a Python file that registers analyses, such as my_analysis.py, and "
            f"{path.name} is none"
        )
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:  # whatever the file does
        raise RequestError(
            f"--with: {path.name} cannot be run: {type(error).__name__}: {error}"
        ) from error


def read_plan(path: Path, *, start: Path | None = None, **options: Any) -> Plan:
    """The plan in a file, or that of a request, for which there are options of `load_request`."""
    if path.suffix.lower() == ".json":
        from dpstats.planning.plan import Plan

        return Plan.load(path)
    from dpstats.planning.requests import load_request
    from dpstats.releases.opening import open_release

    release = None if start is None else open_release(start)
    return load_request(path, start=release, **options)


def read_like(path: Path) -> Release | Guesses:
    """A release, or the guesses in a .toml file; never a table."""
    from dpstats.releases.opening import open_release
    from dpstats.schema import Guesses

    if path.suffix.lower() == ".toml":
        return Guesses.load(path)
    if path.suffix.lower() != ".zip":
        raise RequestError(
            "--like takes a release (.zip) or a file with [guesses] (.toml), and no table: a "
            "preview must never read the private rows"
        )
    return open_release(path)


def budget_of(text: str, kind: str, option: str, delta: Any = None) -> Budget:
    """A budget of a kind, from a number or a fraction."""
    from dpstats.privacy.budget import ZCDP, ApproxDP, PureDP

    amount = number_of(text)
    try:
        if kind == ApproxDP.kind:
            return ApproxDP(amount, delta)
        return PureDP(amount) if kind == PureDP.kind else ZCDP(amount)
    except BudgetError as error:  # no budget is exceeded
        raise RequestError(f"{option}: {error}") from None


def number_of(text: str) -> Any:
    """A fraction or a float; the text itself if it is neither, for the message."""
    from dpstats.privacy.rationals import parse_fraction

    exact = parse_fraction(text)
    try:
        return float(text) if exact is None else exact
    except ValueError:
        return text
