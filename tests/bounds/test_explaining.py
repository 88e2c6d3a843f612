"""What a release says it knows of a question."""

import dpstats as dps

VERDICTS = [
    ("pairs", "smoker & ill", None, "measured"),
    ("pairs", "not smoker", None, "derivable"),
    ("pairs", "smoker", "ill", "measured"),
    ("pairs", "smoker & ill", "age >= 65", "bounded"),
    ("pairs", "rich", None, "out of reach"),
    ("pairs", dps.Marginals(["smoker", "region"]), None, "measured"),
    ("pairs", dps.OLS("income ~ rich"), None, "out of reach"),
    ("pairs, n hidden", dps.Independence("smoker", "ill"), None, "measured"),
    ("conditions", "smoker & region == 'north' & income < 20", None, "bounded"),
    ("conditions", dps.Mean("income"), None, "measured"),
    ("conditions", dps.Mean("age", given="age >= 65"), None, "out of reach"),
    ("conditions", dps.GroupMeans("age", by="region"), None, "bounded"),
    ("one, n hidden", dps.MeanDifference("income", by="ill"), None, "out of reach"),
    ("pairs", dps.OLS("income ~ age"), None, "bounded"),
    ("pairs", dps.Quantile("age"), None, "derivable"),
    ("quantile", dps.Quantile("age"), None, "measured"),
    ("quantile", "age < 40", None, "derivable"),
    ("one, n hidden", "region == 'north'", None, "bounded"),
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
    release = unplanned["one, n hidden"]
    found = release.explain(dps.Moments.of(release.schema, ["age", "income"]))
    assert found.ask == "an analysis of age, income"
