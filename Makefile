# `make` alone lists the targets. Everything happens in .venv; a stamp file keeps the installation from being done twice.
#
#   EXTRAS=dev,cuda12   also install JAX for an NVIDIA GPU
#   PYTHON=python3.13   the interpreter to make .venv with (3.11 or newer; default: the first that fits)

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-slow test-all test-torch lint types compiled bench site dist clean

EXTRAS ?= dev
comma := ,
VENV := .venv
BIN := $(VENV)/bin
# What a run needs, and beside that what developers need.
RUN_STAMP := $(VENV)/.installed
STAMP := $(VENV)/.installed-$(subst $(comma),-,$(EXTRAS))
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

# The folder of data files beside the clone, unless the environment names another one.
ifneq ($(wildcard ../shared/data/.),)
export SIMFL_DATA ?= $(abspath ../shared/data)
endif

help:
	@echo "make demo    install what a run needs, then run AD-PSGD and SYNC with one slow worker, and draw and play both"
	@echo "make test    install the tools of developers too, then run the quick tests (5 minutes on two cores)"
	@echo "make test-all  all tests, the slow ones too (25 minutes on two cores)"
	@echo "make lint    ruff: lint and format check; scripts of pages by node and tsc, where they are installed"
	@echo "make types   mypy --strict"
	@echo "make compiled  a wheel in dist/ whose hot modules are compiled, compared with the sources"
	@echo "make bench   updates per second, against the limit of the bare kernel"
	@echo "make site    the documentation as a site, in build/site"
	@echo "make dist    the sources and a wheel that is not compiled in dist/, checked as an index of packages does"
	@echo "make setup   install only"
	@echo "make clean   remove .venv, caches and build products (results stay)"

setup: $(STAMP)

.PHONY: venv
venv:
	@set -e; found=; \
	if ! $(BIN)/python -m pip --version >/dev/null 2>&1; then \
	  for candidate in $(or $(PYTHON),python3 python3.13 python3.12 python3.11); do \
	    if "$$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then \
	      found="$$candidate"; break; \
	    fi; \
	  done; \
	  if [ -z "$$found" ]; then \
	    echo "simfl needs Python 3.11 or newer, and $(or $(PYTHON),python3) is not: make PYTHON=/path/to/python" >&2; exit 1; \
	  fi; \
	  "$$found" -m venv $(VENV); \
	fi

$(RUN_STAMP): pyproject.toml constraints.txt | venv
	$(PIP) -e .
	@touch $@

# What developers need has what a run needs: pip runs once.
$(STAMP): pyproject.toml constraints.txt | venv
	$(PIP) -e '.[$(EXTRAS)]'
	@touch $(RUN_STAMP) $@

demo: $(RUN_STAMP)
	$(BIN)/simfl run scenarios/demo/adpsgd.yaml scenarios/demo/sync.yaml --set record.play=true
	$(BIN)/simfl play "$$(ls -d results/demo-adpsgd/[0-9]* | tail -n 1)" "$$(ls -d results/demo-sync/[0-9]* | tail -n 1)" \
	  -o results/demo.html

# Quick tests should take at most so many seconds of processor time; they fail at twice as many.
QUICK_CPU_S ?= 600

test: $(STAMP)
	$(BIN)/python -m pytest -n 2 -m "not slow" --cpu-budget $(QUICK_CPU_S)

test-slow: $(STAMP)
	$(BIN)/python -m pytest -n 2 -m slow

test-all: $(STAMP)
	$(BIN)/python -m pytest -n 2 --cpu-budget $(QUICK_CPU_S)

# An environment of its own: PyTorch takes gigabytes, and needs older setuptools and mpmath than the rest. Hugging
# Face's library is in it too. Most of their modules are never imported: none is compiled before it is.
build/torch/ready: $(STAMP)
	$(BIN)/python -m venv build/torch
	build/torch/bin/python -m pip install --quiet --no-compile $$(grep -E '^(torch|datasets)' constraints.txt)
	echo "import site; site.addsitedir('$$($(BIN)/python -c "import sysconfig; print(sysconfig.get_path('purelib'))")')" \
	  > "$$(build/torch/bin/python -c "import sysconfig; print(sysconfig.get_path('purelib'))")/simfl-tests.pth"
	@touch $@

test-torch: build/torch/ready
	build/torch/bin/python -m pytest tests/frameworks/test_pytorch.py tests/frameworks/test_huggingface.py

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	@if command -v node >/dev/null; then for script in simfl/reports/*.js simfl/reports/scripts/*.js; do node --check $$script || exit 1; done; \
	else echo "node is missing: scripts of pages are not checked"; fi
	@if command -v tsc >/dev/null; then tsc -p simfl/reports/scripts; \
	else echo "tsc is missing (Debian: apt install node-typescript): types of the player's scripts are not checked"; fi

types: $(STAMP)
	$(BIN)/mypy

compiled: $(STAMP)
	$(BIN)/python .ci/compiled.py

bench: $(STAMP)
	$(BIN)/simfl bench

site: $(STAMP)
	$(BIN)/python -m sphinx -W --keep-going -q -b html docs build/site

# Nothing is fetched while sources and wheel are built; twine reads what was built, as an index of packages does.
dist: $(STAMP)
	rm -rf dist
	$(PIP) build twine
	SIMFL_COMPILE=0 $(BIN)/python -m build --no-isolation
	$(BIN)/python -m twine check --strict dist/*

clean:
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find simfl tests -name __pycache__ -type d -prune -exec rm -rf {} +
