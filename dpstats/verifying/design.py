"""The design of a sample survey: what it has to hold, and the contrasts that belong to it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from dpstats.verifying.shapes import SHAPES, check, refuse

STEPS = 2**12  # of weights, from zero to the cap
HASHED_PAIRS = 2**20  # of units that are not listed


def check_design(design: dict[str, Any], roles: Sequence[str]) -> None:
    """Refuse a design that dpstats does not write, and what is not measured with one."""
    check(design, SHAPES["design"], "design")
    amounts = [v for name, v in design.items() if type(v) in (int, float) and name != "cv"]
    within = design.get("low", 0) <= design["mean"] <= design.get("high", math.inf)
    wrong = not within or design["cap"] < design["mean"] / 4 or design.get("cv", 0) < 0
    wrong |= not all(math.isfinite(v) and v > 0 for v in amounts)
    refuse(wrong, "has a design with an amount that is not positive, or out of bounds")
    needs_units = {"strata", "units"} & set(design) or "deff" not in design
    refuse("unit" not in design and bool(needs_units), "has a design without units that needs them")
    unlike = bool({"score", "persons"} & set(roles))
    refuse(unlike, "has second stages or person totals, which no design has")
    strata = _listed(design)
    named = [stratum for stratum, _ in strata] != [""]
    refuse(
        bool(strata) and ("strata" in design) != named, "has a design with other strata than listed"
    )
    keys = [stratum for stratum, _ in strata], [key for _, own in strata for key in own]
    mixed = any(len({isinstance(key, str) for key in every}) > 1 for every in keys)
    refuse(mixed, "has a design whose keys are not of one type")
    together = [keys[0], *(own for _, own in strata)]
    twice = any(len(set(own)) < len(own) for own in together)
    refuse(twice, "has a design that names a stratum or a unit twice")


def check_contrasts(
    design: dict[str, Any] | None, blocks: Sequence[tuple[str, Mapping[str, Any]]]
) -> None:
    """Refuse contrasts without units, and such as are not of the pairs of the design."""
    for role, plain in blocks:
        contrasts = plain["kind"] == "contrasts"
        refuse(contrasts != (role == "contrasts"), "has contrasts of units with another role")
        if contrasts:
            refuse(
                design is None or "unit" not in design, "has contrasts without a design of units"
            )
            dealt = (plain["pairs"][0], plain["triples"][0])
            other = dealt != count_pairs(design or {})
            refuse(other, "has contrasts that are not those of the units of its design")


def count_pairs(design: Mapping[str, Any]) -> tuple[int, int]:
    """How many pairs of units there are, and how many of them stand for three.

    Units of a stratum are paired; of an odd number the last pair stands for three. A single one is
    in no pair, in one of its own, or with that of another stratum.
    """
    strata = _listed(design)
    if not strata:
        return HASHED_PAIRS, 0
    sizes = [len(keys) for _, keys in strata]
    single, sizes = sizes.count(1), [size for size in sizes if size > 1]
    lonely = design.get("lonely")
    refuse(bool(single) and lonely is None, "has a stratum of one unit, and says not what to do")
    apart = {"certainty": 0, "collapse": (single + 1) // 2}.get(str(lonely), single)
    triples = sum(size % 2 for size in sizes)
    return sum(size // 2 for size in sizes) - triples + apart, triples


def _listed(design: Mapping[str, Any]) -> list[tuple[Any, list[Any]]]:
    units = design.get("units")
    if not isinstance(units, list):
        return []
    check(units, [list], "units")
    for stratum, keys in units:
        check([stratum, *keys], [(int, float, str)], "units")
        refuse(not keys, "has a stratum without units")
    return [(stratum, keys) for stratum, keys in units]
