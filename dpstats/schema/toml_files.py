"""TOML files, with errors that name the file and the position."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

from dpstats import files
from dpstats.errors import FileFormatError, SchemaError


def read_toml(path: str | Path) -> dict[str, Any]:
    """Read a TOML file; errors name the file and the position."""
    path = files.as_path(path)
    try:
        document = tomllib.loads(files.read_bytes(path).decode())
        json.dumps(document, default=str)  # refuses numbers of thousands of digits
    except FileFormatError as error:
        raise SchemaError(str(error)) from None
    except ValueError as error:  # of TOML, of UTF-8, or a number of thousands of digits
        raise SchemaError(f"{path.name} is not valid TOML: {error}") from None
    except RecursionError:
        raise SchemaError(f"{path.name} is nested too deeply") from None
    return document
