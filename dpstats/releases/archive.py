"""Read the file of a release."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import numpy as np

from dpstats import files
from dpstats.errors import FileFormatError
from dpstats.measured.candidates_file import candidates_from_members, candidates_to_members
from dpstats.measured.measurements import Measurements
from dpstats.releases.release import Release
from dpstats.rows import reference_from_dict
from dpstats.rows.drawing import Draw, random_order
from dpstats.rows.generator import Fit

_KEYS = {
    "serves_inference", "dpstats", "version", "fit", "draw", "row_seed", "notes", "accuracy",
    "limits",
}  # fmt: skip


def load(path: str | Path) -> Release:
    """Read a release file.

    Raises
    ------
    FileFormatError
        If the file is not a release that this version can read.

    Examples
    --------
    >>> import dpstats as dps
    >>> import pandas as pd
    >>> schema = dps.Schema([dps.Boolean("smoker")])
    >>> plan = dps.plan(schema, {"smoking": dps.Proportion("smoker")}, budget=dps.PureDP(1))
    >>> rows = pd.DataFrame({"smoker": [True] * 3_000 + [False] * 7_000})
    >>> release = dps.release(plan, rows)
    >>> release.save("survey-2026.zip")
    >>> dps.load("survey-2026.zip")
    <dpstats Release: smoking; n = 10000, k = 10000>
    """
    members = files.load_archive(path, files.RELEASE)
    document = files.from_json(members["release.json"], "release", Path(path).name)
    measurements = Measurements.from_members(members)
    try:
        fit, draw, notes = document["fit"], document["draw"], document["notes"]
        if fit not in get_args(Fit) or draw not in get_args(Draw):
            raise ValueError("fit and draw must name ways in which dpstats makes rows")
        if type(notes) is not list or not all(isinstance(note, str) for note in notes):
            raise TypeError("notes must be a list of texts")
        row_seed = document.get("row_seed", 0)
        if type(row_seed) is not int or row_seed < 0:
            raise TypeError("row_seed must be a whole number of at least 0")
        if not (isinstance(document["accuracy"], dict) and isinstance(document["limits"], str)):
            raise TypeError("accuracy must be a mapping and limits a text")
        if unknown := set(document) - _KEYS:
            raise ValueError(f"release.json has unknown keys {sorted(unknown)}")
        serves = document.get("serves_inference", False)
        if type(serves) is not bool:
            raise TypeError("serves_inference must be true or false")
        if not all(isinstance(plain["kind"], str) for plain in measurements.requests.values()):
            raise TypeError("every analysis needs a kind")
        reference_from_dict(measurements.reference_spec)
        candidates, weights, counts = candidates_from_members(members, measurements.columns)
        order = (
            random_order(counts, row_seed)
            if "row_seed" in document  # else rows are sorted, as they were before
            else np.repeat(np.arange(len(counts)), counts)
        )
        written = candidates_to_members(measurements.columns, candidates, weights, counts, order)
        if changed := [name for name, text in written.items() if members[name] != text]:
            raise ValueError(f"{changed[0]} does not hold the candidates and rows of the release")
    except (KeyError, TypeError, ValueError, IndexError, OverflowError) as error:
        raise FileFormatError(f"{Path(path).name} is damaged: {error}") from None
    return Release(
        measurements, candidates, weights, counts, fit, draw, row_seed, tuple(notes), serves
    )
