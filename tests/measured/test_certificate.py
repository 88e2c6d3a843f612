"""The certificate: its algebra, its exact quantiles, and that it holds at the stated rate."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from scipy import stats

import dpstats as dps
from dpstats.analyses.base import answered
from dpstats.families.tables.residuals import Residual
from dpstats.inference.simulation import draw_from
from dpstats.measured.answers import answer, joint_noise_quantiles
from dpstats.measured.certificate import certify, certify_answers, published_answers
from dpstats.privacy.noise import _noise_from

SCHEMA = dps.Schema([
    dps.Category("colour", ["red", "green", "blue"]),
    dps.Boolean("smoker"),
    dps.Number("age", 0, 100, points=21, missing=50), dps.Category("size", list("stuv")),
])  # fmt: skip
N = 400


def table(seed=0):
    rng = np.random.default_rng(seed)
    return pd.DataFrame({
        "colour": rng.choice(["red", "green", "blue"], size=N, p=[0.7, 0.2, 0.1]),
        "smoker": rng.random(N) < 0.3,
        "age": 5 * rng.integers(0, 21, size=N),
        "size": rng.choice(list("stuv"), size=N),
    })  # fmt: skip


ASKED = {"both": dps.Marginals(["colour", "smoker"]), "share": dps.Proportion("size == 's'")}

MANY = {"cells": dps.Marginals(["colour", "size"])}  # whose total has more noise than a count


def measured(source, shares=None, *, asked=ASKED, epsilon=1, unit="replace", copies=1):
    made = dps.plan(SCHEMA, asked, budget=dps.PureDP(epsilon), unit=unit, shares=shares)
    with _noise_from(source):
        return dps.measure(made, pd.concat([table()] * copies))


def tails(laws, q):
    """P(|Z| > q) for each of some laws, of sums of a few Laplace noises."""
    reach = np.arange(-4_000, 4_001)
    found = []
    for law, most in zip(laws, q, strict=True):
        mass = stats.dlaplace(1 / law.scale).pmf(reach)
        for _ in range(1, law.terms):
            mass = np.convolve(mass, stats.dlaplace(1 / law.scale).pmf(reach), "same")
        found.append(mass[np.abs(reach) > most].sum())
    return np.array(found)


@pytest.mark.parametrize("shares", [None, {"both": 0.5, "share": 0.5}])
def test_quantiles_are_the_smallest_that_the_exact_law_allows(seeded_noise, shares):
    release = dps.synthesize(measured(seeded_noise(0), shares), m=200, rng=0)
    held = release.measurements
    unit, (laws, which) = held.n * held.family.bounds, held.laws
    assert len(laws) == (1 if shares is None else 2)
    every = [laws[i] for i in which]
    for alpha in [0.01, 0.3]:
        certificate = release.accuracy(alpha=alpha)
        q, joint = np.rint([certificate.radius * unit, certificate.joint_radius * unit])
        np.testing.assert_allclose(q / unit, certificate.radius, rtol=1e-12)
        np.testing.assert_allclose(joint / unit, certificate.joint_radius, rtol=1e-12)
        assert np.all((tails(every, q) <= alpha) & (alpha < tails(every, q - 1)))
        assert np.prod(1 - tails(every, joint)) >= 1 - alpha
        for i in range(len(laws)):  # none can be lowered for all functions of its law
            assert np.prod(1 - tails(every, joint - (which == i))) < 1 - alpha


def noise_and_rows_allowed(held, ends):
    """The q of each sum, and at last r of n: low (n + r) = S - q and high (n - r) = S + q."""
    (low, high), sums = ends, held.sums[held.strategy.places]
    r = (2 * sums - held.n * (low + high)) / (low - high)
    q = high * (held.n - r) - sums
    assert np.all(sums > q)
    whole = np.rint([q, r])
    np.testing.assert_allclose([q, r], whole, atol=1e-6)
    assert len(set(whole[1])) == 1
    return np.append(whole[0], whole[1, 0])


@pytest.mark.parametrize(
    ("asked", "shares"),
    [(ASKED, None), (ASKED, {"both": 0.4, "share": 0.6}), (MANY, None)],
)
def test_noise_on_the_number_of_rows_has_its_part_of_alpha(seeded_noise, asked, shares):
    """A count of its own has one more independent noise; the total of cells that of Bonferroni."""
    # Noise of a scale that resolves a 25th of alpha, and all sums beyond its reach.
    given = {"asked": asked, "epsilon": 0.05, "unit": "add_remove", "copies": 100}
    held = measured(seeded_noise(0), shares, **given)
    assert held.counted_alone == (asked is MANY)
    laws, which = held.laws
    which = which[held.strategy.places]  # not the rows of no condition, which only count them
    every = [*(laws[i] for i in which), held.rows.law]  # the number of rows comes last
    means = held.means[held.strategy.places]
    for alpha in [0.01, 0.3]:
        certificate = certify(held, means, alpha=alpha, target="rows")
        q = noise_and_rows_allowed(held, certificate.ends)
        outside, nearer = tails(every, q), tails(every, q - 1)
        assert np.all(outside[:-1] + outside[-1] <= alpha)
        assert np.all(nearer > alpha * np.append(np.full(len(which), 24), 1) / 25)
        q = noise_and_rows_allowed(held, certificate.joint_ends)
        some, left = slice(None), alpha  # of exact joint bounds, and their error
        if not held.counted_alone:
            own, some = alpha / len(every), slice(-1)
            left = alpha - own
            assert tails(every[-1:], q[-1:])[0] <= own < tails(every[-1:], q[-1:] - 1)[0]
        assert np.prod(1 - tails(every[some], q[some])) >= 1 - left
        for lowered in set(every[some]):
            fewer = q[some] - [law == lowered for law in every[some]]
            assert np.prod(1 - tails(every[some], fewer)) < 1 - left


def test_algebra(seeded_noise):
    held = measured(seeded_noise(1))
    release = dps.synthesize(held, m=300, k=57, rng=0)
    for of, weights in (("rows", release.counts / 57), ("weights", release.weights)):
        certificate = release.accuracy(alpha=0.1, of=of)
        synthetic = held.family.evaluate(release.candidates).average(weights)
        noisy = np.concatenate([block.sums for block in held.measured]) / N
        np.testing.assert_allclose(certificate.synthetic, synthetic, atol=1e-15)
        np.testing.assert_allclose(certificate.noisy, noisy, atol=1e-15)
        visible = np.abs(synthetic - noisy)
        np.testing.assert_allclose(certificate.bounds, visible + certificate.radius)
        np.testing.assert_allclose(certificate.joint_bounds, visible + certificate.joint_radius)
        assert certificate.delta == certificate.joint_bounds.max()
        assert np.all(certificate.joint_radius >= certificate.radius)
    frame = certificate.to_frame()
    assert list(frame.columns) == ["function", "synthetic", "noisy_answer", "bound", "joint_bound"]
    assert list(frame["function"]) == held.family.names
    np.testing.assert_array_equal(frame["joint_bound"], certificate.joint_bounds)
    for part in (f"delta = {certificate.delta:.4f}", "90%", "weighted candidates"):
        assert part in str(certificate)


def test_no_bound_exceeds_the_range(seeded_noise):
    held = measured(seeded_noise(0), epsilon=1e-3)
    release = dps.synthesize(held, m=100, rng=0)
    for certificate in (release.accuracy(), release.accuracy("share")):
        assert np.all(certificate.joint_bounds <= 1)
        assert np.all(certificate.joint_bounds >= certificate.synthetic * (1 - 1e-9))
        assert certificate.joint_radius.max() > 1  # the noise alone is larger
        assert np.all((certificate.joint_ends >= 0) & (certificate.joint_ends <= 1))
    plan = dps.plan(SCHEMA, {"age": dps.Mean("age")}, budget=dps.PureDP(1e-3))
    with _noise_from(seeded_noise(0)):
        held = dps.measure(plan, table())
    certificate = certify(held, np.full(2, 1.0), alpha=0.05, target="rows")
    np.testing.assert_allclose(certificate.joint_bounds, [2, 1])  # age in [-1, 1], its square


def test_without_a_misfit_the_radius_is_the_quantile_of_the_noise():
    """Where the rows match the answers; no simulation sees a radius that is a fifth too short."""
    level = dps.Number("level", 0, 10, points=11, edges=[3, 6], missing=0)
    schema = dps.Schema([*SCHEMA, level])
    asked = ASKED | {"spread": dps.Mean("age"), "median": dps.Quantile("level")}
    plan = dps.plan(schema, asked, budget=dps.PureDP(1), unit="replace")
    held = dps.measure(plan, table().assign(level=np.arange(N) % 11))
    for family in (answered(one, schema) for one in asked.values()):
        answers = answer(held, family)
        found = certify_answers(answers, family, answers.means, alpha=0.3, target="")
        wanted = joint_noise_quantiles(answers, 0.3)
        np.testing.assert_allclose(found.joint_bounds * N * family.bounds, wanted, rtol=1e-9)


def test_noise_on_a_total_of_cells_has_its_part_of_alpha(seeded_noise):
    asked = {"smoking": dps.Marginals(["smoker"], 1)}
    plan = dps.plan(SCHEMA, asked, budget=dps.PureDP(0.1), unit="add_remove")
    with _noise_from(seeded_noise(8)):
        held = dps.measure(plan, table())
    law = plan.budget.law(float(plan.strategy.block_scales[0][0]), 2)
    assert held.rows.law == law  # that of a sum of two cells
    certificate = certify(held, np.full(2, 0.5), alpha=0.2, target="rows")
    assert law.tail((certificate.rows[1] - certificate.rows[0]) // 2 + 1) <= 0.2 / 3


@pytest.mark.parametrize("unit", ["replace", "add_remove"])
def test_it_holds_for_tables_that_follow_from_residuals(unit):
    """Joint bounds at level .8 in 60 drawn noises, seeded: Bonferroni's is not far from exact."""
    pairs, rng = dps.Marginals(["colour", "smoker", "size"]), np.random.default_rng(3)
    asked = {"pairs": pairs, "age": dps.Mean("age"), "smoking": dps.Proportion("smoker")}
    plan = dps.plan(SCHEMA, asked, budget=dps.ZCDP(0.5), unit=unit)
    assert [type(block) for block in plan.strategy.family.blocks[:6]] == [Residual] * 6
    with _noise_from(lambda scale, size: np.zeros(size, np.int64)):
        exact = dps.measure(plan, table())
    true = published_answers(exact).means
    codes = SCHEMA.encode(pa.RecordBatch.from_pandas(table()))
    counts = np.concatenate([block.sums(codes) for block in pairs.family(SCHEMA).blocks])
    np.testing.assert_allclose(true[: len(counts)], counts / N, atol=1e-9)
    scales, held, failed = np.concatenate(plan.strategy.block_scales), 0, 0
    noise = [draw_from(plan.budget.law(float(scale)), 60, rng) for scale in scales]
    for drawn in np.array(noise, np.int64).T:
        noisy = replace(exact, noisy_sums=exact.noisy_sums + drawn)
        accuracy = certify(noisy, np.zeros(len(true)), alpha=0.2, target="rows")
        (low, high), (joint_low, joint_high) = accuracy.ends, accuracy.joint_ends
        held += np.all((joint_low <= true + 1e-12) & (true <= joint_high + 1e-12))
        failed += np.mean((true < low - 1e-12) | (true > high + 1e-12))
    assert accuracy.names[:6] == pairs.family(SCHEMA).names[:6]
    assert 0.8 <= held / 60 <= 0.97
    assert failed / 60 <= 0.22
