# Both commands install what they need; a fresh machine needs only Python 3.11 or newer:
#   make demo    run an end-to-end example on a bundled public data set
#   make test    run the linters, the type checker, the links of the documentation and the tests,
#                as CI does
#   make mutants plant bugs in copies of the package, and see that the tests find them
#   make fuzz    give a million changed files and tables to the package (an hour)
#   make docs    build the documentation, with the output of the vignettes, in build/docs/html
PYTHON ?= python3
BIN := .venv/bin
export OPENBLAS_NUM_THREADS ?= 1

# Spark is tested where there is Java, which it needs.
TESTED := dev$(if $(shell command -v java),$(shell echo ,)spark)
SPHINX := $(BIN)/python -m sphinx --quiet --fail-on-warning --keep-going -j auto -c docs -d build/docs/trees
# The oldest versions that pyproject.toml allows, against the tests of what depends on them.
LOWEST := build/lowest
CORE := $(addprefix tests/,analyses bounds cli corrected families inference measured planning \
	plots private releases reports results rows schema theory verifying)

.PHONY: demo test test-slow test-lowest check docs docs-check mutants fuzz clean

demo: .venv/installed
	@echo "running the example"
	@$(BIN)/dpstats demo

test: .venv/installed-dev
	@$(MAKE) --no-print-directory --jobs=2 check docs-check
	$(BIN)/python -m pytest -n auto --dist worksteal -m "not slow"

test-slow: .venv/installed-dev
	$(BIN)/python -m pytest -m "slow or not slow" -s

test-lowest: .venv/installed-dev
	$(BIN)/python -m pip install --quiet --disable-pip-version-check uv
	$(BIN)/uv venv --quiet --clear --python $(BIN)/python $(LOWEST)
	$(BIN)/uv pip install --quiet --python $(LOWEST)/bin/python --resolution lowest-direct \
		--editable ".[test]"
	$(LOWEST)/bin/python -m pytest -W default -m "not slow" $(CORE)

# Builds every page with warnings as errors; vignettes run here, and again only when they change.
docs: .venv/installed-dev
	$(SPHINX) -b html . build/docs/html
	@echo "open build/docs/html/index.html"

# The same checks of links, navigation and docstrings, in seconds: nothing runs or is written.
docs-check: .venv/installed-dev
	rm -rf docs/reference/names
	$(SPHINX) -D run_vignettes=0 -b dummy . build/docs/checked

check: .venv/installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# Plants bugs in what privacy rests on, one by one, and writes which test sees each (15 minutes).
mutants: .venv/installed-dev
	$(BIN)/python tests/mutants/plant.py

# What was counted before is kept in build/fuzz.json; remove it to start again.
fuzz: .venv/installed-dev
	$(BIN)/python tests/fuzz/run.py

.venv/bin/python:
	$(PYTHON) -c "import sys; sys.exit('dpstats needs Python 3.11 or newer: make PYTHON=python3.11 ...' if sys.version_info < (3, 11) else 0)"
	@echo "making the folder .venv for dpstats and what it needs"
	$(PYTHON) -m venv .venv

.venv/installed: pyproject.toml | .venv/bin/python
	@echo "installing dpstats into .venv: a few minutes, only the first time"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable ".[plots]"
	touch $@

.venv/installed-dev: pyproject.toml | .venv/bin/python
	@echo "installing dpstats and the tools of its tests into .venv: a few minutes, only the first time"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable ".[$(TESTED)]"
	touch $@ .venv/installed

clean:
	rm -rf docs/reference/names vignettes/figures
	rm -rf .venv build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
