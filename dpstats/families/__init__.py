"""Families of test functions: what is measured, and how far one row can move it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from dpstats.errors import FileFormatError

if TYPE_CHECKING:
    from dpstats.families.block import Block
    from dpstats.schema import Schema


def block_from_dict(plain: Mapping[str, Any], schema: Schema) -> Block:
    """Build a block again from what its `to_dict` wrote.

    Raises
    ------
    FileFormatError
        For an unknown kind of block.
    """
    from dpstats.families import ball_moments, cells, group_moments, lattice, moments, monomials

    match plain.get("kind"):
        case "table":
            return cells.Cells.table(schema, plain["columns"])
        case "condition":
            return cells.indicator_from_dict(plain, schema)
        case "moments":
            return moments.moments_from_dict(plain, schema)
        case "ball_moments":
            return ball_moments.ball_moments_from_dict(plain, schema)
        case "group_moments":
            return group_moments.group_moments_from_dict(plain, schema)
        case "monomials":
            return monomials.monomials_from_dict(plain, schema)
        case "kernel_lattice":
            return lattice.lattice_from_dict(plain, schema)
        case kind:
            raise FileFormatError(f"unknown kind of test functions {kind!r}; update dpstats")


def is_library_block(block: object) -> bool:
    """Whether a block is of dpstats itself, a subclass excluded: its sensitivity is proven."""
    from dpstats.families import ball_moments, cells, group_moments, lattice, moments, monomials

    return type(block) in (
        cells.Table,
        cells.Indicator,
        moments.Moments,
        ball_moments.BallMoments,
        group_moments.GroupMoments,
        monomials.Monomials,
        lattice.KernelLattice,
    )
