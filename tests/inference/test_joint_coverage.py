"""Intervals that hold together: their algebra here, their coverage in tests/statistical."""

import numpy as np

import dpstats as dps
from dpstats.inference.joint_coverage import joint_level, joint_test, level_of_draws, root_of

ASKED = {"table": dps.Marginals(["smoker", "region"]), "one": dps.Proportion("age >= 65")}


def test_levels_lie_between_bonferroni_and_alpha_and_a_whole_plan_holds_together(schema, survey):
    plan = dps.plan(schema, ASKED, budget=dps.PureDP(0.5), reference=dps.Uniform())
    release = dps.release(plan, survey, m=12, k=1, rng=0)
    answers = release.answers(ASKED["table"].family(schema))
    assert 0.05 / 6 <= joint_level(answers, 0.05) <= 0.05
    assert joint_level(answers.subset(slice(0, 1)), 0.05) == 0.05
    errors = np.random.default_rng(0).standard_normal((5_000, 8))
    assert level_of_draws(errors, 5e-4) == 5e-4 / 8  # below the draws it is Bonferroni's
    assert 0.05 / 8 <= level_of_draws(errors, 0.05) < 0.02
    result = release.infer("table")
    together, alone = result.conf_int(simultaneous=True), result.conf_int()
    assert np.all((together[:, 0] <= alone[:, 0]) & (together[:, 1] >= alone[:, 1]))
    assert (together != alone).any()

    frame = release.intervals()
    assert frame["analysis"].tolist() == ["table"] * 6 + ["one"]
    single = release.infer("one").conf_int(alpha=0.025)
    whole = result.conf_int(alpha=0.025, simultaneous=True)
    ends = frame[["conf_low", "conf_high"]].astype(float)
    np.testing.assert_allclose(ends, [*whole, single])


def test_a_joint_test_allows_for_noise_on_the_sampling_covariance():
    rng, d, size, pvalues = np.random.default_rng(0), np.eye(2), 100, []
    for _ in range(1_500):
        noise = 0.4 * rng.laplace(0, 0.5**0.5, (size + 1, 2))
        variances = np.abs(np.maximum(1 + noise[0], 0) - noise[1:])
        found = joint_test(
            rng.standard_normal(2), 1e6, variances[:, :, None] * d, 0 * d,
            lambda: np.zeros((size, 2)), rng,
        )  # fmt: skip
        pvalues.append(found[1])
    levels = np.mean(np.array(pvalues)[:, None] <= [0.05, 0.01], axis=0)
    assert np.all(levels <= [0.065, 0.018])


def test_a_joint_test_allows_for_the_inverse_of_a_noisy_covariance():
    """Draws of a whole matrix; a p-value by these errors alone has a level of .08 (of .05)."""
    rng, k, size, pvalues = np.random.default_rng(1), 5, 200, []
    for _ in range(400):
        noise = 0.15 * rng.laplace(0, 0.5**0.5, (size + 1, k, k))
        noise = (noise + noise.swapaxes(1, 2)) / 2 ** (0.5 + 0.5 * np.eye(k))
        root = root_of(np.eye(k) + noise[0])
        values, vectors = np.linalg.eigh(root @ root - noise[1:])
        drawn = (vectors * np.abs(values)[:, None, :]) @ vectors.swapaxes(1, 2)
        found = joint_test(
            rng.standard_normal(k), 1e6, drawn, np.zeros((k, k)), lambda: np.zeros((size, k)), rng
        )
        pvalues.append(found[1])
    assert np.mean(np.array(pvalues) <= 0.05) <= 0.05
