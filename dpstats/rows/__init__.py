"""Synthetic rows from noisy answers, and the reference densities they start from."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from dpstats.checks import short
from dpstats.errors import FileFormatError

if TYPE_CHECKING:
    from dpstats.families.block import Family
    from dpstats.rows.base import Reference
    from dpstats.schema import Schema

ENUMERABLE = 20_000  # states of a domain, as many as there are candidates by default


def default_reference(columns: Schema, family: Family) -> Reference:
    """Uniform where candidates can cover the domain (public numbers), else log-linear."""
    from dpstats.rows.gibbs import has_conditionals, states
    from dpstats.rows.loglinear import LogLinear
    from dpstats.rows.uniform import Uniform

    coded = family.coded_columns
    size = math.prod(states(column, column.name in coded) for column in columns)
    return LogLinear() if size > ENUMERABLE and has_conditionals(family) else Uniform()


def reference_from_dict(plain: Mapping[str, Any]) -> Reference:
    """Build a reference density again from plain data, such as ``{"kind": "uniform"}``."""
    from dpstats.rows.bernstein import BernsteinKDE
    from dpstats.rows.histogram import PerturbedHistogram
    from dpstats.rows.loglinear import LogLinear
    from dpstats.rows.uniform import Uniform

    if not isinstance(plain, Mapping):
        raise FileFormatError(f"a reference is a table with its kind, got {short(plain)}")
    parameters = {key: value for key, value in plain.items() if key != "kind"}
    kinds: dict[Any, Any] = {
        "uniform": Uniform,
        "perturbed_histogram": PerturbedHistogram,
        "bernstein_kde": BernsteinKDE,
        "log_linear": LogLinear,
    }
    kind = plain.get("kind")
    if not isinstance(kind, str) or kind not in kinds:
        raise FileFormatError(f"unknown reference density {short(kind)}; known: {sorted(kinds)}")
    if kind == "log_linear":
        parameters.pop("sweeps", None)  # of earlier versions
    try:
        reference: Reference = kinds[kind](**parameters)
    except TypeError:
        raise FileFormatError(
            f"reference {kind!r} has unknown keys or values: {short(parameters)}"
        ) from None
    return reference
