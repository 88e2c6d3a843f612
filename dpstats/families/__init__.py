"""Families of test functions: what is measured, with its sensitivity."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dpstats.checks import short
from dpstats.errors import FileFormatError
from dpstats.families.ball_moments import BallMoments
from dpstats.families.block import Block
from dpstats.families.contrasts import Contrasts
from dpstats.families.group_moments import GroupMoments, PairMoments
from dpstats.families.losses.linear import LinearLosses
from dpstats.families.losses.tabulated import TabulatedLosses
from dpstats.families.moments import Moments
from dpstats.families.persons import PersonMoments, PersonShares
from dpstats.families.pilot_score import PilotScore
from dpstats.families.tables.cells import Indicator, Partition, Table
from dpstats.families.tables.inside_bins import BinOffsets, SplineTable
from dpstats.families.tables.lattice import KernelLattice
from dpstats.families.tables.residuals import Residual
from dpstats.schema import Schema

_LIBRARY = (
    Table, Indicator, Residual, Moments, GroupMoments, BallMoments, KernelLattice, BinOffsets,
    SplineTable, LinearLosses, TabulatedLosses, PilotScore, PersonShares, PersonMoments,
    Partition, Contrasts, PairMoments,
)  # fmt: skip
KINDS: Mapping[str, type[Block]] = {kind.kind: kind for kind in _LIBRARY}
"""The library's blocks: those whose sensitivity is proved and tested."""


def is_library_block(block: object) -> bool:
    """True if the class of an object is one of the library's blocks, not derived from one."""
    return type(block) in KINDS.values()


def block_from_dict(plain: Mapping[str, Any], schema: Schema) -> Block:
    """Build a block again from what its `to_dict` wrote."""
    kind = plain.get("kind")
    if not isinstance(kind, str) or kind not in KINDS:
        raise FileFormatError(
            f"unknown kind of test functions {short(kind)}; this version of dpstats reads: "
            f"{', '.join(KINDS)}"
        )
    if "base" in plain:
        plain = {**plain, "base": block_from_dict(plain["base"], schema)}
    return KINDS[kind].from_dict(plain, schema)
