"""The part of YAML that metadata of other software use: mappings of mappings and values."""

from __future__ import annotations

import math
import re
from collections import deque
from typing import Any

from dpstats.errors import SchemaError

_LINE = re.compile(
    r"(?P<indent> *)(?P<key>'[^']*'|\"[^\"]*\"|[^\s'\"#:][^#:]*?) *:(?: +(?P<value>.*))?$"
)
_WORDS = {"true": True, "false": False, "null": None, "~": None, "": None}


def read_yaml(text: str, name: str) -> dict[str, Any]:
    """Mappings of mappings and single values, which is all of YAML that such metadata use.

    SchemaError for anything else: lists, anchors, several lines.
    """
    lines = deque[tuple[int, int, str, str]]()
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#") or line.strip() == "---":
            continue
        match = _LINE.match(re.sub(r"\s+#.*$", "", line).rstrip())
        if match is None:
            raise _no_yaml(name, number)
        key = str(_value(match["key"], name, number))
        lines.append((number, len(match["indent"]), key, match["value"] or ""))
    mapping = _mapping(lines, name) if lines else {}
    if lines:
        raise _no_yaml(name, lines[0][0])
    return mapping


def _mapping(lines: deque[tuple[int, int, str, str]], name: str) -> dict[str, Any]:
    """Take the lines of one mapping, and of those inside it."""
    mapping: dict[str, Any] = {}
    start = lines[0][1]
    while lines and lines[0][1] >= start:
        number, indent, key, value = lines.popleft()
        if indent != start or key in mapping:
            raise _no_yaml(name, number)
        nested = not value and lines and lines[0][1] > indent
        mapping[key] = _mapping(lines, name) if nested else _value(value, name, number)
    return mapping


def _value(text: str, name: str, line: int) -> Any:
    if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"":
        return text[1:-1]
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    if text[0] in "[{&*!|>%@`'\"":
        raise _no_yaml(name, line)
    for read in (int, float):
        try:
            value = read(text)
        except ValueError:
            continue
        return value if math.isfinite(value) else text
    return text


def _no_yaml(name: str, line: int) -> SchemaError:
    return SchemaError(
        f"{name}, line {line}: not a mapping of names to single values; read the file with a YAML "
        "library and give the mapping"
    )
