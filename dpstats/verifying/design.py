"""The design of a sample survey: what it has to hold, and the contrasts that belong to it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from dpstats.verifying.shapes import SHAPES, NotReadError, check

STEPS = 2**12  # of weights, from zero to the cap
HASHED_PAIRS = 2**20  # of units that are not listed


def check_design(design: dict[str, Any], roles: Sequence[str]) -> None:
    """Refuse a design that dpstats does not write, and what is not measured with one."""
    check(design, SHAPES["design"], "design")
    amounts = [v for name, v in design.items() if type(v) in (int, float) and name != "cv"]
    if not all(math.isfinite(v) and v > 0 for v in amounts):
        raise NotReadError("has a design with an amount that is not positive")
    if not design.get("low", 0) <= design["mean"] <= design.get("high", math.inf):
        raise NotReadError("has a design whose mean weight is not within its bounds")
    if design["cap"] < design["mean"] / 4 or design.get("cv", 0) < 0:
        raise NotReadError("has a design whose cap is less than a quarter of the mean weight")
    needs_units = {"strata", "units"} & set(design) or "deff" not in design
    if "unit" not in design and needs_units:
        raise NotReadError("has a design without units that needs them")
    if {"score", "persons"} & set(roles):
        raise NotReadError("has second stages or person totals, which no design has")
    strata = _listed(design)
    if strata and ("strata" in design) == ([stratum for stratum, _ in strata] == [""]):
        raise NotReadError(
            "has a design with strata that it does not list, or without those listed"
        )
    keys = [stratum for stratum, _ in strata], [key for _, own in strata for key in own]
    if any(len({isinstance(key, str) for key in every}) > 1 for every in keys):
        raise NotReadError("has a design whose keys are not of one type")
    together = [keys[0], *(own for _, own in strata)]
    if any(len(set(map(str, own))) < len(own) for own in together):
        raise NotReadError("has a design that names a stratum or a unit twice")


def check_contrasts(
    design: dict[str, Any] | None, blocks: Sequence[tuple[str, Mapping[str, Any]]]
) -> None:
    """Refuse contrasts without units, and such as are not of the pairs of the design."""
    for role, plain in blocks:
        if (plain["kind"] == "contrasts") != (role == "contrasts"):
            raise NotReadError("has contrasts of units with another role, or that role without any")
        if role != "contrasts":
            continue
        if design is None or "unit" not in design:
            raise NotReadError("has contrasts of units, and no design that names them")
        if (plain["pairs"][0], plain["triples"][0]) != count_pairs(design):
            raise NotReadError("has contrasts that are not those of the units of its design")


def count_pairs(design: Mapping[str, Any]) -> tuple[int, int]:
    """How many pairs of units there are, and how many of them stand for three.

    Units of a stratum are paired; of an odd number the last pair stands for three. A single one is
    in no pair, in one of its own, or joins the others.
    """
    strata = _listed(design)
    if not strata:
        return HASHED_PAIRS, 0
    sizes = [len(keys) for _, keys in strata]
    single, sizes = sizes.count(1), [size for size in sizes if size > 1]
    lonely = design.get("lonely")
    if single and lonely is None:
        raise NotReadError("has a design with a stratum of one unit, and does not say what to do")
    if lonely == "collapse" and single == 1 and sizes:
        single, sizes[0] = 0, sizes[0] + 1
    elif lonely == "collapse" and single > 1:
        single, sizes = 0, [*sizes, single]
    alone = 0 if lonely == "certainty" else single
    triples = sum(size % 2 for size in sizes)
    return sum(size // 2 for size in sizes) - triples + alone, triples


def _listed(design: Mapping[str, Any]) -> list[tuple[Any, list[Any]]]:
    units = design.get("units")
    if not isinstance(units, list):
        return []
    check(units, [list], "units")
    if not all(len(pair) == 2 for pair in units):
        raise NotReadError("has units that are no strata with keys")
    for stratum, keys in units:
        check(stratum, (int, float, str), "strata")
        check(keys, [(int, float, str)], "units")
        if not keys:
            raise NotReadError("has a stratum without units")
    return [(stratum, keys) for stratum, keys in units]
