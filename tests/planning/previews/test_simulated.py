"""As many simulated releases as show whether an interval may have no ends."""

import numpy as np
import pytest

import dpstats as dps
from dpstats.planning.previews import simulated
from dpstats.planning.previews.likeness import likeness
from dpstats.planning.previews.pretended import pretend_rows, seen_by_analyses
from dpstats.planning.previews.simulated import PreviewedWidths, Simulation

N = 6_000
AGE = dps.Number("age", 0, 120, edges=[18, 40, 65, 80], missing=0)
RISK = dps.Logistic("readmitted ~ age + C(smoker)")


def planned(epsilon=1, readmitted=0.06, analysis=RISK, age=AGE):
    guesses = dps.Guesses(
        typical={"age": {"mean": 66, "sd": 12}}, shares={"smoker": 0.15, "readmitted": readmitted}
    )
    schema = dps.Schema([dps.Boolean("readmitted"), age, dps.Boolean("smoker")], guesses)
    asked = {"risk": analysis, "ages": dps.Quantile("age", [0.25, 0.5, 0.75])}
    return dps.plan(schema, asked, budget=dps.PureDP(epsilon))


def test_three_releases_with_ends_do_not_hide_those_without(monkeypatch):
    """Of 6 releases with other points, draws and noise the share is as in the preview."""
    monkeypatch.setattr(simulated, "_MOST", 12)
    shaky = planned().preview(N)
    results = shaky.results["risk"]
    first = [result.preview_widths("noise_aware").widths for result in results[:3]]
    assert np.isfinite(np.median(first, axis=0)).all()  # what three releases would promise
    assert "age" in shaky.unbounded["risk"]
    strategy = planned().strategy
    seen, like = seen_by_analyses(strategy, N), likeness(None, strategy)
    simulation = Simulation(seen, N, pretend_rows(strategy, like, 9)[3:])
    lost = PreviewedWidths.of(simulation.few(RISK)).lost["age"]
    assert lost >= 2
    k = shaky.lost["risk"]["age"]
    share = k / len(results)
    assert abs(share - lost / 6) < 3 * np.sqrt(0.25 / 6 + 0.25 / len(results))
    frame = shaky.widths().query("analysis == 'risk'").set_index("term")
    assert frame.loc["age", "unbounded"] == pytest.approx(share)
    widths = np.array([result.preview_widths("noise_aware").widths for result in results])
    assert frame["width"].tolist() == pytest.approx(np.median(widths, axis=0).tolist())
    assert f"unbounded in {k} of {len(results)} simulated releases: " in str(shaky)
    assert "declare finer edges of 'age'" in " ".join(str(shaky).split())  # for its quantiles


def test_more_noise_is_not_drawn_where_it_says_nothing():
    """Steady widths, and intervals that cannot lack ends: three inferences, as ever."""
    for analysis, epsilon in ((RISK, 20), (dps.Proportion("smoker", given="age < 18"), 1)):
        found = planned(epsilon, 0.3, analysis).preview(N)
        assert len(found.results["risk"]) == simulated.PRETEND_RELEASES == 3
        assert not found.unbounded
        assert "unbounded" not in str(found)


def test_every_release_has_a_table_of_its_own_where_rows_are_invented():
    """The tables of a frame stay; those of guesses differ like tables of n rows do."""
    strategy = planned().strategy
    frame = dps.pretend(planned().schema, 2_000, rng=1)
    for like, tables in ((None, 30), (frame, 3)):
        rows = pretend_rows(strategy, likeness(like, strategy), 3)
        found = [rows[seed % 3].table(seed // 3, N)[2] for seed in range(30)]
        assert len({sums.tobytes() for sums in found}) == tables
        again = pretend_rows(strategy, likeness(like, strategy), 3)
        np.testing.assert_array_equal(again[2].table(9, N)[2], found[29])


def test_large_analyses_get_fewer_releases_by_their_size_alone(monkeypatch):
    """Never a clock: work and the cap decide. Progress says that more are simulated."""
    for name, value in {
        "_FEWEST": 3, "_MOST": 5, "_WORK": 40.0, "_settled": lambda _: False
    }.items():  # fmt: skip
        monkeypatch.setattr(simulated, name, value)
    size, seen = 3 * RISK.family(planned().schema).size, []
    found = planned().preview(N, progress=lambda *report: seen.append(report))
    assert len(found.results["risk"]) == int(40 / np.sqrt(size)) == 4  # of at most 5
    texts = [text for text, _, _ in seen]
    assert texts[0] == "previewing"
    assert "simulating more releases" in texts
    assert seen[-1] == ("done", 2, 2)
