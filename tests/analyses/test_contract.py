"""Every registered analysis keeps the contract; tests/test_testing.py has some that do not."""

import dpstats as dps
from dpstats.analyses.registry import registry
from dpstats.testing import check_analysis


def test_every_kind_has_examples_of_itself(examples):
    assert set(examples) == set(registry())
    for kind, some in examples.items():
        assert some
        assert {type(example) for example in some} == {registry()[kind]}


def test_analyses_keep_the_contract(example, people, monkeypatch):
    # Previews of three releases are those of one, three times.
    monkeypatch.setattr("dpstats.planning.previews.simulated.PRETEND_RELEASES", 1)
    check_analysis(example, people.schema, people.rows)


def test_a_release_infers_by_name_and_by_analysis_and_names_the_rules_of_columns(examples, people):
    """The published candidates are few, so that no shown number may depend on them."""
    kinds = ("group_means", "ols", "logistic", "marginals", "independence", "quantile", "mean")
    asked = {kind: examples[kind][-1] for kind in kinds}
    plan = dps.plan(people.schema, asked, budget=dps.PureDP(50))
    release = dps.synthesize(dps.measure(plan, people.rows), rng=0, m=200, k=50)
    for kind, analysis in asked.items():
        summary = release.infer(kind).summary()
        assert analysis.infer(release).summary() == summary, kind
        (line,) = [text for text in summary.splitlines() if "outside the declaration" in text]
        used = analysis.family(people.schema).column_names
        rules = line.replace(",", "").replace(":", "").split()
        for column in people.schema:
            assert (column.name in rules) == (column.name in used), (kind, line)
            assert column.name not in used or column.missing_rule() in line
