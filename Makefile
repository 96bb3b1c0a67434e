# Two commands for a fresh machine: `make demo` and `make test`. Each sets up everything it needs.
PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
READY = $(VENV)/.ready

# One torch thread a process: with several processes on few cores, more threads are many times slower.
export OMP_NUM_THREADS = 1
export MKL_NUM_THREADS = 1

.PHONY: setup demo test test-all lint bench clean

setup: $(READY)

# Four different networks on four rotations of real digits, five ways to learn together, and a report; two minutes.
demo: $(READY)
	$(BIN)/heterophony demo

# torch goes first and pinned, so that no later step can pull another build of it.
$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt torch
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $(READY)

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

test: lint
	$(BIN)/pytest -n 2 -m 'not slow'

test-all: lint
	$(BIN)/pytest -n 2

bench: $(READY)
	$(BIN)/python benchmarks/overhead.py
	$(BIN)/python benchmarks/scale.py

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache
