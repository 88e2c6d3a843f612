from fractions import Fraction

import pytest

import dpstats as dps
from dpstats.planning.requests import load_request

REQUEST = """
rows = 100
[budget]
epsilon = 0.5
[[column]]
name = "smoker"
levels = ["no", "yes"]
[[analysis]]
name = "smoking"
kind = "proportion"
condition = "smoker == 'yes'"
"""


@pytest.fixture
def load(tmp_path):
    """Reads a request of this text."""

    def load(text, **options):
        (tmp_path / "request.toml").write_text(text)
        return load_request(tmp_path / "request.toml", **options)

    return load


def test_request_becomes_a_plan(load):
    plan = load(REQUEST)
    assert plan.budget == dps.PureDP(0.5)
    assert plan.n == 100
    assert plan.analyses == {"smoking": dps.Proportion("smoker == 'yes'")}
    assert load(REQUEST, rows=7).n == 7
    more = REQUEST + 'share = 1\n[reference]\nkind = "perturbed_histogram"\nshare = "1/4"\n'
    plan = load(more)
    assert plan.reference == dps.PerturbedHistogram("1/4")
    assert plan.cost() == plan.budget.total
    for budget, expected in (
        ('rho = "1/3"', dps.ZCDP(Fraction(1, 3))),
        ("epsilon = 1\ndelta = 1e-6", dps.ApproxDP(1, 1e-6)),
    ):
        plan = load(REQUEST.replace("epsilon = 0.5", budget))
        assert plan.budget == expected
        assert plan.cost() == expected.rho


def test_mistakes_are_explained(tmp_path, load):
    for old, new, message in (
        (REQUEST, "a = = 1", "not valid TOML"),
        (REQUEST, "kind = secret", 'text needs double quotes, as in kind = "ols"'),
        ("[budget]\nepsilon = 0.5", "", "needs \\[budget\\]"),
        ("epsilon = 0.5", "epsilon = 0.5\nrho = 1", "nothing else"),
        ("epsilon = 0.5", "epsilon = 1\ndelta = 1", r"\[budget\]: delta must be .* below 1"),
        ("epsilon = 0.5", "epsilon = 1\ngama = 1", r"\[budget\] has unknown keys \['gama'\]"),
        ("epsilon = 0.5", "epsilon = 1\nweights = 'max'", r"put \['weights'\] above the first"),
        ("rows = 100", "rows = -1", "number of rows n must be"),
        ("epsilon = 0.5", 'epsilon = "0.5"', "epsilon = '0.5' is text; write a"),
        ("rows = 100", "row = 100", r"unknown keys \['row'\] \(did you mean 'rows'\?\)"),
        ('kind = "proportion"', 'kind = "median"', "unknown kind of analysis"),
        ('kind = "proportion"', 'kind = "proportion"\ngivn = "x"', r"unknown keys \['givn'\]"),
        ("condition =", "given =", "missing keys \\['condition'\\]"),
        ('name = "smoking"', "", "needs a name"),
        ("levels =", "level =", r"got the keys \['level'\] \(did you mean 'levels'\?\)"),
        ("rows = 100", "rows = 100\n[guesses]\ntypical = 1", "typical of the guesses must map"),
    ):
        assert old in REQUEST
        with pytest.raises(dps.RequestError, match=message) as raised:
            load(REQUEST.replace(old, new, 1))
        assert str(raised.value).startswith("request.toml")
        assert not isinstance(raised.value, dps.BudgetError)  # nothing would exceed a budget
    with pytest.raises(dps.RequestError, match="cannot read"):
        load_request(tmp_path / "none.toml")
