"""What may come of one input: refused with a sentence, equal, or another consistent thing."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import dpstats as dps

REFUSED, EQUAL, OTHER = "refused", "equal", "consistent"
Read = TypeVar("Read")
LONGEST = 1_500  # characters of a line of a message: names are cut, lists of columns are not
_OF_PYTHON = re.compile(r"<class |object at 0x|Traceback|^\W*$|^'[^']*'$")


class Finding(AssertionError):
    """An input with another outcome."""


class Refused(Exception):
    """An input was refused with a sentence."""


def read(load: Callable[..., Read], *given: Any, private: Iterable[str] = ()) -> Read:
    """What a function makes of an input; Refused where it refuses with a sentence."""
    try:
        return load(*given)
    except dps.DpstatsError as error:
        check_sentence(error, private)
    raise Refused


def check_sentence(error: dps.DpstatsError, private: Iterable[str] = ()) -> None:
    """A refusal is a sentence that quotes no private cell, nor does what is chained to it."""
    link: BaseException | None = error
    while link is not None:
        for text in private:
            if text in str(link):
                raise Finding(f"the message quotes a cell: {str(link)[:300]!r}")
        if private and link.__cause__ is not None:
            raise Finding("an error of a reader is the cause")
        link = link.__context__ if private else None
    text = str(error)
    text.encode()
    if max(map(len, text.split("\n"))) > LONGEST or " " not in text or _OF_PYTHON.search(text):
        raise Finding(f"the message is no sentence: {text[:300]!r}")
