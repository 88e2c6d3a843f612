"""Formats of numbers and tables in results; text and HTML show the same cells."""

from __future__ import annotations

import math
import sys
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np

from dpstats.arrays import Floats
from dpstats.checks import counted
from dpstats.display import as_html, fitted_table, html_table, wrapped
from dpstats.error_rates import percent
from dpstats.schema.dates import day_text

if TYPE_CHECKING:
    import pandas as pd

LEAST_SHOWN = 1e-6  # the numeric accuracy of p-values
MOST = 60  # rows of a table that print
NO_INTERVAL = "none"  # for an interval that says nothing
UNCERTIFIED = 'certified "none": no interval holds for every possible table at this n and budget'
_WIDEST = 48  # characters of a name in a line
_MOST_DIGITS = 15  # of a float64
_FIXED = 1e-4, 1e7  # magnitudes between these print without a power of ten
_MOMENT = 1e-6  # of a day, a rounding error
DATES = ("date", "date_low", "date_high")  # columns of a frame with dates
_HEADLINES = 3  # parameters in a headline
_PRINTED = (
    "estimate", "std_error", "statistic", "p_value", "conf_low", "conf_high",
    "certified_low", "certified_high", "privacy_share",
)  # fmt: skip


@dataclass(frozen=True)
class Numerals:
    """The format of an estimate and its interval: same decimals, same power of ten.

    Examples
    --------
    >>> show = Numerals.of([0.3012, 0.29, 0.3141], scale=0.0066)
    >>> show(0.3012), show(0.29), show(-1e-9), show(float("inf"))
    ('0.30120', '0.29000', '0.00000', 'inf')
    >>> Numerals.of([1.23456e9], scale=4e7)(9.8e8)
    '0.9800e+09'
    """

    decimals: int
    exponent: int = 0  # the power of ten that all are written with; 0 for none

    @classmethod
    def of(cls, values: Iterable[float], scale: float = math.nan, digits: int = 3) -> Numerals:
        """Decimals that show `digits` of the scale, such as a standard error or a width.

        Without a positive, finite scale: one digit more, of the largest value.
        """
        largest = max((abs(value) for value in values if math.isfinite(value)), default=0.0)
        known = 0 < scale < math.inf
        magnitude = max(largest, scale) if known else largest
        if magnitude == 0:
            return cls(0)
        place = _place(magnitude)
        exponent = 0 if _FIXED[0] <= magnitude < _FIXED[1] else place
        wanted = digits - 1 - (_place(scale) if known else place - 1) + exponent
        return cls(max(0, min(wanted, _MOST_DIGITS - 1 - place + exponent)), exponent)

    def __call__(self, value: float) -> str:
        """The number; blank if nan."""
        if math.isnan(value):
            return ""
        if math.isinf(value):
            return f"{value:g}"
        if value != 0 and _place(abs(value)) >= self.exponent + _MOST_DIGITS:
            return f"{value:.4g}"
        text = f"{Decimal(float(value)).scaleb(-self.exponent):.{self.decimals}f}"
        if float(text) == 0:
            text = text.lstrip("-")
        return text + (f"e{self.exponent:+03d}" if self.exponent else "")

    def interval(self, low: float, high: float) -> str:
        """Both ends in brackets."""
        return f"[{self(low)}, {self(high)}]"

    def certified(self, low: float, high: float) -> str:
        """Certified interval; "none" without ends, which says nothing."""
        return NO_INTERVAL if low == -math.inf and high == math.inf else self.interval(low, high)


class Days(Numerals):
    """The format of days since 1970-01-01: dates, an interval in whole days that contain it.

    Examples
    --------
    >>> show = Days(0)
    >>> show(19_000.2), show.interval(19_000.0, 19_000.2)
    ('2022-01-08', '[2022-01-08, 2022-01-09]')
    """

    def __call__(self, value: float) -> str:
        """The date; blank if nan."""
        return day_text(value) if math.isfinite(value) else super().__call__(value)

    def interval(self, low: float, high: float) -> str:
        """Both ends in brackets."""
        return f"[{self(whole_day(low, -1))}, {self(whole_day(high, 1))}]"


def whole_day(day: float, side: int) -> float:
    """The day at or before (side -1), at or after (1), or nearest to (0) a time in days."""
    if not math.isfinite(day):
        return day
    rounded = round(day)
    if side == 0 or abs(day - rounded) < _MOMENT:
        return rounded
    return math.floor(day) if side < 0 else math.ceil(day)


def with_dates(frame: pd.DataFrame, dates: Collection[str]) -> pd.DataFrame:
    """A frame of estimates with ``date, date_low, date_high`` of the terms that are dates, if any.

    Whole days, rounded as in print; NaT for other terms and for ends that there are not.
    """
    if not dates:
        return frame
    dated, found = frame["term"].isin(dates), {}
    for name, source, side in zip(DATES, ("estimate", "conf_low", "conf_high"), (0, -1, 1),
                                  strict=True):  # fmt: skip
        days = [
            whole_day(day, side) if held and math.isfinite(day) else None
            for day, held in zip(frame[source].tolist(), dated.tolist(), strict=True)
        ]
        found[name] = np.array(
            ["NaT" if day is None else np.datetime64(int(day), "D") for day in days],
            dtype="datetime64[D]",
        ).astype("datetime64[s]")
    return frame.assign(**found)


def _place(value: float) -> int:
    """Power of ten of the leading digit of a positive number."""
    return math.floor(math.log10(value))


def significant(value: float) -> str:
    """A number by itself to four digits; blank if nan.

    Examples
    --------
    >>> significant(0.0000004857), significant(1987.312), significant(-0.0)
    ('4.857e-07', '1987', '0')
    """
    return "" if math.isnan(value) else f"{value + 0.0:.4g}"  # no -0


def fixed(value: float, decimals: int) -> str:
    """A number with a fixed number of decimals; blank if nan."""
    return Numerals(decimals)(value)


def shown_df(df: float | tuple[float, float]) -> str:
    """Degrees of freedom; both of an F distribution, the first alone where it is a chi-square."""
    if not isinstance(df, tuple):
        return f"{df:g}"
    first, second = df
    return fixed(first, 2) + (f" and {fixed(second, 1)}" if np.isfinite(second) else "")


def share(value: float) -> str:
    """A percentage, or blank if nan."""
    return "" if math.isnan(value) else f"{value + 0.0:.0%}"


def shown_pvalue(pvalue: float, digits: int = 4) -> str:
    """``= 0.0123``, or ``< 1e-06`` where it is below the accuracy; ``= nan`` if unknown."""
    return f"< {LEAST_SHOWN:g}" if pvalue < LEAST_SHOWN else f"= {pvalue:.{digits}g}"


def brief(name: str, estimate: float, low: float, high: float, *, date: bool = False) -> str:
    """One estimate with its interval, to two digits of the width, or as dates.

    Examples
    --------
    >>> brief("smoking", 0.25213, 0.24581, 0.25842)
    'smoking: 0.252 [0.246, 0.258]'
    """
    show = Days(0) if date else Numerals.of((estimate, low, high), high - low, digits=2)
    return f"{_shortened(name)}: {show(estimate)} {show.interval(low, high)}"


def brief_list(
    names: Sequence[str], estimates: Iterable[float], ends: Floats, dates: Collection[str] = ()
) -> str:
    """The first few estimates with their intervals (d, 2), and how many more there are."""
    few = zip(names, estimates, ends.tolist(), strict=True)
    shown = [
        brief(name, float(one), *pair, date=name in dates)
        for name, one, pair in islice(few, _HEADLINES)
    ]
    if len(names) > _HEADLINES:
        shown.append(f"and {len(names) - _HEADLINES} more")
    return "; ".join(shown)


def more_rows(left: int, where: str = "to_frame()") -> str:
    """Note that a table has more rows than it prints, and how to see them."""
    return f"{counted(left, 'more row')} in {where}; print them with most="


def table_of(
    shown: pd.DataFrame, alpha: float, dates: Collection[str] = ()
) -> tuple[list[str], list[list[str]]]:
    """Header and rows of a frame of estimates, as `EstimateResult.to_frame` has it.

    With `certified_low` and `certified_high` as well; tests and fitted shares only where there are
    some. `dates` are terms in days since 1970-01-01.
    """
    level = percent(alpha)
    tested, fitted = bool(shown["p_value"].notna().any()), "fitted" in shown
    header = ["", "estimate", "std err", *(["t", "P>|t|"] if tested else []),
              f"{level} noise-aware", f"{level} certified", "privacy",
              *(["shrunken"] if fitted else [])]  # fmt: skip
    numbers = {
        name: shown[name].to_numpy(dtype=np.float64)
        for name in (*_PRINTED, *(["fitted"] if fitted else []))
    }
    rows = []
    for i, term in enumerate(shown["term"]):
        row = {str(name): float(column[i]) for name, column in numbers.items()}
        error, ends = row["std_error"], (row["conf_low"], row["conf_high"])
        # The ends of a bounded parameter may be closer than a first-order standard error.
        scales = [scale for scale in (error, ends[1] - ends[0]) if 0 < scale < math.inf]
        dated = term in dates
        show = Days(0) if dated else Numerals.of(
            (row["estimate"], *ends), min(scales, default=math.nan)
        )  # fmt: skip
        of_error = Numerals.of([error], error)(error) + (" days" if dated else "")
        rows.append([
            str(term), show(row["estimate"]), of_error,
            *([fixed(row["statistic"], 2), fixed(row["p_value"], 3)] if tested else []),
            show.interval(*ends), show.certified(row["certified_low"], row["certified_high"]),
            share(row["privacy_share"]), *([show(row["fitted"])] if fitted else []),
        ])  # fmt: skip
    return header, rows


@dataclass(frozen=True)
class Page:
    """Contents of a printed result, as text, HTML or LaTeX."""

    title: str
    before: Sequence[str] = ()  # lines above the table
    header: Sequence[str] = ()  # the table; none without a header
    rows: Sequence[Sequence[str]] = ()
    after: Sequence[str] = field(default=(), kw_only=True)  # lines below it
    words: Collection[int] = field(default=(0,), kw_only=True)  # the numbers of the columns of text

    def text(self) -> Summary:
        """Lines, with empty ones around the table."""
        lines = [self.title, *self.before, *self._table(sys.maxsize, _WIDEST), *self.after]
        return Summary("\n".join(lines).rstrip("\n"), self)

    def fitted(self) -> str:
        """The text with lines and columns that fit the terminal."""
        before, after = (
            [line for one in lines for line in wrapped(one)]
            for lines in ((self.title, *self.before), self.after)
        )
        return "\n".join([*before, *self._table(), *after]).rstrip("\n")

    def _table(self, room: int | None = None, first: int | None = None) -> list[str]:
        if not self.header:
            return []
        lines = fitted_table(self.header, self.rows, self.words, room, first=first, rule=True)
        return ["", *lines, ""]

    def html(self) -> str:
        """Cells and lines, escaped."""
        table = html_table(self.header, self.rows) if self.header else ""
        return as_html(self.title, self.before, table, self.after)

    def latex(self) -> str:
        """A floating table with the title as its caption, and the lines above and below it.

        Needs the package booktabs; labels that LaTeX gives a meaning to are escaped.
        """
        lines = [r"\begin{table}", r"\centering", rf"\caption{{{escaped(self.title)}}}"]
        lines += [f"{escaped(line)}\\par" for line in self.before if line]
        if self.header:
            head, *body = [
                " & ".join(map(escaped, row)) + r" \\" for row in (self.header, *self.rows)
            ]
            columns = rf"\begin{{tabular}}{{l{'r' * (len(self.header) - 1)}}}"
            lines += [columns, r"\toprule", head, r"\midrule", *body, r"\bottomrule"]
            lines += [r"\end{tabular}"]
        lines += [rf"\par{{\footnotesize {escaped(line)}}}" for line in self.after if line]
        return "\n".join([*lines, r"\end{table}"])


class Printed:
    """Text and HTML of what has a page."""

    def _page(self) -> Page:
        raise NotImplementedError

    def __str__(self) -> str:
        return self._page().text()

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        return self._page().html()


class Summary(str):
    r"""The text of a result, which it can also give as HTML or LaTeX, as in statsmodels.

    Examples
    --------
    >>> import dpstats as dps
    >>> import pandas as pd
    >>> schema = dps.Schema([dps.Boolean("smoker")])
    >>> plan = dps.plan(schema, {"smoking": dps.Proportion("smoker")}, budget=dps.PureDP(1))
    >>> rows = pd.DataFrame({"smoker": [True] * 3_000 + [False] * 7_000})
    >>> summary = dps.release(plan, rows).infer("smoking").summary()
    >>> print(summary.as_latex().splitlines()[3])
    \begin{tabular}{lrrrrr}
    """

    _page: Page

    def __new__(cls, text: str, page: Page) -> Summary:
        """Text with the page that it is of."""
        made = super().__new__(cls, text)
        made._page = page
        return made

    def __reduce__(self) -> tuple[type[Summary], tuple[str, Page]]:
        return Summary, (str(self), self._page)

    def as_text(self) -> str:
        """The text itself."""
        return str(self)

    def fitted(self) -> str:
        """Page with lines and columns that fit the terminal."""
        return self._page.fitted()

    def as_html(self) -> str:
        """Cells and lines, escaped."""
        return self._page.html()

    def as_latex(self) -> str:
        """A LaTeX table with the same cells and lines, escaped; needs the package booktabs."""
        return self._page.latex()

    def _repr_html_(self) -> str:
        return self._page.html()


def _shortened(text: str) -> str:
    """A name in one line, without the middle of a long one."""
    half = (_WIDEST - 3) // 2
    return text if len(text) <= _WIDEST else f"{text[:half]}...{text[-half:]}"


_ESCAPED = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "$": r"\$", "&": r"\&", "#": r"\#",
    "_": r"\_", "%": r"\%", "^": r"\textasciicircum{}", "~": r"\textasciitilde{}",
    "<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}", '"': r"\textquotedbl{}",
    "[": "{[}", "]": "{]}", "*": "{*}",  # after the end of a row they would be its options
}  # fmt: skip


def escaped(text: str) -> str:
    r"""Text that LaTeX prints as it is.

    Examples
    --------
    >>> print(escaped("age >= 65 & a_b"), escaped("[0, 18)"))
    age \textgreater{}= 65 \& a\_b {[}0, 18)
    """
    return "".join(_ESCAPED.get(character, character) for character in text)
