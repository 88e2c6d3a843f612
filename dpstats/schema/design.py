"""A survey design: weights of rows, strata, and the units that were drawn in them.

The list of strata and units is public design information. Which of them occur in the table is not,
and nothing looks at it: all that follows here follows from the declaration
(docs/explanation/inference/survey.md).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any, Literal, get_args

import numpy as np

from dpstats.caching import Cached
from dpstats.checks import (
    check_choice,
    check_label,
    first_few,
    is_finite,
    is_number,
    listed,
    short,
)
from dpstats.errors import SchemaError
from dpstats.schema.category import check_values
from dpstats.schema.column_fields import Level
from dpstats.schema.number import Number
from dpstats.schema.toml_files import changed_fields, check_keys

STEPS = 2**12
"""Largest code of a weight: weights have a grid of cap / STEPS."""
HASHED_PAIRS = 2**20
"""Pairs among which units that are not declared are spread by their hash."""
_LEAST_HASHED = 10  # units; of few all may fall into one contrast and cancel
UNPAIRED = -1
"""Code of a unit that is in no contrast."""
_MOST_UNITS = 100_000
Lonely = Literal["refuse", "certainty", "adjust", "collapse"]


@dataclass(frozen=True)
class Design(Cached):
    """How the rows of a table were drawn from a population, for weighted estimates of it.

    Everything here is public: take it from the documentation of the survey, never from the rows.

    Parameters
    ----------
    weights : str
        The column of weights.
    mean : float
        The mean weight, such as the population's size over the number of rows.
    low, high : float, optional
        Bounds of the weights, to which they are clamped: by default 0 and no bound but `cap`.
    cv : float, optional
        Coefficient of variation of the weights, from which a plan chooses `cap`.
    cap : float, optional
        Largest weight that is used; larger ones count as this one. A smaller cap needs less noise
        and has more bias. If it is not given, a plan chooses it from `mean`, `cv`, the number of
        rows and its budget, never from rows.
    missing : float, optional
        Weight of rows whose weight is missing, not finite or not positive; by default they are not
        used.
    total : float, optional
        The sum of all weights, if it is public: it bounds the bias of the cap.
    strata : str, optional
        The column of strata.
    unit : str, optional
        The column of primary sampling units: the first that were drawn, such as counties or
        schools; a column that tells rows apart where rows were drawn one by one.
    units : mapping of stratum to sequence of keys, int, or sequence of keys, optional
        All strata with the keys of all units drawn in them (of one stratum, only the keys), or how
        many there are in all, 10 or more, or None if neither is known. Without keys intervals are
        wider.
    deff : float, optional
        Public design effect of shares: their variance over that of as many independent rows. Used
        instead of the units where intervals are then planned to be shorter, or there are none.
    lonely : {"refuse", "certainty", "adjust", "collapse"}
        What to do with a stratum that is declared with one unit: refuse to plan; take it to have no
        sampling error, or the unit's distance from the mean of all; or join these strata two by
        two, in the order of their declaration (a last one is as with "adjust").

    Raises
    ------
    SchemaError

    Examples
    --------
    >>> import dpstats as dps
    >>> design = dps.Design(
    ...     "weight", mean=1_000, cv=0.5, cap=2_500, strata="region", unit="school",
    ...     units={"north": [1, 2, 3, 4], "south": [1, 2]},
    ... )
    >>> print(design)
    weights weight, mean 1000, at most 2500; strata region (2) of units school (6 declared)
    """

    weights: str
    mean: float
    low: float = 0.0
    high: float | None = None
    cv: float | None = None
    cap: float | None = None
    missing: float | None = None
    total: float | None = None
    strata: str | None = None
    unit: str | None = None
    units: Any = None
    deff: float | None = None
    lonely: Lonely = "refuse"

    def __post_init__(self) -> None:
        for name in ("weights", "strata", "unit"):
            value = getattr(self, name)
            if value is not None or name == "weights":
                check_label(f"{name} of the design", value, SchemaError)
        for name in ("mean", "high", "cv", "cap", "missing", "total", "deff", "low"):
            value = listed(getattr(self, name))
            object.__setattr__(self, name, value)
            if value is None and name not in ("mean", "low"):
                continue
            may_be_zero = name in ("low", "cv")
            if (
                not is_number(value)
                or not is_finite(value)
                or value < 0
                or not (value or may_be_zero)
            ):
                least = "0 or a" if may_be_zero else "a"
                raise SchemaError(
                    f"{name} of the design must be {least} positive number, got {short(value)}"
                )
        if not self.low <= self.mean <= (self.high or np.inf):
            most = "" if self.high is None else f" and high={self.high:.10g}"
            raise SchemaError(
                f"the mean weight of the design is {self.mean:.10g}, and its bounds are "
                f"low={self.low:.10g}{most}; declare bounds that hold the mean"
            )
        if self.cap is None and self.cv is None:
            raise SchemaError(
                "a design needs cap=, the largest weight that is used, or cv=, the public "
                "coefficient of variation of the weights, from which a plan chooses one"
            )
        if self.cap is not None and self.cap < self.mean / 4:
            raise SchemaError(
                f"the cap {self.cap:.10g} of the design is less than a quarter of the mean weight "
                f"{self.mean:.10g}: hardly a weight would be left; declare a larger one"
            )
        check_choice("lonely of the design", self.lonely, get_args(Lonely), SchemaError)
        if self.unit is None and self.deff is None:
            raise SchemaError(
                "a design needs unit=, the column of primary sampling units (one that tells rows "
                "apart, if rows were drawn one by one), or deff=, a public design effect"
            )
        if self.unit is None and (self.units is not None or self.strata is not None):
            raise SchemaError(
                "a design with units= or strata= needs unit=, the column of their keys"
            )
        if "" in self.raw_names or len(set(self.raw_names)) < len(self.raw_names):
            raise SchemaError(
                f"weights, strata and unit of a design are columns with different names, got "
                f"{list(self.raw_names)}"
            )
        object.__setattr__(self, "units", self._read_units(listed(self.units)))

    def _read_units(self, units: Any) -> int | tuple[tuple[Level, tuple[Level, ...]], ...] | None:
        """Declared units as pairs of a stratum and its keys."""
        if units is None:
            return None
        if is_number(units):
            if isinstance(units, float) or units < _LEAST_HASHED:
                raise SchemaError(
                    f"a number of units is at least {_LEAST_HASHED}, since these are spread by a "
                    f"hash: list the keys of fewer; got units={short(units)}"
                )
            return int(units)
        if not isinstance(units, Mapping):
            if isinstance(units, str) or not isinstance(units, Sequence):
                raise SchemaError(
                    "units of a design are a mapping of strata to lists of keys, such as "
                    f"{{'north': [1, 2]}}, or their number; got {short(units)}"
                )
            pairs = [pair for pair in units if isinstance(pair, list | tuple) and len(pair) == 2]
            of_strata = len(pairs) == len(units) and all(
                isinstance(keys, list | tuple) for _, keys in pairs
            )
            units = units if of_strata and units else [("", units)]
        declared = list(units.items() if isinstance(units, Mapping) else units)
        if (self.strata is None) != ([stratum for stratum, _ in declared] == [""]):
            raise SchemaError(
                "strata= names the column of strata, and units= maps each of them to the keys of "
                "its units; give both, or a plain list of units without strata"
            )
        read = []
        for stratum, keys in declared:
            if isinstance(keys, str) or not isinstance(keys, Sequence) or not keys:
                raise SchemaError(
                    f"stratum {short(stratum)} of the design needs a list of units, "
                    "as all strata do; or give one number for all of them together, units = 60"
                )
            read.append((stratum, tuple(keys)))
        strata = [] if self.strata is None else [stratum for stratum, _ in read]
        for what, every in (("strata", strata), ("units", [k for _, keys in read for k in keys])):
            if not all(isinstance(key, str) or is_number(key) for key in every) or (
                len({isinstance(key, str) for key in every}) > 1
            ):
                raise SchemaError(f"the {what} of a design must be all text or all numbers")
            check_values(f"{what} of the design", every, "leave out missing keys")
        for names, whose in ((strata, "the design names a stratum"), *(
            (keys, f"stratum {short(stratum)} of the design names a unit") for stratum, keys in read
        )):  # fmt: skip
            if len(set(names)) < len(names):
                raise SchemaError(f"{whose} twice (1 and 1.0 are the same key)")
        if not read:
            raise SchemaError(
                "units= of the design is empty; list all units that were drawn, or leave it out if "
                "they are not public"
            )
        if sum(len(keys) for _, keys in read) > _MOST_UNITS:
            raise SchemaError(f"a design has at most {_MOST_UNITS} declared units")
        return tuple(read)

    @property
    def listed_units(self) -> tuple[tuple[Level, tuple[Level, ...]], ...]:
        """Strata with the keys of their units; empty where they are not declared."""
        return () if self.units is None or isinstance(self.units, int) else self.units

    @property
    def number_of_units(self) -> int | None:
        """How many units are declared; None if that is not known."""
        if self.units is None or isinstance(self.units, int):
            return self.units
        return sum(len(keys) for _, keys in self.units)

    @property
    def has_contrasts(self) -> bool:
        """True if sampling variances can follow from the units."""
        return self.unit is not None

    @property
    def is_uncut(self) -> bool:
        """True if no weight is above the cap, so that coded weights add up to public totals."""
        return self.high is not None and self.cap is not None and self.cap >= self.high

    @property
    def unit_weight(self) -> float:
        """Weight of one step of the coded weights."""
        assert self.cap is not None
        return float(self.cap) / STEPS

    @property
    def coded_mean(self) -> float:
        """The mean weight in steps."""
        return min(float(self.mean), float(self.cap or np.inf)) / self.unit_weight

    @property
    def effect(self) -> float:
        """The declared design effect, or that of the weights alone (Kish 1965)."""
        return 1 + (self.cv or 0.0) ** 2 if self.deff is None else float(self.deff)

    @property
    def number(self) -> Number:
        """The coding of weights, from 0 to the cap in `STEPS` steps."""
        return Number(self.weights, 0, self.cap, points=STEPS + 1, missing=0)

    @property
    def raw_names(self) -> tuple[str, ...]:
        """Names of the columns of the table that the design needs."""
        return tuple(name for name in (self.weights, self.strata, self.unit) if name is not None)

    def check_lonely(self) -> None:
        """Refuse strata of one declared unit, unless `lonely` says what to do.

        Raises
        ------
        SchemaError
        """
        lonely = [stratum for stratum, keys in self.listed_units if len(keys) == 1]
        only = self.number_of_units == 1
        if lonely and (self.lonely == "refuse" or (only and self.lonely != "certainty")):
            strata = f"strata {first_few(lonely)} of the design are"
            raise SchemaError(
                f"{'the design is' if self.strata is None else strata} declared with one unit, "
                "from which no sampling error follows: declare "
                + ("two or more" if only else
                   "lonely='certainty', 'adjust' or 'collapse'")
            )  # fmt: skip

    @cached_property
    def pairs(self) -> Pairs:
        """Pairs of units within strata."""
        return pair_units(self)

    def to_dict(self) -> dict[str, Any]:
        """Plain data, as in a schema file, without what has its default value."""
        plain = changed_fields(self)
        if self.listed_units:
            plain["units"] = [[stratum, list(keys)] for stratum, keys in self.listed_units]
        return plain

    @classmethod
    def from_dict(cls, plain: object) -> Design:
        """Inverse of `to_dict`; units may also be a table of strata, as in TOML.

        Raises
        ------
        SchemaError
        """
        given = check_keys(plain, [part.name for part in fields(cls)], "[design]")
        if absent := [key for key in ("weights", "mean") if key not in given]:
            raise SchemaError(
                f"[design] lacks {absent[0]!r}: it needs weights, the name of a column, and mean, "
                "the mean weight"
            )
        return cls(**given)

    def __str__(self) -> str:
        cap = "capped by the plan" if self.cap is None else f"at most {self.cap:.10g}"
        parts = [f"weights {self.weights}, mean {self.mean:.10g}, {cap}"]
        if self.unit is not None:
            known = self.number_of_units
            count = "not listed" if known is None else f"{known} declared"
            strata = f" ({len(self.listed_units)})" if self.listed_units else ""
            within = "" if self.strata is None else f"strata {self.strata}{strata} of "
            parts.append(f"{within}units {self.unit} ({count})")
        if self.deff is not None:
            parts.append(f"design effect {self.deff:.10g}")
        return "; ".join(parts)


@dataclass(frozen=True)
class Pairs:
    """Declared units in pairs within their strata, numbered plain pairs first, then triples.

    Attributes
    ----------
    codes : mapping of (number of stratum, number of key) to code
        2 p for the first unit of pair p, 2 p + 1 for the second, `UNPAIRED` for a unit in none.
    plain, triples : int
        Number of pairs, and of pairs that a third unit of an odd stratum goes with: the square of
        their difference counts one and a half times.
    """

    codes: Mapping[tuple[int, int], int] = field(repr=False)
    plain: int
    triples: int

    @property
    def count(self) -> int:
        """Number of pairs."""
        return self.plain + self.triples


def pair_units(design: Design) -> Pairs:
    """Pair the units of a design in an order that depends on their keys alone.

    A stratum with an odd number of units has a last pair that stands for three of them. Units that
    are not declared are spread over `HASHED_PAIRS`.
    """
    if not design.listed_units:
        return Pairs({}, HASHED_PAIRS, 0)
    firsts: list[tuple[tuple[int, int], ...]] = []
    triples: list[tuple[tuple[int, int], ...]] = []
    codes: dict[tuple[int, int], int] = {}
    for units in _pooled(design):
        if len(units) == 1:
            if design.lonely == "certainty":
                codes[units[0]] = UNPAIRED
            else:  # its distance from the mean of all, which is 0 for linearised values
                firsts.append(units)
            continue
        even = len(units) - len(units) % 2
        several = [units[i : i + 2] for i in range(0, even, 2)]
        if len(units) % 2:
            codes[units[-1]] = UNPAIRED
            triples.append(several.pop())
        firsts.extend(several)
    keys = unit_keys(design)
    for number, pair in enumerate([*firsts, *triples]):
        for sign, unit in enumerate(pair):
            if len(pair) == 1:  # linearised totals add up to 0: equal signs would cancel
                (h, k), strata = unit, design.listed_units
                sign = hash_of(str(strata[h][0]).encode(), str(keys[k]).encode()) % 2
            codes[unit] = 2 * number + sign
    return Pairs(codes, len(firsts), len(triples))


def _pooled(design: Design) -> Iterator[tuple[tuple[int, int], ...]]:
    """Units of every stratum, as numbers of stratum and key, in the order of their hash.

    Lonely ones that are collapsed are two by two: as the third of three a unit is not measured.
    """
    keys = {key: k for k, key in enumerate(unit_keys(design))}
    lonely: list[tuple[int, int]] = []
    for h, (stratum, units) in enumerate(design.listed_units):
        named = sorted(units, key=lambda unit: hash_of(str(stratum).encode(), str(unit).encode()))
        numbered = [(h, keys[unit]) for unit in named]
        if len(numbered) == 1 and design.lonely == "collapse":
            lonely += numbered
        else:
            yield tuple(numbered)
    for i in range(0, len(lonely), 2):
        yield tuple(lonely[i : i + 2])


def unit_keys(design: Design) -> tuple[Level, ...]:
    """The distinct keys of declared units, over all strata."""
    return tuple(dict.fromkeys(key for _, keys in design.listed_units for key in keys))


def hash_of(stratum: bytes, unit: bytes) -> int:
    """A public hash of a unit's keys, below 2^64."""
    text = len(stratum).to_bytes(8, "big") + stratum + unit
    return int.from_bytes(hashlib.sha256(b"dpstats unit " + text).digest()[:8], "big")
