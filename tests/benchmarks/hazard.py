"""Hazard ratios: width against the non-private one, and the effect of binning time.

    python tests/benchmarks/hazard.py width|binning [--runs 20]

The tables of docs/explanation/regression/hazard-regression.md. "width": a binary treatment, half of
the rows censored. "binning": the grouped estimate without privacy less exact Cox regression of the
continuous times (statsmodels, Efron), in standard errors of the latter.
"""

import numpy as np
import pandas as pd
from measuring import Gaussian, markdown, parsed
from statsmodels.duration.hazard_regression import PHReg

import dpstats as dps
from dpstats.privacy.noise import _noise_from

TIGHT = dps.ApproxDP(1, 1e-6)
RATIO = -0.5


def silent(scale, size):
    return np.zeros(size, dtype=np.int64)


def drawn(n, censored, rng):
    """Rows with a share of censored times: rate 1 in the first group, ends up to time 2."""
    arm = rng.random(n) < 0.5
    until = {0.3: 0.3, 0.5: 0.8, 0.8: 3.6}[censored]
    event = rng.exponential(np.exp(-RATIO * arm))
    end = np.minimum(rng.exponential(1 / until, n), 2)
    return pd.DataFrame({"time": np.minimum(event, end), "event": event < end, "arm": arm})


def fitted(rows, bins, noise, ties=None):
    edges = list(np.linspace(0, 2, bins + 1)[1:-1].round(6))
    time = dps.Number("time", 0, 2, points=200_001, edges=edges, missing=0)
    schema = dps.Schema([time, dps.Boolean("event"), dps.Boolean("arm")])
    plan = dps.plan(schema, {"it": dps.Hazard("time, event ~ arm", ties=ties)}, budget=TIGHT)
    with _noise_from(noise):
        release = dps.release(plan, rows, m=100, rng=0)
    return release.infer("it")


def width(runs):
    lines = []
    for events in (300, 500, 1_000, 2_000):
        ours, plain, rng = [], [], np.random.default_rng(events)
        for run in range(runs):
            rows = drawn(2 * events, 0.5, rng)
            ends = np.asarray(fitted(rows, 20, Gaussian(run)).conf_int())[0]
            ours.append(ends[1] - ends[0])
            plain.append(2 * 1.959964 * fitted(rows, 20, silent).sampling_variance[0] ** 0.5)
        widths = np.median(ours), np.median(plain)
        lines.append([events, *widths, widths[0] / widths[1]])
    print(markdown(["events", "median width", "without privacy", "ratio"], lines))


def binning(runs):
    lines = []
    for n in (2_000, 50_000):
        for censored in (0.3, 0.8):
            rng, exact, found = np.random.default_rng(n), [], {}
            for _ in range(runs if n < 10_000 else max(runs // 4, 1)):
                rows = drawn(n, censored, rng)
                cox = PHReg(rows["time"], rows[["arm"]] * 1.0, rows["event"], ties="efron").fit()
                exact.append((cox.params[0], cox.bse[0]))
                for bins in (10, 20):
                    for ties in ("half", "last"):
                        estimate = fitted(rows, bins, silent, ties).params[0]
                        found.setdefault((bins, ties), []).append(estimate - cox.params[0])
            error = np.mean(exact, axis=0)[1]
            shown = [f"{np.mean(d) / error:+.3f} ({np.std(d) / error:.3f})" for d in found.values()]
            lines.append([n, censored, error, *shown])
    heads = [f"{bins} bins, {ties}" for bins, ties in found]
    print(markdown(["n", "censored", "s.e. of Cox", *heads], lines))


if __name__ == "__main__":
    given = parsed(__doc__, {"what": ("width", "binning")}, runs=20)
    {"width": width, "binning": binning}[given.what](given.runs)
