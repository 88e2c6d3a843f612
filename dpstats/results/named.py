"""Vectors of parameters, indexed by number or by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from dpstats.arrays import freeze
from dpstats.checks import did_you_mean
from dpstats.errors import RequestError


def place_of(name: str, names: Sequence[str]) -> int:
    """Number of the one parameter with a name, which some parameter has."""
    if names.count(name) > 1:
        raise RequestError(
            f"several parameters are called {name!r}; give the number of one (of params and of "
            "limits), or rename the levels or columns that make them alike"
        )
    return names.index(name)


class Named(np.ndarray[tuple[Any, ...], np.dtype[np.float64]]):
    """A read-only float64 array whose first axis is indexed by number or by name.

    Only the array of the result has names: slices, arithmetic and `numpy.asarray` give plain
    arrays. To change values, copy them: ``params.copy()``.

    Parameters
    ----------
    values : array_like
        The array, copied.
    names : sequence of str
        One per entry of the first axis; none for an array without names.

    Examples
    --------
    >>> params = Named([1.5, 0.25], ["Intercept", "age"])
    >>> float(params["age"]), float(params[1])
    (0.25, 0.25)
    >>> type(params[1:]).__name__, type(params * 2).__name__
    ('ndarray', 'ndarray')
    """

    names: tuple[str, ...] = ()

    def __new__(cls, values: ArrayLike, names: Sequence[str] = ()) -> Named:
        """Copy the values and name them."""
        made = freeze(np.array(values, dtype=np.float64)).view(cls)
        made.names = tuple(names)
        return made

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, str):
            key = self._place(key)
        elif isinstance(key, list) and key and all(isinstance(name, str) for name in key):
            key = [self._place(name) for name in key]
        return np.asarray(self)[key]

    def _place(self, name: str) -> int:
        if name not in self.names:
            raise RequestError(
                f"there is no parameter {name!r}{did_you_mean(name, self.names)}; the names are "
                f"{list(self.names)}"
            )
        return place_of(name, self.names)

    def __array_ufunc__(
        self, ufunc: np.ufunc, method: str, *inputs: Any, out: tuple[Any, ...] = (), **options: Any
    ) -> Any:
        given = [_plain(x) for x in inputs]
        if out:
            options["out"] = tuple(_plain(x) for x in out)
        return getattr(ufunc, method)(*given, **options)

    def __reduce__(self) -> tuple[Callable[..., Named], tuple[Any, ...]]:
        return Named, (np.asarray(self), self.names)

    def __copy__(self) -> Named:
        return Named(self, self.names)

    def __deepcopy__(self, memo: object) -> Named:
        return Named(self, self.names)


def _plain(value: Any) -> Any:
    return np.asarray(value) if isinstance(value, Named) else value
