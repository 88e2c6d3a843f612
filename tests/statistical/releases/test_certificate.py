"""The certificate of a release: how often it holds, and how small it is.

Mostly of 500 cells, 28 two-way tables of 8 columns, with 50,000 rows of a hidden-class model at
epsilon 1 and 10. Exact sums are computed once; a release is fresh noise and a fit. That it holds is
tested with few candidates (any rows have a certificate, and a poor fit is the harder case), how
small it is with 20,000.
"""

from collections import defaultdict
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from scipy import stats

import dpstats as dps
from dpstats.measured.certificate import certify, published_answers
from dpstats.measured.measurements import Measurements
from dpstats.privacy.noise import _noise_from

SIZES = [2, 3, 4, 4, 5, 5, 5, 6]
N, ALPHA = 50_000, 0.05
BUDGETS = dps.PureDP(1), dps.PureDP(10)


@pytest.fixture(scope="module")
def exact(tools):
    """Measurements without noise, by budget."""
    columns = tools.latent_codes(SIZES, N, np.random.default_rng(0))
    schema = dps.Schema([dps.Category(f"c{i}", list(range(s))) for i, s in enumerate(SIZES)])
    data = schema.to_frame(dict(zip(schema.names, columns, strict=True)))

    @cache
    def measured(budget):
        plan = dps.plan(schema, {"pairs": dps.Marginals(schema.names)}, budget=budget, n=N)
        assert plan.family.size == 500
        with _noise_from(lambda scale, size: np.zeros(size, np.int64)):
            return dps.measure(plan, data)

    return measured


def certificates(held, method, m, seed):
    if method == "no fit":  # means of the uniform density
        uniform = [np.full(b.block.size, 1 / b.block.size) for b in held.measured]
        return certify(held, np.concatenate(uniform), alpha=ALPHA, target="rows")
    if method == "perfect fit":  # rows that match the answers: all of alpha is used
        return certify(held, held.means, alpha=ALPHA, target="rows")
    return dps.synthesize(held, fit=method, m=m, rng=seed).accuracy(alpha=ALPHA)


@pytest.mark.simulate(BUDGETS, few=(0,), runs=(80, 20_000))
def test_the_certificate_holds(exact, setting, runs, table, tools):
    """In few runs without a fit: what needs one to fail needs the many."""
    many, source = runs > 100, tools.Laplace(20)
    times = {"no fit": 1_000 if many else 10, "perfect fit": runs}
    times |= {"entropy": 400, "minimax": 400} if many else {}
    for method, releases in times.items():
        held, ratio = 0, 0.0
        for run in range(releases):
            found = certificates(tools.with_noise(exact(setting), source), method, 500, run)
            error = np.abs(found.synthetic - exact(setting).means)
            held += np.all(error <= found.joint_bounds + 1e-12)
            ratio += found.delta / found.joint_radius.max() / releases
        table.covers(setting, method, held, releases, 1 - ALPHA, f"delta = {ratio:.2f} q")
        if method == "perfect fit":  # the noise alone: the stated rate and hardly more
            table.level(setting, f"{method}: not conservative", held, releases, 0.96)


@pytest.mark.simulate(BUDGETS, few=(), runs=(0, 10))
def test_the_certificate_is_small(exact, setting, runs, table, tools):
    """delta <= 1.7 q in every release; entropy's true error no larger than minimax's on average."""
    source, truth = tools.Laplace(22), exact(setting).means
    largest, errors = defaultdict(float), defaultdict(list)
    for run in range(runs):
        noisy = tools.with_noise(exact(setting), source)
        for method in ("no fit", "entropy", "minimax"):
            found = certificates(noisy, method, 20_000, run)
            q = found.joint_radius.max()
            largest[method] = max(largest[method], found.delta / q)
            errors[method].append(np.abs(found.synthetic - truth).max() / q)
    for method, worst in largest.items():
        error = f"max error {np.mean(errors[method]):.2f} q"
        # no fit: holds as a certificate, useless as a release
        limits = {"least": 10} if method == "no fit" else {"most": 1.7}
        table.check(setting, f"{method}: largest delta / q", worst, error, runs=runs, **limits)
    assert np.mean(errors["entropy"]) <= np.mean(errors["minimax"])


def test_gaussian_certificates_hold_jointly_at_their_exact_rate(tools):
    """Rows that match every noisy answer: it holds iff all noises are within their quantiles."""
    analyses = {"m": dps.Marginals(["a", "c"]), "p": dps.Proportion("a == 0 and c == 2")}
    schema = dps.Schema([dps.Category("a", [0, 1, 2]), dps.Category("c", [0, 1, 2, 3])])
    plan = dps.plan(schema, analyses, budget=dps.ZCDP(0.2), n=500, shares={"m": 1, "p": 3})
    zeros, runs = np.zeros(plan.family.size, np.int64), 20_000
    held = Measurements(replace(plan.strategy, n=500), zeros, zeros * 0.0, not_private=True)
    laws, which = held.laws
    radius = certify(held, held.means, alpha=ALPHA, target="rows").joint_radius
    q = np.rint(radius * 500 * held.family.bounds)
    rate = np.prod([1 - laws[i].tail(bound + 1) for i, bound in zip(which, q, strict=True)])
    assert 1 - ALPHA <= rate < 1 - ALPHA / 4
    source = tools.noise_of(plan.budget)(3)
    noise = np.stack([source(float(scale), runs) for scale in held.scales], axis=1)
    low, high = stats.binom.ppf([5e-7, 1 - 5e-7], runs, rate)
    assert low <= np.all(np.abs(noise) <= q, axis=1).sum() <= high


@pytest.mark.simulate(
    [(40, dps.PureDP(0.5)), (2_000, dps.PureDP(0.2)), (2_000, dps.ZCDP(0.02))], few=(0,),
    runs=(40, 600),
)  # fmt: skip
def test_the_certificate_holds_where_the_number_of_rows_is_measured(setting, runs, table, tools):
    """Published answers are divided by the noisy number of rows, as the certificate has it."""
    n, budget = setting
    schema = dps.Schema([dps.Boolean("ill"), dps.Category("region", ["n", "s", "w"])])
    asked = {"one": dps.Proportion("ill"), "cells": dps.Marginals(["ill", "region"])}
    plan, held = dps.plan(schema, asked, budget=budget, unit="add_remove"), 0

    def draw(rng):
        return {"ill": (rng.random(n) < 0.2).astype(np.int64), "region": rng.integers(0, 3, n)}

    for codes, noisy, _ in tools.fresh(plan, n, draw, runs, 7):
        truth = np.concatenate(noisy.published.sums(codes)) / (n * noisy.published.bounds)
        means = published_answers(noisy).means
        bounds = certify(noisy, means, alpha=ALPHA, target="").joint_bounds
        held += np.all(np.abs(means - truth) <= bounds)
    table.covers(setting, "certificate", held, runs)
