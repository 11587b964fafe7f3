PYTHON ?= python3
VENV ?= .venv
# What is installed: extras of pyproject.toml, and requirements beside them (pinned versions).
EXTRAS ?= dev
PINS ?=
# Processes that run the tests; those of one file stay together.
JOBS ?= 2
PY := $(VENV)/bin/python
STAMP := $(VENV)/.installed

.PHONY: run test test-slow test-gpu check lint format clean

run: $(STAMP)
	$(PY) -m tirgym optimize matmul --agent beam --trials 64 --out runs/matmul.json --picture runs/matmul.png

test: $(STAMP)
	$(PY) -m pytest -q -n $(JOBS) --dist loadfile

test-slow: $(STAMP)
	$(PY) -m pytest -q -m slow

test-gpu: $(STAMP)
	$(PY) -m pytest -q -m gpu

lint: $(STAMP)
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	$(VENV)/bin/mypy tests
	$(VENV)/bin/lint-imports

check: lint test

format: $(STAMP)
	$(VENV)/bin/ruff format .
	$(VENV)/bin/ruff check --fix .

$(STAMP): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(PY) -m pip install -q --upgrade pip
	$(PY) -m pip install -qq $(PINS) -e '.[$(EXTRAS)]'
	touch $@

clean:
	rm -rf $(VENV) build dist *.egg-info
