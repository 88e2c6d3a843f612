"""What a release says it knows of a question."""

import numpy as np
import pytest

import dpstats as dps

VERDICTS = [
    ("pairs", "smoker & ill", None, "measured"),
    ("pairs", "not smoker", None, "derivable"),
    ("pairs", "smoker", "ill", "measured"),
    ("pairs", "smoker & ill & region == 'north'", None, "bounded"),
    ("pairs", "smoker & ill", "age >= 65", "bounded"),
    ("pairs", "smoker & rich", None, "out of reach"),
    ("pairs", "rich", None, "out of reach"),
    ("pairs", dps.Marginals(["smoker", "region"]), None, "measured"),
    ("pairs", dps.Marginals(["region"], degree=1), None, "derivable"),
    ("pairs", dps.Marginals(["smoker", "region", "ill"], degree=3), None, "bounded"),
    ("pairs", dps.Mean("age"), None, "bounded"),
    ("pairs", dps.OLS("income ~ rich"), None, "out of reach"),
    ("pairs, n hidden", dps.Independence("smoker", "ill"), None, "measured"),
    ("conditions", "ill", None, "measured"),
    ("conditions", "not ill", None, "derivable"),
    ("conditions", "smoker & region == 'north' & ill", None, "bounded"),
    ("conditions", "smoker & region == 'north' & income < 20", None, "bounded"),
    ("conditions", "region == 'south'", None, "bounded"),
    ("conditions", dps.Mean("income"), None, "measured"),
    ("conditions", dps.Mean("age", given="age >= 65"), None, "out of reach"),
    ("conditions", dps.GroupMeans("age", by="region"), None, "bounded"),
    ("conditions", dps.GroupMeans("age", by="rich"), None, "out of reach"),
    ("one, n hidden", dps.MeanDifference("income", by="ill"), None, "out of reach"),
    ("one, n hidden", dps.OLS("income ~ age"), None, "out of reach"),
    ("pairs", dps.OLS("income ~ age"), None, "bounded"),
    ("pairs", dps.Quantile("age"), None, "derivable"),
    ("quantile", dps.Quantile("age"), None, "measured"),
    ("quantile", "age < 40", None, "derivable"),
    ("conditions", "rich", None, "out of reach"),
    ("one, n hidden", "smoker", None, "measured"),
    ("one, n hidden", "not smoker", None, "bounded"),
    ("one, n hidden", "ill", None, "out of reach"),
]


def test_the_verdict(unplanned):
    for name, query, given, verdict in VERDICTS:
        found = unplanned[name].explain(query, given=given)
        assert found.verdict == verdict
        follows = verdict in ("measured", "derivable")
        asked = dps.Proportion(query, given) if isinstance(query, str) else query
        try:
            unplanned[name].infer(asked)
        except dps.NotMeasuredError:
            assert not follows
        else:
            assert follows
        assert found.bounds.informative.any() == (verdict != "out of reach")


COMPARED = [
    ("smoker", {"minus": "ill"}, "derivable"),
    ("smoker", {"over": "ill", "given": "region == 'east'"}, "derivable"),
    ("smoker", {"minus": "ill", "given": "region == 'north' & ill"}, "bounded"),
    ("smoker & ill & age < 18", {"over": "smoker"}, "bounded"),
    ("rich", {"minus": "income < 20"}, "out of reach"),
    ("rich & income < 20", {"minus": "rich"}, "out of reach"),
]


def test_differences_and_ratios_are_explained(unplanned):
    for query, options, verdict in COMPARED:
        release = unplanned["pairs"]
        found = release.explain(query, **options)
        assert found.verdict == verdict
        bounds = release.bound(query, **options)
        assert found.query == bounds.terms[0]
        assert list(found.bounds) == list(bounds)
        given = options.get("given")
        other = options.get("minus", options.get("over"))
        parts = [repr(dps.Proportion(text, given)) for text in (query, other)]
        assert eval(f"[{found.ask}]", {"dps": dps}) == [eval(f"dps.{part}") for part in parts]
        assert ("release.infer estimates each of them" in str(found)) == (verdict == "derivable")
        assert "for the population use release.infer" not in str(found)  # it has no such difference


def test_of_functions_the_columns_are_named(unplanned):
    release = unplanned["one, n hidden"]
    found = release.explain(dps.Moments.of(release.schema, ["age", "income"]))
    assert found.ask == "an analysis of age, income"


def test_shares_in_groups_follow_from_tables_that_share_noise(unplanned):
    release = unplanned["residuals"]
    for asked in (dps.Proportion("smoker", given="ill"), dps.Difference("ill", by="smoker")):
        found, result = release.explain(asked), release.infer(asked)
        assert found.verdict == "measured"
        low, high = np.transpose(np.atleast_2d(result.conf_int(method="certified", target="table")))
        assert found.bounds.low == pytest.approx(low)
        assert found.bounds.high == pytest.approx(high)
        assert np.all(low < np.asarray(result.params))
        assert np.all(np.asarray(result.params) < high)
