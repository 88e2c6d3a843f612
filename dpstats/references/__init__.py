"""Reference densities that candidate points are drawn from."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from dpstats.errors import FileFormatError

if TYPE_CHECKING:
    from dpstats.references.base import Reference


def reference_from_dict(plain: Mapping[str, Any]) -> Reference:
    """Build a reference density again from plain data, such as ``{"kind": "uniform"}``."""
    from dpstats.references.bernstein import BernsteinKDE
    from dpstats.references.histogram import PerturbedHistogram
    from dpstats.references.uniform import Uniform

    parameters = {key: value for key, value in plain.items() if key != "kind"}
    kinds: dict[str, Callable[..., Reference]] = {
        "uniform": Uniform,
        "perturbed_histogram": PerturbedHistogram,
        "bernstein_kde": BernsteinKDE,
    }
    kind = plain.get("kind")
    if kind not in kinds:
        raise FileFormatError(f"unknown reference density {kind!r}; known: {sorted(kinds)}")
    try:
        return kinds[kind](**parameters)
    except TypeError:
        raise FileFormatError(f"reference {kind!r} has unknown keys {sorted(parameters)}") from None
