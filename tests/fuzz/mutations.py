"""Changes of bytes, JSON values and archives, each from a generator with a seed."""

from __future__ import annotations

import copy
import json
import operator
import random
from collections.abc import Iterator
from functools import reduce
from typing import Any

MOST_BYTES = 2**16  # of one input: what is read in bounded memory at this size cannot hang

NUMBERS: list[Any] = [
    0, 1, -1, 2, 3, 7, -7, 255, 2**31, 2**53 + 1, 2**62, 2**63, -(2**63), 2**70, 10**400,
    0.0, -0.0, 0.1, 0.5, 1.5, -1.5, 1e-308, 5e-324, 1e308, 1 / 3,
]  # fmt: skip
TEXTS = [
    "", " ", "x", "0", "1", "-1", "1/2", "1/0", "0/1", "2/4", "1e400", "nan", "inf", "1e-400",
    "9" * 5_000, "\0", "\n", "é", "\u202e", "a" * 300, "(missing)", "replace", "add_remove",
    "pure", "zcdp", "approx", "table", "moments", "condition", "category", "number", "boolean",
    "family", "count", "reference", "linear", "log", "2020-02-30", "age >= 50", "not hiv", "hiv",
    "smoker", "age", "()", "a == 'b' and (", "=" * 60, "[" * 60, "uniform",
]  # fmt: skip
OTHERS: list[Any] = [None, True, False, [], {}, [[]], [None], {"kind": "x"}, {"": ""}]
TOKENS = [
    b"\0", b"\xff", b"\xc3", b"\xef\xbb\xbf", b"\n", b"\r", b"\r\n", b'"', b"'", b",", b";", b"\t",
    b"=", b"{", b"}", b"[", b"]", b":", b"#", b"\\", b"\\ud800", b"-", b"+", b"1e999", b"NaN",
    b"null", b"true", b"false", b"9" * 40, b"0x10", b"1_000", b"''", b'""', b'"""', b"e", b".",
]  # fmt: skip


def of_bytes(rng: random.Random, data: bytes, tokens: list[bytes] = TOKENS) -> bytes:
    """The bytes after one to four changes; it may happen that nothing has changed."""
    held = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        at, length = rng.randrange(len(held) + 1), rng.choice((1, 1, 2, 8, 40))
        part = bytes(held[at : at + length])
        match rng.randrange(8):
            case 0 if at < len(held):
                held[at] ^= 1 << rng.randrange(8)
            case 1 if at < len(held):
                held[at] = rng.randrange(256)
            case 2:
                del held[at : at + length]
            case 3:
                held[at:at] = part * rng.choice((1, 1, 2, 50))
            case 4:
                held[at:at] = rng.choice(tokens)
            case 5:
                held[at : at + length] = rng.choice(tokens)
            case 6:
                to = rng.randrange(len(held) + 1)
                held[to : to + length] = part
            case 7 if rng.random() < 0.3:
                del held[at:]
    return bytes(held[:MOST_BYTES])


def places(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where the values inside a JSON value are."""
    parts: Any = value.items() if isinstance(value, dict) else ()
    for key, inner in enumerate(value[:60]) if isinstance(value, list) else parts:
        yield (*at, key)
        yield from places(inner, (*at, key))


def within(value: Any, at: tuple[Any, ...]) -> Any:
    """The value at a place."""
    return reduce(operator.getitem, at, value)


def _near(rng: random.Random, value: Any) -> Any:
    """A value that differs a little and is of the same type, or nearly."""
    ways: list[Any] = OTHERS
    if isinstance(value, bool):
        ways = [not value, int(value), str(value).lower(), None]
    elif isinstance(value, int):
        ways = [value + 1, value - 1, -value, 2 * value, float(min(abs(value), 2**60)),
                str(value), bool(value), [value]]  # fmt: skip
    elif isinstance(value, float):
        ways = [-value, value + 1, value / 2, value * 1e300, int(value), str(value)]
    elif isinstance(value, str):
        at = rng.randrange(len(value) + 1)
        ways = [value[:at] + value[at + 1 :], value + " ", value.upper(), value * 2, value[:at],
                value[:at] + rng.choice(TEXTS)[:9] + value[at:], [value], list(value)]  # fmt: skip
    elif isinstance(value, list) and value:
        at = rng.randrange(len(value))
        ways = [rng.sample(value, len(value)), [*value, copy.deepcopy(value[at])],
                value[:at] + value[at + 1 :], value[::-1]]  # fmt: skip
    elif isinstance(value, dict) and value:
        ways = [dict(rng.sample([*value.items()], len(value)))]
    return rng.choice(ways)


def of_value(rng: random.Random, document: Any, others: list[Any] | None = None) -> Any:
    """A JSON value after one to three changes; parts may come from other documents."""
    changed = copy.deepcopy(document)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        every = list(places(changed))
        if not every:
            return changed
        at = rng.choice(every)
        holder, key = within(changed, at[:-1]), at[-1]
        match rng.randrange(9):
            case 0 | 1 | 2 as which:
                holder[key] = copy.deepcopy(rng.choice((NUMBERS, TEXTS, OTHERS)[which]))
            case 3 | 4 | 5:
                holder[key] = _near(rng, holder[key])
            case 6:
                del holder[key]
            case 7:
                source = rng.choice([changed, *(others or [])])
                found = list(places(source))
                if like := [one for one in found if one[-1] == key] or found:
                    holder[key] = copy.deepcopy(within(source, rng.choice(like)))
            case 8 if isinstance(holder, dict):
                name = rng.choice([*TEXTS, "kind", "note", "rows", "given", "share"])
                holder[name] = rng.choice([*NUMBERS, *TEXTS, *OTHERS])
    return changed


def as_json(rng: random.Random, value: Any) -> str:
    """JSON text, sometimes with what a careless program writes: NaN, a key twice, no spaces."""
    text = json.dumps(value, indent=rng.choice((None, 1)), ensure_ascii=rng.random() < 0.5)
    if rng.random() < 0.03 and isinstance(value, dict) and value:
        key = rng.choice(list(value))
        text = text[:-1].rstrip() + f", {json.dumps(key)}: {json.dumps(value[key])}}}"
    if rng.random() < 0.02:
        text = text.replace("1", rng.choice(("NaN", "1e999", "-0", "01")), 1)
    return text


def as_toml(value: Any) -> str:
    """A document as TOML, one line for each key; None, which TOML lacks, is left out."""
    return "".join(f"{line}\n" for line in _lines(value))


def _lines(value: dict[str, Any]) -> list[str]:
    return [f"{_toml_text(k)} = {_inline(v)}" for k, v in value.items() if v is not None]


def _toml_text(text: str) -> str:
    return json.dumps(text, ensure_ascii=True).replace("\\ud", "\\\\ud")


def _inline(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return repr(value) if abs(value) < 10**300 else "1" + "0" * 400
    if isinstance(value, list):
        return "[" + ", ".join(_inline(one) for one in value if one is not None) + "]"
    return "{" + ", ".join(_lines(value)) + "}" if isinstance(value, dict) else _toml_text(value)
