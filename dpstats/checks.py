"""Checks of the arguments that intervals and tests share."""

import difflib
import math
import numbers
import re
import reprlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from fractions import Fraction
from typing import Any, Literal, cast, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpstats.errors import RequestError

Alternative = Literal["two-sided", "larger", "smaller"]
Method = Literal["noise_aware", "certified"]
Target = Literal["population", "table"]
Progress = Callable[[str, int, int | None], None]  # text, done, total
_ALIKE = 0.65  # likeness of a misspelt name, by difflib
_QUOTED = 40  # characters of a value that a message quotes
_LONGEST = 200  # of a condition or formula
_NUMBERS = "numbers: a single one or a regular array"  # what values may be
_MOST_ROWS = 2**53  # a float64 holds every whole number up to it
MOST_CHARACTERS = 1_000  # of a name or label; tables join labels, and CSV cells have a limit
_SURROGATE = re.compile("[\ud800-\udfff]")
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def check_alpha(alpha: float) -> float:
    """Return the error probability `alpha`, or raise RequestError.

    Parameters
    ----------
    alpha : float
        One minus the confidence, in (0, 1/2].
    """
    if isinstance(alpha, bool) or not isinstance(alpha, (int, float)):
        raise RequestError(f"alpha must be a number such as 0.05, got {short(alpha)}")
    if 0.5 < alpha < 1:
        raise RequestError(
            f"alpha={alpha:g} is more than one half; alpha is the probability of an error, "
            f"not the confidence: did you mean alpha={1 - alpha:g}?"
        )
    if not 0 < alpha <= 0.5:
        raise RequestError(
            f"alpha={as_float(alpha):g} is not an error probability; give a number above 0 "
            "and at most 0.5, such as alpha=0.05"
        )
    return float(alpha)


def as_float(value: float | Fraction | np.floating[Any]) -> float:
    """Return a number as a float; a float32 is read by its shortest decimal.

    A whole number beyond all floats is infinite, for a check that follows to refuse.
    """
    try:
        return float(str(value)) if isinstance(value, np.floating) else float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def check_alternative(alternative: str) -> Alternative:
    """Return `alternative`, or raise RequestError with the names that are allowed."""
    if not isinstance(alternative, str) or alternative not in get_args(Alternative):
        raise RequestError(
            f"alternative={short(alternative)} is not known; use one of "
            + ", ".join(repr(name) for name in get_args(Alternative))
        )
    return cast(Alternative, alternative)


def check_method(method: object, allowed: Sequence[str] = get_args(Method)) -> None:
    """Raise RequestError unless `method` is one that a result has."""
    check_choice("the method of these intervals", method, allowed)


def check_target(target: object) -> None:
    """Raise RequestError unless `target` is "population" or "table"."""
    check_choice("target", target, get_args(Target))


def check_interval(alpha: float, method: object, target: object) -> None:
    """Raise RequestError unless these name an interval."""
    check_alpha(alpha)
    check_method(method)
    check_target(target)


def check_proportion(value: float, name: str = "the hypothesised proportion") -> float:
    """Return a proportion, or raise RequestError if it is not in [0, 1]."""
    value = check_number(name, value)
    if not 0 <= value <= 1:
        raise RequestError(f"{name} is {value:g}; it must be between 0 and 1")
    return value


def check_count(n: object) -> int:
    """Return the number of rows `n`, or raise RequestError if it is not a positive integer."""
    real: Any = n if isinstance(n, numbers.Real) else np.nan
    if not 1 <= real <= _MOST_ROWS or real != int(real):
        raise RequestError(
            f"n is not a number of rows, an integer of at least 1 and at most {_MOST_ROWS}: "
            f"got {short(n)}"
        )
    return int(real)


def check_counts(n: object) -> tuple[int, int]:
    """Return bounds on the number of rows, from a number or a pair (low, high)."""
    if not isinstance(n, tuple | list):  # a list, as JSON has it
        return (check_count(n),) * 2
    if len(n) != 2:
        raise RequestError(f"n is not a number of rows, nor a pair (low, high): got {short(n)}")
    low, high = check_count(n[0]), check_count(n[1])
    if low > high:
        raise RequestError(f"n = ({low}, {high}) has its lower bound above the upper one")
    return low, high


def check_whole(
    name: str,
    value: object,
    least: int,
    most: int | None = None,
    error: type[RequestError] = RequestError,
) -> None:
    """Raise an error if a parameter is not a whole number from `least` to `most`."""
    if type(value) is not int or value < least or (most is not None and value > most):
        limit = "" if most is None else f" and at most {most}"
        raise error(f"{name} must be a whole number of at least {least}{limit}, got {short(value)}")


def check_numbers(
    name: str,
    values: ArrayLike,
    shape: tuple[int, ...] | None = None,
    allowed: str = _NUMBERS,
) -> NDArray[np.float64]:
    """Return `values` as float64; RequestError if they are not numbers or do not fit `shape`.

    With a `shape`, values are broadcast to it.
    """
    try:
        if np.asarray(values).dtype.kind in "mM":  # which numpy would count in some unit
            raise TypeError
        array = np.asarray(values, dtype=np.float64)
    except OverflowError:
        raise RequestError(f"{name} holds a number beyond all floats") from None
    except (TypeError, ValueError):
        raise RequestError(f"{name} must be {allowed}, got {short(values)}") from None
    if shape is None:
        return array
    try:
        return np.broadcast_to(array, shape)
    except ValueError:
        raise RequestError(f"{name} has shape {array.shape}; it must fit {shape}") from None


def check_finite(
    name: str,
    values: ArrayLike,
    shape: tuple[int, ...] | None = None,
    allowed: str = _NUMBERS,
) -> NDArray[np.float64]:
    """As `check_numbers`, and RequestError if a value is infinite or missing."""
    array = check_numbers(name, values, shape, allowed)
    if not np.all(np.isfinite(array)):
        raise RequestError(f"{name} must be finite; infinite or missing values were given")
    return array


def check_possible(value: ArrayLike, possible: ArrayLike, why: str) -> None:
    """Refuse a hypothesised value, or the first of some, that no table or population can have."""
    for one, fits in zip(np.ravel(value).tolist(), np.ravel(possible).tolist(), strict=True):
        if not fits:
            raise RequestError(f"value={one:g} is impossible: {why}")


def check_number(name: str, value: float) -> float:
    """Return a single finite number, or raise RequestError."""
    array = check_finite(name, value, allowed="a single number")
    if array.ndim:
        raise RequestError(f"{name} must be a single number, got {short(value)}")
    return float(array)


def is_number(value: object) -> bool:
    """True for an int or a float, but not for a bool."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def is_real(value: object) -> bool:
    """True for a real number of any kind, a float32 or a Fraction too; not for a bool or a time."""
    return isinstance(value, numbers.Real) and not isinstance(value, bool | np.timedelta64)


def is_finite(value: float) -> bool:
    """True if a number is finite as a float."""
    try:
        return math.isfinite(value)
    except OverflowError:  # a whole number beyond all floats
        return False


def check_declared(
    name: str, value: object, error: type[RequestError] = RequestError
) -> int | float:
    """Return a finite int or float as it is, or raise `error`."""
    if not is_number(value) or not is_finite(value):  # type: ignore[arg-type]
        raise error(f"{name} must be a finite number, got {short(value)}")
    return value  # type: ignore[return-value]


def shortest_decimal(value: float | Fraction) -> Fraction:
    """A declared number as the exact value of its shortest decimal: 0.1 is 1/10."""
    return Fraction(repr(float(value))) if isinstance(value, float) else Fraction(value)


def short(value: object) -> str:
    """A number or a short text for a message; of anything else, which may hold cells, its type."""
    if isinstance(value, int) and not is_finite(value):  # Python refuses to print it
        return f"a whole number of {value.bit_length()} bits"
    if isinstance(value, str) and len(value) > _QUOTED:
        return f"a text of {len(value)} characters"
    if isinstance(value, bytes | list | tuple | dict):
        return f"a {type(value).__name__} of length {len(value)}"
    if value is None or isinstance(value, numbers.Number | str):
        return reprlib.repr(value)
    return type(value).__name__


def printable(text: str) -> str:
    """Text for a terminal, its control characters escaped."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def excerpt(text: str) -> str:
    """Text that is a name, a condition or a formula for a message; only its start if it is long."""
    return repr(text) if len(text) <= _LONGEST else f"{text[:_QUOTED]!r}..."


def first_few(values: Sequence[object], most: int = 12) -> str:
    """The first few values as a list, for a message; of a long text only its start."""
    shown = ", ".join(
        excerpt(value) if isinstance(value, str) else repr(value) for value in values[:most]
    )
    return f"[{shown}{', ...' if len(values) > most else ''}]"


def did_you_mean(given: object, known: Iterable[object]) -> str:
    """The known names that a misspelt one, or several, may mean, to follow it in a message.

    Examples
    --------
    >>> did_you_mean("meen", ["mean", "ols"]), did_you_mean("gamma", ["mean", "ols"])
    (" (did you mean 'mean'?)", '')
    >>> did_you_mean(["Row", "budgt", "x"], ["rows", "budget"])
    " (did you mean 'rows', 'budget'?)"
    """
    names = {str(name).casefold(): name for name in known}
    found = []
    for one in given if isinstance(given, list) else [given]:
        text = (one[:_QUOTED] if isinstance(one, str) else short(one)).casefold()
        found += [names[name] for name in difflib.get_close_matches(text, names, 1, _ALIKE)]
    return f" (did you mean {', '.join(map(repr, dict.fromkeys(found)))}?)" if found else ""


def lines_shown(every: int, most: int) -> int:
    """How many lines of a list to print: one more than most, if that is all that is left.

    Examples
    --------
    >>> lines_shown(4, 5), lines_shown(6, 5), lines_shown(7, 5)
    (4, 6, 5)
    """
    return every if every <= most + 1 else most


def counted(number: int, one: str, many: str = "") -> str:
    """A number with its noun.

    Examples
    --------
    >>> counted(1, "block"), counted(0, "block"), counted(3, "analysis", "analyses")
    ('1 block', '0 blocks', '3 analyses')
    """
    return f"{number} {one if number == 1 else many or one + 's'}"


def columns_named(names: Sequence[str]) -> str:
    """Names of columns in a sentence.

    Examples
    --------
    >>> columns_named(["age"]), columns_named(["age", "sex", "pay"])
    ("column 'age'", "columns 'age', 'sex' and 'pay'")
    """
    quoted = [repr(name) for name in names]
    if len(quoted) == 1:
        return f"column {quoted[0]}"
    return f"columns {', '.join(quoted[:-1])} and {quoted[-1]}"


def listed(values: Any) -> Any:
    """Values of Python for those of numpy, and a list for an array, a Series or an Index.

    A column of polars or Arrow too, and what lists, tuples and mappings hold; a time at midnight
    is a date; anything else as it is.

    Examples
    --------
    >>> listed(np.int64(3)), listed(np.arange(2)), listed({"a": np.float64(0.5)})
    (3, [0, 1], {'a': 0.5})
    >>> listed((np.bool_(True), "a"))
    (True, 'a')
    """
    if isinstance(values, np.floating):
        return as_float(values)
    if isinstance(values, np.datetime64) and values.astype("datetime64[D]") == values:
        return values.astype("datetime64[D]").item()
    if isinstance(values, datetime) and values.isoformat().endswith("T00:00:00"):  # without a zone
        return values.date()
    if isinstance(values, np.generic):
        return values if isinstance(values, np.datetime64) else values.item()
    if isinstance(values, np.ndarray):
        return [listed(value) for value in values] if values.ndim else listed(values[()])
    if isinstance(values, tuple):
        return tuple(map(listed, values))
    if isinstance(values, list):
        return list(map(listed, values))
    if isinstance(values, Mapping):
        return {listed(key): listed(value) for key, value in values.items()}
    if isinstance(values, type):
        return values
    if hasattr(values, "to_pylist"):  # of Arrow
        return listed(values.to_pylist())
    if hasattr(values, "to_numpy") and hasattr(values, "name"):  # of pandas or polars
        return listed(values.to_numpy())
    return values  # such as what Series.unique() gives of text, which is no declaration


def check_choice(
    name: str, value: object, allowed: Sequence[str], error: type[RequestError] = RequestError
) -> None:
    """Raise an error if `value` is not one of the allowed names."""
    if not isinstance(value, str) or value not in allowed:
        raise error(
            f"{name} must be one of {list(allowed)}, got {short(value)}"
            f"{did_you_mean(value, allowed) if isinstance(value, str) else ''}"
        )


def check_text(what: str, text: object, error: type[RequestError] = RequestError) -> str:
    """Return text that every file and message can hold; a note may have several lines."""
    if not isinstance(text, str):
        raise error(f"{what} must be text, got {type(text).__name__}")
    if _SURROGATE.search(text):
        raise error(f"{what} holds half a surrogate pair, which no file can hold: {text[:40]!r}")
    return text


def check_label(what: str, text: object, error: type[RequestError] = RequestError) -> str:
    """Return a name or label: text without control characters, of a bounded length."""
    text = check_text(what, text, error)
    if _CONTROL.search(text):
        raise error(f"{what} holds a carriage return or another control character: {text[:40]!r}")
    if len(text) > MOST_CHARACTERS:
        raise error(
            f"{what} has {len(text)} characters; at most {MOST_CHARACTERS} are allowed: "
            f"{text[:40]!r}..."
        )
    return text
