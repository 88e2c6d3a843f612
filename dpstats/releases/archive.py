"""Read the file of a release."""

from __future__ import annotations

from pathlib import Path

from dpstats import files
from dpstats.errors import FileFormatError
from dpstats.measured.candidates_file import candidates_from_members
from dpstats.measured.measurements import Measurements
from dpstats.references import reference_from_dict
from dpstats.releases.release import MEMBERS, Release


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
    members = files.load_archive(path, MEMBERS)
    document = files.from_json(members["release.json"], "release", Path(path).name)
    measurements = Measurements.from_members(members)
    try:
        texts = (document["fit"], document["draw"], *document["notes"])
        if not all(isinstance(text, str) for text in texts):
            raise TypeError("fit, draw and notes must be strings")
        row_seed = document.get("row_seed", 0)
        if type(row_seed) is not int or row_seed < 0:
            raise TypeError("row_seed must be a whole number of at least 0")
        serves = document.get("serves_inference", False)
        if type(serves) is not bool:
            raise TypeError("serves_inference must be true or false")
        if not all(isinstance(plain["kind"], str) for plain in measurements.requests.values()):
            raise TypeError("every analysis needs a kind")
        reference_from_dict(measurements.reference_spec)
        candidates, weights, counts = candidates_from_members(members, measurements.columns)
    except (KeyError, TypeError, ValueError, IndexError, OverflowError) as error:
        raise FileFormatError(f"{Path(path).name} is damaged: {error}") from None
    fit, draw, *notes = texts
    return Release(
        measurements, candidates, weights, counts, fit, draw, row_seed, tuple(notes), serves
    )
