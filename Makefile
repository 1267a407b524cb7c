# Nothing is needed beforehand but Python 3.11 or newer (with venv) and make: `make demo`, `make test`.

PYTHON ?= python3
VENV := .venv
PIP := $(VENV)/bin/python -m pip install --quiet --disable-pip-version-check --no-input

# What was installed, and when: the package alone, or the package and the tools of a developer.
PACKAGE := $(VENV)/.installed-package
TOOLS := $(VENV)/.installed-tools
SOURCES := pyproject.toml launcher/postroom

.PHONY: demo test test-clients test-sdks check bench bench-quick soak clean
.DEFAULT_GOAL := test

demo: $(PACKAGE)        ## two sessions as real processes pass each other messages
	$(VENV)/bin/postroom demo

test: $(TOOLS)          ## everything that must hold: style, types, tests, coverage of the core
	scripts/test

test-clients: $(TOOLS)  ## real coding agents, installed by package name (2 GB); needs root. ONLY=claude-code,codex
	$(VENV)/bin/python -m tests.clients $(if $(ONLY),--only $(ONLY))

test-sdks: $(TOOLS)     ## the examples on the OpenAI and Claude agent SDKs, installed by package name (0.7 GB); needs root
	$(VENV)/bin/python -m tests.sdks $(if $(ONLY),--only $(ONLY))

check: $(TOOLS)         ## style and types alone
	scripts/check

bench: $(TOOLS)         ## every path of chapter 12: the floor, ours, and the peers that are installed
	$(VENV)/bin/python -m benchmarks

bench-quick: $(TOOLS)   ## the same in under two minutes
	$(VENV)/bin/python -m benchmarks --quick

soak: $(TOOLS)          ## 1,000 rounds of killing a receiver under load; `make test` runs a few
	POSTROOM_TEST_ROUNDS=1000 $(VENV)/bin/python -m pytest -m soak --timeout=0 -s

clean:                  ## back to a fresh clone
	rm -rf $(VENV) build dist .pytest_cache .hypothesis .ruff_cache .coverage .coverage.*
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# A .venv that works is kept with what it holds; a broken one, or one of an older Python, is made anew.
$(VENV)/.usable:
	@case '$(CURDIR)' in *' '*) \
		echo 'Move this folder: the first line of an installed command cannot hold a path with a space.' >&2; exit 1;; esac
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo 'Postroom needs Python 3.11 or newer. Name one: make PYTHON=python3.11 …' >&2; exit 1; }
	@$(VENV)/bin/python -c 'import sys, pip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || \
		{ echo 'making $(VENV)'; $(PYTHON) -m venv --clear $(VENV); }
	@touch $@

$(PACKAGE): $(SOURCES) | $(VENV)/.usable
	@echo 'installing postroom into $(VENV)'
	@$(PIP) --editable .
	@touch $@

$(TOOLS): $(SOURCES) | $(VENV)/.usable
	@echo 'installing postroom and the tools of a developer into $(VENV)'
	@$(PIP) --editable '.[dev]'
	@touch $(PACKAGE) $@
