"""What a release says it knows of a question."""

import math

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
    ("conditions", "rich", None, "out of reach"),
    ("one, n hidden", "smoker", None, "measured"),
    ("one, n hidden", "not smoker", None, "bounded"),
    ("one, n hidden", "ill", None, "out of reach"),
]


@pytest.mark.parametrize(("name", "query", "given", "verdict"), VERDICTS)
def test_the_verdict(unplanned, name, query, given, verdict):
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


def test_it_names_the_analysis_to_ask_for_and_what_that_would_give(unplanned):
    found = unplanned["pairs"].explain("smoker & ill", given="age >= 65")
    assert found.ask == "dps.Proportion('smoker & ill', given='age >= 65')"
    assert 0 < found.expected_width < found.bounds.width[0]
    text = str(found)
    assert text.splitlines()[0] == found.ask
    assert "bounded: it does not follow from what was measured" in text
    assert f"ask the custodian to plan {found.ask}; alone, with this budget" in text
    assert "smoker &amp; ill" in found._repr_html_()


def test_families_of_functions_ask_for_their_tables(unplanned):
    schema = unplanned["pairs"].schema
    found = unplanned["pairs"].explain(dps.Cells.condition(schema, "rich & smoker"))
    assert found.verdict == "bounded"
    assert found.query == "rich & smoker"
    assert found.ask == "dps.Marginals(['smoker', 'rich'], degree=2)"
    assert math.isnan(found.expected_width)


def test_what_is_known_needs_no_custodian(unplanned):
    text = str(unplanned["conditions"].explain("ill"))
    assert "custodian" not in text
    assert text.splitlines()[1].startswith("measured: ")


@pytest.mark.parametrize(
    ("query", "given", "sentence"),
    [
        (3, None, "explain takes a condition such as"),
        (dps.Proportion("ill"), "smoker", "given= goes with a condition as text"),
        (dps.OLS, None, "explain takes a condition such as"),
    ],
)
def test_what_cannot_be_explained_is_refused(unplanned, query, given, sentence):
    with pytest.raises(dps.RequestError, match=sentence):
        unplanned["pairs"].explain(query, given=given)
