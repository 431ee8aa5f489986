# Each target works on a fresh clone: it makes its own virtual environment first.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# One pinned set for every target, so that two installs are the same.
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet --constraint constraints.txt

.PHONY: demo test check figures bench audit-campaign walk-comparison clean
.DELETE_ON_ERROR:

demo: $(VENV)/.demo  ## The main job, offline, on one screen
	@$(BIN)/veilwalk demo --out out/demo

test: check  ## Everything that must hold before a change lands
	$(BIN)/pytest -n 2 --dist worksteal

check: $(VENV)/.test  ## Formatting, lint, types, layers
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

figures: $(VENV)/.demo  ## The paper's three figures into out/paper
	$(BIN)/veilwalk paper reproduce all --out out/paper

bench: $(VENV)/.bench  ## Ratios against the peers a user would pick; takes a while
	$(BIN)/python -m benchmarks.graphs
	$(BIN)/python -m benchmarks.chains
	$(BIN)/python -m benchmarks.walks

audit-campaign: $(VENV)/.demo  ## Every law, every observer, the curve over colluders; ten minutes; writes docs
	$(BIN)/python -m benchmarks.audit_campaign

walk-comparison: $(VENV)/.demo  ## Hops and entropy of the walks side by side; a minute; writes docs
	$(BIN)/python -m benchmarks.walk_comparison

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "veilwalk needs Python 3.11 or newer; $(PYTHON) is older: set PYTHON=..."; exit 2; }
	$(PYTHON) -m venv $(VENV)

# The build back-end is installed first and pinned too: an isolated build would fetch whatever is newest.
$(VENV)/.demo: $(VENV)/bin/python pyproject.toml constraints.txt
	$(PIP) hatchling editables
	$(PIP) --no-build-isolation --editable '.[report]'
	@touch $@

$(VENV)/.test: $(VENV)/.demo
	$(PIP) --no-build-isolation --editable '.[report,dev,torch,sklearn,dp]'
	@touch $@

$(VENV)/.bench: $(VENV)/.test
	$(PIP) --no-build-isolation --editable '.[report,dev,bench,torch,sklearn,dp]'
	@# Its own metadata pins an old NumPy that it does not need; it runs with ours.
	$(PIP) --no-deps PyDTMC
	@touch $@

clean:
	rm -rf $(VENV) out .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
