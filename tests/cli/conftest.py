"""A folder with a request and its table, for the command line."""

import pytest

REQUEST = """
[budget]
epsilon = 1
[[column]]
name = "smoker"
levels = ["no", "yes"]
[[column]]
name = "age"
low = 0
high = 120
edges = [65]
[[analysis]]
name = "smoking"
kind = "proportion"
condition = "smoker == 'yes'"
[[analysis]]
name = "old"
kind = "proportion"
condition = "smoker == 'yes'"
given = "age >= 65"
"""


@pytest.fixture
def folder(tmp_path, survey, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "request.toml").write_text(REQUEST)
    survey.to_csv(tmp_path / "survey.csv", index=False)
    return tmp_path
