"""Inference from published rows, a radius and n: certified answers, and no others."""

import io
import itertools
from dataclasses import replace

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import dpstats as dps
from dpstats.errors import RequestError
from dpstats.measured.answers import joint_noise_quantiles
from dpstats.privacy.noise import _noise_from
from dpstats.releases.published_rows import _codes_of

SCHEMA = dps.Schema([
    dps.Boolean("smoker"),
    dps.Category("region", ["north", "south", "east"]),
    dps.Number("age", 0, 100, points=101, edges=[20, 40, 60], missing=50),
    dps.Number("bmi", 10, 50, points=81, missing=20),
])  # fmt: skip
ASKED = {
    "share": dps.Proportion("smoker"),
    "given": dps.Proportion("smoker", given="age >= 60"),
    "tables": dps.Marginals(["smoker", "region"]),
    "fit": dps.GoodnessOfFit("region", [0.3, 0.3, 0.4], simulations=99),
    "link": dps.Independence("smoker", "region", simulations=99),
    "gap": dps.Difference("smoker", by="region", groups=("north", "south")),
    "quartiles": dps.Quantile("age", [0.25, 0.5]),
    "mean": dps.Mean("age"),
    "means": dps.MeanDifference("bmi", by="smoker"),
    "groups": dps.GroupMeans("bmi", by="region", given="age >= 20"),
    "pair": dps.Correlation(["age", "bmi"]),
    "spread": dps.Covariance(["age", "bmi"]),
    "shape": dps.PCA(["age", "bmi"]),
    "clipped": dps.PCA(["age", "bmi"], clip_norm=1.0),
    "line": dps.OLS("bmi ~ age + smoker"),
    "robust": dps.OLS("bmi ~ age", cov_type="HC1"),
}
N = 3_000
AS_TEXT = {"dtype": str, "keep_default_na": False}


def table(n=N, seed=0):
    rng = np.random.default_rng(seed)
    age = rng.normal(50, 15, n).clip(0, 100)
    smoker = rng.random(n) < 0.3
    bmi = (age / 5 + 4 * smoker + rng.normal(15, 4, n)).clip(10, 50)
    region = rng.choice(["north", "south", "east"], n, p=[0.5, 0.3, 0.2])
    return pd.DataFrame({"smoker": smoker, "region": region, "age": age, "bmi": bmi})


UNITS = ["replace", "add_remove"]


def released(unit, source, asked=ASKED, m=300):
    plan = dps.plan(SCHEMA, asked, budget=dps.PureDP(60), unit=unit)
    with _noise_from(source):
        held = dps.measure(plan, table())
    return dps.synthesize(held, m=m, rng=1)


@pytest.fixture(scope="module")
def releases(seeded_noise):
    return {unit: released(unit, seeded_noise(5)) for unit in UNITS}


@pytest.fixture(params=UNITS)
def release(releases, request):
    return releases[request.param]


@pytest.fixture
def one_release(releases):
    """For what does not depend on the number of rows."""
    return releases["replace"]


def exact(asked, unit, silent_noise):
    """A release whose noise happened to be zero, and whose rows are the private ones."""
    made = released(unit, silent_noise, asked, m=100)
    codes = SCHEMA.encode(pa.RecordBatch.from_pandas(table()))
    codes = {name: codes[name] for name in made.columns.names}
    return replace(made, candidates=codes, weights=np.ones(N) / N, counts=np.ones(N, np.int64))


def inferred(release, name, **options):
    analysis = ASKED[name] if isinstance(name, str) else name
    options = {"radius": release.radius(name), "schema": SCHEMA} | options
    return dps.corrected.infer(analysis, release.to_frame(), **options)


def ends(result, **options):
    return np.asarray(result.conf_int(method="certified", **options)).reshape(-1, 2)


# Intervals of different kinds; where n is noisy too, those in which it is a divisor of its own.
KINDS = {
    "replace": ["share", "given", "tables", "gap", "quartiles", "mean", "means", "groups", "pair",
                "spread", "shape", "line"],
    "add_remove": ["share", "given", "tables", "mean", "groups", "line"],
}  # fmt: skip


@pytest.mark.parametrize("unit", UNITS)
def test_one_number_is_never_shorter_than_the_radius_of_each_function(unit, releases):
    release = releases[unit]
    for name in KINDS[unit]:
        radius = release.radius(name)
        found = [
            inferred(release, name),
            inferred(release, name, radius=dict(radius), n=radius.n),
            inferred(release, name, radius=radius.max, n=radius.n),
        ]
        assert {one.beta for one in found} == {0.025}
        for target, simultaneous in (("population", True), ("table", False)):
            options = {"target": target, "simultaneous": simultaneous, "alpha": 0.1}
            limits = [ends(one, **options).T for one in found]
            assert not np.isnan(limits).any()
            slack = 1e-9 * (1 + np.abs(np.nan_to_num(limits[0], posinf=0, neginf=0)))
            for inner, outer in itertools.pairwise(limits):
                assert np.all(outer[0] <= inner[0] + slack[0])
                assert np.all(outer[1] >= inner[1] - slack[1])
    for name in ["fit", "link"]:  # nor does it make a verdict firmer
        radius = release.radius(name)
        one, other = (
            inferred(release, name, **options).certified
            for options in ({}, {"radius": radius.max, "n": radius.n})
        )
        assert other.low <= one.low + 1e-9
        assert other.high >= one.high - 1e-9
        assert other.critical == pytest.approx(one.critical, rel=0.02)


@pytest.mark.parametrize("n", [N, (N - 100, N + 100)])
def test_a_ratio_contains_that_of_every_table_within_the_radius(n):
    """Also where the published rows are alike, so that neither noise nor sampling has a size."""
    ratio, tables = dps.Ratio("bmi", "age"), []
    for age in (4, 1):
        of_all = {"smoker": True, "region": "north", "age": [age] * 50, "bmi": 20.0}
        tables.append(pd.DataFrame(of_all))
    (block,) = ratio.family(SCHEMA).blocks
    means = [
        block.evaluate(SCHEMA.encode(pa.RecordBatch.from_pandas(rows))).average(np.ones(50) / 50)
        for rows in tables
    ]
    radius = float(np.max(np.abs(means[0] - means[1]) / block.bounds))
    found = dps.corrected.infer(ratio, tables[0], radius=radius, n=n, schema=SCHEMA)
    assert float(found) == pytest.approx(5)
    for target in ("population", "table"):
        low, high = found.conf_int(target=target)
        assert low < 5 < 20 < high
    assert "5" in found.summary(target="table")


# Here the release spends the same share of alpha on the noise and asks for the same joint event.
SAME = {
    "tables": {"simultaneous": True}, "spread": {"simultaneous": True},
    "shape": {}, "clipped": {}, "line": {}, "robust": {},
}  # fmt: skip


@pytest.mark.parametrize(("unit", "names"), [("replace", list(SAME)),
                                             ("add_remove", ["tables", "line"])])  # fmt: skip
def test_without_misfit_they_are_the_certified_intervals_of_the_release(unit, names, silent_noise):
    without_misfit = exact({name: ASKED[name] for name in names}, unit, silent_noise)
    for name in names:
        for target in ["population", "table"]:
            # the table spends all of alpha on the noise
            level = 0.025 if target == "population" else 0.05
            radius = without_misfit.radius(name, alpha=level)
            results = without_misfit.infer(name), inferred(without_misfit, name, radius=radius)
            np.testing.assert_allclose(results[1].params, results[0].params, rtol=2e-3)
            own, found = (ends(one, target=target, **SAME[name]) for one in results)
            assert np.isfinite(own).any()
            if isinstance(radius.n, int):
                np.testing.assert_allclose(found, own, rtol=1e-9, atol=1e-9)
            else:  # a radius bounds n by whole numbers; tables and covariances pay for n themselves
                own_event = name in ("line", "robust", "shape", "clipped")
                near = (0.01 if own_event else 0.2) * np.diff(own)
                if name == "tables":  # where a radius fixes n the counts are whole
                    near = np.maximum(near, 1 / radius.n[0])
                assert np.all(np.abs(found - own) <= near)


def test_nothing_noise_aware_is_shown(one_release):
    share = inferred(one_release, "share")
    with pytest.raises(RequestError, match="only a radius of the noise is known here, not its law"):
        share.conf_int(method="noise_aware")
    for hidden in ("bse", "privacy_share", "privacy_variance", "sampling_variance", "t_test"):
        assert not hasattr(share, hidden)
    assert not len(share.pvalues)
    assert not hasattr(inferred(one_release, "fit"), "pvalue")
    for name in ("share", "line", "fit"):
        result = inferred(one_release, name)
        for text in (result.summary(), result.headline, repr(result)):
            assert "nan" not in text
            assert "p-value" not in text
    answers = share.intervals.answers
    law = answers.law(0)
    for use in (lambda: law.cdf(0), law.support, lambda: answers.noise_groups):  # they refuse too
        with pytest.raises(RequestError, match="only a radius"):
            use()


def test_the_test_of_a_value_agrees_with_the_interval(one_release):
    share = inferred(one_release, "share")
    low, high = share.conf_int(alpha=0.1).tolist()
    centre = (low + high) / 2
    assert share.test(centre).pvalue > 0.1
    sides = ("larger", "smaller")
    for value, (side, other) in ((low - 1e-6, sides), (high + 1e-6, sides[::-1])):
        assert share.test(value).pvalue == pytest.approx(0.1, abs=0.01)
        assert share.test(value, side).pvalue == share.test(value).pvalue
        assert share.test(value, other).pvalue == 1
    far = share.test(0.9)
    assert 0.025 <= far.pvalue < 0.0251
    assert "no p-value is below 0.025, the probability that the radius fails" in far.summary()
    for value in (-0.01, 30):
        with pytest.raises(RequestError, match="between 0 and 1 in any table"):
            share.test(value)
    with pytest.raises(RequestError, match="needs a single parameter"):
        inferred(one_release, "line").test(0)


def test_arguments_out_of_range(one_release):
    for options, message in [
        ({"radius": 0.01}, "n is needed with a radius that is not release.radius"),
        ({"radius": -0.01, "n": 9}, "radius must not be negative, got -0.01"),
        ({"radius": {"smoker": "a"}, "n": 9}, "radius of 'smoker' must be a single number"),
        ({"radius": {"other": 0.1}, "n": 9}, "no entry for 'smoker'; give release.radius"),
        ({"radius": 0.01, "n": 0}, "not a number of rows"),
        ({"radius": 0.01, "n": (9, 8)}, "lower bound above the upper one"),
        ({"radius": 0.01, "n": 9, "beta": 0.7}, "at least 0 and below 1/2"),
        ({"beta": 0.05}, "the radius has its own beta, 0.025"),
        ({"n": 17}, "differs from that of the radius"),
    ]:
        with pytest.raises(RequestError, match=message):
            inferred(one_release, "share", **options)


def test_rows_that_do_not_fit(one_release):
    rows, known = one_release.to_frame(), {"radius": 0.01, "n": 100, "schema": SCHEMA}
    other = rows.astype({"region": str}).replace({"region": {"north": "nord"}})
    for asked, table, message in [
        (ASKED["pair"], rows[["smoker"]], r"no columns 'age' and 'bmi', which dps.Correlation"),
        (ASKED["mean"], pd.DataFrame({"age": ["a"]}), "a value of 'age' that is no number; give"),
        (ASKED["mean"], rows.head(0), "rows must be a DataFrame with at least one row"),
        (ASKED["mean"], rows.assign(age=101.0), "a value of 'age' outside 0 to 100, which the sch"),
        (ASKED["fit"], other, "hold a value of 'region' that the schema does not"),
        ("share", rows, "rows have no names of analyses; got 'share'"),
    ]:
        with pytest.raises(RequestError, match=message):
            dps.corrected.infer(asked, table, **known)


def test_an_error_that_the_radius_alone_exceeds(one_release):
    share = inferred(one_release, "share", radius=one_release.radius("share", alpha=0.05))
    with pytest.raises(RequestError, match=r"alpha=0.05 must be above 0.05.*alpha=0.025\)"):
        share.conf_int()
    assert share.conf_int(alpha=0.1)[0] > 0
    assert share.conf_int(target="table")[0] > 0  # the table has no sampling error
    with pytest.raises(RequestError, match="must be above"):
        share.conf_int(alpha=0.01, target="table")
    assert "90% certified" in repr(share)  # at a level that the radius allows


def test_the_radius_is_the_joint_bound_of_the_analysis(release):
    radius = release.radius("line", alpha=0.1)
    certificate = release.accuracy("line", alpha=0.1)
    bounds = certificate.joint_bounds.tolist()
    assert dict(radius) == dict(zip(certificate.names, bounds, strict=True))
    assert (radius.level, radius.max, radius.worst) == (0.9, certificate.delta, certificate.worst)
    assert radius.to_frame().attrs["level"] == 0.9
    assert radius == release.radius("line", alpha=0.1) != release.radius("line")
    assert release.radius("spread").spectral is None
    assert release.radius("shape").spectral.norm < 2 * release.radius("shape").max
    answers = release.answers(ASKED["line"], with_count=True)
    some = slice(len(radius))
    noise = joint_noise_quantiles(answers, 0.1)[some] / answers.n / answers.bounds[some]
    assert np.all(certificate.joint_radius >= noise - 1e-12)


def test_the_radius_of_a_name_is_the_largest_of_its_functions():
    """The square of a has the name of the column a^2, and a smaller radius here."""
    schema = dps.Schema([dps.Number("a", 0, 1, points=2, missing=0),
                         dps.Number("a^2", 0, 10, points=1001, missing=0)])  # fmt: skip
    pair = dps.Correlation(["a", "a^2"])
    plan = dps.plan(schema, {"pair": pair}, budget=dps.PureDP(1))
    rows = pd.DataFrame({"a": np.arange(1000) % 2, "a^2": np.arange(1000) % 10})
    radius = dps.release(plan, rows, m=200, rng=0).radius("pair")
    alike = [v for n, v in zip(radius.names, radius.values_of, strict=True) if n == "a^2"]
    assert len(set(alike)) == 2
    assert radius["a^2"] == max(alike)


def test_bounds_on_sums_hold_for_every_table_that_the_radius_admits():
    """By brute force over private means within the radius and numbers of rows within the pair."""
    rows = pd.DataFrame({"smoker": [True] * 60 + [False] * 40})
    radius, (low, high) = 0.05, (90, 110)
    options = {"radius": radius, "n": (low, high), "schema": SCHEMA.select(["smoker"])}
    found = dps.corrected.infer(dps.Proportion("smoker"), rows, **options)
    answers = found.intervals.answers
    centre, bound = float(answers.sums[0]), answers.law(0).quantile(0.1)
    reached = [n * (0.6 + move) for n in range(low, high + 1) for move in (-radius, 0, radius)]
    assert centre - bound <= min(reached)
    assert max(reached) <= centre + bound
    assert bound <= 1.3 * max(abs(np.array(reached) - centre))
    assert answers.rows.bounds(0.01) == (low, high)


def test_a_mean_is_within_what_its_bounds_admit(release):
    number = inferred(release, "mean", radius=0.02, n=N)
    ends = float(number) + 0.02 * 50 * np.array([-1, 1])
    np.testing.assert_allclose(number.conf_int(target="table"), ends)
    found = inferred(release, "means", radius=0.003, n=N)
    signs = np.array(list(itertools.product([-1, 1], repeat=3)))  # every corner of the radius
    means = []
    for group in found.intervals.groups:
        bounds = np.array([law.quantile(0.1) for law in group.laws]) / group.units
        size, total, _ = (group.observed + (signs * bounds) @ group.mixing.T).T
        means.append(total / size)
    differences = 20 * np.subtract.outer(*means)
    low, high = found.conf_int(target="table").tolist()
    assert low <= differences.min() < differences.max() <= high
    assert np.ptp(differences) > 0.3 * (high - low)


def test_published_cells_hold_labels():
    schema = dps.Schema([
        dps.Category("pain", {"not": 1, "much": 3}, allow_missing=True),
        dps.Category("stage", ["1", "2"]),
        dps.Category("code", ["01", "02"]),
        dps.Category("grade", [1, 2, 4]),
        dps.Boolean("ill", allow_missing=True),
        dps.Number("age", 0, 10, points=11, missing=5),
        dps.Number("bmi", 0, 1, points=8, allow_missing=True),
        dps.Number("seen", "2024-01-01", "2024-01-09", allow_missing=True),
    ])  # fmt: skip
    rng = np.random.default_rng(0)
    codes = {c.name: rng.choice(getattr(c, "all_codes", np.arange(c.bins)), 60) for c in schema}
    frame = schema.to_frame(codes)
    text = frame.to_csv(index=False, na_rep="nan").replace(",nan\n", ",\n")  # as rows.csv has it
    rest = frame.astype({"pain": str, "bmi": np.float32, "age": object})
    read = [pd.read_csv(io.StringIO(text), **options) for options in ({}, AS_TEXT)]
    for rows in (frame, rest, *read):
        for name in schema.names:
            found = _codes_of(schema[name], rows[name])
            np.testing.assert_array_equal(found, codes[name])


def test_levels_of_which_a_reader_makes_numbers_or_missing_cells():
    schema = dps.Schema([
        dps.Category("ward", ["1", "01", "2"]),
        dps.Category("seen", ["TRUE", "true"]),
        dps.Category("region", ["NA", "null", "EU"]),
        dps.Number("age", 0, 10, points=11, allow_missing=True),
        dps.Number("day", "2024-01-01", "2024-01-09", allow_missing=True),
    ])  # fmt: skip
    text = "ward,seen,region,age,day\n1,TRUE,NA,nan,\n01,true,null,5,2024-01-02\n2,true,EU,6,\n"
    rows, frame = (pd.read_csv(io.StringIO(text), **options) for options in (AS_TEXT, {}))
    for name, codes in [("ward", [0, 1, 2]), ("seen", [0, 1, 1]), ("region", [0, 1, 2])]:
        assert _codes_of(schema[name], rows[name]).tolist() == codes
        with pytest.raises(RequestError, match=r"numbers or missing cells in.*dtype=str"):
            _codes_of(schema[name], frame[name])
    for name, cells in [("age", ["5", "five"]), ("day", [1.0, 2.0])]:
        with pytest.raises(RequestError, match=f"a value of '{name}' that is no"):
            _codes_of(schema[name], pd.Series(cells))
