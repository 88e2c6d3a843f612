"""Pages of a release: complete, self-contained, escaped, accessible, the same every time."""

import html
import itertools
import re
from xml.etree import ElementTree

import pandas as pd
import pytest

import dpstats as dps
from dpstats.reports import analysts, pictures

pytest.importorskip("matplotlib")
TITLE = "Survey <2026> & co"
ABOUT = {
    "analysts": "Results; The certificate; Synthetic rows against noisy answers; What was asked; "
    "Privacy: spent and promised; Missing and undeclared cells; Limits; "
    "What else this release can answer",
    "board": "What leaves the building; What was declared and asked; By which proof; "
    "What each block spends; The published numbers; "
    "What is promised to a person, and what is not; Before you publish",
}


@pytest.fixture(scope="module", params=["analysts", "board"])
def page(pages, request):
    """The text, and its elements: it is XML, but for elements that have no end."""
    text = pages[request.param].read_text("utf-8")
    closed = re.sub(r"<(meta|br)\b([^>]*?)/?>", r"<\1\2/>", text.replace("<!DOCTYPE html>", ""))
    return text, ElementTree.fromstring(closed)


def test_labels_are_text_and_nothing_comes_from_elsewhere(page):
    text, root = page
    tags = {element.tag for element in root.iter()}
    assert not tags & {"script", "img", "link", "iframe", "object", "image", "b", "i"}
    for name, value in (pair for element in root.iter() for pair in element.items()):
        assert not name.startswith("on")
        assert not name.endswith(("href", "src")) or value.startswith("#")
    (style,) = root.iter("style")
    assert "url(" not in style.text
    assert "@import" not in style.text
    assert "default-src 'none'" in text
    assert html.escape("<script>alert(1)</script>") in text
    assert f"<h1>{html.escape(TITLE)}</h1>" in text


def test_it_is_accessible_as_far_as_its_source_shows(page):
    text, root = page
    assert (root.tag, root.get("lang")) == ("html", "en")
    levels = [int(e.tag[1]) for e in root.iter() if re.fullmatch("h[1-6]", e.tag)]
    assert (levels[0], levels.count(1)) == (1, 1)
    assert all(b - a <= 1 for a, b in itertools.pairwise(levels))
    ids = [element.get("id") for element in root.iter() if element.get("id")]
    assert len(ids) == len(set(ids))
    assert set(re.findall(r'(?:href="#|url\(#)([^)"]+)', text)) <= set(ids)
    assert {th.get("scope") for th in root.iter("th")} <= {"col", "row"}
    for svg in root.iter("svg"):
        assert svg.get("role") == "img"
        assert {svg.get("aria-labelledby"), svg.get("aria-describedby")} <= set(ids)
    assert set(root.iter("svg")) <= set(root.findall(".//figure//svg"))
    assert set(root.iter("table")) <= set(root.findall(".//div//table"))
    for element in root.iter():
        if element.get("class", "").startswith("scroll"):
            assert element.get("tabindex") == "0"
            assert element.get("aria-label")


def test_it_has_all_sections_and_every_analysis_its_numbers(hostile, pages):
    for audience, path in pages.items():
        text = html.unescape(path.read_text("utf-8"))
        assert "; ".join(re.findall(r"<h2[^>]*>(.*?)</h2>", text)) == ABOUT[audience]
        assert "could be drawn" not in text
        assert "no result" not in text
    text = html.unescape(pages["analysts"].read_text("utf-8"))
    for name in hostile.analyses:
        assert f"<h3>{name}</h3>\n<p>{hostile.infer(name).headline}</p>" in text
        bound = hostile.accuracy(name, alpha=0.025).delta
        assert f"<td>{bound:.4g}</td>" in text
    assert hostile.measurements.plan_digest in text
    for column in hostile.columns:
        assert column.missing_rule() in text


def test_an_analysis_or_a_figure_that_fails_leaves_the_others(hostile, monkeypatch):
    def fails(self, analysis):
        if analysis == "wage":
            raise ZeroDivisionError("of another package")
        return infer(self, analysis)

    infer = dps.Release.infer
    monkeypatch.setattr(dps.Release, "infer", fails)
    monkeypatch.setattr(analysts, "preview_strategy", lambda *_, **__: 1 / 0)
    monkeypatch.setattr(pictures.Picture, "svg", lambda *_: 1 / 0)
    text = analysts.analysts_report(hostile, "title", like=object())
    assert "no result: of another package" in text
    assert "The plan cannot be previewed here: division by zero" in text
    assert "no figure could be drawn: division by zero" in text
    assert html.escape(hostile.infer("smoking").headline) in text
    for part in (analysts, pictures):
        monkeypatch.setattr(part, "can_draw", lambda: False)
    text = analysts.analysts_report(hostile, "title")
    assert "<figure" not in text
    assert "matplotlib was not installed" in text


def test_what_cannot_be_written_is_refused(hostile, tmp_path):
    path = tmp_path / "page.html"
    path.write_text("mine")
    for arguments, options, message in (
        (("release.zip", path), {}, "a report is of a release"),
        ((hostile, path), {}, "exists and is kept"),
        ((hostile, path), {"audience": "press"}, "'analysts', 'board'"),
        ((hostile, path), {"title": "a\x00b"}, "control character"),
        ((hostile, path), {"progress": 3}, "progress must be a function"),
    ):
        with pytest.raises(dps.RequestError, match=message):
            dps.report(*arguments, **options)
    assert path.read_text() == "mine"


def test_a_source_for_testing_is_marked_and_a_file_gives_the_same_page(
    schema, survey, no_noise, tmp_path
):
    plan = dps.plan(schema, {"p": dps.Proportion("smoker == 'yes'")}, budget=dps.PureDP(1))
    made = dps.release(plan, survey, m=50, k=50)
    made.save(tmp_path / "release.zip")
    for audience in ABOUT:
        page, again = (tmp_path / f"{audience}{end}.html" for end in ("", "-again"))
        dps.report(made, page, audience=audience)
        assert "NOT PRIVATE" in page.read_text()
        dps.report(dps.load(tmp_path / "release.zip"), again, audience=audience)
        assert again.read_bytes() == page.read_bytes()


def test_expected_widths_are_those_of_the_rows_that_are_given(tmp_path, fast):
    schema = dps.Schema([dps.Number("age", 0, 100, missing=40), dps.Number("pay", 0, 9, missing=0)])
    plan = dps.plan(schema, {"line": dps.OLS("pay ~ age")}, budget=dps.PureDP(8))
    rows = pd.DataFrame({"age": [40, 50, 60] * 1_000, "pay": [1, 2, 3] * 1_000})
    release = dps.release(plan, rows, m=50, k=20)
    guesses = dps.Guesses(typical={"age": {"mean": 50, "sd": 8}})
    dps.report(release, tmp_path / "guessed", like=guesses)
    section = (tmp_path / "guessed").read_text().split('id="reached-title"')[1].split("<h2")[0]
    assert "of rows invented from guesses of age and spread evenly over pay" in section
    with pytest.raises(dps.RequestError, match="like= is for expected widths"):
        dps.report(release, tmp_path / "board", audience="board", like=guesses)


def test_names_that_look_like_parts_of_a_drawing_stay_as_they_are():
    names = [
        "#333333",
        'x id="y" z',
        "url(#1)",
        'href="#1"',
        "xlink:href",
        "font: 9px; font-family: a",
    ]
    picture = pictures.Picture(
        "; ".join(names), names[0], lambda ax: [ax.text(0, 0, name) for name in names]
    )
    svg = ElementTree.fromstring(picture.svg("figure1"))
    texts = [element.text for element in svg.iter() if element.tag in ("text", "title", "desc")]
    assert {*names, "; ".join(names)} <= set(texts)
    assert "var(--ink)" in {
        style for e in svg.iter() for style in re.split("[:;] ?", e.get("style", ""))
    }
