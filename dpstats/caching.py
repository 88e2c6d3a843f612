"""Compute a value once, and keep it out of pickles."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import fields
from functools import cached_property
from typing import Any, TypeVar

T = TypeVar("T")


class Cached:
    """A frozen dataclass that caches computed values; only its fields are pickled.

    Use `cached_property` for a value without parameters, and `_once` otherwise.
    """

    @cached_property
    def _computed(self) -> dict[Hashable, Any]:
        return {}

    def _once(self, key: Hashable, compute: Callable[[], T]) -> T:
        """The value under a key, computed on first use."""
        if key not in self._computed:
            self._computed[key] = compute()
        value: T = self._computed[key]
        return value

    def __getstate__(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type]
