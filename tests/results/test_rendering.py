import re

import numpy as np
import pandas as pd
import pytest

import dpstats as dps
from dpstats.results.rendering import html_table, share, significant, text_table


@pytest.mark.parametrize(("value", "scale", "text"), [
    (4.857e-07, 1.2e-09, "4.857e-07"), (1987.312, 0.213, "1987.312"),
    (1.23456e9, 4e7, "1.2346e+09"), (0.3012345, 0.0066, "0.30123"), (0.0002, 0.5, "0.0002"),
    (0.123456, np.nan, "0.1235"),
    (0.123456, np.inf, "0.1235"), (-np.inf, 1.0, "-inf"), (np.nan, 1.0, ""), (-0.0, 1.0, "0"),
])  # fmt: skip
def test_a_number_shows_three_digits_of_its_error(value, scale, text):
    assert significant(value, scale) == text


def test_tables_align_shorten_and_escape():
    header, rows = ["", "a"], [["x" * 60, "1"], ["<b>", "22"]]
    lines = text_table(header, rows)
    assert {len(line) for line in lines} == {48 + 2 + 2}
    assert lines[2].startswith("x" * 45 + "...")
    assert "<td>&lt;b&gt;</td><td>22</td>" in html_table(header, rows)
    assert (share(0.123), share(np.nan)) == ("12%", "")


def test_text_and_html_show_the_same_in_any_unit():
    schema = dps.Schema([dps.Number("pay", 0, 1e9, points=101, missing=0),
                         dps.Number("y", 0, 1e-3, points=101, missing=0)])  # fmt: skip
    rng = np.random.default_rng(0)
    pay = rng.integers(0, 101, 3000)
    frame = pd.DataFrame({"pay": 1e7 * pay, "y": 1e-5 * (pay // 2 + rng.integers(0, 51, 3000))})
    analyses = {
        "mean": dps.Mean(["pay", "y"]), "covariance": dps.Covariance(["pay", "y"]),
        "ols": dps.OLS("y ~ pay"),
    }  # fmt: skip
    plan = dps.plan(schema, analyses, budget=dps.PureDP(50))
    release = dps.release(plan, frame, rng=0, m=100, k=20)
    for name in analyses:
        result = release.infer(name)
        lines = result.summary().splitlines()
        start = next(i for i, line in enumerate(lines) if line.startswith("---"))
        cells = [re.split(r"\s{2,}", line) for line in lines[start + 1 :][: len(result.terms)]]
        table = result._repr_html_().split("<tbody>")[1]
        assert re.findall(r"<td>(.*?)</td>", table) == [cell for line in cells for cell in line]
        for line, row in zip(cells, result.to_frame().itertuples(), strict=True):
            assert float(line[1]) == pytest.approx(row.estimate, abs=0.006 * row.std_error)
            assert float(line[2]) == pytest.approx(row.std_error, rel=0.006)
    page = release.infer("ols")._repr_html_()
    for word in ("P&gt;|t|", "R-squared", "F statistic"):
        assert word in page
    prediction = release.infer("ols").get_prediction({"pay": [1e8]})
    assert f"<td>{significant(prediction.predicted_mean[0], prediction.se_mean[0])}</td>" in (
        prediction._repr_html_()
    )
