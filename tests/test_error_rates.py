"""How alpha is divided: no rule outside of its module, and none spends more than there is."""

import ast
import itertools
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import dpstats as dps
from dpstats import error_rates
from dpstats.error_rates import certificate_split, split_for
from dpstats.errors import RequestError
from dpstats.privacy.gaussian import DiscreteGaussian
from dpstats.privacy.laws import DiscreteLaplace

PACKAGE = Path(dps.__file__).parent
ERRORS = {"alpha", "beta", "gamma", "error", "each", "of_box", "of_rows", "of_count"}
NAMED = rf"\b({'|'.join(ERRORS)})\b"
NEAR = re.compile(rf"{NAMED}\)?\s*[*/]|[*/]\s*\(?(1 - )?{NAMED}")  # quicker than to parse


def divisions(text):
    """Products and quotients of an error probability, the tails alpha / 2 of one law aside."""
    found = []
    for node in ast.walk(ast.parse(text)) if NEAR.search(text) else ():
        if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.Div | ast.Mult):
            continue
        left, right = map(ast.unparse, (node.left, node.right))
        is_error = [side in {*ERRORS, "alpha - beta", "1 - alpha"} for side in (left, right)]
        divided = isinstance(node.op, ast.Div)
        tail = divided and right == "2"
        count = divided and not is_error[0]  # draws for a tail, or its odds
        if any(is_error) and not tail and not count and not left.isdigit():
            found.append(ast.unparse(node))
    return found


def test_alpha_is_divided_in_one_module():
    for path in PACKAGE.rglob("*.py"):
        if "verifying" in path.parts:  # it computes everything again by itself
            continue
        if path.name not in ("error_rates.py", "budget.py", "conversion.py"):
            assert not divisions(path.read_text()), path


@pytest.mark.parametrize(
    "text", ["alpha / 25", "beta / n", "0.9 * beta", "alpha * (1 - share)", "(alpha - beta) / 5"]
)
def test_a_division_elsewhere_is_seen(text):
    assert divisions(text)
    assert not divisions("law.quantile(alpha / 2); 20 / alpha; alpha - 2 * beta; 100 * (1 - alpha)")


ALPHAS = [1e-6, 0.01, 0.05, 0.5]


@pytest.mark.parametrize("alpha", ALPHAS)
def test_shares_leave_something_and_never_exceed_alpha(alpha):
    for rule in (error_rates.for_noise, error_rates.for_noise_of_means, error_rates.for_row_count,
                 error_rates.for_variances):  # fmt: skip
        assert 0 < rule(alpha) < alpha
    assert 2 * error_rates.for_group_size(alpha) < alpha
    assert sum(error_rates.for_other_eigenvalues(alpha)) <= alpha * (1 + 1e-15)
    for public in (True, False):
        used = sum(error_rates.for_covariance_noise(alpha, public=public))
        used += 0 if public else error_rates.for_covariance_count(alpha)
        assert used == pytest.approx(alpha, rel=1e-14)
    for splits in (error_rates.splits_of_band(alpha), error_rates.splits_of_fit(alpha)):
        assert 0 < min(splits) < max(splits) < alpha
    for count in (1, 2, 7):
        assert error_rates.bonferroni(alpha, count) * count == pytest.approx(alpha)
    empty = error_rates.for_empty_levels(alpha)
    assert error_rates.alpha_of_empty_levels(empty) == pytest.approx(min(alpha, 0.05))


def test_floors_of_pvalues():
    assert error_rates.LEAST_OF_COUNT == 0.001
    assert error_rates.of_simulation(0, 99) == 0.01
    np.testing.assert_array_equal(error_rates.of_simulation(np.array([0, 99]), 99), [0.01, 1])
    assert error_rates.least_of_noise(0.0, 0.0, 10) == 0
    assert error_rates.least_of_noise(1.0, 4.0, 100) == 0.0025


def test_the_share_of_a_radius():
    assert error_rates.check_beta(0.05, None) == 0.025
    assert error_rates.check_beta(0.05, 0.01) == 0.01
    assert error_rates.check_beta(0.05, 0) == 0  # a radius that always holds
    for beta in (-0.01, 0.05, 0.2, np.nan):
        with pytest.raises(RequestError, match=r"below alpha=0.05.*\(name, alpha=0.025\)"):
            error_rates.check_beta(0.05, beta)


SPLITS = list(itertools.product([50, 4000, 10**7], [0.05, 1.0, 40.0], [0.01, 0.05, 0.3]))


@pytest.mark.parametrize("gaussian", [False, True])
def test_split_minimises_the_width(gaussian):
    for n, scale, alpha in SPLITS:

        def width(beta, n=n, scale=scale, alpha=alpha):
            noise = stats.norm.isf(beta / 2) if gaussian else np.log(1 / beta)
            return 0.5 / np.sqrt(n) * stats.norm.isf((alpha - beta) / 2) + scale / n * noise

        beta = certificate_split(n, scale, alpha, gaussian=gaussian)
        ends = np.geomspace(1e-6, 1, 4000)[:-1]
        grid = alpha * np.concatenate([ends, 1 - ends])
        assert 0 < beta < alpha
        assert width(beta) <= np.min(width(grid)) * (1 + 1e-9)
        if gaussian and scale >= 1:
            assert split_for(n, DiscreteGaussian(scale), alpha) == pytest.approx(beta, rel=1e-6)
        law = DiscreteLaplace(scale)
        expected = certificate_split(n, np.sqrt(law.variance / 2), alpha)
        assert split_for(n, law, alpha) == pytest.approx(expected)


def test_split_extremes():
    for options in ({"gaussian": True}, {}):
        assert certificate_split(100, 0.0, **options) == pytest.approx(5e-8)
        assert 0.04999 < certificate_split(100, 1e9, **options) < 0.05
    with pytest.raises(RequestError, match="positive number of rows"):
        certificate_split(0, 1.0)


def test_the_share_for_empty_levels_is_the_inverse_of_what_a_pvalue_pays():
    pvalues = (0.0, 1e-9, 1e-3, 0.04, 0.049, 0.2, 0.99)
    for most, pvalue in itertools.product((0.0, 1e-5, 1.0), pvalues):
        alpha = error_rates.plus_empty_levels(pvalue, most)
        share = min(error_rates.for_empty_levels(alpha), most)
        assert alpha - share == pytest.approx(pvalue, rel=1e-12, abs=1e-15)
        assert alpha <= pvalue + 1e-3
    assert error_rates.plus_empty_levels(1.0, 1.0) == 1


def test_certified_limits_of_many_numbers_share_one_error(monkeypatch):
    """What the error is divided by, module by module."""
    numbers = [dps.Number(name, 0, 10, points=11, missing=0) for name in "xy"]
    two = [dps.Boolean("died"), dps.Boolean("old")]
    three = [dps.Number("days", 0, 100, edges=[25, 50], missing=0), *two]
    weights = dps.Design("w", mean=1, cap=2, deff=1)
    i = np.arange(400)
    frame = pd.DataFrame({"x": i % 11, "y": i % 7, "days": i % 100, "died": i % 3 == 0})
    frame = frame.assign(old=i % 2 == 0, w=1.0)
    certified = {"method": "certified", "target": "table"}
    of_rows = {"method": "certified", "simultaneous": True}
    shrunk, curve = dps.Covariance(["x", "y"], clip_norm=1), dps.Survival("days", "died")
    shares, cells = (dps.Marginals(["died", "old"], degree=degree) for degree in (1, 2))
    for module, columns, asked, options, wanted in (
        ("counts.proportion_intervals", two, cells, of_rows, [4]),
        ("moments.correlation", numbers, dps.Correlation(["x", "y"]), of_rows, [6, 5]),
        ("moments.clipping", numbers, shrunk, {}, [2, 2]),  # in its notes
        ("regression.loss_grid", numbers, dps.Huber("y ~ x", k=2), {"target": "population"}, [121]),
        ("survival.curves", three, curve, certified, [5, 3, 3, 3, 3, 2]),  # sums, and their noise
        ("survey.weighted", two, shares, certified, [1, 1, 2, 2, 2]),  # notes, parts, totals
    ):
        divided = []

        def divide(alpha, count, divided=divided):
            divided.append(count)
            return alpha / count

        schema = dps.Schema(columns, design=weights if module == "survey.weighted" else None)
        plan = dps.plan(schema, {"a": asked}, budget=dps.PureDP(10), unit="add_remove")
        release = dps.release(plan, frame, rng=0, m=20, k=10)
        with monkeypatch.context() as patch:
            patch.setattr(f"dpstats.analyses.{module}.bonferroni", divide)
            release.infer("a").conf_int(**options)
        assert divided == wanted, module
