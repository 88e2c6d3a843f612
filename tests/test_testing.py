"""The contract catches analyses that break it; tests/analyses has those that keep it."""

from dataclasses import dataclass, field, fields
from typing import ClassVar

import numpy as np
import pytest

import dpstats as dps
from dpstats import testing
from dpstats.analyses import registry
from dpstats.analyses.counts.proportion import proportions_result
from dpstats.families.block import Family
from dpstats.families.tables.cells import Cells
from dpstats.planning.measures import pvalue_of
from dpstats.results.named import Named
from dpstats.testing import ContractError, check_analysis


class Delegate:
    """Intervals that are right, but for what a subclass changes."""

    def __init__(self, right):
        self.right = right

    def __getattr__(self, name):
        if name == "right":
            raise AttributeError(name)
        return getattr(self.right, name)


def smokers(schema):
    return Family((Cells.condition(schema, "smoker == 'yes'"),))


@dataclass(frozen=True)
class Curious:
    """Share of smokers, with a look at what was never asked for."""

    kind: ClassVar[str] = "curious"

    def family(self, schema):
        return smokers(schema)

    def infer(self, release):
        release.answers(Cells.condition(release.schema, "age >= 65"))


def analysis(name, **parts):
    """A class of analyses that breaks one rule, and has no parameters."""
    made = type(name, (Curious,), {"kind": name.lower(), "__doc__": "Breaks a rule.", **parts})
    return dataclass(frozen=True)(made)


def another_every_time(self, schema):
    object.__setattr__(self, "calls", getattr(self, "calls", 0) + 1)
    return smokers(schema) if self.calls % 2 else Family((Cells.condition(schema, "age >= 65"),))


def where_the_rows_are_public(self, release):
    answers = release.answers(smokers(release.schema))
    if answers.rows.public:
        return proportions_result("smokers", ["smokers"], answers, "", scalar=True)


def two_shares(self, schema):
    conditions = "smoker == 'yes'", "age >= 65"
    return Family(tuple(Cells.condition(schema, condition) for condition in conditions))


def with_a_subset_of_all(self, release):
    answers = release.answers(self.family(release.schema))
    result = proportions_result("shares", ["smokers", "old"], answers, "")
    changed = type("Changed", (Delegate,), {"subset": lambda self, chosen: self})
    object.__setattr__(result, "intervals", changed(result.intervals))
    return result


Unregistered = analysis("Unregistered")
Fickle = analysis("Fickle", family=another_every_time)
Uncounted = analysis("Uncounted", infer=where_the_rows_are_public)
Bare = analysis("Bare", infer=lambda self, release: np.zeros(3))
Empty = analysis("Empty", family=lambda self, schema: None)
Whole = analysis("Whole", family=two_shares, infer=with_a_subset_of_all)
Nameless = analysis("Nameless", kind=None)


@dataclass(frozen=True)
class Altered(Curious):
    """A right result, of which one part is broken."""

    kind: ClassVar[str] = "altered"

    part: str = ""

    def infer(self, release):
        answers = release.answers(smokers(release.schema))
        result = proportions_result("smokers", ["smokers"], answers, "", scalar=True)
        if self.part == "abstract":
            return type("Half", (dps.Result,), {"headline": "x"})("title")
        if self.part == "fields":
            return dps.EstimateResult(title="smokers")
        if self.part in BROKEN_FIELDS:
            object.__setattr__(result, *BROKEN_FIELDS[self.part])
        elif self.part in BROKEN_INTERVALS:
            changed = type("Changed", (Delegate,), BROKEN_INTERVALS[self.part])
            object.__setattr__(result, "intervals", changed(result.intervals))
        else:
            parts = {one.name: getattr(result, one.name) for one in fields(result)}
            result = OWN[self.part](**parts)
        return result

    def family(self, schema):
        return self.columns if self.part == "family" else smokers(schema)


BROKEN_FIELDS = {
    "terms": ("terms", [3]),
    "negative": ("privacy_variance", np.array([-1e-9])),
    "estimate": ("params", Named([np.nan], ["smokers"])),
    "no intervals": ("intervals", None),
}
OTHER = {"larger": "smaller", "smaller": "larger", "two-sided": "two-sided"}
BROKEN_INTERVALS = {
    "one array": {"conf_int": lambda self, alpha, method, target: np.zeros(1)},
    "signature": {"conf_int": lambda self, alpha: (np.zeros(1), np.ones(1))},
    "shrinking": {"conf_int": lambda self, alpha, *rest: self.right.conf_int(0.3 - alpha, *rest)},
    "above one": {"pvalues": lambda self, *given: self.right.pvalues(*given) + 1},
    "other side": {"pvalues": lambda self, value, side: self.right.pvalues(value, OTHER[side])},
}
BROKEN_METHODS = {
    "headline": property(lambda self: 1 / 0),
    "intervals_frame": lambda self, **options: dps.EstimateResult.intervals_frame(
        self, **options
    ).rename(columns={"term": "name"}),
    "test": lambda self, value: None,
}
OWN = {
    part: type("Own", (dps.ProportionResult,), {part: broken})
    for part, broken in BROKEN_METHODS.items()
}


@dataclass(frozen=True)
class Listing(Curious):
    """Holds a list."""

    kind: ClassVar[str] = "listing"

    terms: list = field(default_factory=list)


@dataclass
class Loose:
    """Not frozen."""

    kind: ClassVar[str] = "loose"


@pytest.mark.parametrize(
    ("analysis", "message"),
    [
        (Curious(), "infer\\(\\) asked for 'age >= 65'"),
        (Fickle(), "same blocks every time"),
        (Altered("shrinking"), "not nested in alpha"),
        (Uncounted(), "a dps.Result, with summary\\(\\).*, got NoneType"),
        (Altered("above one"), "p-values of 'two-sided' at .* must lie in"),
        (Altered("other side"), "p-values of 'larger' at .* must be monotone in the hypothesis"),
        (Unregistered(), r"register it first: dps.register\(Unregistered\)"),
        (Loose(), "frozen dataclass"),
        (dps.Proportion, "instance of a frozen dataclass"),
        (Nameless(), "needs a kind"),
        (Empty(), "return a Family, got None"),
        (Bare(), "a dps.Result, with summary\\(\\).*, got ndarray"),
        (Listing(), "must be hashable"),
        (Altered("family"), r"family\(schema\) raised AttributeError"),
        (Altered("abstract"), r"infer\(release\) at .* raised TypeError: .*abstract.*summary"),
        (Altered("terms"), r"terms must be different names, one per parameter at .*, got \[3\]"),
        (Altered("negative"), r"privacy_variance must be 0 or more, or inf, at .*, got \[-1"),
        (Altered("estimate"), r"params hold NaN at .* for \['smokers'\]"),
        (Altered("no intervals"), r"like dps.Intervals at .*; NoneType lacks \['conf_int', 'pval"),
        (Altered("one array"), r"intervals.conf_int\(\) must give two arrays of shape \(1,\)"),
        (Altered("signature"), r"intervals.conf_int\(alpha, method, target\) at .* raised TypeErr"),
        (Whole(), r"subset\(slice\(1, 2\)\) must be the intervals of 'old' alone"),
        (Altered("headline"), "headline at .* raised ZeroDivisionError"),
        (Altered("intervals_frame"), r"columns \['term', .*, got \['name', 'estimate'"),
        (Altered("test"), r"test\(value, alternative\) at .* raised TypeError"),
    ],
)
def test_broken_analyses_are_caught(analysis, message, schema, survey, monkeypatch):
    broken = (Altered, Curious, Fickle, Uncounted, Bare, Empty, Listing, Whole)
    monkeypatch.setattr(registry, "_registered", {one.kind: one for one in broken})
    with pytest.raises((ContractError, dps.NotMeasuredError), match=message):
        check_analysis(analysis, schema, survey)


@pytest.mark.parametrize("part", ["abstract", "fields"])
def test_a_preview_says_which_analysis_failed_and_where(part, schema, monkeypatch):
    monkeypatch.setattr(registry, "_registered", {"altered": Altered})
    plan = dps.plan(schema, {"mine": Altered(part)}, budget=dps.PureDP(1))
    said = rf"infer\(\) of Altered\(part='{part}'\) failed on a simulated release .*: TypeError: "
    with pytest.raises(dps.RequestError, match=said) as raised:
        plan.preview(100)
    assert isinstance(raised.value.__cause__, TypeError)


def test_previews_and_releases_refuse_what_is_no_result(schema, survey, monkeypatch):
    monkeypatch.setattr(registry, "_registered", {"bare": Bare})
    plan = dps.plan(schema, {"mine": Bare()}, budget=dps.PureDP(1))
    release = dps.release(plan, survey, rng=0, m=50, k=5)
    for asked in (
        lambda: plan.preview(100), lambda: release.infer("mine"), lambda: release.infer(Bare()),
        lambda: plan.solve(power=0.8, of="mine", n=100, like=release),
    ):  # fmt: skip
        with pytest.raises(dps.RequestError, match=r"infer\(\) of Bare\(\) must return a result"):
            asked()


def test_only_a_number_is_nan_and_no_part_of_a_name():
    for text in ("tenant  0.5", "finance, maintenance"):
        assert not testing._holds_nan(text)
    for text in ("share  nan", "[NaN, 0.5]", "-nan%"):
        assert testing._holds_nan(text)


def test_the_power_of_a_result_of_ones_own_is_that_of_its_plain_pvalues(
    schema, survey, monkeypatch
):
    def infer(self, release):
        found = proportions_result("smokers", ["smokers"], release.answers(smokers(schema)), "")
        plain = type("Plain", (type(found),), {"pvalues": np.array([0.01])})
        object.__setattr__(found, "__class__", plain)
        return found

    Own = analysis("Own", infer=infer)
    monkeypatch.setattr(registry, "_registered", {"own": Own})
    plan = dps.plan(schema, {"mine": Own()}, budget=dps.PureDP(1))
    release = dps.release(plan, survey, rng=0, m=50, k=5)
    assert pvalue_of(release.infer("mine"), "mine", None, "smokers") == 0.01
