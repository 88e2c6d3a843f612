"""Likely meaning of undeclared cells: advice for a custodian who looks at a table."""

from __future__ import annotations

import difflib
import re
import unicodedata
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from dpstats.schema import Boolean, Category, Column, Number, arrow

_TRUTH = {
    word: value
    for value, words in ((False, "0 no n false f"), (True, "1 yes y true t"))
    for word in words.split()
}
_NOT_UTF8 = "\ufffd"
DECLARE_ENCODING = (
    "declare that of a text file, such as encoding = 'latin-1' or 'cp1252', under [file] of the "
    "schema"
)
_MARKS = ",;\t|:^~"  # that may separate cells
_LEAST_MISSPELT = 4  # characters: shorter texts are too like each other
_MOST = 5  # levels that are suggested
# Blanks and apostrophes separate thousands only; points and commas may be either sign.
_THOUSANDS = re.compile(r"[+-]?\d{1,3}((?P<mark>[.,'\u2019 \u00a0\u202f])\d{3})(?:(?P=mark)\d{3})*"
                        r"(?:[.,]\d+)?")  # fmt: skip
_DECIMAL_COMMA = re.compile(r"[+-]?\d*,\d+")
_ISO_DATE = re.compile(r"\d{4}-\d{2}-\d{2}([T ].*)?")
# Of a code book, for "don't know" and the like.
_MISSING = re.compile(r"(-?(9*[6-9]|77+|88+)|-[1-5]|0)(\.0+)?|9999-12-31|1900-01-01|1111-11-11")
EXCHANGED = str.maketrans(".,", ",.")
_DATE = re.compile(r"\d{1,4}[-./]\d{1,2}[-./]\d{1,4}(\s.*)?")


def advise_on(
    column: Column,
    values: Mapping[str, int],
    decimal: str = ".",
) -> tuple[str, ...]:
    """Sentences on values outside a declaration, the commonest first, with their counts."""
    odd = next((value for value in values if _NOT_UTF8 in value and value != _NOT_UTF8), None)
    recode = [] if odd is None else [f"text that is not UTF-8, as in {odd!r}: {DECLARE_ENCODING}"]
    if isinstance(column, Category):
        candidates = ((value, _levels_alike(column, value)) for value in values)
        meant = [(value, level) for value, levels in candidates for level in levels[:1]][:_MOST]
        lines = [f"{value!r}: did you mean {level!r}?" for value, level in meant]
        if column.other is not None:  # without it, they count as missing cells do
            explained = {value for value, _ in meant}
            unknown = {value: n for value, n in values.items() if value not in explained}
            lines += _on_missing(unknown, "and is no level")
        if lines and isinstance(column, Boolean):
            texts = [value for value, _ in meant][:2]
            lines.append(
                "a Boolean reads true, false, 1 and 0; for other texts declare levels, such as "
                f"{texts}, and no boolean"
            )
        return (*recode, *lines)
    if column.ends is not None:
        return tuple(dict.fromkeys([*recode, *_on_ends(values)]))
    lines = [*recode, *_on_numbers(column, list(values), decimal)]
    return tuple(dict.fromkeys([*lines, *_on_missing(values, "outside the declaration")]))


def find_delimiter(fields: Iterable[str], absent: Collection[str]) -> str:
    """The mark that separates absent names in a field of a first line; "" if none does."""
    within = ((mark, field.split(mark)) for field in fields for mark in _MARKS if mark in field)
    return next((mark for mark, parts in within if not set(absent).isdisjoint(parts)), "")


def find_alike(text: str, known: Iterable[str]) -> list[str]:
    """Names that differ from a text in case, blanks or Unicode form only."""
    return [name for name in known if _folded(name) == _folded(text)]


def _folded(text: str) -> str:
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


def _levels_alike(column: Category, value: str) -> list[Any]:
    """Levels that a value may mean: the same text, number or truth value, in another form."""
    texts = {level: str(level) for level in column.stored}
    close = [level for level, text in texts.items() if _folded(text) == _folded(value)]
    labelled = zip(column.labels, column.stored, strict=False)  # one more label is "(missing)"
    close += [stored for label, stored in labelled if _folded(str(label)) == _folded(value)]
    number = _number(value)
    if number is not None:
        close += [level for level, text in texts.items() if _number(text) == number]
    truths = {level: _TRUTH.get(_folded(text)) for level, text in texts.items()}
    meant = _TRUTH.get(_folded(arrow.spelled(number) if number is not None else value))
    if meant is not None and set(truths.values()) == {False, True} and len(truths) == 2:
        close += [level for level, truth in truths.items() if truth == meant]
    if close or len(value) < _LEAST_MISSPELT:
        return close
    folded = {_folded(text): level for level, text in texts.items()}
    return [folded[text] for text in difflib.get_close_matches(_folded(value), folded, n=1)]


def _number(text: str) -> float | None:
    """The number that a text may mean, with a point or a comma."""
    try:
        number = float(text.strip().replace(",", "."))
    except ValueError:
        return None
    return number if abs(number) < float("inf") else None


def _on_ends(values: Iterable[str]) -> list[str]:
    """On cells of two columns of which the difference is taken, and on clamped differences."""
    dates = (value for value in values if _DATE.fullmatch(value.strip()))
    unread = [v for v in dates if _is_unread(v) and not _ISO_DATE.fullmatch(v.strip())]
    return [f"dates such as {value!r}: write them as 2024-05-01" for value in unread[:1]]


def _on_numbers(column: Number, values: Sequence[str], decimal: str) -> list[str]:
    said = []
    declare = ("write a decimal point, or declare decimal = ',' under [file] of the schema if the "
               "file is text")  # fmt: skip
    for value in values:
        text = value.strip()
        read = text.translate(EXCHANGED) if decimal == "," else text
        if column.dates:
            if not _is_unread(text):
                said.append(f"numbers such as {value!r}, where dates are declared")
            elif _DATE.fullmatch(text) and not _ISO_DATE.fullmatch(text):
                said.append(f"dates such as {value!r}: write them as 2024-05-01")
        elif _ISO_DATE.fullmatch(text):
            said.append(f"dates such as {value!r}: declare low and high as dates")
        elif _THOUSANDS.fullmatch(text) and _is_unread(read):
            either = _DECIMAL_COMMA.fullmatch(read)
            mark = f", or a decimal {'comma' if decimal == '.' else 'point'}" if either else ""
            more = f"; or {declare}" if either and decimal == "." else ""
            said.append(f"thousands separators{mark}, as in {value!r}: write plain numbers{more}")
        elif _DECIMAL_COMMA.fullmatch(read):
            said.append(
                f"a decimal comma, as in {value!r}: {declare}"
                if decimal == "."
                else f"a decimal point, as in {value!r}, where decimal = ',' is declared"
            )
        elif _DATE.fullmatch(text):
            said.append(f"dates such as {value!r} as text: write them as 2024-05-01 and declare "
                        "low and high as dates")  # fmt: skip
    kinds: dict[str, str] = {}
    for line in said:  # one example of each kind
        kinds.setdefault(line.split("'")[0], line)
    return list(kinds.values())


def _on_missing(values: Mapping[str, int], where: str) -> list[str]:
    """A question for values that look like codes for missing cells, and occur more than once."""
    repeated = [(text.strip(), times) for text, times in values.items() if times > 1]
    return [
        f"{text} appears {times:,} times {where}: a missing code? Then list it in missing_values"
        for text, times in repeated
        if _MISSING.fullmatch(text)
    ][:_MOST]


def _is_unread(text: str) -> bool:
    """True if a text is not read as a number."""
    numbers = arrow.numbers_from_text(pa.array([text.encode()], pa.large_binary()))
    return bool(np.isnan(numbers[0]))
