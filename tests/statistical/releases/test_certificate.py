"""The certificate of a release with 500 cells, at epsilon 1 and 10.

28 two-way tables of 8 columns, 50,000 rows of a hidden-class model. The exact sums are computed
once; a release is fresh noise and a fit. That the certificate holds is tested with few candidates
(any rows have a certificate, and a poor fit is the harder case), how small it is with 20,000.
"""

import numpy as np
import pytest

import dpstats as dps
from dpstats.measured.certificate import certify
from dpstats.privacy.noise import _noise_from

SIZES = [2, 3, 4, 4, 5, 5, 5, 6]
N = 50_000
ALPHA = 0.05
EPSILONS = (1, 10)


@pytest.fixture(scope="module")
def exact(tools):
    """Measurements without noise, by epsilon."""
    columns = tools.latent_codes(SIZES, N, np.random.default_rng(0))
    schema = dps.Schema([dps.Category(f"c{i}", list(range(s))) for i, s in enumerate(SIZES)])
    data = schema.to_frame(dict(zip(schema.names, columns, strict=True)))
    measured = {}
    for epsilon in EPSILONS:
        plan = dps.plan(
            schema, {"pairs": dps.Marginals(schema.names)}, budget=dps.PureDP(epsilon), n=N
        )
        assert plan.family.size == 500
        with _noise_from(lambda scale, size: np.zeros(size, np.int64)):
            measured[epsilon] = dps.measure(plan, data)
    return measured


def holds(certificate, truth):
    error = np.abs(certificate.synthetic - truth)
    return bool(np.all(error <= certificate.joint_bounds + 1e-12))


def no_fit(held):
    """Means of the uniform density: candidates as they are drawn, no fit at all."""
    return np.concatenate([np.full(b.block.size, 1 / b.block.size) for b in held.measured])


def certificates(held, method, m, seed):
    if method == "no fit":
        return certify(held, no_fit(held), alpha=ALPHA, target="rows")
    if method == "perfect fit":  # rows that match the answers: all of alpha is used
        return certify(held, held.means, alpha=ALPHA, target="rows")
    return dps.synthesize(held, fit=method, m=m, k=2_000, rng=seed).accuracy(alpha=ALPHA)


def simulate(exact, method, runs, m, tools):
    """How often the certificate holds, and the mean of delta / q."""
    source, truth = tools.Laplace(20), exact.means
    held, ratio = 0, 0.0
    for run in range(runs):
        certificate = certificates(tools.with_noise(exact, source), method, m, run)
        held += holds(certificate, truth)
        ratio += certificate.delta / certificate.joint_radius.max() / runs
    return held, ratio


def check_certificate(exact, epsilon, runs, m, table, tools):
    for method, times in runs.items():
        held, ratio = simulate(exact[epsilon], method, times, m, tools)
        setting = f"epsilon = {epsilon}, m = {m}"
        table.covers(setting, method, held, times, 1 - ALPHA, f"delta = {ratio:.2f} q")
        if method == "perfect fit":  # the noise alone: the stated rate and hardly more
            table.level(setting, f"{method}: not conservative", held, times, 0.96)


@pytest.mark.simulate(EPSILONS, few=(0,), runs=(100, 20_000))
def test_the_certificate_holds(exact, setting, runs, table, tools):
    """100 releases without a fit; 5 with one.

    What needs a fit to fail needs the many.
    """
    many = runs > 100
    of = {"no fit": 1_000 if many else 40, "perfect fit": runs}
    of |= dict.fromkeys(("entropy", "minimax"), 400 if many else 5)
    check_certificate(exact, setting, of, 500 if many else 40, table, tools)


@pytest.mark.simulate(EPSILONS, few=(), runs=(0, 10))
def test_the_certificate_is_small(exact, setting, runs, table, tools):
    """delta <= 1.7 q in every release; entropy's true error no larger than minimax's on average."""
    epsilon, m = setting, 20_000
    source, truth = tools.Laplace(22), exact[epsilon].means
    worst, errors = {}, {}
    for run in range(runs):
        noisy = tools.with_noise(exact[epsilon], source)
        for method in ("no fit", "entropy", "minimax"):
            if method == "no fit":
                certificate = certify(noisy, no_fit(noisy), alpha=ALPHA, target="rows")
            else:
                release = dps.synthesize(noisy, fit=method, m=m, rng=run)
                certificate = release.accuracy(alpha=ALPHA)
            q = certificate.joint_radius.max()
            worst[method] = max(worst.get(method, 0), certificate.delta / q)
            errors.setdefault(method, []).append(np.abs(certificate.synthetic - truth).max() / q)
    for method, largest in worst.items():
        error = f"max error {np.mean(errors[method]):.2f} q"
        # no fit: holds as a certificate, useless as a release
        limits = {"least": 10} if method == "no fit" else {"most": 1.7}
        what = f"{method}: largest delta / q"
        table.check(f"epsilon = {epsilon}, m = {m}", what, largest, error, runs=runs, **limits)
    assert np.mean(errors["entropy"]) <= np.mean(errors["minimax"])
