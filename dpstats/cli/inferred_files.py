"""Results of `dpstats infer` for other programs: JSON with everything, CSV with the tables."""

from __future__ import annotations

import inspect
import json
import math
from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import pandas as pd

    from dpstats.results.base import Result

_SINGLE = ("nobs", "statistic", "df", "pvalue", "effect_name", "effect")  # of some results


def frame_of(result: Result, options: Mapping[str, Any]) -> pd.DataFrame:
    """The frame of a result with those options of `infer` that it takes."""
    known = inspect.signature(result.to_frame).parameters
    frame = result.to_frame(**{o: value for o, value in options.items() if o in known})
    numbers = frame.select_dtypes("float").columns
    return frame.assign(**{name: frame[name] + 0.0 for name in numbers})  # no zero is negative


def as_csv(frames: Mapping[str, pd.DataFrame]) -> str:
    """One table, the name of the analysis first; cells are empty where a column is of others."""
    import pandas as pd

    for name, frame in frames.items():
        frame.insert(0, "analysis", name, allow_duplicates=True)
    whole = pd.concat(frames.values(), ignore_index=True, join="outer")
    return str(whole.to_csv(index=False, lineterminator="\n"))


def as_json(
    results: Mapping[str, Result],
    frames: Mapping[str, pd.DataFrame],
    analyses: Mapping[str, Mapping[str, Any]],
    options: Mapping[str, Any],
) -> str:
    """A list of results, each with its table and what it says beside it."""
    found = []
    for name in frames:
        result = results[name]
        one: dict[str, Any] = {"name": name, "analysis": analyses[name], "title": result.title}
        one |= {"headline": result.headline, **options}
        one |= {key: getattr(result, key) for key in _SINGLE if hasattr(result, key)}
        if "conf_low" not in frames[name] and hasattr(result, "conf_int"):  # that of the effect
            taken = inspect.signature(result.conf_int).parameters
            one["conf_int"] = result.conf_int(**{o: v for o, v in options.items() if o in taken})
        one["table"] = frames[name].to_dict("records")
        for key in ("budget", "notes"):
            if hasattr(result, key):
                one[key] = getattr(result, key)
        found.append(_plain(one))
    return json.dumps(found, indent=1, ensure_ascii=False, allow_nan=False)


def _plain(value: Any) -> Any:
    """Values that JSON has: NaN as null, infinities as the texts "inf" and "-inf"."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, np.generic | np.ndarray):
        return _plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else str(value)
    if isinstance(value, datetime):  # of a frame; NaT is one too
        return None if value != value else value.date().isoformat()
    if value is None or isinstance(value, str | int | float | bool):
        return value
    return str(value)
