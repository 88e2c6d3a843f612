"""Reference densities that candidate points are drawn from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from dpstats.errors import FileFormatError

if TYPE_CHECKING:
    from dpstats.references.base import Reference


def reference_from_dict(plain: Mapping[str, Any]) -> Reference:
    """Build a reference density again from plain data, such as ``{"kind": "uniform"}``."""
    from dpstats.references.loglinear import LogLinear
    from dpstats.references.histogram import PerturbedHistogram
    from dpstats.references.uniform import Uniform

    parameters = {key: value for key, value in plain.items() if key != "kind"}
    kinds: dict[Any, Any] = {
        "uniform": Uniform,
        "perturbed_histogram": PerturbedHistogram,
        "log_linear": LogLinear,
    }
    kind = plain.get("kind")
    if kind not in kinds:
        raise FileFormatError(f"unknown reference density {kind!r}; known: {sorted(kinds)}")
    try:
        reference: Reference = kinds[kind](**parameters)
    except TypeError:
        raise FileFormatError(f"reference {kind!r} has unknown keys {sorted(parameters)}") from None
    return reference
