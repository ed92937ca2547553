# make demo: install, then train in the three modes, compare them and write a report
# make test: install, then lint, type check and run the suite (make test-slow: the long tests)
# make test-peers: the tests against other packages, in an environment of their own

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.twinax-installed
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet -c constraints.txt
WORKERS ?= 2
PEERS := .venv-peers

.PHONY: install test lint test-slow test-peers demo bench clean

install: $(STAMP)

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "error: twinax needs Python 3.11 or newer; name one with make PYTHON=python3.12 install")'
	$(PYTHON) -m venv $(VENV)

# Installed again only when one of the two files that decide what is installed has changed.
$(STAMP): pyproject.toml constraints.txt | $(BIN)/python
	@echo "installing into $(VENV); this takes a few minutes the first time"
	$(PIP) torch==2.13.0
	$(PIP) -e '.[all]'
	@touch $@

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright

test: lint
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m "not slow and not peers" -n $(WORKERS) --dist worksteal

test-slow: install
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m "slow and not peers" -n $(WORKERS) --dist worksteal

# What others need must not change what the suite is run with: it is only seen from there.
$(PEERS)/.twinax-installed: $(STAMP)
	$(PYTHON) -m venv $(PEERS)
	$(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))' > \
		$$($(PEERS)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/twinax-suite.pth
	$(PEERS)/bin/python -m pip --disable-pip-version-check install --quiet -e '.[wandb,mlflow,trackio]'
	@touch $@

test-peers: $(PEERS)/.twinax-installed
	OMP_NUM_THREADS=1 $(PEERS)/bin/python -m pytest -m peers tests/peers

demo: install
	$(BIN)/python -m twinax.cli demo run.dir=runs/demo

bench: install
	$(BIN)/python benchmarks/gflownet_hypergrid.py

clean:
	rm -rf .cache .hypothesis .pytest_cache .ruff_cache build dist *.egg-info
	find twinax tests benchmarks baselines -name __pycache__ -type d -prune -exec rm -rf {} +
