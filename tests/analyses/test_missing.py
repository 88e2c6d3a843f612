"""Answers from complete cases and subgroups: those of pandas without noise, in every analysis."""

import numpy as np
import pandas as pd
import pytest
import statsmodels.formula.api as smf
from statsmodels.stats.proportion import proportion_confint
from statsmodels.stats.weightstats import DescrStatsW

import dpstats as dps
from dpstats.privacy.noise import _noise_from

SCHEMA = dps.Schema([
    dps.Number("age", 0, 100, points=201, edges=[18, 40, 65], missing=40),
    dps.Number("pay", -10, 30, points=401, edges=[0, 10, 20], allow_missing=True),
    dps.Number("rent", 0, 20, points=201, allow_missing=True),
    dps.Number("score", values=[17.5, 22, 27, 40], allow_missing=True),
    dps.Category("smoker", ["no", "yes"], allow_missing=True),
    dps.Boolean("ill", allow_missing=True),
    dps.Category("region", ["north", "south"], missing="south", other="north"),
])  # fmt: skip
ANALYSES = {
    "mean": dps.Mean("pay"),
    "means": dps.Mean(["age", "pay", "score"], given="age >= 40"),
    "own bins": dps.Mean("pay", given="pay >= 10 or smoker == '(missing)'"),
    "correlations": dps.Correlation(["age", "pay", "rent"]),
    "correlation": dps.Correlation(["age", "pay"], given="age >= 40 and smoker != '(missing)'"),
    "quantiles": dps.Quantile("score", [0.2, 0.6], given="age >= 40 and smoker == 'no'"),
    "smokers": dps.Proportion("smoker == 'yes'"),
    "paid": dps.Proportion("pay >= 10 and smoker == 'yes'", given="age >= 18"),
    "absent": dps.Proportion("smoker == '(missing)'"),
    "gap": dps.Difference("pay >= 10", by="smoker"),
    "line": dps.OLS("pay ~ age + rent"),
    "groups": dps.OLS("rent ~ age + C(smoker)", given="age >= 18"),
    "robust": dps.OLS("pay ~ age", cov_type="HC1", given="smoker == 'no'"),
}


@pytest.fixture(scope="module")
def frame():
    """Numbers missing more often where they are large."""
    rng, n = np.random.default_rng(4), 900
    age = (2 * rng.normal(45, 15, n).clip(0, 100)).round() / 2
    pay = (age / 5 + rng.normal(0, 4, n)).clip(-10, 30).round(1)
    rent = (pay / 4 + rng.normal(8, 2, n)).clip(0, 20).round(1)
    return pd.DataFrame({
        "age": age,
        "pay": np.where(rng.random(n) < 0.02 * pay.clip(1), np.nan, pay),
        "rent": np.where(rng.random(n) < 0.2, np.nan, rent),
        "score": rng.choice([17.5, 22, 27, 40, np.nan], n, p=[0.1, 0.2, 0.4, 0.2, 0.1]),
        "smoker": rng.choice(["no", "yes", None], n, p=[0.6, 0.3, 0.1]),
        "ill": rng.choice([False, True, None], n, p=[0.5, 0.3, 0.2]),
        "region": rng.choice(["north", "south", None], n, p=[0.6, 0.3, 0.1]),
    })  # fmt: skip


@pytest.fixture(scope="module")
def release(frame, silent_noise):
    """All analyses, without noise and with a law of the noise that is next to zero."""
    options = {"unit": "add_remove", "reference": dps.Uniform()}
    plan = dps.plan(SCHEMA, ANALYSES, budget=dps.PureDP(1e5), **options)
    with _noise_from(silent_noise):
        return dps.release(plan, frame, rng=0, m=200, k=50)


def test_without_noise_means_are_those_of_the_rows_with_a_value(release, frame):
    old = frame[frame["age"] >= 40]
    chosen = frame[(frame["pay"] >= 10) | frame["smoker"].isna()]
    cases = [("mean", 0, frame["pay"]), ("own bins", 0, chosen["pay"])]
    cases += [("means", i, old[name]) for i, name in enumerate(["age", "pay", "score"])]
    for name, i, values in cases:
        known, result = DescrStatsW(values.dropna()), release.infer(name)
        assert result.params[i] == pytest.approx(known.mean, rel=1e-9)
        ends, box = (
            np.reshape(result.conf_int(**options), (-1, 2))[i]
            for options in ({}, {"target": "table"})
        )
        found = [result.bse[i], *ends]
        np.testing.assert_allclose(found, [known.std_mean, *known.tconfint_mean()], rtol=1e-5)
        np.testing.assert_allclose(box, known.mean, atol=0.01)


def test_without_noise_correlations_and_quantiles_are_those_of_complete_cases(release, frame):
    all_three, old = frame[["age", "pay", "rent"]].dropna(), frame[frame["age"] >= 40]
    found = release.infer("correlations")
    np.testing.assert_allclose(found.matrix, all_three.corr(), rtol=1e-7)
    chosen = old[old["smoker"].notna()][["age", "pay"]].dropna()
    assert float(release.infer("correlation")) == pytest.approx(chosen.corr().iloc[0, 1], rel=1e-7)
    quantiles, scores = release.infer("quantiles"), old["score"][old["smoker"].eq("no")].dropna()
    expected = [np.quantile(scores, p, method="inverted_cdf") for p in (0.2, 0.6)]
    assert list(quantiles.params) == expected
    table = quantiles.conf_int(target="table")
    np.testing.assert_array_equal(table, np.transpose([expected, expected]))


def test_without_noise_regressions_are_those_of_complete_cases(release, frame):
    adult, healthy = frame[frame["age"] >= 18], frame[frame["smoker"] == "no"]
    adult = adult.assign(smoker=adult["smoker"].fillna("(missing)"))
    levels = ", levels=['no', 'yes', '(missing)']"
    for name, formula, used, cov_type in [
        ("line", "pay ~ age + rent", frame, "nonrobust"),
        ("groups", f"rent ~ age + C(smoker{levels})", adult, "nonrobust"),
        ("robust", "pay ~ age", healthy, "HC1"),
    ]:
        known = smf.ols(formula, used, missing="drop").fit(cov_type=cov_type, use_t=True)
        result, rename = release.infer(name), lambda term: term.replace(levels, "")
        theirs, errors = known.params.rename(rename), known.bse.rename(rename)
        assert set(theirs.index) == set(result.terms)
        np.testing.assert_allclose(result.params, theirs[result.terms], rtol=1e-6)
        rtol = 1e-4 if cov_type == "nonrobust" else 0.02  # fourth moments are of rounded numbers
        np.testing.assert_allclose(result.bse, errors[result.terms], rtol=rtol, err_msg=name)
        assert result.nobs == known.nobs


def test_without_noise_proportions_are_those_of_the_rows_with_a_value(release, frame):
    both = frame[frame["age"] >= 18].dropna(subset=["smoker", "pay"])
    for name, values in [
        ("smokers", frame["smoker"].dropna().eq("yes")), ("absent", frame["smoker"].isna()),
        ("paid", (both["pay"] >= 10) & both["smoker"].eq("yes")),
    ]:  # fmt: skip
        result = release.infer(name)
        assert float(result) == pytest.approx(values.mean(), rel=1e-9)
        ends = proportion_confint(values.sum(), len(values), method="beta")
        np.testing.assert_allclose(result.conf_int(method="certified"), ends, rtol=0.05)
    paid = frame.dropna(subset=["pay", "smoker"])
    risks = (paid["pay"] >= 10).groupby(paid["smoker"]).mean()
    gap = release.infer("gap").params[0]
    assert gap == pytest.approx(risks["no"] - risks["yes"], rel=1e-9)


def test_names_and_levels_that_hold_the_word_missing_keep_the_denominator(silent_noise):
    """Only the level "(missing)" itself makes a proportion one of all rows."""
    schema = dps.Schema([
        dps.Category("smoker", ["no", "yes"], allow_missing=True),
        dps.Category("reason", ["refused", "blank (missing)"], allow_missing=True),
        dps.Boolean("age (missing)"),
    ])  # fmt: skip
    rows = pd.DataFrame({
        "smoker": ["yes", "yes", "no", "no", None, None, None, None],
        "reason": ["refused", "blank (missing)", None, None] * 2,
        "age (missing)": [True, False] * 4,
    })  # fmt: skip
    shares = {
        "smoker == 'yes' and `age (missing)`": 1 / 4,
        "reason == 'blank (missing)'": 1 / 2,
        "smoker != 'yes' and reason in ['refused', 'blank (missing)']": 0,
        "smoker == '(missing)' and `age (missing)`": 2 / 8,
        "reason in ['refused', '(missing)']": 6 / 8,
    }
    asked = {text: dps.Proportion(text) for text in shares}
    asked["gap"] = dps.Difference(
        "smoker == 'yes' and reason != 'blank (missing)'", by="age (missing)"
    )
    plan = dps.plan(schema, asked, budget=dps.PureDP(1e5))
    with _noise_from(silent_noise):
        release = dps.release(plan, rows, rng=0, m=50, k=5)
    for text, share in shares.items():
        assert float(release.infer(text)) == pytest.approx(share, abs=1e-4), text
    assert release.infer("gap").params[0] == pytest.approx(1, abs=1e-3)


HELD = {
    "mean": (dps.Mean("pay"), lambda rows: rows["pay"].mean()),
    "correlation": (dps.Correlation(["age", "pay"]), lambda rows: rows["age"].corr(rows["pay"])),
    "slope": (
        dps.OLS("pay ~ age - 1", given="age >= 18"),
        lambda rows: (f := rows[rows["age"] >= 18].dropna(subset="pay"))["pay"] @ f["age"]
        / (f["age"] @ f["age"]),
    ),
    "share": (dps.Proportion("pay >= 10"), lambda rows: (rows["pay"].dropna() >= 10).mean()),
}  # fmt: skip


@pytest.mark.parametrize(
    ("budget", "unit"), [(dps.PureDP(20), "replace"), (dps.ZCDP(10), "add_remove")], ids=str
)
def test_certified_intervals_hold_those_of_complete_cases(budget, unit, frame, seeded_noise):
    """For the table, at an error of 1e-6, and narrow: a wrong law, count or row shows at once."""
    asked = {name: analysis for name, (analysis, _) in HELD.items()}
    plan = dps.plan(SCHEMA, asked, budget=budget, unit=unit, reference=dps.Uniform())
    with _noise_from(seeded_noise(0)):
        release = dps.release(plan, frame, rng=0, m=200, k=50)
    for name, (_, truth) in HELD.items():
        ends = release.infer(name).conf_int(alpha=1e-6, target="table", method="certified")
        low, high = np.reshape(ends, (-1, 2))[0]
        assert low <= truth(frame) <= high, name
        assert high - low < (12 if name == "mean" else 1), name


def test_the_number_of_rows_of_a_subgroup_is_never_taken_as_known(frame, seeded_noise):
    """Its noisy count has the law of its own measurement."""
    plan = dps.plan(SCHEMA, {"line": dps.OLS("pay ~ age", given="age >= 40")}, budget=dps.PureDP(1))
    with _noise_from(seeded_noise(0)):
        release = dps.release(plan, frame, rng=0, m=200, k=50)
    answers = release.answers(plan.family.blocks[0])
    about = answers.of_counted_rows().rows
    assert plan.family.blocks[0].names[-1] == "rows, age >= 40 and pay answered"
    assert not about.public
    assert about.estimate == answers.sums[-1]
    assert about.law == answers.law(-1)
    assert release.infer("line").rows == about
    assert abs(about.estimate - ((frame["age"] >= 40) & frame["pay"].notna()).sum()) < 200
