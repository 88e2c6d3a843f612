"""Losses that a user declares: a table of values over the states of a row and a grid."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpstats.arrays import Codes, Floats
from dpstats.checks import as_float, short
from dpstats.errors import RequestError
from dpstats.families.losses.block import (
    LARGEST,
    Axis,
    LossBlock,
    axes_of,
    codes_of,
    grid_points,
)
from dpstats.schema import Column, Number, Schema

MOST_ENTRIES = 200_000


@dataclass(frozen=True)
class TabulatedLosses(LossBlock):
    """A table of losses, one row per state of some columns and one column per grid point.

    Built by `TabulatedLoss`. A state is one code of every column, missing cells included.
    """

    columns: tuple[Column, ...]  # in the order of the table: the last one runs first
    axes: tuple[Axis, ...]
    table: bytes  # (states, d) little-endian int32, from 0 to B
    unit: float  # the loss that one integer is
    # bounds on the slope in every parameter; infinite where none is declared
    lipschitz: tuple[float, ...]
    convex: bool  # whether the loss is convex in the parameters

    kind: ClassVar[str] = "tabulated_losses"

    def __post_init__(self) -> None:
        shape = math.prod(len(codes_of(c)) for c in self.columns), self.size
        array = np.frombuffer(self.table, dtype="<i4")
        if array.size != math.prod(shape):
            raise RequestError(
                f"a table of losses needs {shape[0]} states of {[c.name for c in self.columns]} "
                f"times {shape[1]} grid points; got {array.size} values"
            )
        if array.min() < 0 or array.max() > LARGEST or not 0 < self.unit < np.inf:
            raise RequestError(f"losses in a table are whole numbers from 0 to {LARGEST}")
        step = np.array([axis.step for axis in self.axes])
        for j, losses in enumerate(self._along_axes()):
            rises = np.diff(losses, axis=-1)
            if self.convex and np.any(np.diff(rises, axis=-1) < -2):
                raise RequestError(
                    f"the loss is declared convex, and is not in {self.axes[j].name!r}; leave out "
                    "convex=True, and declare a Lipschitz constant"
                )
            if np.abs(rises).max() > self.lipschitz[j] * step[j] / self.unit + 1.001:
                raise RequestError(
                    f"the loss changes faster with {self.axes[j].name!r} than the Lipschitz "
                    f"constant {self.lipschitz[j]:g} allows"
                )

    def _along_axes(self) -> list[Codes]:
        """The table with each parameter in turn as the last axis."""
        shaped = self._array.reshape(-1, *(axis.points for axis in self.axes))
        return [np.moveaxis(shaped, j + 1, -1) for j in range(len(self.axes))]

    @cached_property
    def _array(self) -> Codes:
        return np.frombuffer(self.table, dtype="<i4").reshape(-1, self.size).astype(np.int64)

    @property
    def reach(self) -> Floats:
        """(p,) the Lipschitz constants."""
        return np.array(self.lipschitz)

    def values(self, codes: Mapping[str, Codes]) -> Codes:
        """Losses (m, d) int64 of the states of m rows."""
        index: Codes = np.zeros(len(codes[self.columns[0].name]), dtype=np.int64)
        for column in self.columns:
            every = codes_of(column)
            index = index * len(every) + np.searchsorted(every, codes[column.name])
        return np.asarray(self._array[index])

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {"kind": self.kind, "loss": self.plain()}

    def plain(self) -> dict[str, Any]:
        """The loss as an analysis has it."""
        known = {a.name: c for a, c in zip(self.axes, self.lipschitz, strict=True) if c < np.inf}
        return _Table({
            "kind": TabulatedLoss.kind,
            "columns": [column.name for column in self.columns],
            "grid": {axis.name: [axis.low, axis.high, axis.points] for axis in self.axes},
            "losses": self._array.tolist(),
            "unit": self.unit,
            "lipschitz": known,
            "convex": self.convex,
        })  # fmt: skip

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any], schema: Schema) -> TabulatedLosses:
        """Inverse of `to_dict`."""
        return TabulatedLoss.block(plain["loss"], schema)


@dataclass(frozen=True)
class TabulatedLoss:
    """A loss of your own: its values at every state of some columns and every grid point.

    Make it with `TabulatedLoss.of`, from a Python function; plans and releases hold the table, as
    whole numbers, and no code.

    Attributes
    ----------
    losses : TabulatedLosses
        The table, with its columns and its grid.

    Examples
    --------
    >>> import dpstats as dps
    >>> import numpy as np
    >>> schema = dps.Schema([dps.Number("score", values=[1, 2, 3, 4, 5], missing=3)])
    >>> def absolute(row, at):
    ...     return np.abs(row["score"] - at["median"])
    >>> loss = dps.TabulatedLoss.of(schema, ["score"], {"median": (1, 5, 9)}, absolute, convex=True)
    >>> dps.LossGrid(loss).family(schema).size
    9
    """

    kind: ClassVar[str] = "table"

    losses: TabulatedLosses

    @staticmethod
    def of(
        schema: Schema,
        columns: Sequence[str],
        grid: Mapping[str, Sequence[Any]],
        function: Callable[[Mapping[str, NDArray[Any]], Mapping[str, Floats]], Any],
        *,
        convex: bool = False,
        lipschitz: Mapping[str, float] | None = None,
    ) -> TabulatedLoss:
        """Tabulate a function.

        Parameters
        ----------
        schema : Schema
        columns : sequence of str
            With few states together: at most 200,000 losses are tabulated.
        grid : mapping of parameter to (low, high, points)
        function : callable
            Takes the values of the columns and of the parameters, each a mapping of names to arrays
            that broadcast, and returns losses, not negative. Numbers come in original units, nan
            where missing; levels as their labels.
        convex : bool
            Whether the loss is convex in the parameters. If it is, that fills the gaps of the grid.
        lipschitz : mapping of parameter to float, optional
            Bounds on the slope in each parameter. With neither, results are about the minimum over
            the grid points alone.

        Returns
        -------
        TabulatedLoss

        Raises
        ------
        RequestError
            For losses that are negative or not finite, or that contradict what is declared.
        """
        used, axes = tuple(schema[name] for name in columns), axes_of(grid)
        states = [_labels(column) for column in used]
        shape = [len(values) for values in states]
        size = math.prod(axis.points for axis in axes)
        if not used or math.prod(shape) * size > MOST_ENTRIES:
            raise RequestError(
                f"{math.prod(shape)} states of {list(columns)} times {size} grid points are too "
                f"many losses to tabulate, at most {MOST_ENTRIES}; declare fewer points or values"
            )
        place = np.unravel_index(np.arange(math.prod(shape)), shape)
        row = {c.name: values[at][:, None]
               for c, values, at in zip(used, states, place, strict=True)}  # fmt: skip
        points = grid_points(axes)
        found = np.asarray(
            function(row, {axis.name: points[:, j] for j, axis in enumerate(axes)}), np.float64
        )
        found = np.broadcast_to(found, (math.prod(shape), size))
        if not np.all(np.isfinite(found)) or found.min() < 0 or found.max() == 0:
            raise RequestError(
                "losses must be finite and not negative, and not all zero: add a constant, or give "
                "rows without a value a loss of 0"
            )
        unit = float(found.max()) / LARGEST
        table = np.rint(found / unit).astype("<i4")
        constants = _constants({} if lipschitz is None else lipschitz, axes)
        block = TabulatedLosses(used, axes, table.tobytes(), unit, constants, convex is True)
        return TabulatedLoss(block)

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return self.losses.plain()

    @staticmethod
    def plain(given: Mapping[str, Any]) -> dict[str, Any]:
        """Plain data of a file as `to_dict` has it: its lists, not tuples."""
        if not isinstance(given.get("columns"), Sequence):
            raise RequestError(
                f"a tabulated loss is what dps.TabulatedLoss.of makes; got {short(given)}"
            )
        return _Table(given)

    @staticmethod
    def block(plain: Mapping[str, Any], schema: Schema) -> TabulatedLosses:
        """The block of test functions of a loss as plain data.

        Raises
        ------
        RequestError
            For a table that does not fit the schema or its grid.
        """
        try:
            axes = axes_of(plain["grid"])
            rows = plain["losses"]
            known = plain["lipschitz"]
            whole = all(type(value) is int for value in itertools.chain.from_iterable(rows))
            array = np.array(rows, dtype=np.int64)
            unit, convex = as_float(plain["unit"]), plain["convex"]
        except (AttributeError, KeyError, TypeError, ValueError, OverflowError) as error:
            raise RequestError(
                f"a tabulated loss is what dps.TabulatedLoss.of makes ({type(error).__name__}); "
                f"got {short(plain)}"
            ) from None
        if not whole or array.ndim != 2 or np.abs(array).max(initial=0) > LARGEST:
            raise RequestError(f"losses in a table are whole numbers from 0 to {LARGEST}")
        return TabulatedLosses(
            tuple(schema[name] for name in plain["columns"]),
            axes,
            array.astype("<i4").tobytes(),
            unit,
            _constants(known, axes),
            convex is True,
        )


def _constants(lipschitz: Any, axes: Sequence[Axis]) -> tuple[float, ...]:
    """Lipschitz constant in each parameter; infinite where none is declared."""
    try:
        known = {name: as_float(value) for name, value in lipschitz.items()}
        valid = all(value >= 0 for value in known.values())  # not nan
    except (AttributeError, TypeError, ValueError, OverflowError):
        valid = False
    if not valid:
        raise RequestError(
            "lipschitz must name parameters with their constants, such as {'m': 1.0}; got "
            f"{short(lipschitz)}"
        )
    if unknown := sorted(set(known) - {axis.name for axis in axes}):
        raise RequestError(f"lipschitz names {unknown}, which are no parameters of the grid")
    return tuple(known.get(axis.name, np.inf) for axis in axes)


class _Table(dict[str, Any]):
    """Plain data of a table, which prints without its losses."""

    def __repr__(self) -> str:
        return f"<tabulated loss of {', '.join(self['columns'])}>"


def _labels(column: Column) -> NDArray[Any]:
    """Values of all codes: numbers in original units, nan where missing, or labels of levels."""
    if not isinstance(column, Number):
        return np.array(column.bin_labels)
    codes = column.all_codes
    known = column.has_value(codes)
    values = np.full(len(codes), np.nan)
    values[known] = column.grid[codes[known] + column.half_points]
    return values
