"""Intervals that hold together: their algebra here, their coverage in tests/statistical."""

import numpy as np
import pandas as pd

import dpstats as dps
from dpstats.inference.joint_coverage import joint_level, level_of_draws
from dpstats.privacy import noise

SCHEMA = dps.Schema([dps.Category("a", list("abcd")), dps.Category("b", list("xyz"))])
SHARES = np.array([0.3, 0.2, 0.12, 0.1, 0.08, 0.06, 0.05, 0.04, 0.02, 0.015, 0.01, 0.005])


def released(n, epsilon, source):
    rng = source.rng
    cells = rng.choice(12, n, p=SHARES)
    frame = pd.DataFrame({"a": np.array(list("abcd"))[cells // 3],
                          "b": np.array(list("xyz"))[cells % 3]})  # fmt: skip
    plan = dps.plan(
        SCHEMA,
        {"table": dps.Marginals(["a", "b"]), "one": dps.Proportion("a == 'a' or b == 'x'")},
        budget=dps.PureDP(epsilon),
    )
    with noise._noise_from(source):
        measured = dps.measure(plan, frame)
    return dps.synthesize(measured, m=12, k=1, rng=0), np.bincount(cells, minlength=12) / n


def test_levels_lie_between_bonferroni_and_alpha(seeded_noise):
    release, _ = released(2000, 0.5, seeded_noise(0))
    family = release.analyses["table"].family(SCHEMA)
    answers = release.answers(family)
    level = joint_level(answers, 0.05)
    assert 0.05 / 12 <= level <= 0.05
    assert joint_level(answers.subset(slice(0, 1)), 0.05) == 0.05
    result = release.infer("table")
    together, alone = result.conf_int(simultaneous=True), result.conf_int()
    assert (together[:, 0] <= alone[:, 0]).all()
    assert (together[:, 1] >= alone[:, 1]).all()
    assert (together != alone).any()


def test_a_whole_plan_holds_together(seeded_noise):
    release, _ = released(2000, 0.5, seeded_noise(2))
    frame = release.intervals()
    assert frame["analysis"].tolist() == ["table"] * 12 + ["one"]
    single = release.infer("one").conf_int(alpha=0.025)
    np.testing.assert_allclose(frame.loc[12, ["conf_low", "conf_high"]].astype(float), single)
    whole = release.infer("table").conf_int(alpha=0.025, simultaneous=True)
    np.testing.assert_allclose(frame.loc[:11, ["conf_low", "conf_high"]], whole)


def test_a_level_below_the_draws_is_bonferronis():
    errors = np.random.default_rng(0).standard_normal((5_000, 8))
    assert level_of_draws(errors, 5e-4) == 5e-4 / 8
    assert 0.05 / 8 <= level_of_draws(errors, 0.05) < 0.02
