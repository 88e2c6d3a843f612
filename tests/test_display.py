"""What terminals and notebooks show by themselves: HTML, a progress bar, and completion."""

import io
import sys
from types import SimpleNamespace

import pandas as pd
import pytest

import dpstats as dps
from dpstats import display
from dpstats.display import shown_progress

HOSTILE = "<script>alert('&')</script>"


class Terminal(io.StringIO):
    """A stderr that somebody sees."""

    def isatty(self):
        return True


@pytest.fixture
def clock(monkeypatch):
    """Seconds that pass only when they are told to."""
    now = [100.0]
    monkeypatch.setattr(display.time, "monotonic", lambda: now[0])
    return now


@pytest.fixture
def terminal(monkeypatch):
    seen = Terminal()
    monkeypatch.setattr(display, "sys", SimpleNamespace(stderr=seen, modules=sys.modules))
    return seen


def test_a_bar_is_drawn_after_two_seconds_and_goes_at_the_end(clock, terminal):
    with shown_progress(None) as say:
        clock[0] += 1.9
        say("reading rows", 10, 100)
        assert terminal.getvalue() == ""
        clock[0] += 0.2
        say("reading rows", 20, 100)
        assert terminal.getvalue() == "\r\033[Kreading rows 20%"
        say("reading rows", 21, 100)  # too soon after the last
        assert "21%" not in terminal.getvalue()
        clock[0] += 0.2
        say("drawing noise", 0, None)
        assert terminal.getvalue().endswith("\r\033[Kdrawing noise")
    assert terminal.getvalue().endswith("\r\033[K")


def test_nobody_sees_a_bar_in_a_log_or_where_it_is_not_wanted(terminal, monkeypatch):
    for progress, stderr in ((False, terminal), (None, io.StringIO()), (None, None)):
        monkeypatch.setattr(display.sys, "stderr", stderr)
        with shown_progress(progress) as say:
            assert say is None


def test_a_notebook_has_one_bar_that_moves(clock, monkeypatch):
    """The modules of IPython as a kernel has them."""
    seen, shell = [], SimpleNamespace(kernel=object())

    def show(shown, *, display_id):
        assert display_id
        assert not seen
        seen.append(shown)
        return SimpleNamespace(update=seen.append)

    module = SimpleNamespace(HTML=str, display=show)
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    monkeypatch.setitem(sys.modules, "IPython.display", module)
    with shown_progress(None) as say:
        clock[0] += 3
        say("a < b", 1, 4)
        clock[0] += 1
        say("a < b", 2, 4)
    bars = [f'a &lt; b <progress value="{share}"></progress>' for share in ("0.250", "0.500")]
    assert seen == [*bars, ""]


def test_a_release_shows_a_bar_by_default(terminal, monkeypatch, survey, schema):
    monkeypatch.setattr(display, "PATIENCE", -1.0)
    monkeypatch.setattr(display, "_STEP", -1.0)
    plan = dps.plan(schema, {"old": dps.Mean("age")}, budget=dps.PureDP(1))
    dps.release(plan, survey, m=50)
    assert "reading rows" in terminal.getvalue()
    shown = terminal.getvalue()
    dps.release(plan, survey, m=50, progress=False)
    assert terminal.getvalue() == shown


def test_notebooks_show_all_of_it_escaped():
    schema = dps.Schema([
        dps.Category("kind", ["a", HOSTILE], note=HOSTILE),
        dps.Number("size", 0, 1, edges=[0.5], missing=0),
    ])  # fmt: skip
    plan = dps.plan(schema, {HOSTILE: dps.Marginals(["kind"], 1)}, budget=dps.PureDP(1))
    rows = pd.DataFrame({"kind": ["a", HOSTILE] * 100, "size": 0.5})
    release = dps.release(plan, rows, m=50)
    for thing in (
        schema, *schema, plan, plan.preview(n=100), plan.curve(100, budgets=[1]), plan.budget,
        release.accuracy(), release, release.infer(HOSTILE),
    ):  # fmt: skip
        text = thing._repr_html_()
        assert text.startswith("<")
        assert "<script" not in text
    assert "category, 2 levels: a, &lt;script" in schema["kind"]._repr_html_()
