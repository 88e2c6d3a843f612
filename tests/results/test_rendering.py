"""Printed numbers, and tables as text and HTML."""

import numpy as np
import pytest

from dpstats.results.rendering import (
    Numerals,
    Page,
    fixed,
    html_table,
    share,
    shown_pvalue,
    significant,
)


@pytest.mark.parametrize(("value", "scale", "text"), [
    (4.857e-07, 1.2e-09, "4.8570e-07"), (1987.312, 0.213, "1987.312"),
    (1.23456e9, 4e7, "1.2346e+09"), (0.3012345, 0.0066, "0.30123"), (0.0002, 0.5, "0.000"),
    (0.123456, np.nan, "0.1235"), (52345.6, 4000, "52346"), (1e9, np.nan, "1.000e+09"),
    (0.123456, np.inf, "0.1235"), (-np.inf, 1.0, "-inf"), (np.nan, 1.0, ""), (-0.0, 1.0, "0.00"),
    (0.0, np.nan, "0"), (-1e-12, 0.02, "0.0000"), (1e-12, 1e-14, "1.0000e-12"),
    (1.7e308, 1e300, "1.7000000000e+308"), (1 / 3, 1e-30, "0.333333333333333"),
])  # fmt: skip
def test_a_number_shows_three_digits_of_its_error(value, scale, text):
    assert Numerals.of([value], scale)(value) == text


def test_tables_align_wrap_and_escape():
    header, rows = ["", "a"], [["x" * 50 + "y" * 10, "1"], ["<b>", "22"]]
    lines = Page("", header=header, rows=rows).text().strip("\n").splitlines()
    assert lines[2] == "x" * 48 + "   1"  # a long name takes a further line, and loses nothing
    assert lines[3].split() == ["xx" + "y" * 10]
    assert {len(line) for line in (*lines[:3], *lines[4:])} == {48 + 2 + 2}
    page = html_table(header, rows)
    assert '<th scope="row">&lt;b&gt;</th><td>22</td>' in page
    assert page.count('<th scope="col">') == 1  # of the heading without text a plain cell
    assert page.count('<th scope="row">') == len(rows)
    assert (share(0.123), share(np.nan), share(-0.0)) == ("12%", "", "0%")
    shown = [shown_pvalue(pvalue) for pvalue in (np.nan, 1e-7, 0.01234)]
    assert shown == ["= nan", "< 1e-06", "= 0.01234"]
    assert (significant(np.nan), significant(-0.0), significant(-np.inf)) == ("", "0", "-inf")
    assert (fixed(-0.001, 1), fixed(np.nan, 2), fixed(-1e300, 2)) == ("0.0", "", "-1e+300")
