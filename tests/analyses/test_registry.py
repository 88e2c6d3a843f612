"""Analyses by kind: built in, registered, and entry points of installed packages."""

import json
import sys
from dataclasses import dataclass, field, make_dataclass
from typing import ClassVar

import pytest

import dpstats as dps
from dpstats.analyses import registry
from dpstats.analyses.registry import analysis_from_dict, analysis_to_dict, check_readable


@pytest.fixture(autouse=True)
def nothing_registered(monkeypatch):
    monkeypatch.setattr(registry, "_registered", {})


@dataclass(frozen=True)
class Smoking:
    """Share of smokers above an age."""

    kind: ClassVar[str] = "smoking"
    ages: tuple[int, ...]
    label: str = "smokers"
    pairs: tuple[tuple[str, int], ...] = field(default_factory=lambda: (("a", 1),))

    def family(self, schema):
        return dps.Family((dps.Cells.condition(schema, "smoker == 'yes'"),))

    def infer(self, release):
        return dps.Proportion("smoker == 'yes'").infer(release)


def variant(name, kind="smoking", fields=(), **namespace):
    """Smoking with more fields or methods."""
    return make_dataclass(name, fields, bases=(Smoking,), namespace={"kind": kind, **namespace},
                          frozen=True)  # fmt: skip


def test_a_registered_class_is_found():
    with pytest.raises(dps.RequestError, match=r"unknown kind of analysis 'smoking'.*dps.register"):
        analysis_from_dict({"kind": "smoking", "ages": [18]})
    for _ in range(2):  # once more changes nothing
        assert dps.register(Smoking) is Smoking
    for one in (Smoking((18, 65)), Smoking((), "x", (("b", 2), ("c", 3)))):
        plain = json.loads(json.dumps(analysis_to_dict(one)))
        assert analysis_from_dict(plain) == one
        hash(analysis_from_dict(plain))
    assert analysis_to_dict(Smoking((18,))) == {"kind": "smoking", "ages": [18]}
    with pytest.raises(dps.RequestError, match=r"unknown key 'knd' \(did you mean 'kind'\?\)"):
        analysis_from_dict({"knd": "proportion", "condition": "smoker"})


def test_a_class_defined_again_replaces_the_first():
    """As a cell of a notebook that runs twice does."""
    first, second = (dps.register(variant("Cell")) for _ in range(2))
    assert registry.find("smoking") is second is not first
    with pytest.raises(dps.RequestError, match=r"Smoking cannot.*Cell has the kind 'smoking'"):
        dps.register(Smoking)


@pytest.mark.parametrize(("wrong", "message"), [
    (Smoking((18,)), "takes the class of an analysis"),
    (dataclass(type("Loose", (), {"kind": "loose"})), "Loose is not a frozen dataclass"),
    (variant("Average", "mean"), r"Average cannot.*dps.Mean has the kind 'mean'"),
    (make_dataclass("None_", [], frozen=True), "None_ has no kind"),
    (make_dataclass("Half", [], frozen=True, namespace={"kind": "half", "family": print}),
     r"Half has no method infer\(\)"),
    (variant("Named", "named", [("name", str, "")]), "Named has a parameter named 'name'"),
])  # fmt: skip
def test_what_is_no_analysis_is_refused(wrong, message):
    with pytest.raises(dps.RequestError, match=message):
        dps.register(wrong)
    assert registry._registered == {}


def test_only_analyses_that_can_be_read_back_are_planned(schema):
    def planned(analysis):
        return dps.plan(schema, {"it": analysis}, budget=dps.PureDP(1))

    def longer(self):
        object.__setattr__(self, "label", self.label + "!")

    def fails(self):
        raise KeyError("negative")

    rounding = variant("Rounding", "rounding", __post_init__=longer)
    with pytest.raises(dps.RequestError, match=r"Smoking is not registered.*dps.register\(Smok"):
        planned(Smoking((18,)))
    for analysis in (Smoking, rounding, variant("Strict", "strict", __post_init__=fails)):
        dps.register(analysis)
    assert planned(Smoking((18,))).analyses == {"it": Smoking((18,))}
    for asked, message in [
        (rounding((18,)), r"comes back from a file as Rounding\(.*register"),
        (Smoking([18]), "a file as Smoking"),  # a list comes back as a tuple
        *((Smoking((x,)), "cannot be saved") for x in (complex(1, 2), float("nan"), {1, 2})),
    ]:
        with pytest.raises(dps.RequestError, match=message):
            planned(asked)
    with pytest.raises(dps.RequestError, match="'strict': 'negative'"):
        analysis_from_dict({"kind": "strict", "ages": [-1]})


def test_blocks_of_ones_own_are_refused(schema):
    """Which could claim any sensitivity."""
    (block,) = Smoking((18,)).family(schema).blocks
    own = type("Own", (), {"__getattr__": lambda self, name: getattr(block, name)})
    sharp = type("Sharp", (type(block),), {"sensitivity": lambda self, unit: None})
    for family, message in [
        ([block], r"family\(\) of Foreign\(.* must return a dps.Family, not a list"),
        (dps.Family((block, own())), "a block of class Own, whose sensitivity is not proven"),
        (dps.Family((sharp(block.cells, block.label),)), "Sharp, whose sensitivity is not proven"),
    ]:
        foreign = variant("Foreign", "foreign", family=lambda self, schema, found=family: found)
        dps.register(foreign)
        with pytest.raises(dps.RequestError, match=message):
            dps.plan(schema, {"it": foreign(())}, budget=dps.PureDP(1))


MODULE = '''
import dataclasses
import dpstats as dps


@dataclasses.dataclass(frozen=True)
class Installed(dps.Proportion):
    """Comes with a package."""

    kind = "installed"
'''


def installed(tmp_path, monkeypatch, lines, package="one"):
    """An installed package with entry points, as pip leaves it."""
    (tmp_path / f"{package}_analyses.py").write_text(MODULE)
    folder = tmp_path / f"{package}-1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    (folder / "entry_points.txt").write_text("[dpstats.analyses]\n" + "\n".join(lines) + "\n")
    monkeypatch.syspath_prepend(tmp_path)


def test_entry_points_are_imported_when_a_file_needs_them(tmp_path, monkeypatch):
    lines = ["installed = one_analyses:Installed", "broken = one_missing:Broken",
             "misnamed = one_analyses:Installed", "number = one_analyses:dataclasses"]  # fmt: skip
    installed(tmp_path, monkeypatch, lines)
    assert analysis_from_dict({"kind": "mean", "columns": "age"}) == dps.Mean("age")
    assert "one_analyses" not in sys.modules
    found = analysis_from_dict({"kind": "installed", "condition": "smoker"})
    assert (type(found).__module__, found.condition) == ("one_analyses", "smoker")
    check_readable(found)
    assert registry.find("installed") is type(found)
    for kind, message in [
        ("broken", "cannot be imported from 'one_missing:Broken'"),
        ("misnamed", "whose kind is 'installed'"), ("number", "takes the class of an analysis"),
        ("proportoin", r"unknown kind of analysis 'proportoin' \(did you mean 'proportion'\?\)"),
        ("nonsense", "unknown kind of analysis 'nonsense'; known: .*; for one of your own, import"),
        ("9" * 400, "unknown kind of analysis a text of 400 characters"),
    ]:  # fmt: skip
        with pytest.raises(dps.RequestError, match=message):
            registry.find(kind)
    assert {"broken", "installed", "mean"} < set(registry.kinds())


def test_two_packages_of_one_kind_need_a_choice(tmp_path, monkeypatch):
    installed(tmp_path, monkeypatch, ["smoking = one_analyses:A"])
    installed(tmp_path, monkeypatch, ["smoking = two_analyses:A"], package="two")
    with pytest.raises(dps.RequestError, match=r"several installed packages.*'one_analyses:A'"):
        registry.find("smoking")
    dps.register(Smoking)
    assert registry.find("smoking") is Smoking
