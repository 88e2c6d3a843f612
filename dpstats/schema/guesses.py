"""Public guesses of how columns vary, from which `preview` invents rows."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dpstats import files
from dpstats.checks import first_few, is_finite, is_number, listed, short
from dpstats.errors import SchemaError
from dpstats.schema.column_fields import MISSING_LABEL
from dpstats.schema.conditions import Column
from dpstats.schema.dates import day_of
from dpstats.schema.number import Number
from dpstats.schema.toml_files import check_keys, read_toml

_KEYS = ("typical", "shares", "missing", "correlations")
_ROUNDING = 0.02  # by which shares of all levels may miss 1, as rounded ones do


@dataclass(frozen=True)
class Guesses:
    """Public knowledge or beliefs about the rows, for `preview` and nothing else.

    Take them from published statistics, an earlier survey or experience, never from the private
    rows. A wrong guess makes a preview wrong; it changes neither the privacy nor the validity of
    a release.

    Parameters
    ----------
    typical : mapping of column name to {"mean": float, "sd": float}
        Of numbers, in their own units (amounts, where the scale is logarithmic; for dates a date
        and a number of days). The rest follows a beta distribution between the bounds, on a
        logarithmic scale of the logarithms.
    shares : mapping of column name to mapping of level to share
        Shares of levels, or of bins of a number, among the cells with a value. Levels that are
        left out divide what remains equally. For a `Boolean` one number will do, the share of
        True.
    missing : mapping of column name to float
        Share of missing cells.
    correlations : mapping of pair of column names to float, or sequence of (name, name, float)
        Pearson correlations, levels counted 0, 1, 2, ... in the order of the schema, and amounts on
        a logarithmic scale by their logarithm. Pairs that are left out are as little correlated as
        the others allow.

    Raises
    ------
    SchemaError
        For a mean outside the bounds, a standard deviation that they do not allow, shares that do
        not add up, and unknown names; those of columns once the guesses meet a schema.

    Examples
    --------
    >>> import dpstats as dps
    >>> guesses = dps.Guesses(
    ...     typical={"age": {"mean": 45, "sd": 17}},
    ...     shares={"smoker": 0.2, "region": {"north": 0.5}},
    ...     correlations={("age", "smoker"): -0.1},
    ... )
    >>> columns = [dps.Boolean("smoker"), dps.Category("region", ["north", "south", "east"])]
    >>> schema = dps.Schema([*columns, dps.Number("age", 0, 120)], guesses=guesses)
    >>> schema.guesses.columns
    ('age', 'smoker', 'region')
    """

    typical: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    shares: Mapping[str, Mapping[Any, float] | float] = field(default_factory=dict)
    missing: Mapping[str, float] = field(default_factory=dict)
    correlations: Any = field(default_factory=dict)

    def __post_init__(self) -> None:
        for key in _KEYS[:3]:
            given: object = getattr(self, key)
            if not isinstance(given, Mapping) or not all(isinstance(name, str) for name in given):
                raise SchemaError(f"{key} of the guesses must map names of columns to guesses")
        shares = {n: dict(s.items()) if hasattr(s, "items") else s for n, s in self.shares.items()}
        object.__setattr__(self, "shares", shares)  # a Series has labels too
        for key in _KEYS:
            object.__setattr__(self, key, listed(getattr(self, key)))
        object.__setattr__(self, "correlations", _pairs(self.correlations))
        for name, share in self.missing.items():
            _check_share(f"missing[{name!r}]", share, below_one=True)

    def __bool__(self) -> bool:
        return any(getattr(self, key) for key in _KEYS)

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns that something is said of."""
        named = [*self.typical, *self.shares, *self.missing]
        named += [name for pair in self.correlations for name in pair]
        return tuple(dict.fromkeys(named))

    def check(self, columns: Iterable[Column]) -> None:
        """Refuse guesses that do not fit the columns of a schema.

        Raises
        ------
        SchemaError
        """
        declared = {column.name: column for column in columns}
        if unknown := [name for name in self.columns if name not in declared]:
            raise SchemaError(
                f"the guesses name columns {first_few(unknown)} that the schema does not declare; "
                f"columns: {first_few(list(declared))}"
            )
        for name, said in self.typical.items():
            moments_of(declared[name], said)
        for name in self.shares:
            self.shares_of(declared[name])

    def select(self, names: Sequence[str]) -> Guesses:
        """Guesses about some of the columns."""
        wanted = set(names)
        kept: dict[str, Any] = {
            key: {name: said for name, said in getattr(self, key).items() if name in wanted}
            for key in _KEYS[:3]
        }
        pairs = {pair: r for pair, r in self.correlations.items() if wanted.issuperset(pair)}
        return Guesses(**kept, correlations=pairs)

    def shares_of(self, column: Column) -> list[float] | None:
        """Shares of the levels, or bins of values, that add up to one; None without a guess.

        Raises
        ------
        SchemaError
        """
        if column.name not in self.shares:
            return None
        where = f"the guessed shares of {column.name!r}"
        labels = [label for label in column.bin_labels if label != MISSING_LABEL]
        guess = self.shares[column.name]
        if column.kind == "boolean" and not isinstance(guess, Mapping):
            guess = {"True": guess}
        if not isinstance(guess, Mapping):
            raise SchemaError(
                f"{where} must be a mapping of levels to shares, such as {{{labels[0]!r}: 0.3}} or "
                f'in TOML {{ "{labels[0]}" = 0.3 }}; got {short(guess)}'
            )
        shares: dict[str, float] = {}
        for label, share in guess.items():
            text = str(label).capitalize() if column.kind == "boolean" else str(label)
            if text not in labels:  # numbers have several texts
                same = [one for one in labels if _number(one) == _number(text) is not None]
                text = same[0] if same else text
            if text not in labels:
                raise SchemaError(
                    f"{where} name {short(label)}, which is not one of {first_few(labels)}"
                )
            shares[text] = _check_share(f"{where}: that of {text!r}", share)
        total = math.fsum(shares.values())
        left = len(labels) - len(shares)
        if total > 1 + _ROUNDING or (not left and total < 1 - _ROUNDING):
            wanted = "at most 1" if left else "1"
            raise SchemaError(f"{where} add up to {total:g}; they must add up to {wanted}")
        rest = max(1 - total, 0.0) / left if left else 0.0
        every = [shares.get(label, rest) for label in labels]
        return [share / math.fsum(every) for share in every]

    def to_dict(self) -> dict[str, Any]:
        """Plain data, as in a schema file."""
        plain: dict[str, Any] = {}
        for name, said in self.typical.items():
            plain.setdefault("typical", {})[name] = {k: _plain(v) for k, v in said.items()}
        for name, guess in self.shares.items():
            as_text = {str(k): v for k, v in guess.items()} if isinstance(guess, Mapping) else guess
            plain.setdefault("shares", {})[name] = as_text
        if self.missing:
            plain["missing"] = dict(self.missing)
        if self.correlations:
            plain["correlations"] = [[*pair, r] for pair, r in self.correlations.items()]
        return plain

    @classmethod
    def from_dict(cls, plain: object) -> Guesses:
        """Inverse of `to_dict`."""
        return cls(**check_keys(plain, _KEYS, "[guesses]"))

    @classmethod
    def load(cls, path: str | Path) -> Guesses:
        """Read guesses from a TOML file.

        Parameters
        ----------
        path : str or Path
            A file of guesses, a schema or a request; one without a ``[guesses]`` table has those
            of the schema that it names.

        Returns
        -------
        Guesses

        Raises
        ------
        SchemaError
        """
        document = read_toml(path, "file of guesses")
        named = document.get("schema")  # of a request
        if "guesses" not in document and isinstance(named, str):
            path = files.as_path(path).parent / files.as_path(named)
            document = read_toml(path, "file of guesses")
        with files.named_in_errors(Path(path)):
            if "guesses" not in document:
                raise SchemaError(
                    "there is no [guesses] table; put the keys under it, such as [guesses.typical]"
                )
            check_keys(document)
            return cls.from_dict(document["guesses"])


def moments_of(column: Column, said: object) -> tuple[float, float]:
    """Mean and standard deviation in the units of the grid: logarithms, where that is the scale."""
    where = f"the typical value of {column.name!r}"
    if not isinstance(column, Number):
        raise SchemaError(
            f"{where}: it is a {column.kind}, not a number; give shares of its levels"
        )
    if not isinstance(said, Mapping) or set(said) != {"mean", "sd"}:
        raise SchemaError(f"{where} must be {{mean = ..., sd = ...}}, got {short(said)}")
    day = day_of(said["mean"]) if column.dates else None
    mean, sd = said["mean"] if day is None else day, said["sd"]
    low, high = float(column.low), float(column.high)  # type: ignore[arg-type]
    if not is_number(mean) or not is_finite(mean) or not low < mean < high:
        raise SchemaError(
            f"{where}: the mean must lie between the bounds, above {column.text(low)} and below "
            f"{column.text(high)}; got {short(said['mean'])}"
        )
    if not is_number(sd) or not is_finite(sd) or sd <= 0:
        raise SchemaError(f"{where}: sd must be a number above 0, got {short(sd)}")
    if column.scale == "log":
        squared = math.log1p((sd / mean) ** 2)
        low, high, limit = math.log(low), math.log(high), "the logarithms' "
        mean, sd = math.log(mean) - squared / 2, math.sqrt(squared)
        if not low < mean < high:
            raise SchemaError(
                f"{where}: sd={said['sd']} is too large for amounts above {column.text(column.low)}"
            )
    else:
        limit = ""
    largest_sd = math.sqrt((mean - low) * (high - mean))
    if sd >= largest_sd * (1 + 1e-3):
        raise SchemaError(
            f"{where}: {limit}sd is {sd:.4g}, and with that mean the bounds allow at most "
            f"{largest_sd:.4g}; use a smaller one, or wider bounds"
        )
    return mean, min(sd, largest_sd * (1 - 1e-6))


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _plain(value: Any) -> Any:
    """A date as text, as JSON has none."""
    return value if is_number(value) or isinstance(value, str) else str(value)


def _check_share(where: str, share: object, *, below_one: bool = False) -> float:
    good = is_number(share) and 0 <= share <= 1 and not (below_one and share == 1)  # type: ignore[operator]
    if not good:
        allowed = "in [0, 1)" if below_one else "in [0, 1]"
        raise SchemaError(f"{where} must be a share {allowed}, got {short(share)}")
    return float(share)  # type: ignore[arg-type]


def _pairs(given: object) -> dict[tuple[str, str], float]:
    """Correlations by pair of columns."""
    entries = (
        [(*pair, r) if isinstance(pair, tuple) else (pair, r) for pair, r in given.items()]
        if isinstance(given, Mapping)
        else given
    )
    shape = 'lists of two columns and a number, such as ["age", "income", 0.3]'
    if isinstance(entries, str) or not isinstance(entries, Sequence):
        raise SchemaError(f"correlations of the guesses must be {shape}")
    pairs: dict[tuple[str, str], float] = {}
    for entry in entries:
        if isinstance(entry, str) or not isinstance(entry, Sequence) or len(entry) != 3:
            raise SchemaError(f"correlations of the guesses must be {shape}")
        first, second, r = entry
        if not isinstance(first, str) or not isinstance(second, str) or first == second:
            raise SchemaError(f"each of the guessed correlations must be {shape}")
        if not is_number(r) or not -1 < r < 1:
            raise SchemaError(
                f"the guessed correlation of {first!r} and {second!r} must be between -1 and 1, "
                f"got {short(r)}"
            )
        if (first, second) in pairs or (second, first) in pairs:
            raise SchemaError(f"the correlation of {first!r} and {second!r} is guessed twice")
        pairs[first, second] = float(r)
    return pairs
