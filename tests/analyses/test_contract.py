"""Every registered analysis keeps the contract; tests/test_testing.py has some that do not."""

from dpstats.analyses.registry import registry
from dpstats.testing import check_analysis


def test_every_kind_has_examples_of_itself(examples):
    assert set(examples) == set(registry())
    for kind, some in examples.items():
        assert some
        assert {type(example) for example in some} == {registry()[kind]}


def test_analyses_keep_the_contract(example, people):
    check_analysis(example, people.schema, people.rows)
