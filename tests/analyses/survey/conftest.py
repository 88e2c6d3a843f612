"""A survey whose figures R gave, and releases of it with next to no noise."""

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import dpstats as dps
from dpstats.analyses.survey.quantile import NearestEffects
from dpstats.analyses.survey.weighted import Estimates, Totals

DATA = Path(__file__).parents[2] / "data"
FIGURES = json.loads((DATA / "survey.json").read_text("utf-8"))["survey"]
ROWS = pd.read_csv(DATA / "survey.csv")
UNITS = {str(h): sorted(x["psu"].unique().tolist()) for h, x in ROWS.groupby("stratum")}
HUGE = dps.PureDP(1e9)


def schema_of(*columns):
    """A schema with the design of the survey; its mean weight is that of the rows."""
    about = FIGURES["about"]
    design = dps.Design(
        "w", mean=about["mean_weight"], cap=about["cap"], strata="stratum", unit="psu", units=UNITS
    )
    return dps.Schema(list(columns), design=design)


def released(analysis, schema, budget=HUGE, **options):
    """A release of the rows of the survey for one analysis."""
    plan = dps.plan(
        schema, {"x": analysis}, budget=budget, unit="add_remove", n=len(ROWS),
        reference=dps.Uniform(), **options,
    )  # fmt: skip
    return dps.release(plan, ROWS, rng=0, m=2, k=10)


@pytest.fixture
def surveyed():
    """What R computed, the rows it was computed from, and releases of them."""
    return SimpleNamespace(
        figures=FIGURES, rows=ROWS, df=FIGURES["about"]["degf"], schema=schema_of, release=released
    )


@pytest.fixture
def all_contrasts(monkeypatch):
    """Contrasts of all units of a stratum in place of those of pairs, of the exact totals.

    As many as there are degrees of freedom, orthogonal to each other and to the mean: the sum of
    their squares is the variance that R gives, as is the mean of those of pairs over all pairings.
    """
    plain = Totals.of.__func__

    def of(cls, release, block, *, needed=True):
        totals = plain(cls, release, block, needed=needed)
        if not len(totals.factors):
            return totals
        schema, u = release.schema, ROWS["u"].to_numpy()
        functions = block.functions(schema.encode(pa.RecordBatch.from_pandas(ROWS)))
        rows = pd.DataFrame((u * functions / block.bounds[:, None]).T)
        sums = rows.groupby([ROWS["stratum"], ROWS["psu"]]).sum()
        contrasts = []
        for _, x in sums.groupby(level=0):
            m = len(x)
            basis = np.linalg.qr(np.column_stack([np.ones(m), np.eye(m)[:, 1:]]))[0][:, 1:]
            contrasts.append((m / (m - 1)) ** 0.5 * basis.T @ x.to_numpy())
        contrasts = np.concatenate(contrasts)
        noise = np.zeros_like(totals.contrast_noise)
        ones = np.ones(len(contrasts))
        return replace(totals, contrasts=contrasts, factors=ones, contrast_noise=noise)

    monkeypatch.setattr(Totals, "of", classmethod(of))
    for kind in (Estimates, NearestEffects):  # as many degrees of freedom as R takes
        whole = property(lambda self: np.full(len(self.params), self.most_contrasts))
        monkeypatch.setattr(kind, "number_of_contrasts", whole)
