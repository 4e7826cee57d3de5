# make demo   environment, build, and a network trained on real digits, with a picture of it
# make test   environment, build, and every test against the installed package
# make lint   format, lint and types
# make bench  the CPU benchmarks, side by side with torch
PYTHON ?= python3
VENV ?= .venv
BIN := $(abspath $(VENV))/bin
SOURCES := pyproject.toml $(shell find renaissance models datasets ext -type f \
	-not -name '*.pyc' -not -name '*.so')

.PHONY: demo test lint bench clean

demo: $(VENV)/installed
	$(BIN)/renaissance train examples/quickstart.yaml

# From tests/, so that what is tested is the installed package and not the folder beside it. One
# process a core, each with one OpenMP thread: teams of several processes would fight for the cores.
test: $(VENV)/installed
	cd tests && OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --maxprocesses 8 --dist worksteal $(PYTEST_ARGS)

lint: $(VENV)/installed
	$(BIN)/python -m ruff format --check .
	$(BIN)/python -m ruff check .
	cd tests && $(BIN)/python -m mypy --config-file ../pyproject.toml -p renaissance

bench: $(VENV)/installed
	$(BIN)/python benchmarks/bench_update.py

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip

$(VENV)/installed: $(VENV)/bin/python $(SOURCES)
	$(BIN)/python -m pip install --quiet --config-settings=cmake.define.RN_WERROR=ON '.[dev]'
	touch $@

clean:
	rm -rf build dist $(VENV)
