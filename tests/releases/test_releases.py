"""Releases: what they answer, and files that hold exactly what was released."""

import json
import zipfile
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pandas as pd
import pytest

import dpstats as dps
from dpstats.analyses import registry
from dpstats.errors import FileFormatError, NotMeasuredError
from dpstats.planning.previews.likeness import likeness
from dpstats.verifying.arguing import verify

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


@pytest.fixture(scope="module")
def release():
    plan = dps.plan(SCHEMA, ANALYSES, budget=dps.PureDP(1))
    return dps.release(plan, table(), m=200, rng=0)


@pytest.fixture
def saved(release, tmp_path):
    path = tmp_path / "release.zip"
    release.save(path)
    return path


def written_accuracy(path):
    with zipfile.ZipFile(path) as archive:
        return json.loads(archive.read("release.json"))["accuracy"]["analyses"]


def test_the_written_radius_is_that_of_the_analysis(release, saved):
    written = written_accuracy(saved)
    assert set(written) == set(ANALYSES)
    for name, one in written.items():
        own = release.accuracy(name, alpha=1 - one["level"])
        assert own.delta * (1 - 1e-9) <= one["radius"] <= 1.001 * own.delta


def test_analyses_without_a_published_radius_are_named(release, monkeypatch):
    assert "Radius not printed" not in str(release)
    sizes = {name: len(release.radius(name)) for name in ANALYSES}
    assert sizes["tall"] < sizes["age"]
    monkeypatch.setattr("dpstats.releases.release.MOST_PUBLISHED", sizes["tall"])
    listed, left = str(replace(release)).splitlines()[-3:-1]
    assert listed.startswith("Radius of each analysis, with 97.5% each: tall")
    assert "age" not in listed
    assert left.startswith("Radius not printed for ['age', 'smokers']: more than")


def same_release(first, second):
    """Equal releases have equal texts, which hold every number to the last bit."""
    assert first == second
    for weighted in (False, True):
        of = (release.to_frame(weighted=weighted) for release in (first, second))
        pd.testing.assert_frame_equal(*of)
    for one, other in (
        (first.weights, second.weights), (first.counts, second.counts),
        (first.measurements.noisy_sums, second.measurements.noisy_sums),
        (first.measurements.uniforms, second.measurements.uniforms),
    ):  # fmt: skip
        np.testing.assert_array_equal(one, other)
    assert (str(first), repr(first)) == (str(second), repr(second))


@pytest.mark.parametrize(("budget", "reference", "fit", "draw"), [
    (dps.PureDP(1), dps.Uniform("grid"), "minimax", "iid"),
    (dps.ApproxDP(4, 1e-6), dps.PerturbedHistogram(0.3), "entropy", "systematic"),
])  # fmt: skip
def test_a_release_comes_back_to_the_last_bit(budget, reference, fit, draw, tmp_path):
    """Its notes and the mark of test noise too."""
    plan = dps.plan(SCHEMA, ANALYSES, budget=budget, reference=reference)
    made = dps.release(plan, table(), m=200, k=250, fit=fit, draw=draw, rng=1)
    assert "NOT PRIVATE" not in str(made)
    marked = replace(made.measurements, not_private=True)
    made = replace(made, notes=("first, with a comma", "second\nline"), measurements=marked)
    path, twice = tmp_path / "release.zip", tmp_path / "twice.zip"
    made.save(path)
    again = dps.load(path)
    same_release(made, again)
    assert "NOT PRIVATE" in str(again)
    same_release(made, replace(made, measurements=dps.Measurements.load(path)))
    for analysis in (*ANALYSES, dps.Proportion("age >= 65")):
        ends = (one.infer(analysis).conf_int(method="certified") for one in (made, again))
        np.testing.assert_array_equal(*ends)
    again.save(twice)
    assert twice.read_bytes() == path.read_bytes()


class Depth(dps.Result):
    """Of nothing but its title."""

    headline = summary = to_frame = None


@dataclass(frozen=True)
class Mine:
    """An analysis of another package."""

    kind: ClassVar[str] = "mine"
    failing: ClassVar[bool] = False
    depth: int = 1

    def infer(self, view):
        return Depth(f"depth {self.depth}")

    def family(self, schema):
        if self.failing:
            raise ZeroDivisionError
        return dps.Family((dps.Cells.table(schema, ["age"]),))


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
    with pytest.warns(UserWarning, match="cannot be read here"):
        frame = again.intervals()
    pd.testing.assert_frame_equal(frame, release.intervals())
    with pytest.raises(dps.RequestError, match=r"unknown kind of analysis 'mine'.*dps.register"):
        again.infer("mine")
    dps.register(Mine)  # after the release was loaded
    assert again.infer("mine").title == "depth 3"
    assert list(again.unread) == ["later"]


def test_a_release_is_saved_whatever_an_analysis_of_another_package_does(tmp_path, monkeypatch):
    monkeypatch.setattr(registry, "_registered", {})
    dps.register(Mine)
    asked = {"mine": Mine(), "smokers": dps.Proportion("smoker")}
    plan = dps.plan(SCHEMA, asked, budget=dps.PureDP(1))
    made = dps.release(plan, table(), m=50, k=20, rng=0)
    monkeypatch.setattr(Mine, "failing", True)
    made.save(tmp_path / "r.zip")
    assert "smokers" in str(dps.load(tmp_path / "r.zip"))
    assert list(written_accuracy(tmp_path / "r.zip")) == ["smokers"]


def test_infer_by_name_and_by_object(release):
    ends = (release.infer(one).conf_int() for one in ("tall", dps.Proportion("height >= 1.8")))
    np.testing.assert_array_equal(*ends)
    assert dict(release.analyses) == ANALYSES
    with pytest.raises(NotMeasuredError, match=r"no analysis 'shape'; it has \['age', 'tall'"):
        release.infer("shape")
    with pytest.raises(NotMeasuredError, match="height"):
        release.infer(dps.Marginals(["height", "age"]))
    for method in (release.radius, release.infer, release.accuracy):
        with pytest.raises(dps.RequestError, match="takes the name of an analysis"):
            method(["smoking"])
    with pytest.raises(dps.RequestError, match=r"of must be one of .*did you mean 'rows'"):
        release.accuracy(of="row")


def test_frame_has_original_units_and_types(release):
    frame = release.to_frame()
    assert len(frame) == release.k == N
    assert list(frame.columns) == ["region", "smoker", "age", "height", "grade"]
    assert "never used" in release.schema
    assert "never used" not in release.columns
    assert list(frame["region"].cat.categories) == list(SCHEMA["region"].labels)
    assert [frame[c].dtype for c in ("smoker", "age", "height")] == [bool, np.int64, np.float64]
    assert set(frame["age"]) <= set(range(0, 101, 5))
    assert frame["height"].between(1.5, 2.1).all()
    weighted, certificate = release.to_frame(weighted=True), release.accuracy(of="weights")
    share = weighted.loc[weighted["height"] >= 1.8, "_weight"].sum()
    at = certificate.names.index("height >= 1.8")
    assert share == pytest.approx(certificate.synthetic[at], abs=1e-12)
    counts = frame.groupby(list(frame), observed=True).size()
    assert sorted(counts) == sorted(release.counts[release.counts > 0])


def test_levels_of_two_types_leave_as_their_text(tmp_path):
    columns = [dps.Boolean("b", allow_missing=True), dps.Category("z", [1, 2], allow_missing=True)]
    plan = dps.plan(dps.Schema(columns), {"m": dps.Marginals(["b", "z"], 2)}, budget=dps.PureDP(5))
    rows = pd.DataFrame({"b": [True, False, None] * 20, "z": [1, None] * 30})
    mixed = dps.release(plan, rows, m=50, rng=0)
    frame = mixed.to_frame()
    mixed.to_parquet(tmp_path / "rows.parquet")
    read = pd.read_parquet(tmp_path / "rows.parquet")
    pd.testing.assert_frame_equal(read.astype(str), frame.astype(str))
    levels = mixed.to_croissant("r")["recordSet"][1:]
    texts = [[level for row in one["data"] for level in row.values()] for one in levels]
    assert texts == [list(read[name].cat.categories) for name in "bz"]
    like = likeness(frame, plan.strategy)
    for column in columns:
        assert (like.frame[column.name] == frame[column.name].cat.codes).all()


def test_whole_levels_beside_decimals_are_written_as_declared(tmp_path):
    levels = [0, 0.5, 1, 3]
    schema = dps.Schema([dps.Category("cdr", levels), dps.Boolean("ill")])
    plan = dps.plan(schema, {"m": dps.Marginals(["cdr", "ill"], 2)}, budget=dps.PureDP(5))
    rows = pd.DataFrame({"cdr": levels * 10, "ill": [True, False] * 20})
    made = dps.release(plan, rows, m=50, rng=0)
    made.save(tmp_path / "r.zip")
    with zipfile.ZipFile(tmp_path / "r.zip") as archive:
        read = pd.read_csv(archive.open("rows.csv"), dtype=str)
    assert set(read["cdr"]) == {"0", "0.5", "1", "3"}
    assert verify(tmp_path / "r.zip").agrees
    frame = made.to_frame()
    assert frame["cdr"].dtype == np.float64
    assert list(read["cdr"].astype(float)) == list(frame["cdr"])
    for table in (read, frame):
        np.testing.assert_array_equal(likeness(table, plan.strategy).frame["cdr"],
                                      [levels.index(x) for x in frame["cdr"]])  # fmt: skip


def test_rows_are_in_random_order_and_carry_a_caution(release, saved):
    frame = release.to_frame()
    # Parts by place are like each other, as in cross-validation without shuffling.
    first, last = frame["age"][: N // 2].mean(), frame["age"][N // 2 :].mean()
    assert abs(first - last) < 4 * frame["age"].std() * np.sqrt(4 / N)
    assert "intervals and tests that treat them as data are wrong" in frame.attrs["caution"]
    assert "dps.corrected.infer" in release.to_frame(weighted=True).attrs["caution"]
    pd.testing.assert_frame_equal(frame, dps.load(saved).to_frame())
    other = replace(release, row_seed=release.row_seed + 1).to_frame()
    assert not frame.equals(other)
    of = (one.sort_values(list(frame)).reset_index(drop=True) for one in (frame, other))
    pd.testing.assert_frame_equal(*of)


def test_what_was_not_measured_is_named(schema, survey):
    wide = dps.Schema([*schema.columns, dps.Boolean("ill"), dps.Boolean("old")])
    asked = {"t": dps.Marginals(["smoker", "region"]), "age": dps.Mean("age")}
    release = dps.release(dps.plan(wide, asked, budget=dps.PureDP(5)), survey, m=100, k=50)
    for analysis, lacking, partly in [
        (dps.Proportion("ill"), r"dps.Proportion\('ill'\): 'ill' was not measured", False),
        (dps.Marginals(["ill", "old"]), "'ill' and 'old' were not measured", False),
        (dps.Independence("smoker", "age"), "it lacks the table of 'smoker' and 'age'", True),
        (dps.MeanDifference("age", by="smoker"), "it lacks the moments in groups of 'age'", True),
    ]:
        with pytest.raises(NotMeasuredError, match=lacking) as refused:
            release.infer(analysis)
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
