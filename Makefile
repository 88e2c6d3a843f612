# Both commands install what they need; a fresh machine needs only Python 3.11 or newer:
#   make demo    run an end-to-end example on a bundled public data set
#   make test    run the linters, the type checker and the tests, as CI does
PYTHON ?= python3
BIN := .venv/bin
export OPENBLAS_NUM_THREADS ?= 1

.PHONY: demo test test-slow check benchmark clean

demo: .venv/installed
	$(BIN)/dpstats demo

test: .venv/installed-dev check
	DPSTATS_VIGNETTES=thin $(BIN)/python -m pytest -m "not slow"

test-slow: .venv/installed-dev
	$(BIN)/python -m pytest -m "slow or not slow" -s

check: .venv/installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

benchmark: .venv/installed-dev
	$(BIN)/python tests/benchmarks/waiting.py

.venv/bin/python:
	$(PYTHON) -c "import sys; sys.exit('dpstats needs Python 3.11 or newer: make PYTHON=python3.11 ...' if sys.version_info < (3, 11) else 0)"
	$(PYTHON) -m venv .venv

.venv/installed: pyproject.toml | .venv/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable ".[plots]"
	touch $@

.venv/installed-dev: pyproject.toml | .venv/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable ".[dev]"
	touch $@ .venv/installed

clean:
	rm -rf .venv build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
