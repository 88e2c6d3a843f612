"""One way to compute a thing once, and to pickle without what was computed."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import fields
from functools import cached_property
from typing import Any, TypeVar

T = TypeVar("T")


class Cached:
    """A frozen dataclass that computes a thing once; it is pickled as its fields alone.

    Things without parameters are a `cached_property`; the others go through `_once`.
    """

    @cached_property
    def _found(self) -> dict[Hashable, Any]:
        return {}

    def _once(self, key: Hashable, compute: Callable[[], T]) -> T:
        """The value under a key, computed when it is asked for first."""
        if key not in self._found:
            self._found[key] = compute()
        found: T = self._found[key]
        return found

    def __getstate__(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type]
