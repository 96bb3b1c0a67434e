# Two commands for a fresh machine: `make demo` and `make test`. Each sets up everything it needs.
PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
READY = $(VENV)/.ready

# One torch thread a process: with several processes on few cores, more threads are many times slower.
export OMP_NUM_THREADS = 1
export MKL_NUM_THREADS = 1

.PHONY: setup demo test test-all test-shuffled lint site package bench clean

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
	$(BIN)/pytest -n 2 --dist worksteal -m 'not slow'

test-all: lint
	$(BIN)/pytest -n 2 --dist worksteal

# The same tests in a random order. A failure names the seed of that order: make test-shuffled SEED=N repeats it.
SEED ?= $(shell date +%s)
test-shuffled: $(READY)
	@echo "order $(SEED)"
	$(BIN)/pytest -n 2 --dist worksteal -m 'not slow' -p randomly --randomly-seed=$(SEED)

# The documentation as a site, in site/; each warning ends it. What makes pages and packages has an environment of its own.
TOOLS = $(VENV)-tools
$(TOOLS)/.ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(TOOLS)
	$(TOOLS)/bin/pip install --quiet --disable-pip-version-check mkdocs-material==9.8.1 mkdocs-jupyter==0.26.3 \
	  latex2mathml==3.81.1 build==1.6.1 twine==7.0.0
	touch $(TOOLS)/.ready

site: $(TOOLS)/.ready
	PYTHONPATH=src NO_MKDOCS_2_WARNING=1 $(TOOLS)/bin/python tools/make_site.py

# sdist and wheel, checked, and the wheel installed into an empty environment. A release: tools/release.py --home ADDRESS
package: $(TOOLS)/.ready
	$(TOOLS)/bin/python tools/release.py --check

# What the machine at hand can measure, into bench.md. PEERS is an interpreter that has pfl and fedjax, if there is one.
PEERS ?= $(BIN)/python
bench: $(READY)
	{ $(BIN)/python benchmarks/overhead.py && $(BIN)/python benchmarks/scale.py && \
	  $(BIN)/python benchmarks/peers.py --python $(PEERS) && \
	  if $(BIN)/python -c 'import torch, sys; sys.exit(not torch.cuda.is_available())'; then \
	    $(BIN)/python benchmarks/cohort.py --precision tf32 --free && $(BIN)/python benchmarks/rounds.py --free; fi; } \
	  | tee bench.md

clean:
	rm -rf $(VENV) $(TOOLS) site dist .mypy_cache .ruff_cache .pytest_cache
