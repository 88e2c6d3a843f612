"""Releases: what they answer, and files that hold exactly what was released."""

import json
import re
import zipfile
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pandas as pd
import pytest

import dpstats as dps
from dpstats.analyses import registry
from dpstats.errors import FileFormatError, NotMeasuredError
from dpstats.privacy.noise import _noise_from

SCHEMA = dps.Schema([
    dps.Category("region", ["north", "a, \"quoted\" one", "Füßen"]),
    dps.Boolean("smoker"),
    dps.Number("age", 0, 100, points=21, edges=[20, 65]),
    dps.Number("height", 1.5, 2.1, points=7, edges=[1.8]),
    dps.Category("grade", {"low": 1, "high": 2}),
    dps.Boolean("never used"),
])  # fmt: skip
ANALYSES = {
    "age": dps.Marginals(["region", "age"]),
    "tall": dps.Proportion("height >= 1.8"),
    "smokers": dps.Proportion("smoker", given="grade == 'low'"),
}
N = 400


def table():
    rng = np.random.default_rng(0)
    return pd.DataFrame({
        "region": rng.choice(list(SCHEMA["region"].labels), size=N),
        "smoker": rng.random(N) < 0.3,
        "age": rng.integers(0, 101, size=N),
        "height": rng.uniform(1.5, 2.1, size=N),
        "grade": rng.choice([1, 2], size=N),
        "never used": rng.random(N) < 0.5,
    })  # fmt: skip


def planned(budget=None, **options):
    return dps.plan(SCHEMA, ANALYSES, budget=budget or dps.PureDP(1), **options)


@pytest.fixture(scope="module")
def release():
    return dps.release(planned(), table(), m=200, rng=0)


@pytest.fixture
def saved(release, tmp_path):
    path = tmp_path / "release.zip"
    release.save(path)
    return path


def test_the_written_radius_is_that_of_the_analysis(release, saved):
    with zipfile.ZipFile(saved) as archive:
        written = json.loads(archive.read("release.json"))["accuracy"]["analyses"]
    assert set(written) == set(ANALYSES)
    for name, one in written.items():
        own = release.accuracy(name, alpha=1 - one["level"])
        assert own.delta * (1 - 1e-9) <= one["radius"] <= 1.001 * own.delta


def test_weights_of_candidates_are_those_of_the_certificate(release):
    frame, certificate = release.to_frame(weighted=True), release.accuracy(of="weights")
    at = certificate.names.index("height >= 1.8")
    share = frame.loc[frame["height"] >= 1.8, "_weight"].sum()
    assert share == pytest.approx(certificate.synthetic[at], abs=1e-12)


def same_release(first, second):
    """Equal releases have equal texts, which hold every number to the last bit."""
    assert first == second
    pd.testing.assert_frame_equal(first.to_frame(), second.to_frame())
    pd.testing.assert_frame_equal(first.to_frame(weighted=True), second.to_frame(weighted=True))
    for name in ("weights", "counts"):
        np.testing.assert_array_equal(getattr(first, name), getattr(second, name))
    for name in ("noisy_sums", "uniforms"):
        of = (getattr(one.measurements, name) for one in (first, second))
        np.testing.assert_array_equal(*of)
    assert first.measurements.strategy == second.measurements.strategy
    assert str(first) == str(second)
    assert repr(first) == repr(second)


@pytest.mark.parametrize(
    ("budget", "reference", "fit", "draw"),
    [
        (dps.PureDP(1), dps.Uniform("grid"), "minimax", "iid"),
        (dps.ApproxDP(4, 1e-6), dps.PerturbedHistogram(0.3), "entropy", "iid"),
    ],
)
def test_a_release_comes_back_to_the_last_bit(budget, reference, fit, draw, tmp_path):
    release = dps.release(
        planned(budget, reference=reference), table(), m=200, k=250, fit=fit, draw=draw, rng=1
    )
    path, twice = tmp_path / "release.zip", tmp_path / "twice.zip"
    release.save(path)
    again = dps.load(path)
    same_release(release, again)
    for analysis in (*ANALYSES, dps.Proportion("age >= 65")):
        ends = (one.infer(analysis).conf_int(method="certified") for one in (release, again))
        np.testing.assert_array_equal(*ends)
    again.save(twice)
    assert twice.read_bytes() == path.read_bytes()


def test_measurements_come_back_to_the_last_bit(release, saved, tmp_path):
    path = tmp_path / "measurements.zip"
    release.measurements.save(path)
    assert dps.Measurements.load(path) == release.measurements == dps.Measurements.load(saved)
    same_release(release, dps.synthesize(dps.Measurements.load(path), m=200, rng=0))


def test_notes_and_the_mark_of_test_noise_come_back(release, tmp_path):
    marked = replace(
        release,
        notes=("first, with a comma", "second\nline"),
        measurements=replace(release.measurements, not_private=True),
    )
    path = tmp_path / "release.zip"
    marked.save(path)
    again = dps.load(path)
    same_release(marked, again)
    assert "NOT PRIVATE" in str(again)
    assert "NOT PRIVATE" not in str(release)


def test_an_unknown_analysis_takes_nothing_else_with_it(release, saved, monkeypatch):
    monkeypatch.setattr(registry, "_registered", {})
    requests = {
        **release.measurements.requests,
        "mine": {"kind": "mine", "depth": 3},
        "later": {"kind": "proportion", "condition": "smoker", "of_a_later_version": 1},
    }
    measurements = replace(release.measurements, requests=requests)
    replace(release, measurements=measurements).save(saved, overwrite=True)
    again = dps.load(saved)
    pd.testing.assert_frame_equal(again.to_frame(), release.to_frame())
    assert dict(again.analyses) == ANALYSES
    assert list(again.unread) == ["mine", "later"]
    assert "unknown kind of analysis 'mine'" in str(again)
    for name in ANALYSES:
        np.testing.assert_array_equal(again.infer(name).conf_int(), release.infer(name).conf_int())
    with pytest.warns(UserWarning, match="cannot be read here"):
        frame = again.intervals()
    pd.testing.assert_frame_equal(frame, release.intervals())
    with pytest.raises(dps.RequestError, match=r"unknown kind of analysis 'mine'.*dps.register"):
        again.infer("mine")

    @dps.register
    @dataclass(frozen=True)
    class Mine:
        """Registered after the release was loaded."""

        kind: ClassVar[str] = "mine"
        depth: int

        def infer(self, view):
            return self.depth

        def family(self, schema):
            return dps.Family((dps.Cells.table(schema, ["age"]),))

    assert again.infer("mine") == 3
    assert list(again.unread) == ["later"]


def test_a_release_is_saved_whatever_an_analysis_of_another_package_does(tmp_path, monkeypatch):
    monkeypatch.setattr(registry, "_registered", {})

    @dps.register
    @dataclass(frozen=True)
    class Moody:
        kind: ClassVar[str] = "moody"
        failing: ClassVar[bool] = False

        def family(self, schema):
            if self.failing:
                raise ZeroDivisionError
            return dps.Family((dps.Cells.table(schema, ["smoker"]),))

        def infer(self, release):
            return dps.Proportion("smoker").infer(release)

    asked = {"mine": Moody(), "smokers": dps.Proportion("smoker")}
    plan = dps.plan(SCHEMA, asked, budget=dps.PureDP(1))
    made = dps.release(plan, table(), m=50, k=20, rng=0)
    Moody.failing = True
    made.save(tmp_path / "r.zip")
    assert "smokers" in str(dps.load(tmp_path / "r.zip"))
    with zipfile.ZipFile(tmp_path / "r.zip") as archive:
        written = json.loads(archive.read("release.json"))["accuracy"]["analyses"]
    assert list(written) == ["smokers"]


def test_infer_by_name_and_by_object(release):
    by_name = release.infer("tall")
    by_object = release.infer(dps.Proportion("height >= 1.8"))
    np.testing.assert_array_equal(by_name.conf_int(), by_object.conf_int())
    assert dict(release.analyses) == ANALYSES
    with pytest.raises(NotMeasuredError, match=r"no analysis 'shape'; it has \['age', 'tall'"):
        release.infer("shape")
    with pytest.raises(NotMeasuredError, match="height"):
        release.infer(dps.Marginals(["height", "age"]))
    for method in (release.radius, release.infer, release.accuracy):
        with pytest.raises(dps.RequestError, match="takes the name of an analysis"):
            method(["smoking"])


def test_frame_has_original_units_and_types(release):
    frame = release.to_frame()
    assert len(frame) == release.k == N
    assert list(frame.columns) == ["region", "smoker", "age", "height", "grade"]
    assert "never used" in release.schema
    assert "never used" not in release.columns
    assert list(frame["region"].cat.categories) == list(SCHEMA["region"].labels)
    assert frame["smoker"].dtype == bool
    assert frame["age"].dtype == np.int64
    assert frame["height"].dtype == np.float64
    assert set(frame["age"]) <= set(range(0, 101, 5))
    assert frame["height"].between(1.5, 2.1).all()
    counts = frame.groupby(["region", "smoker", "age", "height", "grade"], observed=True).size()
    assert sorted(counts) == sorted(release.counts[release.counts > 0])


def test_rows_are_in_random_order_and_carry_a_caution(release, saved):
    frame = release.to_frame()
    order = pd.MultiIndex.from_frame(frame.astype(str))
    assert not order.is_monotonic_increasing
    # Parts by place are like each other, as in cross-validation without shuffling.
    first, last = frame["age"][: N // 2].mean(), frame["age"][N // 2 :].mean()
    assert abs(first - last) < 4 * frame["age"].std() * np.sqrt(4 / N)
    assert "intervals and tests that treat them as data are wrong" in frame.attrs["caution"]
    assert "dps.corrected.infer" in release.to_frame(weighted=True).attrs["caution"]
    pd.testing.assert_frame_equal(frame, dps.load(saved).to_frame())
    other = replace(release, row_seed=release.row_seed + 1).to_frame()
    assert not frame.equals(other)
    pd.testing.assert_frame_equal(
        frame.sort_values(list(frame)).reset_index(drop=True),
        other.sort_values(list(frame)).reset_index(drop=True),
    )


def every_text(path):
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name).decode() for name in archive.namelist()}


def test_files_hold_no_true_sum(tmp_path):
    """Sums with six unmistakable digits, noise that is never zero: none of them is in a file."""
    n, smokers, low = 712_457, 391_283, 168_529
    data = pd.DataFrame({
        "smoker": np.arange(n) < smokers,
        "grade": np.where(np.arange(n) % n < low, 1, 2),
    })  # fmt: skip
    schema = dps.Schema([SCHEMA["smoker"], SCHEMA["grade"]])
    made = dps.plan(
        schema,
        {"smokers": dps.Proportion("smoker"), "table": dps.Marginals(["smoker", "grade"])},
        budget=dps.PureDP(1),
        reference=dps.PerturbedHistogram(0.5),
    )
    with _noise_from(lambda scale, size: np.arange(size, dtype=np.int64) % 7 - 11):
        release = dps.release(made, data, m=100, k=50, rng=0)
        assert np.all(np.abs(release.measurements.measured[0].sums) > 0)
    release.save(tmp_path / "release.zip")
    release.measurements.save(tmp_path / "measurements.zip")
    true = [smokers, n - smokers, low, n - low, smokers - low]
    for name in ("release.zip", "measurements.zip"):
        for member, text in every_text(tmp_path / name).items():
            assert [total for total in true if str(total) in text] == [], member
    noisy = every_text(tmp_path / "release.zip")["answers.csv"]
    assert str(low - 9) in noisy  # the search finds a sum that is there: low, with its noise


WIDE = dps.Schema([
    dps.Category("smoker", ["no", "yes"]),
    dps.Category("region", ["north", "south"]),
    dps.Number("age", 0, 100, points=101, edges=[40, 65], missing=40),
    dps.Number("pay", 0, 100, points=101, edges=[50], missing=0),
    dps.Boolean("ill"),
])  # fmt: skip


def wide(analyses):
    rng = np.random.default_rng(3)
    rows = WIDE.to_frame({
        "smoker": rng.choice(2, 500), "region": rng.choice(2, 500),
        "age": rng.integers(-50, 51, 500), "pay": rng.integers(-50, 51, 500),
        "ill": rng.choice(2, 500),
    })  # fmt: skip
    plan = dps.plan(WIDE, analyses, budget=dps.PureDP(5))
    return dps.release(plan, rows, rng=0, m=100, k=50)


def test_what_was_not_measured_is_named():
    release = wide({"t": dps.Marginals(["smoker", "region"]), "pay": dps.Mean("pay")})
    for asked, lacking, partly in [
        (dps.Quantile("age"), "dps.Quantile('age'): 'age' was not measured", False),
        (dps.OLS("age ~ ill"), "'age' and 'ill' were not measured", False),
        (dps.Independence("smoker", "pay"), "it lacks the table of 'smoker' and 'pay'", True),
        (dps.MeanDifference("pay", by="smoker"), "it lacks the moments in groups of 'pay'", True),
    ]:
        with pytest.raises(NotMeasuredError, match=re.escape(lacking)) as refused:
            release.infer(asked)
        assert ("see release.bound" in str(refused.value)) == partly


def test_a_member_that_was_changed_or_removed_is_seen(saved):
    with zipfile.ZipFile(saved) as archive:
        texts = {name: archive.read(name) for name in archive.namelist()}
    for member in ["answers.csv", "rows.csv", "release.json"]:
        for changed in ({**texts, member: texts[member] + b"\n"},
                        {name: text for name, text in texts.items() if name != member},
                        {**texts, "more.txt": b""}):  # fmt: skip
            with zipfile.ZipFile(saved, "w") as archive:
                for name, text in changed.items():
                    archive.writestr(name, text)
            with pytest.raises(FileFormatError, match=r"restore it from a copy|lacks"):
                dps.load(saved)
