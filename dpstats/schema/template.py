"""A schema file to fill in: what to decide for every column, from its name alone."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType

_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
_KEYS = frozenset(("id", "ids", "uid", "uuid", "guid", "key", "ssn", "pseudonym", "pseudonyms"))


def template(names: Sequence[str], file: Mapping[str, str] = MappingProxyType({})) -> str:
    """Text of a schema file with comments on what to decide; it cannot be loaded before that.

    Examples
    --------
    >>> print(template(["age", "sex"]).split("[[column]]")[1].splitlines()[1])
    name = "age"
    """
    import jinja2  # late: it takes a tenth of a second

    files = jinja2.Environment(
        loader=jinja2.PackageLoader("dpstats.schema", "."),
        trim_blocks=True,
        undefined=jinja2.StrictUndefined,
        autoescape=False,
    )
    shown = [name for name in names if not looks_like_key(name)] or names
    text = files.get_template("template.toml")
    return text.render(names=names, first=shown[0], second=shown[-1], file=file, quoted=_quoted,
                       looks_like_key=looks_like_key) + "\n"  # fmt: skip


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def looks_like_key(name: str) -> bool:
    """True if a name contains a word such as id, as names of key columns do.

    Examples
    --------
    >>> [looks_like_key(name) for name in ("id", "person_id", "PatientID", "acid", "idle")]
    [True, True, True, False, False]
    """
    return any(word.lower() in _KEYS for word in _WORD.findall(name))
