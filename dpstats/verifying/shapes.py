"""Shapes of every value of a file: keys, types and the one way in which it is written."""

from __future__ import annotations

import json
import math
import re
from fractions import Fraction
from typing import Any

VERSION = 3

# What a value may be: a type, a text or number itself, a tuple of these, a list of one of them, or
# the keys of an object, of which those with "?" may be absent; with the key `str`, any keys.
NUMBER, BOUND, LEVEL = (int, float), (int, float, str), (int, float, str, bool)
_SHARED = {
    "version": VERSION, "budget": dict, "unit": ("replace", "add_remove"), "rows": (int, None),
    "rows_per_person?": int, "person_key?": str, "schema": [dict], "rules?": [dict],
    "totals?": [dict], "design?": dict, "blocks": [dict], "tables": [[str]],
    "analyses": {str: dict}, "reference": dict,
}  # fmt: skip
_ACCURACY = {"level": float, "worst": str, "n": (int, list)}
SHAPES: dict[str, Any] = {
    "plan": {
        "dpstats": "plan", **_SHARED, "guesses?": dict, "file?": {str: str},
        "start?": {"measurements.json": str, "answers.csv": str},
    },
    "measurements": {
        "dpstats": "measurements", **_SHARED, "person": str, "not_private": bool, "assumes": str,
        "plan": str,
    },
    "release": {
        "dpstats": "release", "version": VERSION, "fit": ("entropy", "minimax"),
        "draw": ("systematic", "iid"), "row_seed?": int, "serves_inference?": bool,
        "notes": [str], "limits": str,
        "accuracy": {
            "of": "synthetic rows", **_ACCURACY, "delta": float,
            "analyses": {str: {**_ACCURACY, "radius": float}},
        },
    },
    "digests": {str: str},
    "pure": {"kind": str, "epsilon": str},
    "zcdp": {"kind": str, "rho": str, "delta?": str},
    "approx": {"kind": str, "rho": str, "epsilon": str, "delta": str},
    "column": {
        "kind?": ("boolean", "category", "number"), "name": str, "missing?": LEVEL,
        "allow_missing?": bool, "note?": str, "levels?": (list, dict), "other?": LEVEL,
        "low?": BOUND, "high?": BOUND, "points?": int, "edges?": [BOUND],
        "closed?": ("left", "right"), "values?": [NUMBER], "scale?": ("linear", "log"),
        "missing_values?": [LEVEL], "even_edges?": bool, "source?": str,
    },
    "block": {
        "kind": str, "multiplier": str,
        "role": ("family", "score", "persons", "contrasts", "reference", "count"),
    },
    "design": {
        "weights": str, "mean": NUMBER, "low?": NUMBER, "high?": NUMBER, "cv?": NUMBER,
        "cap": NUMBER, "missing?": NUMBER, "total?": NUMBER, "strata?": str, "unit?": str,
        "units?": (int, list), "deff?": NUMBER, "lonely?": ("certainty", "adjust", "collapse"),
    },
}  # fmt: skip


class NotReadError(Exception):
    """The file is no release, no measurements and no plan, or cannot be read as one."""


def refuse(because: bool, says: str) -> None:
    """Raise NotReadError if so."""
    if because:
        raise NotReadError(says)


def read_json(text: str, kind: str) -> dict[str, Any]:
    """A JSON text of one meaning: no key twice, only finite numbers, no half characters."""
    try:
        document: dict[str, Any] = json.loads(text, object_pairs_hook=_once)
        json.dumps(document, ensure_ascii=False, allow_nan=False).encode()
    except (ValueError, RecursionError):
        raise NotReadError("does not hold JSON, or not such as dpstats writes") from None
    right = isinstance(document, dict) and document.get("dpstats", "digests") == kind
    refuse(not right, f"is not a {kind} of dpstats")
    version = document.get("version", VERSION if kind == "digests" else None)
    refuse(repr(version) != repr(VERSION), f"has the format version {version!r}, not {VERSION}")
    check(document, SHAPES[kind], kind)
    return document


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError
    return found


def check(value: object, shape: Any, where: str) -> None:
    """Refuse a value that is not of a shape, and keys that could change what the others mean."""
    if isinstance(shape, list) and type(value) is list:
        for one in value:
            check(one, shape[0], where)
    elif isinstance(shape, dict) and type(value) is dict:
        known = {key.rstrip("?"): inner for key, inner in shape.items() if key is not str}
        if str in shape:
            known = dict.fromkeys(value, shape[str])
        if unknown := set(value) - set(known):
            raise NotReadError(f"has keys that are not known: {', '.join(sorted(unknown))}")
        if lacking := known.keys() & shape.keys() - value.keys():
            raise NotReadError(f"lacks {', '.join(sorted(lacking))} of {where}")
        for key, one in value.items():
            check(one, known[key], f"{where}.{key}")
    elif not any(
        type(value) is one if isinstance(one, type) else repr(value) == repr(one)
        for one in (shape if isinstance(shape, tuple) else (shape,))
    ):
        raise NotReadError(f"has a value of {where} that dpstats does not write")


def fraction(text: object, sign: bool = False) -> Fraction:
    """A fraction as files write it, such as "1/3"; positive, unless a sign is allowed."""
    text = str(text)
    written = re.fullmatch(r"-?[0-9]{1,4000}(/[0-9]{1,4000})?", text)
    refuse(not written, "has an amount that is no fraction")
    found = Fraction(text)
    refuse(str(found) != text, "has an amount that is not in its lowest terms")
    refuse(found <= 0 and not sign, "has an amount that is not positive")
    return found


def is_number(text: str, kind: type[int] | type[float] = float) -> bool:
    """True if a cell is a finite number in its shortest form."""
    try:
        value = kind(text)
        return math.isfinite(value) and text == repr(value)
    except (ValueError, OverflowError):  # no number, or one of thousands of digits
        return False
