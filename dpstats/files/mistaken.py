"""What a file is that was given in place of another, and what opens it; its content is not quoted.

It goes by the end of the name and by marks that programs write: no cell of a table is looked at.
"""

from __future__ import annotations

import json
import re
import tomllib
import zipfile
from pathlib import Path

_START = 2**12  # bytes that hold the marks of a text file
_LARGEST = 2**24  # bytes of a .toml file that is read to see what it declares
_OPENED_BY = {
    "a release": "open it with dps.load ('dpstats show' or 'dpstats infer')",
    "measurements": "open them with dps.Measurements.load ('dpstats show'), and make a release of "
    "them with dps.synthesize ('dpstats synthesize')",
    "a plan": "open it with dps.Plan.load ('dpstats show'), and make a release under it with "
    "dps.release ('dpstats release')",
    "a ledger": "open it with dps.Ledger.open ('dpstats ledger show')",
    "a request": "make its plan with 'dpstats plan'",
    "a schema": "open it with dps.Schema.load (on the command line: name it in a request, as in "
    'schema = "FILE")',
    "guesses": "open them with dps.Guesses.load (on the command line: give them to "
    "'dpstats preview' with --like)",
    "a table": "make a plan, and pass both to dps.check or dps.release ('dpstats check' or "
    "'dpstats release')",
    "a workbook": "save its table as CSV",
    "a page": "open it with a browser",
}
_NAMED = re.compile(  # what has a name of its own
    r"\.(?:(?P<table>[ct]sv(?:\.gz)?|parquet)|(?P<workbook>xlsx?|ods)|(?P<page>html?))$",
    re.IGNORECASE,
)
_DECLARED = {"analysis": "a request", "column": "a schema", "guesses": "guesses"}


def mistaken(path: Path, *wanted: str) -> str:
    """What a file is instead, with what to do, such as "x.csv is a table, not a release; ...".

    Parameters
    ----------
    path : Path
    *wanted : str
        The kinds that would do, the first of them for the sentence.

    Returns
    -------
    str
        "" for a file that is one of these kinds, or that is not recognised.
    """
    kind = kind_of_file(path)
    if not kind or kind in wanted:
        return ""
    verb = "holds" if kind in ("measurements", "guesses") else "is"
    return f"{path.name} {verb} {kind}, not {wanted[0]}; {_OPENED_BY[kind]}"


def kind_of_file(path: Path) -> str:
    """The kind of a file; "" if it is not recognised, or cannot be read."""
    try:
        if not path.is_file():  # a pipe, perhaps, which would be waited for
            return ""
        with path.open("rb") as file:
            start = file.read(_START)
            if start.startswith(b"PK"):
                return _of_archive(zipfile.ZipFile(file).namelist())
        if b'"dpstats_ledger"' in start.partition(b"\n")[0]:
            return "a ledger"
        if start.startswith(b"PAR1"):
            return "a table"
        if named := _NAMED.search(path.name):
            return f"a {named.lastgroup}"
        if path.suffix.lower() == ".toml" and path.stat().st_size <= _LARGEST:
            declared = tomllib.loads(path.read_text("utf-8-sig"))
            return next((kind for key, kind in _DECLARED.items() if key in declared), "")
        if start.lstrip().startswith(b"{") and b'"dpstats"' in start:
            return "a plan" if json.loads(path.read_bytes()).get("dpstats") == "plan" else ""
    except Exception:  # damaged: whoever reads it says so
        return ""
    return ""


def _of_archive(members: list[str]) -> str:
    if "release.json" in members:
        return "a release"
    if "measurements.json" in members and "rows.csv" not in members:  # else it is damaged
        return "measurements"
    return "a workbook" if any(name.startswith("xl/") for name in members) else ""
