"""The certificate as it is published with the rows: in the release's file, and printed."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from dpstats.measured.certificate import block_of_largest

if TYPE_CHECKING:
    from dpstats.measured.certificate import Accuracy


def written(whole: Accuracy, own: Mapping[str, Accuracy]) -> dict[str, Any]:
    """Plain data: the headline and the radius of each analysis, every one with its level.

    Bounds are rounded up to four digits, so that they hold and are the same on all machines.
    """
    return {
        "of": whole.target,
        "level": _level(whole),
        "delta": _up(whole.delta),
        "worst": whole.worst,
        "n": whole.rows,
        "analyses": {
            name: {"level": _level(a), "radius": _up(a.delta), "worst": a.worst, "n": a.rows}
            for name, a in own.items()
        },
    }


def printed(plain: Mapping[str, Any], whole: Accuracy) -> list[str]:
    """Lines for a reader, from what `written` gives, and the certificate that it is of."""
    lines = [
        f"Accuracy of the rows: with probability {100 * plain['level']:g}% every measured function "
        f"is within {plain['delta']:g} of the private rows, coarse moments left out "
        f"(worst: {plain['worst']})"
    ]
    if whose := block_of_largest(whole.block, whole.of_tables):
        lines[0] += f"; {whose}"
    radii = [f"{name} {one['radius']:g}" for name, one in plain["analyses"].items()]
    if radii:
        level = next(iter(plain["analyses"].values()))["level"]
        lines.append(f"Radius of each analysis, with {100 * level:g}% each: {', '.join(radii)}")
    return lines


def _level(accuracy: Accuracy) -> float:
    return round(1 - accuracy.alpha, 12)


def _up(bound: float) -> float:
    if not bound > 0:
        return 0.0
    step = 10.0 ** (math.floor(math.log10(bound)) - 3)
    return float(f"{math.ceil(bound / step * (1 - 1e-12)) * step:.4g}")
